//! A call is asked about: may it be made now, as what, and what is known when it has been made.

use crate::ahead::calls::births::makes_process;
use crate::ahead::calls::exchange;
use crate::ahead::calls::opened::Opened;
use crate::ahead::calls::permits::Permitted;
use crate::ahead::calls::plan::{is_refused, Class, Plan};
use crate::ahead::calls::rights::has_our_numbers;
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::calls::waiting::News;
use crate::ahead::process::childless::may_say_of_child;
use crate::ahead::process::vfork;
use crate::ahead::rollback::checkpoints::Kept;
use crate::ahead::rollback::undo::{Intent, Undo};
use crate::ahead::rollback::vessels::{self, Copied};
use crate::ahead::speculations::bounds::{self, Bound};
use crate::ahead::speculations::worth;
use crate::ahead::{process, Call, Object, Written};
use crate::event_loop::Supervisor;
use crate::spent::{Answered, Cause};
use agent_abi::{ahead, Frame, PHASE_AFTER, SPECULATE_NR};
use checkpoint::{CheckpointError, ThreadedVessel};
use commit_clock::DOMAINS_MAX;
use procfs::{ProcessId, ThreadId};
use speculation::Dependent;
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracee::{Result, Stopped, TraceError};

impl Call {
    /// The same call, as it is looked at after a rollback: it is made without running ahead.
    pub(in crate::ahead) fn again(&self) -> Self {
        Self {
            frame: self.frame,
            is_fresh: false,
            not_before: None,
            answer: None,
            was_rolled_back: true,
            wants_window: false,
            texts: Default::default(),
            awaited: Default::default(),
            ..*self
        }
    }
}

/// What to do with a call.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Make it.
    Go,
    /// Make it, and the next ones of its kind as well.
    GoOnPermit(Permitted),
    /// Make it, and tell.
    GoAndTell(UnderWay),
    /// Make the call that stands at an address, and tell.
    GoInstead(UnderWay, u64),
    /// This is its result.
    Answer(i64),
    /// So is this: a descriptor, of which the next calls need not be asked about.
    Opened(i64, Opened),
    /// Not yet.
    Wait,
    /// Signals were sent that must be delivered first.
    Again,
    /// The thread is not to be let go: its process has ended, but perhaps not for good.
    Keep,
    /// The same, and only the thread has ended.
    Retire,
}

impl Decision {
    fn for_accounts(&self) -> Answered {
        match self {
            Self::Go => Answered::Go,
            Self::GoOnPermit(_) => Answered::Permit,
            Self::GoAndTell(_) | Self::GoInstead(..) => Answered::Tell,
            Self::Answer(_) | Self::Opened(..) => Answered::Answer,
            Self::Wait | Self::Again | Self::Keep | Self::Retire => Answered::Later,
        }
    }
}

impl Supervisor {
    /// The agent asks about a call; once more, if its program was busy when it was made.
    pub(crate) fn on_ahead(&mut self, stopped: Stopped, frame_at: u64, was_busy: bool) -> Result<()> {
        let tid = stopped.tid();
        self.ahead.under_way.end(tid);
        self.ahead.report.asked += 1;
        let kernel = |source| TraceError::kernel("read a call", tid, source);
        let frame: Frame = tracee::read_value(tid, frame_at).map_err(kernel)?;
        let pid = self.pid_of(tid).map_err(kernel)?;
        let is_fresh = self.ahead.waiting.asks_anew(tid);
        let call = Call { is_fresh, was_busy, ..Call::new(tid, pid, frame, frame_at) };
        self.note_whether_all(pid);
        self.hears_from_kernel(pid);
        self.ahead.busy_programs.asks(tid, was_busy);
        let (before, news) = (self.ahead.changes, News::of(&call));
        self.consider(stopped, call)?;
        self.settle_calls_after(if self.ahead.changes == before { news } else { News::Any });
        Ok(())
    }

