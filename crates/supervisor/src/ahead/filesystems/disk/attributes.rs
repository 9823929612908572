//! Modes, owners and times of files on disks that a speculative process changes (000, 6.4: no-steal;
//! [0052](../../../../../../docs/decisions/0052-attributes-are-held.md)). A change is held as changes of names are, and
//! made when nothing that it depends on can fail any more; a rollback drops it. Until then those inside are shown
//! the new values by `stat` and its kin, and whoever would go by them otherwise waits.
//!
//! The call is answered before the change is made: so only what is sure to succeed is held. The process is root,
//! the file is an ordinary one or a directory on a disk that can be written, nothing is immutable, and there are no
//! quotas and no access lists.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::known_ways::News;
use crate::ahead::calls::plan::Plan;
use crate::ahead::filesystems::disk::attribute_calls::{
    change_of, follows, is_change, named, now, Named, ACCESS_LIST, DEFAULT_LIST, UTIME_OMIT,
};
use crate::ahead::filesystems::disk::name_calls::is_held_change;
use crate::ahead::filesystems::disk::names::{dir_of, is_fifo, path_text, paths_of, tells_of_link};
use crate::ahead::filesystems::disk::stat::Shown;
use crate::ahead::filesystems::disk::truncations::is_truncation;
use crate::ahead::filesystems::memory::inverse::extended_of;
use crate::ahead::filesystems::open::{arguments, is_refused, O_EXCL, O_NOFOLLOW};
use crate::ahead::filesystems::path_walk::{End, Found};
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Written};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use procfs::ProcessId;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, StatVfsMountFlags, StatxAttributes, StatxFlags, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ops::RangeBounds;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use syscall_table::nr;
use syscall_table::Op;
use tracee::{Result, Stopped};

/// Of a mode.
const PERMISSIONS: u32 = 0o777;

/// Device and inode.
type Inode = (u64, u64);

/// A change of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) enum Change {
    Mode(u32),
    /// An access list that says what these bits of a mode say.
    Permissions(u32),
    /// What is made in a directory gets no access list: it gets none now.
    NoDefaultList,
    Owner {
        user: Option<u32>,
        group: Option<u32>,
    },
    Times {
        access: Option<Timespec>,
        contents: Option<Timespec>,
    },
}

impl Change {
    /// Make it, whatever the file's name is now.
    pub fn make(&self, file: &OwnedFd) -> rustix::io::Result<()> {
        let path = procfs::own_path(file);
        match *self {
            Self::Mode(mode) => rustix::fs::chmod(path, Mode::from_raw_mode(mode)),
            Self::Permissions(bits) => {
                let mode = rustix::fs::stat(&path)?.st_mode & !PERMISSIONS | bits;
                rustix::fs::chmod(path, Mode::from_raw_mode(mode))
            }
            Self::NoDefaultList => rustix::fs::removexattr(path, DEFAULT_LIST),
            Self::Owner { user, group } => rustix::fs::chown(path, user.map(Uid::from_raw), group.map(Gid::from_raw)),
            Self::Times { access, contents } => {
                let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
                let (last_access, last_modification) = (access.unwrap_or(kept), contents.unwrap_or(kept));
                let times = Timestamps { last_access, last_modification };
                rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty())
            }
        }
    }

    /// What it makes of the attributes.
    fn show(&self, shown: &mut Shown) {
        match *self {
            Self::Mode(mode) => shown.mode = shown.mode & libc::S_IFMT | mode,
            Self::Permissions(bits) => shown.mode = shown.mode & !PERMISSIONS | bits,
            Self::NoDefaultList => {}
            Self::Owner { user, group } => {
                (shown.user, shown.group) = (user.unwrap_or(shown.user), group.unwrap_or(shown.group));
                shown.mode = mode_of_another_owner(shown.mode);
            }
            Self::Times { access, contents } => {
                (shown.access, shown.contents) = (access.unwrap_or(shown.access), contents.unwrap_or(shown.contents));
            }
        }
    }
}

/// Whether everybody may look up names in a directory of this mode.
pub(in crate::ahead) fn is_searched_by_all(mode: u32) -> bool {
    const SEARCH: u32 = 0o111;
    mode & SEARCH == SEARCH
}

/// chown(2): programs lose the bits by which they run as their owner, whoever asks for it.
fn mode_of_another_owner(mode: u32) -> u32 {
    if mode & libc::S_IFMT != libc::S_IFREG {
        return mode;
    }
    let is_program_of_group = mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
    let lost = libc::S_ISUID | if is_program_of_group { libc::S_ISGID } else { 0 };
    mode & !lost
}

