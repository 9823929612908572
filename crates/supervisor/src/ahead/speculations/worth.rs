//! Whether a checkpoint is worth its cost: it is "not taken when it would cost more than the wait that it hides",
//! measured per process.
//!
//! What the next checkpoint of a process costs is estimated from its last ones; of one that has had none, from its
//! resident size, because fork copies the page tables of what is resident. A checkpoint that took unusually long
//! (somebody else had the core) counts little, one that was quicker at once: an estimate that is too low costs the wait
//! that would have been had anyway, one that is too high stops the process from running ahead.
//!
//! Whoever waits takes no checkpoint that could show that the estimate was too high. So one is tried when the process
//! has waited for much longer than it would cost, and after each that was as slow as thought the next is tried later.

use procfs::ProcessId;
use std::collections::HashMap;
use std::time::Duration;

/// What checkpoints of a world's processes cost.
#[derive(Debug, Default)]
pub(crate) struct Costs(HashMap<ProcessId, Cost>);

/// What those of one process cost.
#[derive(Debug)]
struct Cost {
    estimate: Duration,
    /// How long it has waited since its last one, because one would have cost more.
    waited: Duration,
    /// For how many times the estimate it waits until one is tried.
    patience: u32,
}

impl Cost {
    /// What is tried for nothing costs this share of the time that is waited anyway, at most.
    const PATIENCE: u32 = 16;

    fn new(estimate: Duration) -> Self {
        Self { estimate, waited: Duration::ZERO, patience: Self::PATIENCE }
    }

    fn is_to_be_tried(&self) -> bool {
        self.waited >= self.estimate.saturating_mul(self.patience)
    }
}

impl Costs {
    /// A checkpoint of a process that has nothing: a fork, a stop of the copy, its end.
    const SMALLEST: Duration = Duration::from_micros(100);
    /// For each resident page: its entry in the page tables is copied, and freed.
    const PER_PAGE: Duration = Duration::from_nanos(25);
    /// Share of a checkpoint that took longer than was thought which counts.
    const CAUTION: u32 = 8;

    /// A process has a new program: what it cost before says nothing any more.
    pub fn forget(&mut self, pid: ProcessId) {
        self.0.remove(&pid);
    }

    /// A checkpoint was taken.
    pub fn measured(&mut self, pid: ProcessId, took: Duration) {
        let cost = self.0.entry(pid).or_insert_with(|| Cost::new(took));
        let was_tried = cost.is_to_be_tried();
        cost.waited = Duration::ZERO;
        match took.checked_sub(cost.estimate) {
            Some(more) => {
                cost.estimate += more / Self::CAUTION;
                if was_tried {
                    cost.patience = cost.patience.saturating_mul(2);
                }
            }
            None => *cost = Cost::new(took),
        }
    }

    /// What the next one will cost. `resident_pages` is asked for if it was never measured.
    fn cost(&mut self, pid: ProcessId, resident_pages: impl FnOnce() -> u64) -> &mut Cost {
        let by_size = || Self::SMALLEST + Self::PER_PAGE * u32::try_from(resident_pages()).unwrap_or(u32::MAX);
        self.0.entry(pid).or_insert_with(|| Cost::new(by_size()))
    }

    /// Whether it is worth that: `wait` is what it hides.
    pub fn is_worth(&mut self, pid: ProcessId, wait: Duration, resident_pages: impl FnOnce() -> u64) -> bool {
        let cost = self.cost(pid, resident_pages);
        cost.estimate <= wait || cost.is_to_be_tried()
    }

    /// It is not, and so the process waits.
    pub fn waits(&mut self, pid: ProcessId, wait: Duration) {
        if let Some(cost) = self.0.get_mut(&pid) {
            cost.waited = cost.waited.saturating_add(wait);
        }
    }
}

/// Pages that a process has in memory; 0 if it is gone.
pub(in crate::ahead) fn resident_pages(pid: ProcessId) -> u64 {
    procfs::resident_pages(pid).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessId = ProcessId::from_raw(7);
    const OTHER: ProcessId = ProcessId::from_raw(8);

    const MS: Duration = Duration::from_millis(1);
    /// 1 GiB.
    const LARGE: u64 = 1 << 18;

    #[test]
    fn a_large_process_waits_for_what_is_quick() {
        let mut costs = Costs::default();
        assert!(!costs.is_worth(ONE, MS * 5, || LARGE), "its page tables take longer than the call");
        assert!(costs.is_worth(ONE, MS * 50, || LARGE));
        assert!(costs.is_worth(OTHER, MS, || 300), "a shell");
    }

    #[test]
    fn what_was_measured_counts_more_than_its_size() {
        let mut costs = Costs::default();
        costs.cost(ONE, || LARGE);
        costs.measured(ONE, MS);
        assert!(costs.is_worth(ONE, MS * 2, || LARGE));
        costs.forget(ONE);
        assert!(!costs.is_worth(ONE, MS * 2, || LARGE), "another program");
    }

    #[test]
    fn one_slow_checkpoint_is_no_reason_to_wait() {
        let mut costs = Costs::default();
        costs.cost(ONE, || 0);
        costs.measured(ONE, MS * 10);
        assert!(costs.is_worth(ONE, MS * 2, || 0));
        for _ in 0..20 {
            costs.measured(ONE, MS * 10);
        }
        assert!(!costs.is_worth(ONE, MS * 5, || 0), "it is always that slow");
    }

    /// How many of `calls` that take 2 ms a process runs ahead of, and what its checkpoints took: `took` each.
    fn ahead_of(costs: &mut Costs, calls: u32, took: Duration) -> (u32, Duration) {
        let mut ahead = 0;
        for _ in 0..calls {
            if costs.is_worth(ONE, MS * 2, || 0) {
                costs.measured(ONE, took);
                ahead += 1;
            } else {
                costs.waits(ONE, MS * 2);
            }
        }
        (ahead, took * ahead)
    }

    #[test]
    fn a_machine_that_was_busy_once_is_no_reason_to_wait_for_ever() {
        let mut costs = Costs::default();
        costs.cost(ONE, || 0);
        costs.measured(ONE, MS * 100);
        assert!(!costs.is_worth(ONE, MS * 2, || 0));
        let (ahead, _) = ahead_of(&mut costs, 1000, MS / 4);
        assert!(ahead > 850, "{ahead} of 1000");
    }

    #[test]
    fn what_is_slow_indeed_is_seldom_tried() {
        let mut costs = Costs::default();
        costs.measured(ONE, MS * 20);
        let (ahead, lost) = ahead_of(&mut costs, 10_000, MS * 20);
        assert!((1..10).contains(&ahead), "{ahead}");
        assert!(lost < MS * 10_000 * 2 / 50, "{lost:?}");
    }
}
