//! Names on disks that a speculative process makes, removes, or gives to another file (000, 6.4: no-steal). The change
//! is held as writes are ([`writes`](crate::ahead::filesystems::disk::writes)) and made when nothing that it depends on
//! can fail any more; a rollback drops it. Until then the disk is as it was, for everybody outside; inside, calls that
//! look at such a name are answered ([`view`](crate::ahead::filesystems::disk::view)), or wait.
//!
//! The call is answered before the change is made: so only what is sure to succeed is held. The process can find the
//! name and may change the directory; it is no mount, and nothing is immutable. What somebody outside does to the name
//! meanwhile can still make the change impossible: then it is not made, and the user is told.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::filesystems::disk::name_calls::{is_held_change, Refusal, Wanted};
use crate::ahead::filesystems::disk::name_changes::{DiskName, HeldChange, Inode, NameChange, Target};
use crate::ahead::filesystems::disk::new_files::descriptor_looked_at;
use crate::ahead::filesystems::disk::truncations::is_truncation;
use crate::ahead::filesystems::disk::{attribute_calls, writes};
use crate::ahead::filesystems::path_walk::{End, Entry, Found, Way};
use crate::ahead::filesystems::{mapped, memory};
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object, Written};
use crate::event_loop::Supervisor;
use agent_abi::{hash_object, DeviceKind};
use procfs::mountinfo::Mount;
use procfs::{MagicLink, ThreadId};
use rustix::fs::{AtFlags, FileType, Stat, StatxFlags};
use rustix::io::Errno;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use syscall_table::nr;
use syscall_table::{Op, SyncKind, CWD};
use tracee::{Result, Stopped};

const GETDENTS: [u64; 2] = [nr::getdents, nr::getdents64];

/// What became of something that is to get a name.
enum Staged {
    Done(NameChange),
    /// It cannot be made without its name.
    Never,
    /// Others are in calls that they have to leave first.
    Later,
}

impl Supervisor {
    /// A call that changes names on a disk.
    pub(in crate::ahead) fn plan_names(&self, call: &Call, op: Op) -> Plan {
        if attribute_calls::is_change(call.frame.nr) {
            return Plan::new(Class::Attributes).once();
        }
        let is_held = is_held_change(call.frame.nr);
        let paths = paths_of(op);
        Plan::new(if is_held && !paths.is_empty() { Class::Names } else { Class::Barrier }).once()
    }

    /// Whether a call that is allowed now changes names on a disk when it is made, or what is allowed with them.
    pub(in crate::ahead) fn changes_names(&self, call: &Call) -> bool {
        match syscall_table::op(call.frame.nr) {
            Some(Op::ModifyPath { .. } | Op::ModifyPaths { .. }) => true,
            Some(Op::SocketName { .. }) => memory::names_file(call),
            // To open a FIFO may take for ever.
            Some(op) => self.creates_file(call) && !self.leads_to_fifo(call, op),
            None => false,
        }
    }

    fn leads_to_fifo(&self, call: &Call, op: Op) -> bool {
        let is_one = |(dir, path)| self.look_up(call, dir, path).known().is_some_and(is_fifo);
        paths_of(op).into_iter().any(is_one)
    }

    /// Whether somebody was allowed to change names and has not said yet that it is done: what the disk says is not
    /// what it will say.
    pub(in crate::ahead) fn are_names_changing(&self) -> bool {
        self.ahead.under_way.iter().any(|(_, call)| call.changes_names)
    }