/// A change that is held.
#[derive(Debug)]
pub(crate) struct HeldAttributes {
    number: u64,
    file: Arc<OwnedFd>,
    inode: Inode,
    change: Change,
}

/// A change, by its number, and when it was asked for.
type Step = (u64, Change, Timespec);

/// Files whose attributes are not what the world should see of them.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Attributes {
    steps: HashMap<Inode, Vec<Step>>,
    /// Directories that have a name on their disk.
    dirs: HashSet<Inode>,
    next_number: u64,
    pub news: News,
}

impl Attributes {
    fn add(&mut self, file: Arc<OwnedFd>, inode: Inode, change: Change, now: Timespec) -> HeldAttributes {
        self.next_number += 1;
        let number = self.next_number;
        self.steps.entry(inode).or_default().push((number, change, now));
        self.news.of_file(inode);
        self.news.of_dir(inode);
        HeldAttributes { number, file, inode, change }
    }

    fn remove(&mut self, held: &HeldAttributes) {
        let Some(steps) = self.steps.get_mut(&held.inode) else { return };
        steps.retain(|(number, ..)| *number != held.number);
        // It is the kernel's to say, or as it was before.
        self.news.of_file(held.inode);
        if steps.is_empty() {
            self.steps.remove(&held.inode);
            self.dirs.remove(&held.inode);
        }
    }

    /// A directory has a name on its disk.
    pub fn is_reached(&mut self, dir: Inode) {
        if self.has_inode(&dir) {
            self.dirs.insert(dir);
        }
    }

    /// Whether names can lead on the disk through a directory that is one of these.
    pub fn has_any_that_leads_on(&self) -> bool {
        !self.dirs.is_empty()
    }

    pub fn has(&self, stat: &Stat) -> bool {
        self.has_inode(&(stat.st_dev, stat.st_ino))
    }

    /// Whether files of a directory may be removed by their owners only, or that is held.
    fn may_be_sticky(&self, dir: &Stat) -> bool {
        let held = self.steps.get(&(dir.st_dev, dir.st_ino)).into_iter().flatten();
        let mut modes = held.filter_map(|(_, change, _)| match *change {
            Change::Mode(mode) | Change::Permissions(mode) => Some(mode),
            _ => None,
        });
        dir.st_mode & libc::S_ISVTX != 0 || modes.any(|mode| mode & libc::S_ISVTX != 0)
    }

    pub fn has_inode(&self, inode: &Inode) -> bool {
        self.steps.contains_key(inode)
    }

    /// Whether everybody may look up names in a directory by each mode that is held of it. `None`: there is none.
    pub fn lets_all_search(&self, dir: Inode) -> Option<bool> {
        let modes = self.steps.get(&dir)?.iter().filter_map(|(_, change, _)| match *change {
            Change::Mode(bits) | Change::Permissions(bits) => Some(is_searched_by_all(bits)),
            Change::NoDefaultList | Change::Owner { .. } | Change::Times { .. } => None,
        });
        modes.reduce(|all, one| all && one)
    }

    /// Whether it is held when a file was read last.
    pub fn has_access(&self, inode: &Inode) -> bool {
        let mut steps = self.steps.get(inode).into_iter().flatten();
        steps.any(|(_, change, _)| matches!(change, Change::Times { access: Some(_), .. }))
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The number of the last change so far.
    pub fn held_before(&self) -> u64 {
        self.next_number
    }

    fn is_full(&self) -> bool {
        const STEPS_MAX: usize = 4096;
        self.steps.values().map(Vec::len).sum::<usize>() >= STEPS_MAX
    }

    /// What those inside see, after the changes with these numbers.
    pub fn show(&self, inode: Inode, numbers: impl RangeBounds<u64>, shown: &mut Shown) {
        let steps = self.steps.get(&inode).into_iter().flatten();
        for (_, change, at) in steps.filter(|(number, ..)| numbers.contains(number)) {
            change.show(shown);
            if *change != Change::NoDefaultList {
                shown.changed = *at;
            }
        }
    }
}

impl Supervisor {
    /// Hold a change of a speculative process; it waits where it is not sure to succeed.
    pub(in crate::ahead) fn hold_attributes(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        if self.are_names_changing() || self.ahead.attributes.is_full() {
            return Ok(self.wait_at_barrier(call));
        }
        let now = now();
        let found = change_of(call, now).and_then(|change| Some((change, self.file_changed(call)?)));
        let is_found = named(call) != Named::Path || self.would_find(stopped, call)?;
        let Some((change, file)) = found.filter(|_| is_found) else {
            return Ok(self.wait_at_barrier(call));
        };
        if (file.is_regular() || is_fifo(&file.stat)) && self.ahead.new_files.has(&file.stat) {
            let made = self.change_new_file(stopped, call, &file, change)?;
            return Ok(made.unwrap_or_else(|| self.wait_at_barrier(call)));
        }
        if !self.is_sure_to_change(call.pid, &file, &change) {
            return Ok(self.wait_at_barrier(call));
        }
        let modifies = vec![(file.object(), Intent::Nothing)];
        let plan = Plan { observes: self.plan_lookup(call.pid).observes, ..Plan::tracked_once() };
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        self.observe_everything(call.tid);
        let inode = (file.stat.st_dev, file.stat.st_ino);
        let is_reached = file.is_dir() && !self.ahead.new_files.has(&file.stat);
        let held = self.ahead.attributes.add(file.fd, inode, change, now);
        if is_reached {
            self.ahead.attributes.is_reached(inode);
        }
        self.ahead.core.output(process(call.pid), Written::Attributes(held));
        Ok(Decision::Answer(0))
    }

