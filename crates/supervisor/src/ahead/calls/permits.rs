//! Permits: most calls that look at files need not ask ([0092](../../../../../docs/decisions/0092-permits.md)).
//!
//! A process that may make such a call depends on whatever any file, directory or position depends on that is not as it
//! was before all guesses; nothing is held that a look would have to be answered from; and nothing waits to be told to
//! it. As long as all that stays so, its next look needs no decision. Whatever may change it revokes all permits: each
//! stop of a thread but a question, each answer to one about a call that may concern others, each action of the core,
//! each checkpoint. An object that comes to depend on more waits besides until nobody is in a call that was not asked
//! about.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::exchange::{waits_for_readiness, Covered};
use crate::ahead::calls::plan::is_of_pipefs;
use crate::ahead::calls::served::Served;
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::calls::waiting::Parked;
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::{ahead, permitted, About, DeviceKind, Work};
use procfs::{ProcessId, ThreadId};
use rustix::fs::FileType;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use syscall_table::{nr, Op};
use tracee::{Result, Stopped};

/// How long a thread may take for the last steps of a call.
const LEAVES_WITHIN: Duration = Duration::from_millis(2);

/// Kinds of calls for which processes with several threads, or with shared mappings, have permits
/// ([0240](../../../../../docs/decisions/0240-threads-have-permits.md)).
const OF_THREADS: u32 =
    permitted::LOOK | permitted::OPEN | permitted::READ | permitted::READ_DIRECTORY | permitted::WRITE;

/// What a call says of a name that is not there.
const MISSING: i64 = -(libc::ENOENT as i64);

/// So long a call that waits for others to leave theirs keeps back who asks meanwhile.
const KEEPS_OTHERS: Duration = Duration::from_millis(50);

/// What a permit that is given with a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permitted {
    /// Looking at files.
    Looks,
    /// Reading a file that a guess has made, of which only attributes and names are held.
    NewFile,
    /// Only this call: whoever has to know that it has been made finds that its thread works on none.
    ThisOne,
    /// More changes of the same object, which are covered by what is kept.
    Changes(Covered),
}

/// What is known of permits besides the world's memory.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Given {
    /// Some were given since they were revoked last.
    any: bool,
    /// A call waits until nobody works on one: meanwhile none is given.
    is_awaited: bool,
    /// The thread whose call waited last, and since when one has, if nobody's call could be made since then.
    awaiting: Option<(ThreadId, Instant)>,
    /// Threads that were called out of such a call when it was made, and since when they are about to leave it.
    leaving: HashMap<ThreadId, Instant>,
    served: Served,
}

impl Given {
    /// When to look again whether those who were called out have left their calls, or at who was kept back for them.
    pub(in crate::ahead) fn next_look(&self) -> Option<Instant> {
        const AGAIN: Duration = Duration::from_micros(100);
        let now = Instant::now();
        let kept_until = self.awaiting.map(|(_, since)| since + KEEPS_OTHERS).filter(|&until| until > now);
        let again = (!self.leaving.is_empty()).then(|| now + AGAIN);
        again.into_iter().chain(kept_until).min().filter(|_| self.is_awaited)
    }
}

impl Supervisor {
    /// Which kinds of calls have permits in this world: those that are never chosen to become guesses.
    pub(crate) fn permit_kinds(&mut self) {
        let kinds = match self.ahead.options.asks_always {
            true => 0,
            false => self.ahead.injector.kinds_left(),
        };
        self.world().permitted.store(kinds, Ordering::SeqCst);
        self.ahead.permits.served.begin();
    }

    /// Something may be about to change: whoever has a permit asks again.
    pub(crate) fn revoke_permits(&mut self) {
        if std::mem::take(&mut self.ahead.permits.any) {
            self.world().permits.revoke();
        }
    }

