//! The event loop: every stop of every thread of the world. The only thread that may touch tracees.

use crate::classify::Classifier;
use crate::completions::Completions;
use crate::descriptors::{process_of, user_of, ProcessDescriptors};
use crate::forward::Received;
use crate::message::{Message, Sender};
use crate::outputs::Outputs;
use crate::privileges::Gives;
use crate::resent_signals::ResentSignals;
use crate::same_core::{self, Confined, SameCore, Woken};
use crate::signals;
use crate::spent::{reason_of, Accounts, Cause};
use crate::stats::Stats;
use crate::status::Asked;
use crate::stop_the_world::StopTheWorld;
use crate::texts::Texts;
use agent_abi::{PROCESSES_MAX, PROCESS_KEPT_BY_EXEC, REQUEST_NR, THREADS_MAX};
use commit_clock::{Clock, DOMAINS_MAX};
use external_sync::domain::DomainTable;
use external_sync::engine::Handles;
use output::WriterId;
use procfs::{MagicLink, ProcessId, ThreadId};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracee::{
    AgentImage, Event, Injection, Registers, Result, Segment, SignalInfo, Stop, Stopped, TraceError, WorldSegment,
};

/// From so many processes on, the world's memory is put into huge pages.
const PROCESSES_FEW: u64 = 8;
/// More takeovers than this in one exec are no accident.
const SEGMENT_GIVEN_MAX: u32 = 1000;

/// A thread of the world.
#[derive(Debug, Default)]
pub(crate) struct Tracee {
    /// Its `Thread` slot; `None` until its first exec.
    pub thread: Option<usize>,
    /// Its `Process` slot.
    pub process: usize,
    /// Its process id, once somebody needed it.
    pub pid: Option<ProcessId>,
    /// What the injection wrote over, until it is put back or replaced.
    pub injection: Option<Injection>,
    /// How often the world's memory was given to its user since its last exec: another user may take it over in
    /// between.
    pub segment_given: u32,
    /// It stops before it ends.
    pub watched: bool,
    /// It has stopped for that.
    pub ending: bool,
}

/// The end of COMMAND, which is output.
#[derive(Debug)]
pub(crate) struct Unsettled {
    /// What its status depends on.
    clock: Clock,
    /// Its id for the order of output: its status comes after what it wrote.
    id: Option<WriterId>,
}

/// Everything that the supervising process knows.
pub(crate) struct Supervisor {
    pub segment: WorldSegment,
    pub agent: Segment,
    pub image: AgentImage,
    pub tracees: HashMap<ThreadId, Tracee>,
    pub descriptors: ProcessDescriptors,
    pub outputs: Arc<Outputs>,
    pub texts: Texts,
    pub domains: DomainTable,
    pub handles: Arc<Mutex<Handles>>,
    pub front: Sender,
    pub stats: Stats,
    pub accounts: Accounts,
    pub failed: Arc<AtomicBool>,
    /// COMMAND.
    pub root: ProcessId,
    /// COMMAND has ended, and its status has not been released yet.
    pub unsettled: Option<Unsettled>,
    /// Ids for the order of output: a slot is used again, these are not.
    pub output_ids: HashMap<usize, WriterId>,
    pub next_output_id: u32,
    /// Addresses of call sites that stopped, by their process's slot.
    pub stopped_sites: HashMap<usize, HashSet<u64>>,
    pub is_root_user: bool,
    /// Programs of which it was said that they run without rights that they would have natively.
    pub told_of_rights: HashSet<std::path::PathBuf>,
    pub ahead: crate::ahead::Ahead,
    pub same_core: SameCore,
    /// Tracees that are confined while their stops are looked at, the innermost last.
    pub confined: Vec<Confined>,
    /// Slots of processes that stop before they end (`ending`).
    pub watched: HashSet<usize>,
    /// Threads that end, or see a signal, when what their processes did is committed (`ending`).
    pub going_on_later: Vec<crate::ending::GoesOnLater>,
    /// Signals that were taken from a thread's queue and sent again as others.
    pub resent_signals: ResentSignals,
    /// Threads that were stepped until they asked for something, and whose processes ignore SIGTRAP.
    pub traps_to_ignore: HashSet<ThreadId>,
    /// Who wants to know how the world is.
    pub asked: Arc<Asked>,
    /// What resolvers outside say of guesses.
    pub completions: Completions,
    /// Signals that COMMAND got from processes.
    pub received: Received,
    pub classifier: Option<Box<Classifier>>,
    pub stop_the_world: StopTheWorld,
    /// System calls that were refused.
    pub refused: HashSet<u64>,
    pub volatile: crate::volatile::Volatile,
    pub log_files: crate::log_files::LogFiles,
    pub ended_unseen: crate::unseen::EndedUnseen,
}

