//! Memory that only a world sees: a fresh tmpfs for its `/tmp`. What is speculative there can be taken back (000, 6.3).
//!
//! ```text
//! tmpfs ── world/   what the world sees, at DIR
//!       └─ kept/    hard links of files whose last name was removed, until that can no longer be taken back
//! ```
//!
//! The file system as a whole is mounted nowhere: only who has [`PrivateMemory::root`] reaches `kept`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, CWD};
use rustix::mount::{
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, FsMountFlags, FsOpenFlags,
    MountAttrFlags, MoveMountFlags, OpenTreeFlags,
};

use super::mount::check_dir;
use super::VolumeError;

/// The directory that the world sees.
pub const WORLD: &str = "world";
/// The directory that it does not.
pub const KEPT: &str = "kept";

/// A tmpfs of a world.
#[derive(Debug)]
pub struct PrivateMemory {
    dir: PathBuf,
    root: OwnedFd,
    dev: u64,
}

impl PrivateMemory {
    /// Where the world sees it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The whole of it, `kept` included.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Its device number.
    pub fn dev(&self) -> u64 {
        self.dev
    }
}

/// Mount a fresh tmpfs on `dir`, in the mount namespace of the calling thread.
pub(super) fn mount(dir: &Path) -> Result<PrivateMemory, VolumeError> {
    let found = check_dir(dir)?;
    make(&found).map_err(|error| VolumeError::Private { dir: dir.to_owned(), source: error.into() })
}

fn make(dir: &Path) -> rustix::io::Result<PrivateMemory> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", "speculator")?;
    fsconfig_set_string(context.as_fd(), "mode", "0700")?;
    fsconfig_create(context.as_fd())?;
    // Reading must not change what a rollback would have to put back.
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOATIME | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    for name in [WORLD, KEPT] {
        rustix::fs::mkdirat(&root, name, Mode::RWXU)?;
    }
    let world =
        rustix::fs::openat(&root, WORLD, rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC, Mode::empty())?;
    // What lies there was covered; its directory says who may use what covers it.
    let was = rustix::fs::stat(dir)?;
    rustix::fs::fchown(
        &world,
        Some(rustix::fs::Uid::from_raw(was.st_uid)),
        Some(rustix::fs::Gid::from_raw(was.st_gid)),
    )?;
    rustix::fs::fchmod(&world, Mode::from_raw_mode(was.st_mode))?;
    let dev = rustix::fs::fstat(&world)?.st_dev;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let shown = open_tree(root.as_fd(), WORLD, flags)?;
    move_mount(shown.as_fd(), "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(PrivateMemory { dir: dir.to_owned(), root, dev })
}
