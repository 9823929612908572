//! Where the event loop meets full speculation: time passes, threads are born, end, execute, stop, and hear signals.

use super::calls::ask::Decision;
use super::process::child_signal::may_hear_of_burials;
use super::process::signals::{can_be_queued, is_own};
use super::process::unasked_ends::tells_of_end;
use super::{pid_of, process, Call, Object};
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::calls::waiting::{News, Parked};
use crate::core_dump::may_leave_core;
use crate::event_loop::Supervisor;
use crate::signals::{self, SignalSets};
use agent_abi::{Frame, Request, PROCESSES_MAX};
use procfs::{ProcessId, ThreadId};
use speculation::SpeculationId;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use syscall_table::nr;
use tracee::{Result, SignalInfo, Stop, Stopped, TraceError};

impl super::Ahead {
    /// Whether there is anything to look after.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.deadlines.is_empty() && self.overflow.is_empty() && !self.explicit.is_any_open()
    }

    /// Whether nothing is speculative, nor waits for us in any other way.
    fn is_quiet(&mut self) -> bool {
        self.is_idle()
            && self.core.open_speculations() == 0
            && self.checkpoints.count() == 0
            && self.vessels.is_quiet()
            && self.unsettled.is_empty()
            && !self.explicit.is_any_said()
            && self.held_signals.is_empty()
            && self.signals.is_empty()
            && !self.input.has_any()
            && !self.listeners.any_waits()
            && self.shutdowns.is_empty()
            && self.sends.is_empty()
            && self.servers.is_empty()
            && self.mirrors.is_empty()
            && self.record_locks.is_empty()
            && !self.under_way.iter().any(|(_, call)| call.makes_child)
            && self.thread_groups.is_quiet()
            && self.children.is_quiet()
    }
}

impl Supervisor {
    /// Time has passed, or something happened.
    pub(crate) fn look_ahead(&mut self) {
        self.reset_unaccepted();
        let is_any_shown = self.show_servers();
        let have_begun = self.take_begun();
        self.call_the_unreached();
        let awaits_permits = self.take_awaited_permits();
        let awaits_more = std::mem::take(&mut self.ahead.input.awaits_more);
        let awaits_pipes = std::mem::take(&mut self.ahead.awaits_pipes);
        let has_left = self.ahead.children.apart.take_leaving();
        let awaits_threads = self.ahead.thread_groups.take_awaited() | self.has_lending_ended();
        if awaits_threads {
            self.call_parents();
        }
        let awaits_others = awaits_permits || awaits_threads || awaits_pipes || have_begun;
        if self.flush_sends() || is_any_shown || awaits_more || has_left || awaits_others {
            self.settle_calls();
        }
        if self.ahead.is_idle() {
            self.forget_unread_input();
            self.switch_off_if_quiet();
            return;
        }
        let now = Instant::now();
        let mut is_due = false;
        while let Some((id, is_right)) = self.ahead.deadlines.take_due(now) {
            self.resolve(id, is_right);
            is_due = true;
        }
        if !self.ahead.overflow.is_empty() {
            self.release_overflow();
        }
        let waits_over = self.ahead.waiting.iter().any(|parked| parked.call.not_before.is_some_and(|at| at <= now));
        let passed_over = self.ahead.waiting.next_look().is_some_and(|at| at <= now);
        if is_due || waits_over || passed_over {
            self.settle_calls();
        }
        self.let_signals_in(now);
        self.fail_guesses_of_the_doomed();
        self.tell_who_waits_long(now);
        self.fail_if_stuck(now);
    }

