//! Calls on files in memory that only the world sees (000, 6.2 and 6.3): what they observe, what they change, and
//! whether that can be taken back.
//!
//! Directories are `Names`, with their attributes; everything else is a `File`. A name that is looked up observes the
//! directories that it leads through and what it leads to. Those who look are told of, as those who change are: nobody
//! becomes dependent on what he looked at before it was speculative.
//!
//! What is a barrier: removing a directory (its inode could not be made again), locks, shared mappings and changes of
//! mapped files (memory shows them without a call), watched file systems (inotify tells), more than [`KEPT_LEN_MAX`]
//! bytes at once.

pub(in crate::ahead) mod inverse;

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::filesystems::mapped::Mapped;
use crate::ahead::filesystems::memory::inverse::{Change, Memory, Place, KEPT_LEN_MAX};
use crate::ahead::filesystems::open::{O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_TMPFILE, O_TRUNC};
use crate::ahead::filesystems::path_walk::{object_of, End, Entry, Found, Way};
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use procfs::ThreadId;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use syscall_table::nr;
use syscall_table::{Op, SyncKind};

pub(in crate::ahead) const GETCWD: u64 = 79;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;

/// Files in memory of a world.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Files {
    pub memories: Vec<Arc<Memory>>,
    /// Files that were ever mapped.
    mapped: Mapped,
    /// File systems where events tell of changes.
    watched: bool,
    /// Threads whose call changes where paths lead.
    renaming: HashSet<ThreadId>,
}

impl Files {
    pub fn new(memories: Vec<Memory>) -> Self {
        Self { memories: memories.into_iter().map(Arc::new).collect(), ..Self::default() }
    }

    /// Whether there are no file systems in memory of the world's own.
    pub fn is_empty(&self) -> bool {
        self.memories.is_empty()
    }

    /// Whether something in memory is not what a look at it would tell.
    pub fn hides_any(&self) -> bool {
        self.memories.iter().any(|memory| memory.hides_any())
    }

    fn memory(&self, dev: u64) -> Option<&Arc<Memory>> {
        self.memories.iter().find(|memory| memory.dev == dev)
    }
}

/// A path argument.
struct Path {
    dir: Option<i32>,
    text: Vec<u8>,
    follows: bool,
}

impl Supervisor {
    pub(in crate::ahead) fn is_private(&self, dev: u64) -> bool {
        self.ahead.files.memory(dev).is_some()
    }

    /// Objects that a call looks at and that somebody may be about to change: it is told of.
    pub(in crate::ahead) fn looks_at(&self, observed: &[speculation::Dependent<Object>]) -> Vec<Object> {
        let objects = observed.iter().filter_map(|dependent| match dependent {
            speculation::Dependent::Object(object) => Some(object.clone()),
            speculation::Dependent::Process(_) => None,
        });
        objects.filter(|object| object.can_be_awaited() || self.is_in_memory(object)).collect()
    }

    fn is_in_memory(&self, object: &Object) -> bool {
        matches!(object, Object::File(dev, _) | Object::Names(dev, _) if self.is_private(*dev))
    }