    /// Hold a change of a speculative process; it waits where it is not sure to succeed.
    pub(in crate::ahead) fn hold_names(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        if self.are_names_changing() {
            return Ok(Decision::Wait);
        }
        if self.ahead.held_names.is_full() {
            return Ok(self.wait_at_barrier(call));
        }
        let wanted = match self.name_change(call) {
            Err(Refusal::Unsure) => return Ok(self.wait_at_barrier(call)),
            wanted if self.would_find(stopped, call)? => wanted,
            _ => return Ok(self.wait_at_barrier(call)),
        };
        let modifies = match &wanted {
            Ok(Wanted::Change(change)) => objects_of(change),
            Ok(Wanted::Make { entry, .. }) => vec![(entry.dir.object(), Intent::Nothing)],
            Err(_) => Vec::new(),
        };
        let plan = Plan { observes: self.plan_lookup(call.pid).observes, ..Plan::tracked_once() };
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let change = match wanted {
            Err(Refusal::Error(error)) => return Ok(Decision::Answer(-i64::from(error))),
            Ok(Wanted::Change(change)) => change,
            Ok(make) => match self.make_staged(stopped, call, make)? {
                Staged::Done(change) => change,
                Staged::Never => return Ok(self.wait_at_barrier(call)),
                Staged::Later => return Ok(Decision::Wait),
            },
            Err(Refusal::Unsure) => return Ok(self.wait_at_barrier(call)),
        };
        self.hold_name_change(call, change);
        Ok(Decision::Answer(0))
    }

    /// Make a directory, a link or a FIFO that has no name yet.
    fn make_staged(&mut self, stopped: &Stopped, call: &Call, make: Wanted) -> Result<Staged> {
        let Some((staged, fd)) = make.make(&mut self.ahead.stages) else { return Ok(Staged::Never) };
        let (Wanted::Make { entry, .. }, Ok(found)) = (make, Found::of(fd)) else { return Ok(Staged::Never) };
        let is_fifo = is_fifo(&found.stat);
        let made = Target::of(found);
        let (dev, ino) = made.inode;
        let contents = if is_fifo { Object::Pipe(dev, ino) } else { Object::Names(dev, ino) };
        let objects = [Object::File(dev, ino), contents, Object::Created(dev, ino)];
        let modifies = objects.map(|object| (object, Intent::Nothing)).into();
        if matches!(self.track(stopped, call, Plan::tracked_once(), modifies)?, Decision::Wait) {
            return Ok(Staged::Later);
        }
        self.ahead.new_files.add(made.inode, made.fd.clone());
        Ok(Staged::Done(NameChange::Place { name: DiskName::of_new(entry, made), staged }))
    }

    pub(in crate::ahead) fn hold_name_change(&mut self, call: &Call, change: NameChange) {
        self.ahead.walks.forget();
        let held = self.ahead.held_names.add(change, self.ahead.attributes.held_before());
        self.ahead.core.output(process(call.pid), Written::Names(held));
    }

    /// Whether the process can follow the paths of a call: we could in any case.
    pub(in crate::ahead) fn would_find(&mut self, stopped: &Stopped, call: &Call) -> Result<bool> {
        if !self.may_have_changed_rights(call.pid) && self.is_root_as_we_are(call.pid) {
            return Ok(true);
        }
        const AT_EACCESS: u64 = 0x200;
        let flags = AT_EACCESS | AtFlags::SYMLINK_NOFOLLOW.bits() as u64;
        let paths = syscall_table::op(call.frame.nr).map_or_else(Vec::new, paths_of);
        let mut remote = self.remote_calls(stopped)?;
        let mut finds_all = true;
        for (dir, at) in paths {
            let dir = dir_of(call, dir).unwrap_or(libc::AT_FDCWD);
            let path = call.frame.args[usize::from(at) % 6];
            let result = remote.call(libc::SYS_faccessat2, &[dir as u64, path, 0, flags])?;
            finds_all &= result == 0 || [libc::ENOENT, libc::ENOTDIR].map(|error| -i64::from(error)).contains(&result);
        }
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(finds_all)
    }

