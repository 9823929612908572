//! What the core wants done: checkpoints, rollbacks, output (000, 5.1, 5.3, 6.1).

pub(in crate::ahead) mod checkpoints;
pub(in crate::ahead) mod crash;
mod output;
pub(in crate::ahead) mod undo;
pub(in crate::ahead) mod vessels;

use crate::ahead::calls::interrupted::make_own_call_again;
use crate::ahead::process::child_signal::end_of;
use crate::ahead::process::signals::{is_own, send_to_itself};
use crate::ahead::process::thread_group::Then;
use crate::ahead::rollback::checkpoints::Kept;
use crate::ahead::rollback::undo::{apply_to_object, Undo};
use crate::ahead::speculations::ledger::{us, Undone};
use crate::ahead::speculations::report::Rollback;
use crate::ahead::{pid_of, Object, Written, SCRATCH};
use crate::event_loop::Supervisor;
use crate::resent_signals;
use checkpoint::CheckpointError;
use procfs::{ProcessId, TaskId, ThreadId};
use speculation::{Action, Checkpoint, Process};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tracee::{Result, SignalInfo, Stop, Stopped, TraceError};

type CoreAction = Action<Object, Undo, Written>;

/// So long a new program may run until it is stopped again to see whether its agent is there.
const AGENT_PAUSE: Duration = Duration::from_micros(200);

/// What a rollback does, sorted.
#[derive(Default)]
struct Extent {
    processes: Vec<ProcessId>,
    undo: Vec<Undo>,
    restore: Vec<(ProcessId, Checkpoint)>,
    destroy: Vec<ProcessId>,
}

impl Supervisor {
    /// Do what the core wants done.
    pub(in crate::ahead) fn carry_out(&mut self) -> Result<()> {
        while let Some(action) = self.ahead.core.next_action() {
            self.ahead.walks.forget();
            if !matches!(action, Action::TakeCheckpoint { .. }) {
                self.ahead.busy_programs.let_go();
            }
            // What is not undone because nobody guesses leaves everything as it is.
            if !matches!(action, Action::RollForward { .. }) {
                self.revoke_permits();
                self.end_youth();
            }
            match action {
                Action::Stop { process } => {
                    self.ahead.is_rolling_back = true;
                    self.roll_back(process)?;
                    self.ahead.is_rolling_back = false;
                }
                other => self.carry_out_one(other)?,
            }
        }
        self.settle_locks();
        Ok(())
    }

    fn carry_out_one(&mut self, action: CoreAction) -> Result<()> {
        self.ahead.trace(|| format!("  {action:?}"));
        match action {
            Action::TakeCheckpoint { checkpoint, process } => {
                self.ahead.ledger.went_ahead(pid_of(process), self.ahead.now());
                self.keep_checkpoint(checkpoint);
            }
            Action::DiscardCheckpoint { checkpoint, .. } => {
                if let Some(kept) = self.ahead.checkpoints.take(checkpoint) {
                    self.discard(kept);
                }
            }
            Action::ReleaseOutput { output, .. } => self.release_output(output),
            Action::DropOutput { output, .. } => self.drop_output(&output),
            Action::ProcessResolved { process } => self.on_resolved(pid_of(process)),
            Action::ObjectResolved { object } => {
                self.ahead.touched.remove(&object);
                self.ahead.whole_objects.resolved(&object);
                self.make_shutdowns();
                self.ahead.changes += 1;
            }
            Action::ReleasePid { process } => self.release_exit(pid_of(process)),
            Action::RollForward { payloads, .. } => {
                let may_be_locked = self.may_files_be_locked();
                for payload in payloads {
                    match payload {
                        Undo::Reap { child, .. } => self.ahead.children.reaped_for_good(child),
                        Undo::Shutdown { own, closed, .. } => self.ahead.shutdowns.is_certain(own, closed),
                        Undo::Sent { receiver, .. } => self.call_receiver(receiver),
                        Undo::Mirror(copied) => self.mirror_is_certain(copied),
                        Undo::Server { ino, step } => self.server_is_certain(ino, step),
                        other => self.ahead.file_locks.roll_forward(other, may_be_locked),
                    }
                }
            }
            Action::Failed { .. }
            | Action::RollBack { .. }
            | Action::RestoreProcess { .. }
            | Action::DestroyProcess { .. }
            | Action::Stop { .. }
            | Action::RollbackComplete => {}
        }
        Ok(())
    }

