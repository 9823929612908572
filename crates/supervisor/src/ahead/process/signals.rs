//! Signals that do not end their receiver, while something is speculative (000, 6.7).
//!
//! What a process inside sends is queued here, and given to its receiver at a place where that one can be checkpointed:
//! where it asks about a call, or wherever it is in its program. There the receiver takes the dependencies of what is
//! queued for it, and sends the signal to itself, so that the kernel does the rest. Until then none of its calls is
//! made that could observe anybody: so nobody learns of what a sender did afterwards without having heard the signal.
//!
//! A rollback of the sender takes the signal out of the queue, or takes back the receiver that has heard it; one of the
//! receiver alone puts it into the queue again. Signals of those who depend on nothing are heard at once, and queued
//! when that is taken back.
//!
//! **Invariant:** no signal waits in the kernel that a rollback would have to take out of it again: what the receiver
//! blocks stays here until it depends on nothing.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::events::is_fatal;
use crate::ahead::process::kill::SignalRequest;
use crate::ahead::rollback::undo::{Intent, Undo};
use crate::ahead::{process, Call, Object, SCRATCH};
use crate::descriptors::real_user_of;
use crate::event_loop::Supervisor;
use crate::signals::{self, SignalSets};
use commit_clock::DOMAINS_MAX;
use procfs::{ProcessId, ThreadId};
use speculation::Dependent;
use std::collections::{HashMap, HashSet, VecDeque};
use syscall_table::Op;
use tracee::{RemoteCalls, Result, SignalInfo, Stopped, TraceError};

/// A signal that its receiver has not heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    number: u64,
    info: SignalInfo,
    /// Whether its receiver blocked it when it was sent.
    was_blocked: bool,
}

/// What was sent, by receiver, in the order in which it was sent.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: HashMap<ProcessId, VecDeque<Sent>>,
    /// Who could not be given what it is to hear next: it blocked it, was in the middle of something, or could not be
    /// checkpointed. That may end without a word to us.
    unreached: HashSet<ProcessId>,
    next: u64,
}

impl Queues {
    pub fn push(&mut self, receiver: ProcessId, info: SignalInfo, was_blocked: bool) -> u64 {
        self.next += 1;
        self.queues.entry(receiver).or_default().push_back(Sent { number: self.next, info, was_blocked });
        self.next
    }

    /// It was never sent.
    pub fn remove(&mut self, receiver: ProcessId, number: u64) {
        self.change(receiver, |queue| queue.retain(|sent| sent.number != number));
    }

    /// Those that were sent while the receiver blocked them and this one waited: a signal that waits already does not
    /// wait twice (signal(7); those of real time are not queued here).
    fn take_joined(&mut self, receiver: ProcessId, first: &Sent) -> Vec<Sent> {
        let is_joined =
            |sent: &Sent| first.was_blocked && sent.was_blocked && sent.info.number() == first.info.number();
        let mut joined = Vec::new();
        self.change(receiver, |queue| {
            joined.extend(queue.iter().copied().filter(is_joined));
            queue.retain(|sent| !is_joined(sent));
        });
        joined
    }

    /// It has not been heard.
    pub fn put_back(&mut self, receiver: ProcessId, sent: Sent) {
        self.queues.entry(receiver).or_default().push_front(sent);
    }

    /// The receiver has ended.
    pub fn forget(&mut self, receiver: ProcessId) {
        self.queues.remove(&receiver);
        self.unreached.remove(&receiver);
    }