    /// Of these objects each gets dependencies. Whether nobody is in a call on any of them of which we were not asked;
    /// who is comes back to his call and asks. Who waits until something is in a stream is at work on no file.
    pub(in crate::ahead) fn is_settled_with_permits(&mut self, caller: ThreadId, gaining: &[&Object]) -> bool {
        let is_stream = |object: &&Object| matches!(object, Object::Pipe(..) | Object::Socket(_));
        let is_looked_at = |object: &&Object| {
            matches!(object, Object::File(..) | Object::Names(..) | Object::Position(..) | Object::Created(..))
        };
        if gaining.iter().any(is_stream) {
            return self.call_out_who_works(caller);
        }
        !gaining.iter().any(is_looked_at) || self.call_out(caller, Work::is_under_way_elsewhere)
    }

    /// Whether a call may close or replace a descriptor that another thread of its process uses in a call of which we
    /// were not asked: that one comes back to its call. A thread that begins such a call later finds no mark.
    pub(in crate::ahead) fn takes_from_who_works(&mut self, call: &Call) -> bool {
        let is_such = matches!(call.frame.nr, nr::close | nr::dup2 | nr::dup3 | nr::close_range);
        if !is_such || !self.has_company(call.tid) {
            return false;
        }
        let Some(process) = self.tracees.get(&call.tid).map(|tracee| tracee.process) else { return false };
        let world = self.world();
        let works = |slot: usize| world.threads[slot].work.is_under_way();
        let is_other = |tid: ThreadId, slot: usize| tid != call.tid && slot == process;
        let mut others = self.tracees.iter().filter(|(&tid, other)| is_other(tid, other.process));
        others.any(|(_, other)| other.thread.is_some_and(works)) && !self.call_out_who_works(call.tid)
    }

    /// Who is in a call of which we were not asked, but the caller, comes back to it and asks. Whether there is nobody.
    pub(in crate::ahead) fn call_out_who_works(&mut self, caller: ThreadId) -> bool {
        self.suspend_youth();
        self.call_out(caller, Work::is_under_way)
    }

    /// The same for those whose work is such.
    fn call_out(&mut self, caller: ThreadId, is_such: impl Fn(&Work) -> bool) -> bool {
        let world = self.world();
        let mut working = Vec::new();
        world.permits.revoke_and_look(|| {
            let works = |slot: usize| is_such(&world.threads[slot].work);
            let others =
                self.tracees.iter().filter(|(&tid, _)| tid != caller && !self.ahead.children.stands(tid.leads()));
            working.extend(others.filter(|(_, other)| other.thread.is_some_and(works)).map(|(&tid, _)| tid));
            !working.is_empty()
        });
        let given = &mut self.ahead.permits;
        given.leaving.retain(|tid, _| working.contains(tid));
        for tid in &working {
            let is_leaving = given.leaving.get(tid).is_some_and(|since| since.elapsed() < LEAVES_WITHIN);
            if !is_leaving {
                let _ = tracee::interrupt(*tid);
            }
        }
        given.is_awaited = !working.is_empty();
        let since = given.awaiting.map_or_else(Instant::now, |(_, since)| since);
        given.awaiting = given.is_awaited.then_some((caller, since));
        working.is_empty()
    }

    /// Whether a call stands back for one that waits until others have left theirs. Without a permit its thread would
    /// ask, go on, and ask again, on a core that those others need to get out of their calls.
    pub(in crate::ahead) fn stands_back(&self, call: &Call) -> bool {
        let permits = &self.ahead.permits;
        let is_kept = |(caller, since): (ThreadId, Instant)| caller != call.tid && since.elapsed() < KEEPS_OTHERS;
        permits.is_awaited && permits.awaiting.is_some_and(is_kept) && permitted::kind(call.frame.nr).is_some()
    }

    /// Whether a call waits until nobody is in a call of which we were not asked.
    pub(in crate::ahead) fn are_calls_awaited(&self) -> bool {
        self.ahead.permits.is_awaited
    }

    /// A thread that was called out goes on. If its call was made already it has a few steps to go before it says so:
    /// called out once more at once, it would not make one of them.
    pub(in crate::ahead) fn may_leave_work(&mut self, tid: ThreadId) {
        if self.sleeps_on_permit(tid) {
            self.ahead.permits.leaving.insert(tid, Instant::now());
        }
    }

