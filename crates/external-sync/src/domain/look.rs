//! What the mount table does not say of a file system.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use procfs::mountinfo::Mount;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::{loop_device, sys};

/// What is asked.
pub trait Look {
    /// Whether ext4 may have encrypted files on the file system with this device number, one of those mounted.
    fn may_encrypt(&self, dev: u64, all: &[Mount]) -> bool;
    /// Whether the ext4 file system with this device number has a journal.
    fn has_journal(&self, dev: u64) -> bool;
    /// The files that the mount's device shows, if it is made of loop devices.
    fn images(&self, mount: &Mount) -> Vec<PathBuf>;
    /// The mount that a directory is on, if it is one that we may open. Its path may lead over links.
    fn mount_of_directory<'a>(&self, path: &Path, all: &'a [Mount]) -> Option<&'a Mount>;
}

/// This machine. One file system may have many mounts: each is asked about once.
#[derive(Default)]
pub struct Machine {
    encrypting: RefCell<HashMap<u64, bool>>,
    journaling: RefCell<HashMap<u64, bool>>,
}

impl Look for Machine {
    fn may_encrypt(&self, dev: u64, all: &[Mount]) -> bool {
        let mut mounts = all.iter().filter(|mount| mount.dev == dev);
        *self.encrypting.borrow_mut().entry(dev).or_insert_with(|| mounts.find_map(encrypts).unwrap_or(true))
    }

    fn has_journal(&self, dev: u64) -> bool {
        *self.journaling.borrow_mut().entry(dev).or_insert_with(|| has_journal(dev))
    }

    fn images(&self, mount: &Mount) -> Vec<PathBuf> {
        let (major, minor) = (rustix::fs::major(mount.dev), rustix::fs::minor(mount.dev));
        let sys_block = match major {
            // It has a number of its own, as btrfs.
            0 => name_of_device(&mount.source).map(|name| Path::new("/sys/class/block").join(name)),
            _ => Some(format!("/sys/dev/block/{major}:{minor}").into()),
        };
        sys_block.map_or_else(Vec::new, loop_device::images_below)
    }

    fn mount_of_directory<'a>(&self, path: &Path, all: &'a [Mount]) -> Option<&'a Mount> {
        let directory = open_directory(path)?;
        let found = rustix::fs::statx(&directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok();
        let id = found.filter(|found| found.stx_mask & StatxFlags::MNT_ID.bits() != 0).map(|found| found.stx_mnt_id);
        match id {
            Some(id) => all.iter().find(|mount| mount.id == id),
            // Before Linux 5.8.
            None => super::classify::mount_of(path, all),
        }
    }
}

/// The kernel's name of a block device, which may have others (`/dev/mapper/…`).
fn name_of_device(source: &Path) -> Option<OsString> {
    let device = if source.starts_with("/dev") { fs::canonicalize(source).ok()? } else { return None };
    device.file_name().map(ToOwned::to_owned)
}

fn open_directory(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// ext4 says whether a directory is encrypted only where that may be: then no error but one says that it may not.
fn encrypts(mount: &Mount) -> Option<bool> {
    let directory = open_directory(&mount.mount_point)?;
    let is_there = rustix::fs::fstat(&directory).is_ok_and(|found| found.st_dev == mount.dev);
    is_there.then(|| sys::encryption_policy(directory.as_fd()) != Err(Errno::OPNOTSUPP))
}

/// The kernel names the task that commits the journal. Where that cannot be read, an additional flush does no harm.
fn has_journal(dev: u64) -> bool {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let Some(name) = device.ok().and_then(|device| device.file_name().map(ToOwned::to_owned)) else { return false };
    let task = fs::read(Path::new("/sys/fs/ext4").join(name).join("journal_task"));
    task.is_ok_and(|task| task.first().is_some_and(u8::is_ascii_digit))
}