    /// These wait in the kernel again.
    pub fn forget_those_like(&mut self, receiver: ProcessId, pending: &SignalInfo) {
        self.change(receiver, |queue| {
            let is_same =
                |sent: &Sent| sent.info.number() == pending.number() && sent.info.process() == pending.process();
            if let Some(at) = queue.iter().position(is_same) {
                queue.remove(at);
            }
        });
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether somebody has to be looked at from time to time.
    pub fn any_unreached(&self) -> bool {
        !self.unreached.is_empty()
    }

    pub fn has_any_for(&self, receiver: ProcessId) -> bool {
        self.queues.contains_key(&receiver)
    }

    pub fn receivers(&self) -> Vec<ProcessId> {
        self.queues.keys().copied().collect()
    }

    fn first(&self, receiver: ProcessId) -> Option<Sent> {
        self.queues.get(&receiver)?.front().copied()
    }

    fn change(&mut self, receiver: ProcessId, change: impl FnOnce(&mut VecDeque<Sent>)) {
        if let Some(queue) = self.queues.get_mut(&receiver) {
            change(queue);
            if queue.is_empty() {
                self.forget(receiver);
            }
        }
    }
}

/// Whether a signal can be given to its receiver later, and again after a rollback. The others do something when they
/// are sent: stop, continue; or mean something to us.
pub(in crate::ahead) fn can_be_queued(signal: i32) -> bool {
    let is_known = (1..=libc::SIGSYS).contains(&signal);
    let is_special = matches!(
        signal,
        libc::SIGKILL
            | libc::SIGSTOP
            | libc::SIGTSTP
            | libc::SIGTTIN
            | libc::SIGTTOU
            | libc::SIGCONT
            | libc::SIGCHLD
            | libc::SIGTRAP
    );
    is_known && !is_special
}

/// Whether a signal belongs to what its receiver itself does, and comes again if that is done again: its own, those of
/// its timers, which a checkpoint keeps or is older than (POSIX timers), and that of its limit of CPU time.
pub(in crate::ahead) fn is_own(info: &SignalInfo, pid: ProcessId) -> bool {
    const SI_KERNEL: i32 = 0x80;
    let is_of_clock = matches!(info.number(), libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF | libc::SIGXCPU);
    let is_of_timer = info.code() == libc::SI_TIMER || info.code() == SI_KERNEL && is_of_clock;
    // What the kernel says of a child names that one, by a number that may be this process's in another namespace.
    let is_of_child = info.number() == libc::SIGCHLD && info.code() > 0;
    info.is_synchronous() || is_of_timer || info.process() == pid && !is_of_child
}

impl Supervisor {
    /// `kill`, of a signal that its receiver survives.
    pub(in crate::ahead) fn send(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        request: SignalRequest,
    ) -> Result<Decision> {
        let receiver = request.receiver;
        if !self.can_be_checkpointed(receiver) {
            return Ok(self.wait_at_barrier(call));
        }
        let refused = self.probe(stopped, call.pid, receiver)?;
        if refused < 0 {
            return Ok(Decision::Answer(refused));
        }
        let mut plan = Plan::tracked_once();
        if self.ahead.core.may_never_have_been(process(receiver)) {
            plan.observes.push(Dependent::Process(process(receiver)));
        }
        let user = real_user_of(call.tid).unwrap_or(0);
        let info = SignalInfo::sent_by(call.pid, user, request.signal);
        let number = self.ahead.signals.push(receiver, info, is_blocked(receiver, request.signal));
        let modifies = vec![(Object::Signals(receiver), Intent::Send { receiver, number })];
        match self.track(stopped, call, plan, modifies)? {
            Decision::Wait => {
                self.ahead.signals.remove(receiver, number);
                Ok(Decision::Wait)
            }
            _ => {
                self.share_clocks(call.pid, receiver);
                self.call_receiver(receiver);
                Ok(Decision::Answer(0))
            }
        }
    }

    /// A signal carries what its sender depends on in external synchrony, and that it could be sent says something of
    /// its receiver.
    pub(in crate::ahead) fn share_clocks(&self, sender: ProcessId, receiver: ProcessId) {
        let slot = |pid| self.tracees.get(&pid).map(|tracee| &self.world().processes[tracee.process].clock);
        if let (Some(from), Some(to)) = (slot(sender.leader()), slot(receiver.leader())) {
            to.merge(&from.load(DOMAINS_MAX), DOMAINS_MAX);
            from.merge(&to.load(DOMAINS_MAX), DOMAINS_MAX);
        }
    }

    /// Somebody has a signal to hear: bring it to a place where it can, if it does not come to one by itself.
    pub(crate) fn call_receiver(&mut self, pid: ProcessId) {
        let Some(sent) = self.ahead.signals.first(pid) else { return };
        // Of several threads the first one hears it.
        if self.ahead.waiting.has(pid.leader()) {
            self.ahead.changes += 1;
            return;
        }
        let stands = self.ahead.children.stands(pid) || self.ahead.ending.contains_key(&pid);
        if stands || !self.tracees.contains_key(&pid.leader()) {
            return;
        }
        if self.is_without_agent(pid.leader()) {
            self.ahead.signals.unreached.insert(pid);
            return;
        }
        let is_blocked = is_blocked(pid, sent.info.number());
        let may_be_taken_back = self.ahead.core.needs_checkpoint(process(pid), &[], &[Object::Signals(pid)]);
        // What ends early because of the signal must not have done so if the signal was never sent.
        if (is_blocked || may_be_taken_back) && self.would_end_early(pid) {
            self.ahead.signals.unreached.insert(pid);
            return;
        }
        let _ = tracee::interrupt(pid.leader());
    }

    /// The same, also for the end of a child.
    pub(in crate::ahead) fn call_to_hear(&mut self, pid: ProcessId) {
        self.call_receiver(pid);
        self.call_parent(pid);
    }

    pub(in crate::ahead) fn call_receivers(&mut self) {
        for pid in self.ahead.signals.receivers() {
            self.call_receiver(pid);
        }
    }

