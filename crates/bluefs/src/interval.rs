//! INTERVAL, the client's side: who belongs to which interval, what makes two of them one, and when one is closed.
//!
//! Every thread (*member*) that runs ahead is in one open interval. A dependency on an *open* interval makes the two
//! one, so that two open intervals can never wait for each other; a dependency on a closed one is noted, and a closed
//! interval never grows. So dependencies always lead from later numbers to earlier ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::{Csn, Key};
use crate::lease::Millis;
use crate::op::{Change, Cred, Interval, Step, Time, INTERVAL_BYTES_MAX, STEPS_MAX};
use crate::runs::Runs;

/// Age at which an open interval is closed, ms.
pub const AGE_MS_MAX: Millis = 250;

/// A thread of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub u64);

/// An interval that is open. It has no number yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Open(u64);

/// An interval, as somebody who depends on it knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum On {
    /// It is open.
    Open(Open),
    /// It is closed, under this number.
    Closed(u64),
}

/// Why an interval is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Output, or a process, waits for it.
    Wanted,
    /// It is older than [`AGE_MS_MAX`].
    Old,
    /// It is as large as an interval may be.
    Full,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    began: Millis,
    base: Csn,
    members: BTreeSet<Member>,
    after: Runs,
    reads: BTreeSet<Key>,
    creds: Vec<Cred>,
    /// With its place in the order of all changes of the client, so that two intervals can be merged.
    steps: BTreeMap<u64, Step>,
    bytes: usize,
    wanted: bool,
}

/// The intervals of one client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Intervals {
    open: BTreeMap<Open, State>,
    of: BTreeMap<Member, Open>,
    merged: BTreeMap<Open, On>,
    /// Closed, and without an outcome.
    closed: Runs,
    failed: Runs,
    last: u64,
    next_open: u64,
    next_step: u64,
}

/// The dependency is on an interval that has failed: whoever takes it has to be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnFailed(pub u64);

impl Intervals {
    /// No interval is open.
    pub fn new() -> Intervals {
        Intervals::default()
    }

    /// The member begins an interval that is based on the state at `base`, unless it is in one.
    pub fn begin(&mut self, member: Member, base: Csn, now: Millis) -> Open {
        if let Some(open) = self.of.get(&member) {
            return *open;
        }
        let open = Open(self.next_open);
        self.next_open += 1;
        let (members, after, reads, steps) = (BTreeSet::from([member]), Runs::new(), BTreeSet::new(), BTreeMap::new());
        let state = State { began: now, base, members, after, reads, creds: vec![], steps, bytes: 0, wanted: false };
        self.open.insert(open, state);
        self.of.insert(member, open);
        open
    }

    /// The interval that the member is in.
    pub fn of(&self, member: Member) -> Option<Open> {
        self.of.get(&member).copied()
    }

    /// The member has read a key.
    pub fn read(&mut self, member: Member, key: Key) {
        self.state(member).reads.insert(key);
    }

    /// The member changes something.
    pub fn change(&mut self, member: Member, cred: &Cred, time: Option<Time>, change: Change) {
        let place = self.next_step;
        self.next_step += 1;
        let state = self.state(member);
        state.bytes += change.bytes();
        let cred = cred_index(&mut state.creds, cred);
        state.steps.insert(place, Step { cred, time, change });
    }

    /// The member's state now depends on what the interval `on` did. Two open intervals become one.
    pub fn depend(&mut self, member: Member, on: On) -> Result<(), OnFailed> {
        let on = match on {
            On::Open(open) => self.now(open),
            closed => closed,
        };
        let own = self.of(member).expect("the member is in an interval");
        match on {
            On::Closed(number) if self.failed.contains(number) => Err(OnFailed(number)),
            On::Closed(number) => {
                if self.closed.contains(number) {
                    self.state(member).after.insert(number);
                }
                Ok(())
            }
            On::Open(other) if other == own => Ok(()),
            On::Open(other) => {
                self.merge(own.min(other), own.max(other));
                Ok(())
            }
        }
    }