    /// What is to be said of a call that concerns files in memory; `None` if it does not.
    pub(in crate::ahead) fn plan_files(&mut self, call: &Call, op: Op) -> Option<Plan> {
        if self.ahead.files.memories.is_empty() {
            return None;
        }
        self.ahead.files.renaming.remove(&call.tid);
        let args = call.frame.args;
        let fd = |position: u8| args[usize::from(position) % 6] as i32;
        match op {
            Op::Read { fd: at } => self.plan_file_read(call, fd(at)),
            Op::Write { fd: at } => self.plan_file_write(call, fd(at)),
            Op::ObserveFd { fd: at } => self.plan_file_look(call, fd(at)),
            Op::ModifyFd { fd: at } => self.plan_file_change(call, fd(at)),
            Op::Copy { input, output } => self.plan_file_copy(call, fd(input), fd(output)),
            Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat => Some(self.plan_file_open(call)),
            Op::ObservePath { .. } if call.frame.nr == GETCWD => {
                let above = self.walk_up(call.tid);
                Some(looking(above))
            }
            Op::AddWatch { .. } => self.plan_watch(call, op),
            _ if call.frame.nr == nr::fanotify_mark => self.plan_watch(call, op),
            Op::ObservePath { .. } | Op::StatPath { .. } | Op::Statx | Op::Chdir => self.plan_file_lookup(call, op),
            Op::Fchdir => self.plan_file_look(call, fd(0)),
            Op::ModifyPath { .. } => self.plan_path_change(call, op),
            Op::ModifyPaths { .. } => self.plan_paths_change(call, op),
            Op::Mmap => self.plan_file_mmap(call, fd(4)),
            Op::Sync(SyncKind::File | SyncKind::Range) => {
                self.private_behind(call, fd(0)).map(|(found, _)| looking(vec![found.object()]))
            }
            Op::Execve => {
                let path = self.path(call, None, 0, true)?;
                self.plan_file_exec(call, &path)
            }
            // Names of sockets are names of files.
            Op::SocketName { .. } if !names_file(call) || self.connects_to_nothing(call).is_some() => None,
            Op::Execveat | Op::SocketName { .. } | Op::Namespace | Op::Mount => {
                self.is_anything_touched().then(wait_for_all)
            }
            _ => None,
        }
    }

    fn plan_file_read(&mut self, call: &Call, fd: i32) -> Option<Plan> {
        let (found, copy) = self.private_behind(call, fd)?;
        let plan = looking(vec![found.object()]);
        if is_pread(call) {
            return Some(plan);
        }
        Some(plan.modifying(position_of(found.stat.st_dev, found.stat.st_ino), Intent::Position(copy)))
    }

    fn plan_file_look(&mut self, call: &Call, fd: i32) -> Option<Plan> {
        let (found, copy) = self.private_behind(call, fd)?;
        if call.frame.nr == nr::lseek {
            let position = position_of(found.stat.st_dev, found.stat.st_ino);
            return Some(looking(vec![found.object()]).modifying(position, Intent::Position(copy)));
        }
        if call.frame.nr == nr::fstatfs {
            return Some(looking(self.everything_touched()));
        }
        Some(self.look_at(&found))
    }

    /// Attributes of a file are looked at. One that is kept has a link more than it should have.
    fn look_at(&self, found: &Found) -> Plan {
        if self.is_hidden(found) {
            return wait_for_all();
        }
        looking(vec![found.object()])
    }

    fn is_hidden(&self, found: &Found) -> bool {
        self.ahead.files.memory(found.stat.st_dev).is_some_and(|memory| memory.is_hidden(found.stat.st_ino))
    }

    fn plan_file_write(&mut self, call: &Call, fd: i32) -> Option<Plan> {
        let (found, copy) = self.private_behind(call, fd)?;
        let range = written_range(call, &copy, &found);
        let position = position_of(found.stat.st_dev, found.stat.st_ino);
        let plan = self.changing_contents(found, range)?;
        const PWRITES: [u64; 2] = [nr::pwrite64, nr::pwritev];
        if matches!(plan.class, Class::Window | Class::Barrier) {
            return Some(plan);
        }
        if PWRITES.contains(&call.frame.nr) {
            // Where it writes depends on whether the open file appends (pwrite(2), BUGS).
            return Some(plan.observing(position));
        }
        Some(plan.modifying(position, Intent::Position(copy)))
    }

    fn plan_file_change(&mut self, call: &Call, fd: i32) -> Option<Plan> {
        let (found, _) = self.private_behind(call, fd)?;
        let args = &call.frame.args;
        match call.frame.nr {
            nr::ftruncate => self.changing_contents(found, args[1]..u64::MAX),
            nr::fallocate => {
                let size = found.stat.st_size as u64;
                let (start, end) = (args[2], args[2].saturating_add(args[3]));
                // Pages beyond the end are no data that could be put back.
                if end > size && args[1] & 1 != 0 {
                    return Some(self.wait_for_files());
                }
                self.changing_contents(found, start..end)
            }
            nr::inotify_rm_watch => None,
            _ => Some(self.changing_attributes(found)),
        }
    }