    /// Whether a thread is in a call of which we were not asked: for long only if it waits for somebody else.
    pub(in crate::ahead) fn sleeps_on_permit(&self, tid: ThreadId) -> bool {
        let slot = self.tracees.get(&tid).and_then(|tracee| tracee.thread);
        slot.is_some_and(|slot| self.world().threads[slot].work.is_under_way())
    }

    /// Whether a call waits until nobody is in a call of which we were not asked: it is to be looked at again.
    pub(in crate::ahead) fn take_awaited_permits(&mut self) -> bool {
        std::mem::take(&mut self.ahead.permits.is_awaited)
    }

    /// A thread is in no call any more, wherever it was.
    pub(in crate::ahead) fn end_work(&self, tid: ThreadId) {
        if let Some(slot) = self.tracees.get(&tid).and_then(|tracee| tracee.thread) {
            self.world().threads[slot].work.end();
        }
        self.makes_no_pipe(tid);
    }

    /// A thread will not end by itself the change that it may be in the middle of: commits must not wait for it.
    pub(in crate::ahead) fn end_change(&self, tid: ThreadId) {
        let world = self.world();
        if let Some(slot) = self.tracees.get(&tid).and_then(|tracee| tracee.thread) {
            world.threads[slot].leave_change(&world.transactions);
        }
    }

    /// Whether another thread of the process has been allowed to close or replace descriptors, and has not told that it
    /// has: of none of them can be said what it leads to.
    fn are_descriptors_changing(&self, call: &Call) -> bool {
        let descriptors = Object::Descriptors(call.pid);
        self.has_company(call.tid)
            && self.ahead.under_way.of_others(call.tid).any(|(_, other)| other.objects.contains(&descriptors))
    }

    /// A file system was mounted.
    pub(crate) fn permits_of_mounts(&mut self) {
        self.revoke_permits();
        let mounts_inside = self.world().options.load(Ordering::SeqCst) & agent_abi::option::MOUNTED != 0;
        self.ahead.permits.served.look(mounts_inside);
    }

    /// What was decided of a call, with a permit for the next ones if there may be one; else there is none for anybody.
    pub(in crate::ahead) fn with_permit(&mut self, call: &Call, decision: Decision) -> Decision {
        let file = self.ahead.known_ways.told_of();
        let decision = self.permit_with(call, decision);
        let decision = self.with_mark(call, file.as_ref(), decision);
        // Behind the permit, as giving one strikes out what is known of files whose names have changed.
        self.learn_links();
        decision
    }