    /// A call that was to be told of has been made.
    pub(crate) fn on_done(&mut self, stopped: Stopped, result: i64) -> Result<()> {
        let made = self.ahead.under_way.end(stopped.tid());
        let kernel = |source| TraceError::kernel("tell a process", stopped.tid(), source);
        let pid = self.pid_of(stopped.tid()).map_err(kernel)?;
        // What a birth changes was known when it was asked about.
        let changes_nothing = |made: &UnderWay| made.only_closes || made.makes_child || made.covered.is_some();
        if !made.as_ref().is_some_and(changes_nothing) {
            self.revoke_permits();
        }
        let news = made.as_ref().map_or(News::Any, |made| made.news(pid));
        let hung_up = made.as_ref().map_or_else(Vec::new, UnderWay::hung_up);
        if !hung_up.is_empty() {
            self.call_out_who_waits_at(stopped.tid(), &hung_up);
        }
        self.ahead.giving_birth.remove(&stopped.tid());
        if let Some(mapping) = made.as_ref().and_then(|made| made.mirrors) {
            self.mapped_mirror(&stopped, mapping, result)?;
        }
        if let Some(taking) = made.as_ref().and_then(|made| made.takes.as_ref()) {
            self.note_taken(stopped.tid(), taking, result)?;
        }
        let is_apart = made.as_ref().is_some_and(|made| made.is_apart) && result > 0;
        let child = ProcessId::from_raw(result as i32);
        if is_apart && !self.tracees.contains_key(&child.leader()) && !self.ahead.children.knows(child) {
            // Of one that was born it is noted already; it may have ended since, so that nobody has to wait for it.
            self.ahead.children.apart.begin(child, pid);
        }
        let makes_child = made.is_some_and(|made| made.makes_child) && result > 0;
        if makes_child {
            let tid = stopped.tid();
            match self.counts_as_we_do(tid) {
                // A process or a thread.
                true => self.await_birth(ThreadId::from_raw(result as i32))?,
                false => self.hear_of_children(tid)?,
            }
        }
        if is_apart {
            self.await_apart(stopped, pid, child)?;
            self.settle_calls();
            return Ok(());
        }
        if makes_child {
            self.permit_look(pid);
        }
        let answered = self.reply(stopped, 0);
        self.call_to_hear(pid);
        self.settle_calls_after(news);
        answered
    }

    fn consider(&mut self, stopped: Stopped, mut call: Call) -> Result<()> {
        self.ahead.walks.begin(&mut call);
        let decision = self.decide(&stopped, &mut call).map(|decision| self.with_permit(&call, decision));
        self.ahead.walks.end();
        let decision = decision?;
        call.is_fresh = false;
        self.accounts.is(Cause::Asked(call.frame.nr, decision.for_accounts()));
        self.ahead.trace_decision(&call, &decision);
        self.carry_decision(stopped, call, decision)
    }

    /// Something changed: look again at all calls that wait, the longest-waiting first.
    pub(in crate::ahead) fn reconsider(&mut self, mut news: News) {
        loop {
            let before = self.ahead.changes;
            for key in self.ahead.waiting.concerned_by(std::mem::replace(&mut news, News::Any)) {
                let Some(mut parked) = self.ahead.waiting.take(key) else { continue };
                self.ahead.walks.begin(&mut parked.call);
                let decision = self.decide(&parked.stopped, &mut parked.call);
                self.ahead.walks.end();
                match decision {
                    Ok(Decision::Wait) => self.ahead.waiting.put_back(key, parked),
                    Ok(decision) => {
                        self.ahead.trace_decision(&parked.call, &decision);
                        let decision = self.without_permits(&parked.call, decision);
                        self.ahead.changes += 1;
                        let tid = parked.call.tid;
                        match self.carry_decision(parked.stopped, parked.call, decision) {
                            Ok(()) | Err(TraceError::Gone(_)) => {}
                            Err(error) => self.give_up(tid, &error),
                        }
                    }
                    Err(TraceError::Gone(_)) => {}
                    Err(error) => self.give_up(parked.call.tid, &error),
                }
            }
            if self.ahead.changes == before {
                return;
            }
        }
    }