    fn plan_file_copy(&mut self, call: &Call, input: i32, output: i32) -> Option<Plan> {
        let args = &call.frame.args;
        let Some((found, to)) = self.private_behind(call, output) else {
            // Out of a file in memory, into something else.
            self.private_behind(call, input)?;
            return Some(self.wait_for_files());
        };
        let FileDescription::File { dev, ino, device, copy: from } = self.file_description(call.tid, input) else {
            return Some(self.wait_for_files());
        };
        if device == DeviceKind::Pseudo {
            return Some(wait_for_all());
        }
        let (len, to_at, from_at) = match call.frame.nr {
            nr::sendfile => (args[3], 0, args[2]),
            nr::copy_file_range => (args[4], args[3], args[1]),
            _ => return Some(self.wait_for_files()),
        };
        let start = match to_at {
            0 => position(&to, &found),
            at => tracee::read_value::<u64>(call.tid, at).unwrap_or(0),
        };
        let available = rustix::fs::fstat(&from).map_or(0, |stat| stat.st_size as u64);
        let end = start.saturating_add(len.min(available));
        let position = position_of(found.stat.st_dev, found.stat.st_ino);
        let mut plan = self.changing_contents(found, start..end)?.observing(Object::File(dev, ino));
        if matches!(plan.class, Class::Tracked) {
            if to_at == 0 {
                plan = plan.modifying(position, Intent::Position(to));
            }
            if from_at == 0 {
                plan = plan.modifying(position_of(dev, ino), Intent::Position(from));
            }
        }
        Some(plan)
    }

    fn plan_file_mmap(&mut self, call: &Call, fd: i32) -> Option<Plan> {
        const MAP_ANONYMOUS: u64 = 0x20;
        const MAP_TYPE: u64 = 0xf;
        const MAP_PRIVATE: u64 = 2;
        if call.frame.args[3] & MAP_ANONYMOUS != 0 {
            return None;
        }
        let (found, _) = self.private_behind(call, fd)?;
        self.ahead.files.mapped.note((found.stat.st_dev, found.stat.st_ino));
        if call.frame.args[3] & MAP_TYPE != MAP_PRIVATE {
            return Some(self.wait_for_files());
        }
        Some(looking(vec![found.object()]))
    }

    /// Files that were mapped while nobody asked.
    pub(in crate::ahead) fn learn_mappings(&mut self) {
        if self.ahead.files.memories.is_empty() {
            return;
        }
        let tids: Vec<ThreadId> = self.tracees.keys().copied().collect();
        for tid in tids {
            self.ahead.files.mapped.learn(procfs::Maps::of(tid));
        }
    }

    /// Whoever watches hears of changes at once: from now on none is speculative.
    fn plan_watch(&mut self, call: &Call, op: Op) -> Option<Plan> {
        let is_ours = match op {
            Op::AddWatch { path, .. } => {
                let path = self.path(call, None, path, true)?;
                let way = self.way(call, &path);
                way.through_proc
                    || matches!(way.end, End::Unknown)
                    || way.found().is_some_and(|found| self.is_private(found.stat.st_dev))
            }
            _ => true,
        };
        if !is_ours {
            return None;
        }
        self.ahead.files.watched = true;
        Some(self.wait_for_files())
    }

    fn plan_file_lookup(&mut self, call: &Call, op: Op) -> Option<Plan> {
        let args = &call.frame.args;
        // Where the flags are that say whether a last link is followed.
        let (dir, at, follows) = match (op, call.frame.nr) {
            // lstat, readlink, lgetxattr, llistxattr, readlinkat
            (Op::StatPath { dir, path, .. } | Op::ObservePath { dir, path }, 6 | 89 | 192 | 195 | 267) => {
                (dir, path, false)
            }
            // newfstatat, faccessat2
            (Op::StatPath { dir, path, .. } | Op::ObservePath { dir, path }, 262 | 439) => {
                (dir, path, args[3] & AT_SYMLINK_NOFOLLOW == 0)
            }
            (Op::Statx, _) => (0, 1, args[2] & AT_SYMLINK_NOFOLLOW == 0),
            (Op::StatPath { dir, path, .. } | Op::ObservePath { dir, path }, _) => (dir, path, true),
            _ => (syscall_table::CWD, 0, true),
        };
        let path = self.path(call, Some(dir), at, follows)?;
        let way = self.way(call, &path);
        if call.frame.nr == nr::statfs {
            return Some(looking(self.everything_touched()));
        }
        let is_stat = matches!(op, Op::StatPath { .. } | Op::Statx);
        if is_stat && way.found().is_some_and(|found| self.is_hidden(found)) {
            return Some(wait_for_all());
        }
        Some(looking(self.seen(&way)))
    }

