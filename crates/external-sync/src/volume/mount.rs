//! Mounting and unmounting: every check that gives a clear answer comes before the kernel is asked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{flock, FlockOperation, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use super::VolumeError;
use crate::loop_device::{self, AttachError, LoopDevice};
use crate::superblock::Superblock;
use crate::sys;
use procfs::mountinfo::{self, Mount};

/// Barriers and the five seconds are ext4's defaults; they are named because everything rests on them.
const OPTIONS: &std::ffi::CStr = c"data=journal,commit=5,barrier=1,errors=remount-ro";
/// How long processes that are about to end may keep a volume busy.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// How long a loop device may take to let go of its image.
const DETACH_PATIENCE: Duration = Duration::from_secs(2);

/// A volume that is mounted as long as this exists. End it with [`MountedVolume::unmount`], which tells whether
/// everything reached the disk, or with [`MountedVolume::keep`]; dropping it unmounts too, and says so on stderr.
#[must_use = "dropping it unmounts the volume; call unmount() or keep()"]
#[derive(Debug)]
pub struct MountedVolume {
    image: PathBuf,
    dir: PathBuf,
    dev: u64,
    device: Option<PathBuf>,
    /// syncfs(2) reports the write errors since this was opened, so it is opened first and kept. `None` once unmounted.
    handle: Option<OwnedFd>,
}

/// Mounts the volume in `image` (a regular file, through a loop device, or a block device) on `dir`, in the mount
/// namespace of the calling thread.
pub fn mount(image: &Path, dir: &Path) -> Result<MountedVolume, VolumeError> {
    let kind = Kind::of(image)?;
    let file = open_unused(image, kind)?;
    check_contents(image, kind, &file)?;
    let dir = check_dir(dir)?;
    if !rustix::process::geteuid().is_root() {
        return Err(VolumeError::NeedsRoot { image: image.to_owned() });
    }
    match kind {
        Kind::Image => {
            let device = attach(image, &file)?;
            mount_device(image, device.path(), &dir, Some(device.path().to_owned()))
        }
        Kind::BlockDevice => {
            drop(file); // Opened with O_EXCL, which would keep the mount out, too.
            mount_device(image, image, &dir, None)
        }
    }
}

/// What a volume is stored in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    BlockDevice,
}

impl Kind {
    pub(super) fn of(image: &Path) -> Result<Kind, VolumeError> {
        let found = fs::metadata(image).map_err(opening(image))?.file_type();
        match found {
            _ if found.is_file() => Ok(Kind::Image),
            _ if found.is_block_device() => Ok(Kind::BlockDevice),
            _ => Err(VolumeError::NotAnImage { image: image.to_owned() }),
        }
    }
}

pub(super) fn opening(image: &Path) -> impl Fn(io::Error) -> VolumeError + '_ {
    |source| {
        let image = image.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => VolumeError::Missing { image },
            Some(libc::EROFS) => VolumeError::ReadOnly { image, why: "it lies on a read-only file system" },
            Some(libc::EBUSY) => VolumeError::InUse { image, by: "mounted, or held by another program".to_owned() },
            Some(libc::EPERM | libc::ETXTBSY) => VolumeError::ReadOnly { image, why: "it must not be written to" },
            _ => VolumeError::Open { image, source },
        }
    }
}

/// Opens the image for reading and writing and makes sure that nobody else uses it, now or while the result is open.
fn open_unused(image: &Path, kind: Kind) -> Result<File, VolumeError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if kind == Kind::BlockDevice {
        // Linux gives the same file system twice to two mounts of a device; O_EXCL fails when there is one already.
        return options.custom_flags(libc::O_EXCL).open(image).map_err(opening(image));
    }
    // Root may write to a file whatever its mode says; who took all write permission away meant something by it.
    let found = fs::metadata(image).map_err(opening(image))?;
    if found.permissions().mode() & 0o222 == 0 {
        return Err(VolumeError::ReadOnly { image: image.to_owned(), why: "nobody has permission to write to it" });
    }
    let file = options.open(image).map_err(opening(image))?;
    claim(image, &file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Locks the image, or says who uses it. After an unmount the kernel lets go of it a moment later: whoever has just
/// opened the loop device for a look keeps that attached, and the lock goes with the device's file.
pub(super) fn claim(image: &Path, file: &File, lock: FlockOperation) -> Result<(), VolumeError> {
    const MOMENT: Duration = Duration::from_millis(500);
    const PAUSE: Duration = Duration::from_millis(5);
    let found = file.metadata().map_err(opening(image))?;
    let begin = Instant::now();
    loop {
        let by = match loop_device::attached_to(&found).first() {
            Some(device) => match mounted_from(device) {
                Some(dir) => return Err(in_use(image, format!("mounted on {}", dir.display()))),
                None => format!("attached to {}", device.display()),
            },
            None => match flock(file, lock) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::WOULDBLOCK) => "locked by another speculator".to_owned(),
                Err(error) => return Err(opening(image)(error.into())),
            },
        };
        if begin.elapsed() >= MOMENT {
            return Err(in_use(image, by));
        }
        std::thread::sleep(PAUSE);
    }
}

