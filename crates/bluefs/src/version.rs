//! CHECK: whether others have changed what an interval has read since its base. Three steps, each cheaper than the
//! next; a step that can say "no" spares the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::{Csn, Group, Key, SessionId};

/// Who changed something last, and when anybody else did: enough to answer for each session when the *others* did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    by: Option<SessionId>,
    last: Csn,
    others: Csn,
}

impl Stamp {
    fn unknown(csn: Csn) -> Stamp {
        Stamp { by: None, last: csn, others: csn }
    }

    fn changed(&mut self, by: SessionId, csn: Csn) {
        if self.by != Some(by) {
            self.others = self.last;
            self.by = Some(by);
        }
        self.last = csn;
    }

    fn by_others(&self, session: SessionId) -> Csn {
        if self.by == Some(session) {
            self.others
        } else {
            self.last
        }
    }
}

/// What CHECK says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Checked {
    /// No hypothesis is wrong; the step that knew it (1 to 3).
    Valid(u8),
    /// Others changed these: each once, in the order of the first place where it was read.
    Conflict(Vec<Key>),
    /// The base lies below the floor: what was changed is no longer known.
    TooOld,
}

/// The versions of one volume, in memory, down to a floor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Versions {
    all: Stamp,
    floor: Csn,
    groups: BTreeMap<Group, Stamp>,
    keys: BTreeMap<Key, Stamp>,
    /// Which keys a commit changed, oldest first: so that the floor can be raised.
    history: BTreeMap<Csn, Vec<Key>>,
    held: usize,
    held_max: usize,
}

impl Versions {
    /// After a start: nothing is known of what happened up to `csn`. At most `held_max` changes are remembered.
    pub fn new(csn: Csn, held_max: usize) -> Versions {
        let (groups, keys) = (BTreeMap::new(), BTreeMap::new());
        Versions { all: Stamp::unknown(csn), floor: csn, groups, keys, history: BTreeMap::new(), held: 0, held_max }
    }

    /// The newest commit.
    pub fn csn(&self) -> Csn {
        self.all.last
    }

    /// The oldest base that can be checked.
    pub fn floor(&self) -> Csn {
        self.floor
    }

    /// `session` has committed `keys` at `csn`.
    pub fn commit(&mut self, session: SessionId, csn: Csn, keys: impl IntoIterator<Item = Key>) {
        self.all.changed(session, csn);
        let floor = self.floor;
        let mut changed = Vec::new();
        for key in keys {
            self.groups.entry(key.group()).or_insert(Stamp::unknown(floor)).changed(session, csn);
            self.keys.entry(key.clone()).or_insert(Stamp::unknown(floor)).changed(session, csn);
            changed.push(key);
        }
        self.held += changed.len();
        self.history.insert(csn, changed);
        self.raise_floor();
    }

    /// Whether an interval of `session` with this base and these reads may commit.
    pub fn check(&self, session: SessionId, base: Csn, reads: &[Key]) -> Checked {
        if reads.is_empty() || self.all.by_others(session) <= base {
            return Checked::Valid(1);
        }
        if base < self.floor {
            return Checked::TooOld;
        }
        let changed = |stamp: Option<&Stamp>| stamp.is_some_and(|s| s.by_others(session) > base);
        let mut suspects = reads.iter().filter(|key| changed(self.groups.get(&key.group()))).peekable();
        if suspects.peek().is_none() {
            return Checked::Valid(2);
        }
        let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
        for key in suspects.filter(|key| changed(self.keys.get(key))) {
            if seen.insert(key) {
                wrong.push(key.clone());
            }
        }
        if wrong.is_empty() {
            Checked::Valid(3)
        } else {
            Checked::Conflict(wrong)
        }
    }

    /// Forgets the oldest commits until no more than `held_max` changes are remembered.
    fn raise_floor(&mut self) {
        while self.held > self.held_max {
            let Some((csn, keys)) = self.history.pop_first() else { return };
            self.held -= keys.len();
            self.floor = csn;
            for key in keys {
                if self.keys.get(&key).is_some_and(|stamp| stamp.last <= csn) {
                    self.keys.remove(&key);
                }
                if self.groups.get(&key.group()).is_some_and(|stamp| stamp.last <= csn) {
                    self.groups.remove(&key.group());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::Ino;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn data(ino: u64) -> Key {
        Key::Data(Ino(ino))
    }

    #[track_caller]
    fn check(commits: &[(SessionId, u64)], session: SessionId, base: u64, reads: &[u64], expected: Checked) {
        let mut versions = Versions::new(Csn(10), 1000);
        for (i, &(by, ino)) in commits.iter().enumerate() {
            versions.commit(by, Csn(11 + i as u64), [data(ino)]);
        }
        let reads: Vec<Key> = reads.iter().map(|&ino| data(ino)).collect();
        assert_eq!(versions.check(session, Csn(base), &reads), expected);
    }

    #[test]
    fn three_steps() {
        check(&[], A, 10, &[1], Checked::Valid(1));
        check(&[(A, 1)], A, 10, &[1], Checked::Valid(1));
        check(&[(B, 1)], A, 11, &[1], Checked::Valid(1));
        check(&[(B, 1000)], A, 10, &[1], Checked::Valid(2));
        check(&[(B, 2)], A, 10, &[1], Checked::Valid(3));
        check(&[(B, 1)], A, 10, &[1], Checked::Conflict(vec![data(1)]));
        check(&[(B, 1), (B, 2)], A, 10, &[2, 1, 2, 1], Checked::Conflict(vec![data(2), data(1)]));
        check(&[(B, 1)], A, 9, &[1], Checked::TooOld);
        check(&[(B, 1)], A, 9, &[], Checked::Valid(1));
    }

    #[test]
    fn ones_own_later_change_does_not_hide_anothers() {
        check(&[(B, 1), (A, 1)], A, 10, &[1], Checked::Conflict(vec![data(1)]));
        check(&[(B, 1), (A, 1)], A, 11, &[1], Checked::Valid(1));
    }

    proptest! {
        /// Against a list of all commits: whatever is said to be valid is valid, and above the floor the other way
        /// round.
        #[test]
        fn as_a_list_would_say(
            commits in prop::collection::vec((1u64..4, prop::collection::vec(0u64..200, 1..4)), 0..40),
            session in 1u64..4, back in 0u64..45, reads in prop::collection::vec(0u64..200, 0..5), held_max in 1usize..60,
        ) {
            let mut versions = Versions::new(Csn(0), held_max);
            for (i, (by, inos)) in commits.iter().enumerate() {
                versions.commit(SessionId(*by), Csn(1 + i as u64), inos.iter().map(|&ino| data(ino)));
            }
            let base = Csn((commits.len() as u64).saturating_sub(back));
            let changed = |ino: &u64| commits.iter().enumerate().any(|(i, (by, inos))| {
                i as u64 + 1 > base.0 && *by != session && inos.contains(ino)
            });
            let mut seen = BTreeSet::new();
            let wrong = reads.iter().filter(|ino| changed(ino) && seen.insert(**ino));
            let wrong: Vec<Key> = wrong.map(|&ino| data(ino)).collect();
            let keys: Vec<Key> = reads.iter().map(|&ino| data(ino)).collect();
            match versions.check(SessionId(session), base, &keys) {
                Checked::Valid(_) => prop_assert!(wrong.is_empty()),
                Checked::Conflict(keys) => prop_assert_eq!(keys, wrong),
                Checked::TooOld => prop_assert!(base < versions.floor()),
            }
        }
    }
}