    fn plan_file_exec(&mut self, call: &Call, path: &Path) -> Option<Plan> {
        let way = self.way(call, path);
        let mut seen = self.seen(&way);
        if let Some(found) = way.found().filter(|found| found.is_regular() && self.is_private(found.stat.st_dev)) {
            // What undoes a write keeps the file open for writing: ETXTBSY.
            seen.push(position_of(found.stat.st_dev, found.stat.st_ino));
            if let Some(text) = interpreter(found) {
                let interpreter = self.way(call, &Path { dir: None, text, follows: true });
                seen.extend(self.seen(&interpreter));
            }
        }
        let elsewhere = |object: &Object| matches!(object, Object::File(dev, _) if !self.is_private(*dev));
        let is_touched = |object: &Object| self.ahead.touched.contains(object) && !elsewhere(object);
        seen.iter().any(is_touched).then(wait_for_all)
    }

    fn plan_file_open(&mut self, call: &Call) -> Plan {
        let args = &call.frame.args;
        let (dir, at, flags) = match call.frame.nr {
            nr::open => (None, 0, args[1]),
            nr::creat => (None, 0, O_CREAT | O_TRUNC | 1),
            _ if syscall_table::op(call.frame.nr) == Some(Op::OpenAt2) => {
                let how = tracee::read_value::<[u64; 3]>(call.tid, args[2]);
                // Resolution with limits of its own.
                match how {
                    Ok([flags, _, 0]) => (Some(0), 1, flags),
                    _ => return self.wait_for_files(),
                }
            }
            _ => (Some(0), 1, args[2]),
        };
        let follows = flags & O_NOFOLLOW == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
        // The kernel will say EFAULT.
        let Some(path) = self.path(call, dir, at, follows) else { return Plan::new(Class::Free) };
        let way = self.way(call, &path);
        let seen = looking(self.seen(&way));
        let changes = flags & (O_CREAT | O_TRUNC) != 0 || flags & O_TMPFILE == O_TMPFILE;
        const O_PATH: u64 = 0o10000000;
        if flags & O_PATH == 0 && way.found().is_some_and(is_fifo) {
            // It returns when somebody opens the other end, who learns of it: an open that is taken back was seen.
            return self.elsewhere(&seen);
        }
        if !changes {
            return seen;
        }
        match way.end {
            End::Entry(Entry { found: Some(found), .. }) | End::File(found) => {
                let kind = FileType::from_raw_mode(found.stat.st_mode);
                // Nothing is created, and there is nothing to truncate.
                let is_only_opened = kind == FileType::Directory && flags & O_TMPFILE != O_TMPFILE
                    || matches!(kind, FileType::CharacterDevice | FileType::Symlink | FileType::Socket);
                if is_only_opened {
                    return seen;
                }
                if !self.is_private(found.stat.st_dev) {
                    return self.elsewhere(&seen);
                }
                if flags & O_TRUNC == 0 || flags & O_EXCL != 0 && flags & O_CREAT != 0 || found.is_dir() {
                    return seen;
                }
                let all = 0..u64::MAX;
                let truncating = self.changing_contents(found, all);
                truncating.map_or_else(|| self.wait_for_files(), |plan| plan.observing_all(&seen))
            }
            End::Entry(entry) if flags & O_CREAT != 0 => self.creating(entry, &seen),
            End::Entry(_) | End::Nowhere(_) => seen,
            End::Unknown => self.wait_for_files(),
        }
    }

