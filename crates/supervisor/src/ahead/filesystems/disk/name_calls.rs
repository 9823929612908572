//! What a call would make of names on disks, or why it would not: only what is sure to succeed, or to fail, is known.
//!
//! The process can find the name and may change its directory; nothing is immutable, nothing is a mount, and a
//! directory gives nothing of its own to what is made in it or moved there.

use crate::ahead::filesystems::disk::name_changes::{DiskName, NameChange, Target};
use crate::ahead::filesystems::disk::names::{dir_of, is_fifo, path_text, paths_of};
use crate::ahead::filesystems::disk::new_files::umask_of;
use crate::ahead::filesystems::disk::stages::{Kind, Staged, Stages};
use crate::ahead::filesystems::disk::staging::{self, Rights};
use crate::ahead::filesystems::disk::watchers;
use crate::ahead::filesystems::path_walk::{End, Entry, Found};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use syscall_table::nr;

const AT_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
const RENAME_NOREPLACE: u64 = 1;
/// ext4 counts to 65,000, others further.
const LINKS_MAX: u64 = 60_000;
const NAME_MAX: usize = 255;
/// No error, and no change.
const NOTHING: i32 = 0;

/// Calls that change names, and that can be held.
pub(in crate::ahead) fn is_held_change(nr: u64) -> bool {
    matches!(
        nr,
        nr::unlink
            | nr::unlinkat
            | nr::rename
            | nr::renameat
            | nr::renameat2
            | nr::link
            | nr::linkat
            | nr::mkdir
            | nr::mkdirat
            | nr::rmdir
            | nr::symlink
            | nr::symlinkat
            | nr::mknod
            | nr::mknodat
    )
}

/// What a call asks for.
pub(in crate::ahead) enum Wanted {
    Change(NameChange),
    Make { entry: Entry, what: Made, rights: Rights },
}

/// What is made that stands in a stage first.
pub(in crate::ahead) enum Made {
    Directory,
    /// A link with this text.
    Link(OsString),
    Fifo,
}

impl Wanted {
    pub fn make(&self, stages: &mut Stages) -> Option<(Staged, OwnedFd)> {
        let Self::Make { entry, what, rights } = self else { return None };
        let kind = match what {
            Made::Directory => Kind::Directory,
            Made::Link(text) => Kind::Link(text),
            Made::Fifo => Kind::Fifo,
        };
        stages.make(&entry.dir.fd, kind, *rights)
    }
}

/// Why it is not known what a call changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) enum Refusal {
    /// It fails with this error; or it succeeds and does nothing (0).
    Error(i32),
    /// It may succeed or not.
    Unsure,
}

use Refusal::{Error, Unsure};

type Known<T> = Result<T, Refusal>;

impl Supervisor {
    /// What a call would change.
    pub(in crate::ahead) fn name_change(&self, call: &Call) -> Known<Wanted> {
        let args = &call.frame.args;
        match call.frame.nr {
            nr::unlinkat if args[2] == AT_REMOVEDIR => self.directory_removed(call),
            nr::rmdir => self.directory_removed(call),
            nr::unlink => self.file_removed(call),
            nr::unlinkat if args[2] == 0 => self.file_removed(call),
            nr::mkdir => self.directory_made(call, args[1]),
            nr::mkdirat => self.directory_made(call, args[2]),
            nr::symlink | nr::symlinkat => self.link_made(call),
            nr::mknod => self.fifo_made(call, args[1]),
            nr::mknodat => self.fifo_made(call, args[2]),
            nr::link => self.name_added(call),
            nr::linkat if args[4] & !AT_SYMLINK_FOLLOW == 0 => self.name_added(call),
            nr::rename | nr::renameat => self.name_moved(call, false),
            nr::renameat2 if args[4] & !RENAME_NOREPLACE == 0 => self.name_moved(call, args[4] != 0),
            _ => Err(Unsure),
        }
    }

    fn file_removed(&self, call: &Call) -> Known<Wanted> {
        let entry = self.entry_to_change(call, 0)?;
        let found = entry.found.as_ref().ok_or(Error(libc::ENOENT))?;
        refuse_if(found.is_dir(), libc::EISDIR)?;
        refuse_if(ends_with_slash(call), libc::ENOTDIR)?;
        sure_if(is_changeable_in(found, &entry.dir))?;
        Ok(Wanted::Change(NameChange::Remove(DiskName::of(entry))))
    }

    fn directory_removed(&self, call: &Call) -> Known<Wanted> {
        let entry = self.entry_to_change(call, 0)?;
        let found = entry.found.as_ref().ok_or(Error(libc::ENOENT))?;
        refuse_if(!found.is_dir(), libc::ENOTDIR)?;
        sure_if(is_changeable_in(found, &entry.dir))?;
        refuse_if(!self.is_empty_dir(found)?, libc::ENOTEMPTY)?;
        Ok(Wanted::Change(NameChange::Remove(DiskName::of(entry))))
    }

