//! Processes with several threads (000, 5.1: a checkpoint of all of them;
//! [0115](../../../../../docs/decisions/0115-threads-run-ahead.md)).
//!
//! The threads of a process share its memory, so dependencies are the process's. It gains some only while all its
//! threads stand still, each before its call, or in one that has had no effect and begins again
//! ([`Supervisor::stop_others`]). Those that were kept at their calls stay there; the others go on at once.
//!
//! A thread that ends on a guess is *retired*: whoever waits for it is told as by the kernel, and it stands still at
//! its last call until its process depends on nothing. So its id stays its own, and a rollback finds it there. When
//! the process ends on a guess, all its threads are retired.
//!
//! **Invariant:** a checkpoint is taken of a process, and a process is put back, only while all its threads are
//! stopped.

use crate::ahead::calls::ask::Decision;
use crate::ahead::process::signals::has_part_of_its_effect;
use crate::ahead::rollback::checkpoints::Kept;
use crate::ahead::rollback::vessels::Copied;
use crate::ahead::{Call, SCRATCH};
use crate::event_loop::{Supervisor, Tracee};
use crate::signals;
use agent_abi::{option, Request, ThreadPage, AGENT_BASE, PROCESSES_MAX, PROCESS_MAPPED_SHARED, THREADS_MAX};
use checkpoint::{CheckpointError, ThreadedVessel, ToReap};
use procfs::{ProcessId, ThreadId};
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use syscall_table::nr;
use tracee::{RemoteCalls, Result, Stop, Stopped, TraceError};

/// A thread that goes on only if a rollback makes it.
#[derive(Debug)]
pub(in crate::ahead) struct Retired {
    pid: ProcessId,
    stopped: Stopped,
    /// It stands at its own end; otherwise its process's.
    is_at_exit: bool,
}

/// What a thread does when its process has been put back to a checkpoint.
#[derive(Debug)]
pub(crate) enum Then {
    /// It goes on with its program.
    GoesOn,
    /// Its call is looked at again.
    Asks(Box<Call>),
    /// It stays where it is: it has ended.
    IsRetired {
        /// At its own end.
        is_at_exit: bool,
    },
}

/// A checkpoint, and what the threads do after a rollback that did not make it necessary.
pub(in crate::ahead) type Forked = (Copied, HashMap<ThreadId, Then>);

/// What is known of threads besides their processes.
#[derive(Debug, Default)]
pub(crate) struct ThreadGroups {
    retired: HashMap<ThreadId, Retired>,
    /// Processes of which one thread has lent the memory to a child, or executes a program, and that thread (`apart`,
    /// [`Supervisor::hold_first`]).
    lenders: HashMap<ProcessId, ThreadId>,
    /// Their other threads, with their process.
    held: HashMap<ThreadId, (ProcessId, Stopped)>,
    /// A checkpoint could not be taken because a thread was in the middle of something.
    is_awaited: bool,
    /// And of something that may take long: a write that would end early.
    may_take_long: bool,
}

impl ThreadGroups {
    pub fn is_quiet(&self) -> bool {
        self.retired.is_empty() && self.lenders.is_empty()
    }

    /// Whether this thread stands still until another one has its memory back.
    pub fn is_held(&self, tid: ThreadId) -> bool {
        self.held.contains_key(&tid)
    }

    /// Whether a thread may do nothing, because another one has lent the memory of their process.
    pub fn is_lent_by_another(&self, pid: ProcessId, tid: ThreadId) -> bool {
        self.lenders.get(&pid).is_some_and(|&lender| lender != tid)
    }

    /// Whether a process has lent its memory, and not got it back yet.
    pub fn is_lent(&self, pid: ProcessId) -> bool {
        self.lenders.contains_key(&pid)
    }

    pub fn is_retired(&self, tid: ThreadId) -> bool {
        self.retired.contains_key(&tid)
    }

    pub fn retire(&mut self, pid: ProcessId, stopped: Stopped, is_at_exit: bool) {
        self.retired.insert(stopped.tid(), Retired { pid, stopped, is_at_exit });
    }

    pub fn take_retired(&mut self, tid: ThreadId) -> Option<Stopped> {
        self.retired.remove(&tid).map(|retired| retired.stopped)
    }