    /// A change somewhere else: the old answer, unless what it looks at on the way is speculative.
    fn elsewhere(&mut self, seen: &Plan) -> Plan {
        let is_touched = self.looks_at(&seen.observes).iter().any(|object| self.ahead.touched.contains(object));
        match is_touched {
            true => wait_for_all(),
            false => Plan::new(Class::Barrier).once(),
        }
    }

    /// A new name.
    fn creating(&mut self, entry: Entry, seen: &Plan) -> Plan {
        if !self.is_private(entry.dir.stat.st_dev) {
            return self.elsewhere(seen);
        }
        let object = entry.dir.object();
        match self.place(&entry) {
            Some(place) => self.changing(looking(vec![]).modifying(object, Intent::Memory(Change::Name(place))), seen),
            None => self.wait_for_files(),
        }
    }

    fn plan_path_change(&mut self, call: &Call, op: Op) -> Option<Plan> {
        let Op::ModifyPath { dir, path: at } = op else { return None };
        let args = &call.frame.args;
        let nr = call.frame.nr;
        const LASTS: [u64; 12] = [
            nr::lchown,
            nr::unlink,
            nr::rmdir,
            nr::mkdir,
            nr::mknod,
            nr::symlink,
            nr::lsetxattr,
            nr::lremovexattr,
            nr::mkdirat,
            nr::mknodat,
            nr::unlinkat,
            nr::symlinkat,
        ];
        let flags = match nr {
            nr::fchownat => args[4],
            nr::utimensat | nr::fchmodat2 => args[3],
            _ => 0,
        };
        let follows = !LASTS.contains(&nr) && flags & AT_SYMLINK_NOFOLLOW == 0;
        if nr >= nr::setxattrat {
            return Some(self.wait_for_files());
        }
        let path = match args[usize::from(at) % 6] {
            // utimensat, futimesat: the descriptor's file.
            0 => Path { dir: Some(args[0] as i32), text: Vec::new(), follows },
            _ => self.path(call, Some(dir), at, follows)?,
        };
        let way = self.way(call, &path);
        let seen = looking(self.seen(&way));
        Some(match (nr, way.end) {
            (_, End::Unknown) => self.wait_for_files(),
            (_, End::Nowhere(_)) => seen,
            (nr::mkdir | nr::mknod | nr::symlink | nr::mkdirat | nr::mknodat | nr::symlinkat, End::Entry(entry)) => {
                match entry.found {
                    Some(_) => seen,
                    None => self.creating(entry, &seen),
                }
            }
            (nr::rmdir | nr::unlinkat | nr::unlink, End::Entry(entry)) if entry.found.is_some() => {
                let removes_dir = nr == nr::rmdir || nr == nr::unlinkat && args[2] & AT_REMOVEDIR != 0;
                self.removing(entry, removes_dir, &seen)
            }
            (nr::rmdir | nr::unlinkat | nr::unlink, End::Entry(_)) => seen,
            (
                nr::mkdir
                | nr::mknod
                | nr::symlink
                | nr::mkdirat
                | nr::mknodat
                | nr::symlinkat
                | nr::rmdir
                | nr::unlinkat
                | nr::unlink,
                End::File(_),
            ) => self.elsewhere(&seen),
            (_, End::Entry(Entry { found: None, .. })) => seen,
            (_, End::Entry(Entry { found: Some(found), .. }) | End::File(found)) => {
                // Extended attributes of a link are not kept.
                let is_odd = found.is_symlink() && matches!(nr, nr::lsetxattr | nr::lremovexattr);
                if is_odd {
                    self.wait_for_files()
                } else if !self.is_private(found.stat.st_dev) {
                    self.elsewhere(&seen)
                } else if nr == nr::truncate {
                    self.changing_contents(found, args[1]..u64::MAX)?.observing_all(&seen)
                } else {
                    self.changing_attributes(found).observing_all(&seen)
                }
            }
        })
    }

