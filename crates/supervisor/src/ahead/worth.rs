//! Whether a checkpoint is worth its cost: it is "not taken when it would cost more than the wait that it hides", measured per process.
//!
//! What the next checkpoint of a process costs is estimated from its last ones; of one that has had none, from its resident size, because fork copies
//! the page tables of what is resident. A checkpoint that took unusually long (somebody else had the core) counts little, one that was quicker at
//! once: an estimate that is too low costs the wait that would have been had anyway, one that is too high stops the process from running ahead.

use std::collections::HashMap;
use std::time::Duration;

/// What checkpoints of a world's processes cost.
#[derive(Debug, Default)]
pub(crate) struct Costs(HashMap<i32, Duration>);

impl Costs {
    /// A checkpoint of a process that has nothing: a fork, a stop of the copy, its end.
    const SMALLEST: Duration = Duration::from_micros(100);
    /// For each resident page: its entry in the page tables is copied, and freed.
    const PER_PAGE: Duration = Duration::from_nanos(25);
    /// Share of a checkpoint that took longer than was thought which counts.
    const CAUTION: u32 = 8;

    /// A process has a new program: what it cost before says nothing any more.
    pub fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }

    /// A checkpoint was taken.
    pub fn measured(&mut self, pid: i32, took: Duration) {
        let known = self.0.entry(pid).or_insert(took);
        *known = match took.checked_sub(*known) {
            Some(more) => *known + more / Self::CAUTION,
            None => took,
        };
    }

    /// What the next one will cost. `resident_pages` is asked for if it was never measured.
    pub fn estimate(&mut self, pid: i32, resident_pages: impl FnOnce() -> u64) -> Duration {
        let by_size = || Self::SMALLEST + Self::PER_PAGE * u32::try_from(resident_pages()).unwrap_or(u32::MAX);
        *self.0.entry(pid).or_insert_with(by_size)
    }

    /// Whether it is worth that: `wait` is what it hides.
    pub fn is_worth(&mut self, pid: i32, wait: Duration, resident_pages: impl FnOnce() -> u64) -> bool {
        self.estimate(pid, resident_pages) <= wait
    }
}

/// Pages that a process has in memory; 0 if it is gone.
pub(super) fn resident_pages(pid: i32) -> u64 {
    let sizes = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    sizes.split(' ').nth(1).and_then(|resident| resident.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// 1 GiB.
    const LARGE: u64 = 1 << 18;

    #[test]
    fn a_large_process_waits_for_what_is_quick() {
        let mut costs = Costs::default();
        assert!(!costs.is_worth(7, MS * 5, || LARGE), "its page tables take longer than the call");
        assert!(costs.is_worth(7, MS * 50, || LARGE));
        assert!(costs.is_worth(8, MS, || 300), "a shell");
    }

    #[test]
    fn what_was_measured_counts_more_than_its_size() {
        let mut costs = Costs::default();
        costs.estimate(7, || LARGE);
        costs.measured(7, MS);
        assert!(costs.is_worth(7, MS * 2, || LARGE));
        costs.forget(7);
        assert!(!costs.is_worth(7, MS * 2, || LARGE), "another program");
    }

    #[test]
    fn one_slow_checkpoint_is_no_reason_to_wait() {
        let mut costs = Costs::default();
        costs.estimate(7, || 0);
        costs.measured(7, MS * 10);
        assert!(costs.is_worth(7, MS * 2, || 0));
        for _ in 0..20 {
            costs.measured(7, MS * 10);
        }
        assert!(!costs.is_worth(7, MS * 5, || 0), "it is always that slow");
    }
}
