//! Mounts that do not outlive their guard, nor, in a namespace of their own, their process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{mount, mount_change, unmount, MountFlags, MountPropagationFlags, UnmountFlags};

use super::error::CrashError;
use super::sys;

const BUSY_RETRIES: u32 = 200;

/// Gives the calling thread, and all that it starts from now on, a mount namespace of its own: whatever is mounted then
/// is gone with the last of them, even after SIGKILL. Call it first in `main` or in a test.
pub fn private_mounts() -> Result<(), CrashError> {
    sys::unshare_mounts().map_err(CrashError::system("make a mount namespace (run as root)"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(CrashError::system("make mounts private"))
}

/// A file system mounted by us; unmounted on drop.
pub struct Mounted {
    dir: PathBuf,
}

impl Mounted {
    /// Mounts `device` at `dir`; `options` as for mount(8) -o: `sync`, `dirsync`, `noatime`, `ro` and the file system's
    /// own.
    pub fn new(device: &Path, dir: &Path, fs_type: &str, options: &str) -> Result<Mounted, CrashError> {
        let (flags, data) = parse_options(options);
        let data = std::ffi::CString::new(data).unwrap_or_default();
        let mounted = mount(device, dir, fs_type, flags, Some(data.as_c_str()));
        let what = format!("mount {} at {} (-t {fs_type} -o {options:?})", device.display(), dir.display());
        mounted.map_err(CrashError::system(what))?;
        let dir = dir.to_owned();
        Ok(Mounted { dir })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_dir(&self.dir, UnmountFlags::DETACH);
    }
}

/// Unmounts `dir`; when it stays busy, by force.
pub(super) fn unmount_dir(dir: &Path, force: UnmountFlags) {
    for _ in 0..BUSY_RETRIES {
        match unmount(dir, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(5)),
            _ => return,
        }
    }
    let _ = unmount(dir, UnmountFlags::NOFOLLOW | force);
}

fn parse_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "noatime" => flags |= MountFlags::NOATIME,
            "ro" => flags |= MountFlags::RDONLY,
            own => data.push(own),
        }
    }
    (flags, data.join(","))
}