    fn removing(&mut self, entry: Entry, removes_dir: bool, seen: &Plan) -> Plan {
        let Some(found) = &entry.found else { return self.wait_for_files() };
        if !self.is_private(entry.dir.stat.st_dev) {
            return self.elsewhere(seen);
        }
        if removes_dir || found.is_dir() || found.stat.st_dev != entry.dir.stat.st_dev {
            return self.wait_for_files();
        }
        let (file, dir) = (found.object(), entry.dir.object());
        match self.place(&entry) {
            Some(place) => {
                let plan = looking(vec![]).modifying(file, Intent::Nothing);
                self.changing(plan.modifying(dir, Intent::Memory(Change::Name(place))), seen)
            }
            None => self.wait_for_files(),
        }
    }

    fn plan_paths_change(&mut self, call: &Call, op: Op) -> Option<Plan> {
        const RENAME_WHITEOUT: u64 = 4;
        let Op::ModifyPaths { dir, path, dir2, path2 } = op else { return None };
        let (args, nr) = (&call.frame.args, call.frame.nr);
        let is_link = matches!(nr, nr::link | nr::linkat);
        let flags = match nr {
            nr::linkat | nr::renameat2 => args[4],
            _ => 0,
        };
        let follows = is_link && flags & AT_SYMLINK_FOLLOW != 0;
        let from = self.path(call, Some(dir), path, follows)?;
        let to = self.path(call, Some(dir2), path2, false)?;
        let (from, to) = (self.way(call, &from), self.way(call, &to));
        let mut seen = self.seen(&from);
        seen.extend(self.seen(&to));
        let seen = looking(seen);
        let (End::Entry(from), End::Entry(to)) = (from.end, to.end) else { return Some(self.wait_for_files()) };
        if !self.is_private(from.dir.stat.st_dev) || to.dir.stat.st_dev != from.dir.stat.st_dev {
            return Some(self.elsewhere(&seen));
        }
        let Some(source) = &from.found else { return Some(seen) };
        let is_odd = source.stat.st_dev != from.dir.stat.st_dev
            || to.found.as_ref().is_some_and(|found| found.stat.st_dev != from.dir.stat.st_dev);
        if is_odd || is_link && flags != 0 || !is_link && flags & RENAME_WHITEOUT != 0 {
            return Some(self.wait_for_files());
        }
        if is_link {
            let file = source.object();
            return Some(match to.found {
                Some(_) => seen,
                None => self.creating(to, &seen).also(file),
            });
        }
        Some(self.renaming(call, &from, &to, flags, &seen))
    }

    fn renaming(&mut self, call: &Call, from: &Entry, to: &Entry, flags: u64, seen: &Plan) -> Plan {
        const RENAME_EXCHANGE: u64 = 2;
        let replaces_dir = to.found.as_ref().is_some_and(Found::is_dir);
        if replaces_dir && flags & RENAME_EXCHANGE == 0 {
            return self.wait_for_files();
        }
        let (Some(a), Some(b)) = (self.place(from), self.place(to)) else { return self.wait_for_files() };
        // Where everybody's paths lead may change: the others' calls first.
        let is_looked = |(_, other): (ThreadId, &UnderWay)| {
            !other.can_be_repeated && other.objects.iter().any(|object| matches!(object, Object::Names(..)))
        };
        if self.ahead.under_way.of_others(call.tid).any(is_looked) {
            return Plan::new(Class::Later);
        }
        self.ahead.files.renaming.insert(call.tid);
        let mut objects = vec![from.dir.object(), to.dir.object()];
        objects.extend([from, to].iter().filter_map(|entry| entry.found.as_ref().map(Found::object)));
        objects.dedup();
        let change = Intent::Memory(Change::Names(a, b));
        let mut plan = looking(vec![]).modifying(from.dir.object(), change);
        for object in objects.into_iter().skip(1).filter(|object| *object != from.dir.object()) {
            plan = plan.modifying(object, Intent::Nothing);
        }
        self.changing(plan, seen)
    }