    /// A signal of outside that ends a process waits until the process depends on nothing. That may be never, where the
    /// guess is the process's own: whoever was told to end resolves nothing. Such a guess fails, and the signal came
    /// before the process made it. So it does where its maker has ended, as `speculator begin` has when its shell goes
    /// on. Others will resolve theirs.
    fn fail_guesses_of_the_doomed(&mut self) {
        if !self.ahead.explicit.is_any_open() || self.ahead.held_signals.is_empty() {
            return;
        }
        let ahead = &self.ahead;
        let has_ended =
            |pid: ProcessId| !self.tracees.contains_key(&pid.leader()) || ahead.children.held_exits.contains_key(&pid);
        let is_doomed = |pid: ProcessId, held: &[SignalInfo]| {
            ahead.is_speculative(pid)
                && !has_ended(pid)
                && held.iter().any(|info| was_sent(info) && is_fatal(pid.leader(), info.number()))
        };
        let mut failing = Vec::new();
        for (pid, _) in ahead.held_signals.iter().filter(|&(pid, held)| is_doomed(pid, held)) {
            let depends_on = ahead.core.dependencies_of_process(process(pid));
            let is_own = |id: SpeculationId| {
                let maker = pid_of(id.process);
                depends_on.contains(id) && (maker == pid || has_ended(maker))
            };
            failing.extend(ahead.explicit.iter().filter(|&(_, id)| is_own(id)).map(|(number, _)| number));
        }
        if !failing.is_empty() {
            failing.into_iter().for_each(|number| self.ahead.explicit.say(number, true));
            self.settle_calls();
        }
    }

    /// The last process has ended: what was kept for it goes.
    pub(crate) fn ahead_on_last_exit(&mut self) {
        self.return_input();
        self.forget_unmapped_mirrors();
        for kept in self.ahead.checkpoints.take_all() {
            // Their ends are the last that there is to wait for.
            let _ = kept.vessel.into_vessel().give_up();
        }
    }

    /// A process that waits for a guess which only a program can resolve may wait for ever: somebody should know.
    fn tell_who_waits_long(&mut self, now: Instant) {
        const LONG: Duration = Duration::from_secs(5);
        if !self.ahead.explicit.is_any_open() {
            return;
        }
        let due = |parked: &Parked| !parked.is_told && now.duration_since(parked.begin) >= LONG;
        let due: Vec<u64> =
            self.ahead.waiting.entries().filter(|(_, parked)| due(parked)).map(|(key, _)| key).collect();
        for key in due {
            let Some(parked) = self.ahead.waiting.get(key) else { continue };
            let waits_for_child = self.waits_for_child(&parked.call);
            let is_wait = matches!(syscall_table::op(parked.call.frame.nr), Some(syscall_table::Op::Wait));
            let Some(parked) = self.ahead.waiting.get_mut(key) else { continue };
            if waits_for_child {
                parked.ended_since = None;
                continue;
            }
            // The process is about to be told of a child that has just ended.
            if is_wait && now.duration_since(*parked.ended_since.get_or_insert(now)) < LONG {
                continue;
            }
            parked.is_told = true;
            let depends_on = self.ahead.core.dependencies_of_process(process(parked.call.pid));
            let open: Vec<String> = self
                .ahead
                .explicit
                .iter()
                .filter(|&(number, id)| depends_on.contains(id) && !self.ahead.outside.has(number))
                .map(|(number, _)| number.to_string())
                .collect();
            if open.is_empty() {
                continue;
            }
            let name = syscall_table::row(parked.call.frame.nr).map_or("a system call", |row| row.name);
            let (pid, open) = (parked.call.pid, open.join(", "));
            self.front.tell(&crate::message::Message::Warning {
                text: format!(
                    "process {pid} waits at {name}, which cannot be undone, until speculation {open} is resolved"
                ),
            });
        }
    }

    /// Whether a call waits for a child, as it would natively.
    pub(super) fn waits_for_child(&self, call: &Call) -> bool {
        let is_wait = matches!(syscall_table::op(call.frame.nr), Some(syscall_table::Op::Wait));
        call.awaits.is_some() || is_wait && self.waits_for_the_living(call.pid, &call.frame)
    }

    /// Look at what waits until nothing changes any more. Who has resolved something is answered when that is done.
    pub(super) fn settle_calls(&mut self) {
        self.settle_calls_after(News::Any);
    }