    fn carry_decision(&mut self, stopped: Stopped, call: Call, decision: Decision) -> Result<()> {
        self.note_shown_later(&call, &decision);
        match decision {
            Decision::Go => self.reply(stopped, ahead::GO),
            Decision::GoOnPermit(permitted) => self.go_on_permit(stopped, &call, permitted),
            Decision::GoAndTell(under_way) => {
                if under_way.makes_child {
                    self.ahead.giving_birth.insert(call.tid);
                }
                let answer = if under_way.is_apart { ahead::GO_APART } else { ahead::GO_AND_TELL };
                self.ahead.under_way.begin(call.tid, under_way);
                self.reply(stopped, answer)
            }
            Decision::GoInstead(under_way, at) => {
                self.ahead.under_way.begin(call.tid, under_way);
                self.reply(stopped, ahead::GO_INSTEAD | (at as i64) << ahead::PERMIT_SHIFT)
            }
            Decision::Answer(result) => self.answer_call(stopped, &call, result, ahead::ANSWERED),
            Decision::Opened(fd, opened) => self.answer_call(stopped, &call, fd, opened.answer()),
            Decision::Again => {
                self.ahead.waiting.asks_again(call.tid);
                self.reply(stopped, ahead::AGAIN)
            }
            Decision::Keep => {
                self.ahead.children.keep(call.pid, stopped, None);
                Ok(())
            }
            Decision::Retire => {
                self.ahead.thread_groups.retire(call.pid, stopped, true);
                Ok(())
            }
            Decision::Wait => {
                self.ahead.waiting.park(stopped, call);
                Ok(())
            }
        }
    }

    pub(in crate::ahead) fn give_up(&mut self, tid: ThreadId, error: &dyn std::fmt::Display) {
        self.front.tell(&crate::message::Message::Warning {
            text: format!("cannot go on with thread {tid}: {error}; it was killed"),
        });
        crate::sys::kill_process_of(tid, libc::SIGKILL);
    }

    /// Answer a request of the agent.
    pub(in crate::ahead) fn reply(&mut self, stopped: Stopped, answer: i64) -> Result<()> {
        let mut registers = stopped.registers()?;
        registers.rax = answer as u64;
        registers.orig_rax = u64::MAX;
        stopped.set_registers(&registers)?;
        stopped.resume(0)
    }

    /// The call has been made by us.
    fn answer_call(&mut self, stopped: Stopped, call: &Call, result: i64, answer: i64) -> Result<()> {
        let tid = call.tid;
        let kernel = |source| TraceError::kernel("write a result", tid, source);
        let page = stopped.registers()?.gs_base;
        let at = call.frame_at + offset_of!(Frame, rax) as u64;
        tracee::write_bytes(tid, at, &result.to_ne_bytes()).map_err(kernel)?;
        // From here on a signal must not take the thread back to before the call.
        const PHASE: u64 = 24;
        tracee::write_bytes(tid, page + PHASE, &PHASE_AFTER.to_ne_bytes()).map_err(kernel)?;
        match may_say_of_child(call) {
            true => self.leave_with_answer(stopped, call),
            false => self.reply(stopped, answer),
        }
    }

    /// May this call be made?
    fn decide(&mut self, stopped: &Stopped, call: &mut Call) -> Result<Decision> {
        self.ahead.known_ways.tells_of_nothing();
        if let Some(child) = call.awaits {
            return self.decide_apart(stopped, call, child);
        }
        if self.ahead.thread_groups.is_lent_by_another(call.pid, call.tid) {
            return Ok(Decision::Wait);
        }
        Ok(match self.decide_alone(stopped, call)? {
            Decision::Go if self.changes_names(call) => {
                Decision::GoAndTell(UnderWay { changes_names: true, ..UnderWay::default() })
            }
            Decision::Go if call.executes() && self.has_company(call.tid) => {
                match self.hold_first(call.pid, call.tid)? {
                    true => Decision::GoAndTell(UnderWay { replaces_first: true, ..UnderWay::default() }),
                    false => Decision::Wait,
                }
            }
            // Were its parent to guess before the child is heard of, the child would be taken for one of that guess.
            Decision::Go if makes_process(call) => {
                Decision::GoAndTell(UnderWay { makes_child: true, ..UnderWay::default() })
            }
            decision => decision,
        })
    }