    fn changing_contents(&mut self, found: Found, range: Range<u64>) -> Option<Plan> {
        let (dev, ino, size) = (found.stat.st_dev, found.stat.st_ino, found.stat.st_size as u64);
        if !found.is_regular() {
            return None;
        }
        let lost = range.end.min(size).saturating_sub(range.start);
        if lost > KEPT_LEN_MAX || self.ahead.files.mapped.may_be((dev, ino)) {
            return Some(self.wait_for_files());
        }
        let Ok(file) = naming(&found.fd) else { return Some(self.wait_for_files()) };
        let change = Intent::Memory(Change::Contents { file, range });
        let plan = looking(vec![]).modifying(Object::File(dev, ino), change);
        Some(self.changing(plan, &looking(vec![])))
    }

    fn changing_attributes(&mut self, found: Found) -> Plan {
        let object = found.object();
        let Ok(file) = naming(&found.fd) else { return self.wait_for_files() };
        let plan = looking(vec![]).modifying(object, Intent::Memory(Change::Attributes { file }));
        self.changing(plan, &looking(vec![]))
    }

    /// A change that can be taken back, if nothing tells of it at once.
    fn changing(&mut self, plan: Plan, seen: &Plan) -> Plan {
        if self.ahead.files.watched {
            return self.wait_for_files();
        }
        if self.ahead.files.renaming.iter().any(|&tid| self.ahead.under_way.of(tid).is_some()) {
            return Plan::new(Class::Later);
        }
        plan.observing_all(seen)
    }

    /// A change that cannot be taken back: who is speculative waits, and the others as long as anything here is.
    fn wait_for_files(&self) -> Plan {
        match self.is_anything_touched() {
            true => wait_for_all(),
            false => Plan::new(Class::Barrier).once(),
        }
    }

    fn is_anything_touched(&self) -> bool {
        self.ahead.touched.iter().any(|object| self.is_in_memory(object))
    }

    fn everything_touched(&self) -> Vec<Object> {
        self.ahead
            .touched
            .iter()
            .filter(|object| matches!(object, Object::File(..) | Object::Names(..)))
            .cloned()
            .collect()
    }

    /// What is looked at on a path, and at its end.
    fn seen(&self, way: &Way) -> Vec<Object> {
        if way.through_proc || matches!(way.end, End::Unknown) {
            return self.everything_touched();
        }
        let mut seen = way.through.clone();
        seen.extend(way.found().map(Found::object));
        seen
    }

    fn place(&self, entry: &Entry) -> Option<Place> {
        let memory = self.ahead.files.memory(entry.dir.stat.st_dev)?.clone();
        let dir = Arc::new(memory.own(&entry.dir)?);
        Some(Place { memory, dir, name: entry.name.clone() })
    }

    fn path(&self, call: &Call, dir: Option<u8>, at: u8, follows: bool) -> Option<Path> {
        const AT_FDCWD: i32 = -100;
        let args = &call.frame.args;
        let text = read_path(call.tid, args[usize::from(at) % 6])?;
        let dir = match dir {
            None | Some(syscall_table::CWD) => None,
            Some(at) => Some(args[usize::from(at) % 6] as i32).filter(|&fd| fd != AT_FDCWD),
        };
        Some(Path { dir, text, follows })
    }

    fn way(&self, call: &Call, path: &Path) -> Way {
        self.walk(call.tid, call.pid, path.dir, &path.text, path.follows)
    }

    /// The file in memory behind a descriptor, and a copy of the descriptor.
    fn private_behind(&mut self, call: &Call, fd: i32) -> Option<(Found, OwnedFd)> {
        let copy = self.copy_descriptor(call.tid, fd).ok()?;
        let stat = rustix::fs::fstat(&copy).ok()?;
        let is_file = matches!(object_of(&stat), Object::Names(..))
            || matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Symlink);
        if !is_file || !self.is_private(stat.st_dev) {
            return None;
        }
        let named = naming(&copy).ok()?;
        Some((Found { fd: named.into(), stat }, copy))
    }
}

impl Plan {
    fn observing_all(mut self, other: &Plan) -> Self {
        self.observes.extend(other.observes.iter().cloned());
        self
    }

    /// It changes this object as well; another change of it undoes that.
    fn also(self, object: Object) -> Self {
        match self.class {
            Class::Tracked => self.modifying(object, Intent::Nothing),
            _ => self,
        }
    }
}

