//! Guesses that nobody can resolve any more.
//!
//! A guess that a program has made is resolved by a program. If everything inside waits for it, that is never. Such a
//! guess was no good one: it fails, and those who made it go on from there without it. While a guess is open that
//! somebody outside resolves, nothing stands still for good.

use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::calls::waiting::Parked;
use crate::ahead::Object;
use crate::event_loop::Supervisor;
use crate::signals::SignalSets;
use procfs::{ProcessId, ThreadId};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use syscall_table::nr;

/// So long everything has to stand still.
const LONG: Duration = Duration::from_secs(2);

/// A process of which one thread has waited so long for a guess comes to no end without it, whatever its other threads
/// do: many programs have one that looks around all the time, such as Go's monitor, or one that sleeps for work.
const STALLED: Duration = Duration::from_secs(3);

/// A process above one that has waited so long for a guess may look around all the time, as `git submodule` looks for
/// output of its children ten times a second. It is taken to come to no end without the guess either.
const STALLED_BELOW: Duration = Duration::from_secs(20);

/// Nobody looks more often than this: what has gone on since then shows in what was counted.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// How long everything has stood still.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Standstill {
    /// Since when, and how many calls had been asked about then.
    since: Option<(Instant, u64)>,
    /// Calls that had been made inside when that was looked at last.
    calls: u64,
    /// When it was looked at last.
    looked: Option<Instant>,
}

impl crate::ahead::Ahead {
    /// Whether a thread can go on only if another one does something first.
    fn waits_for_others(&self, tid: ThreadId) -> bool {
        let waits_inside = |under_way: &UnderWay| {
            let are_inside = |objects: &[Object]| {
                let is_inside = |object: &Object| match *object {
                    Object::Children(_) => true,
                    // Whoever has it may have got it since, and have given it up on the guess.
                    Object::Lock(dev, ino) => self.file_locks.is_taken_inside((dev, ino)),
                    _ => object.can_be_awaited() && !object.comes_by_itself(),
                };
                !objects.is_empty() && objects.iter().all(is_inside)
            };
            let sleeps = under_way.can_be_repeated || is_asleep(tid);
            sleeps && !under_way.watches && are_inside(&under_way.objects)
        };
        self.children.stands(tid.leads())
            || self.thread_groups.is_retired(tid)
            || self.thread_groups.is_held(tid)
            || self.waiting.has(tid)
            || self.ending.values().any(|(stopped, _)| stopped.tid() == tid)
            || self.under_way.of(tid).is_some_and(waits_inside)
    }
}

impl Supervisor {
    /// The oldest guess of a program fails if nobody inside has gone on for long.
    pub(in crate::ahead) fn fail_if_stuck(&mut self, now: Instant) {
        let Some((number, id)) = self.ahead.explicit.iter().next() else { return };
        // Each look is at every thread, also of those that have ended on a guess.
        if self.ahead.standstill.looked.is_some_and(|last| now.duration_since(last) < BETWEEN_LOOKS) {
            return;
        }
        self.ahead.standstill.looked = Some(now);
        let stalled = self.stalled_processes(now);
        if !self.is_stuck(&stalled) {
            self.ahead.standstill.since = None;
            return;
        }
        // Who has asked about a call since then has gone on; in a process that is stalled that says nothing.
        let asked = if stalled.is_empty() { self.ahead.report.asked } else { 0 };
        let (since, _) =
            *self.ahead.standstill.since.take_if(|(_, before)| *before == asked).get_or_insert((now, asked));
        self.ahead.standstill.since = Some((since, asked));
        if now.duration_since(since) < LONG {
            return;
        }
        self.ahead.standstill.since = None;
        self.ahead.explicit.close(number);
        self.front.tell(&crate::message::Message::Warning {
            text: format!("everything inside waits for speculation {number}, which nobody can resolve: it has failed"),
        });
        self.resolve(id, false);
        self.settle_calls();
    }

