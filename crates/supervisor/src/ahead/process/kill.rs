//! `kill` while something is speculative (000, 6.7).
//!
//! A signal that ends its receiver needs no place to be delivered at: wherever the receiver is, it is stopped, takes a
//! checkpoint and the sender's dependencies, and its exit is held, as if it had ended by itself. A rollback of the
//! sender takes it back with everything else that depends on the sender. The sender has observed the receiver, so that
//! the receiver is never taken back alone.
//!
//! What is caught or blocked is queued (`signals`). What stops a process waits until nothing is speculative. So does
//! SIGCONT, unless its receiver runs: then it does nothing. A signal to the sender's own group is one to each member.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{plan_look_around, Class, Plan};
use crate::ahead::events::is_fatal;
use crate::ahead::process::child_signal::ignores_children;
use crate::ahead::process::signals::can_be_queued;
use crate::ahead::process::wanted::signal_by_descriptor;
use crate::ahead::rollback::is_traced_by_us;
use crate::ahead::{process, Call};
use crate::descriptors::real_user_of;
use crate::event_loop::Supervisor;
use crate::signals::{self, SignalSets};
use crate::sys;
use procfs::{ProcessId, Stat};
use speculation::Dependent;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use syscall_table::nr;
use tracee::{Result, SignalInfo, Stop, Stopped};

/// Who is to end, and by what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalRequest {
    pub receiver: ProcessId,
    pub signal: i32,
}

impl Supervisor {
    /// `kill`: a group, or a process that we do not know, may be there only because of a checkpoint or a held exit.
    pub(in crate::ahead) fn plan_kill(&self, call: &Call) -> Plan {
        let [receiver, signal, ..] = call.frame.args;
        let request = SignalRequest { receiver: ProcessId::from_raw(receiver as i32), signal: signal as i32 };
        if !self.counts_as_we_do(call.pid.leader()) {
            // Whoever it means is in a namespace like its own, and so is never speculative.
            return Plan::new(Class::Free);
        }
        self.plan_own_group(call).unwrap_or_else(|| self.plan_signal(call, request))
    }

    /// `kill` of the caller's own group, which it leads, with a signal that it ignores, as `timeout` does behind one to
    /// its child. Those of it whom the signal ends are ended one after the other; then nothing is left to do. `None`:
    /// it is another call, or somebody would catch the signal, or keeps it blocked.
    fn plan_own_group(&self, call: &Call) -> Option<Plan> {
        let [receiver, signal, ..] = call.frame.args;
        let (own, signal) = (call.pid.as_raw(), signal as i32);
        let is_own = is_for_group(call) && matches!(receiver as i32, number if number == 0 || number == -own);
        let is_usual = (1..=libc::SIGSYS).contains(&signal) && self.ahead.is_speculative(call.pid);
        let is_of_group = |pid: ProcessId| sys::group_of(pid).is_ok_and(|group| group == own);
        if !is_own || !is_usual || !is_of_group(call.pid) || !ignores(call.pid, signal) {
            return None;
        }
        let slots = self.tracees.iter().filter(|(&tid, _)| is_of_group(tid.leads())).map(|(_, tracee)| tracee.process);
        let number = |slot: usize| ProcessId::from_raw(self.world().processes[slot].pid.load(Ordering::Acquire) as i32);
        let others: BTreeSet<ProcessId> = slots.map(number).filter(|&pid| pid != call.pid).collect();
        let has_to_hear = |pid: &&ProcessId| {
            !self.ahead.children.held_exits.contains_key(pid) && !ignores(**pid, signal) && !self.goes_on(**pid, signal)
        };
        let Some(&receiver) = others.iter().find(has_to_hear) else {
            return Some(nothing_happens(others.into_iter()));
        };
        let plan = self.plan_signal(call, SignalRequest { receiver, signal });
        matches!(plan.class, Class::Kill(_)).then_some(plan)
    }