    /// Whether a call would see a change that is held, or its absence.
    pub(in crate::ahead) fn looks_at_held_names(&mut self, call: &Call) -> bool {
        if self.ahead.held_names.is_empty() {
            return false;
        }
        let Some(op) = syscall_table::op(call.frame.nr) else { return true };
        let is_held = is_truncation(call.frame.nr) || attribute_calls::is_change(call.frame.nr) && !has_path(call);
        if is_held && self.ahead.is_speculative(call.pid) {
            return false;
        }
        match op {
            // A position says nothing of names.
            Op::ObserveFd { .. } if call.frame.nr == nr::lseek && call.frame.args[2] <= libc::SEEK_CUR as u64 => false,
            Op::ObserveFd { fd } | Op::ModifyFd { fd } => self.is_held_inode(call, fd),
            Op::Read { fd } if GETDENTS.contains(&call.frame.nr) => {
                let inode = self.inode_behind(call, fd);
                let names = &self.ahead.held_names;
                inode.is_some_and(|inode| names.has_names_in(inode) || names.is_removed_dir(inode))
            }
            Op::Sync(SyncKind::File | SyncKind::Range) => false,
            // Its argument is a buffer, and where a directory is moved it was answered before.
            Op::ObservePath { .. } if call.frame.nr == memory::GETCWD => !self.is_cwd_where_it_was(call.tid),
            Op::Mount | Op::Namespace | Op::OpenAt2 | Op::Sync(_) => true,
            Op::SocketName { .. } => memory::names_file(call) && self.connects_to_nothing(call).is_none(),
            op => {
                let entries_count = !only_leads_through(call, op);
                paths_of(op).into_iter().any(|(dir, at)| self.leads_to_held(call, dir, at, entries_count))
            }
        }
    }

    fn inode_behind(&mut self, call: &Call, fd: u8) -> Option<Inode> {
        let copy = self.copy_descriptor(call.tid, call.frame.args[usize::from(fd) % 6] as i32).ok()?;
        rustix::fs::fstat(copy).ok().map(|stat| (stat.st_dev, stat.st_ino))
    }

    fn is_held_inode(&mut self, call: &Call, fd: u8) -> bool {
        let copy = self.copy_descriptor(call.tid, call.frame.args[usize::from(fd) % 6] as i32);
        let stat = copy.ok().and_then(|copy| rustix::fs::fstat(&copy).ok());
        let names = &self.ahead.held_names;
        // Of a file without a name it is known how many it will have. A directory's size goes with its last name.
        let is_known =
            |stat: &Stat| self.ahead.new_files.has(stat) && !names.is_removed_dir((stat.st_dev, stat.st_ino));
        stat.is_some_and(|stat| names.has_inode(&stat) && !is_known(&stat))
    }

    /// `entries_count`: a directory in which names are held is not what it should be.
    fn leads_to_held(&self, call: &Call, dir: u8, at: u8, entries_count: bool) -> bool {
        let Some(text) = path_text(call, at) else { return false };
        if text.is_empty() {
            // AT_EMPTY_PATH: the descriptor itself.
            let fd = MagicLink::Fd(call.frame.args[usize::from(dir) % 6] as i32);
            return Found::behind(&fd, call.tid).is_some_and(|found| self.is_held_file(&found.stat));
        }
        let leads = |text: &[u8], follows| {
            let way = self.walk(call.tid, call.pid, dir_of(call, dir), text, follows);
            let script = way.found().filter(|_| is_exec(call)).and_then(memory::interpreter);
            (self.shows_held(call, &way, entries_count), script)
        };
        if tells_of_link(call) {
            return leads(&text, false).0;
        }
        let (followed, script) = leads(&text, true);
        followed || leads(&text, false).0 || script.is_some_and(|program| leads(&program, true).0)
    }

    fn shows_held(&self, call: &Call, way: &Way, entries_count: bool) -> bool {
        let is_held = |found: &Found| (entries_count || !found.is_dir()) && self.is_held_file(&found.stat);
        way.is_held
            || way.through_proc && self.tells_of_held(call, way)
            || matches!(way.end, End::Unknown)
            || way.found().is_some_and(is_held)
    }

