//! Rebuilds the disk as it was after a cut, has the file system recover it, and lets a checker look.
//!
//! Cuts come in the order of time: a shadow of what is certainly on the platter only ever moves forward. For each cut a copy of
//! it, with the writes that were kept, goes to a memory file under a loop device of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{memfd_create, MemfdFlags};
use tempfile::TempDir;

use super::cut::Cut;
use super::error::CrashError;
use super::log::{DiskEvent, Log, Message};
use super::loop_device::LoopDevice;
use super::mounted::Mounted;
use super::report::{Outcome, Violation};

const CHUNK_LEN: usize = 64 << 10;

/// Replays cuts of one log.
pub struct Replayer<'log> {
    log: &'log Log,
    mount_options: String,
    shadow: Vec<u8>,
    applied: usize,
    image: File,
    /// Room to read the image into.
    image_shows: Vec<u8>,
    // Detached before the directory goes.
    device: LoopDevice,
    dir: TempDir,
}

impl<'log> Replayer<'log> {
    /// `mount_options` as for mount(8) -o, for ext4; it must be possible to write, or the journal is not recovered.
    pub fn new(log: &'log Log, mount_options: &str) -> Result<Replayer<'log>, CrashError> {
        let image = memfd_create("crash-replay", MemfdFlags::CLOEXEC);
        let image = File::from(image.map_err(CrashError::system("make a memory file"))?);
        let stored = image.write_all_at(&log.base, 0);
        stored.map_err(CrashError::system("write a memory file"))?;
        let dir = tempfile::Builder::new().prefix("crash-replay-").tempdir();
        Ok(Replayer {
            log,
            mount_options: mount_options.to_owned(),
            shadow: log.base.clone(),
            applied: 0,
            device: LoopDevice::attach(&image, Path::new("crash-replay"))?,
            image_shows: vec![0; log.base.len()],
            image,
            dir: dir.map_err(CrashError::system("make a temporary directory"))?,
        })
    }

    /// The disk after `cut`, before anything recovers it. Cuts must come in the order of [`super::CutPlan`].
    pub fn disk_after(&mut self, cut: &Cut) -> Vec<u8> {
        for event in &self.log.disk[self.applied.min(cut.certain)..cut.certain] {
            if let DiskEvent::Write { offset, data, .. } = event {
                put(&mut self.shadow, *offset, data);
            }
        }
        self.applied = self.applied.max(cut.certain);
        let mut disk = self.shadow.clone();
        for (offset, data) in cut.patches(self.log) {
            put(&mut disk, offset, data);
        }
        disk
    }

    /// Mounts the disk after `cut` and runs `check` on the mount point and the messages seen by then.
    pub fn replay<Check>(&mut self, cut: &Cut, check: Check) -> Result<Outcome, CrashError>
    where
        Check: FnOnce(&Path, &[Message]) -> Vec<Violation>,
    {
        let disk = self.disk_after(cut);
        self.store(&disk)?;
        self.device.forget_cache()?;
        let observed = self.log.observed(cut.at);
        let mounted = Mounted::new(
            self.device.path(),
            self.dir.path(),
            "ext4",
            &self.mount_options,
        );
        let violations = match mounted {
            Ok(mounted) => check(mounted.dir(), observed),
            Err(error) => vec![Violation::Corrupt(error.to_string())],
        };
        Ok(Outcome {
            cut: cut.clone(),
            observed: observed.len(),
            violations,
        })
    }

    /// Writes the chunks that differ from what the image holds now, recovery's and the checker's writes included.
    fn store(&mut self, disk: &[u8]) -> Result<(), CrashError> {
        let failed = || CrashError::system("restore a memory file");
        self.image
            .read_exact_at(&mut self.image_shows, 0)
            .map_err(failed())?;
        let chunks = disk.chunks(CHUNK_LEN).zip(self.image_shows.chunks(CHUNK_LEN));
        for (index, (wanted, found)) in chunks.enumerate() {
            if wanted != found {
                let offset = (index * CHUNK_LEN) as u64;
                self.image.write_all_at(wanted, offset).map_err(failed())?;
            }
        }
        Ok(())
    }
}

fn put(disk: &mut [u8], offset: u64, data: &[u8]) {
    let begin = offset as usize;
    disk[begin..begin + data.len()].copy_from_slice(data);
}

/// Replays all of `cuts` with `jobs` replayers at once; `interrupted` ends it early, with an error.
pub fn replay_all<Check>(
    log: &Log,
    mount_options: &str,
    cuts: &[Cut],
    jobs: usize,
    interrupted: &AtomicBool,
    check: Check,
) -> Result<Vec<Outcome>, CrashError>
where
    Check: Fn(&Path, &[Message]) -> Vec<Violation> + Sync,
{
    let share = cuts.len().div_ceil(jobs.max(1)).max(1);
    let check = &check;
    let one_share = |cuts: &[Cut]| -> Result<Vec<Outcome>, CrashError> {
        let mut replayer = Replayer::new(log, mount_options)?;
        let mut outcomes = Vec::with_capacity(cuts.len());
        for cut in cuts {
            if interrupted.load(Ordering::SeqCst) {
                return Err(CrashError::Interrupted);
            }
            outcomes.push(replayer.replay(cut, check)?);
        }
        Ok(outcomes)
    };
    let one_share = &one_share;
    std::thread::scope(|scope| {
        let shares: Vec<_> = cuts
            .chunks(share)
            .map(|cuts| scope.spawn(move || one_share(cuts)))
            .collect();
        let mut outcomes = Vec::with_capacity(cuts.len());
        for share in shares {
            match share.join() {
                Ok(part) => outcomes.extend(part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(outcomes)
    })
}
