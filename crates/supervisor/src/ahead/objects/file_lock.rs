//! Locks of open files (`flock`) that were there before the guess
//! ([0170](../../../../../docs/decisions/0170-a-lock-is-taken-in-earnest.md)). A lock that can be had at once is
//! taken in earnest: who holds it must not meet somebody outside who holds it, too. A rollback gives it back. That it
//! is given up is held, as writes are, and made after those that were made under it: whoever gets it next, outside,
//! finds them. Where nothing is to be found, and no rollback can lead to a moment at which the program has the lock,
//! it is given up at once ([0230](../../../../../docs/decisions/0230-a-lock-under-which-nothing-was-changed.md)).
//!
//! Otherwise the kernel says "taken" of a lock that its program has given up. Whoever inside wants it then gets that
//! open file in the place of its own, if nobody else has either of them; otherwise it waits.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::objects::kind::info_of;
use crate::ahead::rollback::undo::{is_close_on_exec, position_of, Descriptor, Intent, Undo};
use crate::ahead::{process, Call, Object, Written};
use crate::event_loop::Supervisor;
use agent_abi::{option, DeviceKind};
use procfs::{MagicLink, ProcessId};
use rustix::fs::{FlockOperation, SeekFrom};
use speculation::{DependencySet, Dependent};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use syscall_table::{Ahead, Op};
use tracee::{Result, Stopped};

/// Device and inode.
type Inode = (u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Shared,
    Exclusive,
}

/// What `flock` is asked for.
enum Wanted {
    Lock { mode: Mode, waits: bool },
    Unlock,
}

impl Wanted {
    /// `None`: the kernel refuses it.
    fn of(operation: u64) -> Option<Self> {
        let waits = operation as i32 & libc::LOCK_NB == 0;
        match operation as i32 & !libc::LOCK_NB {
            libc::LOCK_SH => Some(Self::Lock { mode: Mode::Shared, waits }),
            libc::LOCK_EX => Some(Self::Lock { mode: Mode::Exclusive, waits }),
            libc::LOCK_UN => Some(Self::Unlock),
            _ => None,
        }
    }
}

impl Mode {
    /// Without waiting.
    fn operation(self) -> FlockOperation {
        match self {
            Self::Shared => FlockOperation::NonBlockingLockShared,
            Self::Exclusive => FlockOperation::NonBlockingLockExclusive,
        }
    }
}

/// An open file whose lock was taken or given up on a guess.
#[derive(Debug)]
pub(crate) struct LockedFile {
    inode: Inode,
    file: OwnedFd,
    /// Counts how often it was locked: a release that is held is that of one of them.
    turn: AtomicU64,
    /// Its program has given it up, and the kernel has not been told.
    is_given_up: AtomicBool,
    /// Releases up to that of this turn can fail no more.
    certain: AtomicU64,
    /// What was to be shown later when the kernel was asked for the lock.
    later: Mutex<Option<ShownLater>>,
}

/// What calls have left to be shown outside when the guess is right, up to some moment. Two of these are equal if
/// nothing was added between them.
#[derive(Debug, PartialEq, Eq)]
struct ShownLater {
    calls: u64,
    /// What is stored in mirrors passes no call.
    mirrors: Vec<(Inode, Vec<u8>)>,
}

/// What its lock was: what undoes a change of it.
#[derive(Debug)]
pub(crate) struct LockBefore {
    locked: Arc<LockedFile>,
    had_none: bool,
    turn: u64,
    is_given_up: bool,
}

/// That a lock is given up, held.
#[derive(Debug)]
pub(crate) struct HeldRelease {
    locked: Arc<LockedFile>,
    turn: u64,
}

/// The locks that guesses have changed.
#[derive(Debug, Default)]
pub(in crate::ahead) struct FileLocks {
    known: Vec<Weak<LockedFile>>,
    /// What undoes nothing any more, but keeps files open whose locks go when what is held has been made.
    leaving: Vec<Undo>,
    /// Counts calls that may have left something to be shown later.
    calls_shown_later: u64,
}

impl FileLocks {
    fn of(&mut self, inode: Inode) -> Vec<Arc<LockedFile>> {
        self.known.retain(|locked| locked.strong_count() > 0);
        self.known.iter().filter_map(Weak::upgrade).filter(|locked| locked.inode == inode).collect()
    }

