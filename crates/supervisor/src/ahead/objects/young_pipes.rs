//! Pipes that were made on a guess, and of which nobody is asked any more
//! ([0231](../../../../../docs/decisions/0231-young-pipes.md)).
//!
//! What no checkpoint has open needs no undo ([`young`](crate::ahead::objects::young)). It needs no question either,
//! where all who have it depend on the same: a pipe that a process has made which depended on all open guesses, as long
//! as no guess is made, none is resolved, and no checkpoint is taken. That time is an *epoch*. When it is over, the
//! pipe is one like others: the core knows of no dependency of it, and the first change on a further guess is kept and
//! waits until nobody works on it, as for any pipe.
//!
//! Who has to hear something is told at its next question, and asks about these pipes, too, until then. While somebody
//! waits until others have left their calls, everybody asks about all pipes.

use crate::ahead::calls::exchange::waits_for_readiness;
use crate::ahead::process;
use crate::event_loop::Supervisor;
use agent_abi::PROCESS_HAS_TO_HEAR;
use procfs::ProcessId;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// The epochs of a world.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Youth {
    /// The newest one. They begin with 1.
    epoch: u64,
    /// Processes that ask because they have to hear something.
    hearers: HashSet<ProcessId>,
}

impl Supervisor {
    /// Who has a pipe may depend on more than others who have it, or be put back to where it had the pipe.
    pub(in crate::ahead) fn end_youth(&mut self) {
        self.ahead.youth.epoch += 1;
        self.world().young.begin_epoch(self.ahead.youth.epoch);
    }

    /// For now calls on all pipes are asked about.
    pub(in crate::ahead) fn suspend_youth(&mut self) {
        self.world().young.suspend();
    }

    /// An event is over: calls on young pipes need no question, if nobody has to hear anything.
    pub(crate) fn renew_youth(&mut self) {
        let ahead = &self.ahead;
        let is_any = self.world().ahead.load(Ordering::Relaxed) != 0 && ahead.core.open_speculations() > 0;
        if !is_any {
            return self.suspend_youth();
        }
        let is_unsettled = !ahead.unsettled.is_empty() || ahead.is_rolling_back || self.are_calls_awaited();
        let is_waited_for = || ahead.waiting.iter().any(|parked| waits_for_readiness(&parked.call));
        let may_be = !is_unsettled && !is_waited_for();
        self.send_to_questions();
        match may_be {
            true => self.world().young.go_on(),
            false => self.suspend_youth(),
        }
    }

    /// Who has to hear something asks at its next call, whatever that is.
    fn send_to_questions(&mut self) {
        let ahead = &self.ahead;
        if ahead.youth.hearers.is_empty()
            && ahead.signals.is_empty()
            && ahead.children.who_has_to_hear().next().is_none()
        {
            return;
        }
        let now: HashSet<ProcessId> =
            ahead.signals.receivers().into_iter().chain(ahead.children.who_has_to_hear()).collect();
        let flags = |pid: &ProcessId| Some(&self.world().processes[self.tracees.get(&pid.leader())?.process].flags);
        for flags in now.difference(&ahead.youth.hearers).filter_map(flags) {
            flags.fetch_or(PROCESS_HAS_TO_HEAR, Ordering::SeqCst);
        }
        for flags in ahead.youth.hearers.difference(&now).filter_map(flags) {
            flags.fetch_and(!PROCESS_HAS_TO_HEAR, Ordering::SeqCst);
        }
        self.ahead.youth.hearers = now;
    }

    /// The pipes that a process makes from now on are young, if it depends on all guesses that are open: it does so
    /// until the epoch is over.
    pub(in crate::ahead) fn note_whether_all(&self, pid: ProcessId) {
        let epoch = self.world().young.epoch();
        let Some(tracee) = self.tracees.get(&pid.leader()) else { return };
        let noted = &self.world().processes[tracee.process].young;
        let depends_on_all = || self.ahead.is_speculative(pid) && self.ahead.core.depends_on_all(process(pid));
        if epoch != 0 && noted.load(Ordering::Relaxed) != epoch && depends_on_all() {
            noted.store(epoch, Ordering::SeqCst);
        }
    }
}