    /// One rollback, from its first `Stop` to `RollbackComplete`: nobody concerned runs before the last object is put
    /// back.
    fn roll_back(&mut self, first: Process) -> Result<()> {
        let begin = Instant::now();
        self.ahead.whole_objects.forget();
        let mut extent = Extent { processes: vec![pid_of(first)], ..Extent::default() };
        let mut failed = Vec::new();
        while let Some(action) = self.ahead.core.next_action() {
            match action {
                Action::Stop { process } => extent.processes.push(pid_of(process)),
                Action::RollBack { payloads, .. } => extent.undo.extend(payloads),
                Action::RestoreProcess { process, checkpoint } => {
                    extent.restore.push((pid_of(process), checkpoint));
                }
                Action::DestroyProcess { process } => extent.destroy.push(pid_of(process)),
                Action::Failed { speculation } => failed.push(speculation),
                Action::RollbackComplete => break,
                other => self.carry_out_one(other)?,
            }
        }
        let (who, back) = (&extent.processes, &extent.restore);
        self.ahead.trace(|| format!("  roll back {who:?}, restore {back:?}"));
        // By thread, all of each process.
        let mut stops = HashMap::new();
        let mut running = Vec::new();
        for &pid in &extent.processes {
            running.extend(self.threads_of(pid).into_iter().filter(|&tid| !self.is_kept(pid, tid)));
        }
        let mut halted = tracee::halt_all(&running)?;
        for &pid in &extent.processes {
            self.ahead.crash.step();
            // It may have been killed meanwhile, by itself or from outside.
            self.halt_group(pid, &mut halted, &mut stops).or_else(unless_dead)?;
        }
        // A child that is removed may hold the last end of a pipe whose other ends are about to come back: until then
        // we hold it.
        let _ends: Vec<OwnedFd> = extent.undo.iter().flat_map(Undo::pipes).collect();
        let (processes, objects) = (extent.processes.len(), extent.undo.len());
        self.destroy(&extent.destroy, &mut stops)?;
        for &(pid, checkpoint) in &extent.restore {
            self.make_room_for_descriptors(pid, checkpoint, &stops).or_else(unless_dead)?;
        }
        // Flags come last: by then whoever had closed an end of a pipe has it again.
        let (flags, others): (Vec<Undo>, Vec<Undo>) =
            extent.undo.into_iter().partition(|undo| matches!(undo, Undo::EndFlags { .. }));
        for undo in others.into_iter().chain(flags) {
            self.ahead.crash.step();
            self.apply(undo, &stops).or_else(unless_dead)?;
        }
        for (pid, checkpoint) in extent.restore {
            let Some(kept) = self.ahead.checkpoints.take(checkpoint) else {
                // Its process has ended for good.
                self.ahead.report.lost += 1;
                continue;
            };
            self.ahead.crash.step();
            self.ahead.children.was_not_told_of_buried(pid);
            let threads = self.take_group(pid, &mut stops);
            match threads.contains_key(&pid.leader()) {
                true => match self.put_back(pid, threads, kept) {
                    Err(TraceError::Gone(_)) => self.ahead.report.lost += 1,
                    done => done?,
                },
                false => {
                    // Killed from outside: what it did can be undone, its death cannot.
                    self.ahead.report.lost += 1;
                    self.discard(kept);
                }
            }
        }
        self.ahead.listeners.rolled_back();
        self.forget_connections_never_made();
        self.ahead.epoll_sets.rolled_back();
        let took = begin.elapsed();
        let undone = Undone { pids: extent.processes, operations: objects, took };
        let cause = self.ahead.ledger.rolled_back(&failed, undone, self.ahead.now());
        self.ahead
            .report
            .rolled_back(cause, Rollback { speculations: failed.len(), processes, operations: objects, us: us(took) });
        self.ahead.changes += 1;
        self.call_receivers();
        Ok(())
    }