    /// Whether somebody inside has the lock of a file, or only the kernel thinks so.
    pub fn is_taken_inside(&self, (dev, ino): Inode) -> bool {
        let mut known = self.known.iter().filter_map(Weak::upgrade);
        known.any(|locked| locked.inode == (dev, ino) && mode_of(&locked.file).is_some())
    }

    /// The open file, as it is known, or from now on.
    fn note(&mut self, inode: Inode, file: OwnedFd) -> Arc<LockedFile> {
        if let Some(locked) = self.of(inode).into_iter().find(|locked| are_same(&locked.file, &file)) {
            return locked;
        }
        // One that it may have is that of the first turn.
        let locked = LockedFile {
            inode,
            file,
            turn: AtomicU64::new(1),
            is_given_up: AtomicBool::new(false),
            certain: AtomicU64::new(0),
            later: Mutex::new(None),
        };
        let locked = Arc::new(locked);
        self.known.push(Arc::downgrade(&locked));
        locked
    }

    /// Something was done that is shown outside when the guess is right.
    pub fn is_shown_later(&mut self) {
        self.calls_shown_later += 1;
    }

    /// Nothing undoes this any more. What was locked stays so until what is held has been made.
    pub fn roll_forward(&mut self, undo: Undo, may_be_locked: bool) {
        if let Undo::Records(before) = &undo {
            return before.is_certain();
        }
        let is_kept = match &undo {
            Undo::Lock(_) => true,
            Undo::Descriptor { was: Descriptor::Open(file), .. } => may_be_locked && mode_of(file).is_some(),
            _ => false,
        };
        if is_kept {
            self.leaving.push(undo);
        }
    }

    /// What was held has been made.
    pub fn let_go(&mut self) {
        self.leaving.clear();
    }
}

impl LockedFile {
    /// `had_none`: it was not locked.
    fn remember(self: &Arc<Self>, had_none: bool) -> LockBefore {
        LockBefore {
            locked: Arc::clone(self),
            had_none,
            turn: self.turn.load(Ordering::Relaxed),
            is_given_up: self.is_given_up.load(Ordering::Relaxed),
        }
    }

    /// Its program has it (again).
    fn taken(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.is_given_up.store(false, Ordering::Relaxed);
    }

    /// `had_none`: it is not locked.
    fn changing(self: &Arc<Self>, had_none: bool) -> (Object, Intent) {
        (Object::Lock(self.inode.0, self.inode.1), Intent::Lock(self.remember(had_none)))
    }

    fn note_later(&self, later: Option<ShownLater>) {
        *self.later.lock().unwrap_or_else(PoisonError::into_inner) = later;
    }

    /// Whether nothing was done since it was locked that is shown later.
    fn has_seen_nothing(&self, later: Option<&ShownLater>) -> bool {
        later.is_some() && self.later.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == later
    }

    fn unlock(&self) {
        // It cannot fail: the lock is there, or not.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl LockBefore {
    /// The lock is as it was: the open file had none, or still had the one that its program had, or had given up.
    pub fn restore(&self) {
        let (locked, turn) = (&self.locked, self.turn);
        locked.turn.store(turn, Ordering::Relaxed);
        locked.is_given_up.store(self.is_given_up, Ordering::Relaxed);
        let is_released = self.is_given_up && locked.certain.load(Ordering::Relaxed) >= turn;
        if self.had_none || is_released {
            locked.unlock();
        }
    }
}

impl HeldRelease {
    /// It can fail no more. Who has locked it again meanwhile keeps the lock.
    pub fn make(&self) {
        let locked = &self.locked;
        locked.certain.fetch_max(self.turn, Ordering::Relaxed);
        if locked.is_given_up.load(Ordering::Relaxed) && locked.turn.load(Ordering::Relaxed) == self.turn {
            locked.unlock();
        }
    }
}

/// The lock that an open file has.
fn mode_of(file: &OwnedFd) -> Option<Mode> {
    mode_in(&info_of(file).ok()?)
}

/// `lock:  1: FLOCK  ADVISORY  WRITE 27714 fe:00:1234 0 EOF`
fn mode_in(info: &str) -> Option<Mode> {
    let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = locks.map(words).find(|words| words.get(1).is_some_and(|kind| kind == "FLOCK"))?;
    match line.get(3)?.as_str() {
        "READ" => Some(Mode::Shared),
        "WRITE" => Some(Mode::Exclusive),
        _ => None,
    }
}

fn are_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    crate::sys::is_same_file(ProcessId::own(), one.as_raw_fd(), other).unwrap_or(false)
}

