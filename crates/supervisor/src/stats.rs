//! What `--stats` shows.

use crate::spent::{self, Spent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Samples, summed up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// How many.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// 99 of 100 are not above it.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

/// Samples that are being collected, microseconds. Beyond a million the distribution is that of the first million; the
/// count and the maximum stay exact.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    values: Vec<u32>,
    count: u64,
    max: u64,
}

impl Samples {
    const KEPT_MAX: usize = 1_000_000;

    pub fn add(&mut self, duration: Duration) {
        let us = duration.as_micros() as u64;
        self.count += 1;
        self.max = self.max.max(us);
        if self.values.len() < Self::KEPT_MAX {
            self.values.push(u32::try_from(us).unwrap_or(u32::MAX));
        }
    }

    pub fn distribution(&self) -> Distribution {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        let at = |share: f64| {
            sorted
                .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0)
        };
        Distribution { count: self.count, p50: at(0.5).into(), p99: at(0.99).into(), max: self.max }
    }
}

/// What happened in a world.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// From COMMAND's start to the end of the last process and its commit, microseconds.
    pub wall_us: u64,
    /// Processes that lived.
    pub processes: u64,
    /// Threads that lived.
    pub threads: u64,
    /// System calls that went through the agent.
    pub syscalls_tracked: u64,
    /// Stops of any thread for any reason.
    pub tracee_stops: u64,
    /// Stops by reason.
    pub stops: BTreeMap<String, u64>,
    /// Call sites that were mapped patched, over all programs started.
    pub patched_sites: u64,
    /// Call sites that stopped.
    pub unpatched_sites: u64,
    /// Barriers by system call.
    pub barriers: BTreeMap<String, u64>,
    /// Waits for a commit by system call.
    #[serde(default)]
    pub waits: BTreeMap<String, u64>,
    /// Commits by cause.
    pub commits: BTreeMap<String, u64>,
    /// Commits for which the flush of one file was enough.
    #[serde(default)]
    pub commits_of_log: u64,
    /// How long commits took, microseconds.
    pub commit_us: Distribution,
    /// How long output was held, microseconds.
    pub output_hold_us: Distribution,
    /// Output that was held, bytes.
    pub output_bytes_held: u64,
    /// fsyncs, in all spellings, that returned at once.
    pub fsyncs_elided: u64,
    /// fsyncs in whose place the file system was committed.
    #[serde(default)]
    pub fsyncs_committed: u64,
    /// Writes to a log that flushed it before they returned, in the place of the fsync that follows.
    #[serde(default)]
    pub writes_flushed: u64,
    /// Bytes written below paths where nothing is waited for.
    #[serde(default)]
    pub volatile_bytes: u64,
    /// Files that were opened there.
    #[serde(default)]
    pub volatile_files: u64,
    /// Where the time of the event loop went, by event.
    #[serde(default)]
    pub spent: BTreeMap<String, Spent>,
    /// Full speculation.
    #[serde(default)]
    pub ahead: crate::ahead::Report,
}

/// Counts by name, in one line.
pub(crate) fn list(counts: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |d: &Distribution| format!("{} (p50 {} µs, p99 {} µs, max {} µs)", d.count, d.p50, d.p99, d.max);
        writeln!(f, "wall time          {:.3} s", self.wall_us as f64 / 1e6)?;
        writeln!(f, "processes          {}, threads {}", self.processes, self.threads)?;
        writeln!(f, "system calls       {} tracked", self.syscalls_tracked)?;
        writeln!(f, "stops              {} ({})", self.tracee_stops, list(&self.stops))?;
        writeln!(f, "time at stops      {}", spent::longest(&self.spent))?;
        writeln!(f, "call sites         {} patched, {} unpatched", self.patched_sites, self.unpatched_sites)?;
        writeln!(f, "barriers           {}", list(&self.barriers))?;
        writeln!(f, "waits              {}", list(&self.waits))?;
        writeln!(f, "commits            {}: {}", list(&self.commits), times(&self.commit_us))?;
        writeln!(f, "commits of a log   {}", self.commits_of_log)?;
        writeln!(f, "output held        {} bytes: {}", self.output_bytes_held, times(&self.output_hold_us))?;
        writeln!(f, "fsyncs elided      {}", self.fsyncs_elided)?;
        writeln!(f, "fsyncs as commits  {}, with their writes {}", self.fsyncs_committed, self.writes_flushed)?;
        write!(f, "not waited for     {} bytes in {} files", self.volatile_bytes, self.volatile_files)
    }
}