    /// The same after something that may not concern all of them.
    pub(super) fn settle_calls_after(&mut self, mut news: News) {
        if self.ahead.is_rolling_back {
            // Somebody's end was heard of. They are looked at when everything is in its place.
            return;
        }
        loop {
            let has_resolved = self.resolve_pending();
            let has_ended = self.end_those_that_wait();
            self.reconsider(if has_resolved || has_ended { News::Any } else { news });
            if !has_resolved && !self.ahead.explicit.is_any_said() {
                return;
            }
            news = News::Any;
        }
    }

    /// Nothing has been speculative for a while: calls need not be asked about any more, until the next `begin`
    /// ([`Self::switch_on`]).
    ///
    /// This may happen at any moment between two events, whatever the threads are doing, because a question that comes
    /// later is answered as ever: while nothing is speculative nothing has to be known of a call, and what is told of
    /// one that was allowed is only taken out of `under_way`. Where a thread stands does not matter either: `switch_on`
    /// assumes nothing and takes every thread back to its question. What would be missed are the things that are looked
    /// for only while this is on, so none of them may be due: a stop that we have asked for, a process whose exit is
    /// held, a signal that is held or swallowed, a vessel or child to be reaped, a fork whose child has not been heard
    /// of. Kinship is forgotten, since births and ends go unnoticed from here on; `switch_on` learns it anew.
    fn switch_off_if_quiet(&mut self) {
        // Who begins one speculation after the other is not to pay for this each time.
        const PATIENCE: Duration = Duration::from_millis(10);
        let world = self.world();
        if self.ahead.is_always_on() || world.ahead.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.ahead.quiet_since.elapsed() < PATIENCE || !self.resent_signals.is_empty() {
            return;
        }
        // Not before the next while has passed.
        self.ahead.quiet_since = Instant::now();
        if self.ahead.is_quiet() {
            self.ahead.children = Default::default();
            self.ahead.epoll_sets = Default::default();
            self.ahead.waiting.forget_who_asks_again();
            self.ahead.trace(|| "off".to_owned());
            world.ahead.store(0, Ordering::SeqCst);
        }
    }

    fn has_lending_ended(&mut self) -> bool {
        match self.end_lending() {
            Ok(has_ended) => has_ended,
            Err(error) => {
                self.end_world(&format!("threads that were stopped cannot go on ({error})"));
                false
            }
        }
    }

    /// A thread that is kept waiting cannot hear signals: those that have one are sent out to hear it, and ask again.
    fn let_signals_in(&mut self, now: Instant) {
        const PATIENCE: Duration = Duration::from_millis(3);
        /// At one of so many looks it does not matter whether the kernel has kept a record of the signal.
        const SURE: u32 = 32;
        let waiting: Vec<(u64, ThreadId)> = self
            .ahead
            .waiting
            .entries()
            .filter(|(_, parked)| now.duration_since(parked.since) >= PATIENCE && parked.call.hears_signals())
            .filter(|(_, parked)| !self.ahead.thread_groups.is_lent_by_another(parked.call.pid, parked.call.tid))
            .map(|(key, parked)| (key, parked.call.tid))
            .collect();
        for (key, tid) in waiting {
            let Some(parked) = self.ahead.waiting.get_mut(key) else { continue };
            parked.since = now;
            parked.looks = parked.looks.wrapping_add(1);
            let is_worth_a_look = may_have_signals(&parked.stopped) || parked.looks.is_multiple_of(SURE);
            if !is_worth_a_look || !has_signals(tid) {
                continue;
            }
            if let Some(parked) = self.ahead.waiting.take(key) {
                match self.waits_for_child(&parked.call) {
                    true => self.ahead.waiting.asks_again(tid),
                    false => self.ahead.waiting.send_out(&parked),
                }
                let _ = self.reply(parked.stopped, agent_abi::ahead::AGAIN);
            }
        }
    }