    /// The threads of a process, of all that were stopped.
    pub(in crate::ahead) fn take_group(
        &mut self,
        pid: ProcessId,
        stops: &mut HashMap<ThreadId, Stopped>,
    ) -> HashMap<ThreadId, Stopped> {
        if !self.has_company(pid.leader()) {
            return stops.remove_entry(&pid.leader()).into_iter().collect();
        }
        let group: Vec<ThreadId> = stops
            .keys()
            .copied()
            .filter(|&tid| tid == pid.leader() || self.pid_of(tid).is_ok_and(|of| of == pid))
            .collect();
        group.into_iter().filter_map(|tid| stops.remove_entry(&tid)).collect()
    }

    /// A thread is stopped, by us before or now; stop it where a rollback can begin. `None` if it is dead.
    pub(in crate::ahead) fn halt_at_once(
        &mut self,
        pid: ProcessId,
        tid: ThreadId,
        mut stopped: Option<Stopped>,
    ) -> Result<Option<Stopped>> {
        if self.ahead.children.standing_thread(pid) == Some(tid) {
            return Ok(self.ahead.children.take_standing(pid).map(|(stopped, _)| stopped));
        }
        if self.ahead.ending.get(&pid).is_some_and(|(stopped, _)| stopped.tid() == tid) {
            return Ok(self.ahead.ending.remove(&pid).map(|(stopped, _)| stopped));
        }
        let groups = &mut self.ahead.thread_groups;
        if let Some(stopped) = groups.take_retired(tid).or_else(|| groups.take_held(tid)) {
            return Ok(Some(stopped));
        }
        if let Some(parked) = self.ahead.waiting.take_of_thread(tid) {
            return Ok(Some(parked.stopped));
        }
        // A new program without its agent could make no call for us: let it come so far. It may never stop by itself.
        while let Some(now) = stopped.take() {
            let is_new = matches!(now.stop(), Stop::Exec { .. });
            if !is_new && !self.is_without_agent(tid) || self.is_request(&now) {
                stopped = Some(now);
                break;
            }
            match now.stop() {
                Stop::Exec { .. } | Stop::SystemCall => self.on_stop(now),
                // Its agent may not attach the world, and tries again when it may.
                Stop::Signal(signal) if self.is_of_injection(&now, signal)? => self.on_stop(now),
                Stop::Signal(_) => {
                    let info = self.resent_signals.take(tid, now.signal_info()?);
                    self.ahead.held_signals.hold(pid, info);
                    now.resume(0)?;
                }
                Stop::Group(_) | Stop::Trap | Stop::Exit => now.resume(0)?,
            }
            std::thread::sleep(AGENT_PAUSE);
            stopped = tracee::halt(tid)?;
        }
        if let Some(stopped) = &stopped {
            if let Stop::Signal(_) = stopped.stop() {
                let info = stopped.signal_info()?;
                let info = self.resent_signals.take(tid, info);
                // Its own SIGPIPE, abort and the like belong to what is taken back; what we have told of a child is
                // told again.
                let is_own = is_own(&info, pid);
                let is_ours = info.number() == libc::SIGCHLD && self.ahead.children.is_announced(info.process());
                // What was sent by somebody inside is in its queue again.
                if !is_own && !is_ours && !info.is_noted() {
                    self.keep_signal(pid, info);
                }
            }
        }
        Ok(stopped)
    }

    pub(in crate::ahead) fn is_request(&self, stopped: &Stopped) -> bool {
        stopped.stop() == Stop::SystemCall
            && stopped.registers().is_ok_and(|registers| {
                registers.orig_rax == u64::from(agent_abi::REQUEST_NR) && self.image.contains(registers.rip)
            })
    }