    /// Those that could not hear what they were sent, and do not block it any more, are brought to where they hear it.
    pub(in crate::ahead) fn call_the_unreached(&mut self) {
        let signals = &self.ahead.signals;
        let hears = |pid: ProcessId| signals.first(pid).is_none_or(|sent| !is_blocked(pid, sent.info.number()));
        let hearing: Vec<ProcessId> = signals.unreached.iter().copied().filter(|&pid| hears(pid)).collect();
        for pid in hearing {
            self.ahead.signals.unreached.remove(&pid);
            self.call_receiver(pid);
        }
    }

    /// Whether a process is in a call that has a part of its effect if it is interrupted.
    fn would_end_early(&self, pid: ProcessId) -> bool {
        if self.ahead.under_way.cannot_be_repeated(pid.leader()) {
            return true;
        }
        has_part_of_its_effect(procfs::waiting_call(pid))
    }

    /// Signals that were sent to a process are sent on, by the process to itself, at a place where it can be
    /// checkpointed. True: it hears one before it does anything else.
    pub(in crate::ahead) fn deliver_signals(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        call: Option<&Call>,
    ) -> Result<bool> {
        if stopped.tid() != pid.leader() {
            return Ok(false);
        }
        let keys = [Object::Signals(pid)];
        while let Some(sent) = self.ahead.signals.first(pid) {
            let needs = self.ahead.core.needs_checkpoint(process(pid), &[], &keys);
            let is_blocked = is_blocked(pid, sent.info.number());
            if is_blocked && (needs || self.ahead.is_speculative(pid)) {
                self.ahead.signals.unreached.insert(pid);
                return Ok(false);
            }
            if needs {
                let wait = self.wait_for(pid, &[], &keys);
                if !self.prepare_checkpoint(stopped, pid, call, wait)? {
                    self.ahead.signals.unreached.insert(pid);
                    return Ok(false);
                }
            }
            self.ahead.signals.remove(pid, sent.number);
            self.ahead.note_flows(pid, &[], &keys);
            self.note_heard(pid, sent)?;
            for joined in self.ahead.signals.take_joined(pid, &sent) {
                // Heard with this one, and for itself if only this one was never sent.
                self.note_heard(pid, joined)?;
            }
            let info = if self.ahead.is_speculative(pid) { sent.info.noted() } else { sent.info };
            self.send_in_name_of(pid, stopped, &info, true)?;
            if !is_blocked {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A process is sent a signal of which it says itself who sent it.
    pub(in crate::ahead) fn send_in_name_of(
        &mut self,
        pid: ProcessId,
        stopped: &Stopped,
        info: &SignalInfo,
        to_process: bool,
    ) -> Result<()> {
        let mut remote = self.remote_calls(stopped)?;
        let at = remote.registers().gs_base - SCRATCH;
        send_to_itself(&mut remote, (pid, stopped.tid()), at, info, to_process)?;
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        self.ahead.trace(|| format!("{pid} is sent {info:?} of {}", info.process()));
        Ok(())
    }

    fn note_heard(&mut self, pid: ProcessId, sent: Sent) -> Result<()> {
        let heard = (Object::Signals(pid), Undo::Heard { receiver: pid, sent });
        self.ahead.core.system_call(process(pid), Vec::new(), vec![heard]);
        self.carry_out()
    }

    /// A speculative process hears a signal of somebody who does not depend on its guesses. False: not yet, because
    /// others were sent before.
    pub(in crate::ahead) fn hear_again_if_taken_back(&mut self, pid: ProcessId, info: SignalInfo) -> Result<bool> {
        let number = self.ahead.signals.push(pid, info, false);
        let is_first = self.ahead.signals.first(pid).is_some_and(|first| first.number == number);
        if !is_first || self.ahead.core.needs_checkpoint(process(pid), &[], &[Object::Signals(pid)]) {
            self.call_receiver(pid);
            return Ok(false);
        }
        self.ahead.signals.remove(pid, number);
        self.note_heard(pid, Sent { number, info, was_blocked: false })?;
        Ok(true)
    }

    /// A signal that a speculative process was about to hear.
    pub(in crate::ahead) fn keep_signal(&mut self, pid: ProcessId, info: SignalInfo) {
        match can_be_queued(info.number()) && !is_fatal(pid.leader(), info.number()) {
            true => drop(self.ahead.signals.push(pid, info, false)),
            false => self.ahead.held_signals.hold(pid, info),
        }
    }

    /// It stopped for us, somewhere, and a signal waits for it here. `None`: it asks us something first.
    pub(in crate::ahead) fn deliver_in_program(&mut self, stopped: Stopped, pid: ProcessId) -> Result<Option<Stopped>> {
        let tid = stopped.tid();
        let (mut more, mut has_run) = (Vec::new(), false);
        let look = signals::look(&stopped, &self.image)?;
        let left = self.leave_agent(stopped, look, &mut more, &mut has_run)?;
        self.put_back_signals(left.as_ref(), tid, more)?;
        if let Some(stopped) = &left {
            self.deliver_signals(stopped, pid, None)?;
        }
        Ok(left)
    }
}

/// A process sends a signal to itself, all of it or one thread, by this thread: so the kernel lets it say whatever is
/// true of it. `at` is room in its memory.
pub(in crate::ahead) fn send_to_itself(
    remote: &mut RemoteCalls,
    (pid, tid): (ProcessId, ThreadId),
    at: u64,
    info: &SignalInfo,
    to_process: bool,
) -> Result<()> {
    let kernel = |source| TraceError::kernel("write a signal", pid, source);
    tracee::write_bytes(pid, at, info.as_bytes()).map_err(kernel)?;
    let (process, thread, number) = (pid.as_raw() as u64, tid.as_raw() as u64, info.number() as u64);
    match to_process {
        true => remote.call(libc::SYS_rt_sigqueueinfo, &[process, number, at])?,
        false => remote.call(libc::SYS_rt_tgsigqueueinfo, &[process, thread, number, at])?,
    };
    Ok(())
}

fn is_blocked(pid: ProcessId, signal: i32) -> bool {
    SignalSets::of(pid).map_or(true, |sets| sets.blocked & 1 << (signal - 1) != 0)
}

/// Whether a call has a part of its effect if it is interrupted. One that is not known may have. A receive of all
/// (`MSG_WAITALL`) is none: whether a part has come cannot be seen, and who waits for a request may do so for ever.
/// One that is interrupted with a part goes on (`signals::call_to_finish`).
pub(in crate::ahead) fn has_part_of_its_effect(call: procfs::Result<Option<(u64, [u64; 6])>>) -> bool {
    // Of several messages it waits for each, unless it is to wait for the first only.
    let waits_for_more = |[_, _, len, flags, ..]: [u64; 6]| len > 1 && flags & libc::MSG_WAITFORONE as u64 == 0;
    match procfs::unless_gone(call) {
        Err(_) => true,
        Ok(None) => false,
        Ok(Some((number, arguments))) => match syscall_table::op(number) {
            Some(
                Op::Write { .. }
                | Op::Send { .. }
                | Op::SendMsg { .. }
                | Op::SendMmsg { .. }
                | Op::Copy { .. }
                | Op::Vmsplice,
            ) => true,
            Some(Op::RecvMmsg { .. }) => waits_for_more(arguments),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syscall_table::nr;

    const INIT: ProcessId = ProcessId::from_raw(1);

    #[test]
    fn what_waits_already_does_not_wait_twice() {
        let mut queues = Queues::default();
        let mut send = |signal, was_blocked| queues.push(INIT, SignalInfo::sent_by(INIT, 0, signal), was_blocked);
        let [open, first, other, second] =
            [(libc::SIGUSR1, false), (libc::SIGUSR1, true), (libc::SIGUSR2, true), (libc::SIGUSR1, true)]
                .map(|(signal, was_blocked)| send(signal, was_blocked));
        let mut hear = || {
            let sent = queues.first(INIT)?;
            queues.remove(INIT, sent.number);
            let joined: Vec<u64> = queues.take_joined(INIT, &sent).iter().map(|sent| sent.number).collect();
            Some((sent.number, joined))
        };
        let heard: Vec<_> = std::iter::from_fn(&mut hear).collect();
        assert_eq!(heard, [(open, vec![]), (first, vec![second]), (other, vec![])]);
    }

    #[test]
    fn a_call_that_cannot_be_looked_at_is_not_interrupted() {
        let source = std::io::Error::from_raw_os_error(libc::EPERM);
        let unreadable = procfs::Error::Unreadable { task: INIT.into(), name: "syscall".to_owned(), source };
        assert!(has_part_of_its_effect(Err(unreadable)));
        assert!(!has_part_of_its_effect(Err(procfs::Error::Gone(INIT.into()))));
        assert!(!has_part_of_its_effect(Ok(None)));
        let waits_in =
            |number, len, flags: i32| has_part_of_its_effect(Ok(Some((number, [0, 0, len, flags as u64, 0, 0]))));
        assert!(waits_in(nr::write, 1, 0));
        assert!(!waits_in(nr::wait4, 0, 0));
        assert!(!waits_in(nr::recvfrom, 10, libc::MSG_WAITALL));
        assert!(waits_in(nr::recvmmsg, 2, 0) && !waits_in(nr::recvmmsg, 1, 0));
        assert!(!waits_in(nr::recvmmsg, 2, libc::MSG_WAITFORONE));
    }
}