    fn change_new_file(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        file: &Found,
        change: Change,
    ) -> Result<Option<Decision>> {
        let plan = Plan { observes: self.plan_lookup(call.pid).observes, ..Plan::tracked_once() };
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        self.observe_everything(call.tid);
        self.change_attributes(stopped, call, file, change)
    }

    fn is_sure_to_change(&self, pid: ProcessId, file: &Found, change: &Change) -> bool {
        let (device, _) = self.world().device(file.stat.st_dev);
        let is_on_disk = device == DeviceKind::Domain && !self.is_private(file.stat.st_dev);
        let is_such = file.is_regular() || file.is_dir() || is_fifo(&file.stat);
        let is_such = is_such || file.is_symlink() && concerns_links(change);
        let is_usual = is_such && file.stat.st_nlink > 0;
        is_on_disk && is_usual && self.is_root_as_we_are(pid) && can_change(file, change)
    }

    /// What a call changes, if that is known.
    fn file_changed(&mut self, call: &Call) -> Option<Found> {
        let named = named(call);
        let (Named::Open(fd) | Named::Descriptor(fd)) = named else { return self.file_at_path(call) };
        let copy = self.copy_descriptor(call.tid, fd).ok()?;
        let is_path_only = rustix::fs::fcntl_getfl(&copy).ok()?.contains(OFlags::PATH);
        let file = Found::of(copy).ok()?;
        let is_it = match named {
            Named::Descriptor(_) => self.leads_to(call, &file),
            _ => !is_path_only,
        };
        is_it.then_some(file)
    }

    /// Whether the path of a call that names a descriptor leads there: what is called `/proc` may be something else.
    fn leads_to(&self, call: &Call, file: &Found) -> bool {
        let at = syscall_table::op(call.frame.nr).and_then(|op| paths_of(op).first().copied());
        let text = at.and_then(|(_, at)| path_text(call, at)).unwrap_or_default();
        let way = self.walk(call.tid, call.pid, None, &text, true);
        text.is_empty() || way.through_proc && way.found().is_some_and(|found| found.inode() == file.inode())
    }

    fn file_at_path(&self, call: &Call) -> Option<Found> {
        let (dir, at) = *paths_of(syscall_table::op(call.frame.nr)?).first()?;
        let text = path_text(call, at).filter(|text| !text.is_empty())?;
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, follows(call)?);
        let is_plain = way.is_known() && !way.through_proc;
        way.into_found().filter(|_| is_plain)
    }

    /// Whether a call goes by attributes that are held, in a way that is not answered here.
    pub(in crate::ahead) fn goes_by_held_attributes(&mut self, call: &Call) -> bool {
        if self.ahead.attributes.steps.is_empty() {
            return false;
        }
        let Some(op) = syscall_table::op(call.frame.nr) else { return true };
        match op {
            // What they change comes after what is held, and would be undone by it.
            Op::Write { fd } | Op::ModifyFd { fd } if !self.ahead.is_speculative(call.pid) => self.is_held_of(call, fd),
            Op::ModifyFd { fd } if !is_change(call.frame.nr) && !is_truncation(call.frame.nr) => {
                self.is_held_of(call, fd)
            }
            Op::ObserveFd { fd } if shows_attributes(call.frame.nr) => self.is_held_of(call, fd),
            Op::ObservePath { .. } if !self.is_harmless_access(call) => self.leads_to_held_attributes(call, op),
            Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat if self.creates_file(call) && !self.makes_nothing(call) => {
                self.leads_to_held_attributes(call, op) || self.makes_in_held_dir(call, op)
            }
            Op::Execve | Op::Execveat => self.leads_to_held_attributes(call, op),
            Op::StatPath { .. } | Op::Statx => self.leads_to_held_attributes(call, op),
            // What is held is made in the order in which it was asked for.
            Op::ModifyPath { .. } | Op::ModifyPaths { .. }
                if self.ahead.is_speculative(call.pid)
                    && (is_change(call.frame.nr) || is_held_change(call.frame.nr)) =>
            {
                false
            }
            Op::ModifyPath { .. } | Op::ModifyPaths { .. } | Op::AddWatch { .. } => {
                self.leads_to_held_attributes(call, op)
            }
            Op::Mount | Op::Namespace => true,
            _ => false,
        }
    }

