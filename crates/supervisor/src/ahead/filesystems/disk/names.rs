//! Names on disks that a speculative process removes, or gives to another file (000, 6.4: no-steal). The change is held as writes are
//! ([`writes`](crate::ahead::filesystems::disk::writes)) and made when nothing that it depends on can fail any more; a rollback drops it. Until then the disk is as it was, for
//! everybody outside; inside, whoever looks at such a name, at its directory's entries, or at the attributes of a file concerned, waits. Who depends on
//! the change already may ask for the directory's attributes: only its times are others.
//!
//! The call is answered before the change is made: so only what is sure to succeed is held. The name is that of a file, and no mount; the
//! process can find it and may change the directory; nothing is immutable; a rename stays in its directory.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::filesystems::disk::attributes;
use crate::ahead::filesystems::disk::staging;
use crate::ahead::filesystems::disk::writes;
use crate::ahead::filesystems::mapped;
use crate::ahead::filesystems::memory;
use crate::ahead::filesystems::path_walk::{End, Entry, Found, Way};
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object, Written};
use crate::event_loop::Supervisor;
use agent_abi::{hash_object, DeviceKind};
use rustix::fs::{AtFlags, FileType, RenameFlags, Stat, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::Hash;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use syscall_table::{Op, SyncKind, CWD};
use tracee::{Result, Stopped, TraceError};

const LSEEK: u64 = 8;
const UNLINK: u64 = 87;
const UNLINKAT: u64 = 263;
const LINK: u64 = 86;
const LINKAT: u64 = 265;
const RENAME: u64 = 82;
const RENAMEAT: u64 = 264;
const RENAMEAT2: u64 = 316;
const RENAME_NOREPLACE: u64 = 1;
const GETDENTS: [u64; 2] = [78, 217];

/// Device and inode.
type Inode = (u64, u64);

/// A name on a disk.
#[derive(Debug)]
pub(crate) struct DiskName {
    dir: OwnedFd,
    dir_inode: Inode,
    name: OsString,
    /// What it is the name of.
    inode: Option<Inode>,
}

/// A change of names that is not made yet.
#[derive(Debug)]
pub(crate) enum NameChange {
    /// A file that has none gets this name.
    Create { name: DiskName, file: Arc<OwnedFd> },
    /// A file that has a name, or will have one by then, gets another one.
    Link { name: DiskName, file: Arc<OwnedFd> },
    /// The name is removed.
    Remove(DiskName),
    /// The first one's file gets the second one instead; not if there is a file of that name, if it `keeps` that.
    Rename { from: DiskName, to: DiskName, keeps: bool },
}

impl NameChange {
    fn names(&self) -> Vec<&DiskName> {
        match self {
            Self::Create { name, .. } | Self::Link { name, .. } | Self::Remove(name) => vec![name],
            Self::Rename { from, to, .. } => vec![from, to],
        }
    }

    /// What it makes of each name.
    fn meanings(&self) -> Vec<(&DiskName, Option<Inode>)> {
        match self {
            Self::Create { name, .. } | Self::Link { name, .. } => vec![(name, name.inode)],
            Self::Remove(name) => vec![(name, None)],
            Self::Rename { from, to, .. } => vec![(from, None), (to, from.inode)],
        }
    }

    /// Whether it concerns files that have a name on the disk already.
    fn is_of_named(&self) -> bool {
        !matches!(self, Self::Create { .. })
    }

    /// Make it. What somebody outside did with the name meanwhile came after.
    fn make(&self) -> rustix::io::Result<()> {
        match self {
            Self::Create { name, file } => staging::give_name(file, &name.dir, &name.name),
            Self::Link { name, file } => rustix::fs::linkat(file, "", &name.dir, &name.name, AtFlags::EMPTY_PATH),
            Self::Remove(name) if name.is_as_it_was() => rustix::fs::unlinkat(&name.dir, &name.name, AtFlags::empty()),
            Self::Remove(_) => Ok(()),
            Self::Rename { from, .. } if !from.is_as_it_was() => Err(Errno::STALE),
            Self::Rename { from, to, keeps } => {
                let flags = if *keeps { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
                rustix::fs::renameat_with(&from.dir, &from.name, &to.dir, &to.name, flags)
            }
        }
    }
}

impl DiskName {
    fn of(entry: Entry) -> Self {
        let inode = |stat: &Stat| (stat.st_dev, stat.st_ino);
        Self {
            dir_inode: inode(&entry.dir.stat),
            inode: entry.found.as_ref().map(|found| inode(&found.stat)),
            dir: entry.dir.fd,
            name: entry.name,
        }
    }

    /// Of a file that is made.
    pub(in crate::ahead) fn of_new(entry: Entry, inode: Inode) -> Self {
        Self { inode: Some(inode), ..Self::of(entry) }
    }

    fn is_as_it_was(&self) -> bool {
        let found = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|stat| (stat.st_dev, stat.st_ino)) == self.inode
    }
}

/// A change that is held, by the number that it has here.
#[derive(Debug)]
pub(crate) struct HeldChange {
    number: u64,
    change: NameChange,
}

/// What a change, by its number, makes of a name: that of a file, or of nothing.
type Meaning = (u64, Option<Inode>);

/// Names and files that are not what the world should see of them.
#[derive(Debug, Default)]
pub(in crate::ahead) struct HeldNames {
    /// What each change makes of a name, the oldest first.
    names: HashMap<(Inode, OsString), Vec<Meaning>>,
    next_number: u64,
    /// How many names of each file are held.
    files: HashMap<Inode, usize>,
    /// How many names in each directory, and since when the last.
    dirs: HashMap<Inode, (usize, Duration)>,
}

impl HeldNames {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether what is held takes so many of our descriptors, a directory's and a file's for each name, that no more should be.
    pub fn is_full(&self) -> bool {
        const EACH: u64 = 2;
        const SHARE: u64 = 4;
        let names: usize = self.dirs.values().map(|(count, _)| count).sum();
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        limit.is_some_and(|limit| names as u64 * EACH * SHARE > limit)
    }

    /// How much room the changes take on their disks, at most: a block of the directory each, and one of its index.
    pub fn room_needed(&self) -> u64 {
        const BLOCKS: u64 = 2 * 4096;
        self.names.len() as u64 * BLOCKS
    }

    /// What a name will mean: some file, or nothing. `None` if it means what the disk says.
    pub fn meaning(&self, dir: Inode, name: &[u8]) -> Option<Option<Inode>> {
        if self.is_empty() {
            return None;
        }
        let steps = self.names.get(&(dir, std::ffi::OsStr::from_bytes(name).to_owned()))?;
        steps.last().map(|&(_, meaning)| meaning)
    }

    pub fn has_names_in(&self, dir: Inode) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Names in a directory that will be those of files.
    pub fn added_in(&self, dir: Inode) -> impl Iterator<Item = (&OsString, Inode)> {
        let meaning = |steps: &Vec<Meaning>| steps.last().and_then(|&(_, meaning)| meaning);
        let all = self.names.iter().filter(move |((its, _), _)| *its == dir);
        all.filter_map(move |((_, name), steps)| Some((name, meaning(steps)?)))
    }

    /// How many names a file will have, of those that are held.
    pub fn links(&self, file: Inode) -> u64 {
        let is_its = |steps: &&Vec<Meaning>| steps.last().is_some_and(|&(_, meaning)| meaning == Some(file));
        self.names.values().filter(is_its).count() as u64
    }

    fn dir(&self, stat: &Stat) -> Option<(Inode, Duration)> {
        let inode = (stat.st_dev, stat.st_ino);
        self.dirs.get(&inode).map(|&(_, since)| (inode, since))
    }

    pub fn has_inode(&self, stat: &Stat) -> bool {
        let inode = (stat.st_dev, stat.st_ino);
        self.files.contains_key(&inode) || self.dirs.contains_key(&inode)
    }

    pub fn add(&mut self, change: NameChange) -> HeldChange {
        self.next_number += 1;
        let number = self.next_number;
        for (name, meaning) in change.meanings() {
            self.names.entry((name.dir_inode, name.name.clone())).or_default().push((number, meaning));
            if let Some(file) = name.inode.filter(|_| change.is_of_named()) {
                *self.files.entry(file).or_default() += 1;
            }
            let (count, since) = self.dirs.entry(name.dir_inode).or_default();
            *count += 1;
            *since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        }
        HeldChange { number, change }
    }

    fn remove(&mut self, HeldChange { number, change }: &HeldChange) {
        for name in change.names() {
            let key = (name.dir_inode, name.name.clone());
            if let Some(steps) = self.names.get_mut(&key) {
                steps.retain(|(step, _)| step != number);
                if steps.is_empty() {
                    self.names.remove(&key);
                }
            }
            count_down(&mut self.dirs, &name.dir_inode, |(count, _)| count);
            if let Some(file) = name.inode.filter(|_| change.is_of_named()) {
                count_down(&mut self.files, &file, |count| count);
            }
        }
    }
}

fn count_down<K: Hash + Eq, V>(held: &mut HashMap<K, V>, key: &K, count: impl Fn(&mut V) -> &mut usize) {
    if let Some(value) = held.get_mut(key) {
        *count(value) -= 1;
        if *count(value) == 0 {
            held.remove(key);
        }
    }
}

impl Supervisor {
    /// A call that changes names on a disk.
    pub(in crate::ahead) fn plan_names(&self, call: &Call, op: Op) -> Plan {
        if attributes::is_change(call.frame.nr) {
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

    /// Whether somebody was allowed to change names and has not said yet that it is done: what the disk says is not what it will say.
    pub(in crate::ahead) fn are_names_changing(&self) -> bool {
        self.ahead.under_way.values().any(|call| call.changes_names)
    }

    /// Hold a change of a speculative process; it waits where it is not sure to succeed.
    pub(in crate::ahead) fn hold_names(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        if self.are_names_changing() {
            return Ok(Decision::Wait);
        }
        if self.ahead.held_names.is_full() {
            return Ok(self.wait_at_barrier(call));
        }
        let found = self.name_change(call);
        let change = match found.filter(|_| self.would_find(stopped, call).unwrap_or(false)) {
            Some(Ok(change)) => change,
            Some(Err(error)) => {
                let plan = Plan { observes: self.plan_lookup().observes, ..Plan::tracked_once() };
                return Ok(match self.track(stopped, call, plan, Vec::new())? {
                    Decision::Wait => Decision::Wait,
                    _ => Decision::Answer(-i64::from(error)),
                });
            }
            None => return Ok(self.wait_at_barrier(call)),
        };
        let mut modifies = Vec::new();
        for name in change.names() {
            modifies.push((Object::Names(name.dir_inode.0, name.dir_inode.1), Intent::Nothing));
            modifies.extend(name.inode.map(|(dev, ino)| (Object::File(dev, ino), Intent::Nothing)));
        }
        if matches!(self.track(stopped, call, Plan::tracked_once(), modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let held = self.ahead.held_names.add(change);
        self.ahead.core.output(process(call.pid), Written::Names(held));
        Ok(Decision::Answer(0))
    }

    /// Whether the process can follow the paths of a call: we could in any case.
    pub(in crate::ahead) fn would_find(&mut self, stopped: &Stopped, call: &Call) -> Result<bool> {
        const AT_EACCESS: u64 = 0x200;
        let flags = AT_EACCESS | AtFlags::SYMLINK_NOFOLLOW.bits() as u64;
        let paths = syscall_table::op(call.frame.nr).map_or_else(Vec::new, paths_of);
        let mut remote = self.remote_calls(stopped)?;
        let mut finds_all = true;
        for (dir, at) in paths {
            let dir = dir_of(call, dir).unwrap_or(libc::AT_FDCWD);
            let path = call.frame.args[usize::from(at) % 6];
            let result = remote.call(libc::SYS_faccessat2, &[dir as u64, path, 0, flags])?;
            finds_all &= result == 0 || result == -i64::from(libc::ENOENT);
        }
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(finds_all)
    }

    /// What the call would change, or why it would not. `None`: it is not known for sure.
    fn name_change(&self, call: &Call) -> Option<std::result::Result<NameChange, i32>> {
        const AT_REMOVEDIR: u64 = 0x200;
        let args = &call.frame.args;
        let paths = paths_of(syscall_table::op(call.frame.nr)?);
        let entry = |at: usize| self.changeable_entry(call, *paths.get(at)?);
        match call.frame.nr {
            UNLINKAT if args[2] & AT_REMOVEDIR != 0 => None,
            LINK | LINKAT if call.frame.nr == LINK || args[4] == 0 => {
                let (from, to) = (entry(0)?, entry(1)?);
                let file = self.ahead.new_files.file_at(&from).or_else(|| linkable(&from))?;
                let is_one_mount = is_one_mount(&from.dir.fd, &to.dir.fd);
                let inode = DiskName::of(from).inode?;
                is_one_mount.then(|| match to.found {
                    Some(_) => Err(libc::EEXIST),
                    None => Ok(NameChange::Link { name: DiskName::of_new(to, inode), file }),
                })
            }
            LINK | LINKAT => None,
            UNLINK | UNLINKAT => {
                let name = DiskName::of(entry(0)?);
                Some(if name.inode.is_some() { Ok(NameChange::Remove(name)) } else { Err(libc::ENOENT) })
            }
            _ => {
                let flags = if call.frame.nr == RENAMEAT2 { args[4] } else { 0 };
                let (from, to) = (DiskName::of(entry(0)?), DiskName::of(entry(1)?));
                let keeps = flags == RENAME_NOREPLACE;
                let is_plain = flags == 0 || keeps;
                // Two names of one file: nothing happens.
                let moves = from.inode.is_none() || from.inode != to.inode && is_one_directory(&from, &to);
                (is_plain && moves).then(|| match keeps && to.inode.is_some() {
                    _ if from.inode.is_none() => Err(libc::ENOENT),
                    true => Err(libc::EEXIST),
                    false => Ok(NameChange::Rename { from, to, keeps }),
                })
            }
        }
    }

    /// What a path names, if the process is sure to be allowed to change that.
    pub(in crate::ahead) fn changeable_entry(&self, call: &Call, (dir, at): (u8, u8)) -> Option<Entry> {
        let text = path_text(call, at)?;
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, false);
        let is_known = way.is_known() && !way.through_proc;
        let End::Entry(entry) = way.end else { return None };
        let last = text.rsplit(|&byte| byte == b'/').next()?;
        let (device, _) = self.world().device(entry.dir.stat.st_dev);
        let is_on_disk =
            matches!(device, DeviceKind::Domain | DeviceKind::Memory) && !self.is_private(entry.dir.stat.st_dev);
        let is_plain = is_known && last == entry.name.as_bytes() && entry.dir.stat.st_nlink > 0;
        let is_file = entry.found.as_ref().is_none_or(|found| {
            found.is_regular() && found.stat.st_dev == entry.dir.stat.st_dev && is_changeable(&found.fd)
        });
        let may = may_change(call.pid, &entry.dir) && is_changeable_dir(&entry.dir.fd);
        (is_on_disk && is_plain && is_file && may).then_some(entry)
    }

    /// Whether a call would see a change that is held, or its absence.
    pub(in crate::ahead) fn looks_at_held_names(&mut self, call: &Call) -> bool {
        if self.ahead.held_names.is_empty() {
            return false;
        }
        let Some(op) = syscall_table::op(call.frame.nr) else { return true };
        match op {
            // A position says nothing of names.
            Op::ObserveFd { .. } if call.frame.nr == LSEEK && call.frame.args[2] <= libc::SEEK_CUR as u64 => false,
            Op::ObserveFd { fd } | Op::ModifyFd { fd } => self.is_held_inode(call, fd),
            Op::Read { fd } if GETDENTS.contains(&call.frame.nr) => self.is_held_inode(call, fd),
            Op::Sync(SyncKind::File | SyncKind::Range) => false,
            // No name of a directory is held, and its argument is a buffer.
            Op::ObservePath { .. } if call.frame.nr == memory::GETCWD => false,
            Op::Mount | Op::Namespace | Op::OpenAt2 | Op::Sync(_) => true,
            Op::SocketName { .. } => memory::names_file(call) && self.connects_to_nothing(call).is_none(),
            op => {
                let entries_count = !only_leads_through(call, op);
                paths_of(op).into_iter().any(|(dir, at)| self.leads_to_held(call, dir, at, entries_count))
            }
        }
    }

    fn is_held_inode(&mut self, call: &Call, fd: u8) -> bool {
        let copy = self.copy_descriptor(call.tid, call.frame.args[usize::from(fd) % 6] as i32);
        let stat = copy.ok().and_then(|copy| rustix::fs::fstat(&copy).ok());
        // Of a file without a name it is known how many it will have.
        stat.is_some_and(|stat| self.ahead.held_names.has_inode(&stat) && !self.ahead.new_files.has(&stat))
    }

    /// `entries_count`: a directory in which names are held is not what it should be.
    fn leads_to_held(&self, call: &Call, dir: u8, at: u8, entries_count: bool) -> bool {
        let Some(text) = path_text(call, at) else { return false };
        if text.is_empty() {
            // AT_EMPTY_PATH: the descriptor itself.
            let fd = format!("/proc/{}/fd/{}", call.tid, call.frame.args[usize::from(dir) % 6] as i32);
            return rustix::fs::stat(fd.as_str()).is_ok_and(|stat| self.is_held_file(&stat));
        }
        let leads = |text: &[u8], follows| {
            let way = self.walk(call.tid, call.pid, dir_of(call, dir), text, follows);
            let script = way.found().filter(|_| is_exec(call)).and_then(memory::interpreter);
            (self.shows_held(&way, entries_count), script)
        };
        let (followed, script) = leads(&text, true);
        followed || leads(&text, false).0 || script.is_some_and(|program| leads(&program, true).0)
    }

    fn shows_held(&self, way: &Way, entries_count: bool) -> bool {
        let is_held = |found: &Found| (entries_count || !found.is_dir()) && self.is_held_file(&found.stat);
        // What is mapped is told with its name.
        way.is_held
            || matches!(way.end, End::Unknown)
            || way.found().is_some_and(is_held)
            || way.through_proc && self.is_held_file_mapped()
    }

    fn is_held_file(&self, stat: &Stat) -> bool {
        self.ahead.held_names.has_inode(stat) || self.ahead.new_files.has(stat)
    }

    fn is_held_file_mapped(&self) -> bool {
        let is_held =
            |file: &Inode| self.ahead.held_names.files.contains_key(file) || self.ahead.new_files.has_inode(file);
        self.tracees.keys().any(|pid| mapped::may_map(procfs::Maps::of(*pid), is_held))
    }

    /// The attributes of a directory with names that are held, for a process that depends on them, or comes to by asking.
    pub(in crate::ahead) fn look_at_held_dir(&mut self, stopped: &Stopped, call: &Call) -> Result<Option<Decision>> {
        let is_concerned = !self.ahead.held_names.is_empty() && self.ahead.is_speculative(call.pid);
        let Some((at, times)) = stat_buffer(call).filter(|_| is_concerned) else { return Ok(None) };
        let Some((inode, since)) = self.held_dir(call) else { return Ok(None) };
        let plan = Plan::tracked_once().observing(Object::Names(inode.0, inode.1));
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        let mut remote = self.remote_calls(stopped)?;
        let result = remote.call(call.frame.nr as i64, &call.frame.args)?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        let kernel = |source| TraceError::Kernel { what: "write the times of a directory", tid: call.tid, source };
        for time in times.into_iter().filter(|_| result == 0) {
            let shown: [u64; 2] = tracee::read_value(call.tid, at + time).map_err(kernel)?;
            if Duration::new(shown[0], shown[1] as u32) < since {
                let changed = [since.as_secs().to_ne_bytes(), u64::from(since.subsec_nanos()).to_ne_bytes()].concat();
                tracee::write_bytes(call.tid, at + time, &changed).map_err(kernel)?;
            }
        }
        Ok(Some(Decision::Answer(result)))
    }

    /// The directory that a call asks for, if names in it are held, but none that leads to it; and since when.
    fn held_dir(&mut self, call: &Call) -> Option<(Inode, Duration)> {
        const FSTAT: u64 = 5;
        let args = &call.frame.args;
        let (dir, at) = match syscall_table::op(call.frame.nr)? {
            Op::ObserveFd { fd } if call.frame.nr == FSTAT => {
                let copy = self.copy_descriptor(call.tid, args[usize::from(fd) % 6] as i32).ok()?;
                let stat = rustix::fs::fstat(&copy).ok()?;
                return self.ahead.held_names.dir(&stat);
            }
            op => *paths_of(op).first()?,
        };
        let follows = follows_last_link(call);
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &path_text(call, at)?, follows);
        let found = way.found().filter(|_| !way.is_held && !way.through_proc)?;
        self.ahead.held_names.dir(&found.stat)
    }

    /// Nothing that it depends on can fail any more: the change is made.
    pub(in crate::ahead) fn make_name_change(&mut self, held: &HeldChange) {
        self.forget_name_change(held);
        if self.ahead.is_doomed {
            return;
        }
        let change = &held.change;
        change.names().iter().for_each(|name| self.about_to_change(name.dir_inode.0));
        if let Err(error) = change.make() {
            // The program was told that it had succeeded.
            self.end_world(&format!("a change of names that had been held could not be made: {error}"));
            return;
        }
        change.names().into_iter().for_each(|name| self.note_name_changed(name.dir_inode, name.inode));
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

    /// It was made, or will never be.
    pub(in crate::ahead) fn forget_name_change(&mut self, held: &HeldChange) {
        self.ahead.held_names.remove(held);
        if let NameChange::Create { name, .. } = &held.change {
            name.inode.into_iter().for_each(|inode| self.ahead.new_files.forget(inode));
        }
        self.ahead.changes += 1;
    }
}

/// Calls that change names, and that can be held.
pub(in crate::ahead) fn is_held_change(nr: u64) -> bool {
    matches!(nr, UNLINK | UNLINKAT | RENAME | RENAMEAT | RENAMEAT2 | LINK | LINKAT)
}

/// Whether a call goes to a directory, or opens it, without looking at its entries or its times: who reads the entries asks again.
fn only_leads_through(call: &Call, op: Op) -> bool {
    const INOTIFY_ADD_WATCH: u64 = 254;
    match op {
        Op::Open | Op::OpenAt | Op::Chdir => true,
        // What was made before the watch began must not be heard.
        Op::ObservePath { .. } => call.frame.nr != INOTIFY_ADD_WATCH,
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
        262 => Some((args[2], OF_STAT)),
        332 => Some((args[4], OF_STATX)),
        _ => None,
    }
}

/// Whether one of the calls of `stat_buffer` asks for what a link leads to.
pub(in crate::ahead) fn follows_last_link(call: &Call) -> bool {
    const LSTAT: u64 = 6;
    const FSTATAT: u64 = 262;
    const STATX: u64 = 332;
    let flags = match call.frame.nr {
        LSTAT => return false,
        FSTATAT => call.frame.args[3],
        STATX => call.frame.args[2],
        _ => 0,
    };
    flags & AtFlags::SYMLINK_NOFOLLOW.bits() as u64 == 0
}

pub(in crate::ahead) fn dir_of(call: &Call, at: u8) -> Option<i32> {
    let fd = (at != CWD).then(|| call.frame.args[usize::from(at) % 6] as i32)?;
    (fd != libc::AT_FDCWD).then_some(fd)
}

pub(in crate::ahead) fn is_fifo(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Fifo
}

pub(in crate::ahead) fn path_text(call: &Call, at: u8) -> Option<Vec<u8>> {
    let path = crate::requests::read_path(call.tid, call.frame.args[usize::from(at) % 6])?;
    Some(path.into_os_string().as_bytes().to_vec())
}

fn is_exec(call: &Call) -> bool {
    matches!(syscall_table::op(call.frame.nr), Some(Op::Execve | Op::Execveat))
}

/// Whether a process may change the entries of a directory, whatever they are: it is its owner, who may write there, or has root's rights.
fn may_change(pid: i32, dir: &Found) -> bool {
    const OWNER_MAY: u32 = 0o300;
    // CAP_DAC_OVERRIDE and CAP_FOWNER
    const OVERRIDES: u64 = 1 << 1 | 1 << 3;
    let Ok(status) = procfs::Status::of(pid) else { return false };
    let rights = status.bits("CapEff").unwrap_or(0);
    // Real, effective, saved, of file systems.
    let user = status.number::<u32>("Uid", 3).ok();
    let is_owner = user == Some(dir.stat.st_uid) && dir.stat.st_mode & OWNER_MAY == OWNER_MAY;
    is_owner || rights & OVERRIDES == OVERRIDES
}

/// A file on the disk that another name can be given to.
fn linkable(entry: &Entry) -> Option<Arc<OwnedFd>> {
    /// ext4 counts to 65,000, others further.
    const LINKS_MAX: u64 = 60_000;
    let found =
        entry.found.as_ref().filter(|found| found.is_regular() && (1..LINKS_MAX).contains(&found.stat.st_nlink))?;
    found.fd.try_clone().ok().map(Arc::new)
}

/// Whether two names stand in the same directory, seen through the same mount.
fn is_one_directory(a: &DiskName, b: &DiskName) -> bool {
    a.dir_inode == b.dir_inode && is_one_mount(&a.dir, &b.dir)
}

fn is_one_mount(a: &OwnedFd, b: &OwnedFd) -> bool {
    let mount = |dir: &OwnedFd| {
        let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
        Some(found.stx_mnt_id)
    };
    mount(a).is_some_and(|id| Some(id) == mount(b))
}

/// Whether attributes of its own keep a file from being removed, or it is what a mount shows.
fn is_changeable(file: &OwnedFd) -> bool {
    const FIXED: StatxAttributes =
        StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND).union(StatxAttributes::MOUNT_ROOT);
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| !found.stx_attributes.intersects(FIXED))
}

/// As `is_changeable`; a directory may be where a file system is mounted, but for writing.
fn is_changeable_dir(dir: &OwnedFd) -> bool {
    const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);
    let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let is_writable = rustix::fs::fstatvfs(dir).is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::RDONLY));
    is_writable && found.is_ok_and(|found| !found.stx_attributes.intersects(FIXED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(dir: &std::path::Path, name: &str) -> DiskName {
        let found = |path: &std::path::Path| {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok().map(|fd| Found::of(fd).unwrap())
        };
        let (found, dir) = (found(&dir.join(name)), found(dir).unwrap());
        DiskName::of(Entry { dir, name: name.into(), found })
    }

    #[test]
    fn names_are_held_until_the_last_change_of_them_is_made() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let remove = || NameChange::Remove(entry(dir.path(), "a"));
        let mut held = HeldNames::default();
        let (one, two) = (held.add(remove()), held.add(remove()));
        let at = one.change.names()[0].dir_inode;
        held.remove(&one);
        assert!(held.meaning(at, b"a") == Some(None) && held.meaning(at, b"b").is_none());
        held.remove(&two);
        assert!(held.is_empty() && held.files.is_empty() && held.dirs.is_empty());
    }

    #[test]
    fn the_last_change_of_a_name_says_what_it_means() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let at = |name: &str| entry(dir.path(), name);
        let (dir_inode, file) = (at("a").dir_inode, at("a").inode);
        let mut held = HeldNames::default();
        let moved = held.add(NameChange::Rename { from: at("a"), to: at("b"), keeps: false });
        assert_eq!((held.meaning(dir_inode, b"a"), held.meaning(dir_inode, b"b")), (Some(None), Some(file)));
        let removed = held.add(NameChange::Remove(at("b")));
        assert_eq!((held.meaning(dir_inode, b"b"), held.links(file.unwrap())), (Some(None), 0));
        held.remove(&removed);
        assert_eq!((held.meaning(dir_inode, b"b"), held.links(file.unwrap())), (Some(file), 1));
        held.remove(&moved);
        assert!(held.is_empty());
    }

    #[test]
    fn what_came_in_the_place_of_a_removed_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "old").unwrap();
        let change = NameChange::Remove(entry(dir.path(), "a"));
        std::fs::write(dir.path().join("new"), "new").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        change.make().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        NameChange::Remove(entry(dir.path(), "a")).make().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_rename_that_keeps_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| entry(dir.path(), name);
        std::fs::write(dir.path().join("a"), "a").unwrap();
        let keeping = NameChange::Rename { from: at("a"), to: at("b"), keeps: true };
        std::fs::write(dir.path().join("b"), "b").unwrap();
        assert_eq!(keeping.make(), Err(Errno::EXIST));
        NameChange::Rename { from: at("a"), to: at("b"), keeps: false }.make().unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("b")).unwrap(), "a");
        assert_eq!(keeping.make(), Err(Errno::STALE), "it has gone");
    }
}
