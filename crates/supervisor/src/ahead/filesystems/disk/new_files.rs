//! New files on disks (000, 6.4: no-steal; [0022](../../../../../../docs/decisions/0022-new-files.md)). The file is
//! there at once, with its inode, owner and mode, but has no name
//! ([`staging`](crate::ahead::filesystems::disk::staging)): its name is held as other changes of names are, and given
//! when what its creator depends on is committed. A rollback drops the name, and with it goes the file.
//!
//! So a change by whoever depends on nothing else than the file itself does ([`Object::Created`]) needs no undo: what
//! takes it back takes the whole file back. It is made at once. Who made a guess since then could be taken back alone:
//! his writes are held as those to any file on a disk, his other changes wait. Thus a file holds nothing that can still
//! fail when it gets its name. FIFOs are alike ([`fifos`](crate::ahead::filesystems::disk::fifos)).

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::filesystems::disk::attributes::{is_searched_by_all, Change};
use crate::ahead::filesystems::disk::name_calls::Refusal;
use crate::ahead::filesystems::disk::name_changes::{DiskName, NameChange, Target};
use crate::ahead::filesystems::disk::names::is_fifo;
use crate::ahead::filesystems::disk::staging::{FileStage, FileStages, Rights};
use crate::ahead::filesystems::disk::watchers;
use crate::ahead::filesystems::memory::{naming, written_range};
use crate::ahead::filesystems::open::{arguments, O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC};
use crate::ahead::filesystems::path_walk::{Entry, Found};
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use procfs::{ProcessId, Status};
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use syscall_table::nr;
use syscall_table::Op;
use tracee::{Result, Stopped};

pub(in crate::ahead) const O_ACCMODE: u64 = 3;
const O_NOCTTY: u64 = 0o400;
const O_NONBLOCK: u64 = 0o4000;
const O_LARGEFILE: u64 = 0o100000;
const O_CLOEXEC: u64 = 0o2000000;
/// Flags of `open` that do what they say, whether a file is opened by its name or made.
pub(in crate::ahead) const KNOWN_FLAGS: u64 =
    O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_LARGEFILE | O_CLOEXEC | O_NOFOLLOW;

/// What has no name yet.
#[derive(Debug, Default)]
pub(in crate::ahead) struct NewFiles {
    /// Files, directories and links, by device and inode.
    unnamed: HashMap<(u64, u64), Arc<OwnedFd>>,
    /// The stage in which each of the files was made.
    made_in: HashMap<(u64, u64), Arc<FileStage>>,
    stages: FileStages,
}

impl NewFiles {
    pub fn is_empty(&self) -> bool {
        self.unnamed.is_empty()
    }

    pub fn has(&self, stat: &Stat) -> bool {
        self.unnamed.contains_key(&(stat.st_dev, stat.st_ino))
    }

    pub fn has_inode(&self, inode: &(u64, u64)) -> bool {
        self.unnamed.contains_key(inode)
    }

    /// Whether everybody may look up names in a new directory.
    pub fn lets_all_search(&self, inode: (u64, u64)) -> bool {
        let stat = self.unnamed.get(&inode).and_then(|dir| rustix::fs::fstat(dir).ok());
        stat.is_some_and(|stat| is_searched_by_all(stat.st_mode))
    }

    pub fn add(&mut self, inode: (u64, u64), file: Arc<OwnedFd>) {
        self.unnamed.insert(inode, file);
    }

    /// The file of a name.
    pub fn file_at(&self, entry: &Entry) -> Option<Arc<OwnedFd>> {
        self.file_of(&entry.found.as_ref()?.stat)
    }

    /// A descriptor that only names it.
    pub fn file_of(&self, stat: &Stat) -> Option<Arc<OwnedFd>> {
        self.unnamed.get(&(stat.st_dev, stat.st_ino)).cloned()
    }

    /// It has got its name, or will never have one.
    pub fn forget(&mut self, inode: (u64, u64)) {
        self.unnamed.remove(&inode);
        self.made_in.remove(&inode);
    }
}

/// A file that is to be made.
struct Creation {
    entry: Entry,
    rights: Rights,
    flags: u64,
}

