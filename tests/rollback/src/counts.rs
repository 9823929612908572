//! What happened, summed up from the statistics of all runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

/// Sums for one rate.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    runs: u64,
    failures: u64,
    speculations: u64,
    wrong: u64,
    rollbacks: u64,
    processes: u64,
    operations: u64,
    ghosts: u64,
    dropped: u64,
}

/// By scenario and rate.
static ALL: Mutex<BTreeMap<(String, String), Counts>> = Mutex::new(BTreeMap::new());

/// Adds a run of `scenario` with this rate. `stats` is what `--stats=json:FILE` has written; a world that outlives its command writes nothing.
pub fn add(scenario: &str, rate: &str, stats: &Path, has_failed: bool) {
    let text = std::fs::read(stats).unwrap_or_default();
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    let ahead = &value["ahead"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let injected = ahead["injected"].as_object().map_or(0, |families| families.values().map(number).sum());
    let each =
        |name: &str| ahead["rollbacks"].as_array().map_or(0, |list| list.iter().map(|one| number(&one[name])).sum());
    let Ok(mut all) = ALL.lock() else { return };
    let counts = all.entry((scenario.to_owned(), format!("{rate:>3} %"))).or_default();
    counts.runs += 1;
    counts.failures += u64::from(has_failed);
    counts.speculations += injected;
    counts.wrong += number(&ahead["failed"]);
    counts.rollbacks += number(&ahead["rollbacks_count"]);
    counts.processes += each("processes");
    counts.operations += each("operations");
    counts.ghosts += number(&ahead["ghosts"]);
    counts.dropped += number(&ahead["output_dropped"]);
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.runs += other.runs;
        self.failures += other.failures;
        self.speculations += other.speculations;
        self.wrong += other.wrong;
        self.rollbacks += other.rollbacks;
        self.processes += other.processes;
        self.operations += other.operations;
        self.ghosts += other.ghosts;
        self.dropped += other.dropped;
    }
}

/// A row for each scenario, a column for each rate: runs, rollbacks, and how many runs differed.
pub fn by_scenario() -> String {
    let Ok(all) = ALL.lock() else { return String::new() };
    let rates: BTreeSet<&String> = all.keys().map(|(_, rate)| rate).collect();
    let scenarios: BTreeSet<&String> = all.keys().map(|(scenario, _)| scenario).collect();
    let heads: String = rates.iter().map(|rate| format!("{:>22}", format!("{} wrong", rate.trim()))).collect();
    let mut text = format!("{:<28}{heads}\n", "runs/rollbacks/differ");
    for scenario in scenarios {
        let _ = write!(text, "{scenario:<28}");
        for rate in &rates {
            let cell = all.get(&(scenario.clone(), (*rate).clone()));
            let cell = cell.map(|c| format!("{}/{}/{}", c.runs, c.rollbacks, c.failures));
            let _ = write!(text, "{:>22}", cell.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

/// The table of all rates.
pub fn table() -> String {
    let head =
        ["wrong", "runs", "failed", "speculations", "rollbacks", "processes", "operations", "ended", "never shown"];
    let mut text = head.map(|word| format!("{word:>13}")).concat() + "\n";
    let Ok(all) = ALL.lock() else { return text };
    let mut by_rate: BTreeMap<&String, Counts> = BTreeMap::new();
    for ((_, rate), counts) in all.iter() {
        *by_rate.entry(rate).or_default() += counts;
    }
    for (rate, c) in by_rate {
        let row = [c.runs, c.failures, c.speculations, c.rollbacks, c.processes, c.operations, c.ghosts, c.dropped];
        let _ = writeln!(text, "{rate:>13}{}", row.map(|number| format!("{number:>13}")).concat());
    }
    text + "processes: rolled back; operations: undone; ended: processes that ended on a guess; never shown: bytes"
}