    /// `pidfd_open` says whether a process is there, as `kill` with signal 0 does. A process that is taken back stays
    /// the same one for the kernel, and who has seen one that never was is taken back with it.
    pub(in crate::ahead) fn plan_process_descriptor(&self, call: &Call) -> Plan {
        let [number, flags, ..] = call.frame.args;
        let is_of_process = flags as u32 & !(libc::PIDFD_NONBLOCK) == 0;
        match number as i32 {
            1.. if is_of_process && number as i32 != call.pid.as_raw() && self.counts_as_we_do(call.pid.leader()) => {
                self.plan_probe(ProcessId::from_raw(number as i32))
            }
            _ => plan_look_around(call),
        }
    }

    /// `pidfd_send_signal` to another process, which counts as `kill`; `None` if it may be something else.
    pub(in crate::ahead) fn plan_signal_by_descriptor(&self, call: &Call) -> Option<Plan> {
        let request = signal_by_descriptor(call).filter(|request| request.receiver != call.pid)?;
        self.counts_as_we_do(call.pid.leader()).then(|| self.plan_signal(call, request))
    }

    fn plan_signal(&self, call: &Call, request: SignalRequest) -> Plan {
        let is_kill = matches!(call.frame.nr, nr::kill | nr::pidfd_send_signal);
        if is_kill && request.signal == 0 && request.receiver.as_raw() > 0 {
            return self.plan_probe(request.receiver);
        }
        if let (true, Some(plan)) = (is_kill, self.plan_signal_to_dead(call, request)) {
            return plan;
        }
        let is_living = self.tracees.get(&request.receiver.leader()).is_some_and(|tracee| tracee.thread.is_some())
            && !self.ahead.children.held_exits.contains_key(&request.receiver)
            && !self.is_without_agent(request.receiver.leader());
        if !is_kill || !is_living || !(1..=libc::SIGSYS).contains(&request.signal) {
            return Plan::new(Class::Window).once();
        }
        match self.ahead.is_speculative(call.pid) || self.ahead.is_speculative(request.receiver) {
            true if self.goes_on(request.receiver, request.signal) && is_of_one_user(call, request.receiver) => {
                nothing_happens([request.receiver].into_iter())
            }
            true if ends(request) => Plan::new(Class::Kill(request)).once(),
            true if can_be_queued(request.signal) => Plan::new(Class::Signal(request)).once(),
            true => Plan::new(Class::Window).once(),
            false => Plan::new(Class::Free),
        }
    }

    /// Whether a signal is SIGCONT and does nothing: its receiver has no handler of it, and is neither stopped nor
    /// about to stop.
    fn goes_on(&self, pid: ProcessId, signal: i32) -> bool {
        const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let bit = |signal: i32| 1u64 << (signal - 1);
        let stops = STOPS.into_iter().map(bit).fold(0, |all, one| all | one);
        let hears_nothing =
            |sets: SignalSets| (sets.caught | sets.blocked) & bit(libc::SIGCONT) == 0 && sets.pending & stops == 0;
        // A thread that waits at a question stands still for us.
        let runs = || {
            self.ahead.waiting.has(pid.leader())
                || Stat::of(pid).and_then(|stat| stat.state()).is_ok_and(|state| matches!(state, 'R' | 'S' | 'D'))
        };
        signal == libc::SIGCONT
            && !self.has_company(pid.leader())
            && SignalSets::of(pid).is_ok_and(hears_nothing)
            && runs()
    }

    /// A signal to a process that has ended on a guess, and for which nobody has waited, does nothing.
    fn plan_signal_to_dead(&self, call: &Call, request: SignalRequest) -> Option<Plan> {
        let receiver = request.receiver;
        let is_held = self.ahead.children.held_exits.contains_key(&receiver);
        let parent =
            self.parent_told_of(receiver).filter(|_| is_held && (1..=libc::SIGSYS).contains(&request.signal))?;
        // Where the kernel waits for it itself, or its parent has, it is not there any more.
        let is_zombie = self.ahead.children.waited_for_by(receiver).is_none()
            && !self.may_leave_no_zombies(parent)
            && !ignores_children(&SignalSets::of(parent));
        (is_zombie && is_of_one_user(call, receiver)).then(|| nothing_happens([receiver].into_iter()))
    }

