//! Vessels: taken, put back, given up.
//!
//! The process forks by itself, made to do so through [`RemoteCalls`]. The kernel attaches the copy to us at its birth
//! (`CLONE_PTRACE`), stopped. Fork copies nearly everything; what it does not copy is noted here at the time: timers,
//! pending signals, the list of robust futexes.

use crate::answer::Caller;
use crate::areas::{self, Area};
use crate::reap::{Dying, ToReap};
use crate::state::{self, Timers};
use crate::threads::Others;
use crate::{layout, pages, CheckpointError, Copied, Result, VesselId};
use procfs::{Advice, MagicLink, ProcessId, Status, TaskId, ThreadId};
use std::cell::{Cell, OnceCell};
use std::sync::OnceLock;
use tracee::process_state as outside;
use tracee::{Registers, SignalInfo, Stop, Stopped};

const CLOSE_RANGE_UNSHARE: u64 = 2;
/// Of the clone that makes a vessel.
const FLAGS: u64 = (libc::CLONE_PTRACE | libc::CLONE_FILES) as u64;
const KEPT_FROM_CHILDREN: &str = "memory that is not given to children (MADV_DONTFORK)";
const WIPED_IN_CHILDREN: &str = "memory that is wiped in children (MADV_WIPEONFORK)";
const ORIGINAL_CALL_RESTARTED: u64 = libc::SYS_restart_syscall as u64;

/// What the caller knows of a process, so that it need not be looked for at each checkpoint. Nothing, if in doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// It has one thread.
    pub one_thread: bool,
    /// It has neither interval timers nor POSIX timers.
    pub no_timers: bool,
    /// It does not run in its parent's memory (`vfork`, `CLONE_VM`).
    pub own_memory: bool,
    /// It keeps no memory from its children (`MADV_DONTFORK`).
    pub inherited_memory: bool,
    /// It has not said of any memory that children do not get it, or get zeroes (`MADV_WIPEONFORK`).
    pub no_advice: bool,
    /// A thread of it, and the processors on which it may run, where that is not what the kernel says at the moment.
    pub affinity_of: Option<(ThreadId, Vec<u64>)>,
}

/// A checkpoint of a process (000, 5.1).
///
/// A vessel is *settled* once it has let go of what others could notice. Until then it is in its process's group and
/// has its table of descriptors in common with it: it holds nothing open by itself, but would if the process went on
/// with another table (exec, the end).
#[derive(Debug)]
#[must_use = "a vessel is either discarded or kept: dropped, it stays until its tracer ends"]
pub struct Vessel {
    vessel: VesselId,
    /// From its first stop on, which need not be waited for before it is needed.
    held: OnceCell<Stopped>,
    is_settled: Cell<bool>,
    of: ProcessId,
    gate: u64,
    registers: Registers,
    /// Where the vessel's own may lack something.
    extended: Option<Vec<u8>>,
    mask: u64,
    signal: Option<SignalInfo>,
    pending: Vec<(SignalInfo, bool)>,
    robust_list: (u64, u64),
    affinity: Vec<u64>,
    timers: Timers,
}

impl Vessel {
    /// Take a checkpoint of a process that has one thread. `gate` is the address of a `syscall` instruction in it.
    ///
    /// Afterwards the process stands where it stood, with all its registers. Stopped at the entry of a call it is no
    /// longer *in* the call: see [`Stopped::repeat_call`].
    pub fn fork(p: &Stopped, gate: u64) -> Result<Self> {
        let vessel = Self::fork_known(p, gate, Known::default(), &mut Vec::new())?;
        match vessel.settle() {
            Ok(()) => Ok(vessel),
            Err(error) => vessel.discard(Some((p, gate))).and(Err(error)),
        }
    }