impl Supervisor {
    pub(in crate::ahead) fn lock_file(&mut self, stopped: &Stopped, call: &Call, fd: i32) -> Result<Decision> {
        if !self.is_anything_speculative() {
            return Ok(Decision::Go);
        }
        let Some(wanted) = Wanted::of(call.frame.args[1]) else { return Ok(Decision::Go) };
        let FileDescription::File {
            dev,
            ino,
            device: DeviceKind::Domain | DeviceKind::ReadOnly | DeviceKind::Memory,
            copy,
        } = self.file_description(call.tid, fd)
        else {
            return Ok(self.wait_unless_certain(call));
        };
        self.world().options.fetch_or(option::FILES_LOCKED, Ordering::SeqCst);
        let inode = (dev, ino);
        let (mode, waits) = match wanted {
            Wanted::Lock { mode, waits } => (mode, waits),
            Wanted::Unlock => return self.give_up_lock(stopped, call, inode, copy),
        };
        // Before the lock is had: whoever is refused outside because of it has seen no more than this.
        let later = self.shown_later();
        match mode_of(&copy) {
            None if rustix::fs::flock(&copy, mode.operation()).is_ok() => {
                self.took_lock(stopped, call, (inode, copy), later)
            }
            None => self.want_taken_lock(stopped, call, (inode, fd, copy), (mode, waits), later),
            Some(now) if now == mode => self.lock_again(stopped, call, inode, copy),
            // The kernel lets others in between.
            Some(_) => Ok(self.wait_unless_certain(call)),
        }
    }

    fn wait_unless_certain(&mut self, call: &Call) -> Decision {
        match self.ahead.is_speculative(call.pid) {
            true => self.wait_at_barrier(call),
            false => Decision::Go,
        }
    }

    /// The lock has been taken. Whoever has to wait first gives it back.
    fn took_lock(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        (inode, copy): (Inode, OwnedFd),
        later: Option<ShownLater>,
    ) -> Result<Decision> {
        let locked = self.ahead.file_locks.note(inode, copy);
        locked.note_later(later);
        let decision = self.change_lock(stopped, call, &locked, true);
        if !matches!(decision, Ok(Decision::Answer(_))) {
            locked.unlock();
        }
        decision
    }

    /// The kernel knows of it; the program takes it again, or had not given it up.
    fn lock_again(&mut self, stopped: &Stopped, call: &Call, inode: Inode, copy: OwnedFd) -> Result<Decision> {
        let locked = self.ahead.file_locks.note(inode, copy);
        self.change_lock(stopped, call, &locked, false)
    }

