//! SESSION: what a server keeps of each client so that an interval takes effect once, also when messages are lost and
//! the server is started again.
//!
//! A client numbers its intervals 1, 2, 3 … and sends each again until it has the outcome. The server keeps the
//! outcome until the client has acknowledged it. Committed outcomes are durable with the interval's log record;
//! failed ones are not: a failed interval has changed nothing, so that to judge it again is as good, as long as
//! nothing behind it was committed. For the same reason numbers may be left out: after a restart a client does not
//! send again what it knows to have failed. A number that was left out counts as failed.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::op::{Failure, Interval, Outcome};

/// Outcomes that a client may leave unacknowledged, and intervals that a dependency may name, at most.
pub const UNACKNOWLEDGED_MAX: usize = 1024;

/// What is to be done with an interval that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrived {
    /// It is a new one: check it, apply it, and tell [`Session::decided`].
    Next,
    /// It was decided before: this is what became of it.
    Again(Outcome),
    /// It cannot be: its outcome was acknowledged.
    Impossible,
    /// Too many outcomes are unacknowledged.
    TooMany,
}

/// One client's session, as the server keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Session {
    last: u64,
    acknowledged: u64,
    outcomes: BTreeMap<u64, Outcome>,
}

impl Session {
    /// A new session.
    pub fn new() -> Session {
        Session::default()
    }

    /// A session after a restart of the server: what was durable. `last` is its last committed interval.
    pub fn recovered(acknowledged: u64, committed: BTreeMap<u64, Outcome>) -> Session {
        let last = committed.keys().next_back().copied().unwrap_or(acknowledged).max(acknowledged);
        Session { last, acknowledged, outcomes: committed }
    }

    /// The last interval that was decided.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Up to where the client has acknowledged outcomes.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Outcomes that are kept.
    pub fn outcomes(&self) -> impl Iterator<Item = (u64, &Outcome)> {
        self.outcomes.iter().map(|(number, outcome)| (*number, outcome))
    }

    /// An interval has arrived.
    pub fn arrived(&self, interval: &Interval) -> Arrived {
        let number = interval.number;
        if number > self.last {
            return if self.outcomes.len() < UNACKNOWLEDGED_MAX { Arrived::Next } else { Arrived::TooMany };
        }
        if number <= self.acknowledged {
            return Arrived::Impossible;
        }
        // One that was decided, is not acknowledged, and of which nothing is known after a restart: it was not
        // committed, since what is committed is durable. Nobody was told how it failed; it is not judged again, since
        // later ones are committed already.
        Arrived::Again(self.outcomes.get(&number).cloned().unwrap_or(Outcome::Failed(Failure::TooOld)))
    }

    /// Whether an interval that it depends on has failed, and which (000, 7.1: the list of failed speculations).
    pub fn failed_dependency(&self, interval: &Interval) -> Option<u64> {
        let committed = |number: u64| self.outcomes.get(&number).is_some_and(Outcome::is_committed);
        interval.after.first_refused(UNACKNOWLEDGED_MAX, |number| number <= self.acknowledged || committed(number))
    }

    /// An interval was decided. To be called for [`Arrived::Next`] only.
    pub fn decided(&mut self, number: u64, outcome: Outcome) {
        assert!(number > self.last, "intervals are decided in order");
        self.last = number;
        self.outcomes.insert(number, outcome.kept());
    }

    /// The client has every outcome up to `number`, and has undone whatever depended on those that failed.
    pub fn acknowledge(&mut self, number: u64) {
        self.acknowledged = self.acknowledged.max(number.min(self.last));
        let acknowledged = self.acknowledged;
        self.outcomes.retain(|number, _| *number > acknowledged);
    }
}

/// What a client keeps: intervals that it has sent and whose outcome it does not have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct InFlight {
    sent: BTreeMap<u64, Interval>,
    next: u64,
}

impl InFlight {
    /// Nothing is sent.
    pub fn new() -> InFlight {
        InFlight { sent: BTreeMap::new(), next: 1 }
    }

    /// Nothing is sent of a new session. Numbers go on: an outcome of the session before is none of this one's.
    pub fn begin_anew(&mut self) {
        self.sent.clear();
    }

    /// The number of the next interval.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Numbers an interval and keeps it until its outcome is there.
    pub fn send(&mut self, mut interval: Interval) -> &Interval {
        interval.number = self.next;
        self.next += 1;
        self.sent.entry(interval.number).or_insert(interval)
    }

    /// An outcome has arrived. `false`: it was there before.
    pub fn outcome(&mut self, number: u64) -> bool {
        self.sent.remove(&number).is_some()
    }

