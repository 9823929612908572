//! Where a file is that has no name yet: `O_TMPFILE` in a directory that nobody watches
//! ([0022](../../../../../../docs/decisions/0022-new-files.md)).
//!
//! In the directory where it will be, a watcher would hear of it (inotify(7)). In `lost+found` of an ext4 file system
//! nobody works, only root can look at it, and it is there already: nothing has to be made that somebody could see, and
//! nothing has to be removed, whatever happens to us. The kernel frees a file without a name when nobody has it open
//! any more, and after a crash when it mounts the file system again.
//!
//! The directory is reached through the mount of the directory where the file will be: a link does not cross mounts.

use crate::ahead::filesystems::disk::watchers::is_watched;
use crate::ahead::filesystems::memory::inverse::extended_of;
use rustix::fs::{AtFlags, Gid, IFlags, Mode, OFlags, Stat, StatxAttributes, StatxFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Who a new file belongs to, and who may do what with it.
#[derive(Clone, Copy, Debug)]
pub(in crate::ahead) struct Rights {
    pub mode: Mode,
    pub group: Gid,
}

/// The staging directory for files that will be in `dir`. `None` if there is none on its mount.
pub(in crate::ahead) fn stage_for(dir: &OwnedFd) -> Option<OwnedFd> {
    const EXT4_SUPER_MAGIC: u64 = 0xef53;
    /// mke2fs(8) makes it first of all.
    const FIRST_INODE: u64 = 11;
    const OTHERS: u32 = 0o077;
    let root = mount_root(dir)?;
    let is_ext4 = rustix::fs::fstatfs(&root).is_ok_and(|found| found.f_type as u64 == EXT4_SUPER_MAGIC);
    let stage = naming_dir(&root, "lost+found").filter(|_| is_ext4)?;
    let stat = rustix::fs::fstat(&stage).ok()?;
    let is_ours = stat.st_dev == rustix::fs::fstat(&root).ok()?.st_dev && stat.st_ino == FIRST_INODE;
    (is_ours && stat.st_uid == 0 && stat.st_mode & OTHERS == 0 && !is_mount_root(&stage)).then_some(stage)
}

/// Where a file without a name is made that will be in `dir`. In memory that is the root of its mount: a file without a
/// name changes nothing of the directory.
fn file_stage_for(dir: &OwnedFd) -> Option<OwnedFd> {
    match is_in_memory(dir) {
        true => mount_root(dir),
        false => stage_for(dir),
    }
}

/// Where files without a name are made, by the numbers of their mounts. Each file has its stage: a stage holds no mount
/// that a file does not hold anyway, and as long as one does, the number is no other mount's.
#[derive(Debug, Default)]
pub(in crate::ahead) struct FileStages(HashMap<u64, Weak<FileStage>>);

/// Where files without a name are made.
#[derive(Debug)]
pub(in crate::ahead) struct FileStage {
    dir: OwnedFd,
    /// What was known of it when the first file was made there.
    found: Attributes,
    is_in_memory: bool,
    /// A file that was made there had nothing that the stage has passed on.
    makes_plain_files: AtomicBool,
}

/// What of a directory says what is made there: owner, group, mode, and the time of the last change of any attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attributes(u32, u32, u32, (i64, u64));

impl Attributes {
    fn of(dir: &OwnedFd) -> Option<Self> {
        let stat = rustix::fs::fstat(dir).ok()?;
        Some(Self(stat.st_uid, stat.st_gid, stat.st_mode, (stat.st_ctime, stat.st_ctime_nsec)))
    }
}

impl FileStages {
    /// The stage of files that will be in `dir`. `None` if there is none on its mount.
    pub fn stage_for(&mut self, dir: &OwnedFd) -> Option<Arc<FileStage>> {
        let mount = mount_of(dir)?;
        let known = self.0.get(&mount).and_then(Weak::upgrade);
        if let Some(stage) = known.filter(|stage| Attributes::of(&stage.dir) == Some(stage.found)) {
            return Some(stage);
        }
        let is_in_memory = is_in_memory(dir);
        let stage = file_stage_for(dir)?;
        let (found, makes_plain_files) = (Attributes::of(&stage)?, AtomicBool::new(false));
        let stage = Arc::new(FileStage { dir: stage, found, is_in_memory, makes_plain_files });
        self.0.insert(mount, Arc::downgrade(&stage));
        Some(stage)
    }
}

/// Whether something is on a file system of the kernel's memory.
fn is_in_memory(file: &OwnedFd) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC)
}

/// The number of the mount through which a directory is reached.
pub(in crate::ahead) fn mount_of(dir: &OwnedFd) -> Option<u64> {
    let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    Some(found.stx_mnt_id)
}