    /// Whether what `/proc` says there may name what is not where the disk says, or not under that name. While anything
    /// is held, paths that lead to other processes wait (`leads_to_others`): it says that of the caller.
    fn tells_of_held(&self, call: &Call, way: &Way) -> bool {
        let is_any_moved = self.ahead.held_names.moves_directories();
        let is_below_moved = |path: &Path| self.moved_paths().iter().any(|dir| path.starts_with(dir));
        match Told::of(way) {
            Told::Nothing => false,
            Told::Mappings => self.maps_held_file(call.tid) || is_any_moved && self.maps_below_moved(call.tid),
            Told::Program => {
                let program = MagicLink::Exe.shown(call.tid);
                program.map_or(true, |program| is_below_moved(&program)) || self.maps_held_file(call.tid)
            }
            Told::Mounts => {
                // Below a directory that a guess has made nothing is mounted.
                let is_older = |dir: &&Target| !self.ahead.new_files.has_inode(&dir.inode);
                let moved: Vec<PathBuf> =
                    self.ahead.held_names.moved_dirs().filter(is_older).map(Target::path).collect();
                let is_below = |mount: &Mount| moved.iter().any(|dir| mount.mount_point.starts_with(dir));
                let mounts = || procfs::mountinfo::of(call.tid);
                !moved.is_empty() && mounts().map_or(true, |mounts| mounts.iter().any(is_below))
            }
            Told::Anything => is_any_moved || self.maps_held_file(call.tid) || self.is_link_to_held(call, way),
        }
    }

    /// Whether a call reads a link of `/proc` that leads to what does not have the name that the kernel says.
    fn is_link_to_held(&self, call: &Call, way: &Way) -> bool {
        let End::Entry(entry) = &way.end else { return false };
        if !matches!(call.frame.nr, nr::readlink | nr::readlinkat) {
            return false;
        }
        // Whoever serves it may be inside: he is not asked.
        let (flags, wanted) = (AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO);
        let Ok(found) = rustix::fs::statx(&entry.dir.fd, &entry.name, flags, wanted) else { return false };
        let inode = (rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino);
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::Directory => self.ahead.held_names.is_removed_dir(inode),
            _ => self.ahead.held_names.concerns(&inode) || self.ahead.new_files.has_inode(&inode),
        }
    }

    fn is_held_file(&self, stat: &Stat) -> bool {
        self.ahead.held_names.has_inode(stat) || self.ahead.new_files.has(stat)
    }

    /// Where directories are on the disk that those inside see elsewhere.
    fn moved_paths(&self) -> Vec<PathBuf> {
        self.ahead.held_names.moved_dirs().map(Target::path).collect()
    }

    /// Whether a process may have mapped a file that is not where the disk says, for its directory was moved.
    pub(in crate::ahead) fn maps_below_moved(&self, tid: ThreadId) -> bool {
        mapped::may_map_below(procfs::Maps::of(tid), &self.moved_paths())
    }

    pub(in crate::ahead) fn maps_held_file(&self, tid: ThreadId) -> bool {
        let is_held = |file: &Inode| self.ahead.held_names.concerns(file) || self.ahead.new_files.has_inode(file);
        mapped::may_map(procfs::Maps::of(tid), is_held)
    }

    /// Nothing that it depends on can fail any more: the change is made.
    pub(in crate::ahead) fn make_name_change(&mut self, held: &HeldChange) {
        let change = &held.change;
        let program = self.ahead.program_names.take(held.number);
        self.forget_name(held, true);
        if self.ahead.is_doomed {
            return;
        }
        change.names().iter().for_each(|name| self.about_to_change(name.dir.inode.0));
        match change.make(program.as_ref()) {
            Ok(()) => {}
            Err(error) if is_by_others(error) => self.tell_not_made(change, error),
            // The program was told that it had succeeded.
            Err(error) => {
                return self.end_world(&format!("a change of names that had been held could not be made: {error}"));
            }
        }
        change.names().into_iter().for_each(|name| self.note_name_changed(name.dir.inode, name.inode()));
    }

    /// Somebody outside came first. The program was told that it had succeeded: the user has to know.
    fn tell_not_made(&mut self, change: &NameChange, error: Errno) {
        let paths: Vec<String> = change.names().iter().map(|name| name.path().display().to_string()).collect();
        let text = format!(
            "a change of {} on a guess was not made, for somebody outside came first: {error}",
            paths.join(", ")
        );
        self.front.tell(&crate::message::Message::Warning { text });
    }

    /// What was changed is in the transaction that is active now, or in an older one.
    pub(in crate::ahead) fn note_name_changed(&mut self, dir: Inode, file: Option<Inode>) {
        let world = self.world();
        if let (DeviceKind::Domain, domain) = world.device(dir.0) {
            let transaction = world.transactions.join(domain);
            world.names.raise(domain, transaction);
            for inode in [Some(dir), file].into_iter().flatten() {
                let slot =
                    agent_abi::FdEntry::new(agent_abi::FdKind::DomainFile, domain, hash_object(inode.0, inode.1))
                        .slot();
                world.objects[slot].raise(domain, transaction);
            }
            self.ahead.written.merge(&writes::slot_clock(domain, transaction));
        }
    }

    /// It will never be made.
    pub(in crate::ahead) fn forget_name_change(&mut self, held: &HeldChange) {
        self.forget_name(held, false);
    }

    fn forget_name(&mut self, held: &HeldChange, is_made: bool) {
        self.ahead.walks.forget();
        self.ahead.held_names.remove(held, is_made);
        self.ahead.program_names.take(held.number);
        if let Some(inode) = held.change.made() {
            self.ahead.new_files.forget(inode);
            self.ahead.attributes.is_reached(inode);
        }
        self.ahead.changes += 1;
    }
}