    /// A thread or process was born; `is_process`: it is the first of its process.
    pub(crate) fn ahead_on_birth(&mut self, tid: ThreadId, slot: usize, thread: usize, is_process: bool) {
        self.ahead.vessels.is_no_more(tid);
        if !is_process || self.world().ahead.load(Ordering::Relaxed) == 0 {
            return;
        }
        let world = self.world();
        let parent = world.processes[slot].parent.load(Ordering::Relaxed) as usize % PROCESSES_MAX;
        let parent = ProcessId::from_raw(world.processes[parent].pid.load(Ordering::Relaxed) as i32);
        let child = tid.leads();
        let shares_memory = world.threads[thread].page.load(Ordering::Relaxed) == own_page(thread);
        self.ahead.children.born(parent, child, shares_memory);
        if !self.may_have_changed_rights(child) {
            self.ahead.known_ways.born(parent, child);
        }
        if self.is_bearing_apart(parent) {
            self.ahead.children.apart.begin(child, parent);
        }
        self.share_pidfd(parent, child);
        if self.ahead.is_speculative(parent) {
            self.ahead.core.fork(process(parent), process(child));
            self.ahead.touched.insert(Object::Children(parent));
            self.ahead.note_fork(parent, child);
            self.note_whether_all(child);
            if !shares_memory && self.ahead.is_speculative(child) {
                self.goes_from_now_on(parent, child);
            }
            self.permit_first_look(child);
        }
    }

    pub(crate) fn ahead_on_exec(&mut self, stopped: &Stopped, former_tid: ThreadId) -> Result<()> {
        // Whoever executes is the first thread of its process from then on.
        let (tid, pid) = (stopped.tid(), stopped.tid().leads());
        let made = self.ahead.under_way.end(former_tid);
        if former_tid != tid {
            // The first thread is gone.
            self.ahead.under_way.end(tid);
            self.ahead.waiting.forget(former_tid);
            self.ahead.unsettled.retain(|other| ![tid, former_tid].contains(other));
            self.ahead.thread_groups.executed(pid);
        }
        // What it has closed is held by what undoes that: who waits at the other end would not hear of it.
        let hung_up = made.as_ref().map_or_else(Vec::new, UnderWay::hung_up);
        if !hung_up.is_empty() {
            self.call_out_who_waits_at(tid, &hung_up);
        }
        if let Some(executed) = made.and_then(|made| made.executes) {
            executed.name(stopped)?;
        }
        self.end_work(tid);
        // Another thread may have executed, and have the id of the first one, which was kept at a call.
        self.ahead.waiting.forget(tid);
        self.ahead.children.executed(pid);
        self.ends_by_itself(pid);
        self.ahead.costs.forget(pid);
        self.records_after_exec(pid);
        self.ahead.ledger.executed(pid);
        if self.world().ahead.load(Ordering::Relaxed) != 0 {
            self.ahead.starting.insert(tid);
            self.permit_first_look(pid);
        }
        Ok(())
    }

    /// A thread's agent asks something. While it starts it may ask for what is known of a program's text.
    pub(crate) fn ahead_on_request(&mut self, tid: ThreadId, request: Option<Request>) {
        if request != Some(Request::PlanExecutable) {
            self.ahead.starting.remove(&tid);
        }
    }

    /// Whether a new program's agent is not there yet. Where it knows the program and has a permit it asks nothing, and
    /// neither may the program ever: the page that it names when its start is over says that it is there.
    pub(in crate::ahead) fn is_without_agent(&self, tid: ThreadId) -> bool {
        self.ahead.starting.contains(&tid) && !self.has_begun(tid)
    }

    fn has_begun(&self, tid: ThreadId) -> bool {
        let thread = self.tracees.get(&tid).and_then(|tracee| tracee.thread);
        thread.is_some_and(|thread| self.world().threads[thread].page.load(Ordering::Acquire) != 0)
    }

    /// The agents of new programs are there that were not when this was looked at last. Whether any is: who waits for
    /// one of them is looked at again. Nothing tells of it, but while anybody waits there are looks
    /// ([`super::Ahead::next_look`]).
    fn take_begun(&mut self) -> bool {
        let begun: Vec<ThreadId> = self.ahead.starting.iter().copied().filter(|&tid| self.has_begun(tid)).collect();
        self.ahead.starting.retain(|tid| !begun.contains(tid));
        !begun.is_empty()
    }