fn mount_root(dir: &OwnedFd) -> Option<OwnedFd> {
    let mut here = naming_dir(dir, ".")?;
    loop {
        if is_mount_root(&here) {
            return Some(here);
        }
        let above = naming_dir(&here, "..")?;
        let inode = |dir| rustix::fs::fstat(dir).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        // Our own root, and no mount's.
        if inode(&above)? == inode(&here)? {
            return None;
        }
        here = above;
    }
}

/// A directory, by a descriptor that only names it: nobody hears of that.
fn naming_dir(dir: &OwnedFd, name: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty()).ok()
}

fn is_mount_root(dir: &OwnedFd) -> bool {
    let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

impl FileStage {
    /// The attributes of the directory where the files are made.
    pub fn stat(&self) -> Option<Stat> {
        rustix::fs::fstat(&self.dir).ok()
    }

    /// A file without a name, like one that would be made in `dir`. `None` where it would not be like that.
    pub fn make_file(&self, dir: &OwnedFd, rights: Rights) -> Option<OwnedFd> {
        if !passes_nothing_on(dir) {
            return None;
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, ".", flags, rights.mode).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_given = stat.st_gid != rights.group.as_raw();
        if is_given {
            rustix::fs::fchown(&file, None, Some(rights.group)).ok()?;
        }
        // A change of its attributes is one behind its birth, which shows in its times: only where our umask differs,
        // or a change of its group may have taken the bits that set ids.
        if is_given || Mode::from_raw_mode(stat.st_mode) != rights.mode {
            rustix::fs::fchmod(&file, rights.mode).ok()?;
        }
        self.is_plain(&file)?.then_some(file)
    }

    /// Whether a file has no attribute from its stage. All files have what the first one has, until the stage changes.
    fn is_plain(&self, file: &OwnedFd) -> Option<bool> {
        if self.makes_plain_files.load(Ordering::Relaxed) {
            return Some(true);
        }
        let usual = usual_flags(self.is_in_memory);
        let is_plain = flags_by_opening(file)? == usual && extended_of(file).ok()?.is_empty();
        self.makes_plain_files.store(is_plain, Ordering::Relaxed);
        Some(is_plain)
    }
}

/// The flags that every file has: on a disk its blocks are found by extents.
fn usual_flags(is_in_memory: bool) -> IFlags {
    const EXTENTS: IFlags = IFlags::from_bits_retain(0x80000);
    if is_in_memory {
        IFlags::empty()
    } else {
        EXTENTS
    }
}

/// Whether a directory gives nothing of its own to files that are made in it: no access list, no label, no flag, no
/// project.
pub(in crate::ahead) fn passes_nothing_on(dir: &OwnedFd) -> bool {
    let is_own = |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"trusted.");
    let has_only_own = || extended_of(dir).is_ok_and(|all| all.iter().all(|(name, _)| is_own(name.as_bytes())));
    has_no_flags(dir) && has_only_own() && !gives_group(dir)
}

fn has_no_flags(dir: &OwnedFd) -> bool {
    const INDEXED: IFlags = IFlags::from_bits_retain(0x1000);
    const ODD: StatxAttributes = StatxAttributes::ENCRYPTED.union(StatxAttributes::COMPRESSED);
    let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    if found.is_ok_and(|found| found.stx_attributes.intersects(ODD)) {
        return false;
    }
    if let Some(is_plain) = crate::sys::has_no_flags(dir.as_fd()) {
        return is_plain;
    }
    // Before Linux 6.17 it has to be opened, of which a watcher would hear.
    let hears = |dir: &OwnedFd| rustix::fs::fstat(dir).map_or(true, |stat| is_watched(&stat));
    if hears(dir) || naming_dir(dir, "..").is_none_or(|above| hears(&above)) {
        return false;
    }
    flags_by_opening(dir).is_some_and(|flags| flags.difference(INDEXED) == usual_flags(is_in_memory(dir)))
}

fn flags_by_opening(file: &OwnedFd) -> Option<IFlags> {
    let open = rustix::fs::open(procfs::own_path(file), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    rustix::fs::ioctl_getflags(&open).ok()
}

/// Whether files get the group of their directory, as the file system is mounted.
fn gives_group(dir: &OwnedFd) -> bool {
    const OPTIONS: [&str; 2] = ["grpid", "bsdgroups"];
    let Ok(stat) = rustix::fs::fstat(dir) else { return true };
    let mount = procfs::mountinfo::of_device(stat.st_dev).ok().flatten();
    mount.is_none_or(|mount| OPTIONS.iter().any(|option| mount.has_fs_option(option)))
}

/// The file gets its name. If it was closed already, whoever watches the directory hears that, too.
pub(in crate::ahead) fn give_name(file: &OwnedFd, dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    // As long as it has no name nobody else can open it.
    let open = rustix::fs::open(procfs::own_path(file), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let is_closed = open.is_ok_and(|open| !crate::sys::is_open_for_writing(open.as_fd()));
    rustix::fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH)?;
    if is_closed {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let _ = rustix::fs::openat(dir, name, flags, Mode::empty());
    }
    Ok(())
}
