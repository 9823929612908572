//! A volume as a file system of the kernel, by FUSE. Changes are asked of the server, and return when the server has
//! answered. What is known under leases is said without asking, attributes and listings also by the kernel itself.
//!
//! - Reads and writes go around the kernel's page cache (`FOPEN_DIRECT_IO`). Mappings use it, under leases: [`pages`].
//!   What is stored in shared ones the kernel writes back: [`stores`].
//! - The server checks rights. So does the kernel (`default_permissions`), as the server has no `open`.
//! - A request that is in this process is not ended by a signal: so whoever waits here looks whether the caller has
//!   one, and whether the mount is still there.
#![deny(unsafe_code)]

mod attributes;
mod caller;
mod convert;
mod departed;
mod filesystem;
pub mod forgetter;
mod handles;
mod kernel;
mod landed;
mod listings;
mod locks;
mod names;
mod pages;
mod requests;
mod snapshots;
mod stores;
#[allow(unsafe_code)]
mod sys;
mod threads;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bluefs_client::Client;
use fuser::{Config, Session, SessionACL};
use rustix::fs::{statx, AtFlags, FileType, StatxFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};

use filesystem::Volume;
use forgetter::Forgetter;
use kernel::Kernel;
use requests::Requests;
use threads::{Threads, THREADS};

/// How long the end of a mount waits for requests that nobody waits for any more. Each looks about that every 0.1 s.
const REQUESTS_END_MAX: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often it is looked whether contents may stay in the kernel.
const TEND_EVERY: Duration = Duration::from_millis(100);

/// Why a volume is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// It was not mounted.
    #[error("cannot mount at {}: {}: {source}", dir.display(), what)]
    Mount {
        /// Where.
        dir: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It was, and its requests cannot be read any more.
    #[error("the mount has ended: {0}")]
    Ended(io::Error),
}

/// A volume that is mounted. One that is not served ([`Mounted::run`]) is unmounted with it.
pub struct Mounted {
    session: Session<Requests>,
    volume: Arc<Volume>,
    point: Point,
}

/// Where a volume is mounted that nobody may serve: then it is unmounted, as whoever uses it would wait for ever, or
/// hear that it is not connected.
struct Point {
    dir: PathBuf,
    is_served: bool,
}

/// Ends a mount from another thread.
pub struct Unmounter(PathBuf);

/// Whether a volume could be mounted here, as far as that can be known before it is connected to.
pub fn check(dir: &Path) -> Result<(), MountError> {
    let at = place(dir)?;
    fuse_device(dir)?;
    // What is mounted there may have nobody who answers: it is not asked.
    let found = statx(CWD, &at, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    if found.is_ok_and(|found| FileType::from_raw_mode(found.stx_mode.into()) != FileType::Directory) {
        return Err(failed(dir, "mount it")(Errno::NOTDIR.into()));
    }
    Ok(())
}

fn place(dir: &Path) -> Result<PathBuf, MountError> {
    dir.canonicalize().map_err(failed(dir, "look at the directory"))
}

fn fuse_device(dir: &Path) -> Result<OwnedFd, MountError> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    Ok(device.map_err(failed(dir, "open /dev/fuse"))?.into())
}

fn failed<'a>(dir: &'a Path, what: &'static str) -> impl Fn(io::Error) -> MountError + use<'a> {
    move |source| MountError::Mount { dir: dir.to_owned(), what, source }
}

impl Mounted {
    /// Mounts a volume. `source` is what the table of mounts shows; with `keeps_names` the kernel says names by itself
    /// (docs/decisions/0252).
    pub fn new(
        client: Client,
        source: &str,
        dir: &Path,
        mut flags: MountFlags,
        keeps_names: bool,
    ) -> Result<Mounted, MountError> {
        let failed = |what| failed(dir, what);
        let (at, device) = (place(dir)?, fuse_device(dir)?);
        let options = "rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=1048576";
        let options = std::ffi::CString::new(format!("fd={},{options}", device.as_raw_fd())).unwrap_or_default();
        flags |= MountFlags::NODEV | MountFlags::NOSUID;
        if client.is_read_only() {
            flags |= MountFlags::RDONLY;
        }
        let threads = Threads::start().map_err(failed("have threads"))?;
        mount(source, &at, "fuse.bluefs", flags, Some(options.as_c_str()))
            .map_err(|errno| failed("mount it")(errno.into()))?;
        let point = Point { dir: at, is_served: false };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        let kernel = device.try_clone().map_err(failed("open /dev/fuse"))?;
        let forgetter = Forgetter::start(&kernel).map_err(failed("start a process that forgets names"))?;
        let kernel = Arc::new(Kernel::new(kernel.into(), keeps_names, Some(forgetter)));
        let volume = Arc::new(Volume::new(client, kernel));
        let session = Session::from_fd(Requests::new(volume.clone(), threads), device, SessionACL::All, config);
        let session = session.map_err(failed("speak to the kernel"))?;
        let tended = Arc::downgrade(&volume);
        let tend = move || {
            while let Some(volume) = tended.upgrade() {
                volume.tend_pages();
                drop(volume);
                std::thread::sleep(TEND_EVERY);
            }
        };
        std::thread::Builder::new().name("pages".to_owned()).spawn(tend).map_err(failed("have a thread"))?;
        Ok(Mounted { session, volume, point })
    }

    /// What unmounts it.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter(self.point.dir.clone())
    }

    /// Serves it until it is unmounted.
    pub fn run(self) -> Result<(), MountError> {
        let Mounted { session, volume, mut point } = self;
        let ended = session.run().map_err(MountError::Ended);
        // Behind an error it may still be there.
        point.is_served = ended.is_ok() || volume.kernel.is_over();
        drop(point);
        // The last one who has the volume says goodbye to the server: that is to be this thread.
        let begun = Instant::now();
        while Arc::strong_count(&volume) > 1 && begun.elapsed() < REQUESTS_END_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
        ended
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if !self.is_served {
            Unmounter(self.dir.clone()).unmount();
        }
    }
}

impl Unmounter {
    /// Unmounts. Who still uses the mount gets errors from now on.
    pub fn unmount(&self) {
        if unmount(&self.0, UnmountFlags::NOFOLLOW).is_err() {
            // It may be gone already.
            let _ = unmount(&self.0, UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
}