/// Of what a file of `/proc` tells where it is, or how it is called.
enum Told {
    Nothing,
    Mappings,
    Program,
    Mounts,
    Anything,
}

impl Told {
    fn of(way: &Way) -> Self {
        const PROC_ROOT: u64 = 1;
        let entry = match &way.end {
            End::Entry(entry) => entry,
            // Through a link, which is looked at as well; or there is no such file.
            End::File(_) | End::Nowhere(_) => return Self::Nothing,
            End::Unknown => return Self::Anything,
        };
        let is_setting = || procfs::own_name(&entry.dir.fd).is_ok_and(|dir| dir.starts_with("/proc/sys"));
        match entry.name.as_bytes() {
            _ if entry.dir.stat.st_ino == PROC_ROOT => Self::Nothing,
            b"auxv" | b"cgroup" | b"cmdline" | b"comm" | b"coredump_filter" | b"environ" | b"io" | b"limits" => {
                Self::Nothing
            }
            b"oom_score" | b"oom_score_adj" | b"stat" | b"statm" | b"status" => Self::Nothing,
            // Numbers; what they are is asked by a path below.
            b"fd" => Self::Nothing,
            // Every program that asks where its stack is looks there.
            b"maps" | b"numa_maps" | b"smaps" => Self::Mappings,
            b"exe" => Self::Program,
            b"mountinfo" | b"mounts" => Self::Mounts,
            // What the machine's network is, and no socket's path.
            b"dev" | b"if_inet6" | b"ipv6_route" | b"route" => Self::Nothing,
            _ if is_setting() || names_no_file(entry) => Self::Nothing,
            _ => Self::Anything,
        }
    }
}

/// Whether it is the link of a descriptor that leads to a pipe, a socket or the like, which has a number and no name.
fn names_no_file(entry: &Entry) -> bool {
    let text = rustix::fs::readlinkat(&entry.dir.fd, &entry.name, Vec::new());
    text.is_ok_and(|text| [&b"pipe:["[..], b"socket:["].iter().any(|kind| text.as_bytes().starts_with(kind)))
}

fn has_path(call: &Call) -> bool {
    attribute_calls::named(call) == attribute_calls::Named::Path
}

/// Whether a change failed by what somebody outside did with its names, after it was held.
fn is_by_others(error: Errno) -> bool {
    const CAUSES: [Errno; 11] = [
        Errno::EXIST,
        Errno::NOENT,
        Errno::NOTEMPTY,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::STALE,
        // Something was mounted there.
        Errno::BUSY,
        // A directory would be put below itself.
        Errno::INVAL,
        // It is immutable now.
        Errno::PERM,
        Errno::MLINK,
        Errno::ROFS,
    ];
    CAUSES.contains(&error)
}