    /// The same, without looking for what the caller knows; and reap dead vessels of the same process, which costs less
    /// now than at a stop of its own: afterwards, `zombies` has those that are left. The vessel is not settled, and
    /// nobody has waited for its first stop: if whoever waits for all tracees sees it first, see [`Self::adopt`].
    pub fn fork_known(p: &Stopped, gate: u64, known: Known, zombies: &mut Vec<ToReap>) -> Result<Self> {
        Self::fork_among(p, gate, known, zombies, 1)
    }

    /// The same of a process that has so many threads, which are all stopped.
    pub(crate) fn fork_among(
        p: &Stopped,
        gate: u64,
        known: Known,
        zombies: &mut Vec<ToReap>,
        company: u64,
    ) -> Result<Self> {
        let of = p.tid().leads();
        refuse(p, &known, company)?;
        let pending = pending(p)?;
        let extended = if inherits_extended_state(p)? { None } else { Some(p.extended_state()?) };
        let robust_list = p.robust_list().map_err(CheckpointError::access("robust list", of))?;
        let affinity = match known.affinity_of {
            Some((confined, affinity)) if confined == p.tid() => affinity,
            _ => outside::affinity(p.tid()).map_err(CheckpointError::access("affinity", of))?,
        };
        let mut caller = Caller::of(p, gate, company > 1)?;
        while let Some(zombie) = zombies.pop() {
            zombie.reap(&mut caller)?;
        }
        let timers = if known.no_timers { Timers::default() } else { Timers::of(&mut caller)? };
        // The table of descriptors is shared: it need not be copied only to be emptied.
        let vessel = caller.call("clone", libc::SYS_clone, &[FLAGS])?;
        let vessel = VesselId::from_raw(vessel as i32);
        let (registers, mask, signal) = (*caller.calls.registers(), caller.calls.mask(), caller.calls.signal());
        let this = Self {
            vessel,
            held: OnceCell::new(),
            is_settled: Cell::new(false),
            of,
            gate,
            registers,
            extended,
            mask,
            signal,
            pending,
            robust_list,
            affinity,
            timers,
        };
        let is_whole = known.inherited_memory || has_all_memory(of, vessel)?;
        let done = if is_whole { Ok(()) } else { Err(CheckpointError::Unsupported(KEPT_FROM_CHILDREN)) };
        match done.and(caller.finish()) {
            Ok(()) => Ok(this),
            // A process that was killed meanwhile needs no checkpoint, and nobody would know of this one.
            Err(error @ CheckpointError::Trace(_)) => this.give_up().map(Dying::await_end).and(Err(error)),
            Err(error) if company > 1 => this.discard_among(p, gate).and(Err(error)),
            Err(error) => this.discard(Some((p, gate))).and(Err(error)),
        }
    }

    /// Its first stop, if that was seen by whoever waits for all tracees.
    pub fn adopt(&self, stopped: Stopped) {
        debug_assert_eq!(stopped.tid(), self.vessel.thread());
        let _it_has_but_one = self.held.set(stopped);
    }

    fn held(&self) -> Result<&Stopped> {
        if let Some(held) = self.held.get() {
            return Ok(held);
        }
        let stopped = tracee::await_stop(self.vessel.thread())?.ok_or(tracee::TraceError::Gone(self.vessel.into()))?;
        Ok(self.held.get_or_init(|| stopped))
    }

    /// Let go of what others could notice: descriptors (an end of a pipe that stays open), and its place in a process
    /// group (which is there as long as somebody is in it, and which signals are sent to).
    pub fn settle(&self) -> Result<()> {
        if self.is_settled.get() {
            return Ok(());
        }
        let mut caller = self.caller()?;
        caller.call("close_range", libc::SYS_close_range, &[0, u64::from(u32::MAX), CLOSE_RANGE_UNSHARE])?;
        caller.call("setsid", libc::SYS_setsid, &[])?;
        caller.finish()?;
        self.is_settled.set(true);
        Ok(())
    }