    fn decide_alone(&mut self, stopped: &Stopped, call: &mut Call) -> Result<Decision> {
        self.reap_if_due(stopped, call.pid)?;
        let hears_of_child = self.deliver_child_signal(stopped, call.pid, Some(call))?;
        if hears_of_child && may_say_of_child(call) && !self.ahead.signals.has_any_for(call.pid) {
            return self.decide_wait_with_signal(stopped, call);
        }
        if hears_of_child || self.deliver_signals(stopped, call.pid, Some(call))? {
            return Ok(Decision::Again);
        }
        if !self.ahead.is_speculative(call.pid) && !self.leave_mirrors(stopped, call)? {
            return Ok(Decision::Wait);
        }
        if call.frame.nr == u64::from(SPECULATE_NR) {
            return self.on_speculate(stopped, call);
        }
        if let Some(at) = call.not_before {
            if Instant::now() < at {
                return Ok(Decision::Wait);
            }
            call.not_before = None;
        }
        if self.stands_back(call) || self.takes_from_who_works(call) {
            return Ok(Decision::Wait);
        }
        let mut plan = self.plan(call);
        if vfork::lets_go(call, &plan.class) && !self.hand_back(stopped, call.pid)? {
            return Ok(Decision::Wait);
        }
        if self.ahead.signals.has_any_for(call.pid) && !matches!(plan.class, Class::Free) {
            // First it has to hear what was sent to it.
            return Ok(Decision::Wait);
        }
        if vessels::would_notice(&plan.class, call.frame.nr) {
            self.settle_vessels();
            self.reap_unseen(stopped, call.pid)?;
        }
        if call.is_fresh && !call.was_busy && !self.is_known_already(call, &plan) {
            if let Some(chosen) = self.ahead.injector.choose(&call.frame) {
                if let Some(decision) = self.inject_into(stopped, call, &plan, chosen)? {
                    return Ok(decision);
                }
                // Its checkpoint has what was young before: that is to be put back from now on.
                plan = self.plan(call);
            }
        }
        if matches!(plan.class, Class::Wait) {
            return self.decide_wait(stopped, call);
        }
        let is_speculative = self.ahead.is_speculative(call.pid);
        if let Some(decision) = self.decide_by_what_is_held(stopped, call, &mut plan)? {
            return Ok(decision);
        }
        if let Some(decision) = self.decide_ready(stopped, call, &mut plan)? {
            return Ok(decision);
        }
        if is_speculative && call.executes() {
            self.note_what_exec_resets(stopped, call.pid)?;
        }
        if is_speculative && (self.is_signalled(&plan) || self.keeps_program_busy(call)) {
            return Ok(self.wait_at_barrier(call));
        }
        if is_speculative && self.is_heard_inside(call, &plan.class) {
            return Ok(self.wait_at_barrier(call));
        }
        if is_speculative && holds_something(&plan.class) && crate::sys::is_short_of_descriptors() {
            return Ok(self.wait_at_bound(call, Bound::Descriptors));
        }
        if is_speculative && !plan.modifies.is_empty() && bounds::are_many_bytes_kept() {
            return Ok(self.wait_at_bound(call, Bound::Bytes));
        }
        let makes_one = matches!(plan.class, Class::Apart) || makes_process(call);
        if is_speculative && makes_one && self.ahead.children.are_many_held_exits() {
            return Ok(self.wait_at_bound(call, Bound::EndedProcesses));
        }
        match plan.class {
            Class::Free => return Ok(Decision::Go),
            Class::Later => return Ok(Decision::Wait),
            Class::Barrier if is_speculative => return Ok(self.wait_at_barrier(call)),
            Class::Window if self.is_anything_speculative() || self.is_reaping_due(call.pid) => {
                call.wants_window = true;
                return Ok(self.wait_at_barrier(call));
            }
            Class::Barrier | Class::Window => return Ok(Decision::Go),
            Class::OfProcess(file) => {
                let plan = Plan { class: Class::Tracked, ..plan };
                return self.read_of_process(stopped, call, plan, file);
            }
            Class::Certain if is_speculative => return Ok(self.wait_at_barrier(call)),
            Class::Exit { .. } if is_speculative && self.is_end_of_thread(call) => {
                return self.end_thread(stopped, call)
            }
            Class::Exit { status } if is_speculative => return self.end_speculatively(stopped, call, status),
            Class::Exit { .. } => return Ok(Decision::Go),
            Class::Output { fd } if is_speculative => return Ok(self.hold_output(call, fd)),
            Class::Output { .. } => return Ok(Decision::Go),
            Class::Input { source } => return self.read_input(stopped, call, source),
            Class::Send { fd, ino } => return self.send_inside(stopped, call, fd, ino),
            Class::Sync { fd } if is_speculative => return Ok(self.hold_sync(call, fd)),
            Class::Sync { .. } => return Ok(Decision::Go),
            Class::Lock { fd } => return self.lock_file(stopped, call, fd),
            Class::Record => return self.lock_record(stopped, call),
            Class::CloseLocked { ref files } => {
                let files = files.clone();
                return self.close_locked(stopped, call, Plan { class: Class::Tracked, ..plan }, &files);
            }
            Class::Mirror => return self.map_mirror(stopped, call),
            Class::Apart if is_speculative => return self.bear_apart(stopped, call, plan),
            Class::Apart if self.has_company(call.tid) => {
                return Ok(Decision::GoAndTell(UnderWay { lends_memory: true, ..UnderWay::default() }))
            }
            Class::Apart => return Ok(Decision::Go),
            Class::Listen { ino, socket } => return self.listen_unseen(stopped, call, ino, &socket),
            Class::Connect { server, port, client } => {
                return self.connect_unseen(stopped, call, (server, port), &client)
            }
            Class::Accept { listener } => return self.accept(stopped, call, listener),
            Class::CloseMembers { members } => {
                let plan = Plan { class: Class::Tracked, ..plan };
                return self.close_members(stopped, call, plan, members);
            }
            Class::Shutdown { ends, socket, closed } => return self.shut_down(stopped, call, ends, socket, closed),
            Class::Names if is_speculative => return self.hold_names(stopped, call),
            Class::Names => return Ok(Decision::Go),
            Class::Attributes if is_speculative => return self.hold_attributes(stopped, call),
            Class::Attributes => return Ok(Decision::Go),
            Class::Existing if is_speculative => return self.open_existing(stopped, call, plan),
            Class::Existing => return Ok(Decision::Go),
            Class::Emptying if is_speculative => return self.open_emptying(stopped, call, plan),
            Class::Truncation if is_speculative => return self.truncate_file(stopped, call),
            Class::Emptying | Class::Truncation => return Ok(Decision::Go),
            Class::Creation if is_speculative => return self.create_file(stopped, call, plan),
            Class::Creation => return Ok(Decision::Go),
            Class::Deferred { fd } => return self.write_file(stopped, call, fd, is_speculative),
            Class::Refused { socket, address } => return self.connect_in_vain(stopped, call, &socket, address),
            Class::Kill(request) => return self.kill_receiver(stopped, call, request),
            Class::Signal(request) => return self.send(stopped, call, request),
            Class::Known { result } => {
                let tracked = self.track(stopped, call, plan, Vec::new())?;
                if matches!(tracked, Decision::Wait) {
                    return Ok(Decision::Wait);
                }
                self.observe_everything(call.tid);
                return Ok(Decision::Answer(result));
            }
            Class::EndOfFile => {
                let tracked = self.track(stopped, call, plan, Vec::new())?;
                if matches!(tracked, Decision::Wait) {
                    return Ok(Decision::Wait);
                }
                self.observe_everything(call.tid);
                return Ok(Decision::Answer(0));
            }
            Class::Tracked | Class::Certain | Class::Fresh | Class::Wait => {}
        }
        let modifies = std::mem::take(&mut plan.modifies);
        self.track(stopped, call, plan, modifies)
    }

