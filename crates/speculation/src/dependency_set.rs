//! A set of speculations, packed into runs of consecutive counters of one process. Its size is "proportional to the
//! number of processes sharing speculative state, rather than the number of speculations" (000, 7.1).

use crate::{Process, SpeculationId};

/// The speculations `first..=last` of one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// Who created them.
    pub process: Process,
    /// Counter of the oldest.
    pub first: u64,
    /// Counter of the youngest, included.
    pub last: u64,
}

impl Run {
    fn holds(&self, id: SpeculationId) -> bool {
        self.process == id.process && self.first <= id.counter && id.counter <= self.last
    }

    /// Whether `next`, which does not begin before `self`, overlaps it or follows it without a gap.
    fn touches(&self, next: &Run) -> bool {
        self.process == next.process && next.first <= self.last.saturating_add(1)
    }

    fn is_before(&self, other: &Run) -> bool {
        (self.process, self.last) < (other.process, other.first)
    }
}

/// Speculations, in runs that are sorted, disjoint and as long as they can be.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct DependencySet {
    runs: Vec<Run>,
}

impl DependencySet {
    /// No speculation.
    pub const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// What `create_speculation` hands to a file server: extents of consecutive identifiers (000, 7.1).
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many speculations are in the set.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// The speculations, in order of process and counter.
    pub fn iter(&self) -> impl Iterator<Item = SpeculationId> + '_ {
        self.runs.iter().flat_map(|run| {
            let process = run.process;
            (run.first..=run.last).map(move |counter| SpeculationId { process, counter })
        })
    }

    /// Where the run that holds `id` stands, or where it would have to.
    fn find(&self, id: SpeculationId) -> Result<usize, usize> {
        let after = self.runs.partition_point(|run| (run.process, run.first) <= (id.process, id.counter));
        match after.checked_sub(1) {
            Some(at) if self.runs[at].holds(id) => Ok(at),
            _ => Err(after),
        }
    }

    /// Whether `id` is in the set.
    pub fn contains(&self, id: SpeculationId) -> bool {
        self.find(id).is_ok()
    }

    /// Add `id`. Returns whether that is news.
    pub fn insert(&mut self, id: SpeculationId) -> bool {
        let Err(at) = self.find(id) else { return false };
        let run = Run { process: id.process, first: id.counter, last: id.counter };
        self.runs.insert(at, run);
        self.join_with_next(at);
        if at > 0 {
            self.join_with_next(at - 1);
        }
        true
    }

    fn join_with_next(&mut self, at: usize) {
        if at + 1 < self.runs.len() && self.runs[at].touches(&self.runs[at + 1]) {
            self.runs[at].last = self.runs[at + 1].last;
            self.runs.remove(at + 1);
        }
    }

    /// Take `id` away. Returns whether it was there.
    pub fn remove(&mut self, id: SpeculationId) -> bool {
        let Ok(at) = self.find(id) else { return false };
        let run = self.runs[at];
        match (run.first == id.counter, run.last == id.counter) {
            (true, true) => drop(self.runs.remove(at)),
            (true, false) => self.runs[at].first += 1,
            (false, true) => self.runs[at].last -= 1,
            (false, false) => {
                self.runs[at].last = id.counter - 1;
                self.runs.insert(at + 1, Run { first: id.counter + 1, ..run });
            }
        }
        true
    }

    /// Union: what depends on both depends on this.
    pub fn merge(&mut self, other: &DependencySet) {
        if other.is_empty() || other.is_subset(self) {
            return;
        }
        let mut all: Vec<Run> = self.runs.iter().chain(&other.runs).copied().collect();
        all.sort_unstable();
        self.runs.clear();
        for run in all {
            match self.runs.last_mut() {
                Some(last) if last.touches(&run) => last.last = last.last.max(run.last),
                _ => self.runs.push(run),
            }
        }
    }

    /// Take away all that is in `other`.
    pub fn subtract(&mut self, other: &DependencySet) {
        if !self.is_disjoint(other) {
            *self = self.difference(other);
        }
    }

    /// What is here and not in `other`.
    pub fn difference(&self, other: &DependencySet) -> DependencySet {
        let mut runs = Vec::new();
        let mut holes = other.runs.iter().peekable();
        for &run in &self.runs {
            while holes.next_if(|hole| hole.is_before(&run)).is_some() {}
            cut(run, holes.clone().copied(), &mut runs);
        }
        DependencySet { runs }
    }

    /// Whether all that is here is in `other`.
    pub fn is_subset(&self, other: &DependencySet) -> bool {
        self.runs.iter().all(|run| {
            let first = SpeculationId { process: run.process, counter: run.first };
            other.find(first).is_ok_and(|at| run.last <= other.runs[at].last)
        })
    }

    /// Whether nothing is in both.
    pub fn is_disjoint(&self, other: &DependencySet) -> bool {
        let (mut a, mut b) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.is_before(y) {
                a.next();
            } else if y.is_before(x) {
                b.next();
            } else {
                return false;
            }
        }
        true
    }
}

/// Push what is left of `run` after `holes`, none of which ends before it.
fn cut(mut run: Run, holes: impl Iterator<Item = Run>, into: &mut Vec<Run>) {
    for hole in holes {
        if run.is_before(&hole) {
            break;
        }
        if hole.first > run.first {
            into.push(Run { last: hole.first - 1, ..run });
        }
        if hole.last >= run.last {
            return;
        }
        run.first = hole.last + 1;
    }
    into.push(run);
}

impl FromIterator<SpeculationId> for DependencySet {
    fn from_iter<I: IntoIterator<Item = SpeculationId>>(ids: I) -> Self {
        let mut set = DependencySet::new();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Model = BTreeSet<SpeculationId>;

    fn ids() -> impl Strategy<Value = Model> {
        let id =
            (1u32..4, 1u64..12).prop_map(|(process, counter)| SpeculationId { process: Process(process), counter });
        prop::collection::btree_set(id, 0..16)
    }

    fn packed(model: &Model) -> DependencySet {
        let set: DependencySet = model.iter().copied().collect();
        let long = set.runs.windows(2).all(|w| w[0].is_before(&w[1]) && !w[0].touches(&w[1]));
        assert!(long, "{set:?} is not packed");
        set
    }

    #[test]
    fn consecutive_speculations_of_a_process_are_one_run() {
        let made = (1..=2000).map(|counter| SpeculationId { process: Process(1), counter });
        let set: DependencySet = made.collect();
        assert_eq!(set.runs(), [Run { process: Process(1), first: 1, last: 2000 }]);
        assert_eq!(set.len(), 2000);
    }

    proptest! {
        #[test]
        fn is_a_set(a in ids(), b in ids(), process in 1u32..4, counter in 1u64..12) {
            let id = SpeculationId { process: Process(process), counter };
            let (x, y) = (packed(&a), packed(&b));
            prop_assert_eq!(x.iter().collect::<Model>(), a.clone());
            prop_assert_eq!(x.len(), a.len() as u64);
            prop_assert_eq!(x.contains(id), a.contains(&id));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.difference(&y), packed(&(&a - &b)));
            let (mut merged, mut less) = (x.clone(), x.clone());
            merged.merge(&y);
            less.subtract(&y);
            prop_assert_eq!(merged, packed(&(&a | &b)));
            prop_assert_eq!(less, packed(&(&a - &b)));
            let (mut without, mut model) = (x.clone(), a.clone());
            prop_assert_eq!(without.remove(id), model.remove(&id));
            prop_assert_eq!(without, packed(&model));
        }
    }
}