fn looking(objects: Vec<Object>) -> Plan {
    let mut plan = Plan::new(Class::Tracked).once();
    for object in objects {
        plan = plan.observing(object);
    }
    plan
}

fn wait_for_all() -> Plan {
    Plan::new(Class::Window).once()
}

fn is_fifo(found: &Found) -> bool {
    FileType::from_raw_mode(found.stat.st_mode) == FileType::Fifo
}

/// A descriptor that only names the file: it keeps nobody from executing it.
pub(in crate::ahead) fn naming(fd: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(procfs::own_path(fd), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn read_path(tid: ThreadId, at: u64) -> Option<Vec<u8>> {
    const PATH_MAX: usize = 4096;
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    while text.len() < PATH_MAX {
        let from = at + text.len() as u64;
        let len = (PAGE - from % PAGE) as usize;
        let part = tracee::read_bytes(tid, from, len).ok()?;
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            text.extend(&part[..end]);
            return Some(text);
        }
        text.extend(part);
    }
    None
}

/// Whether bind or connect has a path as its address.
pub(in crate::ahead) fn names_file(call: &Call) -> bool {
    const AF_UNIX: u64 = 1;
    call.frame.nr != nr::listen
        && tracee::read_value::<u64>(call.tid, call.frame.args[1]).is_ok_and(|head| head & 0xffff == AF_UNIX)
}

/// The program that a script names.
pub(in crate::ahead) fn interpreter(script: &Found) -> Option<Vec<u8>> {
    let open = rustix::fs::open(procfs::own_path(&script.fd), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut head = [0u8; 256];
    let len = rustix::io::pread(&open, &mut head, 0).ok()?;
    let line = head[..len].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty()).map(<[u8]>::to_vec)
}
fn position(copy: &OwnedFd, found: &Found) -> u64 {
    let appends = rustix::fs::fcntl_getfl(copy).is_ok_and(|flags| u64::from(flags.bits()) & O_APPEND != 0);
    match appends {
        true => found.stat.st_size as u64,
        false => rustix::fs::seek(copy, SeekFrom::Current(0)).unwrap_or(0),
    }
}

/// Whether a call reads at an offset of its own, and leaves that of the open file where it is.
pub(in crate::ahead) fn is_pread(call: &Call) -> bool {
    match call.frame.nr {
        nr::pread64 | nr::preadv => true,
        nr::preadv2 => call.frame.args[3] != u64::MAX,
        _ => false,
    }
}

/// The bytes that a write is about to write, at most.
pub(in crate::ahead) fn written_range(call: &Call, copy: &OwnedFd, found: &Found) -> Range<u64> {
    const RWF_APPEND: u64 = 0x10;
    const RWF_NOAPPEND: u64 = 0x20;
    const LEN_MAX: u64 = 0x7fff_f000;
    let args = &call.frame.args;
    let here = position(copy, found);
    let appends = rustix::fs::fcntl_getfl(copy).is_ok_and(|flags| u64::from(flags.bits()) & O_APPEND != 0);
    let at = |offset: u64| if appends { here } else { offset };
    let vector = || {
        let count = args[2].min(1024);
        let lens =
            (0..count).map(|i| tracee::read_value::<[u64; 2]>(call.tid, args[1] + i * 16).map_or(0, |[_, len]| len));
        lens.fold(0u64, u64::saturating_add)
    };
    let (start, len) = match call.frame.nr {
        nr::write => (here, args[2]),
        nr::pwrite64 => (at(args[3]), args[2]),
        nr::writev => (here, vector()),
        nr::pwritev => (at(args[3]), vector()),
        // pwritev2
        _ if args[5] & RWF_APPEND != 0 => (found.stat.st_size as u64, vector()),
        _ if args[3] == u64::MAX => (here, vector()),
        _ if args[5] & RWF_NOAPPEND != 0 => (args[3], vector()),
        _ => (at(args[3]), vector()),
    };
    start..start.saturating_add(len.min(LEN_MAX))
}
