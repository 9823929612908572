//! Record locks (`fcntl`) of files that were there before the guess
//! ([0213](../../../../../docs/decisions/0213-record-locks-are-kept-by-the-supervisor.md)). A record lock belongs to
//! its process, so nobody could keep one that the process gives up on a guess. The supervisor takes a lock of its own
//! in its place, of the open file (`F_OFD_SETLK`), and knows which process has which range.
//!
//! Each change makes a further *state* of the file: who has what. The kernel is told of the strongest lock that any
//! state has which may still be true. So somebody outside is refused what he might not get, and a change that is
//! undone, or can fail no more, only ever gives something up, which cannot fail.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use crate::sys::{record_lock, RecordCommand};
use agent_abi::{option, DeviceKind};
use procfs::{MagicLink, ProcessId};
use rustix::fs::{OFlags, SeekFrom};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use syscall_table::nr;
use tracee::{Result, Stopped};

/// Device and inode.
type Inode = (u64, u64);

/// A weaker mode comes before a stronger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Shared,
    Exclusive,
}

/// The first and the last byte; `i64::MAX`: to the end, wherever that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes {
    first: i64,
    last: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lock {
    owner: ProcessId,
    bytes: Bytes,
    mode: Mode,
}

/// Who has what of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State(Vec<Lock>);

/// What `fcntl` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Look(Mode),
    Lock { mode: Mode, waits: bool },
    Unlock,
}

/// The locks of a file that the kernel knows as ours.
#[derive(Debug)]
pub(in crate::ahead) struct RecordLocks {
    inode: Inode,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// An open file of a program. The locks are the open file's, so they are ours as long as this is open.
    file: OwnedFd,
    /// By turns. The first one is certain, the last one is what the world knows.
    states: Vec<(u64, State)>,
    /// Changes up to that of this turn can fail no more.
    certain: u64,
}

/// What undoes a change of them: all changes from that of this turn on.
#[derive(Debug)]
pub(crate) struct RecordsBefore {
    locks: Arc<RecordLocks>,
    turn: u64,
}

/// The files whose record locks are ours.
#[derive(Debug, Default)]
pub(in crate::ahead) struct RecordLockedFiles(Vec<Arc<RecordLocks>>);

impl Bytes {
    fn meets(self, other: Bytes) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn touches(self, other: Bytes) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    /// What of it is before another one, and what is behind that.
    fn without(self, other: Bytes) -> impl Iterator<Item = Bytes> {
        let before = (self.first < other.first).then(|| Bytes { first: self.first, last: other.first - 1 });
        let behind = (other.last < self.last).then(|| Bytes { first: other.last + 1, last: self.last });
        before.into_iter().chain(behind)
    }

    /// From a position on; a negative length means what is before it. `None`: the kernel refuses that.
    fn at(start: i64, len: i64) -> Option<Self> {
        let (first, last) = match len {
            0 => (start, i64::MAX),
            1.. => (start, start.checked_add(len - 1)?),
            _ => (start.checked_add(len)?, start - 1),
        };
        (first >= 0 && first <= last).then_some(Self { first, last })
    }

    fn len(self) -> i64 {
        match self.last {
            i64::MAX => 0,
            last => last - self.first + 1,
        }
    }
}

impl State {
    fn has(&self, pid: ProcessId) -> bool {
        self.0.iter().any(|lock| lock.owner == pid)
    }

    fn conflict(&self, pid: ProcessId, bytes: Bytes, mode: Mode) -> Option<Lock> {
        let is_one = |lock: &&Lock| {
            lock.owner != pid && lock.bytes.meets(bytes) && (mode == Mode::Exclusive || lock.mode == Mode::Exclusive)
        };
        self.0.iter().find(is_one).copied()
    }

