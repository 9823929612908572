//! Rebuilds the disk as it was after a cut, has the file system recover it, and lets a checker look.
//!
//! Cuts come in the order of time: a shadow of what is certainly on the platter only ever moves forward. For each cut a
//! copy of it, with the writes that were kept, goes to a memory file under a loop device of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{fallocate, memfd_create, seek, FallocateFlags, MemfdFlags, SeekFrom};
use rustix::io::Errno;
use tempfile::TempDir;

use super::cut::Cut;
use super::error::CrashError;
use super::log::{DiskEvent, Log, Message};
use super::loop_device::LoopDevice;
use super::mounted::Mounted;
use super::report::{Outcome, Violation};

/// What is compared and restored as one.
const CHUNK_LEN: usize = 64 << 10;

/// Replays cuts of one log.
pub struct Replayer<'log> {
    log: &'log Log,
    mount_options: String,
    shadow: Vec<u8>,
    /// By chunk: the shadow may hold something other than zeroes.
    in_use: Vec<bool>,
    applied: usize,
    image: File,
    // Detached before the directory goes.
    device: LoopDevice,
    dir: TempDir,
}

impl<'log> Replayer<'log> {
    /// `mount_options` as for mount(8) -o, for ext4; it must be possible to write, or the journal is not recovered.
    pub fn new(log: &'log Log, mount_options: &str) -> Result<Replayer<'log>, CrashError> {
        let image = memfd_create("crash-replay", MemfdFlags::CLOEXEC);
        let image = File::from(image.map_err(CrashError::system("make a memory file"))?);
        let sized = image.set_len(log.base.len() as u64);
        sized.map_err(CrashError::system("write a memory file"))?;
        let dir = tempfile::Builder::new().prefix("crash-replay-").tempdir();
        let zeroes = [0; CHUNK_LEN];
        let is_in_use = |chunk: &[u8]| *chunk != zeroes[..chunk.len()];
        Ok(Replayer {
            log,
            mount_options: mount_options.to_owned(),
            shadow: log.base.clone(),
            in_use: log.base.chunks(CHUNK_LEN).map(is_in_use).collect(),
            applied: 0,
            device: LoopDevice::attach(&image, Path::new("crash-replay"))?,
            image,
            dir: dir.map_err(CrashError::system("make a temporary directory"))?,
        })
    }

    /// Brings the shadow to be the platter after `cut`, before anything recovers it, and back when `look` has seen it.
    /// Cuts must come in the order of [`super::CutPlan`].
    fn with_platter<T>(&mut self, cut: &Cut, look: impl FnOnce(&mut Self) -> T) -> T {
        for event in &self.log.disk[self.applied.min(cut.certain)..cut.certain] {
            if let DiskEvent::Write { offset, data, .. } = event {
                self.put(*offset, data);
            }
        }
        self.applied = self.applied.max(cut.certain);
        let patches = cut.patches(self.log);
        let before: Vec<_> = patches.iter().map(|(offset, data)| self.put(*offset, data)).collect();
        let seen = look(self);
        for ((offset, _), data) in patches.iter().zip(before).rev() {
            self.put(*offset, &data);
        }
        seen
    }

    /// What was there before.
    fn put(&mut self, offset: u64, data: &[u8]) -> Vec<u8> {
        let begin = offset as usize;
        let place = &mut self.shadow[begin..begin + data.len()];
        let before = place.to_vec();
        place.copy_from_slice(data);
        for index in begin / CHUNK_LEN..(begin + data.len()).div_ceil(CHUNK_LEN) {
            self.in_use[index] = true;
        }
        before
    }

    /// The disk after `cut`, as it would be found.
    pub fn disk_after(&mut self, cut: &Cut) -> Vec<u8> {
        self.with_platter(cut, |replayer| replayer.shadow.clone())
    }

    /// Mounts the disk after `cut` and runs `check` on the mount point and the messages seen by then.
    pub fn replay<Check>(&mut self, cut: &Cut, check: Check) -> Result<Outcome, CrashError>
    where
        Check: FnOnce(&Path, &[Message]) -> Vec<Violation>,
    {
        self.with_platter(cut, |replayer| replayer.store())?;
        self.device.forget_cache()?;
        let observed = self.log.observed(cut.at);
        let mounted = Mounted::new(self.device.path(), self.dir.path(), "ext4", &self.mount_options);
        let violations = match mounted {
            Ok(mounted) => check(mounted.dir(), observed),
            Err(error) => vec![Violation::Corrupt(error.to_string())],
        };
        Ok(Outcome { cut: cut.clone(), observed: observed.len(), violations })
    }

    /// Writes the chunks that differ from what the image holds now, recovery's and the checker's writes included.
    fn store(&self) -> Result<(), CrashError> {
        let stored = self.try_store();
        stored.map_err(CrashError::system("restore a memory file"))
    }

    fn try_store(&self) -> io::Result<()> {
        let mut found = [0; CHUNK_LEN];
        let image_has_data = self.chunks_with_data()?;
        for (index, wanted) in self.shadow.chunks(CHUNK_LEN).enumerate() {
            let offset = (index * CHUNK_LEN) as u64;
            let found = &mut found[..wanted.len()];
            match (self.in_use[index], image_has_data[index]) {
                (false, false) => {}
                (false, true) => {
                    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(&self.image, punch, offset, wanted.len() as u64)?;
                }
                (true, _) => {
                    self.image.read_exact_at(found, offset)?;
                    if wanted != found {
                        self.image.write_all_at(wanted, offset)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// By chunk: whether memory was ever given to it.
    fn chunks_with_data(&self) -> io::Result<Vec<bool>> {
        let mut has_data = vec![false; self.in_use.len()];
        let mut at = 0;
        loop {
            let begin = match seek(&self.image, SeekFrom::Data(at)) {
                Ok(begin) => begin,
                Err(Errno::NXIO) => return Ok(has_data),
                Err(error) => return Err(error.into()),
            };
            at = seek(&self.image, SeekFrom::Hole(begin))?;
            has_data[begin as usize / CHUNK_LEN..(at as usize).div_ceil(CHUNK_LEN)].fill(true);
        }
    }
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
        let shares: Vec<_> = cuts.chunks(share).map(|cuts| scope.spawn(move || one_share(cuts))).collect();
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