    /// Whether nobody can go on but other threads of these processes.
    fn is_stuck(&mut self, stalled: &HashSet<ProcessId>) -> bool {
        let ahead = &self.ahead;
        if ahead.outside.has_any()
            || !ahead.deadlines.is_empty()
            || ahead.explicit.is_any_said()
            || ahead.waiting.iter().any(|parked| parked.call.not_before.is_some())
        {
            return false;
        }
        let mut others: Vec<ThreadId> = self.tracees.keys().copied().collect();
        others.retain(|&tid| !self.pid_of(tid).is_ok_and(|pid| stalled.contains(&pid)));
        let kept_from_signals: Vec<ThreadId> =
            others.iter().copied().filter(|&tid| self.is_kept_from_signal(tid)).collect();
        let waits = |&tid: &ThreadId| {
            self.ahead.waits_for_others(tid)
                || self.sleeps_on_permit(tid)
                || self.waits_for_a_thread(tid)
                || waits_for_memory(tid)
                || (!stalled.is_empty() || kept_from_signals.contains(&tid)) && self.waits_without_limit(tid)
        };
        if !others.iter().all(waits) {
            return false;
        }
        // Who makes calls of which we were not asked is seen in one of them more often than not, and goes on all the
        // same.
        let slots = others.iter().filter_map(|tid| self.tracees.get(tid)?.thread);
        let calls = slots.map(|slot| self.world().threads[slot].calls.load(Ordering::Relaxed)).sum();
        std::mem::replace(&mut self.ahead.standstill.calls, calls) == calls
    }

    /// Whether a thread would hear a signal that is held for its process until that depends on nothing: it may be what
    /// the thread waits for.
    fn is_kept_from_signal(&mut self, tid: ThreadId) -> bool {
        let held = self.pid_of(tid).map_or(&[][..], |pid| self.ahead.held_signals.of(pid));
        if held.is_empty() {
            return false;
        }
        // If that is not known, it would.
        let blocked = SignalSets::of(tid).map_or(0, |sets| sets.blocked);
        held.iter().any(|info| blocked & 1 << (info.number() - 1) == 0)
    }

    /// Whether a thread waits in poll, select or epoll, or for a signal, and for no time. It may be something of
    /// outside that it waits for: that alone is no standstill.
    fn waits_without_limit(&self, tid: ThreadId) -> bool {
        let Ok(Some((number, args))) = procfs::waiting_call(tid) else { return false };
        // A poll that was interrupted goes on as a call that does not say what it is.
        let restarted =
            self.ahead.input.polls.get(&tid).filter(|last| number == nr::restart_syscall && last.args == args);
        match restarted.map_or(number, |poll| poll.nr) {
            nr::poll => (args[2] as i32) < 0,
            nr::ppoll => args[2] == 0,
            nr::select | nr::pselect6 => args[4] == 0,
            nr::epoll_wait | nr::epoll_pwait => (args[3] as i32) < 0,
            nr::epoll_pwait2 => args[3] == 0,
            nr::pause | nr::rt_sigsuspend => true,
            nr::rt_sigtimedwait => args[2] == 0,
            _ => false,
        }
    }

    /// Processes of which a thread has waited for a guess for long, and those above them.
    fn stalled_processes(&self, now: Instant) -> HashSet<ProcessId> {
        let parked = self.ahead.waiting.iter();
        let waits = |parked: &&Parked| !self.waits_for_child(&parked.call);
        let long: Vec<&Parked> =
            parked.filter(|parked| now.duration_since(parked.begin) >= STALLED).filter(waits).collect();
        let sent_out = self.ahead.waiting.sent_out_after(STALLED, now);
        let mut stalled: HashSet<ProcessId> = long.iter().map(|parked| parked.call.pid).chain(sent_out).collect();
        for parked in long.iter().filter(|parked| now.duration_since(parked.begin) >= STALLED_BELOW) {
            let mut above = self.ahead.children.parent(parked.call.pid);
            while let Some(pid) = above.filter(|&pid| stalled.insert(pid)) {
                above = self.ahead.children.parent(pid);
            }
        }
        stalled
    }
}

/// Whether a thread waits, and for no time, until somebody who shares its memory wakes it: that is somebody inside.
fn waits_for_memory(tid: ThreadId) -> bool {
    const COMMAND: u64 = 0x7f;
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    let Ok(Some((nr::futex, args))) = procfs::waiting_call(tid) else { return false };
    matches!(args[1] & COMMAND, WAIT | WAIT_BITSET) && args[3] == 0
}

/// Whether a thread sleeps in the kernel: one that writes into a pipe whose room has been used up has done a part, and
/// cannot be made to repeat it. If that is not known, it may go on.
fn is_asleep(tid: ThreadId) -> bool {
    procfs::Status::of(tid).and_then(|status| status.state()).is_ok_and(|state| state == 'S')
}