    /// They were forked by an execution that never happened (000, 6.8).
    fn destroy(&mut self, children: &[ProcessId], stops: &mut HashMap<ThreadId, Stopped>) -> Result<()> {
        for &pid in children {
            self.ahead.crash.step();
            // They are killed where they stand. One that stands at its end already is let go for that.
            drop(self.take_group(pid, stops));
            let mut threads = self.threads_of(pid);
            threads.iter().try_for_each(|&tid| self.destroy_unannounced(tid))?;
            // If it is not there any more it was killed from outside, and its end has been heard of.
            let is_alive = self.tracees.contains_key(&pid.leader());
            if is_alive {
                end(&threads)?;
            }
            let parent = self.ahead.children.parent(pid);
            self.ahead.children.unmake(pid);
            self.ahead.held_signals.forget(pid);
            if is_alive {
                // Its first thread last.
                threads.reverse();
                threads.into_iter().for_each(|tid| self.on_exit(tid));
            }
            if let Some(parent) = parent {
                match stops.get(&parent.leader()) {
                    Some(stopped) => {
                        let dead = [pid];
                        self.wait_in(stopped, parent, &dead)?;
                    }
                    None => self.ahead.children.reap_later(parent, pid),
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, undo: Undo, stops: &HashMap<ThreadId, Stopped>) -> Result<()> {
        let failed = |source| TraceError::Kernel { what: "undo an operation", task: TaskId::NONE, source };
        apply_to_object(&undo).map_err(failed)?;
        match undo {
            Undo::Descriptor { pid, fd, was, close_on_exec } => {
                let Some(stopped) = stops.get(&pid.leader()) else { return Ok(()) };
                let open = self.open_again(&was).map_err(failed)?;
                self.install(stopped, pid, fd, &open, close_on_exec)
            }
            Undo::CloseOnExec { pid, fd, was } => {
                let Some(stopped) = stops.get(&pid.leader()) else { return Ok(()) };
                const F_SETFD: u64 = 2;
                let mut remote = self.remote_calls(stopped)?;
                remote.call(libc::SYS_fcntl, &[fd as u64, F_SETFD, u64::from(was)])?;
                let signals = remote.finish()?;
                self.hold_signals(pid, signals);
                Ok(())
            }
            // Of one that was removed a moment ago there is nothing to be told any more.
            Undo::Reap { child, .. } | Undo::Told { child, .. } if !self.ahead.children.knows(child) => Ok(()),
            Undo::Reap { child, is_told } => {
                self.ahead.children.not_reaped(child, is_told);
                Ok(())
            }
            Undo::Told { parent, child, status } => {
                let is_held = self.ahead.children.tell_again(parent, child);
                if !is_held && !self.is_about_to_hear(parent, child, stops)? {
                    let info = end_of(child, status);
                    self.ahead.held_signals.hold(parent, info);
                }
                Ok(())
            }
            Undo::Sent { receiver, number } => {
                self.ahead.signals.remove(receiver, number);
                Ok(())
            }
            Undo::Heard { receiver, sent } => {
                if self.tracees.contains_key(&receiver.leader()) {
                    self.ahead.signals.put_back(receiver, sent);
                }
                Ok(())
            }
            Undo::Input { id, pin, reading } => {
                self.ahead.input.give_back(id, pin, &reading);
                self.reset_if_closed(id);
                Ok(())
            }
            Undo::Accept { listener, accepted } => {
                self.accept_back(listener, &accepted);
                Ok(())
            }
            Undo::Connect { listener, client, held } => self.disconnect(listener, client, held).map_err(failed),
            Undo::Server { ino, step } => {
                self.server_never_was(ino, step);
                Ok(())
            }
            Undo::Shutdown { own, before, .. } => {
                self.ahead.shutdowns.take_back(own, before);
                Ok(())
            }
            Undo::EndFlags { pipe, holders, flags } => {
                self.restore_end_flags(pipe, &holders, flags);
                Ok(())
            }
            Undo::EpollSet(before) => {
                self.ahead.epoll_sets.undo(before);
                Ok(())
            }
            Undo::Mirror(copied) => {
                self.ahead.mirrors.forget(copied);
                Ok(())
            }
            Undo::Memory(..)
            | Undo::Stream { .. }
            | Undo::Queue(..)
            | Undo::State { .. }
            | Undo::Position { .. }
            | Undo::Flags { .. }
            | Undo::Lock(_)
            | Undo::Records(_)
            | Undo::Nothing => Ok(()),
        }
    }

    /// Whether the kernel's word of a child's end, which is not to be kept from its parent any more, has reached it and
    /// was not heard yet.
    fn is_about_to_hear(
        &self,
        parent: ProcessId,
        child: ProcessId,
        stops: &HashMap<ThreadId, Stopped>,
    ) -> Result<bool> {
        let tells = |info: &SignalInfo| info.number() == libc::SIGCHLD && info.process() == child;
        let is_pending = match stops.get(&parent.leader()) {
            Some(stopped) => {
                let original = |info: &SignalInfo| self.resent_signals.original(parent.leader(), info);
                let is_resent = |info: &SignalInfo| original(info).is_some_and(|was| tells(&was.info));
                stopped.pending_signals(true)?.iter().any(tells)
                    || stopped.pending_signals(false)?.iter().any(is_resent)
            }
            None => false,
        };
        Ok(is_pending || self.ahead.held_signals.of(parent).iter().any(tells))
    }

    /// Put a process back to its checkpoint; its call is looked at again, and made without running ahead. `threads` has
    /// all of its threads, stopped.
    fn put_back(&mut self, pid: ProcessId, mut threads: HashMap<ThreadId, Stopped>, kept: Kept) -> Result<()> {
        if let Err(error) = threads.values().try_for_each(|stopped| self.forget_unborn(stopped)) {
            self.discard(kept);
            return Err(error);
        }
        // Only who was in the middle of a fork has children of whose birth we have not heard: of all others it was told
        // (`on_done`). Those of a thread that ends here are children of another one then.
        let mut was_giving_birth = false;
        for &tid in threads.keys() {
            was_giving_birth |= self.ahead.giving_birth.remove(&tid);
            // Also where the call has been made and something was to be done about it (`UnderWay::leaves_something`):
            // nobody tells of it any more, and a process would have lent its memory for ever.
            self.ahead.under_way.end(tid);
        }
        let restored = self.restore_from(&kept, pid, &mut threads);
        let Kept { vessel, tid, call, mut others, apart, sent_again, .. } = kept;
        self.ahead.children.apart.put_back(pid, apart);
        let as_it_was =
            |tid: ThreadId, info| resent_signals::find(sent_again.get(&tid), &info).map_or(info, |was| was.info);
        let signals: HashMap<ThreadId, Option<SignalInfo>> =
            threads.keys().map(|&tid| (tid, vessel.signal(tid).map(|info| as_it_was(tid, info)))).collect();
        // Also where the process was killed meanwhile: nobody else knows of its vessel.
        self.discard_vessel(vessel.into_vessel());
        restored?;
        let first = threads.get(&pid.leader()).ok_or(TraceError::Gone(pid.into()))?;
        let mut unannounced = Vec::new();
        for &tid in threads.keys().filter(|_| was_giving_birth) {
            unannounced.extend(self.end_unannounced(tid)?);
        }
        if !unannounced.is_empty() {
            self.wait_in(first, pid, &unannounced)?;
        }
        self.reap_unseen(first, pid)?;
        self.forget_silent_children(pid, first)?;
        let ends = call.as_ref().is_some_and(|call| call.ends_by.is_some());
        let own = call.map_or(Then::GoesOn, |call| Then::Asks(Box::new(call)));
        others.insert(tid, own);
        // The one at whose call the checkpoint was taken is looked at first.
        let mut order: Vec<ThreadId> = threads.keys().copied().collect();
        order.sort_unstable_by_key(|&thread| (thread != tid, thread));
        for thread in order {
            let Some(stopped) = threads.remove(&thread) else { continue };
            let then = match others.remove(&thread) {
                Some(_) if ends && thread != tid => Then::IsRetired { is_at_exit: false },
                then => then.unwrap_or(Then::GoesOn),
            };
            let then = make_own_call_again(&stopped, then)?;
            self.go_on_again(pid, stopped, then, signals.get(&thread).copied().flatten())?;
        }
        Ok(())
    }

    /// A thread of a process that has been put back.
    fn go_on_again(&mut self, pid: ProcessId, stopped: Stopped, then: Then, signal: Option<SignalInfo>) -> Result<()> {
        match (then, signal) {
            (Then::Asks(call), _) => match call.ends_by {
                Some(info) => drop(self.ahead.ending.insert(pid, (stopped, info))),
                None => self.ahead.waiting.park(stopped, *call),
            },
            (Then::IsRetired { is_at_exit }, _) => self.ahead.thread_groups.retire(pid, stopped, is_at_exit),
            (Then::GoesOn, Some(signal)) => stopped.resume_with(&signal)?,
            (Then::GoesOn, None) => stopped.resume(0)?,
        }
        Ok(())
    }

    fn restore_from(&mut self, kept: &Kept, pid: ProcessId, threads: &mut HashMap<ThreadId, Stopped>) -> Result<()> {
        let gate = self.image.header.gate_program;
        let stopped = threads.get(&pid.leader()).ok_or(TraceError::Gone(pid.into()))?;
        let open = self.descriptors_of(pid)?;
        let known = self.known_of(pid, pid.leader());
        if !known.no_timers {
            self.stop_timers(pid, stopped)?;
        }
        self.restore_sets(pid, stopped)?;
        let surplus: Vec<i32> = open.iter().copied().filter(|fd| !kept.descriptors.contains(fd)).collect();
        // A thread that was in the agent, about to give up a descriptor of which its program does not know, has closed
        // it without a question, and will once more. Nobody may get that number before.
        let closed_again = |fd: &i32| !kept.others.is_empty() && !open.contains(fd);
        let missing: Vec<i32> = kept.descriptors.iter().copied().filter(closed_again).collect();
        if !surplus.is_empty() || !missing.is_empty() {
            let mut remote = self.remote_calls(stopped)?;
            for fd in surplus {
                remote.call(libc::SYS_close, &[fd as u64])?;
            }
            for fd in missing {
                let close_on_exec = libc::O_CLOEXEC as u64;
                let anything = remote.call(libc::SYS_eventfd2, &[0, close_on_exec])?;
                if anything >= 0 && anything != i64::from(fd) {
                    remote.call(libc::SYS_dup3, &[anything as u64, fd as u64, close_on_exec])?;
                    remote.call(libc::SYS_close, &[anything as u64])?;
                }
            }
            let signals = remote.finish()?;
            self.hold_signals(pid, signals);
        }
        self.register_barriers(kept, stopped)?;
        threads.values().try_for_each(|stopped| self.forget_undone_signals(pid, stopped))?;
        kept.vessel.restore_known(threads, gate, known).map_err(|error| match error {
            CheckpointError::Trace(error) => error,
            other => TraceError::Kernel {
                what: "restore a checkpoint",
                task: pid.into(),
                source: std::io::Error::other(other.to_string()),
            },
        })?;
        self.is_known_again(kept);
        self.forget_pending_again(pid, kept);
        self.ahead.outcomes.back_to(pid, kept.injected, Instant::now());
        self.ahead.children.revive(pid);
        self.count_threads(pid);
        self.ahead.starting.remove(&pid.leader());
        if let Some(tracee) = self.tracees.get_mut(&pid.leader()) {
            tracee.injection = None;
        }
        Ok(())
    }

    /// Signals that waited in the kernel at the checkpoint wait there again: those of them that were heard and held
    /// since are not sent by us, too.
    fn forget_pending_again(&mut self, pid: ProcessId, kept: &Kept) {
        for (tid, pending, shared) in kept.vessel.pending() {
            let original = self.resent_signals.waits_again(tid, &pending, kept.sent_again.get(&tid));
            let was = original.map_or(pending, |original| original.info);
            self.ahead.signals.forget_those_like(pid, &was);
            self.ahead.held_signals.forget_one_like(pid, &was);
            let is_told = original.map_or(!shared, |original| original.is_told);
            if is_told && was.number() == libc::SIGCHLD && was.code() > 0 {
                // What we have told of a child, and what may have been heard since.
                self.ahead.children.announce(was.process());
            }
        }
    }

    /// A timer that goes on while its process is put back would send a signal that nobody takes out any more, to a
    /// process that may have no handler again. The checkpoint has the timers that are to go on.
    fn stop_timers(&mut self, pid: ProcessId, stopped: &Stopped) -> Result<()> {
        const NEVER: [u8; 32] = [0; 32];
        let at = stopped.registers()?.gs_base - SCRATCH;
        let mut remote = self.remote_calls(stopped)?;
        tracee::write_bytes(pid, at, &NEVER).map_err(|source| TraceError::kernel("write a timer", pid, source))?;
        for which in [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF] {
            remote.call(libc::SYS_setitimer, &[which as u64, at, 0])?;
        }
        let mut signals = remote.finish()?;
        signals.retain(|info| !is_own(info, pid));
        self.hold_signals(pid, signals);
        Ok(())
    }

    /// Signals that wait in the kernel because of what is undone: SIGPIPE of a write, a fault, what the process has
    /// sent itself, what a timer did, what we have told it of a child or sent it in the name of another one. Those that
    /// waited at the checkpoint are sent again with it. What we have sent again in the place of such a signal is one.
    fn forget_undone_signals(&mut self, pid: ProcessId, stopped: &Stopped) -> Result<()> {
        let tid = stopped.tid();
        let is_first = tid == pid.leader();
        let is_undone = |info: &SignalInfo| info.is_noted() || is_own(info, pid);
        let mut taken = stopped.pending_signals(false)?;
        taken.retain(|info| {
            let original = self.resent_signals.original(tid, info);
            original.is_some_and(|was| was.is_told || is_undone(&was.info))
        });
        let places: Vec<_> = taken.iter().filter_map(SignalInfo::is_in_place_of).collect();
        let is_undone_again = |info: &SignalInfo| info.is_in_place_of().is_some_and(|id| places.contains(&id));
        self.take_signals(pid, stopped, |info, shared| {
            if shared && !is_first {
                // Those of the whole process are looked at once.
                return false;
            }
            let is_told = info.number() == libc::SIGCHLD && info.code() > 0 && !shared;
            is_told || is_undone(info) || is_undone_again(info) || info.number() == libc::SIGPIPE && !shared
        })?;
        for info in &taken {
            self.resent_signals.take(tid, *info);
        }
        Ok(())
    }

    /// A SIGCHLD that waits in the kernel, about a child of which the program knows nothing: one that another would be
    /// joined with, or that is taken by `sigwait` without a stop.
    pub(in crate::ahead) fn forget_silent_children(&mut self, pid: ProcessId, stopped: &Stopped) -> Result<()> {
        let (vessels, kin) = (&self.ahead.vessels, &self.ahead.children);
        let is_silent = |child| vessels.has(child) || kin.is_silent(child) && !kin.is_announced(child);
        let silent: Vec<ProcessId> = stopped
            .pending_signals(true)?
            .iter()
            .filter(|info| info.number() == libc::SIGCHLD && is_silent(info.process()))
            .map(SignalInfo::process)
            .collect();
        if silent.is_empty() {
            return Ok(());
        }
        self.take_signals(pid, stopped, |info, shared| {
            shared && info.number() == libc::SIGCHLD && silent.contains(&info.process())
        })?;
        self.tell_of_joined(pid, stopped)
    }

    /// Take signals out of the queues of a process, in its name: those that are `unwanted(info, whether they wait for
    /// the whole process)`. Only a number can be asked for, so that others of the same number are taken, too, and sent
    /// again.
    fn take_signals(
        &mut self,
        pid: ProcessId,
        stopped: &Stopped,
        unwanted: impl Fn(&SignalInfo, bool) -> bool,
    ) -> Result<()> {
        let mut pending: Vec<(SignalInfo, bool)> = Vec::new();
        for shared in [false, true] {
            pending.extend(stopped.pending_signals(shared)?.into_iter().map(|info| (info, shared)));
        }
        // A step ends with a SIGTRAP of the kernel's: it must not be taken for one that was sent.
        pending.retain(|(info, _)| info.number() != libc::SIGTRAP || info.code() <= 0);
        let numbers: Vec<i32> =
            pending.iter().filter(|(info, shared)| unwanted(info, *shared)).map(|(info, _)| info.number()).collect();
        pending.retain(|(info, _)| numbers.contains(&info.number()));
        if pending.is_empty() {
            return Ok(());
        }
        let at = stopped.registers()?.gs_base - SCRATCH;
        let kernel = |source| TraceError::kernel("write a set of signals", pid, source);
        let mut remote = self.remote_calls(stopped)?;
        for (info, _) in &pending {
            let bit = 1u64 << (info.number() - 1);
            let words = [bit.to_ne_bytes(), [0; 8], [0; 8]].concat();
            tracee::write_bytes(pid, at, &words).map_err(kernel)?;
            // All signals are blocked meanwhile: this takes one out, the thread's own first, and waits for nothing.
            remote.call(libc::SYS_rt_sigtimedwait, &[at, 0, at + 8, 8])?;
        }
        for (info, shared) in pending.iter().filter(|(info, shared)| !unwanted(info, *shared)) {
            send_to_itself(&mut remote, (pid, stopped.tid()), at, info, *shared)?;
        }
        let mut signals = remote.finish()?;
        // One that was not blocked came with a step.
        signals.retain(|info| info.number() != libc::SIGTRAP || !unwanted(info, false));
        self.hold_signals(pid, signals);
        Ok(())
    }

    /// Children of whose birth we have not heard: forked by an execution that never happened.
    fn destroy_unannounced(&mut self, tid: ThreadId) -> Result<()> {
        match self.ahead.giving_birth.remove(&tid) {
            true => self.end_unannounced(tid).map(drop),
            false => Ok(()),
        }
    }

    fn end_unannounced(&mut self, tid: ThreadId) -> Result<Vec<ProcessId>> {
        let unannounced_children = self.unannounced_children(tid)?;
        for &child in &unannounced_children {
            end(&[child.leader()])?;
            self.on_end_of_unseen(child.leader());
            self.ahead.children.unmake(child);
        }
        Ok(unannounced_children)
    }

    /// The process depends on nothing any more: what waited for that.
    fn on_resolved(&mut self, pid: ProcessId) {
        self.ahead.changes += 1;
        self.ahead.outcomes.settle(pid);
        if self.ahead.core.open_speculations() == 0 {
            self.ahead.outside_ends.close();
        }
        self.ahead.children.forget_gone(pid);
        self.release_retired(pid);
        self.ahead.ledger.settled(pid, self.ahead.now());
        for info in self.ahead.held_signals.take(pid) {
            self.send_again_as_ours(pid.leader(), info);
        }
        self.call_receiver(pid);
    }

    /// Signals that reached a process while it was made to do something for us.
    pub(in crate::ahead) fn hold_signals(&mut self, pid: ProcessId, signals: Vec<SignalInfo>) {
        for info in signals {
            let info = self.resent_signals.take(pid.leader(), info);
            if self.ahead.is_speculative(pid) {
                self.ahead.held_signals.hold(pid, info);
            } else {
                self.send_again_as_ours(pid.leader(), info);
            }
        }
    }
}

/// Kill a process with these threads, and wait for its end, which is told after those of all threads but the first.
fn end(threads: &[ThreadId]) -> Result<()> {
    let Some((&first, others)) = threads.split_first() else { return Ok(()) };
    crate::sys::kill_process_of(first, libc::SIGKILL);
    for &tid in others {
        // There is nothing to wait for if somebody has.
        let _ = tracee::await_end(tid);
    }
    tracee::await_end(first).map(drop).map_err(|source| TraceError::kernel("wait for the end", first, source))
}

/// What is done to a process that died meanwhile need not be done.
fn unless_dead(error: TraceError) -> Result<()> {
    match error {
        TraceError::Gone(_) => Ok(()),
        error => Err(error),
    }
}

/// Whether we trace a process or a thread, as our first thread does; of one that has ended the answer is no.
pub(crate) fn is_traced_by_us(task: impl Into<TaskId>) -> procfs::Result<bool> {
    let own = ProcessId::own().leader();
    procfs::unless_gone(procfs::Status::of(task).and_then(|of| of.tracer()).map(|tracer| tracer == Some(own)))
}
