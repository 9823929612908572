//! What happened, summed up from the statistics of all runs.

use std::collections::BTreeMap;
use std::fmt::Write;
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

static ALL: Mutex<BTreeMap<String, Counts>> = Mutex::new(BTreeMap::new());

/// Adds a run with this rate. `stats` is what `--stats=json:FILE` has written; a world that outlives its command writes nothing.
pub fn add(rate: &str, stats: &Path, has_failed: bool) {
    let text = std::fs::read(stats).unwrap_or_default();
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    let ahead = &value["ahead"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let injected = ahead["injected"].as_object().map_or(0, |families| families.values().map(number).sum());
    let each =
        |name: &str| ahead["rollbacks"].as_array().map_or(0, |list| list.iter().map(|one| number(&one[name])).sum());
    let Ok(mut all) = ALL.lock() else { return };
    let counts = all.entry(format!("{rate:>3} %")).or_default();
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

/// The table of all rates.
pub fn table() -> String {
    let head =
        ["wrong", "runs", "failed", "speculations", "rollbacks", "processes", "operations", "ended", "never shown"];
    let mut text = head.map(|word| format!("{word:>13}")).concat() + "\n";
    let Ok(all) = ALL.lock() else { return text };
    for (rate, c) in all.iter() {
        let row = [c.runs, c.failures, c.speculations, c.rollbacks, c.processes, c.operations, c.ghosts, c.dropped];
        let _ = writeln!(text, "{rate:>13}{}", row.map(|number| format!("{number:>13}")).concat());
    }
    text + "processes: rolled back; operations: undone; ended: processes that ended on a guess; never shown: bytes"
}