impl Supervisor {
    pub fn world(&self) -> &'static agent_abi::World {
        self.segment.world
    }

    /// Until the last process has ended.
    pub fn run(&mut self) -> io::Result<()> {
        self.permit_kinds();
        if self.ahead.is_always_on() {
            self.world().ahead.store(1, Ordering::SeqCst);
        }
        while let Some(event) = self.next_event()? {
            self.accounts.begin(Cause::of(&event));
            match event {
                Some(Event::Stopped(stopped)) => self.on_stop(stopped),
                Some(Event::Exited { tid, .. }) => self.on_exit(tid),
                None => {}
            }
            self.go_on_with_those_committed();
            self.look_ahead();
            self.settle_command();
            if self.completions.has_any() {
                self.take_completions();
            }
            self.renew_youth();
            if self.asked.is_wanted() {
                let status = self.ahead_status();
                self.asked.answer(status);
            }
            if self.tracees.is_empty() {
                self.ahead_on_last_exit();
            }
            self.accounts.end();
        }
        Ok(())
    }

    /// `Some(None)`: nothing happened until full speculation had to look again, or somebody asked how the world is.
    fn next_event(&self) -> io::Result<Option<Option<Event>>> {
        if let Some(deadline) = self.ahead.next_look().into_iter().chain(self.next_look_at_command()).min() {
            return tracee::wait_until(deadline);
        }
        if !self.same_core.was_calm() {
            return tracee::wait();
        }
        let (event, parent) = tracee::wait_before_end(|ended| self.draw_parent_near(ended))?;
        if let Some(parent) = parent.flatten() {
            parent.let_go();
        }
        Ok(event)
    }

    /// Whoever waits for this thread's process is about to be woken: on our core.
    fn draw_parent_near(&self, ended: ThreadId) -> Option<Woken> {
        let world = self.world();
        let parent = world.processes[self.tracees.get(&ended)?.process].parent.load(Ordering::Relaxed) as usize;
        let first = ThreadId::from_raw(world.processes.get(parent)?.pid.load(Ordering::Relaxed) as i32);
        let thread = self.tracees.get(&first)?.thread?;
        self.same_core.draw_near(first, &world.threads[thread].door)
    }

    pub(crate) fn on_stop(&mut self, stopped: Stopped) {
        let Some(stopped) = self.adopt_vessel(stopped) else { return };
        let tid = stopped.tid();
        self.stats.tracee_stops += 1;
        if self.failed.load(Ordering::SeqCst) {
            crate::sys::kill_process_of(tid, libc::SIGKILL);
        }
        if self.world().options.load(Ordering::Relaxed) & agent_abi::option::TRAPS_IGNORED != 0 {
            tracee::mind_ignored_traps();
        }
        let is_birth = stopped.stop() == Stop::Trap && !self.tracees.contains_key(&tid);
        let confined = if is_birth { None } else { self.same_core.confine(tid) };
        let is_confined = confined.is_some();
        self.confined.extend(confined);
        if stopped.stop() != Stop::SystemCall {
            self.revoke_permits();
        }
        let reason = reason_of(&stopped);
        let result = match stopped.stop() {
            Stop::Trap => self.on_trap(stopped),
            Stop::Exec { former_tid } => self.on_exec(stopped, former_tid),
            Stop::SystemCall => self.on_system_call(stopped),
            Stop::Signal(signal) => self.on_signal(stopped, signal),
            Stop::Group(_) => self.on_group_stop(stopped),
            Stop::Exit => self.on_ending(stopped),
        };
        if let Some(confined) = self.confined.pop_if(|_| is_confined) {
            same_core::let_go(confined);
        }
        self.ask_again_to_stop(tid);
        *self.stats.stops.entry(reason.to_owned()).or_default() += 1;
        match result {
            Ok(()) | Err(TraceError::Gone(_)) => {}
            Err(error) => {
                // A thread that we cannot handle must not run on unseen.
                self.front.tell(&Message::Warning {
                    text: format!("cannot go on with thread {tid}: {error}; it was killed"),
                });
                crate::sys::kill_process_of(tid, libc::SIGKILL);
            }
        }
    }

    /// COMMAND, before its first exec: the first process of the world.
    pub fn adopt_root(&mut self, pid: ProcessId) {
        self.root = pid;
        let world = self.world();
        let process = world.process_map.take().expect("the first of many");
        world.processes[process].begin(PROCESSES_MAX, &Clock::NONE);
        world.processes[process].pid.store(pid.as_raw() as u32, Ordering::Release);
        if MagicLink::Cwd.shown(pid).is_ok_and(|cwd| cwd.starts_with("/proc") || cwd.starts_with("/sys")) {
            world.processes[process].flags.fetch_or(agent_abi::PROCESS_IN_PSEUDO, Ordering::Release);
        }
        const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
        if signals::SignalSets::of(pid).is_ok_and(|sets| sets.ignored & TRAP_BIT != 0) {
            world.options.fetch_or(agent_abi::option::TRAPS_IGNORED, Ordering::SeqCst);
        }
        self.begin_output(process);
        self.tracees.insert(pid.leader(), Tracee { process, pid: Some(pid), ..Tracee::default() });
        self.stats.processes += 1;
        self.stats.threads += 1;
    }

    fn begin_output(&mut self, process: usize) {
        self.next_output_id = self.next_output_id.wrapping_add(1);
        let id = WriterId(self.next_output_id);
        self.output_ids.insert(process, id);
        self.outputs.begin_process(id, process);
    }

    /// Newly attached, or continued by SIGCONT.
    pub(crate) fn on_trap(&mut self, stopped: Stopped) -> Result<()> {
        let tid = stopped.tid();
        if !self.tracees.contains_key(&tid) {
            let mut registers = stopped.registers()?;
            if checkpoint::Vessel::is_stray(&registers) {
                return stopped.kill();
            }
            let thread = self.on_birth(tid, &registers);
            // A new thread sets this register itself (`gate_clone`). Until then the register leads to its maker's page:
            // what the supervisor writes there for the new thread would be told to its maker.
            registers.gs_base = registers.r12;
            stopped.set_registers(&registers)?;
            self.watch_heir(&stopped)?;
            let confined = self.free_near_birth(tid, thread);
            let resumed = stopped.resume(0);
            if let Some(confined) = confined {
                same_core::let_go(confined);
            }
            return resumed;
        }
        let Some(stopped) = self.hold_for_tracer(stopped)? else { return Ok(()) };
        if self.world().ahead.load(Ordering::Relaxed) != 0 {
            return self.on_taken_back(stopped);
        }
        stopped.resume(0)
    }

    /// The gate left the slots of a child in its registers.
    fn on_birth(&mut self, tid: ThreadId, registers: &Registers) -> usize {
        let world = self.world();
        let thread = registers.r13 as usize % THREADS_MAX;
        let process = registers.r14 as usize % PROCESSES_MAX;
        world.threads[thread].tid.store(tid.as_raw() as u32, Ordering::Release);
        world.births[thread].end();
        self.ended_unseen.forget(tid);
        let mut tracee = Tracee { thread: Some(thread), process, ..Tracee::default() };
        let slot = &world.processes[process];
        let is_process = slot.pid.load(Ordering::Acquire) == 0;
        if is_process {
            slot.pid.store(tid.as_raw() as u32, Ordering::Release);
            self.begin_output(process);
            self.stats.processes += 1;
            if self.stats.processes == PROCESSES_FEW {
                self.segment.gather();
                self.agent.gather();
            }
            tracee.pid = None;
        }
        self.stats.threads += 1;
        self.tracees.insert(tid, tracee);
        self.ahead_on_birth(tid, process, thread, is_process);
        thread
    }

    /// A parent that made its child on its own core is free again before the child can look, and so is the child once
    /// it goes on.
    fn free_near_birth(&self, tid: ThreadId, thread: usize) -> Option<Confined> {
        let world = self.world();
        let parent = world.threads[thread].born_near.swap(0, Ordering::AcqRel) as usize;
        let Some(parent) = parent.checked_sub(1).and_then(|parent| world.threads.get(parent)) else {
            return self.same_core.confine(tid);
        };
        let parent_tid = ThreadId::from_raw(parent.tid.load(Ordering::Relaxed) as i32);
        if self.tracees.contains_key(&parent_tid) {
            parent.confinement.end_for(|| same_core::free(parent_tid));
        }
        self.same_core.take_over(tid)
    }

    fn on_exec(&mut self, stopped: Stopped, former_tid: ThreadId) -> Result<()> {
        let tid = stopped.tid();
        if former_tid != tid {
            self.take_over_leader(tid, former_tid);
        }
        if self.ahead.is_speculative(tid.leads()) {
            self.count_threads(tid.leads());
        }
        self.leave_shared_slot(tid);
        self.ahead_on_exec(&stopped, former_tid)?;
        if let Some(tracee) = self.tracees.get_mut(&tid) {
            tracee.segment_given = 0;
        }
        let registers = stopped.registers()?;
        const CS_64_BIT: u64 = 0x33;
        if registers.cs != CS_64_BIT {
            return self.refuse_program(
                stopped,
                "it is a 32-bit program",
                "use a 64-bit build of it, or start it outside",
            );
        }
        if !self.is_root_user {
            match Gives::of(tid, self.world()) {
                Gives::Owner => {
                    return self.refuse_program(
                        stopped,
                        "it is setuid, and a traced program does not get the rights of its owner",
                        "start it outside",
                    );
                }
                gives => self.tell_of_missing_rights(tid, gives),
            }
        }
        self.inject(stopped, registers)
    }

    /// A thread that is not the first of its process called exec: it has the first one's id now, and the first one is
    /// gone without a word.
    fn take_over_leader(&mut self, tid: ThreadId, former_tid: ThreadId) {
        if let Some(former) = self.tracees.remove(&former_tid) {
            if let Some(leader) = self.tracees.insert(tid, former) {
                self.give_back(&leader);
            }
            if let Some(thread) = self.tracees[&tid].thread {
                self.world().threads[thread].tid.store(tid.as_raw() as u32, Ordering::Release);
            }
        }
    }

    /// The new program shares memory with nobody: neither with a parent that waits in vfork nor with relatives by
    /// clone.
    fn leave_shared_slot(&mut self, tid: ThreadId) {
        let world = self.world();
        let Some(process) = self.tracees.get(&tid).map(|tracee| tracee.process) else { return };
        if world.processes[process].users.load(Ordering::Acquire) > 1 {
            self.give_back_unseen_threads(process, 1);
        }
        let Some(tracee) = self.tracees.get_mut(&tid) else { return };
        let slot = &world.processes[tracee.process];
        let clock = slot.clock.load(DOMAINS_MAX);
        let parent = slot.parent.load(Ordering::Relaxed) as usize;
        if let Some(parent) = world.processes.get(parent) {
            // A child of vfork wrote in its parent's memory.
            parent.depend(&world.transactions, &clock);
        }
        let kept = slot.flags.load(Ordering::Acquire) & PROCESS_KEPT_BY_EXEC;
        if slot.users.load(Ordering::Acquire) > 1 {
            if let Some(fresh) = world.process_map.take() {
                slot.users.fetch_sub(1, Ordering::AcqRel);
                world.processes[fresh].begin(parent, &clock);
                world.processes[fresh].flags.store(kept, Ordering::Release);
                world.processes[fresh].pid.store(tid.as_raw() as u32, Ordering::Release);
                tracee.process = fresh;
                if tracee.watched {
                    self.watched.insert(fresh);
                }
                self.begin_output(fresh);
                return;
            }
        }
        slot.flags.store(kept, Ordering::Release);
        slot.forget_mappings();
    }

    fn inject(&mut self, stopped: Stopped, registers: Registers) -> Result<()> {
        let tid = stopped.tid();
        let world = self.world();
        let (agent_id, world_id) = (self.agent.id(), self.segment.id());
        let Some(tracee) = self.tracees.get_mut(&tid) else { return stopped.resume(0) };
        let thread = match tracee.thread {
            Some(thread) => thread,
            None => match world.thread_map.take() {
                Some(thread) => thread,
                None => return self.refuse(stopped, "the world has too many threads", "run fewer at once", false),
            },
        };
        world.threads[thread].begin(tracee.process, 0);
        world.threads[thread].tid.store(tid.as_raw() as u32, Ordering::Release);
        tracee.thread = Some(thread);
        let slots = (thread as u32, tracee.process as u32);
        let injection = match Injection::begin(&stopped, registers, &self.image, agent_id, world_id, slots) {
            Err(TraceError::Kernel { .. }) if !self.is_root_user => {
                let why = "it cannot be traced by a user who may not read it";
                return self.refuse_program(stopped, why, "let the user read it, or start it outside");
            }
            begun => begun?,
        };
        tracee.injection = Some(injection);
        stopped.resume(0)
    }

    fn on_system_call(&mut self, stopped: Stopped) -> Result<()> {
        if !self.traps_to_ignore.is_empty() && self.traps_to_ignore.remove(&stopped.tid()) {
            signals::ignore_traps_again(&stopped, &self.image)?;
        }
        let mut registers = stopped.registers()?;
        if registers.orig_rax == u64::from(REQUEST_NR) && self.image.contains(registers.rip) {
            return self.on_request(stopped, registers);
        }
        let tid = stopped.tid();
        let Some(tracee) = self.tracees.get(&tid) else { return stopped.resume(0) };
        if tracee.thread.is_none() {
            // COMMAND on its way to its first exec: still our own code.
            return stopped.resume(0);
        }
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let site = registers.rip.wrapping_sub(2);
        if tracee::read_bytes(tid, site, 2).is_ok_and(|bytes| bytes != SYSCALL) {
            return self.refuse_32_bit_call(stopped, registers);
        }
        self.stopped_sites.entry(tracee.process).or_default().insert(site);
        // The thread goes into the agent by itself; this system call does not happen.
        registers.rcx = registers.rip;
        registers.rip = self.image.header.entry;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
        stopped.set_registers(&registers)?;
        stopped.resume(0)
    }

    /// `int 0x80` and `sysenter`: other numbers, other tables. As on a kernel that was built without them.
    fn refuse_32_bit_call(&mut self, stopped: Stopped, mut registers: Registers) -> Result<()> {
        self.front
            .tell(&Message::Note { text: "a 32-bit system call of a 64-bit program was answered with ENOSYS".into() });
        registers.orig_rax = u64::MAX;
        registers.rax = -i64::from(libc::ENOSYS) as u64;
        stopped.set_registers(&registers)?;
        stopped.resume(0)
    }

    fn on_signal(&mut self, stopped: Stopped, signal: i32) -> Result<()> {
        let tid = stopped.tid();
        let Some(tracee) = self.tracees.get(&tid) else { return stopped.resume(signal) };
        let Some(thread) = tracee.thread else { return stopped.resume(signal) };
        let world = self.segment.world;
        let ignores_sigchld = world.threads[thread].ignores_sigchld.load(Ordering::Relaxed) != 0;
        if signal == libc::SIGCHLD
            && ignores_sigchld
            && world.ahead.load(Ordering::Relaxed) == 0
            && self.resent_signals.is_empty()
        {
            // Without a tracer the kernel would not have sent it. It repeats what it interrupted by itself.
            return stopped.resume(0);
        }
        if self.is_of_injection(&stopped, signal)? {
            let registers = stopped.registers()?;
            return self.on_failed_injection(stopped, registers);
        }
        if self.is_step_in_agent(&stopped, signal)? {
            return stopped.resume(0);
        }
        let sent = stopped.signal_info()?;
        let info = self.resent_signals.take(tid, sent);
        self.resent_signals.forget_dropped(&stopped);
        if info.is_synchronous() && crate::ahead::is_fatal(tid, signal) && crate::ending::is_of_first_process(tid) {
            self.observe_signal(tid, &info);
            return self.let_first_process_die(stopped);
        }
        let Some(stopped) = self.ahead_on_signal(stopped, &info)? else { return Ok(()) };
        self.note_signal(tid, &info);
        let look = self.interrupt_in_call(&stopped)?;
        if signals::goes_on(&stopped, &look, &self.image)? {
            self.observe_signal(tid, &info);
            let resumed = stopped.resume(0);
            // Of several threads the first one hears what was sent.
            self.call_receiver(tid.leads());
            return resumed;
        }
        let mut more = Vec::new();
        let mut has_run = false;
        let left = self.leave_agent(stopped, look, &mut more, &mut has_run)?;
        self.observe_signal(tid, &info);
        if left.is_none() {
            self.ahead_on_requeue(&info);
            self.requeue(tid, &info);
        }
        self.put_back_signals(left.as_ref(), tid, more)?;
        let resumed = match left {
            // The kernel still has what came with the signal.
            Some(stopped) if !has_run && sent.is_in_place_of().is_none() && !info.is_noted() => {
                self.deliver(stopped, signal, None)
            }
            Some(stopped) => self.deliver(stopped, signal, Some(info.unnoted())),
            None => Ok(()),
        };
        // It may have more to hear.
        self.call_receiver(tid.leads());
        resumed
    }

    /// A thread that has stopped for a signal leaves the agent, if it is there ([`signals::leave_agent`]).
    pub(crate) fn leave_agent(
        &mut self,
        stopped: Stopped,
        look: signals::Look,
        more: &mut Vec<SignalInfo>,
        has_run: &mut bool,
    ) -> Result<Option<Stopped>> {
        let tid = stopped.tid();
        if self.traps_to_ignore.remove(&tid) {
            signals::ignore_traps_again(&stopped, &self.image)?;
        }
        let ignores_traps = tracee::ignores_traps(tid);
        let world = self.segment.world;
        let left = signals::leave_agent(stopped, look, &self.image, world, ignores_traps, more, has_run)?;
        if left.is_none() && ignores_traps {
            self.traps_to_ignore.insert(tid);
        }
        Ok(left)
    }

    /// Whether a program that steps itself (the trap flag) has made a step in the agent: to the program all of that
    /// is the call's one step.
    fn is_step_in_agent(&self, stopped: &Stopped, signal: i32) -> Result<bool> {
        const TRAP_TRACE: i32 = 2;
        let may_be = signal == libc::SIGTRAP && stopped.signal_info()?.code() == TRAP_TRACE;
        Ok(may_be && self.image.contains(stopped.registers()?.rip))
    }

    /// Whether a signal says that the agent of a new program could not begin.
    pub(crate) fn is_of_injection(&self, stopped: &Stopped, signal: i32) -> Result<bool> {
        let begun = self.tracees.get(&stopped.tid()).and_then(|tracee| tracee.injection.as_ref());
        let Some(begun) = begun.filter(|_| matches!(signal, libc::SIGTRAP | libc::SIGSEGV)) else { return Ok(false) };
        Ok(begun.has_failed(&self.image, signal, stopped.registers()?.rip))
    }

    /// Signals were taken out of a thread's queue while the agent finished: put them back. Who has `left` the agent
    /// sends to itself, with its sender's name, what nobody else may. Only where no other thread can come in between.
    pub(crate) fn put_back_signals(
        &mut self,
        left: Option<&Stopped>,
        tid: ThreadId,
        taken: Vec<SignalInfo>,
    ) -> Result<()> {
        let taken: Vec<SignalInfo> = taken.into_iter().map(|info| self.resent_signals.take(tid, info)).collect();
        let pid = self.pid_of(tid).unwrap_or(tid.leads());
        let refused: Vec<SignalInfo> = taken.into_iter().filter(|info| !info.send_again(pid, tid)).collect();
        let again = match left.filter(|_| !refused.is_empty() && !self.has_company(tid)) {
            Some(stopped) => signals::send_to_itself(stopped, &self.image, &refused)?,
            None => refused,
        };
        again.into_iter().for_each(|info| self.send_again_as_ours(tid, info));
        Ok(())
    }

    /// Send a signal again that was taken from a thread's queue. What the kernel does not let us send again as it was,
    /// we remember, and put in the place of what we send.
    pub(crate) fn requeue(&mut self, tid: ThreadId, info: &SignalInfo) {
        let is_queued = self.pid_of(tid).is_ok_and(|pid| info.send_again(pid, tid));
        if !is_queued {
            self.send_again_as_ours(tid, *info);
        }
    }

    /// Send a signal again as one of ours, and remember what it was.
    pub(crate) fn send_again_as_ours(&mut self, tid: ThreadId, info: SignalInfo) {
        let pid = self.pid_of(tid).unwrap_or(tid.leads());
        let is_told = self.ahead_tells_by(&info);
        let ours = self.resent_signals.in_place_of(tid, info, is_told);
        if !ours.send_again(pid, tid) {
            // It has ended, or as many signals wait for it as may.
            self.resent_signals.take(tid, ours);
            crate::sys::kill_thread(tid, info.number());
        }
    }

    /// A signal to a whole process group reaches COMMAND by itself: the front must not send it on.
    fn note_signal(&mut self, tid: ThreadId, info: &SignalInfo) {
        if info.code() <= 0 && self.pid_of(tid).is_ok_and(|pid| pid == self.root) {
            self.received.note(info.number(), info.sender());
        }
    }

    /// A signal may end the process: then its parent observes what it did. One that the kernel sent tells of something
    /// that somebody did.
    fn observe_signal(&self, tid: ThreadId, info: &SignalInfo) {
        let world = self.world();
        world.join_mapped();
        if world.transactions.is_clean() {
            return;
        }
        if let Some(tracee) = self.tracees.get(&tid) {
            let slot = &world.processes[tracee.process];
            slot.depend(&world.transactions, &self.causes_of_signal(tid, info));
            if let Some(parent) = world.processes.get(slot.parent.load(Ordering::Relaxed) as usize) {
                parent.depend(&world.transactions, &slot.clock.load(DOMAINS_MAX));
            }
            world.messages.merge(&slot.clock.load(DOMAINS_MAX), DOMAINS_MAX);
        }
    }

    /// What a signal tells of. Who sends one has given what it depends on to its receiver; but the end of a parent
    /// (`PR_SET_PDEATHSIG`) looks as if that had sent it, and the kernel's own (`F_SETSIG`, the end of a child, a
    /// reader that is gone) say nothing of who caused them.
    fn causes_of_signal(&self, tid: ThreadId, info: &SignalInfo) -> Clock {
        let world = self.world();
        let is_of_own_timer = matches!(info.number(), libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF);
        let sender = self.tracees.get(&info.sender().leader()).map(|sender| sender.process);
        let own = self.tracees.get(&tid).map(|tracee| tracee.process);
        match info.code() {
            _ if info.number() == libc::SIGPIPE => world.transactions.dirty(),
            libc::SI_TIMER => Clock::NONE,
            libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL if sender.is_some() && sender == own => Clock::NONE,
            libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL => match sender {
                Some(sender) => world.processes[sender].clock.load(DOMAINS_MAX),
                None => world.transactions.dirty(),
            },
            _ if info.is_synchronous() || is_of_own_timer => Clock::NONE,
            _ => world.transactions.dirty(),
        }
    }

    /// The bootstrap could not attach a segment.
    fn on_failed_injection(&mut self, stopped: Stopped, mut registers: Registers) -> Result<()> {
        let tid = stopped.tid();
        let errno = -(registers.rax as i64) as i32;
        let Some(tracee) = self.tracees.get_mut(&tid) else { return stopped.resume(0) };
        if errno == libc::EACCES && self.is_root_user && tracee.segment_given < SEGMENT_GIVEN_MAX {
            tracee.segment_given += 1;
            // A program that gave up root: the world's memory is its user's from here on.
            if user_of(tid).is_ok_and(|uid| self.segment.set_owner(uid).is_ok()) {
                if let Some(injection) = tracee.injection.take() {
                    registers.rip = injection.entry();
                    injection.restore(tid)?;
                }
                registers.rax = 0;
                return self.inject(stopped, registers);
            }
        }
        let error = io::Error::from_raw_os_error(errno);
        self.refuse_program(stopped, &format!("its memory cannot be shared with the world ({error})"), "run it outside")
    }

    pub(crate) fn on_group_stop(&mut self, stopped: Stopped) -> Result<()> {
        let Some(stopped) = self.hold_for_tracer(stopped)? else { return Ok(()) };
        if self.tracees.get(&stopped.tid()).is_some_and(|tracee| tracee.thread.is_some()) {
            self.tell_of_pipe(&stopped)?;
            signals::release_commits(&stopped, &self.image, self.segment.world)?;
            self.observe_signal(stopped.tid(), &stopped.signal_info().unwrap_or_default());
            self.return_input();
        }
        stopped.listen()
    }

    pub(crate) fn on_exit(&mut self, tid: ThreadId) {
        self.resent_signals.forget(tid);
        self.traps_to_ignore.remove(&tid);
        self.stop_nobody_for(tid);
        let Some(tracee) = self.tracees.remove(&tid) else {
            return if !self.on_vessel_end(tid) {
                self.on_end_of_unseen(tid)
            };
        };
        self.world().closes.fetch_add(1, Ordering::Relaxed);
        // Of a thread that is not the first one there are none.
        self.descriptors.forget(tid.leads());
        self.note_dependencies_at_end(&tracee);
        if tid == self.root.leader() {
            self.return_input();
            self.on_command_end(&tracee);
        }
        let slot = &self.world().processes[tracee.process];
        let is_process = slot.pid.load(Ordering::Relaxed) == tid.as_raw() as u32;
        let is_unasked = slot.flags.load(Ordering::SeqCst) & agent_abi::PROCESS_ENDING != 0;
        if !self.give_back(&tracee) && is_process {
            self.give_back_unseen_threads(tracee.process, 0);
        }
        self.ahead_on_end(tid, is_process, is_unasked);
    }

    /// False: others use the process's slot.
    pub(crate) fn give_back(&mut self, tracee: &Tracee) -> bool {
        let world = self.world();
        if let Some(thread) = tracee.thread {
            world.threads[thread].leave_change(&world.transactions);
            world.threads[thread].tid.store(0, Ordering::Release);
            world.births[thread].end();
            self.stats.syscalls_tracked += world.threads[thread].calls.swap(0, Ordering::Relaxed);
            world.thread_map.give_back(thread);
        }
        let slot = &world.processes[tracee.process];
        if slot.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return false;
        }
        let clock = slot.clock.load(DOMAINS_MAX);
        if let Some(parent) = world.processes.get(slot.parent.load(Ordering::Relaxed) as usize) {
            parent.depend(&world.transactions, &clock);
        }
        self.stats.patched_sites += slot.patched_sites.load(Ordering::Relaxed);
        let stopped = self.stopped_sites.remove(&tracee.process);
        self.stats.unpatched_sites += stopped.map_or(0, |sites| sites.len() as u64);
        if let Some(id) = self.output_ids.remove(&tracee.process) {
            self.outputs.end_process(id);
        }
        self.watched.remove(&tracee.process);
        slot.pid.store(0, Ordering::Release);
        world.process_map.give_back(tracee.process);
        true
    }

    /// What ends a process may leave it no time to say what it depends on: what it stored in files that it has mapped,
    /// and what it learned from memory that it shares.
    fn note_dependencies_at_end(&self, tracee: &Tracee) {
        let world = self.world();
        let slot = &world.processes[tracee.process];
        slot.depend(&world.transactions, &self.dependencies_of_process(tracee.process));
    }

    /// COMMAND has ended. Its status is output: the front shows it when all that it depends on is committed.
    fn on_command_end(&mut self, tracee: &Tracee) {
        let clock = self.world().processes[tracee.process].clock.load(DOMAINS_MAX);
        self.unsettled = Some(Unsettled { clock, id: self.output_ids.get(&tracee.process).copied() });
    }

    /// Tell the front that COMMAND's status may be shown, once that is so. If no process is left that we know of,
    /// mostly the end of the world comes next, and commits everything; but the kernel may report the end of a
    /// process before the first stop of a child that it made just before.
    fn settle_command(&mut self) {
        let Some(Unsettled { clock, id }) = &self.unsettled else { return };
        if self.tracees.is_empty() || self.failed.load(Ordering::SeqCst) {
            return;
        }
        let transactions = &self.world().transactions;
        if !transactions.is_resolved(clock) {
            if transactions.request(clock) {
                external_sync::engine::ring(self.world());
            }
        } else if id.is_none_or(|id| self.outputs.has_left_of(id)) {
            self.unsettled = None;
            self.front.tell(&Message::CommandSettled);
        }
    }

    /// When to look again whether COMMAND's status may be shown.
    fn next_look_at_command(&self) -> Option<Instant> {
        const AGAIN: Duration = Duration::from_millis(1);
        let is_awaited = self.unsettled.is_some() && !self.tracees.is_empty();
        (is_awaited && !self.failed.load(Ordering::SeqCst)).then(|| Instant::now() + AGAIN)
    }

    /// The process of a thread.
    pub(crate) fn pid_of(&mut self, tid: ThreadId) -> io::Result<ProcessId> {
        if let Some(pid) = self.tracees.get(&tid).and_then(|tracee| tracee.pid) {
            return Ok(pid);
        }
        let pid = process_of(tid)?;
        if let Some(tracee) = self.tracees.get_mut(&tid) {
            tracee.pid = Some(pid);
        }
        Ok(pid)
    }
}
