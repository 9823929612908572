//! `create_speculation`, `commit_speculation`, `fail_speculation` for programs (000, figure 2): one call of no
//! kernel's, with the number `SPECULATE_NR`. `include/speculator.h` and `speculator begin` make it.

use crate::ahead::calls::ask::Decision;
use crate::ahead::rollback;
use crate::ahead::{process, Ahead, Call};
use crate::event_loop::Supervisor;
use agent_abi::speculate;
use procfs::ThreadId;
use speculation::{Access, SpeculationId, State};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tracee::{Result, Stopped};

/// Speculations that programs made.
#[derive(Debug, Default)]
pub(in crate::ahead) struct ExplicitGuesses {
    /// Those that are not resolved, by the number that their program was given, the oldest first.
    open: BTreeMap<u64, SpeculationId>,
    /// The number that was given last.
    last: u64,
    /// What was said of them and is to be carried out: number, and whether it failed.
    said: Vec<(u64, bool)>,
}

impl ExplicitGuesses {
    /// One was made. Its number, which no other one has had.
    fn begin(&mut self, id: SpeculationId) -> u64 {
        self.last += 1;
        self.open.insert(self.last, id);
        self.last
    }

    /// It is resolved from here on: what is said of it later is about none. `None`: it was already.
    pub fn close(&mut self, number: u64) -> Option<SpeculationId> {
        self.open.remove(&number)
    }

    pub fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    /// Those that are open, with their numbers, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, SpeculationId)> + '_ {
        self.open.iter().map(|(&number, &id)| (number, id))
    }

    /// The number of a speculation, if it is one of these.
    pub fn number_of(&self, id: SpeculationId) -> Option<u64> {
        self.iter().find(|&(_, open)| open == id).map(|(number, _)| number)
    }

    /// Somebody says whether it is right. [`Supervisor::resolve_pending`] carries that out: whoever says it may depend
    /// on it.
    pub fn say(&mut self, number: u64, is_failure: bool) {
        self.said.push((number, is_failure));
    }

    /// Whether something was said that is to be carried out.
    pub fn is_any_said(&self) -> bool {
        !self.said.is_empty()
    }
}

impl Ahead {
    /// Guesses that were undone with another one nobody can resolve any more. Those for somebody outside are closed
    /// when he is told ([`Self::tell_outside`]).
    fn close_undone(&mut self) {
        let core = &self.core;
        let is_open = |id| core.speculation(id).is_some_and(|speculation| speculation.state() == State::Open);
        let is_undone = |&(number, id): &(u64, SpeculationId)| !is_open(id) && !self.outside.has(number);
        let undone: Vec<(u64, SpeculationId)> = self.explicit.iter().filter(is_undone).collect();
        for (number, id) in undone {
            self.explicit.close(number);
            let verdict = self.core.fail_speculation(id);
            self.report.resolved(false, &verdict);
        }
    }
}

impl Supervisor {
    pub(in crate::ahead) fn on_speculate(&mut self, stopped: &Stopped, call: &mut Call) -> Result<Decision> {
        if let Some(result) = call.answer.take() {
            return Ok(Decision::Answer(result));
        }
        let [what, number, ..] = call.frame.args;
        match what {
            speculate::BEGIN | speculate::BEGIN_OUTSIDE if call.was_rolled_back => {
                Ok(Decision::Answer(-i64::from(libc::ECANCELED)))
            }
            speculate::BEGIN => self.begin_explicitly(stopped, call, None),
            speculate::BEGIN_OUTSIDE => self.begin_explicitly(stopped, call, Some(number)),
            speculate::COMMIT | speculate::FAIL => Ok(self.resolve_explicitly(call, what == speculate::FAIL, number)),
            speculate::DEPTH => {
                let depth = self.ahead.core.dependencies_of_process(process(call.pid)).iter().count();
                Ok(Decision::Answer(depth as i64))
            }
            _ => Ok(Decision::Answer(-i64::from(libc::EINVAL))),
        }
    }

    /// `tag`: what somebody outside, who is to resolve it, is told of it.
    fn begin_explicitly(&mut self, stopped: &Stopped, call: &Call, tag: Option<u64>) -> Result<Decision> {
        self.switch_on(call.tid);
        if self.expects_birth(call.pid) {
            self.ahead.thread_groups.await_birth();
            return Ok(Decision::Wait);
        }
        // What its program does until it says more may change anything: nobody shares its checkpoint.
        let Some(id) = self.begin_speculation(stopped, call, Access::Mutating, None)? else {
            return Ok(match self.ahead.thread_groups.can_be_awaited() {
                true => Decision::Wait,
                false => Decision::Answer(-i64::from(libc::EAGAIN)),
            });
        };
        let number = self.ahead.explicit.begin(id);
        if let Some(tag) = tag {
            self.ahead.begun_for_outside(number, id, tag);
        }
        self.ahead.report.explicit += 1;
        self.ahead.ledger.made(id, "begin", None, self.ahead.now());
        Ok(Decision::Answer(number as i64))
    }