    fn permit_with(&mut self, call: &Call, mut decision: Decision) -> Decision {
        let is_allowed = match &decision {
            Decision::Go => true,
            Decision::GoAndTell(under_way) => is_plain(under_way),
            _ => false,
        };
        if let Decision::GoAndTell(under_way) = &mut decision {
            if let Some(covered) = under_way.covered {
                let may_change = !self.are_descriptors_changing(call) && self.may_change_on_permit(call, covered);
                return match (may_change, covered) {
                    (true, Covered::Once) => Decision::GoOnPermit(Permitted::ThisOne),
                    (true, _) => Decision::GoOnPermit(Permitted::Changes(covered)),
                    (false, _) => decision,
                };
            }
            if is_of_own_descriptors(call, under_way) {
                let is_alone = !self.has_company(call.tid);
                if is_alone && self.permit_next_looks(call) {
                    // Nobody else has to know when it has been made.
                    return Decision::Go;
                }
                under_way.only_closes = permitted::kind(call.frame.nr) == Some(permitted::CLOSE);
                if under_way.only_closes {
                    return decision;
                }
            }
            if is_of_own_ends(call, under_way) && self.may_be_left_alone(call) {
                if !under_way.adds_nothing {
                    self.revoke_permits();
                }
                return Decision::GoOnPermit(Permitted::ThisOne);
            }
        }
        if changes_roots(call) {
            self.ahead.known_ways.roots_may_differ();
        }
        if waits_for_children(call) && matches!(decision, Decision::Go | Decision::Wait) {
            // Nothing has changed yet, or a child has gone its own way.
            if call.awaits.is_some() && matches!(decision, Decision::Go) {
                self.permit_look(call.pid);
            }
            return decision;
        }
        let is_answered = matches!(decision, Decision::Answer(_));
        let is_free = matches!(decision, Decision::Go) && self.concerns_nobody_else(call);
        let misses_name =
            matches!(decision, Decision::Answer(MISSING)) && matches!(call.frame.nr, nr::unlink | nr::unlinkat);
        if is_free || is_answered && (self.tells_only_of_a_name(call, misses_name) || self.tells_of_own_children(call))
        {
            self.permit_next_looks(call);
            match call.frame.nr {
                // It will be missed again.
                nr::execve | nr::statfs => self.learn_way(call),
                nr if is_answered && (permitted::is_by_name(nr) || misses_name) => {
                    self.learn_directory(call);
                    self.learn_held_directory(call);
                    self.learn_held(call);
                }
                _ => {}
            }
            return decision;
        }
        if !is_allowed || !only_looks(call) {
            self.revoke_permits();
            if is_answered && changes_files(call) {
                self.permit_next_looks(call);
                self.learn_held(call);
            } else if is_answered && permitted::kind(call.frame.nr) == Some(permitted::READ_DIRECTORY) {
                self.permit_next_looks(call);
            }
            return decision;
        }
        if !self.may_have_permit(call) {
            return decision;
        }
        match permitted::is_by_descriptor(call.frame.nr) {
            true if self.are_descriptors_changing(call) => decision,
            true if self.is_in_new_file(call) => Decision::GoOnPermit(Permitted::NewFile),
            true => Decision::GoOnPermit(Permitted::Looks),
            // This one may lead anywhere.
            false => {
                self.give_permit(call.tid);
                self.learn_way(call);
                decision
            }
        }
    }

    /// What was decided of a call that has waited. What others look at may have changed since, but where it only waits
    /// for children.
    pub(in crate::ahead) fn without_permits(&mut self, call: &Call, decision: Decision) -> Decision {
        if waits_for_children(call) {
            return self.with_permit(call, decision);
        }
        self.revoke_permits();
        self.learn_links();
        decision
    }

    /// The next looks of a process that has asked about something else need no question, if there may be permits: it
    /// has just been told whatever it has to hear. Whether it may have any.
    fn permit_next_looks(&mut self, call: &Call) -> bool {
        let may_have_any = self.may_have_any_permit(call.tid, call.pid, permitted::LOOK);
        if may_have_any && self.may_look_at_all(call.pid) {
            self.give_permit(call.tid);
        }
        may_have_any
    }

    /// Whether a call that is made as it is changes nothing that anybody else could look at.
    fn concerns_nobody_else(&mut self, call: &Call) -> bool {
        let is_such = match call.frame.nr {
            nr::fcntl => matches!(call.frame.args[1] as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_GETFL),
            nr::dup | nr::pipe | nr::pipe2 | nr::ioctl => true,
            nr::getcwd | nr::statfs | nr::fstatfs | nr::fadvise64 => true,
            nr::getppid | nr::getpeername | nr::getsockname => true,
            // Its own limits.
            nr::prlimit64 => call.frame.args[0] == 0,
            nr::write => {
                matches!(self.file_description(call.tid, call.frame.args[0] as i32), FileDescription::Nothing)
            }
            // Of what nobody keeps, and what nobody else has locked.
            nr::close => true,
            _ => false,
        };
        is_such && self.ahead.is_speculative(call.pid)
    }

    /// A process has begun another program, or was born. The first look would get a permit; it need not ask for one.
    /// Whoever has children may have to hear of them.
    pub(in crate::ahead) fn permit_first_look(&mut self, pid: ProcessId) {
        if self.ahead.children.of(pid).next().is_none() {
            self.permit_look(pid);
        }
    }