    /// What is held for disks answers a call, or makes it wait; `None`: it does not concern the call.
    ///
    /// The order matters: what answers a call is asked before what would make the same call wait.
    /// 1. Attributes of what has held names or attributes, or is new, are shown.
    /// 2. Who would go by held attributes otherwise, or by contents that are held, waits, even where the name by which
    ///    he does could be answered. Programs without a name are executed, but for those.
    /// 3. Held names are shown, and a directory's entries with them.
    /// 4. Who would see a held name, or the lack of it, in another way waits; so does who would meet ETXTBSY because of
    ///    what is held open here.
    fn decide_by_what_is_held(&mut self, stopped: &Stopped, call: &Call, plan: &mut Plan) -> Result<Option<Decision>> {
        if is_refused(call) {
            return Ok(None);
        }
        if let Some(decision) = self.look_at_attributes(stopped, call)? {
            return Ok(Some(decision));
        }
        if self.goes_by_held_attributes(call) {
            return Ok(Some(self.wait_at_barrier(call)));
        }
        if let Some(decision) = self.read_held_contents(stopped, call)? {
            return Ok(Some(decision));
        }
        if let Some(decision) = self.map_held_contents(stopped, call)? {
            return Ok(Some(decision));
        }
        if let Some(decision) = self.execute_held(stopped, call, plan)? {
            return Ok(Some(decision));
        }
        if self.looks_at_deferred(call) {
            return Ok(Some(self.wait_at_barrier(call)));
        }
        if let Some(decision) = self.look_at_view(stopped, call)? {
            return Ok(Some(decision));
        }
        if let Some(decision) = self.read_held_entries(stopped, call)? {
            return Ok(Some(decision));
        }
        let waits = self.looks_at_held_names(call) || self.meets_mirror(call) || self.meets_busy_program(call);
        Ok(if waits { Some(self.wait_at_barrier(call)) } else { self.busy_error(call).map(Decision::Answer) })
    }