    /// What has become of an interval that was open.
    pub fn now(&self, open: Open) -> On {
        let mut at = open;
        loop {
            match self.merged.get(&at) {
                Some(On::Open(into)) => at = *into,
                Some(closed) => return *closed,
                None => return On::Open(at),
            }
        }
    }

    /// Output, or a process, waits for this interval.
    pub fn want(&mut self, open: Open) {
        if let On::Open(open) = self.now(open) {
            self.open.get_mut(&open).expect("open").wanted = true;
        }
    }

    /// The oldest interval that is to be closed. Only one close is in flight: until its outcome is there, the others
    /// grow.
    pub fn due(&self, now: Millis) -> Option<(Open, Due)> {
        if !self.closed.is_empty() {
            return None;
        }
        self.open.iter().find_map(|(open, state)| Some((*open, state.due(now)?)))
    }

    /// Who has to stand at a call boundary before this interval can be cut.
    pub fn members(&self, open: Open) -> impl Iterator<Item = Member> + '_ {
        self.open.get(&open).into_iter().flat_map(|state| state.members.iter().copied())
    }

    /// Closes an interval whose members all stand at a call boundary. It gets the next number, and its members begin
    /// anew.
    pub fn close(&mut self, open: Open) -> Interval {
        let state = self.open.remove(&open).expect("open");
        self.last += 1;
        let number = self.last;
        self.closed.insert(number);
        self.merged.insert(open, On::Closed(number));
        self.of.retain(|_, of| *of != open);
        let (reads, steps) = (state.reads.into_iter().collect(), state.steps.into_values().collect());
        Interval { number, base: state.base, after: state.after, reads, creds: state.creds, steps }
    }

    /// The outcome of a closed interval is there. Says which open ones have to be rolled back: their members are in
    /// none then.
    pub fn outcome(&mut self, number: u64, committed: bool) -> Vec<BTreeSet<Member>> {
        self.closed.remove(number);
        if committed {
            self.open.values_mut().for_each(|state| state.after.remove(number));
            return Vec::new();
        }
        self.failed.insert(number);
        let dependent: Vec<Open> =
            self.open.iter().filter(|(_, state)| state.after.contains(number)).map(|(open, _)| *open).collect();
        let mut victims = Vec::new();
        for open in dependent {
            let state = self.open.remove(&open).expect("open");
            self.merged.insert(open, On::Closed(number));
            self.of.retain(|_, of| *of != open);
            victims.push(state.members);
        }
        victims
    }

    /// Nobody names this closed interval, nor any that was merged into it, any more.
    pub fn forget(&mut self, number: u64) {
        let gone: Vec<Open> =
            self.merged.keys().copied().filter(|open| self.now(*open) == On::Closed(number)).collect();
        gone.iter().for_each(|open| _ = self.merged.remove(open));
        self.failed.remove(number);
    }

    fn state(&mut self, member: Member) -> &mut State {
        let open = self.of.get(&member).expect("the member is in an interval");
        self.open.get_mut(open).expect("open")
    }

    fn merge(&mut self, into: Open, from: Open) {
        let state = self.open.remove(&from).expect("open");
        self.merged.insert(from, On::Open(into));
        for member in &state.members {
            self.of.insert(*member, into);
        }
        self.open.get_mut(&into).expect("open").absorb(state);
    }
}

impl State {
    fn due(&self, now: Millis) -> Option<Due> {
        if self.wanted {
            Some(Due::Wanted)
        } else if self.steps.len() >= STEPS_MAX || self.bytes >= INTERVAL_BYTES_MAX {
            Some(Due::Full)
        } else if now.saturating_sub(self.began) >= AGE_MS_MAX {
            Some(Due::Old)
        } else {
            None
        }
    }