    /// A process has this range in a mode, or not at all. As the kernel does it, ranges of one mode that touch become
    /// one.
    fn with(&self, pid: ProcessId, mut bytes: Bytes, mode: Option<Mode>) -> Self {
        let mut locks = Vec::new();
        for &lock in &self.0 {
            if lock.owner == pid && Some(lock.mode) == mode && lock.bytes.touches(bytes) {
                bytes.first = bytes.first.min(lock.bytes.first);
                bytes.last = bytes.last.max(lock.bytes.last);
            } else if lock.owner == pid && lock.bytes.meets(bytes) {
                locks.extend(lock.bytes.without(bytes).map(|bytes| Lock { bytes, ..lock }));
            } else {
                locks.push(lock);
            }
        }
        locks.extend(mode.map(|mode| Lock { owner: pid, bytes, mode }));
        locks.sort_by_key(|lock| lock.bytes.first);
        Self(locks)
    }

    fn without(&self, pid: ProcessId) -> Self {
        Self(self.0.iter().filter(|lock| lock.owner != pid).copied().collect())
    }
}

/// The strongest lock of each range that any of these states has.
fn strongest<'a>(states: impl Iterator<Item = &'a State> + Clone) -> Ranges {
    let locks = || states.clone().flat_map(|state| &state.0);
    // Where a range begins. One that ends with the file has nothing behind it.
    let ends = locks().filter_map(|lock| lock.bytes.last.checked_add(1));
    let mut begins: Vec<i64> = locks().map(|lock| lock.bytes.first).chain(ends).chain([0]).collect();
    begins.sort_unstable();
    begins.dedup();
    let next = begins.iter().skip(1).map(|begin| begin - 1).chain([i64::MAX]);
    let ranges = begins.iter().zip(next).map(|(&first, last)| Bytes { first, last });
    ranges.map(|bytes| (bytes, locks().filter(|lock| lock.bytes.meets(bytes)).map(|lock| lock.mode).max())).collect()
}

/// Tell the kernel what is new. What it refuses leaves everything as it was.
fn tell_kernel(file: &OwnedFd, from: &Ranges, to: &Ranges) -> io::Result<()> {
    let differs: Vec<_> = to
        .iter()
        .flat_map(|&(bytes, mode)| {
            let met = from.iter().filter(move |(other, was)| other.meets(bytes) && *was != mode);
            met.map(move |&(other, was)| {
                let bytes = Bytes { first: bytes.first.max(other.first), last: bytes.last.min(other.last) };
                (bytes, was, mode)
            })
        })
        .collect();
    for (at, &(bytes, _, mode)) in differs.iter().enumerate() {
        if let Err(error) = set(file, bytes, mode) {
            differs[..at].iter().for_each(|&(bytes, was, _)| drop(set(file, bytes, was)));
            return Err(error);
        }
    }
    Ok(())
}

fn set(file: &OwnedFd, bytes: Bytes, mode: Option<Mode>) -> io::Result<()> {
    record_lock(file.as_fd(), RecordCommand::Set, &mut described(bytes, mode, 0))
}

fn described(bytes: Bytes, mode: Option<Mode>, pid: i32) -> libc::flock {
    let kind = match mode {
        Some(Mode::Shared) => libc::F_RDLCK,
        Some(Mode::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: bytes.first,
        l_len: bytes.len(),
        l_pid: pid,
    }
}

impl Inner {
    fn now(&self) -> &State {
        self.states.last().map_or(&EMPTY, |(_, state)| state)
    }

    fn strongest(&self) -> Ranges {
        strongest(self.states.iter().map(|(_, state)| state))
    }

    /// Change what may be true, by giving up only.
    fn give_up(&mut self, change: impl FnOnce(&mut Vec<(u64, State)>)) {
        let before = self.strongest();
        change(&mut self.states);
        // It cannot fail: what a lock is split into takes no more than there is.
        let _ = tell_kernel(&self.file, &before, &self.strongest());
    }

    /// The kernel gives us what a further state has, and what others have. `own`: an open file of whoever asks.
    fn reach(&mut self, state: &State, own: &OwnedFd) -> io::Result<Ranges> {
        let before = self.strongest();
        let wanted = strongest(self.states.iter().map(|(_, state)| state).chain([state]));
        match tell_kernel(&self.file, &before, &wanted) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                self.move_to(own, &before)?;
                tell_kernel(&self.file, &before, &wanted)?;
            }
            told => told?,
        }
        Ok(wanted)
    }

    /// Our open file is for reading only, and so are the locks that it has: another one may have the same meanwhile.
    fn move_to(&mut self, file: &OwnedFd, ranges: &Ranges) -> io::Result<()> {
        // That it cannot is no conflict with anybody.
        let failed = |error: io::Error| io::Error::other(error);
        let file = file.try_clone().map_err(failed)?;
        tell_kernel(&file, &strongest([].iter()), ranges).map_err(failed)?;
        set(&self.file, ALL, None).map_err(failed)?;
        self.file = file;
        Ok(())
    }

    /// The kernel was asked for more than comes to be.
    fn take_back(&mut self, reached: &Ranges) {
        let _ = tell_kernel(&self.file, reached, &self.strongest());
    }
}