    /// The next look of a process needs no question, if there may be permits, and there is nothing that it has to be
    /// told.
    pub(in crate::ahead) fn permit_look(&mut self, pid: ProcessId) {
        let ahead = &self.ahead;
        let has_to_hear = ahead.children.has_to_hear(pid) || !ahead.held_signals.of(pid).is_empty();
        // One that a rollback lets come to its agent is about to be taken back.
        let is_concerned = has_to_hear || ahead.is_rolling_back || self.is_reaping_due(pid);
        if !is_concerned && self.may_have_any_permit(pid.leader(), pid, permitted::LOOK) && self.may_look_at_all(pid) {
            self.give_permit(pid.leader());
        }
    }

    /// Whether a call that was answered from what is held has changed nothing: it tells of what a name leads to, and
    /// its process depends on everything already.
    fn tells_only_of_a_name(&self, call: &Call, misses_name: bool) -> bool {
        let tells_of_name = match call.frame.nr {
            _ if misses_name => true,
            nr::lseek => false,
            // The program is not there.
            nr::execve => true,
            // Besides, the process has a descriptor more.
            nr::open | nr::openat => only_looks(call),
            nr => permitted::kind(nr) == Some(permitted::LOOK),
        };
        tells_of_name && self.ahead.core.depends_on_all(process(call.pid))
    }

    /// Whether it is enough to know that a call is being made, as its thread says: nobody has to be told when it has
    /// been.
    pub(in crate::ahead) fn may_be_left_alone(&mut self, call: &Call) -> bool {
        let is_awaited = |parked: &Parked| waits_for_readiness(&parked.call);
        self.may_have_any_permit(call.tid, call.pid, permitted::CLOSE) && !self.ahead.waiting.iter().any(is_awaited)
    }

    /// Whether a call that was answered has told its process of its own children: what others could look at has not
    /// changed by it.
    fn tells_of_own_children(&self, call: &Call) -> bool {
        waits_for_children(call) && self.ahead.is_speculative(call.pid)
    }

    fn may_have_permit(&mut self, call: &Call) -> bool {
        let kind = permitted::kind(call.frame.nr).unwrap_or(0);
        self.may_have_any_permit(call.tid, call.pid, kind)
            && self.may_look_at_all(call.pid)
            && (!permitted::is_by_descriptor(call.frame.nr) || self.is_kept_by_kernel(call))
    }

    /// Whether a process gains nothing by whatever it looks at in files, and what of that is answered by us is known.
    fn may_look_at_all(&mut self, pid: ProcessId) -> bool {
        if self.ahead.permits.served.inside() || self.holds_what_is_looked_at() {
            return false;
        }
        let (core, who) = (&self.ahead.core, process(pid));
        if !core.depends_on_all(who) && !core.gains(who, &self.everything_looked_at(), &[]).is_empty() {
            return false;
        }
        !self.is_anything_held() || self.has_our_root(pid)
    }

    /// Whether a thread may make calls of a kind without a question at all.
    pub(in crate::ahead) fn may_have_any_permit(&mut self, tid: ThreadId, pid: ProcessId, kind: u32) -> bool {
        let ahead = &self.ahead;
        let is_permitted = self.world().permitted.load(Ordering::Relaxed) & kind != 0;
        let is_waited_for = ahead.permits.is_awaited || !ahead.unsettled.is_empty() || ahead.is_rolling_back;
        let options = self.world().options.load(Ordering::Relaxed);
        // To open or read may be to wait for somebody who is asked.
        let is_heard = options & agent_abi::option::READS_HEARD != 0;
        if !is_permitted || is_heard || is_waited_for {
            return false;
        }
        let is_alone = !self.has_company(tid);
        let has_plain_ways = is_alone && !self.shares_mappings(pid);
        if !has_plain_ways && kind & !OF_THREADS != 0 || self.ahead.thread_groups.is_lent(pid) {
            return false;
        }
        // Whatever it closes, even what it has only looked at, may give up a record lock.
        !self.ahead.signals.has_any_for(pid) && !self.ahead.record_locks.has_owner(pid) && self.stands_for_itself(pid)
    }

    /// Whether there is anything that some look would have to be answered from, or to wait for, of which it is not
    /// known which looks lead past it.
    fn holds_what_is_looked_at(&self) -> bool {
        self.ahead.files.hides_any()
    }