    /// Whether there is a process that natively would not be there, or not any more.
    pub(in crate::ahead) fn is_anything_speculative(&self) -> bool {
        self.ahead.core.open_speculations() > 0 || self.ahead.children.any_held_exits()
    }

    /// Whether this injected call was made before, by an execution that was taken back, and its outcome is known since
    /// then.
    fn is_known_already(&mut self, call: &Call, plan: &Plan) -> bool {
        let may_be_chosen = !matches!(plan.class, Class::Free) && self.ahead.injector.concerns(&call.frame);
        may_be_chosen && self.ahead.outcomes.is_known_again(call.pid)
    }

    pub(in crate::ahead) fn wait_at_barrier(&mut self, call: &Call) -> Decision {
        if call.is_fresh {
            self.ahead.report.count_barrier(call.frame.nr);
        }
        Decision::Wait
    }

    /// A call that can be undone: take dependencies, with a checkpoint if they are new; give them to what it modifies,
    /// with what undoes it.
    pub(in crate::ahead) fn track(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        plan: Plan,
        modifies: Vec<(Object, Intent)>,
    ) -> Result<Decision> {
        let who = process(call.pid);
        let keys: Vec<Object> = modifies.iter().map(|(object, _)| object.clone()).collect();
        if !self.is_settled_for(call, &plan.observes, &keys) {
            return Ok(Decision::Wait);
        }
        let needs_checkpoint = self.ahead.core.needs_checkpoint(who, &plan.observes, &keys);
        if needs_checkpoint && matches!(plan.class, Class::Certain | Class::Fresh) {
            return Ok(Decision::Wait);
        }
        let will_be_speculative = needs_checkpoint || self.ahead.is_speculative(call.pid);
        let (modifies, covered) = match needs_checkpoint {
            true => (modifies, None),
            false => {
                let modifies = self.without_needless_copies(call, modifies);
                self.without_covered_changes(call, &plan, modifies)
            }
        };
        let adds_nothing = self.ahead.core.adds_nothing(who, &plan.observes, &keys);
        let kept_whole = exchange::kept_whole(&modifies);
        let Some(changes) = self.undos_of(call.tid, modifies, will_be_speculative)? else {
            return Ok(self.wait_at_barrier(call));
        };
        if will_be_speculative && !self.ahead.unsettled.is_empty() && !keys.is_empty() {
            return Ok(Decision::Wait);
        }
        if needs_checkpoint {
            let wait = self.wait_for(call.pid, &plan.observes, &keys);
            if !self.prepare_checkpoint(stopped, call.pid, Some(call), wait)? {
                return Ok(Decision::Wait);
            }
        }
        let mut concerned = self.looks_at(&plan.observes);
        if will_be_speculative {
            keys.iter().cloned().for_each(|key| self.ahead.touched.insert(key));
        }
        self.ahead.note_flows(call.pid, &plan.observes, &keys);
        self.ahead.core.system_call(who, plan.observes, changes);
        self.note_kept_whole(kept_whole);
        self.carry_out()?;
        let watches = matches!(
            syscall_table::op(call.frame.nr),
            Some(syscall_table::Op::Poll | syscall_table::Op::Select | syscall_table::Op::EpollWait)
        );
        concerned.extend(keys);
        if concerned.is_empty() && !watches {
            return Ok(Decision::Go);
        }
        Ok(Decision::GoAndTell(UnderWay {
            objects: concerned,
            watches,
            makes_child: makes_process(call),
            can_be_repeated: plan.can_be_repeated,
            covered,
            adds_nothing,
            ..UnderWay::default()
        }))
    }