static EMPTY: State = State(Vec::new());

const ALL: Bytes = Bytes { first: 0, last: i64::MAX };

/// All bytes, and which lock each range has.
type Ranges = Vec<(Bytes, Option<Mode>)>;

impl RecordLocks {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self) -> Object {
        Object::Lock(self.inode.0, self.inode.1)
    }

    /// For a change that comes next.
    fn changing(self: &Arc<Self>) -> (Object, Intent) {
        let turn = self.inner().states.last().map_or(1, |(turn, _)| turn + 1);
        (self.object(), Intent::Records(RecordsBefore { locks: Arc::clone(self), turn }))
    }

    fn changed(&self, state: State) {
        let mut inner = self.inner();
        let turn = inner.states.last().map_or(1, |(turn, _)| turn + 1);
        inner.states.push((turn, state));
    }

    /// What is certain, and follows something else that is, replaces that.
    fn settle(&self, is_all_certain: bool) {
        let mut inner = self.inner();
        let certain = if is_all_certain { u64::MAX } else { inner.certain };
        let Some(first) = inner.states.iter().rposition(|&(turn, _)| turn <= certain) else { return };
        inner.give_up(|states| drop(states.drain(..first)));
    }

    fn is_needless(&self) -> bool {
        self.inner().states.iter().all(|(_, state)| state.0.is_empty())
    }
}

impl Drop for RecordLocks {
    fn drop(&mut self) {
        // The program may still have the open file.
        self.inner().give_up(Vec::clear);
    }
}

impl RecordsBefore {
    /// The kernel keeps nothing that only this change, or a later one, would have.
    pub fn restore(&self) {
        self.locks.inner().give_up(|states| states.retain(|&(turn, _)| turn < self.turn));
    }

    /// It can fail no more.
    pub fn is_certain(&self) {
        let mut inner = self.locks.inner();
        inner.certain = inner.certain.max(self.turn);
    }
}

impl RecordLockedFiles {
    /// Whether no lock is ours.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|locks| locks.is_needless())
    }

    fn of(&self, inode: Inode) -> Option<Arc<RecordLocks>> {
        self.0.iter().find(|locks| locks.inode == inode).cloned()
    }

    /// Whether somebody's locks of a file are kept here.
    pub fn knows(&self, inode: Inode) -> bool {
        self.of(inode).is_some()
    }

    fn known_or_new(&mut self, inode: Inode, file: OwnedFd) -> Arc<RecordLocks> {
        if let Some(locks) = self.of(inode) {
            return locks;
        }
        let inner = Inner { file, states: vec![(0, State::default())], certain: 0 };
        let locks = Arc::new(RecordLocks { inode, inner: Mutex::new(inner) });
        self.0.push(Arc::clone(&locks));
        locks
    }

    fn owned_by(&self, pid: ProcessId) -> Vec<Arc<RecordLocks>> {
        self.0.iter().filter(|locks| locks.inner().now().has(pid)).cloned().collect()
    }

    /// Whether a process has any.
    pub fn has_owner(&self, pid: ProcessId) -> bool {
        self.0.iter().any(|locks| locks.inner().now().has(pid))
    }

    pub fn is_owner_of(&self, pid: ProcessId, inode: Inode) -> bool {
        self.of(inode).is_some_and(|locks| locks.inner().now().has(pid))
    }

    /// A process has ended. Who ended on a guess has given up its locks then, and what is held comes before that; from
    /// whoever has not been asked they are taken now, and it never comes back to them.
    pub fn ended(&mut self, pid: ProcessId) {
        for locks in self.owned_by(pid) {
            locks.inner().give_up(|states| states.iter_mut().for_each(|(_, state)| *state = state.without(pid)));
        }
    }
}