    fn directory_made(&self, call: &Call, mode: u64) -> Known<Wanted> {
        const SET_GROUP: u32 = 0o2000;
        const MAY_BE_GIVEN: u64 = 0o1777;
        let entry = self.entry_to_make(call)?;
        let inherited = entry.dir.stat.st_mode & SET_GROUP;
        let umask = umask_of(call.pid).ok_or(Unsure)?;
        let mode = Mode::from_raw_mode((mode & MAY_BE_GIVEN) as u32 & !umask | inherited);
        let group = self.group_in(call.pid, &entry.dir.stat).ok_or(Unsure)?;
        Ok(Wanted::Make { entry, what: Made::Directory, rights: Rights { mode, group } })
    }

    fn link_made(&self, call: &Call) -> Known<Wanted> {
        const TEXT_MAX: usize = 4095;
        let text = path_text(call, 0).filter(|text| text.len() <= TEXT_MAX).ok_or(Unsure)?;
        refuse_if(text.is_empty(), libc::ENOENT)?;
        let entry = self.entry_to_make(call)?;
        let group = self.group_in(call.pid, &entry.dir.stat).ok_or(Unsure)?;
        let rights = Rights { mode: Mode::empty(), group };
        Ok(Wanted::Make { entry, what: Made::Link(OsString::from_vec(text)), rights })
    }

    /// Of what `mknod` makes, only FIFOs are held: files are mostly made by opening them, and devices are others' too.
    fn fifo_made(&self, call: &Call, mode: u64) -> Known<Wanted> {
        const MAY_BE_GIVEN: u64 = 0o777;
        const PERMISSIONS: u64 = 0o7777;
        sure_if(FileType::from_raw_mode(mode as u32) == FileType::Fifo && mode & PERMISSIONS & !MAY_BE_GIVEN == 0)?;
        let entry = self.entry_to_make(call)?;
        let umask = umask_of(call.pid).ok_or(Unsure)?;
        let mode = Mode::from_raw_mode((mode & MAY_BE_GIVEN) as u32 & !umask);
        let group = self.group_in(call.pid, &entry.dir.stat).ok_or(Unsure)?;
        Ok(Wanted::Make { entry, what: Made::Fifo, rights: Rights { mode, group } })
    }

    fn entry_to_make(&self, call: &Call) -> Known<Entry> {
        let entry = self.entry_to_change(call, 0)?;
        refuse_if(entry.found.is_some(), libc::EEXIST)?;
        let has_room = self.has_room_for(&entry.dir.fd, 0) && entry.dir.stat.st_nlink < LINKS_MAX;
        sure_if(has_room && self.is_root_as_we_are(call.pid) && entry.name.len() <= NAME_MAX)?;
        sure_if(!self.may_give_held_group(&entry.dir.stat))?;
        // A watcher would hear that it was moved here, not that it was made.
        sure_if(self.ahead.new_files.has(&entry.dir.stat) || !watchers::is_watched(&entry.dir.stat))?;
        Ok(entry)
    }

    fn name_added(&self, call: &Call) -> Known<Wanted> {
        let follows = call.frame.nr == nr::linkat && call.frame.args[4] & AT_SYMLINK_FOLLOW != 0;
        let from = self.entry_to_change(call, 0)?;
        refuse_if(from.found.is_none(), libc::ENOENT)?;
        // What a link leads to is not looked for here.
        sure_if(!follows || !from.found.as_ref().is_some_and(Found::is_symlink))?;
        let to = self.entry_to_change(call, 1)?;
        refuse_if(to.found.is_some(), libc::EEXIST)?;
        refuse_if(!is_one_mount(&from.dir, &to.dir)?, libc::EXDEV)?;
        let file = self.ahead.new_files.file_at(&from).or_else(|| linkable(&from));
        let is_such = |found: &Found| found.is_regular() || is_fifo(&found.stat);
        let file = file.filter(|_| from.found.as_ref().is_some_and(is_such)).ok_or(Unsure)?;
        sure_if(can_move(&from.dir, &to.dir) && to.name.len() <= NAME_MAX)?;
        let found = from.found.ok_or(Unsure)?;
        // Whoever is not its owner may have to be allowed to write to it (`fs.protected_hardlinks`).
        sure_if(is_changeable_in(&found, &from.dir) && self.is_owner(call.pid, &found))?;
        let target = Target::of(found);
        Ok(Wanted::Change(NameChange::Link { name: DiskName::of_new(to, target), file }))
    }

