//! What full speculation did in a world, for `--report` and `--stats`.

use crate::ahead::speculations::history::History;
use crate::ahead::speculations::inject::Family;
use crate::stats::list;
use serde::{Deserialize, Serialize};
use speculation::{ResolveError, Verdict};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// One rollback.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rollback {
    /// Speculations that failed with it.
    pub speculations: usize,
    /// Processes that it concerned.
    pub processes: usize,
    /// Operations that it undid.
    pub operations: usize,
    /// How long it took, microseconds.
    pub us: u64,
}

/// Counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Speculations made by injection, by family.
    pub injected: BTreeMap<String, u64>,
    /// Speculations made by programs.
    pub explicit: u64,
    /// Injected calls that were waited for instead (`--speculate=no`).
    pub waited: u64,
    /// Guesses that were right.
    pub committed: u64,
    /// Guesses that were wrong.
    pub failed: u64,
    /// Guesses that were undone with an older one before their outcome was known.
    pub unmade: u64,
    /// Most that were open at the same time.
    pub open_max: usize,
    /// Checkpoints that were taken.
    pub checkpoints: u64,
    /// What they took together, microseconds.
    pub checkpoint_us: u64,
    /// Checkpoints that would have cost more than the wait that they hide: the process waited instead.
    #[serde(default)]
    pub not_worth: u64,
    /// Checkpoints that could not be taken, by reason: the process waited instead.
    pub refused: BTreeMap<String, u64>,
    /// Rollbacks, in their order; the first thousand.
    pub rollbacks: Vec<Rollback>,
    /// How many there were.
    pub rollbacks_count: u64,
    /// The same by what the wrong guess was about: a family of `--inject`, or `begin`.
    #[serde(default)]
    pub causes: BTreeMap<String, u64>,
    /// Processes that ended while they were speculative.
    pub held_exits: u64,
    /// Those of them that ended in earnest meanwhile.
    pub buried: u64,
    /// Processes that ended as natively, without a question.
    pub unasked_ends: u64,
    /// Processes that were killed from outside while they were speculative.
    pub lost: u64,
    /// Calls that the agent asked about.
    #[serde(default)]
    pub asked: u64,
    /// Those of them whose like need not be asked about until something changes.
    #[serde(default)]
    pub permits: u64,
    /// Input from outside that was read again after a rollback, bytes.
    #[serde(default)]
    pub input_again: u64,
    /// Output of speculative processes, bytes.
    pub output_held: u64,
    /// Output that was never shown, because what it depended on failed, bytes.
    pub output_dropped: u64,
    /// Calls of speculative processes that had to wait, by name.
    pub barriers: BTreeMap<String, u64>,
    /// What happened, if somebody wants a picture of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
}

impl Report {
    const ROLLBACKS_MAX: usize = 1000;

    pub(in crate::ahead) fn began(&mut self, family: Family) {
        *self.injected.entry(family.to_string()).or_default() += 1;
    }

    pub(in crate::ahead) fn open(&mut self, open: usize) {
        self.open_max = self.open_max.max(open);
    }

    pub(in crate::ahead) fn checkpoint(&mut self, took: Duration) {
        self.checkpoints += 1;
        self.checkpoint_us += took.as_micros() as u64;
    }

    pub(in crate::ahead) fn refused(&mut self, what: &str) {
        *self.refused.entry(what.to_owned()).or_default() += 1;
    }

    pub(in crate::ahead) fn count_barrier(&mut self, nr: u64) {
        let name = syscall_table::row(nr).map_or_else(|| format!("unknown_{nr}"), |row| row.name.to_owned());
        *self.barriers.entry(name).or_default() += 1;
    }

    pub(in crate::ahead) fn resolved(&mut self, is_right: bool, verdict: &Result<Verdict, ResolveError>) {
        match (verdict, is_right) {
            (Ok(Verdict::InTime), true) => self.committed += 1,
            (Ok(Verdict::InTime), false) => self.failed += 1,
            _ => self.unmade += 1,
        }
    }

    /// `cause`: what the wrong guess was about.
    pub(in crate::ahead) fn rolled_back(&mut self, cause: String, rollback: Rollback) {
        self.rollbacks_count += 1;
        *self.causes.entry(cause).or_default() += 1;
        if self.rollbacks.len() < Self::ROLLBACKS_MAX {
            self.rollbacks.push(rollback);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let injected: u64 = self.injected.values().sum();
        writeln!(
            f,
            "speculations       {injected} injected ({}), {} by programs",
            list(&self.injected),
            self.explicit
        )?;
        let (right, wrong, unmade) = (self.committed, self.failed, self.unmade);
        writeln!(f, "outcomes           {right} right, {wrong} wrong, {unmade} undone before they were known")?;
        writeln!(f, "open at once       {} at most", self.open_max)?;
        let mean = self.checkpoint_us.checked_div(self.checkpoints).unwrap_or(0);
        writeln!(f, "checkpoints        {}, {mean} µs each; refused: {}", self.checkpoints, list(&self.refused))?;
        writeln!(f, "not worth it       {} checkpoints would have cost more than the wait", self.not_worth)?;
        let undone: usize = self.rollbacks.iter().map(|rollback| rollback.operations).sum();
        let longest = self.rollbacks.iter().map(|rollback| rollback.us).max().unwrap_or(0);
        let widest = self.rollbacks.iter().map(|rollback| rollback.processes).max().unwrap_or(0);
        let causes = list(&self.causes);
        writeln!(f, "rollbacks          {} ({causes}), the longest {longest} µs", self.rollbacks_count)?;
        writeln!(f, "undone             {undone} operations; at most {widest} processes at once")?;
        writeln!(
            f,
            "speculative ends   {} processes, {} of them let go; {} without a question; {} killed from outside",
            self.held_exits, self.buried, self.unasked_ends, self.lost
        )?;
        writeln!(f, "speculative output {} bytes held, {} never shown", self.output_held, self.output_dropped)?;
        writeln!(f, "calls asked about  {}; {} gave a permit", self.asked, self.permits)?;
        writeln!(f, "input read again   {} bytes", self.input_again)?;
        write!(f, "waits              {}", list(&self.barriers))
    }
}