impl Supervisor {
    /// A speculative process makes a file; it waits where it is not sure to succeed, or the file would not be like any
    /// other.
    pub(in crate::ahead) fn create_file(&mut self, stopped: &Stopped, call: &Call, plan: Plan) -> Result<Decision> {
        if self.are_names_changing() {
            return Ok(Decision::Wait);
        }
        let wanted = self.creation(call);
        if matches!(wanted, Err(Refusal::Unsure))
            || self.ahead.held_names.is_full()
            || !self.would_find(stopped, call)?
        {
            return Ok(self.wait_at_barrier(call));
        }
        let creation = match wanted {
            Ok(creation) => creation,
            // A directory on the way is not there.
            Err(Refusal::Error(error)) => return self.answer_known(stopped, call, plan, -i64::from(error)),
            Err(Refusal::Unsure) => return Ok(self.wait_at_barrier(call)),
        };
        let dir = creation.entry.dir.object();
        if matches!(self.track(stopped, call, plan, vec![(dir, Intent::Nothing)])?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let Some((file, stage)) = self.make_unnamed(&creation) else { return Ok(self.wait_at_barrier(call)) };
        let (dev, ino) = (file.stat.st_dev, file.stat.st_ino);
        let objects = [Object::File(dev, ino), Object::Created(dev, ino)];
        let modifies = objects.map(|object| (object, Intent::Nothing)).into();
        if matches!(self.track(stopped, call, Plan::tracked_once(), modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let how = creation.flags & (O_ACCMODE | O_APPEND | O_NONBLOCK);
        let Some(fd) = self.open_for(stopped, call, &file, (how, creation.flags & O_CLOEXEC))? else {
            return Ok(self.wait_at_barrier(call));
        };
        let file = file.fd;
        let target = Target { inode: (dev, ino), is_dir: false, leads_on: false, fd: file.clone() };
        let change = NameChange::Create { name: DiskName::of_new(creation.entry, target), file: file.clone() };
        self.ahead.new_files.add((dev, ino), file);
        self.ahead.new_files.made_in.insert((dev, ino), stage);
        self.hold_name_change(call, change);
        Ok(Decision::Answer(i64::from(fd)))
    }

    /// The answer to an `open` of what is held. `how` it is opened, and whether the descriptor is closed on exec.
    /// `None`: it cannot be opened, or no number is free any more.
    fn open_for(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        file: &Found,
        (how, closes_on_exec): (u64, u64),
    ) -> Result<Option<i32>> {
        let fd = match self.open_through_proc(stopped, call.pid, file, how | closes_on_exec)? {
            Some(fd) => Some(fd),
            None => {
                let how = OFlags::from_bits_retain(how as u32) | OFlags::CLOEXEC;
                match rustix::fs::open(procfs::own_path(&file.fd), how, Mode::empty()) {
                    Ok(open) => self.install_free(stopped, call.pid, &open, closes_on_exec != 0)?,
                    Err(_) => None,
                }
            }
        };
        // The agent does not see what the path led through: it may have been anything that is not committed yet.
        self.observe_everything(call.tid);
        self.ahead.known_ways.tells_of(file.stat);
        Ok(fd)
    }

    /// What the kernel does not find by itself is opened, by one who depends on it now. `None`: it has to wait for
    /// that.
    pub(in crate::ahead) fn open_found(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        file: &Found,
        flags: u64,
    ) -> Result<Option<Decision>> {
        if !self.has_free_descriptors(call.pid) {
            return Ok(None);
        }
        if flags & O_TRUNC != 0 {
            let Some(plan) = self.change_at_once(call, file, 0) else { return Ok(None) };
            if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
                return Ok(Some(Decision::Wait));
            }
        }
        let known = flags & !(O_CREAT | O_EXCL | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
        let fd = self.open_for(stopped, call, file, (known, flags & O_CLOEXEC))?;
        Ok(fd.map(|fd| Decision::Answer(i64::from(fd))))
    }

    /// The attributes of a new file are changed by its name.
    pub(in crate::ahead) fn change_attributes(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        file: &Found,
        change: Change,
    ) -> Result<Option<Decision>> {
        let Some(plan) = self.change_at_once(call, file, 0) else { return Ok(None) };
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        if file.is_dir() {
            // Whoever looked up names in it may not any more.
            self.ahead.held_names.news.of_dir(file.inode());
        }
        Ok(change.make(&file.fd).is_ok().then_some(Decision::Answer(0)))
    }

    /// The result of a call that changes nothing is known.
    pub(in crate::ahead) fn answer_known(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        plan: Plan,
        result: i64,
    ) -> Result<Decision> {
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        self.observe_everything(call.tid);
        Ok(Decision::Answer(result))
    }

    /// What the call would make.
    fn creation(&self, call: &Call) -> std::result::Result<Creation, Refusal> {
        let entry = self.changeable_file_or_nothing(call)?;
        self.creation_at(call, entry).ok_or(Refusal::Unsure)
    }

    fn creation_at(&self, call: &Call, entry: Entry) -> Option<Creation> {
        const NAME_MAX: usize = 255;
        const PERMISSIONS: u64 = 0o777;
        const ALL: u64 = 0o7777;
        let [_, _, flags, mode] = arguments(call)?;
        let is_usual = flags as u32 & !(KNOWN_FLAGS as u32) == 0 && flags & O_ACCMODE != O_ACCMODE;
        let is_new = is_usual && entry.found.is_none() && entry.name.len() <= NAME_MAX;
        if !is_new || mode & ALL & !PERMISSIONS != 0 || !self.is_root_as_we_are(call.pid) {
            return None;
        }
        let mode = Mode::from_raw_mode((mode & PERMISSIONS) as u32 & !umask_of(call.pid)?);
        let rights = Rights { mode, group: self.group_in(call.pid, &entry.dir.stat)? };
        let can_be = self.has_free_descriptors(call.pid) && self.has_room_for(&entry.dir.fd, 0);
        can_be.then_some(Creation { entry, rights, flags })
    }

    /// The file, and its descriptor for the program.
    fn make_unnamed(&mut self, creation: &Creation) -> Option<(Found, Arc<FileStage>)> {
        let dir = &creation.entry.dir.fd;
        let new_files = &mut self.ahead.new_files;
        let stage = new_files.stages.stage_for(dir)?;
        if new_files.is_empty() && watchers::is_watched(&stage.stat()?) {
            return None;
        }
        let unnamed = stage.make_file(dir, creation.rights)?;
        let file = Found::of(naming(&unnamed).ok()?).ok()?;
        let is_its_own = file.stat.st_uid == 0 && file.stat.st_dev == creation.entry.dir.stat.st_dev;
        is_its_own.then_some((file, stage))
    }

    /// What is to be said of a call that concerns a file without a name through a descriptor; `None` if it does not, or
    /// as of any other file.
    pub(in crate::ahead) fn plan_new_file(&mut self, call: &Call, op: Op) -> Option<Plan> {
        const FICLONE: u64 = 0x4004_9409;
        const MAP_ANONYMOUS: u64 = 0x20;
        const MAP_TYPE: u64 = 0xf;
        const MAP_SHARED: u64 = 1;
        const MAP_PRIVATE: u64 = 2;
        const PROT_WRITE: u64 = 2;
        const MAP_SHARED_VALIDATE: u64 = 3;
        if self.ahead.new_files.is_empty() {
            return None;
        }
        let args = call.frame.args;
        let fd = |at: u8| args[usize::from(at) % 6] as i32;
        if let Some(plan) = self.plan_new_fifo(call, op) {
            return Some(plan);
        }
        match op {
            Op::Write { fd: at } => {
                let (file, copy) = self.new_file_behind(call, fd(at))?;
                let range = written_range(call, &copy, &file);
                self.change_at_once(call, &file, range.end.saturating_sub(range.start))
            }
            Op::ModifyFd { fd: at } => {
                let (file, _) = self.new_file_behind(call, fd(at))?;
                let len = if call.frame.nr == nr::fallocate { args[3] } else { 0 };
                Some(self.change_at_once(call, &file, len).unwrap_or_else(barrier))
            }
            // A record lock goes with the file. Whoever has one is not checkpointed any more, and does not end before
            // the guess is resolved.
            Op::Fcntl if locks_at_once(call) => {
                let (file, _) = self.new_file_behind(call, fd(0))?;
                if self.ahead.record_locks.knows(file.inode()) {
                    // The supervisor has a lock of it in the place of somebody who may have waited for that.
                    return None;
                }
                Some(self.change_at_once(call, &file, 0).unwrap_or_else(barrier))
            }
            // So does a lock of the open file, unless somebody else has it, as far as the kernel knows.
            Op::Flock => {
                let (file, _) = self.new_file_behind(call, fd(0))?;
                self.change_at_once(call, &file, 0).filter(|_| would_be_given(&file.fd, args[1]))
            }
            // The descriptor's file.
            Op::ModifyPath { .. } if call.frame.nr == nr::utimensat && args[1] == 0 => {
                let (file, _) = self.new_file_behind(call, fd(0))?;
                Some(self.change_at_once(call, &file, 0).unwrap_or_else(barrier))
            }
            Op::Copy { input, output } => self.plan_copy_to_new(call, fd(input), fd(output)),
            Op::Ioctl if args[1] & 0xffff_ffff == FICLONE => self.plan_copy_to_new(call, fd(2), fd(0)),
            Op::Mmap if args[3] & MAP_ANONYMOUS == 0 => {
                let (file, copy) = self.new_file_behind(call, fd(4))?;
                // Whoever looks at the list of mappings, where its path would be seen, waits. What is stored there
                // later depends on no more than the file itself; what does is held, and not seen.
                let is_seen_only = || args[2] & PROT_WRITE == 0 && is_read_only(&copy);
                Some(match args[3] & MAP_TYPE {
                    MAP_PRIVATE => Plan::tracked_once().observing(file.object()),
                    _ if is_seen_only() => Plan::tracked_once().observing(file.object()),
                    // Whoever shares memory is not checkpointed any more, so it gains no dependencies: what it writes
                    // there depends on what the file depends on.
                    MAP_SHARED | MAP_SHARED_VALIDATE => {
                        self.change_at_once(call, &file, args[1]).unwrap_or_else(barrier)
                    }
                    _ => barrier(),
                })
            }
            _ => None,
        }
    }

    /// `sendfile`, `copy_file_range`, and the like.
    fn plan_copy_to_new(&mut self, call: &Call, input: i32, output: i32) -> Option<Plan> {
        let (file, _) = self.new_file_behind(call, output)?;
        if self.copies_nothing(call, input, output) {
            return Some(Plan::new(Class::Free));
        }
        let FileDescription::File { dev, ino, device, copy } = self.file_description(call.tid, input) else {
            return Some(barrier());
        };
        if !matches!(device, DeviceKind::Domain | DeviceKind::ReadOnly | DeviceKind::Memory) {
            return Some(barrier());
        }
        let args = &call.frame.args;
        let (len, keeps_position) = match call.frame.nr {
            nr::sendfile => (args[3], args[2] != 0),
            nr::copy_file_range => (args[4], args[1] != 0),
            _ => (u64::MAX, true),
        };
        let available = rustix::fs::fstat(&copy).map_or(0, |stat| stat.st_size as u64);
        let source = Object::File(dev, ino);
        // What it holds then depends on that as well.
        let created = Object::Created(file.stat.st_dev, file.stat.st_ino);
        let core = &self.ahead.core;
        let is_as_certain = core.dependencies_of_object(&source).is_subset(core.dependencies_of_object(&created));
        let plan = self.change_at_once(call, &file, len.min(available)).filter(|_| is_as_certain);
        let Some(plan) = plan.map(|plan| plan.observing(source)) else { return Some(barrier()) };
        Some(match keeps_position {
            true => plan,
            false => plan.modifying(position_of(dev, ino), Intent::Position(copy)),
        })
    }

    /// Whether whatever takes back what a process does to this object of a new file takes the file itself back.
    pub(in crate::ahead) fn is_as_certain_as_its_file(
        &self,
        pid: ProcessId,
        object: &Object,
        file: (u64, u64),
    ) -> bool {
        let core = &self.ahead.core;
        let mut own = core.dependencies_of_process(process(pid)).clone();
        own.merge(core.dependencies_of_object(object));
        own.is_subset(core.dependencies_of_object(&Object::Created(file.0, file.1)))
    }

    /// A change that adds at most so many bytes, if whatever takes it back takes the file itself back, and there is
    /// room for it beside what is held.
    fn change_at_once(&self, call: &Call, file: &Found, len: u64) -> Option<Plan> {
        let is_as_certain = self.is_as_certain_as_its_file(call.pid, &file.object(), file.inode());
        let is_possible = is_as_certain && self.has_room_for(&file.fd, len);
        is_possible.then(|| Plan::tracked_once().modifying(file.object(), Intent::Nothing))
    }

    /// Whether this is a file that is taken back with whatever a process does now: nobody who is put back will have it
    /// open.
    pub(in crate::ahead) fn goes_with(&self, pid: ProcessId, file: &OwnedFd) -> bool {
        if self.ahead.new_files.is_empty() {
            return false;
        }
        let Ok(stat) = rustix::fs::fstat(file) else { return false };
        let core = &self.ahead.core;
        let created = Object::Created(stat.st_dev, stat.st_ino);
        let own = core.dependencies_of_process(process(pid));
        self.ahead.new_files.has(&stat)
            && (is_regular(&stat) || is_fifo(&stat))
            && own.is_subset(core.dependencies_of_object(&created))
    }

    /// The file without a name behind a descriptor, and a copy of the descriptor.
    pub(in crate::ahead) fn new_file_behind(&mut self, call: &Call, fd: i32) -> Option<(Found, OwnedFd)> {
        let copy = self.copy_descriptor(call.tid, fd).ok()?;
        let is_one = |stat: &Stat| self.ahead.new_files.has(stat) && is_regular(stat);
        let stat = rustix::fs::fstat(&copy).ok().filter(is_one)?;
        let fd = self.ahead.new_files.unnamed.get(&(stat.st_dev, stat.st_ino))?.try_clone().ok()?;
        Some((Found { fd: Arc::new(fd), stat }, copy))
    }
}

/// Whether nobody can write by way of a mapping of this open file.
fn is_read_only(file: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether a call looks at a record lock, takes one without waiting for it, or gives it up.
fn locks_at_once(call: &Call) -> bool {
    let [_, command, lock, ..] = call.frame.args;
    match command as i32 {
        _ if call.frame.nr != nr::fcntl => false,
        libc::F_GETLK | libc::F_SETLK => true,
        // `l_type` is the first half of it.
        libc::F_SETLKW => {
            tracee::read_value::<u32>(call.tid, lock).is_ok_and(|word| word & 0xffff == libc::F_UNLCK as u32)
        }
        _ => false,
    }
}

/// Whether `flock` gives this file's lock to whoever asks now.
pub(in crate::ahead) fn would_be_given(file: &OwnedFd, operation: u64) -> bool {
    let operation = match operation as i32 & !libc::LOCK_NB {
        libc::LOCK_UN => return true,
        libc::LOCK_SH => FlockOperation::NonBlockingLockShared,
        libc::LOCK_EX => FlockOperation::NonBlockingLockExclusive,
        _ => return false,
    };
    let other = rustix::fs::open(procfs::own_path(file), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    other.is_ok_and(|other| rustix::fs::flock(other, operation).is_ok())
}

pub(in crate::ahead) fn barrier() -> Plan {
    Plan::new(Class::Barrier).once()
}

/// The descriptor of which one of the calls of `stat_buffer` asks for the attributes, if it does not name a path.
pub(in crate::ahead) fn descriptor_looked_at(call: &Call) -> Option<i32> {
    let args = &call.frame.args;
    let flags = match call.frame.nr {
        nr::fstat => return Some(args[0] as i32),
        nr::newfstatat => args[3],
        nr::statx => args[2],
        _ => return None,
    };
    let is_itself = flags & AtFlags::EMPTY_PATH.bits() as u64 != 0 && has_known_flags(call);
    let names_nothing = || {
        args[1] == 0 || crate::requests::read_path(call.tid, args[1]).is_some_and(|path| path.as_os_str().is_empty())
    };
    (is_itself && names_nothing()).then_some(args[0] as i32)
}

/// Whether one of the calls of `stat_buffer` asks for nothing that is not known here.
pub(in crate::ahead) fn has_known_flags(call: &Call) -> bool {
    /// `AT_SYMLINK_NOFOLLOW`, `AT_NO_AUTOMOUNT`, `AT_EMPTY_PATH`, and whether a server has to be asked.
    const FLAGS: u64 = 0x100 | 0x800 | 0x1000;
    const SYNC: u64 = 0x6000;
    const RESERVED: u64 = 0x8000_0000;
    let args = &call.frame.args;
    match call.frame.nr {
        nr::newfstatat => args[3] & !FLAGS == 0,
        nr::statx => args[2] & !(FLAGS | SYNC) == 0 && args[2] & SYNC != SYNC && args[3] & RESERVED == 0,
        _ => true,
    }
}

/// The rights that a process never gives to what it makes.
pub(in crate::ahead) fn umask_of(pid: ProcessId) -> Option<u32> {
    Status::of(pid).and_then(|status| status.umask()).ok()?.try_into().ok()
}

impl Supervisor {
    /// The group of a file that a process makes in a directory.
    pub(in crate::ahead) fn group_in(&self, pid: ProcessId, dir: &Stat) -> Option<Gid> {
        const SET_GROUP: u32 = 0o2000;
        match dir.st_mode & SET_GROUP {
            0 => self.file_system_group_of(pid),
            _ => Some(Gid::from_raw(dir.st_gid)),
        }
    }
}