    /// A process has executed a program.
    pub fn executed(&mut self, pid: ProcessId) {
        self.lenders.remove(&pid);
        self.held.retain(|_, (of, _)| *of != pid);
    }

    /// A thread has ended.
    pub fn forget(&mut self, tid: ThreadId) {
        self.retired.remove(&tid);
        self.held.remove(&tid);
    }

    pub fn take_held(&mut self, tid: ThreadId) -> Option<Stopped> {
        self.held.remove(&tid).map(|(_, stopped)| stopped)
    }

    /// Whether a checkpoint that could not be taken can be in a moment.
    pub fn can_be_awaited(&self) -> bool {
        self.is_awaited && !self.may_take_long
    }

    /// A checkpoint can be taken when somebody who is about to be born is there.
    pub fn await_birth(&mut self) {
        self.is_awaited = true;
        self.may_take_long = false;
    }

    /// The same: it may be possible by now.
    pub fn take_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    fn of(&self, pid: ProcessId) -> impl Iterator<Item = &Retired> {
        self.retired.values().filter(move |retired| retired.pid == pid)
    }
}

impl Supervisor {
    /// Whether a thread's process has, or is about to have, other threads, or others that share its memory.
    pub(crate) fn has_company(&self, tid: ThreadId) -> bool {
        let users = |process: usize| self.world().processes[process].users.load(Ordering::Relaxed);
        self.tracees.get(&tid).is_some_and(|tracee| users(tracee.process) != 1)
    }