    /// `kill` with signal 0 says whether a process is there: as the kernel says, for whoever depends on what the
    /// process depends on.
    fn plan_probe(&self, receiver: ProcessId) -> Plan {
        let kin = &self.ahead.children;
        let is_held = kin.held_exits.contains_key(&receiver);
        // Where a parent ignores the ends of its children the kernel waits for them itself.
        let ignored = || self.parent_told_of(receiver).filter(|&parent| ignores_children(&SignalSets::of(parent)));
        if let Some(parent) = kin.waited_for_by(receiver).or_else(ignored) {
            // For whoever depends on what its parent does.
            let mut plan = Plan::new(Class::Known { result: -i64::from(libc::ESRCH) });
            plan.observes.extend([receiver, parent].map(|pid| Dependent::Process(process(pid))));
            return plan;
        }
        if self.parent_told_of(receiver).is_some_and(|parent| self.may_leave_no_zombies(parent)) {
            // Whether the kernel has waited for it only its parent could say.
            return Plan::new(Class::Window).once();
        }
        let is_known = is_held || self.tracees.get(&receiver.leader()).is_some_and(|tracee| tracee.thread.is_some());
        let tells = match is_known {
            true => Some(receiver),
            // The kernel knows whether its parent has waited for it.
            false => self.ahead.unasked_ends.parent(receiver),
        };
        if let Some(pid) = tells {
            let mut plan = Plan::new(Class::Tracked);
            plan.observes.push(Dependent::Process(process(pid)));
            return plan;
        }
        match self.is_outsider(receiver) {
            true => Plan::new(Class::Free),
            // It may be there only because of a checkpoint, or not any more only because it was buried.
            false => Plan::new(Class::Window).once(),
        }
    }

    /// Whether a number is that of a process outside the world, or of nobody. Nobody inside has had it whose end, or
    /// birth, could be taken back.
    pub(in crate::ahead) fn is_outsider(&self, pid: ProcessId) -> bool {
        self.ahead.children.is_forgotten(pid)
            && !self.tracees.contains_key(&pid.leader())
            && !self.ahead.children.held_exits.contains_key(&pid)
            && self.ahead.unasked_ends.parent(pid).is_none()
            && is_traced_by_us(pid).is_ok_and(|is_ours| !is_ours)
    }

    /// Whose child a process is of whose end SIGCHLD tells, if that is held.
    fn parent_told_of(&self, child: ProcessId) -> Option<ProcessId> {
        let parent = self.ahead.children.held_exits.get(&child)?.parent?;
        (self.exit_signal(child) == Some(libc::SIGCHLD)).then_some(parent)
    }

    /// The receiver ends, as far as anybody inside can see.
    pub(in crate::ahead) fn kill_receiver(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        request: SignalRequest,
    ) -> Result<Decision> {
        let receiver = request.receiver;
        let is_in_the_middle = self.ahead.under_way.cannot_be_repeated(receiver.leader());
        if is_in_the_middle
            || !self.ahead.unsettled.is_empty()
            || self.ahead.ending.contains_key(&receiver)
            || !self.can_be_checkpointed(receiver)
            || self.has_company(receiver.leader()) && !self.depends_on_same(call.pid, receiver)
        {
            return Ok(Decision::Wait);
        }
        let refused = self.probe(stopped, call.pid, receiver)?;
        if refused < 0 {
            // Of a group it is enough that one can be told.
            return Ok(if is_for_group(call) { Decision::Wait } else { Decision::Answer(refused) });
        }
        let mut plan = Plan::tracked_once();
        plan.observes.push(Dependent::Process(process(receiver)));
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let Some((target, at)) = self.catch(receiver)? else { return Ok(Decision::Wait) };
        let observes = vec![Dependent::Process(process(call.pid))];
        let needs = self.ahead.core.needs_checkpoint(process(receiver), &observes, &[]);
        let wait = self.wait_for(receiver, &observes, &[]);
        if needs && !self.prepare_checkpoint(&target, receiver, at.as_ref(), wait)? {
            match at {
                Some(at) => self.ahead.waiting.park(target, at),
                None => target.resume(0)?,
            }
            return Ok(Decision::Wait);
        }
        self.ahead.core.system_call(process(receiver), observes, Vec::new());
        self.carry_out()?;
        self.share_clocks(call.pid, receiver);
        let user = real_user_of(call.tid).unwrap_or(0);
        self.end_by_signal(target, receiver, SignalInfo::sent_by(call.pid, user, request.signal))?;
        self.ahead.changes += 1;
        Ok(if is_for_group(call) { Decision::Again } else { Decision::Answer(0) })
    }