    fn change_lock(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        locked: &Arc<LockedFile>,
        had_none: bool,
    ) -> Result<Decision> {
        let modifies = vec![locked.changing(had_none)];
        if matches!(self.track(stopped, call, Plan::tracked_once(), modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        locked.taken();
        // Whoever had it before may have left something that is not committed.
        self.observe_everything(call.tid);
        Ok(Decision::Answer(0))
    }

    fn give_up_lock(&mut self, stopped: &Stopped, call: &Call, inode: Inode, copy: OwnedFd) -> Result<Decision> {
        let locked = self.ahead.file_locks.note(inode, copy);
        let modifies = vec![locked.changing(false)];
        let tracked = self.track(stopped, call, Plan::tracked_once(), modifies)?;
        if matches!(tracked, Decision::Wait) || !self.ahead.is_speculative(call.pid) {
            return Ok(tracked);
        }
        if self.may_be_given_up(&locked) {
            locked.unlock();
            return Ok(Decision::Answer(0));
        }
        let turn = locked.turn.load(Ordering::Relaxed);
        locked.is_given_up.store(true, Ordering::Relaxed);
        self.ahead.file_locks.is_shown_later();
        self.ahead.core.output(process(call.pid), Written::Unlock(HeldRelease { locked, turn }));
        Ok(Decision::Answer(0))
    }

    /// Whether a lock that its program has just given up may be had by somebody outside. Whoever gets it looks for what
    /// was done under it: that must not come later. And what undoes that it was given up must undo that it was taken,
    /// for it could not be had again.
    fn may_be_given_up(&mut self, locked: &Arc<LockedFile>) -> bool {
        let object = Object::Lock(locked.inode.0, locked.inode.1);
        let core = &self.ahead.core;
        let undos: Vec<&Undo> = core.payloads(&object).collect();
        let added = core.log_dependencies(&Dependent::Object(object));
        let takes =
            |undo: &&Undo| matches!(undo, Undo::Lock(before) if before.had_none && Arc::ptr_eq(&before.locked, locked));
        let taken = undos.iter().rposition(takes);
        // An entry that adds a dependency is one where a cut may begin.
        let is_undone_with =
            |at: usize| added.len() == undos.len() && added.iter().skip(at + 1).all(DependencySet::is_empty);
        taken.is_some_and(is_undone_with) && locked.has_seen_nothing(self.shown_later().as_ref())
    }

    /// `None`: it is not known.
    fn shown_later(&self) -> Option<ShownLater> {
        let mirrors = self.ahead.mirrors.contents()?;
        Some(ShownLater { calls: self.ahead.file_locks.calls_shown_later, mirrors })
    }

    /// A call is made. What is not known to be nothing but a look, or to concern only its process, may leave something
    /// to be shown later.
    pub(in crate::ahead) fn note_shown_later(&mut self, call: &Call, decision: &Decision) {
        let is_made = !matches!(decision, Decision::Wait | Decision::Again);
        if is_made && !self.is_shown_at_once(call) {
            self.ahead.file_locks.is_shown_later();
        }
    }

    fn is_shown_at_once(&self, call: &Call) -> bool {
        let (nr, args) = (call.frame.nr, call.frame.args);
        if matches!(syscall_table::ahead(nr), Ahead::Own | Ahead::Free) {
            return true;
        }
        match syscall_table::op(nr) {
            Some(
                Op::Read { .. }
                | Op::ObserveFd { .. }
                | Op::ObservePath { .. }
                | Op::StatPath { .. }
                | Op::Statx
                | Op::Look
                | Op::Poll
                | Op::Select
                | Op::EpollWait
                | Op::Clone
                | Op::Clone3
                | Op::Fork
                | Op::Vfork,
            ) => true,
            // Locks are taken in earnest. What gives one up counts itself, unless it is given up in earnest, too.
            Some(Op::Flock) => true,
            // Go's threads interrupt each other.
            Some(Op::Tgkill) => args[0] == call.pid.as_raw() as u64 && self.counts_as_we_do(call.tid),
            _ => false,
        }
    }

    /// Somebody has it, or only the kernel thinks so.
    fn want_taken_lock(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        (inode, fd, copy): (Inode, i32, OwnedFd),
        (mode, waits): (Mode, bool),
        later: Option<ShownLater>,
    ) -> Result<Decision> {
        let known: Vec<_> =
            self.ahead.file_locks.of(inode).into_iter().filter(|locked| mode_of(&locked.file).is_some()).collect();
        let is_given_up = |locked: &LockedFile| locked.is_given_up.load(Ordering::Relaxed);
        for locked in &known {
            let is_had = !self.holders_of(&locked.file, inode).is_empty();
            if !is_had && self.can_be_exchanged((call.pid, fd), &copy, locked, mode) {
                return self.exchange(stopped, call, (fd, copy), locked);
            }
            if is_had && !is_given_up(locked) {
                if waits {
                    // Until it is given up on this guess, or the guess is resolved.
                    return Ok(Decision::Wait);
                }
                let observing = Plan::tracked_once().observing(Object::Lock(inode.0, inode.1));
                return self.answer_known(stopped, call, observing, -i64::from(libc::EWOULDBLOCK));
            }
        }
        if !known.is_empty() || self.is_lock_kept(inode, &copy) {
            return Ok(self.wait_at_barrier(call));
        }
        // Whoever has it is outside, or has not taken it on a guess.
        let locked = self.ahead.file_locks.note(inode, copy);
        locked.note_later(later);
        let modifies = vec![locked.changing(true)];
        let plan = Plan { can_be_repeated: true, ..Plan::tracked_once() };
        let tracked = self.track(stopped, call, plan, modifies)?;
        if !matches!(tracked, Decision::Wait) {
            locked.taken();
        }
        Ok(tracked)
    }

    /// Who has this open file, of those that have not ended.
    fn holders_of(&mut self, file: &OwnedFd, inode: Inode) -> Vec<(ProcessId, i32)> {
        let own = (ProcessId::own(), file.as_raw_fd());
        let pids: Vec<ProcessId> =
            self.processes().into_iter().filter(|&pid| !self.ahead.children.held_exits.contains_key(&pid)).collect();
        let mut holders = Vec::new();
        for pid in pids {
            for fd in self.descriptors_of(pid).unwrap_or_default() {
                let is_of_file = inode_behind(pid, fd) == Some(inode);
                if is_of_file && crate::sys::are_same_file(own, (pid, fd)).unwrap_or(true) {
                    holders.push((pid, fd));
                }
            }
        }
        holders
    }

    /// Whether a descriptor may become that of an open file that nobody has any more, and nobody can tell.
    fn can_be_exchanged(&mut self, own: (ProcessId, i32), copy: &OwnedFd, locked: &LockedFile, mode: Mode) -> bool {
        let options = self.world().options.load(Ordering::Relaxed);
        let path = |file: &OwnedFd| procfs::own_name(file).ok();
        let flags = |file: &OwnedFd| rustix::fs::fcntl_getfl(file).ok();
        options & (option::DESCRIPTORS_PASSED | option::DESCRIPTORS_TAKEN) == 0
            && mode_of(&locked.file) == Some(mode)
            && flags(copy).is_some()
            && flags(copy) == flags(&locked.file)
            && path(copy) == path(&locked.file)
            && self.holders_of(copy, locked.inode) == [own]
    }

    /// The caller gets the open file that has the lock.
    fn exchange(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        (fd, copy): (i32, OwnedFd),
        locked: &Arc<LockedFile>,
    ) -> Result<Decision> {
        let kernel = |source| tracee::TraceError::kernel("exchange an open file", call.tid, source);
        let ((dev, ino), file) = (locked.inode, locked.file.try_clone().map_err(kernel)?);
        let modifies = vec![
            (position_of(dev, ino), Intent::Position(file)),
            (Object::Descriptors(call.pid), Intent::Close(fd)),
            locked.changing(false),
        ];
        if matches!(self.track(stopped, call, Plan::tracked_once(), modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let closes = is_close_on_exec(call.pid, fd).map_err(|error| kernel(io::Error::other(error)))?;
        let position = rustix::fs::seek(&copy, SeekFrom::Current(0)).unwrap_or(0);
        let _ = rustix::fs::seek(&locked.file, SeekFrom::Start(position));
        self.install(stopped, call.pid, fd, &locked.file, closes)?;
        locked.taken();
        self.observe_everything(call.tid);
        Ok(Decision::Answer(0))
    }

    /// Whether a lock is only held because we keep open what was closed on a guess, or a process whose end is held.
    fn is_lock_kept(&mut self, inode: Inode, copy: &OwnedFd) -> bool {
        let own = ProcessId::own();
        let ended: Vec<ProcessId> = self.ahead.children.held_exits.keys().copied().collect();
        let is_locked = |(pid, fd): (ProcessId, i32)| {
            inode_behind(pid, fd) == Some(inode)
                && procfs::text(pid, &format!("fdinfo/{fd}")).map_or(true, |info| mode_in(&info).is_some())
        };
        for pid in ended.into_iter().chain([own]) {
            let Ok(open) = self.descriptors_of(pid) else { return true };
            if open.into_iter().any(|fd| (pid, fd) != (own, copy.as_raw_fd()) && is_locked((pid, fd))) {
                return true;
            }
        }
        false
    }

    /// Whether an open file may have a lock that goes with it.
    pub(in crate::ahead) fn is_file_locked(&self, file: &OwnedFd) -> bool {
        self.may_files_be_locked() && mode_of(file).is_some()
    }

    /// Whether anybody inside has ever locked one.
    pub(in crate::ahead) fn may_files_be_locked(&self) -> bool {
        self.world().options.load(Ordering::Relaxed) & option::FILES_LOCKED != 0
    }
}

/// The file of a descriptor of a process.
fn inode_behind(pid: ProcessId, fd: i32) -> Option<Inode> {
    let found = MagicLink::Fd(fd).metadata(pid).ok()?;
    Some((found.dev(), found.ino()))
}