/// A request, looked at.
struct Request {
    wanted: Wanted,
    bytes: Bytes,
    /// It counts from the position of the open file.
    is_at_position: bool,
}

/// Why a request is not answered here.
enum Other {
    /// The kernel refuses it, whoever has a lock.
    Refused,
    /// It counts from the end, and what that is may be held.
    Unsure,
}

impl Request {
    fn of(call: &Call, file: &OwnedFd, is_size_known: bool) -> std::result::Result<Self, Other> {
        let [_, command, at, ..] = call.frame.args;
        let words: [u64; 3] = [0, 8, 16].map(|offset| tracee::read_value(call.tid, at + offset).unwrap_or(u64::MAX));
        let (kind, whence) = (i32::from(words[0] as i16), i32::from((words[0] >> 16) as i16));
        let mode = match kind {
            libc::F_RDLCK => Some(Mode::Shared),
            libc::F_WRLCK => Some(Mode::Exclusive),
            libc::F_UNLCK => None,
            _ => return Err(Other::Refused),
        };
        let access = rustix::fs::fcntl_getfl(file).map_err(|_| Other::Unsure)?;
        if access.contains(OFlags::PATH) {
            return Err(Other::Refused);
        }
        let wanted = match (command as i32, mode) {
            (libc::F_GETLK, None) => return Err(Other::Refused),
            (libc::F_GETLK, Some(mode)) => Wanted::Look(mode),
            (_, None) => Wanted::Unlock,
            (command, Some(mode)) => {
                let needless = if mode == Mode::Shared { OFlags::WRONLY } else { OFlags::RDONLY };
                if access & OFlags::RWMODE == needless {
                    return Err(Other::Refused);
                }
                Wanted::Lock { mode, waits: command == libc::F_SETLKW }
            }
        };
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => rustix::fs::seek(file, SeekFrom::Current(0)).map_err(|_| Other::Unsure)? as i64,
            libc::SEEK_END if is_size_known => rustix::fs::fstat(file).map_err(|_| Other::Unsure)?.st_size,
            libc::SEEK_END => return Err(Other::Unsure),
            _ => return Err(Other::Refused),
        };
        let start = base.checked_add(words[1] as i64).ok_or(Other::Refused)?;
        let bytes = Bytes::at(start, words[2] as i64).ok_or(Other::Refused)?;
        Ok(Self { wanted, bytes, is_at_position: whence == libc::SEEK_CUR })
    }
}

impl Supervisor {
    /// `F_GETLK`, `F_SETLK` or `F_SETLKW`.
    pub(in crate::ahead) fn lock_record(&mut self, stopped: &Stopped, call: &mut Call) -> Result<Decision> {
        let is_speculative = self.ahead.is_speculative(call.pid);
        let FileDescription::File {
            dev,
            ino,
            device: DeviceKind::Domain | DeviceKind::ReadOnly | DeviceKind::Memory,
            copy,
        } = self.file_description(call.tid, call.frame.args[0] as i32)
        else {
            return Ok(if is_speculative { self.wait_at_barrier(call) } else { Decision::Go });
        };
        let known = self.ahead.record_locks.of((dev, ino));
        let is_known = |locks: &Arc<RecordLocks>| !self.is_certain(locks) || locks.inner().now().has(call.pid);
        if !is_speculative && !known.as_ref().is_some_and(is_known) {
            // Whatever others have is what the kernel says.
            return Ok(Decision::Go);
        }
        let is_size_known = !is_speculative && known.as_ref().is_some_and(|locks| self.is_certain(locks));
        let request = match Request::of(call, &copy, is_size_known) {
            Ok(request) => request,
            Err(Other::Refused) => return Ok(Decision::Go),
            Err(Other::Unsure) => return Ok(self.wait_at_barrier(call)),
        };
        if self.may_have_locks_of(call.pid, ino) || self.shares_descriptors(call.pid) {
            // Those of the kernel are its own, and others are in their way.
            let only_gives_up = request.wanted == Wanted::Unlock && !is_speculative;
            return Ok(if only_gives_up { Decision::Go } else { self.wait_at_barrier(call) });
        }
        self.world().options.fetch_or(option::FILES_LOCKED, Ordering::SeqCst);
        let position = request.is_at_position.then(|| position_of(dev, ino));
        match request.wanted {
            Wanted::Look(mode) => {
                self.look_at_record(stopped, call, (dev, ino), &copy, (request.bytes, mode, position))
            }
            Wanted::Unlock => match known.filter(|locks| locks.inner().now().has(call.pid)) {
                Some(locks) => {
                    let state = locks.inner().now().with(call.pid, request.bytes, None);
                    self.change_records(stopped, call, &locks, state, position)
                }
                None => Ok(Decision::Answer(0)),
            },
            Wanted::Lock { mode, waits } => {
                self.take_record(stopped, call, (dev, ino), copy, (request.bytes, mode, waits, position))
            }
        }
    }

