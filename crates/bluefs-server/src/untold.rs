//! What sessions have not been told yet of what others have changed (record 0215).

use std::collections::{BTreeSet, VecDeque};

use bluefs::lease::Millis;
use bluefs::{Csn, Key, SessionId};

/// How long a change may go untold, ms, to a session that is told nothing else.
const UNTOLD_MS_MAX: Millis = 200;
/// Keys of all untold changes together. With more of them everybody is told at once.
const UNTOLD_KEYS_MAX: usize = 100_000;

struct Commit {
    by: SessionId,
    at: Millis,
    keys: Vec<Key>,
}

/// The last commits of a volume: those that some session has not been told of.
pub struct Untold {
    /// CSN of the last commit. Each has the next number, so that a place in `commits` says which one it is.
    last: Csn,
    commits: VecDeque<Commit>,
    keys: usize,
}

impl Untold {
    /// Everybody knows of everything up to here.
    pub fn new(last: Csn) -> Untold {
        Untold { last, commits: VecDeque::new(), keys: 0 }
    }

    /// Commit `csn`, the next one, has changed these keys.
    pub fn add(&mut self, csn: Csn, by: SessionId, keys: Vec<Key>, at: Millis) {
        debug_assert_eq!(csn.0, self.last.0 + 1, "a commit was left out");
        self.last = csn;
        self.keys += keys.len();
        self.commits.push_back(Commit { by, at, keys });
    }

    /// Which keys others than `session` have changed after `told`.
    pub fn keys(&self, session: SessionId, told: Csn) -> BTreeSet<&Key> {
        let of_others = self.after(told).filter(|commit| commit.by != session);
        of_others.flat_map(|commit| &commit.keys).collect()
    }

    /// Whether who was told up to `told` is to be told now, though there is nothing else to say.
    pub fn is_due(&self, told: Csn, now: Millis) -> bool {
        self.keys > UNTOLD_KEYS_MAX && told < self.last
            || self.after(told).next().is_some_and(|commit| commit.at + UNTOLD_MS_MAX <= now)
    }

    /// When somebody is to be told, if nothing else happens.
    pub fn next_turn(&self) -> Option<Millis> {
        self.commits.front().map(|commit| commit.at + UNTOLD_MS_MAX)
    }

    /// All have been told up to `told`.
    pub fn forget(&mut self, told: Csn) {
        let known = self.commits.len() - self.after(told).count();
        self.keys -= self.commits.drain(..known).map(|commit| commit.keys.len()).sum::<usize>();
    }

    fn after(&self, told: Csn) -> impl Iterator<Item = &Commit> {
        let count = self.last.0.saturating_sub(told.0).min(self.commits.len() as u64) as usize;
        self.commits.range(self.commits.len() - count..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bluefs::Ino;
    use proptest::prelude::*;

    proptest! {
        /// Each session is told of each key that another one has changed, and of nothing else.
        #[test]
        fn everybody_is_told_of_what_others_have_changed(
            steps in proptest::collection::vec((0_u64..4, 0_u64..8, any::<bool>()), 0..60)
        ) {
            let mut untold = Untold::new(Csn(7));
            let mut told = [Csn(7); 4];
            let mut expected: [BTreeSet<Key>; 4] = Default::default();
            for (csn, (who, key, is_change)) in (8_u64..).zip(steps) {
                let key = Key::Attr(Ino(key));
                untold.add(Csn(csn), SessionId(who), vec![key.clone()], csn);
                for other in (0..4).filter(|other| *other != who) {
                    expected[other as usize].insert(key.clone());
                }
                if !is_change {
                    let one = who as usize;
                    let keys: BTreeSet<Key> = untold.keys(SessionId(who), told[one]).into_iter().cloned().collect();
                    prop_assert_eq!(keys, std::mem::take(&mut expected[one]));
                    told[one] = Csn(csn);
                    untold.forget(told.into_iter().min().expect("four"));
                }
                for (told, expected) in told.iter().zip(&expected) {
                    prop_assert!(expected.is_empty() || untold.is_due(*told, csn + UNTOLD_MS_MAX));
                }
            }
        }
    }
}