    /// What undoes each change; `None` if one of them cannot be undone.
    fn undos_of(
        &mut self,
        tid: ThreadId,
        modifies: Vec<(Object, Intent)>,
        is_needed: bool,
    ) -> Result<Option<Vec<(Object, Undo)>>> {
        let mut changes = Vec::new();
        for (object, intent) in modifies {
            let undo = match is_needed {
                true => self.undo_of(tid, intent),
                false => Ok(Undo::Nothing),
            };
            match undo {
                Ok(undo) => changes.push((object, undo)),
                Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(None),
                // Another thread has closed it since the call was planned: what the call meets then is not known.
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Ok(None),
                Err(source) => return Err(TraceError::Kernel { what: "prepare an undo", task: tid.into(), source }),
            }
        }
        Ok(Some(changes))
    }

    /// Whether no other call is under way on what this one would give new dependencies to. Those that can be repeated
    /// are taken back.
    fn is_settled_for(&mut self, call: &Call, observes: &[Dependent<Object>], keys: &[Object]) -> bool {
        let core = &self.ahead.core;
        let mut own = core.dependencies_of_process(process(call.pid)).clone();
        for dependent in observes {
            if let Dependent::Object(object) = dependent {
                own.merge(core.dependencies_of_object(object));
            }
        }
        for key in keys {
            own.merge(core.dependencies_of_object(key));
        }
        let gaining: Vec<&Object> =
            keys.iter().filter(|key| !own.is_subset(core.dependencies_of_object(key))).collect();
        if gaining.is_empty() {
            return true;
        }
        let gaining: Vec<Object> = gaining.into_iter().cloned().collect();
        let gaining: Vec<&Object> = gaining.iter().collect();
        let mut is_settled = self.is_settled_with_permits(call.tid, &gaining);
        for (tid, other) in self.ahead.under_way.of_others(call.tid) {
            if gaining.iter().any(|key| other.concerns(key)) {
                is_settled = false;
                if other.can_be_repeated {
                    // It will ask again, after us.
                    let _ = tracee::interrupt(tid);
                }
            }
        }
        is_settled
    }

    /// How long a process would have to wait until the dependencies that a call would give it are resolved.
    pub(in crate::ahead) fn wait_for(
        &self,
        pid: ProcessId,
        observes: &[Dependent<Object>],
        keys: &[Object],
    ) -> Duration {
        let gained = self.ahead.core.gains(process(pid), observes, keys);
        self.ahead.ledger.known_after(&gained, self.ahead.options.limits.expected_wait, Instant::now())
    }

    /// Whether a checkpoint of a process costs at most the wait that it would hide.
    pub(in crate::ahead) fn is_worth_a_checkpoint(&mut self, pid: ProcessId, wait: Duration) -> bool {
        self.ahead.options.always_checkpoints || self.ahead.costs.is_worth(pid, wait, || worth::resident_pages(pid))
    }

    /// It costs more.
    pub(in crate::ahead) fn waits_instead(&mut self, pid: ProcessId, wait: Duration) {
        self.ahead.report.not_worth += 1;
        self.ahead.costs.waits(pid, wait);
    }

    /// Take a checkpoint of the caller for the core. False if this process cannot have one, or one that would cost more
    /// than the wait that it hides: the process has to wait instead.
    pub(in crate::ahead) fn prepare_checkpoint(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        call: Option<&Call>,
        wait: Duration,
    ) -> Result<bool> {
        // None of the threads makes a call of its own while one of them has lent their memory.
        if !self.can_be_checkpointed(pid) || self.ahead.thread_groups.is_lent(pid) {
            return Ok(false);
        }
        if !self.is_worth_a_checkpoint(pid, wait) {
            if call.is_none_or(|call| call.is_fresh) {
                self.waits_instead(pid, wait);
            }
            return Ok(false);
        }
        if !self.ends_epoch_of(pid) {
            // A child is just about to end: it can be taken when that is over.
            self.ahead.thread_groups.await_birth();
            return Ok(false);
        }
        let mut unreaped = self.ahead.vessels.take_unreaped(pid);
        let begin = Instant::now();
        let gate = self.image.header.gate_program;
        let forked = match self.has_company(pid.leader()) {
            false => {
                let known = self.known_of(pid, stopped.tid());
                let alone = ThreadedVessel::fork_alone(stopped, gate, known, &mut unreaped);
                alone.and_then(|vessel| Ok(Some((self.look_into_copy(vessel)?, HashMap::new()))))
            }
            true => self.fork_with_others(stopped, pid, &mut unreaped),
        };
        self.ahead.vessels.are_unreaped(unreaped);
        match forked {
            Ok(None) => Ok(false),
            Ok(Some((Copied { vessel, at, descriptors, sockets, open }, others))) => {
                let took = at.duration_since(begin);
                self.ahead.report.checkpoint(took);
                self.ahead.costs.measured(pid, took);
                self.ahead.ledger.checkpoint(pid, took, self.ahead.now());
                let call = call.map(Call::again);
                let injected = self.ahead.outcomes.counted(pid);
                let mut sent_again = self.resent_signals.originals();
                sent_again.retain(|&tid, _| tid == pid.leader() || self.pid_of(tid).is_ok_and(|of| of == pid));
                let apart = self.ahead.children.apart.parent(pid);
                let (tid, births) = (stopped.tid(), self.ahead.children.births());
                let (known, barriers, no_zombies) = (self.known_in_slots(pid), None, None);
                #[rustfmt::skip]
                let kept = Kept {
                    vessel, pid, tid, call, others, descriptors, sockets, open, sent_again, births, injected,
                    apart, known, barriers, no_zombies,
                };
                if let Some(stale) = self.ahead.checkpoints.prepare(kept) {
                    self.discard(stale);
                }
                Ok(true)
            }
            Err(CheckpointError::Trace(error)) => Err(error),
            Err(error) => {
                self.ahead.report.refused(&error.to_string());
                Ok(false)
            }
        }
    }

