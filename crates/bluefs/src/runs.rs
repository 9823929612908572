//! Sets of interval numbers as runs of consecutive numbers (000, 7.1: "a list of extents of consecutive identifiers").

/// A set of numbers. Its runs are in order, do not overlap and do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Runs(Vec<(u64, u64)>);

impl Runs {
    /// The empty set.
    pub fn new() -> Runs {
        Runs::default()
    }

    /// From `(first, last)` pairs as a peer sent them. `None` if they are not in the one form that a set has.
    pub fn from_parts(parts: Vec<(u64, u64)>) -> Option<Runs> {
        let each = parts.iter().all(|(first, last)| first <= last);
        let apart = parts.windows(2).all(|w| w[0].1.checked_add(1).is_some_and(|next| next < w[1].0));
        (each && apart).then_some(Runs(parts))
    }

    /// The runs, `(first, last)`, both inclusive.
    pub fn parts(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `number` is in it.
    pub fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= number);
        after > 0 && self.0[after - 1].1 >= number
    }

    /// Adds one number.
    pub fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let at = self.0.partition_point(|&(first, _)| first <= number);
        let joins_left = at > 0 && self.0[at - 1].1 + 1 == number;
        let joins_right = self.0.get(at).is_some_and(|&(first, _)| number + 1 == first);
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = number,
            (false, true) => self.0[at].0 = number,
            (false, false) => self.0.insert(at, (number, number)),
        }
    }

    /// Removes one number.
    pub fn remove(&mut self, number: u64) {
        let at = self.0.partition_point(|&(first, _)| first <= number);
        if at == 0 || self.0[at - 1].1 < number {
            return;
        }
        let (first, last) = self.0.remove(at - 1);
        if number < last {
            self.0.insert(at - 1, (number + 1, last));
        }
        if first < number {
            self.0.insert(at - 1, (first, number - 1));
        }
    }

    /// Adds everything that `other` has.
    pub fn merge(&mut self, other: &Runs) {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        self.0.clear();
        for (first, last) in all {
            match self.0.last_mut() {
                Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
                _ => self.0.push((first, last)),
            }
        }
    }

    /// The first number that `test` refuses. Looks at no more than `most` numbers, so that a lie about a long run costs
    /// nothing: a set that is larger counts as refused at the number where the look ended.
    pub fn first_refused(&self, most: usize, mut test: impl FnMut(u64) -> bool) -> Option<u64> {
        let mut numbers = self.0.iter().flat_map(|&(first, last)| first..=last);
        for _ in 0..most {
            match numbers.next() {
                Some(number) if test(number) => {}
                refused_or_end => return refused_or_end,
            }
        }
        numbers.next()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set(steps in prop::collection::vec((any::<bool>(), 0u64..40), 0..80), more in prop::collection::btree_set(0u64..40, 0..20)) {
            let (mut runs, mut model) = (Runs::new(), BTreeSet::new());
            for (add, number) in steps {
                if add {
                    runs.insert(number);
                    model.insert(number);
                } else {
                    runs.remove(number);
                    model.remove(&number);
                }
            }
            let mut other = Runs::new();
            more.iter().for_each(|&n| other.insert(n));
            runs.merge(&other);
            model.extend(more);
            prop_assert!((0..41).all(|n| runs.contains(n) == model.contains(&n)));
            prop_assert_eq!(Runs::from_parts(runs.parts().to_vec()), Some(runs));
        }
    }

    #[test]
    fn only_the_one_form() {
        assert_eq!(Runs::from_parts(vec![(3, 2)]), None);
        assert_eq!(Runs::from_parts(vec![(1, 2), (3, 4)]), None);
        assert_eq!(Runs::from_parts(vec![(5, 6), (1, 2)]), None);
        assert_eq!(Runs::from_parts(vec![(1, u64::MAX), (7, 8)]), None);
    }

    #[test]
    fn a_long_run_is_refused_in_bounded_time() {
        let runs = Runs::from_parts(vec![(1, u64::MAX)]).expect("a run");
        assert_eq!(runs.first_refused(10, |_| true), Some(11));
        assert_eq!(runs.first_refused(10, |n| n < 4), Some(4));
        assert_eq!(Runs::new().first_refused(10, |_| false), None);
    }
}
