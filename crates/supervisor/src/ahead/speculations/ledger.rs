//! The guesses that are open: who made each, at which call, since when, and when its outcome will be known. The core
//! knows what depends on what; this is for whoever looks on (`speculator top`, `--report`), and for the decision
//! whether a checkpoint is worth its cost.

use crate::ahead::speculations::history::{Outcome, Recorder, TakenBack};
use crate::ahead::{pid_of, process, Ahead, Object};
use procfs::ProcessId;
use speculation::{DependencySet, Dependent, SpeculationId};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// An open guess.
#[derive(Clone, Debug)]
pub(crate) struct Guess {
    pub pid: ProcessId,
    /// At which call: a family of `--inject`, or `begin`.
    pub why: String,
    /// Since when, from the beginning of the world.
    pub since: Duration,
    /// When its outcome will be known; `None` if only a program knows.
    pub due: Option<Instant>,
    /// Where it is in the history.
    entry: Option<usize>,
}

/// What a rollback did, besides the guesses that it took back.
#[derive(Debug)]
pub(crate) struct Undone {
    pub pids: Vec<ProcessId>,
    pub operations: usize,
    pub took: Duration,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    open: HashMap<SpeculationId, Guess>,
    /// Processes that depend on a guess, and since when.
    since: BTreeMap<ProcessId, Duration>,
    pub history: Option<Recorder>,
}

impl Ledger {
    pub fn new(has_history: bool) -> Self {
        Self { history: has_history.then(Recorder::default), ..Self::default() }
    }

    pub fn made(&mut self, id: SpeculationId, why: &str, due: Option<Instant>, now: Duration) {
        let pid = pid_of(id.process);
        let entry = self.history.as_mut().and_then(|history| history.guessed(pid.as_raw(), why, us(now)));
        self.open.insert(id, Guess { pid, why: why.to_owned(), since: now, due, entry });
    }

    pub fn right(&mut self, id: SpeculationId, now: Duration) {
        self.close(id, Outcome::Right, now);
    }

    /// `failed`: the wrong guess, and then those that were taken back with it. What the wrong one was about.
    pub fn rolled_back(&mut self, failed: &[SpeculationId], undone: Undone, now: Duration) -> String {
        let mut outcome = Outcome::Wrong;
        let mut cause = None;
        for &id in failed {
            let closed = self.close(id, outcome, now);
            cause = cause.or(closed);
            outcome = Outcome::Unmade;
        }
        let (cause, why) = cause.map_or((0, "unknown".to_owned()), |guess| (guess.pid.as_raw(), guess.why));
        if let Some(history) = &mut self.history {
            let Undone { pids, operations, took } = undone;
            let pids = pids.into_iter().map(ProcessId::as_raw).collect();
            let (at_us, cost_us) = (us(now), us(took));
            history.rolled_back(TakenBack { at_us, cost_us, why: why.clone(), cause, pids, operations });
        }
        why
    }

    fn close(&mut self, id: SpeculationId, outcome: Outcome, now: Duration) -> Option<Guess> {
        let guess = self.open.remove(&id)?;
        if let (Some(history), Some(entry)) = (&mut self.history, guess.entry) {
            history.resolved(entry, outcome, us(now));
        }
        Some(guess)
    }

    /// When the last of these guesses will be known: `unknown` after now where only a program can say.
    pub fn known_after(&self, ids: &DependencySet, unknown: Duration, now: Instant) -> Duration {
        let waits = ids.iter().filter_map(|id| self.open.get(&id)).map(|guess| match guess.due {
            Some(due) => due.saturating_duration_since(now),
            None => unknown,
        });
        waits.max().unwrap_or(unknown)
    }

    /// The open guesses, the oldest first.
    pub fn open(&self) -> Vec<(SpeculationId, &Guess)> {
        let mut open: Vec<_> = self.open.iter().map(|(&id, guess)| (id, guess)).collect();
        open.sort_by_key(|(id, guess)| (guess.since, *id));
        open
    }

    /// A process depends on a guess.
    pub fn went_ahead(&mut self, pid: ProcessId, now: Duration) {
        let mut is_new = false;
        self.since.entry(pid).or_insert_with(|| {
            is_new = true;
            now
        });
        if let (true, Some(history)) = (is_new, &mut self.history) {
            history.went_ahead(pid.as_raw(), us(now));
        }
    }

    /// It depends on none any more.
    pub fn settled(&mut self, pid: ProcessId, now: Duration) {
        let was_ahead = self.since.remove(&pid).is_some();
        if let (true, Some(history)) = (was_ahead, &mut self.history) {
            history.settled(pid.as_raw(), us(now));
        }
    }