    /// A thread has ended; `is_process`: with its process; `is_unasked`: without a question.
    pub(crate) fn ahead_on_end(&mut self, tid: ThreadId, is_process: bool, is_unasked: bool) {
        self.forget_unmapped_mirrors();
        self.ahead.under_way.end(tid);
        self.end_work(tid);
        if self.world().ahead.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.ahead.unsettled.remove(&tid);
        self.ahead.giving_birth.remove(&tid);
        self.ahead.starting.remove(&tid);
        self.ahead.waiting.forget(tid);
        self.ahead.input.polls.remove(&tid);
        self.ahead.thread_groups.forget(tid);
        if is_process {
            self.ahead_on_end_of_process(tid.leads(), is_unasked);
        }
        self.ahead.changes += 1;
        self.settle_calls();
    }

    fn ahead_on_end_of_process(&mut self, pid: ProcessId, is_unasked: bool) {
        self.ahead.known_ways.ended(pid);
        self.ahead.outcomes.forget(pid);
        self.ahead.record_locks.ended(pid);
        self.ahead.costs.forget(pid);
        self.ahead.ledger.ended(pid, self.ahead.now());
        self.discard_vessels_of(pid);
        let unreaped = self.ahead.vessels.take_unreaped(pid);
        self.reparent(unreaped);
        self.ahead.signals.forget(pid);
        self.ahead.held_signals.forget(pid);
        self.ahead.ending.remove(&pid);
        self.ahead.unasked_ends.forget_children_of(pid);
        self.ahead.children.ended(pid);
        self.end_behind();
        if is_unasked {
            self.ended_unasked(pid);
        }
    }

    /// A known thread stopped because we asked it to: from here on it asks before each call.
    pub(crate) fn on_taken_back(&mut self, mut stopped: Stopped) -> Result<()> {
        let tid = stopped.tid();
        if !self.is_without_agent(tid) {
            if let Some(frame) = self.call_to_finish(&stopped)? {
                return self.let_finish(stopped, frame);
            }
            signals::fill_at_once(&stopped, &self.image)?;
        }
        self.ahead.trace(|| format!("{tid} taken back"));
        if self.ahead.under_way.of(tid).is_some() {
            self.end_call(&stopped)?;
            self.hear_of_births(tid)?;
            // It asks about the same call again: that is no occasion for another guess.
            self.ahead.waiting.asks_again(tid);
        }
        self.ahead.unsettled.remove(&tid);
        if self.is_without_agent(tid) {
            // A new program without its agent: it has made no call that could be taken back.
            stopped.resume(0)?;
            self.settle_calls();
            return Ok(());
        }
        let pid = self.pid_of(tid).ok();
        // Of several threads the first one hears what was sent.
        if pid.is_some_and(|pid| tid.is_leader_of(pid) && self.ahead.signals.has_any_for(pid)) {
            self.interrupt_in_call(&stopped)?;
        }
        signals::take_back_to_ask(&stopped, &self.image, self.segment.world)?;
        if let Some(pid) = pid {
            self.reap_unseen(&stopped, pid)?;
            let is_told = self.deliver_child_signal(&stopped, pid, None)?;
            if is_told && !may_hear_of_burials(&SignalSets::of(pid)) {
                // Nobody says when it takes that word.
                self.call_parent(pid);
            }
            if tid.is_leader_of(pid) && self.ahead.signals.has_any_for(pid) {
                match self.deliver_in_program(stopped, pid)? {
                    Some(left) => stopped = left,
                    None => {
                        self.settle_calls();
                        return Ok(());
                    }
                }
            }
        }
        // First this one: whoever it was in the way of may roll it back, and then halts it.
        self.may_leave_work(tid);
        stopped.resume(0)?;
        self.settle_calls();
        Ok(())
    }