    /// Whether whatever takes back one of two processes takes back the other one: the end of one by a signal of the
    /// other needs no checkpoint then, in which all of its threads would have to be caught.
    fn depends_on_same(&self, one: ProcessId, other: ProcessId) -> bool {
        let core = &self.ahead.core;
        core.dependencies_of_process(process(one)) == core.dependencies_of_process(process(other))
    }

    /// Stop a process where a checkpoint can be taken, and at which call if it waits at one. `None`: it had something
    /// else to do first.
    fn catch(&mut self, pid: ProcessId) -> Result<Option<(Stopped, Option<Call>)>> {
        if let Some(parked) = self.ahead.waiting.take_of_process(pid) {
            return Ok(Some((parked.stopped, Some(parked.call))));
        }
        let Some(stopped) = tracee::halt(pid.leader())? else { return Ok(None) };
        if stopped.stop() != Stop::Trap {
            // Not now: what it has to say may take back who is being looked at.
            stopped.keep();
            return Ok(None);
        }
        self.end_call(&stopped)?;
        signals::take_back_to_ask(&stopped, &self.image, self.segment.world)?;
        Ok(Some((stopped, None)))
    }

    /// Whether the sender may: what the kernel says to signal 0.
    pub(in crate::ahead) fn probe(&mut self, stopped: &Stopped, pid: ProcessId, receiver: ProcessId) -> Result<i64> {
        let mut remote = self.remote_calls(stopped)?;
        let result = remote.call(libc::SYS_kill, &[receiver.as_raw() as u64, 0]);
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        result
    }
}

/// Whether a call signals a group.
fn is_for_group(call: &Call) -> bool {
    call.frame.nr == nr::kill && call.frame.args[0] as i32 <= 0
}

/// Whether a caller is surely allowed to signal a process: both have the same real user.
fn is_of_one_user(call: &Call, receiver: ProcessId) -> bool {
    let user = |tid| real_user_of(tid).ok();
    user(call.tid).is_some_and(|caller| user(receiver.leader()) == Some(caller))
}

/// Whether a process ignores a signal.
fn ignores(pid: ProcessId, signal: i32) -> bool {
    SignalSets::of(pid).is_ok_and(|sets| sets.ignored & 1 << (signal - 1) != 0)
}

/// A call that succeeds and does nothing, for whoever depends on what these have done.
fn nothing_happens(to: impl Iterator<Item = ProcessId>) -> Plan {
    let mut plan = Plan::new(Class::Known { result: 0 });
    plan.observes.extend(to.map(|pid| Dependent::Process(process(pid))));
    plan
}

/// Whether its receiver neither catches, ignores nor blocks it, and does not survive it.
fn ends(request: SignalRequest) -> bool {
    let bit = 1u64 << (request.signal - 1);
    let is_blocked = SignalSets::of(request.receiver).map_or(true, |sets| sets.blocked & bit != 0);
    (request.signal == libc::SIGKILL || !is_blocked) && is_fatal(request.receiver.leader(), request.signal)
}