    /// Since when a process depends on a guess.
    pub fn ahead_since(&self, pid: ProcessId) -> Option<Duration> {
        self.since.get(&pid).copied()
    }

    pub fn checkpoint(&mut self, pid: ProcessId, took: Duration, now: Duration) {
        if let Some(history) = &mut self.history {
            history.checkpoint(pid.as_raw(), us(took), us(now));
        }
    }

    pub fn executed(&mut self, pid: ProcessId) {
        if let Some(history) = &mut self.history {
            history.executed(pid.as_raw());
        }
    }

    pub fn ended(&mut self, pid: ProcessId, now: Duration) {
        self.since.remove(&pid);
        if let Some(history) = &mut self.history {
            history.ended(pid.as_raw(), us(now));
        }
    }
}

impl Ahead {
    /// A process that depends on guesses made a child, which depends on them as well.
    pub fn note_fork(&mut self, parent: ProcessId, child: ProcessId) {
        let now = self.now();
        self.ledger.went_ahead(child, now);
        if let Some(history) = &mut self.ledger.history {
            history.flows_to(parent.as_raw(), child.as_raw(), "fork".to_owned(), us(now));
        }
    }

    /// A call takes dependencies from what it observes and modifies, and gives those of its process to what it
    /// modifies.
    pub fn note_flows(&mut self, pid: ProcessId, observes: &[Dependent<Object>], modifies: &[Object]) {
        let now = us(self.begin.elapsed());
        let Some(history) = &mut self.ledger.history else { return };
        let own = self.core.dependencies_of_process(process(pid));
        let observed = observes.iter().filter_map(|dependent| match dependent {
            Dependent::Object(object) => Some(object),
            Dependent::Process(_) => None,
        });
        for object in observed.chain(modifies) {
            if !self.core.dependencies_of_object(object).is_subset(own) {
                history.takes(pid.as_raw(), object.to_string(), now);
            }
        }
        for dependent in observes {
            let Dependent::Process(other) = dependent else { continue };
            if !self.core.dependencies_of_process(*other).is_subset(own) {
                history.flows_to(other.0 as i32, pid.as_raw(), "its end".to_owned(), now);
            }
        }
        for object in modifies {
            history.gives(pid.as_raw(), object.to_string());
        }
    }
}

pub(in crate::ahead) fn us(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use speculation::Process;

    const SEVEN: ProcessId = ProcessId::from_raw(7);

    fn id(pid: u32, counter: u64) -> SpeculationId {
        SpeculationId { process: Process(pid), counter }
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_cause_of_a_rollback_is_the_first_that_failed() {
        let mut ledger = Ledger::new(true);
        for (counter, why) in [(1, "open"), (2, "begin"), (3, "stat")] {
            ledger.made(id(7, counter), why, None, MS * counter as u32);
        }
        ledger.right(id(7, 1), MS * 4);
        let undone = Undone { pids: vec![SEVEN], operations: 2, took: MS };
        assert_eq!(ledger.rolled_back(&[id(7, 2), id(7, 3)], undone, MS * 5), "begin");
        let history = ledger.history.unwrap().written;
        let outcomes: Vec<Outcome> = history.guesses.iter().map(|guess| guess.outcome).collect();
        assert_eq!(outcomes, [Outcome::Right, Outcome::Wrong, Outcome::Unmade]);
        assert_eq!((history.rollbacks[0].cause, history.rollbacks[0].why.as_str()), (7, "begin"));
    }

    #[test]
    fn a_wait_is_as_long_as_the_longest_of_its_guesses() {
        let now = Instant::now();
        let mut ledger = Ledger::new(false);
        ledger.made(id(7, 1), "open", Some(now + MS * 30), MS);
        ledger.made(id(8, 1), "stat", Some(now + MS * 5), MS);
        ledger.made(id(9, 1), "begin", None, MS);
        let wait = |ids: &[SpeculationId]| ledger.known_after(&ids.iter().copied().collect(), MS * 100, now);
        assert_eq!(wait(&[id(7, 1), id(8, 1)]), MS * 30);
        assert_eq!(wait(&[id(8, 1)]), MS * 5);
        assert_eq!(wait(&[id(8, 1), id(9, 1)]), MS * 100, "only a program knows");
    }

    #[test]
    fn a_process_is_ahead_from_its_first_guess_to_its_last() {
        let mut ledger = Ledger::new(false);
        ledger.went_ahead(SEVEN, MS);
        ledger.went_ahead(SEVEN, MS * 2);
        assert_eq!(ledger.ahead_since(SEVEN), Some(MS));
        ledger.settled(SEVEN, MS * 3);
        assert_eq!(ledger.ahead_since(SEVEN), None);
    }
}