    fn is_held_of(&mut self, call: &Call, fd: u8) -> bool {
        let copy = self.copy_descriptor(call.tid, call.frame.args[usize::from(fd) % 6] as i32);
        copy.ok().and_then(|copy| rustix::fs::fstat(&copy).ok()).is_some_and(|stat| self.ahead.attributes.has(&stat))
    }

    /// Whether a call that may create a file is made by a root to whom what is held makes no difference, and finds the
    /// file, or a directory. (Only in a directory where everybody may create files does it depend on their owners.)
    fn makes_nothing(&self, call: &Call) -> bool {
        let Some([dir, _, flags, _]) = arguments(call).filter(|[_, _, flags, _]| flags & O_EXCL == 0) else {
            return false;
        };
        let op = syscall_table::op(call.frame.nr);
        let path = op.and_then(|op| path_text(call, paths_of(op).first()?.1));
        let Some(path) = path else { return false };
        let dir = (dir as i32 != libc::AT_FDCWD).then_some(dir as i32);
        let way = self.walk(call.tid, call.pid, dir, &path, flags & O_NOFOLLOW == 0);
        let may_be_told = self.ahead.is_speculative(call.pid) && self.is_root_as_we_are(call.pid);
        if is_refused(&way, flags) {
            return may_be_told;
        }
        let End::Entry(entry) = way.end else { return false };
        let is_there = entry.found.is_some_and(|found| found.is_regular());
        !self.ahead.attributes.may_be_sticky(&entry.dir.stat) && is_there && may_be_told
    }

    /// What is made gets its group from the directory, and whether it may be made can depend on the directory's
    /// mode and owner.
    fn makes_in_held_dir(&self, call: &Call, op: Op) -> bool {
        paths_of(op).into_iter().any(|(dir, at)| {
            let Some(text) = path_text(call, at) else { return false };
            let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, true);
            let End::Entry(entry) = way.end else { return false };
            let goes_by_rights = self.ahead.attributes.has(&entry.dir.stat) && !self.is_root_as_we_are(call.pid);
            goes_by_rights || self.may_give_held_group(&entry.dir.stat)
        })
    }

    /// Whether a directory gives its group to what is made in it, or will, and its group or that is held.
    pub(in crate::ahead) fn may_give_held_group(&self, dir: &Stat) -> bool {
        let steps = self.ahead.attributes.steps.get(&(dir.st_dev, dir.st_ino));
        let gives = |change: &Change| matches!(change, Change::Mode(mode) if mode & libc::S_ISGID != 0);
        let is_any =
            |steps: &Vec<Step>| dir.st_mode & libc::S_ISGID != 0 || steps.iter().any(|(_, change, _)| gives(change));
        steps.is_some_and(is_any)
    }

    fn leads_to_held_attributes(&self, call: &Call, op: Op) -> bool {
        paths_of(op).into_iter().any(|(dir, at)| {
            let Some(text) = path_text(call, at) else { return false };
            let leads = |follows| {
                let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, follows);
                way.found().map_or(matches!(way.end, End::Unknown), |found| self.ahead.attributes.has(&found.stat))
            };
            !tells_of_link(call) && leads(true) || leads(false)
        })
    }

    /// Nothing that it depends on can fail any more: the change is made.
    pub(in crate::ahead) fn make_attributes(&mut self, held: &HeldAttributes) {
        self.forget_attributes(held);
        if self.ahead.is_doomed {
            return;
        }
        self.about_to_change(held.inode.0);
        if let Err(error) = held.change.make(&held.file) {
            // The program was told that it had succeeded.
            self.end_world(&format!("a change of attributes that had been held could not be made: {error}"));
            return;
        }
        self.note_name_changed(held.inode, None);
    }

    /// It was made, or will never be.
    pub(in crate::ahead) fn forget_attributes(&mut self, held: &HeldAttributes) {
        self.ahead.attributes.remove(held);
        self.ahead.changes += 1;
    }
}