/// Whether a call goes to a directory, or opens it, without looking at its entries or its times: who reads the entries
/// asks again.
fn only_leads_through(call: &Call, op: Op) -> bool {
    match op {
        Op::Open | Op::OpenAt | Op::Chdir => true,
        // What was made before the watch began must not be heard.
        Op::ObservePath { .. } => call.frame.nr != nr::inotify_add_watch,
        _ => false,
    }
}

/// Where the paths of a call stand: directory and text.
pub(in crate::ahead) fn paths_of(op: Op) -> Vec<(u8, u8)> {
    match op {
        Op::Open | Op::Creat | Op::Chdir | Op::Execve => vec![(CWD, 0)],
        Op::OpenAt | Op::OpenAt2 | Op::Statx | Op::Execveat => vec![(0, 1)],
        Op::ObservePath { dir, path } | Op::StatPath { dir, path, .. } | Op::ModifyPath { dir, path } => {
            vec![(dir, path)]
        }
        Op::AddWatch { path, .. } => vec![(CWD, path)],
        Op::ModifyPaths { dir, path, dir2, path2 } => vec![(dir, path), (dir2, path2)],
        _ => Vec::new(),
    }
}

/// Where a call puts attributes, and where in them the times of contents and of attributes stand.
pub(in crate::ahead) fn stat_buffer(call: &Call) -> Option<(u64, [u64; 2])> {
    const OF_STAT: [u64; 2] = [88, 104];
    const OF_STATX: [u64; 2] = [112, 96];
    let args = &call.frame.args;
    match call.frame.nr {
        4..=6 => Some((args[1], OF_STAT)),
        nr::newfstatat => Some((args[2], OF_STAT)),
        nr::statx => Some((args[4], OF_STATX)),
        _ => None,
    }
}

/// Whether one of the calls of `stat_buffer` asks for what a link leads to.
pub(in crate::ahead) fn follows_last_link(call: &Call) -> bool {
    let flags = match call.frame.nr {
        nr::lstat => return false,
        nr::newfstatat => call.frame.args[3],
        nr::statx => call.frame.args[2],
        _ => 0,
    };
    flags & AtFlags::SYMLINK_NOFOLLOW.bits() as u64 == 0
}

/// Whether a call tells of a link at the end of its path, and of nothing that this leads to.
pub(in crate::ahead) fn tells_of_link(call: &Call) -> bool {
    matches!(call.frame.nr, nr::readlink | nr::readlinkat)
        || stat_buffer(call).is_some() && descriptor_looked_at(call).is_none() && !follows_last_link(call)
}

pub(in crate::ahead) fn dir_of(call: &Call, at: u8) -> Option<i32> {
    let fd = (at != CWD).then(|| call.frame.args[usize::from(at) % 6] as i32)?;
    (fd != libc::AT_FDCWD).then_some(fd)
}

pub(in crate::ahead) fn is_fifo(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Fifo
}

pub(in crate::ahead) fn path_text(call: &Call, at: u8) -> Option<Vec<u8>> {
    let address = call.frame.args[usize::from(at) % 6];
    if let Some((_, text)) = call.texts.borrow().iter().find(|(known, _)| *known == address) {
        return Some(text.clone());
    }
    let text = crate::requests::read_path(call.tid, address)?.into_os_string().into_vec();
    call.texts.borrow_mut().push((address, text.clone()));
    Some(text)
}

fn is_exec(call: &Call) -> bool {
    matches!(syscall_table::op(call.frame.nr), Some(Op::Execve | Op::Execveat))
}

/// What a change of names changes.
fn objects_of(change: &NameChange) -> Vec<(Object, Intent)> {
    let mut objects = Vec::new();
    for name in change.names() {
        let (dev, ino) = name.dir.inode;
        objects.push((Object::Names(dev, ino), Intent::Nothing));
        if let Some(&Target { inode: (dev, ino), is_dir, .. }) = name.file.as_ref() {
            objects.push((Object::File(dev, ino), Intent::Nothing));
            objects.extend(is_dir.then_some((Object::Names(dev, ino), Intent::Nothing)));
        }
    }
    objects
}