    /// Whatever is not as it was before all guesses, of what can be looked at in files.
    fn everything_looked_at(&self) -> Vec<speculation::Dependent<Object>> {
        let is_looked_at =
            |object: &&Object| matches!(object, Object::File(..) | Object::Names(..) | Object::Created(..));
        self.ahead.touched.iter().filter(is_looked_at).cloned().map(speculation::Dependent::Object).collect()
    }

    /// Whether a descriptor leads to a file that nobody serves, that tells of nothing else, and of which nothing is
    /// held.
    fn is_kept_by_kernel(&mut self, call: &Call) -> bool {
        let behind = self.file_description(call.tid, call.frame.args[0] as i32);
        match behind {
            FileDescription::File { device: DeviceKind::Domain | DeviceKind::Memory, dev, ino, .. } => {
                !self.is_held((dev, ino)) || self.is_in_new_file(call)
            }
            _ => false,
        }
    }

    /// Whether a call reads a file that a guess has made, or moves its position. What is in there is in the file, if
    /// nothing of it is held; what is said of the file is not. The names in a directory are held, so that whoever reads
    /// on from somewhere else in there has to ask.
    fn is_in_new_file(&mut self, call: &Call) -> bool {
        if self.ahead.new_files.is_empty() || !matches!(call.frame.nr, nr::lseek | nr::read | nr::readv) {
            return false;
        }
        match self.file_description(call.tid, call.frame.args[0] as i32) {
            FileDescription::File { dev, ino, copy, .. } => {
                let is_new = self.ahead.new_files.has_inode(&(dev, ino)) && !self.ahead.contents.has(&(dev, ino));
                is_new && (call.frame.nr != nr::lseek || !is_directory(&copy))
            }
            _ => false,
        }
    }

    /// The permit that a thread's process has, if it holds.
    pub(in crate::ahead) fn permit_of(&self, tid: ThreadId) -> Option<u64> {
        let world = self.world();
        let permit = world.processes[self.tracees.get(&tid)?.process].permit.load(Ordering::SeqCst);
        (permit != 0 && permit == world.permits.number()).then_some(permit)
    }

    /// Its process may look at files from now on.
    fn give_permit(&mut self, tid: ThreadId) -> Option<(u64, usize)> {
        let (permit, thread) = self.permit_now(tid)?;
        let process = self.tracees.get(&tid)?.process;
        self.world().processes[process].permit.store(permit, Ordering::SeqCst);
        Some((permit, thread))
    }

    /// The number of the permits that hold from now on, one of which a call gets, and its thread's slot.
    fn permit_now(&mut self, tid: ThreadId) -> Option<(u64, usize)> {
        let world = self.world();
        if world.permits.number() == 0 {
            // 0 is none.
            world.permits.revoke();
        }
        let thread = self.tracees.get(&tid)?.thread?;
        self.forget_ways();
        self.ahead.permits.any = true;
        self.ahead.report.permits += 1;
        Some((world.permits.number(), thread))
    }

    /// The call is made, and nobody is told: the thread works until it says that it does not.
    pub(in crate::ahead) fn go_on_permit(&mut self, stopped: Stopped, call: &Call, permitted: Permitted) -> Result<()> {
        let (given, answer) = match permitted {
            Permitted::Looks => (self.give_permit(call.tid), ahead::GO_ON_PERMIT),
            Permitted::NewFile => (self.give_permit(call.tid), ahead::GO_ON_NEW_FILE),
            Permitted::ThisOne => match self.may_look_at_all(call.pid) {
                true => (self.give_permit(call.tid), ahead::GO_ON_PERMIT),
                false => (self.permit_now(call.tid), ahead::GO_ON_PERMIT),
            },
            Permitted::Changes(Covered::Exchange) => (self.permit_now(call.tid), ahead::GO_ON_EXCHANGE),
            Permitted::Changes(Covered::Write | Covered::Once) => (self.permit_now(call.tid), ahead::GO_ON_WRITE),
        };
        let Some((permit, thread)) = given else { return self.reply(stopped, ahead::GO) };
        let about = match permitted {
            Permitted::Changes(Covered::Exchange) => About::Stream,
            _ => About::Anything,
        };
        self.world().threads[thread].work.begin_for(permit, about);
        self.reply(stopped, answer | (permit as i64) << ahead::PERMIT_SHIFT)
    }
}