    /// Calls that a thread makes for us, whoever else is in its process.
    pub(in crate::ahead) fn remote_calls<'a>(&self, stopped: &'a Stopped) -> Result<RemoteCalls<'a>> {
        self.ahead.walks.forget();
        let gate = self.image.header.gate_program;
        match self.has_company(stopped.tid()) {
            true => RemoteCalls::in_company(stopped, gate),
            false => RemoteCalls::new(stopped, gate),
        }
    }

    /// The threads of a process of which we have heard, its first one included, also where that one has ended.
    pub(in crate::ahead) fn threads_of(&mut self, pid: ProcessId) -> Vec<ThreadId> {
        if !self.has_company(pid.leader()) {
            return vec![pid.leader()];
        }
        let Some(slot) = self.tracees.get(&pid.leader()).map(|tracee| tracee.process) else {
            return vec![pid.leader()];
        };
        let company: Vec<ThreadId> =
            self.tracees.iter().filter(|(_, tracee)| tracee.process == slot).map(|(&tid, _)| tid).collect();
        let mut threads: Vec<ThreadId> = company
            .into_iter()
            .filter(|&tid| !tid.is_leader_of(pid) && self.pid_of(tid).is_ok_and(|of| of == pid))
            .collect();
        threads.sort_unstable();
        threads.insert(0, pid.leader());
        threads
    }

    /// Who shares a process's memory and has been born.
    fn users_of(&self, pid: ProcessId) -> impl Iterator<Item = (ThreadId, &Tracee)> {
        let slot = self.tracees.get(&pid.leader()).map(|tracee| tracee.process);
        let users = self.tracees.iter().filter(move |(_, tracee)| Some(tracee.process) == slot);
        users.map(|(&tid, tracee)| (tid, tracee))
    }

    /// Whether somebody who shares a process's memory is about to be born: the agent counts it before the call.
    pub(in crate::ahead) fn expects_birth(&self, pid: ProcessId) -> bool {
        let Some(tracee) = self.tracees.get(&pid.leader()) else { return false };
        let counted = self.world().processes[tracee.process].users.load(Ordering::Acquire);
        counted as usize > self.users_of(pid).count()
    }

    /// Whether those that share a process's memory are its threads, the first one among them, and nobody else. Who is
    /// about to be born may be a process (`CLONE_VM`).
    pub(in crate::ahead) fn is_one_process(&self, pid: ProcessId) -> bool {
        let options = self.world().options.load(Ordering::Relaxed);
        let is_its =
            |tid: ThreadId, known: Option<ProcessId>| known.or_else(|| procfs::Status::of(tid).ok()?.process().ok());
        options & option::INDEPENDENT_THREADS == 0
            && self.tracees.contains_key(&pid.leader())
            && !self.ahead.children.any_shares_with(pid)
            && is_first_alive(pid)
            && !self.expects_birth(pid)
            && self.users_of(pid).all(|(tid, tracee)| is_its(tid, tracee.pid) == Some(pid))
    }

    /// Whether the end of a process whose exit is held changes no memory that anybody sees: its own is used by its own
    /// threads only, which stand still, and none of them has a lock of which the kernel tells others at its end.
    pub(in crate::ahead) fn leaves_nothing_in_memory(&self, pid: ProcessId) -> bool {
        let Some(standing) = self.ahead.children.standing_at(pid) else { return false };
        let retired: HashMap<ThreadId, &Stopped> =
            self.ahead.thread_groups.of(pid).map(|retired| (retired.stopped.tid(), &retired.stopped)).collect();
        let is_alone = || {
            let is_known = |tid: ThreadId| tid == standing.tid() || retired.contains_key(&tid);
            !self.expects_birth(pid) && self.users_of(pid).all(|(tid, _)| is_known(tid))
        };
        let has_lock = || retired.values().copied().chain([standing]).any(has_robust_futexes);
        (!self.has_company(pid.leader()) || is_alone()) && (!self.shares_a_mapping(pid) || !has_lock())
    }

    fn shares_a_mapping(&self, pid: ProcessId) -> bool {
        let Some(tracee) = self.tracees.get(&pid.leader()) else { return true };
        self.world().processes[tracee.process].flags.load(Ordering::Relaxed) & PROCESS_MAPPED_SHARED != 0
    }

    /// Take a checkpoint of a process with several threads, of which one, `stopped`, makes it gain dependencies; and
    /// what the others do after a rollback. `None`: not now.
    pub(in crate::ahead) fn fork_with_others(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        dead: &mut Vec<ToReap>,
    ) -> std::result::Result<Option<Forked>, CheckpointError> {
        let Some(others) = self.stop_others(pid, stopped.tid())? else { return Ok(None) };
        // Until they stood still one of them may have shared memory with others, locked a file, or set a first timer.
        if !self.can_be_checkpointed(pid) {
            self.let_go_on(pid, others)?;
            return Ok(None);
        }
        let known = self.known_of(pid, stopped.tid());
        let mut then: HashMap<ThreadId, Then> = others.iter().map(|other| (other.tid(), Then::GoesOn)).collect();
        let mut all: HashMap<ThreadId, &Stopped> =
            others.iter().chain([stopped]).map(|stopped| (stopped.tid(), stopped)).collect();
        for parked in self.ahead.waiting.iter().filter(|parked| parked.call.pid == pid) {
            all.insert(parked.call.tid, &parked.stopped);
            then.insert(parked.call.tid, Then::Asks(Box::new(parked.call.again())));
        }
        for retired in self.ahead.thread_groups.of(pid) {
            all.insert(retired.stopped.tid(), &retired.stopped);
            then.insert(retired.stopped.tid(), Then::IsRetired { is_at_exit: retired.is_at_exit });
        }
        let forked = ThreadedVessel::fork_known(pid, &all, self.image.header.gate_program, known, dead);
        drop(all);
        // Before any of them goes on: a pipe is made without a question, and would be taken for an older one; and what
        // is closed from here on has to be undone.
        let copied = forked.and_then(|vessel| Ok(self.look_into_copy(vessel)?));
        if copied.is_ok() {
            self.is_put_back_from_now_on(pid);
        }
        self.let_go_on(pid, others)?;
        copied.map(|copied| Some((copied, then)))
    }

    /// Stop all other threads of a process where a checkpoint can be taken. The answer has those that ran, and are to
    /// go on. `None`: one of them is in the middle of something; whoever asked is looked at again when that may be
    /// over.
    pub(in crate::ahead) fn stop_others(&mut self, pid: ProcessId, caller: ThreadId) -> Result<Option<Vec<Stopped>>> {
        let mut stopped = Vec::new();
        let mut is_put_off = false;
        while !is_put_off {
            let standing: HashSet<ThreadId> = stopped.iter().map(Stopped::tid).chain([caller]).collect();
            let running = self.running_threads(pid, &standing)?;
            if running.is_empty() {
                break;
            }
            let ends_early = running.iter().any(|&tid| self.would_be_cut_short(tid));
            if ends_early || running.iter().any(|&tid| self.is_elsewhere(tid)) {
                self.ahead.thread_groups.may_take_long = ends_early;
                is_put_off = true;
                break;
            }
            self.ahead.thread_groups.may_take_long = false;
            let mut halted = tracee::halt_all(&running)?;
            for tid in running {
                // It is about to end, or ended while it was looked at: what is known of the others must not be lost.
                // One of them may have stopped on its way to the end of a process that was killed.
                let Some(now) = halted.remove(&tid) else {
                    is_put_off = true;
                    continue;
                };
                let goes_on = match self.goes_on_with_rest(&now) {
                    Err(TraceError::Gone(_)) => false,
                    other => other?,
                };
                if goes_on {
                    is_put_off = true;
                    self.ahead.thread_groups.may_take_long = true;
                    self.let_go_on(pid, vec![now])?;
                    continue;
                }
                match self.stands_before_its_call(&now) {
                    Ok(true) => stopped.push(now),
                    Ok(false) => {
                        is_put_off = true;
                        now.keep();
                    }
                    Err(TraceError::Gone(_)) => is_put_off = true,
                    Err(error) => return Err(error),
                }
            }
        }
        if is_put_off {
            self.ahead.thread_groups.is_awaited = true;
            self.let_go_on(pid, stopped)?;
            return Ok(None);
        }
        stopped.iter().try_for_each(|stopped| self.forget_unborn(stopped))?;
        Ok(Some(stopped))
    }

    /// The threads of a process that are neither among these nor kept by us. Of all of them it is known that they were
    /// born.
    fn running_threads(&mut self, pid: ProcessId, standing: &HashSet<ThreadId>) -> Result<Vec<ThreadId>> {
        let mut running = procfs::unless_gone(procfs::threads(pid))?;
        running.retain(|&tid| !standing.contains(&tid) && !self.is_kept(pid, tid));
        for &tid in &running {
            self.await_birth(tid)?;
        }
        Ok(running)
    }

    /// Whether a thread is stopped by us already.
    pub(in crate::ahead) fn is_kept(&self, pid: ProcessId, tid: ThreadId) -> bool {
        let ahead = &self.ahead;
        ahead.thread_groups.is_retired(tid)
            || ahead.thread_groups.is_held(tid)
            || ahead.children.standing_thread(pid) == Some(tid)
            || ahead.ending.get(&pid).is_some_and(|(stopped, _)| stopped.tid() == tid)
            || ahead.waiting.has(tid)
    }

    /// Whether a thread may not stop when it is asked to, or stands for somebody else.
    fn is_elsewhere(&self, tid: ThreadId) -> bool {
        let ahead = &self.ahead;
        ahead.unsettled.contains(&tid)
            || self.is_without_agent(tid)
            || ahead.under_way.of(tid).is_some_and(|call| call.lends_memory)
            || self.stop_the_world.concerns(tid)
            || self.going_on_later.iter().any(|later| later.tid() == tid)
    }

    /// Whether a thread is in a call that has a part of its effect if it is interrupted.
    fn would_be_cut_short(&self, tid: ThreadId) -> bool {
        let can_be_repeated = self.ahead.under_way.of(tid).is_some_and(|call| call.can_be_repeated);
        !can_be_repeated && has_part_of_its_effect(procfs::waiting_call(tid))
    }

    /// A thread that looked as if it did not wait was in a call all the same that would be cut short, or that must not
    /// end early: it is to go on.
    pub(in crate::ahead) fn goes_on_with_rest(&self, stopped: &Stopped) -> Result<bool> {
        Ok(self.call_to_finish(stopped)?.is_some())
    }

    /// A thread has stopped. Whether a checkpoint can be taken of it: then it stands before a call, or in one that has
    /// had no effect, or in its program.
    fn stands_before_its_call(&mut self, stopped: &Stopped) -> Result<bool> {
        let is_question =
            self.is_request(stopped) && matches!(Request::from_raw(stopped.registers()?.rdi), Some(Request::Ahead));
        match stopped.stop() {
            Stop::Trap => {}
            Stop::SystemCall if is_question => {}
            Stop::SystemCall if !self.is_request(stopped) => stopped.repeat_call()?,
            _ => return Ok(false),
        }
        let tid = stopped.tid();
        if self.ahead.under_way.of(tid).is_some() {
            self.ahead.waiting.asks_again(tid);
        }
        self.end_call(stopped)?;
        self.hear_of_births(tid)?;
        self.tell_of_pipe(stopped)?;
        self.end_work(tid);
        signals::fill_at_once(stopped, &self.image)?;
        signals::take_back_to_ask(stopped, &self.image, self.segment.world)?;
        Ok(true)
    }

    /// Threads that were stopped for a checkpoint go on. What one of them may have been asked to stop for is asked
    /// again.
    pub(in crate::ahead) fn let_go_on(&mut self, pid: ProcessId, stopped: Vec<Stopped>) -> Result<()> {
        for stopped in stopped {
            match stopped.resume(0) {
                Ok(()) | Err(TraceError::Gone(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let has_to_hear = self.ahead.signals.has_any_for(pid) || self.ahead.children.has_to_hear(pid);
        if has_to_hear && !self.is_kept(pid, pid.leader()) {
            let _ = tracee::interrupt(pid.leader());
        }
        Ok(())
    }

    /// A thread that is not the first one of its process is about to execute a program: then it has the first one's id,
    /// and nothing tells that that one is gone. Were the first one stopped for us meanwhile, what we do to it would be
    /// done to the new program: it would go on before the agent is in it. So it stands still, and none of the others
    /// gets an answer, until the call is over. False: not now.
    ///
    /// If the first one is the caller, nobody is held: only the others get no answer. To hold the first one while it
    /// executes would be to wait for it, as it waits until the others, which have ended, are reaped.
    pub(in crate::ahead) fn hold_first(&mut self, pid: ProcessId, caller: ThreadId) -> Result<bool> {
        let has_ended = || procfs::Status::of(pid).and_then(|status| status.state()).is_ok_and(|state| state == 'Z');
        // Who is in a call that would be cut short stays there: it stops for nobody.
        let leave_alone = caller == pid.leader()
            || self.is_kept(pid, pid.leader())
            || self.would_be_cut_short(pid.leader())
            || has_ended();
        let mut first = None;
        if !leave_alone {
            self.await_birth(pid.leader())?;
            if self.is_elsewhere(pid.leader()) {
                self.ahead.thread_groups.await_birth();
                return Ok(false);
            }
            first = match tracee::halt(pid.leader())? {
                Some(stopped) if self.goes_on_with_rest(&stopped)? => {
                    self.let_go_on(pid, vec![stopped])?;
                    None
                }
                Some(stopped) if self.stands_before_its_call(&stopped)? => Some(stopped),
                Some(stopped) => {
                    stopped.keep();
                    self.ahead.thread_groups.await_birth();
                    return Ok(false);
                }
                None => None,
            };
        }
        first.iter().try_for_each(|stopped| self.forget_unborn(stopped))?;
        let groups = &mut self.ahead.thread_groups;
        groups.lenders.insert(pid, caller);
        groups.held.extend(first.map(|stopped| (pid.leader(), (pid, stopped))));
        Ok(true)
    }

    /// One thread of several is about to lend the memory of its process to a child, which gets a copy: no other one
    /// changes it until what the child has written is in it again. False: not now.
    pub(in crate::ahead) fn lend_memory(&mut self, pid: ProcessId, lender: ThreadId) -> Result<bool> {
        let Some(others) = self.stop_others(pid, lender)? else { return Ok(false) };
        let groups = &mut self.ahead.thread_groups;
        groups.lenders.insert(pid, lender);
        groups.held.extend(others.into_iter().map(|stopped| (stopped.tid(), (pid, stopped))));
        Ok(true)
    }

    /// Where a child does not use its parent's memory any more, the parent's threads go on. Whether there was one.
    pub(in crate::ahead) fn end_lending(&mut self) -> Result<bool> {
        let ahead = &self.ahead;
        let lends = |tid: ThreadId| {
            ahead.under_way.of(tid).is_some_and(|call| call.is_apart || call.replaces_first)
                || ahead.waiting.iter().any(|parked| parked.call.tid == tid && parked.call.awaits.is_some())
        };
        let lenders = &ahead.thread_groups.lenders;
        let over: Vec<ProcessId> = lenders.iter().filter(|(_, &tid)| !lends(tid)).map(|(&pid, _)| pid).collect();
        for &pid in &over {
            self.ahead.thread_groups.lenders.remove(&pid);
            let held = self.ahead.thread_groups.held.extract_if(|_, (of, _)| *of == pid);
            let held = held.map(|(_, (_, stopped))| stopped).collect();
            self.let_go_on(pid, held)?;
        }
        Ok(!over.is_empty())
    }

    /// A thread that is back before a call that makes another one has taken slots for that one, and takes others when
    /// it makes the call again.
    pub(in crate::ahead) fn forget_unborn(&self, stopped: &Stopped) -> Result<()> {
        let (tid, page) = (stopped.tid(), stopped.registers()?.gs_base);
        let at = page.wrapping_add(offset_of!(ThreadPage, pending_thread) as u64);
        let Ok(pending) = tracee::read_value::<u64>(tid, at) else { return Ok(()) };
        let (thread, process) = (pending as u32, (pending >> 32) as u32);
        let world = self.world();
        let is_free = |slot: usize| world.threads[slot].tid.load(Ordering::Acquire) == 0;
        let Some(thread) = (thread as usize).checked_sub(1).filter(|&slot| slot < THREADS_MAX && is_free(slot)) else {
            return Ok(());
        };
        world.births[thread].end();
        world.thread_map.give_back(thread);
        let own = self.tracees.get(&tid).map(|tracee| tracee.process);
        match (process as usize).checked_sub(1).filter(|&slot| slot < PROCESSES_MAX) {
            None => {}
            Some(slot) if Some(slot) == own => drop(world.processes[slot].users.fetch_sub(1, Ordering::AcqRel)),
            Some(slot) => world.process_map.give_back(slot),
        }
        let kernel = |source| TraceError::kernel("forget a birth", tid, source);
        tracee::write_bytes(tid, at, &[0; 8]).map_err(kernel)
    }

    /// A rollback has put back a process, or it has executed a program: those of its threads that were born since, or
    /// were about to be, are not counted any more.
    pub(crate) fn count_threads(&self, pid: ProcessId) {
        let Some(slot) = self.tracees.get(&pid.leader()).map(|tracee| tracee.process) else { return };
        let users = self.tracees.values().filter(|tracee| tracee.process == slot).count();
        self.world().processes[slot].users.store(users as u32, Ordering::Release);
    }

    /// Stop a process with all its threads for a rollback; those that have stopped are added to `stops`. `halted` has
    /// those that have been stopped for that. A thread on its way to its end says that its process was killed, for
    /// while a process is speculative no thread of it ends by itself: then none of them is put back, and none stays
    /// with us. Were one kept while another one is made to run, that one's end would never be told.
    pub(in crate::ahead) fn halt_group(
        &mut self,
        pid: ProcessId,
        halted: &mut HashMap<ThreadId, Stopped>,
        stops: &mut HashMap<ThreadId, Stopped>,
    ) -> Result<()> {
        let done = self.halt_threads(pid, halted, stops);
        let is_ending = |stopped: &Stopped| stopped.stop() == Stop::Exit;
        let group = self.take_group(pid, stops);
        let of_group: Vec<ThreadId> = halted.keys().copied().filter(|&tid| self.is_of(tid, pid)).collect();
        if group.values().any(is_ending) || of_group.iter().any(|tid| is_ending(&halted[tid])) {
            of_group.iter().for_each(|tid| drop(halted.remove(tid)));
            crate::sys::kill_process_of(pid.leader(), libc::SIGKILL);
            return Err(TraceError::Gone(pid.into()));
        }
        stops.extend(group);
        done
    }

    fn is_of(&mut self, tid: ThreadId, pid: ProcessId) -> bool {
        tid == pid.leader() || self.pid_of(tid).is_ok_and(|of| of == pid)
    }

    fn halt_threads(
        &mut self,
        pid: ProcessId,
        halted: &mut HashMap<ThreadId, Stopped>,
        stops: &mut HashMap<ThreadId, Stopped>,
    ) -> Result<()> {
        let mut threads = self.threads_of(pid);
        let mut tried: HashSet<ThreadId> = HashSet::new();
        while !threads.is_empty() {
            for tid in threads {
                tried.insert(tid);
                let stopped = self.halt_at_once(pid, tid, halted.remove(&tid))?;
                stopped.iter().try_for_each(|stopped| self.tell_of_pipe(stopped))?;
                self.end_work(tid);
                self.end_change(tid);
                match stopped {
                    Some(stopped) => {
                        self.end_call(&stopped)?;
                        stops.insert(tid, stopped);
                    }
                    None => drop(self.ahead.under_way.end(tid)),
                }
            }
            threads = match self.has_company(pid.leader()) {
                true => self.running_threads(pid, &tried)?,
                false => Vec::new(),
            };
            halted.extend(tracee::halt_all(&threads)?);
        }
        Ok(())
    }

    /// The process ends on a guess: none of its other threads makes another step.
    pub(in crate::ahead) fn retire_others(&mut self, pid: ProcessId, caller: ThreadId) -> Result<()> {
        if !self.has_company(pid.leader()) {
            return Ok(());
        }
        let mut tried = HashSet::from([caller]);
        for parked in self.ahead.waiting.take_of_others(pid, caller) {
            self.ahead.thread_groups.retire(pid, parked.stopped, false);
        }
        let groups = &mut self.ahead.thread_groups;
        groups.lenders.remove(&pid);
        let held: Vec<Stopped> =
            groups.held.extract_if(|_, (of, _)| *of == pid).map(|(_, (_, stopped))| stopped).collect();
        held.into_iter().for_each(|stopped| groups.retire(pid, stopped, false));
        loop {
            let running = self.running_threads(pid, &tried)?;
            if running.is_empty() {
                return Ok(());
            }
            tried.extend(&running);
            for (tid, stopped) in tracee::halt_all(&running)? {
                self.tell_of_pipe(&stopped)?;
                self.end_work(tid);
                self.end_change(tid);
                self.end_call(&stopped)?;
                self.hear_of_births(tid)?;
                self.ahead.thread_groups.retire(pid, stopped, false);
            }
        }
    }

    /// Whether a call is the end of one thread of several.
    pub(in crate::ahead) fn is_end_of_thread(&self, call: &Call) -> bool {
        let live = || procfs::unless_gone(procfs::threads(call.pid)).map_or(usize::MAX, |threads| threads.len());
        call.frame.nr == nr::exit
            && self.has_company(call.tid)
            && live() - self.ahead.thread_groups.of(call.pid).count() > 1
    }

    /// Whether a process may execute a program on a guess though it has other threads, which that ends: none of them is
    /// in a checkpoint of it. The first thread keeps what is its own in the world's memory, so it is to be that one.
    pub(in crate::ahead) fn can_end_other_threads(&self, call: &Call) -> bool {
        let is_alone = |kept: &Kept| kept.others.is_empty() && kept.tid == call.pid.leader();
        call.tid == call.pid.leader()
            && !self.ahead.thread_groups.lenders.contains_key(&call.pid)
            && self.is_one_process(call.pid)
            && self.ahead.checkpoints.of(call.pid).all(is_alone)
    }

    /// A thread of a process that depends on a guess ends. Whoever waits for it is told, as the kernel tells him.
    pub(in crate::ahead) fn end_thread(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        if call.tid == call.pid.leader() || has_robust_futexes(stopped) {
            return Ok(self.wait_at_barrier(call));
        }
        const PR_GET_TID_ADDRESS: u64 = 40;
        const LIST_LEN: u64 = 24;
        const FUTEX_WAKE: u64 = 1;
        let tid = call.tid;
        let at = stopped.registers()?.gs_base - SCRATCH;
        let mut remote = self.remote_calls(stopped)?;
        remote.call(libc::SYS_prctl, &[PR_GET_TID_ADDRESS, at])?;
        let kernel = |source| TraceError::kernel("read an address", tid, source);
        let address: u64 = tracee::read_value(tid, at).map_err(kernel)?;
        // Its stack may be another thread's before it ends in earnest: the kernel writes nothing there any more.
        let rseq = stopped.rseq_configuration()?;
        if rseq.pointer != 0 {
            const UNREGISTER: u64 = 1;
            remote.call(libc::SYS_rseq, &[rseq.pointer, rseq.size.into(), UNREGISTER, rseq.signature.into()])?;
        }
        remote.call(libc::SYS_set_tid_address, &[0])?;
        remote.call(libc::SYS_set_robust_list, &[0, LIST_LEN])?;
        // As the kernel: what cannot be written is not.
        if address != 0 && tracee::write_bytes(tid, address, &[0; 4]).is_ok() {
            remote.call(libc::SYS_futex, &[address, FUTEX_WAKE, 1])?;
        }
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(Decision::Retire)
    }

    /// A process depends on nothing: those of its threads that have ended do so in earnest.
    pub(in crate::ahead) fn release_retired(&mut self, pid: ProcessId) {
        if self.ahead.thread_groups.is_quiet() || self.ahead.children.stands(pid) {
            return;
        }
        let ended: Vec<ThreadId> = self
            .ahead
            .thread_groups
            .of(pid)
            .filter(|retired| retired.is_at_exit)
            .map(|retired| retired.stopped.tid())
            .collect();
        for tid in ended {
            if let Some(stopped) = self.ahead.thread_groups.take_retired(tid) {
                let _ = self.reply(stopped, agent_abi::ahead::GO);
            }
        }
    }

    /// Parents that could not be told of a child, because one of their threads was in the middle of something, are
    /// asked to stop again.
    pub(in crate::ahead) fn call_parents(&mut self) {
        for pid in self.ahead.children.parents_to_tell() {
            if self.has_company(pid.leader()) {
                self.call_parent(pid);
            }
        }
    }

    /// A parent that has still to be told of a child is brought to where it can be.
    pub(in crate::ahead) fn call_parent(&mut self, pid: ProcessId) {
        if self.ahead.children.is_to_be_told(pid) {
            self.interrupt_parent(pid);
        }
    }

    /// A child of a process has ended on a guess: wherever the parent is, it has to hear of it. One that waits for us
    /// already does.
    pub(in crate::ahead) fn interrupt_parent(&mut self, pid: ProcessId) {
        // One whose call would end early, with a part done, hears of it when that is over.
        let is_busy = self.ahead.under_way.cannot_be_repeated(pid.leader());
        // One that has ended hears of it if that is taken back.
        let has_ended = self.ahead.children.held_exits.contains_key(&pid);
        if !is_busy && !has_ended && self.tracees.contains_key(&pid.leader()) && !self.is_kept(pid, pid.leader()) {
            let _ = tracee::interrupt(pid.leader());
        }
    }

    /// Whether a thread waits for another one of its process, and for no time.
    pub(in crate::ahead) fn waits_for_a_thread(&self, tid: ThreadId) -> bool {
        const COMMAND: u64 = 0x7f;
        /// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_LOCK_PI2`.
        const WAITS: [u64; 4] = [0, 6, 9, 13];
        if !self.has_company(tid) {
            return false;
        }
        let call = procfs::waiting_call(tid);
        matches!(call, Ok(Some((nr::futex, [_, what, _, 0, ..]))) if WAITS.contains(&(what & COMMAND)))
    }
}

/// Whether the first thread of a process has not ended: it still has its memory, in which the agent is. To be told its
/// state takes the kernel ten times as long.
fn is_first_alive(pid: ProcessId) -> bool {
    let state = || procfs::Status::of(pid).and_then(|status| status.state());
    tracee::read_value::<u8>(pid.leader(), AGENT_BASE).is_ok() || state().is_ok_and(|state| state != 'Z')
}

/// Whether a thread has futexes that the kernel marks when it ends. Where that is not known, it has.
fn has_robust_futexes(stopped: &Stopped) -> bool {
    match stopped.robust_list() {
        Ok((0, _)) => false,
        // The list ends where it began, and has one more entry while that is being taken or given back.
        Ok((head, _)) => !tracee::read_value::<[u64; 3]>(stopped.tid(), head)
            .is_ok_and(|[next, _, pending]| next & !1 == head && pending == 0),
        Err(_) => true,
    }
}
