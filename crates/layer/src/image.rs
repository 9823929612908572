//! Where a layer lives: an ext4 file system in a sparse file without a name, on a loop device that lets go of it by
//! itself. A kill leaves nothing behind. The file gets a name only when the decision to keep is made durable
//! ([`LayerImage::publish`]).

use std::collections::HashSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use external_sync::e2fsprogs;
use external_sync::loop_device::{AttachError, LoopDevice};
use rustix::fs::{AtFlags, Mode, OFlags, CWD};
use rustix::mount::MountFlags;

use crate::error::{in_place, set_up, LayerError};

/// What a layer's file is called while it is being applied: this, a number, and `.layer`.
pub const NAME_PREFIX: &str = "speculator-try-";
/// The end of that name.
pub const NAME_SUFFIX: &str = ".layer";

const LOCK_TRIES: u32 = 60;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
const LEN_MIN: u64 = 64 << 20;
/// mke2fs without 64bit block numbers of our own choosing: plenty.
const LEN_MAX: u64 = 1 << 42;

/// The file that holds a layer.
#[derive(Debug)]
pub struct LayerImage {
    file: File,
    /// Held from before this process had mounts of its own: a link cannot lead from one mount to another.
    dir: File,
    dir_path: PathBuf,
    name: Option<PathBuf>,
}

impl LayerImage {
    /// A new file system in `dir`, as long as there is room for.
    pub fn create(dir: &Path) -> Result<LayerImage, LayerError> {
        let failed = |what| in_place(dir, what);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        let file = options.open(dir).map_err(failed("a file without a name"))?;
        let room = rustix::fs::statvfs(dir).map_err(|error| failed("room")(error.into()))?;
        let len = (room.f_bavail * room.f_frsize).clamp(LEN_MIN, LEN_MAX);
        file.set_len(len).map_err(failed("a sparse file"))?;
        make_file_system(&file)?;
        let held = File::open(dir).map_err(failed("the directory itself"))?;
        let dir_path = std::path::absolute(dir).map_err(failed("the directory itself"))?;
        Ok(LayerImage { file, dir: held, dir_path, name: None })
    }

    /// Whether somebody has it now, to keep what it holds.
    pub fn is_kept_now(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
        locked == Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Whether this can be a layer: a file that nobody but root can have written. The directory may be one in which
    /// everybody can make files.
    pub fn is_roots(metadata: &Metadata) -> bool {
        metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o077 == 0
    }

    /// One that was published, and left behind by a crash.
    pub fn open(path: &Path) -> io::Result<LayerImage> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        if !LayerImage::is_roots(&file.metadata()?) {
            return Err(io::Error::other("it is not a file that only root can read and write"));
        }
        // Of one that has just ended, the mount goes a moment later, and with it what it held.
        let lock = || rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        let mut tries = 0;
        while let Err(error) = lock() {
            if error != rustix::io::Errno::WOULDBLOCK || tries == LOCK_TRIES {
                return Err(error.into());
            }
            tries += 1;
            std::thread::sleep(LOCK_PAUSE);
        }
        // Whoever had it has finished, and has taken its name away.
        if file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Of a name alone it is the working directory.
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir_path = parent.unwrap_or(Path::new(".")).to_owned();
        let name = path.file_name().map(PathBuf::from);
        Ok(LayerImage { file, dir: File::open(&dir_path)?, dir_path, name })
    }

    /// Mounts it; the device goes when the mount does.
    pub fn mount(&self, at: &Path) -> io::Result<()> {
        let device = LoopDevice::attach(&self.file, Path::new("speculator-try")).map_err(|error| match error {
            AttachError::NoDevice(path, source) => {
                io::Error::new(source.kind(), format!("no loop device ({}: {})", path.display(), crate::why(&source)))
            }
            AttachError::Refused(source) => source,
        })?;
        // The kernel must not fill a sparse file with empty inode tables.
        rustix::mount::mount(device.path(), at, "ext4", MountFlags::NOATIME, Some(c"noinit_itable,errors=remount-ro"))?;
        Ok(())
    }

    /// Gives it a name, durably: from here on what it holds will be applied, now or by `--resume`. If that fails, it
    /// has no name, but for one that cannot be taken away again.
    pub fn publish(&mut self) -> Result<PathBuf, (io::Error, Option<PathBuf>)> {
        let unnamed = |error| (error, None);
        rustix::fs::flock(&self.file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| unnamed(error.into()))?;
        self.file.sync_all().map_err(unnamed)?;
        let own = procfs::own_path(&self.file);
        for number in 0u32.. {
            let name = PathBuf::from(format!("{NAME_PREFIX}{}-{number}{NAME_SUFFIX}", std::process::id()));
            match rustix::fs::linkat(CWD, &own, &self.dir, &name, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => {
                    let path = self.dir_path.join(&name);
                    if let Err(error) = self.dir.sync_all() {
                        let is_gone = rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty()).is_ok();
                        let _ = self.dir.sync_all();
                        return Err((error, (!is_gone).then_some(path)));
                    }
                    self.name = Some(name);
                    return Ok(path);
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(unnamed(error.into())),
            }
        }
        Err(unnamed(io::ErrorKind::AlreadyExists.into()))
    }

    /// The directory of its name, and those that this one is in: device and inode.
    pub fn directories(&self) -> io::Result<HashSet<(u64, u64)>> {
        let mut found = HashSet::new();
        let mut dir = OwnedFd::from(self.dir.try_clone()?);
        loop {
            let stat = rustix::fs::fstat(&dir)?;
            if !found.insert((stat.st_dev, stat.st_ino)) {
                return Ok(found);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            dir = rustix::fs::openat(&dir, "..", flags, Mode::empty())?;
        }
    }

    /// Everything that it held is applied: it goes when its mount does.
    pub fn discard(&mut self) -> io::Result<()> {
        if let Some(name) = self.name.take() {
            rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?;
            self.dir.sync_all()?;
        }
        Ok(())
    }
}

fn make_file_system(file: &File) -> Result<(), LayerError> {
    let mkfs = e2fsprogs::find("mkfs.ext4").ok_or_else(|| LayerError::Mkfs("not found".to_owned()))?;
    let path = procfs::path_for_others(file);
    // No journal: before it is published it is nothing, and then it is synced as a whole. Large inodes: nanoseconds,
    // and xattrs.
    let features = "none,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,\
                    extra_isize,uninit_bg,ea_inode";
    let extended = "lazy_itable_init=1,nodiscard";
    let args = ["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "512", "-m", "0", "-O", features, "-E", extended, &path];
    let output = e2fsprogs::run(&mkfs, args).map_err(set_up("mkfs.ext4"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(LayerError::Mkfs(e2fsprogs::complaint("mkfs.ext4", &output)))
}