/// Whether a call waits for children of its process: until they have ended, or go without its memory.
pub(in crate::ahead) fn waits_for_children(call: &Call) -> bool {
    call.awaits.is_some() || matches!(syscall_table::op(call.frame.nr), Some(Op::Wait))
}

/// Whether a call changes descriptors of its process and nothing else. The agent forgets by itself what was known of
/// one that is closed or replaced.
fn is_of_own_descriptors(call: &Call, under_way: &UnderWay) -> bool {
    let is_such = matches!(call.frame.nr, nr::close | nr::dup2 | nr::dup3 | nr::fcntl);
    is_such && is_plain(under_way) && under_way.objects.iter().all(|object| matches!(object, Object::Descriptors(_)))
}

/// Whether a call closes or replaces ends of pipes of its process, or is about their flags, and changes nothing else.
fn is_of_own_ends(call: &Call, under_way: &UnderWay) -> bool {
    let is_such = match call.frame.nr {
        nr::close | nr::dup2 | nr::dup3 => true,
        nr::fcntl => matches!(call.frame.args[1] as i32, libc::F_GETFL | libc::F_SETFL),
        _ => false,
    };
    let is_own = |object: &Object| match object {
        Object::Descriptors(_) => true,
        // Who opens a FIFO waits for its other end.
        Object::Pipe(dev, _) => is_of_pipefs(*dev),
        _ => false,
    };
    is_such && is_plain(under_way) && under_way.objects.iter().all(is_own)
}

/// Whether a call that was answered has changed files or names, if anything.
fn changes_files(call: &Call) -> bool {
    const CONTENTS: [u64; 6] = [nr::open, nr::openat, nr::creat, nr::write, nr::pwrite64, nr::ftruncate];
    const NAMES: [u64; 12] = [
        nr::unlink,
        nr::unlinkat,
        nr::rename,
        nr::renameat,
        nr::renameat2,
        nr::mkdir,
        nr::mkdirat,
        nr::rmdir,
        nr::link,
        nr::linkat,
        nr::symlink,
        nr::symlinkat,
    ];
    const ATTRIBUTES: [u64; 4] = [nr::chmod, nr::fchmod, nr::fchmodat, nr::utimensat];
    [&CONTENTS[..], &NAMES, &ATTRIBUTES].iter().any(|calls| calls.contains(&call.frame.nr))
}

/// Whether a call can change nothing but a position.
fn only_looks(call: &Call) -> bool {
    const MAP_TYPE: u64 = 0xf;
    const MAP_PRIVATE: u64 = 2;
    const MAP_ANONYMOUS: u64 = 0x20;
    let args = &call.frame.args;
    match permitted::kind(call.frame.nr) {
        // What is closed now may be something else the next moment.
        None | Some(permitted::CLOSE | permitted::WRITE) => false,
        Some(_) => match call.frame.nr {
            nr::open => args[1] & !permitted::OPEN_BITS == 0,
            nr::openat => args[2] & !permitted::OPEN_BITS == 0,
            nr::mmap => args[3] & (MAP_TYPE | MAP_ANONYMOUS) == MAP_PRIVATE,
            _ => true,
        },
    }
}

/// Whether a call may give a process another root, or other mounts.
fn changes_roots(call: &Call) -> bool {
    let is_such = |op| matches!(op, Op::Mount | Op::Namespace);
    matches!(call.frame.nr, nr::chroot | nr::pivot_root) || syscall_table::op(call.frame.nr).is_some_and(is_such)
}

fn is_directory(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// Whether nothing has to be known when the call has been made.
fn is_plain(under_way: &UnderWay) -> bool {
    let UnderWay { watches, makes_child, is_apart, changes_names, takes, .. } = under_way;
    !watches && !makes_child && !is_apart && !changes_names && takes.is_none()
}