    /// A thread was taken back and is held by somebody inside (`stop_the_world`): nobody has to wait until it is
    /// settled.
    pub(crate) fn ahead_on_hold(&mut self, tid: ThreadId) {
        if self.ahead.unsettled.remove(&tid) {
            self.settle_calls();
        }
    }

    /// What full speculation has to say about a signal; `None`: deliver it.
    pub(crate) fn ahead_on_signal(&mut self, stopped: Stopped, info: &SignalInfo) -> Result<Option<Stopped>> {
        if self.world().ahead.load(Ordering::Relaxed) == 0 {
            return Ok(Some(stopped));
        }
        let tid = stopped.tid();
        let Ok(pid) = self.pid_of(tid) else { return Ok(Some(stopped)) };
        self.ahead.trace(|| format!("{tid} hears {info:?} of {}", info.process()));
        self.end_call(&stopped)?;
        self.hear_of_births(tid)?;
        // Also one that was sent again: it may have reached its process while we told of the same child.
        if info.number() == libc::SIGCHLD {
            if self.ahead.children.take_announced(info.process()) {
                // Then it can be told of the next child: both words would be one if they waited together.
                self.call_parent(pid);
                self.permit_look(pid);
                return Ok(Some(stopped));
            }
            // The kernel tells of a vessel whose process has executed a program since, or was orphaned.
            let is_vessel = self.ahead.vessels.has(info.process());
            if is_vessel || self.ahead.children.is_silent(info.process()) {
                self.ahead.children.has_been_silent(info.process());
                self.tell_of_joined(pid, &stopped)?;
                self.swallow(stopped)?;
                return Ok(None);
            }
            if tells_of_end(info) {
                self.ahead.children.heard.insert(info.process());
            }
            if self.is_of_unasked_end(pid, info) {
                self.permit_look(pid);
                return Ok(Some(stopped));
            }
        }
        if !self.ahead.is_speculative(pid) {
            if is_fatal(tid, info.number()) {
                self.reap_all(&stopped, pid)?;
            }
            return Ok(Some(stopped));
        }
        let is_fatal = is_fatal(tid, info.number());
        // What was queued is heard now, and that is known.
        if !info.is_noted() && !is_own(info, pid) {
            // It comes from somebody who does not depend on our guesses: a rollback must not lose it. One that ends the
            // process ends its guesses, too.
            if is_fatal || !can_be_queued(info.number()) {
                self.keep_signal(pid, *info);
                self.swallow(stopped)?;
                return Ok(None);
            }
            if !self.hear_again_if_taken_back(pid, *info)? {
                self.swallow(stopped)?;
                return Ok(None);
            }
        }
        if is_fatal {
            self.end_by_signal(stopped, pid, *info)?;
            // Its parent may wait for it here.
            self.settle_calls();
            return Ok(None);
        }
        Ok(Some(stopped))
    }

    /// Whether we tell a parent of a child's end by this signal.
    pub(crate) fn ahead_tells_by(&self, info: &SignalInfo) -> bool {
        info.number() == libc::SIGCHLD && self.ahead.children.is_announced(info.process())
    }

    /// A signal that was to be delivered is sent again instead. If we tell of a child's end by it, it is still to be
    /// taken for ours, and not for the kernel's word of the same end.
    pub(crate) fn ahead_on_requeue(&mut self, info: &SignalInfo) {
        if info.number() == libc::SIGCHLD && self.ahead.children.is_silent(info.process()) {
            self.ahead.children.announce(info.process());
        }
    }

    /// The signal is not delivered; what it interrupted goes on.
    fn swallow(&mut self, stopped: Stopped) -> Result<()> {
        if self.is_without_agent(stopped.tid()) {
            return stopped.resume(0);
        }
        signals::take_back(&stopped, &self.image, self.segment.world)?;
        stopped.resume(0)
    }