    /// An interval without an outcome.
    pub fn get(&self, number: u64) -> Option<&Interval> {
        self.sent.get(&number)
    }

    /// The first interval without an outcome behind this number.
    pub fn behind(&self, number: u64) -> Option<&Interval> {
        self.sent.range((Bound::Excluded(number), Bound::Unbounded)).next().map(|(_, interval)| interval)
    }

    /// Every outcome up to this one is there.
    pub fn acknowledged(&self) -> u64 {
        self.sent.keys().next().map_or(self.next - 1, |first| first - 1)
    }

    /// What has to be sent again when the connection is a new one, in order.
    pub fn again(&self) -> impl Iterator<Item = &Interval> {
        self.sent.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Csn;
    use crate::runs::Runs;

    fn interval(number: u64, after: &[u64]) -> Interval {
        let mut runs = Runs::new();
        after.iter().for_each(|&n| runs.insert(n));
        Interval { number, base: Csn(0), after: runs, reads: vec![], creds: vec![], steps: vec![] }
    }

    fn committed(csn: u64) -> Outcome {
        Outcome::Committed { csn: Csn(csn), effects: vec![] }
    }

    #[test]
    fn a_repeated_interval_gets_the_outcome_it_had() {
        let mut session = Session::new();
        assert_eq!(session.arrived(&interval(1, &[])), Arrived::Next);
        session.decided(1, committed(7));
        assert_eq!(session.arrived(&interval(1, &[])), Arrived::Again(committed(7)));
        session.acknowledge(1);
        assert_eq!(session.arrived(&interval(1, &[])), Arrived::Impossible);
        assert_eq!(session.arrived(&interval(2, &[])), Arrived::Next);
    }

    #[test]
    fn a_number_that_was_left_out_counts_as_failed() {
        let mut session = Session::new();
        session.decided(2, committed(1));
        assert_eq!(session.arrived(&interval(1, &[])), Arrived::Again(Outcome::Failed(Failure::TooOld)));
        assert_eq!(session.failed_dependency(&interval(3, &[1])), Some(1));
    }

    #[test]
    fn what_depends_on_a_failure_fails() {
        let mut session = Session::new();
        session.decided(1, Outcome::Failed(Failure::TooOld));
        session.decided(2, committed(1));
        assert_eq!(session.failed_dependency(&interval(3, &[1, 2])), Some(1));
        assert_eq!(session.failed_dependency(&interval(3, &[2])), None);
        assert_eq!(session.failed_dependency(&interval(3, &[3])), Some(3));
        let lie = Interval { after: Runs::from_parts(vec![(2, u64::MAX)]).expect("a run"), ..interval(3, &[]) };
        assert!(session.failed_dependency(&lie).is_some());
    }

    #[test]
    fn the_largest_number_is_acknowledged_as_any_other() {
        let mut session = Session::new();
        session.decided(1, committed(1));
        session.decided(u64::MAX, committed(2));
        session.acknowledge(u64::MAX);
        assert_eq!(session.outcomes().count(), 0);
    }

    #[test]
    fn after_a_restart_only_what_was_committed_is_known() {
        let session = Session::recovered(1, BTreeMap::from([(3, committed(9))]));
        assert_eq!(session.arrived(&interval(2, &[])), Arrived::Again(Outcome::Failed(Failure::TooOld)));
        assert_eq!(session.arrived(&interval(3, &[])), Arrived::Again(committed(9)));
        assert_eq!(session.arrived(&interval(4, &[])), Arrived::Next);
        assert_eq!(session.failed_dependency(&interval(4, &[2])), Some(2));
    }

    #[test]
    fn unacknowledged_outcomes_are_bounded() {
        let mut session = Session::new();
        for number in 1..=UNACKNOWLEDGED_MAX as u64 {
            assert_eq!(session.arrived(&interval(number, &[])), Arrived::Next);
            session.decided(number, committed(number));
        }
        assert_eq!(session.arrived(&interval(UNACKNOWLEDGED_MAX as u64 + 1, &[])), Arrived::TooMany);
        session.acknowledge(1);
        assert_eq!(session.arrived(&interval(UNACKNOWLEDGED_MAX as u64 + 1, &[])), Arrived::Next);
    }

    #[test]
    fn a_client_acknowledges_what_it_has_without_a_gap() {
        let mut flight = InFlight::new();
        for _ in 0..3 {
            flight.send(interval(0, &[]));
        }
        assert!(flight.outcome(2) && !flight.outcome(2));
        assert_eq!(flight.acknowledged(), 0);
        assert!(flight.outcome(1));
        assert_eq!(flight.acknowledged(), 2);
        assert_eq!(flight.again().map(|i| i.number).collect::<Vec<_>>(), [3]);
    }
}