    fn name_moved(&self, call: &Call, keeps: bool) -> Known<Wanted> {
        // Errors in the order of the kernel.
        let (from, to) = (self.entry_to_change(call, 0)?, self.entry_to_change(call, 1)?);
        refuse_if(!is_one_mount(&from.dir, &to.dir)?, libc::EXDEV)?;
        let moved = from.found.as_ref().ok_or(Error(libc::ENOENT))?;
        sure_if(is_changeable_in(moved, &from.dir))?;
        refuse_if(keeps && to.found.is_some(), libc::EEXIST)?;
        // A slash behind either name says that a directory is moved.
        refuse_if(!moved.is_dir() && ends_with_slash(call), libc::ENOTDIR)?;
        if moved.is_dir() {
            sure_if(to.dir.stat.st_nlink < LINKS_MAX && self.may_change(call.pid, moved))?;
            refuse_if(self.is_at_or_below(&to.dir, moved)?, libc::EINVAL)?;
        }
        if let Some(replaced) = &to.found {
            refuse_if(replaced.is_dir() && self.is_at_or_below(&from.dir, replaced)?, libc::ENOTEMPTY)?;
            self.check_replaced(moved, replaced, &to.dir)?;
        }
        sure_if(can_move(&from.dir, &to.dir) && to.name.len() <= NAME_MAX)?;
        Ok(Wanted::Change(NameChange::Rename { from: DiskName::of(from), to: DiskName::of(to), keeps }))
    }

    /// Whether a rename may take the place of this.
    fn check_replaced(&self, moved: &Found, replaced: &Found, dir: &Found) -> Known<()> {
        // Two names of one file: nothing happens.
        refuse_if(moved.inode() == replaced.inode() && !moved.is_dir(), NOTHING)?;
        sure_if(moved.inode() != replaced.inode() && is_changeable_in(replaced, dir))?;
        match (moved.is_dir(), replaced.is_dir()) {
            (true, false) => Err(Error(libc::ENOTDIR)),
            (false, true) => Err(Error(libc::EISDIR)),
            (true, true) => refuse_if(!self.is_empty_dir(replaced)?, libc::ENOTEMPTY),
            (false, false) => Ok(()),
        }
    }

    /// Whether a directory is another one, or stands below it.
    fn is_at_or_below(&self, dir: &Found, upper: &Found) -> Known<bool> {
        const DEPTH_MAX: usize = 1000;
        let mut above = dir.fd.try_clone().ok().and_then(|fd| Found::of(fd).ok()).ok_or(Unsure)?;
        for _ in 0..DEPTH_MAX {
            if above.inode() == upper.inode() {
                return Ok(true);
            }
            let (next, _) = self.above(&above).map_err(|_| Unsure)?;
            if next.inode() == above.inode() {
                return Ok(false);
            }
            above = next;
        }
        Err(Unsure)
    }

    /// Whether those inside find nothing in a directory, if that can be found out unheard.
    fn is_empty_dir(&self, dir: &Found) -> Known<bool> {
        let held = &self.ahead.held_names;
        if held.added_in(dir.inode()).next().is_some() {
            return Ok(false);
        }
        if self.ahead.new_files.has(&dir.stat) {
            return Ok(true);
        }
        // It has to be opened, of which a watcher would hear.
        let above = Found::at(&dir.fd, b"..", OFlags::empty()).map_err(|_| Unsure)?;
        sure_if(!watchers::is_watched(&dir.stat) && !watchers::is_watched(&above.stat))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
        let open = rustix::fs::open(procfs::own_path(&dir.fd), flags, Mode::empty()).map_err(|_| Unsure)?;
        for entry in rustix::fs::Dir::new(open).map_err(|_| Unsure)? {
            let entry = entry.map_err(|_| Unsure)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && held.meaning(dir.inode(), name).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a path of a call names, if the process is sure to be allowed to change that.
    fn entry_to_change(&self, call: &Call, at: usize) -> Known<Entry> {
        let paths = syscall_table::op(call.frame.nr).map_or_else(Vec::new, paths_of);
        let &(dir, path) = paths.get(at).ok_or(Unsure)?;
        let text = path_text(call, path).ok_or(Unsure)?;
        refuse_if(text.is_empty(), libc::ENOENT)?;
        // A link is not followed here, whether there is a slash behind its name or not.
        let len = text.iter().rposition(|&byte| byte != b'/').map_or(text.len(), |last| last + 1);
        let (named, slashes) = text.split_at(len);
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), named, false);
        sure_if(way.is_known() && !way.through_proc && (!way.is_held || self.is_root_as_we_are(call.pid)))?;
        let entry = match way.end {
            // What another user may look up is the kernel's to say.
            End::Nowhere(error) if self.is_root_as_we_are(call.pid) => return Err(Error(error.raw_os_error())),
            End::Entry(entry) => entry,
            End::File(_) if matches!(call.frame.nr, nr::mkdir | nr::mkdirat) => return Err(Error(libc::EEXIST)),
            End::Nowhere(_) | End::File(_) | End::Unknown => return Err(Unsure),
        };
        // A slash behind a name says that it is a directory's; a dot is no name that can be changed.
        let is_dirs = match call.frame.nr {
            // Who removes a file is refused by its kind (`file_removed`).
            nr::mkdir | nr::mkdirat | nr::rmdir | nr::unlink | nr::unlinkat => true,
            // So is who moves one (`name_moved`).
            nr::rename | nr::renameat | nr::renameat2 => true,
            _ => false,
        };
        let is_last = named.rsplit(|&byte| byte == b'/').next() == Some(entry.name.as_bytes());
        sure_if(is_last && (is_dirs || slashes.is_empty()) && self.may_change_in(call, &entry.dir))?;
        Ok(entry)
    }