fn in_use(image: &Path, by: String) -> VolumeError {
    VolumeError::InUse { image: image.to_owned(), by }
}

/// Where a device is mounted, as far as we see.
fn mounted_from(device: &Path) -> Option<PathBuf> {
    mountinfo::read()
        .unwrap_or_default()
        .into_iter()
        .find(|mount| mount.source == device)
        .map(|mount| mount.mount_point)
}

fn check_contents(image: &Path, kind: Kind, file: &File) -> Result<(), VolumeError> {
    let not_a_volume = |why| Err(VolumeError::NotAVolume { image: image.to_owned(), why });
    let corrupt = |why: &str| Err(VolumeError::Corrupt { image: image.to_owned(), why: why.to_owned() });
    let Some(found) = Superblock::read(file).map_err(opening(image))? else {
        return not_a_volume("it holds no ext4 file system");
    };
    let len = file.metadata().map_err(opening(image))?.len();
    match found {
        _ if !found.has_journal => not_a_volume("its file system has no journal"),
        _ if found.may_encrypt => {
            not_a_volume("it has ext4's feature encrypt, and the data of encrypted files is not in the journal")
        }
        _ if found.has_errors => corrupt("the kernel found errors in it earlier"),
        _ if kind == Kind::Image && found.len > len => corrupt("the image is shorter than its file system"),
        _ => Ok(()),
    }
}

/// The directory without links, if something can be mounted on it and be of use there.
pub(super) fn check_dir(dir: &Path) -> Result<PathBuf, VolumeError> {
    let failed = |source| VolumeError::MountPoint { dir: dir.to_owned(), source };
    let found = fs::canonicalize(dir).map_err(failed)?;
    let unfit = |why| Err(VolumeError::Unfit { dir: dir.to_owned(), why });
    if found == Path::new("/") {
        // A process's root is a mount and a directory: what is mounted on these later is not looked into.
        return unfit("programs would go on to see what is there now");
    }
    if found == Path::new("/proc") {
        return unfit("programs, and speculator itself, need what is there now");
    }
    match found.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(found),
        Ok(_) => Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR))),
        Err(error) => Err(failed(error)),
    }
}

fn attach(image: &Path, file: &File) -> Result<LoopDevice, VolumeError> {
    let image = image.to_owned();
    LoopDevice::attach(file, &image).map_err(|error| match error {
        AttachError::NoDevice(device, source) => VolumeError::NoLoopDevice { image, device, source },
        AttachError::Refused(source) => VolumeError::Attach { image, source },
    })
}

fn mount_device(
    image: &Path,
    device: &Path,
    dir: &Path,
    detach: Option<PathBuf>,
) -> Result<MountedVolume, VolumeError> {
    rustix::mount::mount(device, dir, c"ext4", MountFlags::empty(), OPTIONS)
        .map_err(|error| mounting(image, dir, error.into()))?;
    // From here on the volume is mounted: the guard first, then whatever can still fail.
    let mut volume =
        MountedVolume { image: image.to_owned(), dir: dir.to_owned(), dev: 0, device: detach, handle: None };
    match open_root(dir) {
        Ok((handle, dev)) => {
            volume.handle = Some(handle);
            volume.dev = dev;
            Ok(volume)
        }
        Err(error) => {
            let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH);
            Err(mounting(image, dir, error))
        }
    }
}

fn mounting(image: &Path, dir: &Path, source: io::Error) -> VolumeError {
    let image = image.to_owned();
    match source.raw_os_error() {
        Some(libc::EINVAL | libc::EUCLEAN | libc::EBADMSG | libc::EIO) => {
            VolumeError::Corrupt { image, why: crate::why(&source) }
        }
        // mount(2): EACCES for a read-only device mounted without MS_RDONLY.
        Some(libc::EROFS | libc::EACCES) => VolumeError::ReadOnly { image, why: "its device is read-only" },
        _ => VolumeError::Mount { image, dir: dir.to_owned(), source },
    }
}

fn open_root(dir: &Path) -> io::Result<(OwnedFd, u64)> {
    let handle = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstatvfs(&handle)?;
    if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Err(io::Error::from_raw_os_error(libc::EROFS));
    }
    let dev = rustix::fs::fstat(&handle)?.st_dev;
    Ok((handle, dev))
}