/// Whether nothing about the file itself or its file system keeps root from changing it.
fn can_change(file: &Found, change: &Change) -> bool {
    const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);
    let found = rustix::fs::statx(&file.fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let is_fixed = found.is_ok_and(|found| found.stx_attributes.intersects(FIXED));
    let is_writable =
        rustix::fs::fstatvfs(&file.fd).is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::RDONLY));
    let is_plain = extended_of(&file.fd).is_ok_and(|all| all.is_empty());
    let is_possible = match change {
        Change::Mode(_) => true,
        Change::Permissions(_) | Change::NoDefaultList => keeps_access_lists(file),
        Change::Owner { .. } => !has_quotas(&file.stat),
        Change::Times { .. } => keeps_nanoseconds(file),
    };
    !is_fixed && is_writable && is_plain && is_possible
}

/// ext4 keeps them if its inodes are large enough: then the kernel has set some.
fn keeps_nanoseconds(file: &Found) -> bool {
    const EXT4_SUPER_MAGIC: u64 = 0xef53;
    let is_ext4 = rustix::fs::fstatfs(&file.fd).is_ok_and(|found| found.f_type as u64 == EXT4_SUPER_MAGIC);
    is_ext4 && file.stat.st_ctime_nsec != 0
}

/// Whether a change can be one of a link itself.
fn concerns_links(change: &Change) -> bool {
    matches!(change, Change::Owner { .. } | Change::Times { .. })
}

/// Whether a file, or a directory, could have an access list, and has none.
fn keeps_access_lists(file: &Found) -> bool {
    let read = |name: &str| rustix::fs::getxattr(procfs::own_path(&file.fd), name, &mut [0; 1][..]);
    let is_absent = |name: &str| read(name) == Err(Errno::NODATA);
    is_absent(ACCESS_LIST) && (!file.is_dir() || is_absent(DEFAULT_LIST))
}

fn has_quotas(stat: &Stat) -> bool {
    let mount = procfs::mountinfo::of_device(stat.st_dev).ok().flatten();
    mount.is_none_or(|mount| mount.fs_options.contains("quota"))
}

/// Of the calls that observe a descriptor, those that show what is held: fstat is answered before, extended
/// attributes and file systems are not concerned.
fn shows_attributes(nr: u64) -> bool {
    nr == nr::fstat
}

impl Supervisor {
    /// Whether a call asks for a name and what root may do with it besides execution: the mode says nothing about that.
    /// A link's text, extended attributes and the file system are not changed either.
    fn is_harmless_access(&self, call: &Call) -> bool {
        const X_OK: u64 = 1;
        let mode = match call.frame.nr {
            nr::access => call.frame.args[1],
            nr::faccessat | nr::faccessat2 => call.frame.args[2],
            _ => return true,
        };
        mode & X_OK == 0 && self.is_root_as_we_are(call.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mode: u32) -> Shown {
        let time = Timespec { tv_sec: 1, tv_nsec: 2 };
        Shown { links: 1, mode, user: 1, group: 2, size: 3, blocks: 8, access: time, contents: time, changed: time }
    }

    #[test]
    fn another_owner_takes_the_rights_of_programs_away() {
        let check = |mode, expected| {
            let mut attributes = shown(mode);
            Change::Owner { user: Some(5), group: None }.show(&mut attributes);
            assert_eq!((attributes.mode, attributes.user, attributes.group), (expected, 5, 2), "{mode:o}");
        };
        check(0o10_6755, 0o10_0755);
        check(0o10_2644, 0o10_2644);
        check(0o04_2755, 0o04_2755);
    }

    #[test]
    fn the_last_change_is_shown_and_what_is_removed_is_not() {
        let file = || rustix::fs::open("/", OFlags::PATH, Mode::empty()).unwrap();
        let at = Timespec { tv_sec: 9, tv_nsec: 0 };
        let mut attributes = Attributes::default();
        let one = attributes.add(file().into(), (1, 2), Change::Mode(0o600), at);
        let two = attributes.add(file().into(), (1, 2), Change::Times { access: None, contents: Some(at) }, at);
        let mut seen = shown(0o100_644);
        attributes.show((1, 2), .., &mut seen);
        assert_eq!((seen.mode, seen.contents, seen.access.tv_sec), (0o100_600, at, 1));
        attributes.remove(&one);
        let mut seen = shown(0o100_644);
        attributes.show((1, 2), .., &mut seen);
        assert_eq!((seen.mode, seen.contents), (0o100_644, at));
        attributes.remove(&two);
        assert!(attributes.steps.is_empty());
    }
}