    fn may_change_in(&self, call: &Call, dir: &Found) -> bool {
        let (device, _) = self.world().device(dir.stat.st_dev);
        let is_on_disk = matches!(device, DeviceKind::Domain | DeviceKind::Memory) && !self.is_private(dir.stat.st_dev);
        let is_there = dir.stat.st_nlink > 0 && !self.ahead.held_names.is_removed_dir(dir.inode());
        is_on_disk && is_there && self.may_change(call.pid, dir) && is_writable(&dir.fd)
    }

    /// What the first path of a call names, if it is a file or nothing, and can be changed.
    pub(in crate::ahead) fn changeable_file_or_nothing(&self, call: &Call) -> Known<Entry> {
        let entry = self.entry_to_change(call, 0)?;
        let is_file = |found: &Found| found.is_regular() && is_changeable_in(found, &entry.dir);
        sure_if(entry.found.as_ref().is_none_or(is_file))?;
        Ok(entry)
    }
}

/// Whether a path of a call says by a slash behind it that it names a directory.
fn ends_with_slash(call: &Call) -> bool {
    let paths = syscall_table::op(call.frame.nr).map_or_else(Vec::new, paths_of);
    let mut texts = paths.into_iter().filter_map(|(_, path)| path_text(call, path));
    texts.any(|text| text.ends_with(b"/"))
}

fn refuse_if(fails: bool, error: i32) -> Known<()> {
    if fails {
        Err(Error(error))
    } else {
        Ok(())
    }
}

fn sure_if(is_sure: bool) -> Known<()> {
    if is_sure {
        Ok(())
    } else {
        Err(Unsure)
    }
}

/// Whether something can be removed from its directory, or moved: an ordinary file, a directory, a link or a FIFO, and
/// no mount.
fn is_changeable_in(found: &Found, dir: &Found) -> bool {
    let kind = FileType::from_raw_mode(found.stat.st_mode);
    let is_usual = matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Fifo);
    is_usual && found.stat.st_dev == dir.stat.st_dev && is_changeable(&found.fd)
}

/// A file on the disk that another name can be given to.
fn linkable(entry: &Entry) -> Option<Arc<OwnedFd>> {
    let found =
        entry.found.as_ref().filter(|found| found.is_regular() && (1..LINKS_MAX).contains(&found.stat.st_nlink))?;
    found.fd.try_clone().ok().map(Arc::new)
}

/// Whether both are seen through the same mount.
fn is_one_mount(from: &Found, to: &Found) -> Known<bool> {
    let mounts = [from, to].map(|dir| staging::mount_of(&dir.fd));
    sure_if(mounts.iter().all(Option::is_some))?;
    Ok(mounts[0] == mounts[1])
}

/// Whether what has a name in one directory of a mount can have one in another: nothing is counted or encrypted by
/// directories.
fn can_move(from: &Found, to: &Found) -> bool {
    from.inode() == to.inode() || staging::passes_nothing_on(&to.fd)
}

/// Whether attributes of its own keep a file from being removed, or it is what a mount shows.
fn is_changeable(file: &OwnedFd) -> bool {
    const FIXED: StatxAttributes =
        StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND).union(StatxAttributes::MOUNT_ROOT);
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| !found.stx_attributes.intersects(FIXED))
}

/// As `is_changeable`; it may be where a file system is mounted, but for writing.
pub(super) fn is_writable(dir: &OwnedFd) -> bool {
    const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);
    let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let is_writable = rustix::fs::fstatvfs(dir).is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::RDONLY));
    is_writable && found.is_ok_and(|found| !found.stx_attributes.intersects(FIXED))
}