    /// Whether a thread that has just been born is a vessel, whose process was killed before it could tell of it: born
    /// by a call of ours, which are made on no stack.
    pub fn is_stray(newborn: &Registers) -> bool {
        newborn.rsp == 0 && newborn.rdi == FLAGS && newborn.rax == 0
    }

    fn caller(&self) -> Result<Caller<'_>> {
        Caller::of(self.held()?, self.gate, false)
    }

    /// The vessel's own number.
    pub fn id(&self) -> VesselId {
        self.vessel
    }

    /// Whose checkpoint it is.
    pub fn of(&self) -> ProcessId {
        self.of
    }

    /// The process's registers when the checkpoint was taken.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The signals that it blocked.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The signal for which it had stopped, if it had: `restore` leaves it to the caller to deliver it
    /// ([`Stopped::resume_with`]).
    pub fn signal(&self) -> Option<SignalInfo> {
        self.signal
    }

    /// The signals that were pending, and whether for the whole process. `restore` sends those again that are not
    /// pending any more.
    pub fn pending(&self) -> &[(SignalInfo, bool)] {
        &self.pending
    }

    /// Put the process back to what it was when the checkpoint was taken. `gate` is the address of a `syscall`
    /// instruction in the program that it runs *now*.
    ///
    /// Afterwards it is stopped with the registers of the checkpoint, whatever it had stopped for before: resume it
    /// with no signal, or with [`Self::signal`]. A system call that had been interrupted begins again. The vessel is as
    /// good as before.
    ///
    /// After an error other than `Unsupported` the process is half of each: kill it.
    pub fn restore(&self, p: &Stopped, gate: u64) -> Result<Copied> {
        self.restore_known(p, gate, Known::default())
    }

    /// The same, without setting what the caller knows to be as it was: `no_timers` says that the process has had none
    /// since it was born.
    pub fn restore_known(&self, p: &Stopped, gate: u64, known: Known) -> Result<Copied> {
        self.restore_among(p, gate, known, &mut Others::none())
    }

    /// The same with other threads.
    pub(crate) fn restore_among(&self, p: &Stopped, gate: u64, known: Known, others: &mut Others) -> Result<Copied> {
        let (pid, vessel) = (p.tid().leads(), self.id());
        if pid != self.of {
            return Err(CheckpointError::Unsupported("another process's checkpoint"));
        }
        // Nobody sees where they are: the vessel never runs, and the process does not yet.
        outside::bring_near(vessel.thread());
        let (now, then) = (Status::of(pid)?, Status::of(vessel)?);
        let (ours, theirs) = (areas::of(pid)?, areas::of(vessel)?);
        refuse_to_restore(pid, vessel, (&now, &ours), (&then, &theirs), others.company())?;
        others.refuse(pid, &now)?;
        state::restore_from_outside(pid, vessel, &self.affinity)?;
        others.restore_from_outside()?;
        let is_in_company = others.is_company();
        others.end_newborn(pid, gate)?;
        outside::bring_near(p.tid());
        let kept = state::Kept::of(&mut self.caller()?, &theirs, &now, &then)?;
        others.unregister(gate)?;
        let mut caller = Caller::of(p, gate, is_in_company)?;
        let rseq = (p.rseq_configuration()?, self.held()?.rseq_configuration()?);
        if rseq.0 != rseq.1 && rseq.0.pointer != 0 {
            // Before its memory goes: the kernel kills a process whose registered area it cannot write.
            state::unregister_rseq(&mut caller, &rseq.0)?;
        }
        let stage = layout::restore(&mut caller, vessel, kept.brk, ours, &theirs)?;
        let scratch = stage.as_ref().map_or(kept.scratch, |stage| stage.data());
        let waiting = pending(p)?;
        others.note_pending()?;
        state::restore(&mut caller, vessel, scratch, &kept, &now, &then)?;
        if !known.no_timers {
            self.timers.set(&mut caller, scratch)?;
        }
        let list = p.robust_list().map_err(CheckpointError::access("robust list", pid))?;
        if list != self.robust_list {
            let (head, len) = self.robust_list;
            caller.call("set_robust_list", libc::SYS_set_robust_list, &[head, len])?;
        }
        self.send_pending(&mut caller, scratch, p, &waiting)?;
        others.give_state(&mut caller, stage.as_ref().map_or(gate, layout::Stage::gate), scratch)?;
        if !known.no_advice {
            take_back_advice(&mut caller)?;
        }
        let copied = pages::restore(&mut caller, vessel, stage.as_ref().map(layout::Stage::range))?;
        if rseq.0 != rseq.1 && rseq.1.pointer != 0 {
            state::register_rseq(&mut caller, &rseq.1)?;
        }
        others.leave(stage.as_ref().map_or(gate, layout::Stage::gate))?;
        if let Some(stage) = stage {
            stage.remove(&mut caller)?;
        }
        match &self.extended {
            Some(extended) => p.set_extended_state(extended)?,
            None => p.set_extended_state(&self.held()?.extended_state()?)?,
        }
        caller.calls.finish_sending_again(&restarting(self.registers), self.mask)?;
        outside::set_affinity(p.tid(), &self.affinity).map_err(CheckpointError::access("affinity", pid))?;
        Ok(copied)
    }

    /// The signals that wait are those that did (`waiting`), also where a disposition that was set has thrown them
    /// away, and those that waited at the checkpoint.
    fn send_pending(
        &self,
        caller: &mut Caller,
        scratch: u64,
        p: &Stopped,
        waiting: &[(SignalInfo, bool)],
    ) -> Result<()> {
        for shared in [false, true] {
            let of = |all: &[(SignalInfo, bool)]| -> Vec<SignalInfo> {
                all.iter().filter(|(_, other)| *other == shared).map(|&(info, _)| info).collect()
            };
            for info in missing(&of(waiting), &of(&self.pending), &pending_of(p, shared)?) {
                // To itself a process may send a signal with anything in it.
                caller.write(scratch, info.as_bytes())?;
                let (pid, signal) = (caller.tid.as_raw() as u64, info.number() as u64);
                match shared {
                    true => {
                        caller.call("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, &[pid, signal, scratch])?;
                    }
                    false => {
                        let arguments = [pid, pid, signal, scratch];
                        caller.call("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, &arguments)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Give the checkpoint up. With its process stopped, nothing is left of it; otherwise a zombie that the process has
    /// to reap later.
    pub fn discard(self, p: Option<(&Stopped, u64)>) -> Result<Option<ToReap>> {
        let zombie = self.give_up()?.await_end();
        match p {
            Some((p, gate)) => ToReap::all([zombie], p, gate, false).map(|()| None),
            None => Ok(Some(zombie)),
        }
    }

    /// The same, of a process with other threads, which are stopped.
    pub(crate) fn discard_among(self, p: &Stopped, gate: u64) -> Result<()> {
        let zombie = self.give_up()?.await_end();
        let mut caller = Caller::of(p, gate, true)?;
        zombie.reap(&mut caller)?;
        caller.finish()
    }

    /// Give the checkpoint up without waiting for its end.
    pub fn give_up(self) -> Result<Dying> {
        tracee::kill(self.vessel.process())?;
        // It may have been confined when it was born: now it may end where there is room for that. Before the kill this
        // would wake another core.
        let _ = outside::set_affinity(self.vessel.thread(), &self.affinity);
        Ok(Dying { vessel: self.vessel, parent: self.of, was_settled: self.is_settled.get() })
    }
}

/// What cannot be kept must not be tried.
fn refuse(p: &Stopped, known: &Known, company: u64) -> Result<()> {
    let pid = p.tid().leads();
    if !(known.one_thread && company == 1) && procfs::thread_count(pid)? != company {
        return Err(CheckpointError::Unsupported("threads that are not stopped"));
    }
    if let Stop::Group(_) = p.stop() {
        return Err(CheckpointError::Unsupported("a process stopped by job control"));
    }
    if !known.no_timers && !procfs::read(pid, "timers")?.is_empty() {
        return Err(CheckpointError::Unsupported("POSIX timers"));
    }
    if !known.no_advice && procfs::advice(pid)?.iter().any(|(_, advice)| is_wiped(advice)) {
        return Err(CheckpointError::Unsupported(WIPED_IN_CHILDREN));
    }
    if known.own_memory {
        return Ok(());
    }
    // A child of vfork runs in its parent's memory. A kernel without kcmp cannot say; a parent in vfork cannot be asked
    // for a checkpoint.
    if shares_memory_with_parent(pid, &Status::of(pid)?)? {
        return Err(CheckpointError::Unsupported("memory shared with the parent (vfork)"));
    }
    Ok(())
}

/// Whether a child has all of its parent's floating-point and vector registers. It has not what is given only to those
/// that ask for it (the tiles of AMX), and where the processor has such, they lie behind all others.
fn inherits_extended_state(p: &Stopped) -> Result<bool> {
    /// Where the first of them begins (Intel SDM, volume 1, 13.4.3; `CPUID.(EAX=0DH,ECX=18)`).
    const TILES_AT: usize = 2816;
    static INHERITS: OnceLock<bool> = OnceLock::new();
    match INHERITS.get() {
        Some(&inherits) => Ok(inherits),
        None => {
            let len = p.extended_state()?.len();
            Ok(*INHERITS.get_or_init(|| len <= TILES_AT))
        }
    }
}

/// What the kernel may drop at any time is nothing that a copy has to have.
fn is_wiped(advice: &Advice) -> bool {
    advice.is_wiped_in_children && !advice.may_be_dropped
}

/// Whoever has a checkpoint had nothing there that children do not get as it is: what has been said since is taken
/// back.
fn take_back_advice(caller: &mut Caller) -> Result<()> {
    for (range, advice) in procfs::advice(caller.tid)? {
        let len = range.end - range.start;
        if advice.is_kept_from_children {
            caller.call("madvise", libc::SYS_madvise, &[range.start, len, libc::MADV_DOFORK as u64])?;
        }
        if is_wiped(&advice) {
            caller.call("madvise", libc::SYS_madvise, &[range.start, len, libc::MADV_KEEPONFORK as u64])?;
        }
    }
    Ok(())
}

/// Memory that is kept from children is missing in the copy. Its size tells, the list of areas would cost more.
fn has_all_memory(of: ProcessId, vessel: VesselId) -> Result<bool> {
    let total = |task: TaskId| -> Result<String> {
        Ok(procfs::text(task, "statm")?.split(' ').next().unwrap_or("").to_owned())
    };
    Ok(total(of.into())? == total(vessel.into())?)
}

/// A kernel without kcmp cannot say, nor can one whose parent is outside of our namespace be compared with it.
fn shares_memory_with_parent(pid: ProcessId, status: &Status) -> Result<bool> {
    Ok(status.parent()?.is_some_and(|parent| outside::same_memory(pid, parent).unwrap_or(false)))
}

fn refuse_to_restore(
    pid: ProcessId,
    vessel: VesselId,
    (now, ours): (&Status, &[Area]),
    (then, theirs): (&Status, &[Area]),
    company: usize,
) -> Result<()> {
    if now.threads()? as usize != company {
        return Err(CheckpointError::Unsupported("threads made since"));
    }
    if now.privileges() != then.privileges() {
        return Err(CheckpointError::Unsupported("privileges or filters changed since"));
    }
    if MagicLink::Root.shown(pid)? != MagicLink::Root.shown(vessel)? {
        return Err(CheckpointError::Unsupported("a root directory changed since"));
    }
    if shares_memory_with_parent(pid, now)? {
        return Err(CheckpointError::Unsupported("memory shared with the parent (vfork)"));
    }
    let special = |areas: &[Area]| areas.iter().any(|area| area.name.contains("hugepage (deleted)"));
    if special(theirs) && !special(ours) {
        return Err(CheckpointError::Unsupported("huge pages given up since"));
    }
    Ok(())
}

fn pending(p: &Stopped) -> Result<Vec<(SignalInfo, bool)>> {
    let mut all = Vec::new();
    for shared in [false, true] {
        all.extend(pending_of(p, shared)?.into_iter().map(|info| (info, shared)));
    }
    Ok(all)
}

/// Signals that wait, of a thread itself or (`shared`) of its process. What an instruction caused comes again with it.
pub(crate) fn pending_of(p: &Stopped, shared: bool) -> Result<Vec<SignalInfo>> {
    Ok(p.pending_signals(shared)?.into_iter().filter(|info| !info.is_synchronous()).collect())
}

/// What is to be sent so that all of `before` and of `kept` waits, where `now` does.
pub(crate) fn missing(before: &[SignalInfo], kept: &[SignalInfo], now: &[SignalInfo]) -> Vec<SignalInfo> {
    let mut wanted = before.to_vec();
    wanted.extend(beside(kept, before));
    beside(&wanted, now)
}

/// Those that do not wait yet where `there` does. A standard signal waits only once, whoever sent it.
fn beside(signals: &[SignalInfo], there: &[SignalInfo]) -> Vec<SignalInfo> {
    let mut there = there.to_vec();
    let mut others = Vec::new();
    for info in signals {
        let is_standard = info.number() <= libc::SIGSYS;
        let is_it = |other: &SignalInfo| match is_standard {
            true => other.number() == info.number(),
            false => other.as_bytes() == info.as_bytes(),
        };
        match there.iter().position(is_it) {
            Some(_) if is_standard => {}
            Some(at) => drop(there.swap_remove(at)),
            None => others.push(*info),
        }
    }
    others
}

/// A call that was interrupted and is to go on with what the kernel remembers of it (`nanosleep`, `poll` with a time
/// limit): the kernel remembers only the last one, so it begins again as a whole, as every call does after a rollback
/// (000, 5.1).
pub(crate) fn restarting(mut registers: Registers) -> Registers {
    const ERESTARTNOHAND: i64 = -514;
    const ERESTART_RESTARTBLOCK: i64 = -516;
    if registers.orig_rax as i64 >= 0 && registers.rax as i64 == ERESTART_RESTARTBLOCK {
        // Interrupted twice, it has lost its number.
        let lost = registers.orig_rax == ORIGINAL_CALL_RESTARTED;
        registers.rax = if lost { -i64::from(libc::EINTR) } else { ERESTARTNOHAND } as u64;
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_sent_once() {
        let [one, other] = [10, 11].map(ProcessId::from_raw);
        let of = |sender, signal| SignalInfo::sent_by(sender, 0, signal);
        let real_time = libc::SIGSYS + 3;
        let pairs = |sent: Vec<SignalInfo>| -> Vec<_> {
            sent.iter().map(|info| (info.number(), info.process().as_raw())).collect()
        };
        // What was thrown away comes back, what waits stays as it is.
        let (child, again) = (of(one, libc::SIGCHLD), of(other, libc::SIGCHLD));
        assert_eq!(pairs(missing(&[child], &[again], &[])), [(libc::SIGCHLD, 10)]);
        assert_eq!(pairs(missing(&[child], &[again], &[child])), []);
        assert_eq!(pairs(missing(&[], &[again], &[])), [(libc::SIGCHLD, 11)]);
        // Of real-time signals each counts.
        let (first, second) = (of(one, real_time), of(other, real_time));
        assert_eq!(pairs(missing(&[second], &[first, second], &[second])), [(real_time, 10)]);
        assert_eq!(pairs(missing(&[first], &[first, first], &[first])), [(real_time, 10)]);
        assert_eq!(pairs(missing(&[first, first], &[first], &[first, first])), []);
    }
}