    /// The older base is the safe one: what others changed since then counts as changed.
    fn absorb(&mut self, other: State) {
        self.began = self.began.min(other.began);
        self.base = self.base.min(other.base);
        self.members.extend(other.members);
        self.after.merge(&other.after);
        self.reads.extend(other.reads);
        self.bytes += other.bytes;
        self.wanted |= other.wanted;
        for (place, mut step) in other.steps {
            step.cred = cred_index(&mut self.creds, &other.creds[usize::from(step.cred)]);
            self.steps.insert(place, step);
        }
    }
}

fn cred_index(creds: &mut Vec<Cred>, cred: &Cred) -> u16 {
    let at = creds.iter().position(|known| known == cred).unwrap_or_else(|| {
        creds.push(cred.clone());
        creds.len() - 1
    });
    at as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Ino, Name};

    const P: Member = Member(1);
    const Q: Member = Member(2);

    fn unlink(name: &str) -> Change {
        Change::Unlink { dir: Ino::ROOT, name: Name::new(name.as_bytes()).expect("a name") }
    }

    fn names(interval: &Interval) -> Vec<String> {
        let name = |step: &Step| match &step.change {
            Change::Unlink { name, .. } => String::from_utf8_lossy(name.as_bytes()).into_owned(),
            other => panic!("{other:?}"),
        };
        interval.steps.iter().map(name).collect()
    }

    #[test]
    fn a_needs_b_and_b_needs_a_is_one_interval() {
        // Hole 1: P (A) writes a pipe, Q (B) reads and answers, P goes on.
        let mut all = Intervals::new();
        let (a, b) = (all.begin(P, Csn(5), 0), all.begin(Q, Csn(3), 1));
        all.change(P, &Cred::root(), None, unlink("1"));
        all.change(Q, &Cred { uid: 7, ..Cred::root() }, None, unlink("2"));
        all.depend(Q, On::Open(a)).expect("open");
        all.change(P, &Cred::root(), None, unlink("3"));
        all.depend(P, On::Open(b)).expect("open");
        let interval = all.close(a);
        assert_eq!((interval.number, interval.base), (1, Csn(3)));
        assert_eq!(names(&interval), ["1", "2", "3"]);
        assert_eq!(
            interval.steps.iter().map(|s| interval.creds[usize::from(s.cred)].uid).collect::<Vec<_>>(),
            [0, 7, 0]
        );
        assert!(interval.after.is_empty());
        assert_eq!((all.of(P), all.of(Q), all.now(b)), (None, None, On::Closed(1)));
    }

    #[test]
    fn a_dependency_on_a_closed_one_is_named_until_its_outcome() {
        let mut all = Intervals::new();
        let a = all.begin(P, Csn(0), 0);
        all.close(a);
        let b = all.begin(Q, Csn(0), 0);
        all.depend(Q, On::Open(a)).expect("closed");
        assert_eq!(all.clone().close(b).after.parts(), [(1, 1)]);
        assert_eq!(all.outcome(1, true), []);
        assert!(all.close(b).after.is_empty());
    }

    #[test]
    fn who_depends_on_a_failure_is_rolled_back() {
        let mut all = Intervals::new();
        let a = all.begin(P, Csn(0), 0);
        all.close(a);
        all.begin(Q, Csn(0), 0);
        all.depend(Q, On::Closed(1)).expect("closed");
        assert_eq!(all.outcome(1, false), [BTreeSet::from([Q])]);
        all.begin(P, Csn(0), 0);
        assert_eq!(all.depend(P, On::Open(a)), Err(OnFailed(1)));
    }

    #[test]
    fn one_close_is_in_flight() {
        let mut all = Intervals::new();
        let (a, b) = (all.begin(P, Csn(0), 0), all.begin(Q, Csn(0), 0));
        assert_eq!(all.due(AGE_MS_MAX - 1), None);
        assert_eq!(all.due(AGE_MS_MAX), Some((a, Due::Old)));
        all.want(b);
        assert_eq!(all.due(0), Some((b, Due::Wanted)));
        all.close(b);
        assert_eq!(all.due(AGE_MS_MAX), None);
        all.outcome(1, true);
        assert_eq!(all.due(AGE_MS_MAX), Some((a, Due::Old)));
    }
}
