//! What came of many runs: tables for people, JSON for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{json, Value};

use crate::counts::Counts;
use crate::record::{Key, Outcome, Verdict};

/// Several runs together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    runs: u64,
    differ: u64,
    out_of_time: u64,
    counts: Counts,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.differ += u64::from(matches!(outcome.verdict, Verdict::Differs(_)));
        self.out_of_time += u64::from(matches!(outcome.verdict, Verdict::OutOfTime(_)));
        self.counts += &outcome.counts;
    }

    fn json(&self) -> Value {
        json!({"runs": self.runs, "differ": self.differ, "out_of_time": self.out_of_time, "counts": self.counts})
    }
}

/// The runs that were made, summed up.
#[derive(Debug)]
pub struct Summary<'a> {
    made: &'a [(Key, &'a Outcome)],
    /// How many were not made yet.
    left: usize,
}

impl<'a> Summary<'a> {
    /// Of these runs; `left` more are to be made.
    pub fn new(made: &'a [(Key, &'a Outcome)], left: usize) -> Summary<'a> {
        Summary { made, left }
    }

    /// Whether all that were made left the same.
    pub fn is_clean(&self) -> bool {
        self.made.iter().all(|(_, outcome)| outcome.verdict == Verdict::Same)
    }

    fn sums<K: Ord>(&self, by: impl Fn(&Key) -> K) -> BTreeMap<K, Sum> {
        let mut sums: BTreeMap<K, Sum> = BTreeMap::new();
        for (key, outcome) in self.made {
            sums.entry(by(key)).or_default().add(outcome);
        }
        sums
    }

    /// A row for each scenario, a column for each rate.
    pub fn by_scenario(&self) -> String {
        let sums = self.sums(|key| (kin(&key.name).to_owned(), key.cell.rate));
        let rates: BTreeSet<u8> = sums.keys().map(|(_, rate)| *rate).collect();
        let names: BTreeSet<&String> = sums.keys().map(|(name, _)| name).collect();
        let heads: String = rates.iter().map(|rate| format!("{:>22}", format!("{rate} % wrong"))).collect();
        let mut text = format!("{:<28}{heads}\n", "runs/rollbacks/not the same");
        for name in names {
            let _ = write!(text, "{name:<28}");
            for &rate in &rates {
                let sum = sums.get(&(name.clone(), rate));
                let sum = sum.map(|s| format!("{}/{}/{}", s.runs, s.counts.rollbacks, s.differ + s.out_of_time));
                let _ = write!(text, "{:>22}", sum.unwrap_or_default());
            }
            text.push('\n');
        }
        text
    }

    /// A row for each rate.
    pub fn by_rate(&self) -> String {
        let heads = [
            "rate",
            "runs",
            "differ",
            "out of time",
            "guesses",
            "wrong",
            "rollbacks",
            "processes",
            "operations",
            "ended",
            "never shown",
        ];
        let mut text = heads.map(|word| format!("{word:>13}")).concat() + "\n";
        for (rate, s) in self.sums(|key| key.cell.rate) {
            let c = s.counts;
            let row = [
                s.runs,
                s.differ,
                s.out_of_time,
                c.guesses,
                c.wrong,
                c.rollbacks,
                c.processes,
                c.operations,
                c.held_exits,
                c.never_shown,
            ];
            let _ = writeln!(text, "{:>13}{}", format!("{rate} %"), row.map(|number| format!("{number:>13}")).concat());
        }
        text
            + "processes: rolled back; operations: undone; ended: processes that ended on a guess; never shown: bytes\n"
    }

    /// A line for each run that was not the same.
    pub fn problems(&self) -> String {
        let found = self.made.iter().filter(|(_, outcome)| outcome.verdict != Verdict::Same);
        let line = |(key, outcome): &(Key, &Outcome)| {
            format!("{} --inject={} --seed={}: {}\n", key.name, key.cell.inject, key.cell.seed, outcome.verdict.word())
        };
        found.map(line).collect()
    }

    /// How far it came.
    pub fn progress(&self) -> String {
        format!("{} of {} runs were made\n", self.made.len(), self.made.len() + self.left)
    }

    /// All of it. `version` stands for the program under test.
    pub fn json(&self, version: &str) -> Value {
        let sums = self.sums(|key| key.cell.rate);
        let rates: BTreeMap<String, Value> = sums.iter().map(|(rate, sum)| (rate.to_string(), sum.json())).collect();
        let sums = self.sums(|key| kin(&key.name).to_owned());
        let scenarios: BTreeMap<&String, Value> = sums.iter().map(|(name, sum)| (name, sum.json())).collect();
        let listed = |is: fn(&Verdict) -> bool| -> Vec<Value> {
            let found = self.made.iter().filter(|(_, outcome)| is(&outcome.verdict));
            let shown = |(key, outcome): &(Key, &Outcome)| {
                json!({"name": key.name, "rate": key.cell.rate, "inject": key.cell.inject, "seed": key.cell.seed,
                    "problem": outcome.verdict.problem()})
            };
            found.map(shown).collect()
        };
        json!({
            "version": version,
            "made": self.made.len(),
            "left": self.left,
            "rates": rates,
            "scenarios": scenarios,
            "differences": listed(|verdict| matches!(verdict, Verdict::Differs(_))),
            "out_of_time": listed(|verdict| matches!(verdict, Verdict::OutOfTime(_))),
        })
    }
}

/// The batches of random programs are one.
fn kin(name: &str) -> &str {
    match name.strip_prefix("programs_") {
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => "random programs",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::of_batch;

    fn key(name: &str, batch: u64) -> Key {
        Key { name: name.to_owned(), cell: of_batch(batch), source: String::new() }
    }

    #[test]
    fn a_difference_is_not_a_run_out_of_time() {
        let counts = Counts { wrong: 2, rollbacks: 1, never_shown: 7, ..Counts::default() };
        let outcome = |verdict| Outcome { counts, verdict };
        let (same, late) = (outcome(Verdict::Same), outcome(Verdict::OutOfTime("so far".to_owned())));
        let differs = outcome(Verdict::Differs("how".to_owned()));
        let made =
            [(key("programs_0001", 1), &same), (key("programs_0002", 2), &differs), (key("bash_jobs", 2), &late)];
        let summary = Summary::new(&made, 4);
        assert!(!summary.is_clean() && Summary::new(&made[..1], 0).is_clean());
        let json = summary.json("x");
        assert_eq!((&json["made"], &json["left"]), (&json!(3), &json!(4)));
        assert_eq!(json["differences"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["out_of_time"][0]["name"], "bash_jobs");
        assert_eq!(json["rates"]["50"]["counts"]["never_shown"], 14);
        assert_eq!(json["scenarios"]["random programs"]["runs"], 2);
        assert!(summary.problems().contains("programs_0002 --inject=all:50%:1 --seed=2: DIFFERS"));
        assert!(summary.by_scenario().contains("random programs") && summary.by_rate().contains("50 %"));
    }
}