impl MountedVolume {
    /// The image or block device it was mounted from.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The directory it is mounted on, absolute and without links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What `st_dev` says of every file on it.
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// Why it is no ordered file system although it is mounted as one; `None` if it is.
    pub fn doubt(&self) -> Option<String> {
        let found = crate::domain::file_systems().ok()?.into_iter().find(|found| found.dev == self.dev)?;
        (found.class != crate::domain::Class::Ordered).then_some(found.reason)
    }

    /// Its root directory, open for reading: what syncfs(2) wants. The volume cannot be unmounted while a copy is open.
    pub fn root(&self) -> BorrowedFd<'_> {
        // INVARIANT: `handle` is taken only by methods that consume self.
        self.handle.as_ref().expect("a mounted volume has its root open").as_fd()
    }

    /// Writes everything to the disk, unmounts, and waits until the image is let go of. When a process still uses the
    /// volume, it stays mounted. An error of the flush is reported after unmounting.
    pub fn unmount(mut self) -> Result<(), VolumeError> {
        let handle = self.handle.take();
        let flushed = match &handle {
            Some(handle) => flush(handle.as_fd(), &self.dir),
            None => Ok(()),
        };
        if let (Some(handle), true) = (&handle, flushed.is_err()) {
            // A clean end would declare the journal empty. What it holds may be the only copy: the next mount shall
            // replay it.
            let _ = sys::shut_down(handle.as_fd());
        }
        drop(handle);
        unmount_dir(&self.dir)?;
        flushed?;
        wait_until_detached(&self.dir, self.device.as_deref())
    }

    /// Leaves the volume mounted after this process; [`umount`] ends that.
    pub fn keep(mut self) {
        self.handle = None;
    }
}

impl Drop for MountedVolume {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        let flushed = flush(handle.as_fd(), &self.dir);
        drop(handle);
        let unmounted = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
        let _ = writeln!(
            io::stderr(),
            "speculator: volume {} was abandoned on {}: flush {}, unmount {}; check it with speculator volume check",
            self.image.display(),
            self.dir.display(),
            if flushed.is_ok() { "succeeded" } else { "failed" },
            if unmounted.is_ok() { "succeeded" } else { "failed" },
        );
    }
}

/// Unmounts the volume on `dir`, whoever mounted it, and waits until its image is let go of.
pub fn umount(dir: &Path) -> Result<(), VolumeError> {
    let not_mounted = || VolumeError::NotMounted { dir: dir.to_owned() };
    let place = fs::canonicalize(dir).map_err(|_| not_mounted())?;
    let mounts = mountinfo::read().map_err(|source| VolumeError::MountTable { source })?;
    let mount = mounts.iter().rev().find(|mount| mount.mount_point == place).ok_or_else(not_mounted)?;
    if !is_volume(mount) {
        return Err(not_mounted());
    }
    let flushed = match open_root(&place) {
        Ok((handle, _)) => flush(handle.as_fd(), &place),
        Err(_) => Ok(()), // A volume that errors made read-only, or that this user may not read.
    };
    unmount_dir(&place)?;
    flushed?;
    let elsewhere = mounts.iter().any(|other| other.dev == mount.dev && other.id != mount.id);
    wait_until_detached(&place, if elsewhere { None } else { Some(&mount.source) })
}

fn is_volume(mount: &Mount) -> bool {
    mount.fs_type == "ext4" && mount.has_fs_option("data=journal")
}

fn flush(root: BorrowedFd<'_>, dir: &Path) -> Result<(), VolumeError> {
    rustix::fs::syncfs(root).map_err(|error| VolumeError::Flush { dir: dir.to_owned(), source: error.into() })
}

fn unmount_dir(dir: &Path) -> Result<(), VolumeError> {
    let end = Instant::now() + BUSY_PATIENCE;
    loop {
        let dir = || dir.to_owned();
        match rustix::mount::unmount(dir(), UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            Err(rustix::io::Errno::BUSY) => return Err(VolumeError::Busy { dir: dir() }),
            Err(error) => return Err(VolumeError::Unmount { dir: dir(), source: error.into() }),
        }
    }
}

fn wait_until_detached(dir: &Path, device: Option<&Path>) -> Result<(), VolumeError> {
    // A block device that is no loop device has no backing file and counts as free at once.
    match device {
        Some(device) if !loop_device::wait_until_free(device, DETACH_PATIENCE) => {
            Err(VolumeError::StillAttached { dir: dir.to_owned(), device: device.to_owned() })
        }
        _ => Ok(()),
    }
}