    pub(super) fn end_by_signal(&mut self, stopped: Stopped, pid: ProcessId, info: SignalInfo) -> Result<()> {
        let frame = Frame { nr: nr::exit_group, ..Frame::default() };
        let call = Call { ends_by: Some(info), ..Call::new(stopped.tid(), pid, frame, 0) };
        if !self.hand_back(&stopped, pid)? {
            self.ahead.ending.insert(pid, (stopped, info));
            return Ok(());
        }
        if may_leave_core(stopped.tid(), info.number()) {
            // The core is written when the process ends in earnest, and whether it was is told with its end.
            self.retire_others(pid, stopped.tid())?;
            self.ahead.ending.insert(pid, (stopped, info));
            return Ok(());
        }
        match self.end_speculatively(&stopped, &call, info.number())? {
            // Somebody is at one of its pipes.
            Decision::Wait => {
                self.retire_others(pid, stopped.tid())?;
                self.ahead.ending.insert(pid, (stopped, info));
            }
            _ => self.ahead.children.keep(pid, stopped, Some(info)),
        }
        Ok(())
    }

    /// Let a signal end a process that stands still for it, or wherever it is.
    pub(super) fn end_by(&mut self, stopped: Stopped, info: SignalInfo) -> Result<()> {
        if let Stop::Signal(_) = stopped.stop() {
            return self.deliver(stopped, info.number(), Some(info));
        }
        crate::sys::kill_process_of(stopped.tid(), info.number());
        match stopped.resume(0) {
            Err(TraceError::Gone(_)) => Ok(()),
            done => done,
        }
    }

    /// Those that a signal ends and that had to wait for it.
    fn end_those_that_wait(&mut self) -> bool {
        let ending = std::mem::take(&mut self.ahead.ending);
        let any = !ending.is_empty();
        for (pid, (stopped, info)) in ending {
            let done = match self.ahead.is_speculative(pid) {
                true => self.end_by_signal(stopped, pid, info),
                false => self.end_by(stopped, info),
            };
            match done {
                Ok(()) | Err(tracee::TraceError::Gone(_)) => {}
                Err(error) => self.give_up(pid.leader(), &error),
            }
        }
        any
    }
}

/// Whether somebody has sent a signal, or typed it: a timer's may be due to what the process has done since it guessed.
fn was_sent(info: &SignalInfo) -> bool {
    let is_typed = matches!(info.number(), libc::SIGINT | libc::SIGQUIT | libc::SIGHUP);
    is_typed || matches!(info.code(), libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL)
}

/// Where the agent of a thread that was born into its parent's memory has its page.
pub(super) fn own_page(thread: usize) -> u64 {
    agent_abi::THREADS_BASE + thread as u64 * agent_abi::THREAD_LEN + agent_abi::THREAD_PAGE_OFFSET
}

/// Whether the kernel has a record of a signal that waits for a thread, also of one that it blocks: that is asked for
/// without a file of `/proc`. There is none of what a thread sends to another one where that would exceed the user's
/// limit (`RLIMIT_SIGPENDING`).
fn may_have_signals(stopped: &Stopped) -> bool {
    let has_any = |shared: bool| stopped.pending_signals(shared).map_or(true, |pending| !pending.is_empty());
    has_any(false) || has_any(true)
}

/// Whether a signal that this thread does not block waits for it. If that is not known, it is asked again later.
fn has_signals(tid: ThreadId) -> bool {
    SignalSets::of(tid).is_ok_and(|sets| sets.pending & !sets.blocked != 0)
}

/// Whether a signal ends this process: not caught, and by default fatal.
pub(crate) fn is_fatal(tid: ThreadId, signal: i32) -> bool {
    let Ok(sets) = SignalSets::of(tid) else { return true };
    let bit = 1u64 << (signal - 1).clamp(0, 63);
    let is_harmless = matches!(
        signal,
        libc::SIGCHLD
            | libc::SIGURG
            | libc::SIGWINCH
            | libc::SIGCONT
            | libc::SIGSTOP
            | libc::SIGTSTP
            | libc::SIGTTIN
            | libc::SIGTTOU
    );
    (sets.caught | sets.ignored) & bit == 0 && !is_harmless
}