    /// Whether the numbers of processes that a thread asks for, or is told, are ours.
    pub(in crate::ahead) fn counts_as_we_do(&self, tid: ThreadId) -> bool {
        let Some(tracee) = self.tracees.get(&tid) else { return true };
        let flags = self.world().processes[tracee.process].flags.load(Ordering::Relaxed);
        flags & agent_abi::PROCESS_PRIVILEGES == 0 || has_our_numbers(tid)
    }

    /// `None` where this process cannot run ahead now. `delay`: how long until the outcome is known, if anybody knows.
    pub(in crate::ahead) fn begin_speculation(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        access: speculation::Access,
        delay: Option<Duration>,
    ) -> Result<Option<speculation::SpeculationId>> {
        let now = self.ahead.now_ms();
        let needs = self.ahead.core.creation_needs_checkpoint(process(call.pid), now);
        let wait = delay.unwrap_or(self.ahead.options.limits.expected_wait);
        if needs && !self.prepare_checkpoint(stopped, call.pid, Some(call), wait)? {
            return Ok(None);
        }
        let created = self.ahead.core.create_speculation(process(call.pid), access, now);
        match created {
            Ok(created) => {
                self.end_youth();
                self.carry_out()?;
                self.ahead.report.open(self.ahead.core.open_speculations());
                Ok(Some(created.id))
            }
            Err(_) => {
                if let Some(kept) = self.ahead.checkpoints.take_prepared() {
                    self.discard(kept);
                }
                Ok(None)
            }
        }
    }

    /// Take output of a speculative process (000, 5.3).
    fn hold_output(&mut self, call: &Call, fd: i32) -> Decision {
        if self.ahead.holds_enough() {
            return self.wait_at_barrier(call);
        }
        let Some((target, bytes)) = self.output_of(call.tid, fd, &call.frame) else {
            return self.wait_at_barrier(call);
        };
        let target = self.ahead.with_one_descriptor(target);
        let Some(tracee) = self.tracees.get(&call.tid) else { return Decision::Wait };
        let slot = tracee.process;
        let Some(&writer) = self.output_ids.get(&slot) else { return Decision::Wait };
        let clock = self.world().processes[slot].clock.load(DOMAINS_MAX);
        let len = bytes.len() as i64;
        self.ahead.report.output_held += bytes.len() as u64;
        self.ahead.shown_bytes += bytes.len() as u64;
        self.ahead.core.output(process(call.pid), Written::Stream { target, writer, clock, bytes });
        Decision::Answer(len)
    }
}

impl Supervisor {
    /// Whether the kernel may tell somebody by a signal that this call made something ready.
    fn is_signalled(&self, plan: &Plan) -> bool {
        let options = self.world().options.load(Ordering::Relaxed);
        options & agent_abi::option::READINESS_SIGNALLED != 0
            && plan.modifies.iter().any(|(object, _)| object.can_be_awaited())
    }
}

/// Whether we may have to keep something open for a call until the guess is resolved.
fn holds_something(class: &Class) -> bool {
    !matches!(class, Class::Free | Class::Exit { .. } | Class::Later)
}