    /// The caller may depend on what it resolves: it waits until that is done, and is looked at again if it is still
    /// there.
    fn resolve_explicitly(&mut self, call: &mut Call, is_failure: bool, number: u64) -> Decision {
        if !self.ahead.explicit.is_open(number) {
            return Decision::Answer(-i64::from(libc::ESRCH));
        }
        self.ahead.explicit.say(number, is_failure);
        call.answer = Some(0);
        Decision::Wait
    }

    /// Resolve what programs have said of their speculations. False if they have said nothing.
    pub(in crate::ahead) fn resolve_pending(&mut self) -> bool {
        let pending = std::mem::take(&mut self.ahead.explicit.said);
        let any = !pending.is_empty();
        for (number, is_failure) in pending {
            if let Some(id) = self.ahead.explicit.close(number) {
                self.resolve(id, !is_failure);
            }
        }
        any
    }

    /// A guess turned out right or wrong.
    pub(in crate::ahead) fn resolve(&mut self, id: SpeculationId, is_right: bool) {
        self.revoke_permits();
        self.end_youth();
        let verdict = match is_right {
            true => self.ahead.core.commit_speculation(id),
            false => self.ahead.core.fail_speculation(id),
        };
        self.ahead.report.resolved(is_right, &verdict);
        if is_right {
            self.ahead.ledger.right(id, self.ahead.now());
        }
        self.ahead.quiet_since = Instant::now();
        self.ahead.changes += 1;
        if let Err(error) = self.carry_out() {
            // A rollback that stops half way leaves a world that never was: nobody may go on in it.
            self.end_world(&format!("a rollback could not be completed: {error}"));
        }
        self.ahead.tell_outside(id, is_right);
        self.ahead.close_undone();
    }

    /// From now on every call is asked about. Threads that are past that question are taken back to it.
    pub(in crate::ahead) fn switch_on(&mut self, caller: ThreadId) {
        let world = self.world();
        if world.ahead.swap(1, Ordering::SeqCst) != 0 {
            return;
        }
        self.revoke_permits();
        self.end_youth();
        self.ahead.known_ways.begin();
        self.ahead.quiet_since = Instant::now();
        if let Err(error) = self.learn_kinship() {
            self.end_world(&format!("it is not known which process is whose child ({error})"));
        }
        self.learn_mappings();
        let others: Vec<ThreadId> = self
            .tracees
            .iter()
            .filter(|(&tid, tracee)| tracee.thread.is_some() && tid != caller)
            .map(|(&tid, _)| tid)
            .collect();
        for tid in others {
            // It stands before a call already.
            let is_kept = self.ahead.thread_groups.is_held(tid) || self.ahead.waiting.has(tid);
            if !is_kept && tracee::interrupt(tid).is_ok() {
                self.ahead.unsettled.insert(tid);
            }
        }
    }

    /// Who is whose child, of those that were born while nobody asked.
    fn learn_kinship(&mut self) -> Result<()> {
        let tids: Vec<ThreadId> = self.tracees.keys().copied().collect();
        for tid in tids {
            let children = procfs::unless_gone(procfs::children(tid))?;
            if children.is_empty() {
                continue;
            }
            // Whichever thread has made it, its parent is the process.
            let Some(parent) = procfs::unless_gone(procfs::process_of(tid).map(Some))? else { continue };
            for child in children {
                if self.tracees.contains_key(&child.leader()) {
                    self.ahead.children.born(parent, child, false);
                } else if rollback::is_traced_by_us(child)? {
                    // Born a moment ago: its birth is to be heard of before its parent runs ahead, or it would seem to
                    // be a child of the guess.
                    let _ = self.await_birth(child.leader());
                }
            }
        }
        Ok(())
    }

    /// Nothing in this world can be trusted any more.
    pub(in crate::ahead) fn end_world(&mut self, why: &str) {
        if std::mem::replace(&mut self.ahead.is_doomed, true) {
            return;
        }
        self.front.tell(&crate::message::Message::Warning { text: format!("{why}; every process inside was killed") });
        let tids: Vec<ThreadId> = self.tracees.keys().copied().collect();
        for tid in tids {
            crate::sys::kill_process_of(tid, libc::SIGKILL);
        }
    }
}