    /// Whether all that is known of a file's locks is true, and the kernel's.
    fn is_certain(&self, locks: &RecordLocks) -> bool {
        self.ahead.core.dependencies_of_object(&locks.object()).is_empty() && locks.inner().states.len() == 1
    }

    fn shares_descriptors(&self, pid: ProcessId) -> bool {
        let flags = |slot: usize| self.world().processes[slot].flags.load(Ordering::Relaxed);
        let slot = self.tracees.get(&pid.leader()).map(|tracee| tracee.process);
        slot.is_none_or(|slot| flags(slot) & agent_abi::PROCESS_SHARES_STATE != 0)
    }

    fn take_record(
        &mut self,
        stopped: &Stopped,
        call: &mut Call,
        inode: Inode,
        copy: OwnedFd,
        (bytes, mode, waits, position): (Bytes, Mode, bool, Option<Object>),
    ) -> Result<Decision> {
        const PATIENCE: Duration = Duration::from_millis(10);
        let kernel = |source| tracee::TraceError::kernel("keep an open file", call.tid, source);
        let locks = self.ahead.record_locks.known_or_new(inode, copy.try_clone().map_err(kernel)?);
        let conflict = locks.inner().now().conflict(call.pid, bytes, mode);
        if let Some(other) = conflict {
            if self.ahead.children.held_exits.contains_key(&other.owner) {
                return Ok(self.wait_at_barrier(call));
            }
            return match waits {
                // Until it is given up on this guess, or the guess is resolved.
                true => Ok(Decision::Wait),
                false => self.refuse_record(stopped, call, inode, position),
            };
        }
        let state = locks.inner().now().with(call.pid, bytes, Some(mode));
        let reached = locks.inner().reach(&state, &copy);
        match reached {
            Ok(reached) => {
                let decision = self.change_records(stopped, call, &locks, state, position);
                if !matches!(decision, Ok(Decision::Answer(_))) {
                    locks.inner().take_back(&reached);
                }
                decision
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => match waits {
                false => self.refuse_record(stopped, call, inode, position),
                true if self.ahead.is_speculative(call.pid) => Ok(self.wait_at_barrier(call)),
                true => {
                    // Nobody tells us when somebody outside gives it up.
                    call.not_before = Some(Instant::now() + PATIENCE);
                    Ok(Decision::Wait)
                }
            },
            Err(_) => Ok(self.wait_at_barrier(call)),
        }
    }

    /// Somebody has it.
    fn refuse_record(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        (dev, ino): Inode,
        position: Option<Object>,
    ) -> Result<Decision> {
        let observing = observing(Object::Lock(dev, ino), position);
        self.answer_known(stopped, call, observing, -i64::from(libc::EAGAIN))
    }

    /// The world knows of another state.
    fn change_records(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        locks: &Arc<RecordLocks>,
        state: State,
        position: Option<Object>,
    ) -> Result<Decision> {
        let plan = position.into_iter().fold(Plan::tracked_once(), Plan::observing);
        if matches!(self.track(stopped, call, plan, vec![locks.changing()])?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        locks.changed(state);
        self.settle_locks();
        // Whoever had it before may have left something that is not committed.
        self.observe_everything(call.tid);
        Ok(Decision::Answer(0))
    }

    /// Who is in the way of a lock.
    fn look_at_record(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        inode: Inode,
        copy: &OwnedFd,
        (bytes, mode, position): (Bytes, Mode, Option<Object>),
    ) -> Result<Decision> {
        let known = self.ahead.record_locks.of(inode);
        let conflict = known.as_ref().and_then(|locks| locks.inner().now().conflict(call.pid, bytes, mode));
        let found = match (conflict, &known) {
            (Some(lock), _) => Ok(described(lock.bytes, Some(lock.mode), lock.owner.as_raw())),
            // Ours are not in our way.
            (None, Some(locks)) => look(&locks.inner().file, bytes, mode),
            (None, None) => look(copy, bytes, mode),
        };
        let is_kept = conflict.is_some_and(|lock| self.ahead.children.held_exits.contains_key(&lock.owner));
        let (Ok(found), false, true) = (found, is_kept, self.counts_as_we_do(call.tid)) else {
            return Ok(self.wait_at_barrier(call));
        };
        let observing = observing(Object::Lock(inode.0, inode.1), position);
        let decision = self.answer_known(stopped, call, observing, 0)?;
        if matches!(decision, Decision::Answer(_)) {
            let kind = found.l_type.to_ne_bytes();
            let mut told = [kind, found.l_whence.to_ne_bytes(), [0; 2], [0; 2]].concat();
            told.extend(found.l_start.to_ne_bytes());
            told.extend(found.l_len.to_ne_bytes());
            told.extend(found.l_pid.to_ne_bytes());
            let is_free = i32::from(found.l_type) == libc::F_UNLCK;
            let told = if is_free { &kind[..] } else { &told[..] };
            if tracee::write_bytes(call.tid, call.frame.args[2], told).is_err() {
                return Ok(Decision::Answer(-i64::from(libc::EFAULT)));
            }
        }
        Ok(decision)
    }

    /// Whether a process has record locks of a file that are its own.
    fn may_have_locks_of(&self, pid: ProcessId, inode: u64) -> bool {
        let is_one = |lock: &procfs::FileLock| {
            lock.kind == procfs::LockKind::Record && lock.pid == Some(pid) && lock.inode == inode
        };
        procfs::file_locks().map_or(true, |locks| locks.iter().any(is_one))
    }

    /// A process closes descriptors of these files: whichever they are, its locks go.
    pub(in crate::ahead) fn close_locked(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        mut plan: Plan,
        files: &[Inode],
    ) -> Result<Decision> {
        let fails = match call.frame.nr {
            nr::dup2 | nr::dup3 => self.copy_descriptor(call.tid, call.frame.args[0] as i32).is_err(),
            // CLOSE_RANGE_CLOEXEC closes nothing yet, CLOSE_RANGE_UNSHARE does.
            nr::close_range => call.frame.args[2] & !2 != 0,
            _ => false,
        };
        let mut modifies = std::mem::take(&mut plan.modifies);
        let mut locked = self.ahead.record_locks.owned_by(call.pid);
        locked.retain(|locks| !fails && files.contains(&locks.inode));
        modifies.extend(locked.iter().map(RecordLocks::changing));
        let decision = self.track(stopped, call, plan, modifies)?;
        if !matches!(decision, Decision::Wait) {
            self.gave_up_records(call.pid, &locked);
        }
        Ok(decision)
    }

    /// The end of a process gives up all that it has: what is changed by it.
    pub(in crate::ahead) fn give_up_all_records(
        &self,
        pid: ProcessId,
        modifies: &mut Vec<(Object, Intent)>,
    ) -> Vec<Arc<RecordLocks>> {
        let locked = self.ahead.record_locks.owned_by(pid);
        modifies.extend(locked.iter().map(RecordLocks::changing));
        locked
    }

    pub(in crate::ahead) fn gave_up_records(&mut self, pid: ProcessId, locked: &[Arc<RecordLocks>]) {
        for locks in locked {
            let state = locks.inner().now().without(pid);
            locks.changed(state);
        }
        if !locked.is_empty() {
            self.settle_locks();
        }
    }

    /// A program has begun, in a process that depends on nothing: the descriptors that it was not given are closed.
    pub(in crate::ahead) fn records_after_exec(&mut self, pid: ProcessId) {
        let mut locked = self.ahead.record_locks.owned_by(pid);
        if locked.is_empty() || self.ahead.is_speculative(pid) {
            return;
        }
        let fds = self.descriptors_of(pid).unwrap_or_default();
        let found = |fd: i32| MagicLink::Fd(fd).metadata(pid).ok().map(|found| (found.dev(), found.ino()));
        let open: Vec<Inode> = fds.into_iter().filter_map(found).collect();
        locked.retain(|locks| !open.contains(&locks.inode));
        self.gave_up_records(pid, &locked);
    }

    /// What was held has been made: what was given up after it is.
    pub(in crate::ahead) fn settle_record_locks(&mut self) {
        let core = &self.ahead.core;
        self.ahead.record_locks.0.retain(|locks| {
            let is_certain = core.dependencies_of_object(&locks.object()).is_empty();
            locks.settle(is_certain);
            !is_certain || !locks.is_needless()
        });
    }
}

fn observing(object: Object, position: Option<Object>) -> Plan {
    position.into_iter().fold(Plan::tracked_once().observing(object), Plan::observing)
}

/// What the kernel knows to be in the way of a lock of ours.
fn look(file: &OwnedFd, bytes: Bytes, mode: Mode) -> io::Result<libc::flock> {
    let mut asked = described(bytes, Some(mode), 0);
    record_lock(file.as_fd(), RecordCommand::Look, &mut asked)?;
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProcessId = ProcessId::from_raw(1);
    const B: ProcessId = ProcessId::from_raw(2);

    fn bytes(first: i64, last: i64) -> Bytes {
        Bytes { first, last }
    }

    #[test]
    fn ranges_are_split_and_joined() {
        let state = State::default().with(A, bytes(0, 9), Some(Mode::Shared));
        let split = state.with(A, bytes(3, 5), Some(Mode::Exclusive));
        let modes: Vec<_> = split.0.iter().map(|lock| (lock.bytes, lock.mode)).collect();
        let shared = |first, last| (bytes(first, last), Mode::Shared);
        assert_eq!(modes, [shared(0, 2), (bytes(3, 5), Mode::Exclusive), shared(6, 9)]);
        let joined = split.with(A, bytes(3, 5), None).with(A, bytes(3, 5), Some(Mode::Shared));
        assert_eq!(joined.0.len(), 1);
        assert_eq!(joined.conflict(B, bytes(9, i64::MAX), Mode::Shared), None);
        assert!(joined.conflict(B, bytes(9, i64::MAX), Mode::Exclusive).is_some());
        assert!(joined.conflict(A, bytes(9, i64::MAX), Mode::Exclusive).is_none());
    }

    #[test]
    fn the_strongest_that_any_state_has() {
        let one = State::default().with(A, bytes(0, 9), Some(Mode::Shared));
        let two = one.with(A, bytes(0, i64::MAX), None).with(B, bytes(5, i64::MAX), Some(Mode::Exclusive));
        let found: Vec<_> =
            strongest([&one, &two].into_iter()).into_iter().filter(|(_, mode)| mode.is_some()).collect();
        let exclusive = |first, last| (bytes(first, last), Some(Mode::Exclusive));
        assert_eq!(found, [(bytes(0, 4), Some(Mode::Shared)), exclusive(5, 9), exclusive(10, i64::MAX)]);
    }

    #[test]
    fn lengths() {
        assert_eq!(Bytes::at(5, 0), Some(bytes(5, i64::MAX)));
        assert_eq!(Bytes::at(5, -5), Some(bytes(0, 4)));
        assert_eq!(Bytes::at(5, -6), None);
        assert_eq!(Bytes::at(i64::MAX, 2), None);
        assert_eq!(bytes(5, i64::MAX).len(), 0);
    }
}
