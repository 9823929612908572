//! The disk whose every write and flush is logged.

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::mount::{mount, MountFlags, UnmountFlags};
use tempfile::TempDir;

use super::clock::Clock;
use super::error::CrashError;
use super::fault::{Fault, Faults};
use super::fuse::{lock, DiskFs, Platter, SharedPlatter, FILE_NAME};
use super::keeper::Keeper;
use super::log::{DiskEvent, Log};
use super::loop_device::LoopDevice;
use super::mounted::unmount_dir;

/// What a disk is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskOptions {
    /// How long a flush takes beyond what it costs here: 1.8 ms is a cloud volume, 8 ms a disk with platters.
    pub flush_delay: Duration,
}

/// A block device in memory. What uses it must be unmounted before it is dropped.
///
/// Its requests are served by a thread of this process: a thread of this process that writes to the device waits for
/// another. Needs root.
pub struct CrashDisk {
    // In the order in which they must go.
    device: Option<LoopDevice>,
    session: Option<BackgroundSession>,
    keeper: Option<Keeper>,
    dir: TempDir,
    platter: SharedPlatter,
    clock: Clock,
    base: Vec<u8>,
}

impl CrashDisk {
    /// A disk of `size` bytes (a multiple of 4096), all zero, without delay.
    pub fn create(size: usize) -> Result<CrashDisk, CrashError> {
        CrashDisk::with_options(size, DiskOptions::default())
    }

    /// A disk of `size` bytes, all zero.
    pub fn with_options(size: usize, options: DiskOptions) -> Result<CrashDisk, CrashError> {
        let platter = Arc::new(Mutex::new(Platter {
            content: vec![0; size],
            flush_delay: options.flush_delay,
            ..Platter::default()
        }));
        let clock = Clock::new();
        let dir = tempfile::Builder::new().prefix("crash-disk-").tempdir();
        let dir = dir.map_err(CrashError::system("make a temporary directory"))?;
        let fs = DiskFs { platter: platter.clone(), clock: clock.clone() };
        let mut disk = CrashDisk {
            device: None,
            session: Some(serve(fs, dir.path())?),
            keeper: None,
            dir,
            platter,
            clock,
            base: Vec::new(),
        };
        disk.keeper = Some(Keeper::start(disk.dir.path())?);
        disk.device = Some(disk.attach()?);
        Ok(disk)
    }

    fn attach(&self) -> Result<LoopDevice, CrashError> {
        let path = self.dir.path().join(FILE_NAME);
        let image = OpenOptions::new().read(true).write(true).open(&path);
        let image = image.map_err(CrashError::system(format!("open {}", path.display())))?;
        LoopDevice::attach(&image, &path)
    }

    /// The block device, `/dev/loopN`.
    pub fn device(&self) -> &Path {
        match &self.device {
            Some(device) => device.path(),
            None => Path::new("/dev/null"),
        }
    }

    /// What stamps the requests, and the messages of an [`super::Observer`].
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// From now on a flush takes so much longer.
    pub fn set_flush_delay(&self, delay: Duration) {
        lock(&self.platter).flush_delay = delay;
    }

    /// From now on this goes wrong, or nothing.
    pub fn set_fault(&self, fault: Option<Fault>) {
        lock(&self.platter).faults = fault.map_or_else(Faults::default, Faults::new);
    }

    /// How many requests have failed since the fault was set.
    pub fn faults_hit(&self) -> u64 {
        lock(&self.platter).faults.hits()
    }

    /// How many writes and flushes the disk has had since it was made.
    pub fn requests(&self) -> (u64, u64) {
        let platter = lock(&self.platter);
        (platter.writes, platter.flushes)
    }

    /// Makes a file system: runs `command` (program and arguments) with `{device}` replaced.
    pub fn format(&self, command: &[String]) -> Result<(), CrashError> {
        let device = self.device().to_string_lossy();
        let command: Vec<String> = command.iter().map(|word| word.replace("{device}", &device)).collect();
        run(&command)
    }

    /// Takes the present content as what is on the platter, and logs from here. What is mounted should have been
    /// synced.
    pub fn start_recording(&mut self) {
        let mut platter = lock(&self.platter);
        platter.recording = Some(Vec::new());
        self.base.clone_from(&platter.content);
    }

    /// Ends the recording; the messages are the observer's to add.
    pub fn stop_recording(&mut self) -> Log {
        let disk: Vec<DiskEvent> = lock(&self.platter).recording.take().unwrap_or_default();
        Log { base: std::mem::take(&mut self.base), disk, messages: Vec::new(), end: self.clock.now() }
    }
}

impl Drop for CrashDisk {
    fn drop(&mut self) {
        drop(self.device.take());
        unmount_dir(self.dir.path(), UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let Some(session) = self.session.take() {
            let _ = session.join();
        }
        drop(self.keeper.take());
    }
}

/// Mounts ourselves rather than by fuser, which would look for fusermount(1) on errors.
fn serve(fs: DiskFs, dir: &Path) -> Result<BackgroundSession, CrashError> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device: OwnedFd = device.map_err(CrashError::system("open /dev/fuse"))?.into();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap_or_default();
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    mount("crash-disk", dir, "fuse", flags, Some(data.as_c_str()))
        .map_err(CrashError::system(format!("mount a FUSE file system at {} (run as root)", dir.display())))?;
    let session = Session::from_fd(fs, device, SessionACL::Owner, Config::default());
    let session = session.and_then(Session::spawn);
    if session.is_err() {
        unmount_dir(dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
    session.map_err(CrashError::system("serve a FUSE file system"))
}

/// Runs a command to its end.
pub(super) fn run(command: &[String]) -> Result<(), CrashError> {
    let Some((program, args)) = command.split_first() else {
        return Ok(());
    };
    let output = Command::new(program).args(args).output();
    let output = output.map_err(CrashError::system(format!("run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(CrashError::Command {
        command: command.join(" "),
        outcome: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
