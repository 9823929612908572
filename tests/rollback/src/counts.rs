//! What happened in a run, from its statistics.

use std::ops::AddAssign;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What happened in one run, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Calls that were guessed.
    pub guesses: u64,
    /// Guesses that failed.
    pub wrong: u64,
    /// Rollbacks.
    pub rollbacks: u64,
    /// Processes in all rollbacks.
    pub processes: u64,
    /// Operations that were undone.
    pub operations: u64,
    /// Processes that ended on a guess.
    pub held_exits: u64,
    /// Bytes of failed guesses that were never shown.
    pub never_shown: u64,
}

impl Counts {
    /// Reads what `--stats=json:FILE` has written; a world that outlives its command writes nothing, which counts
    /// nothing.
    pub fn read(stats: &Path) -> Counts {
        let text = std::fs::read(stats).unwrap_or_default();
        Counts::of(&serde_json::from_slice(&text).unwrap_or_default())
    }

    fn of(stats: &Value) -> Counts {
        let ahead = &stats["ahead"];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let injected = ahead["injected"].as_object().map_or(0, |families| families.values().map(number).sum());
        let each = |name: &str| {
            ahead["rollbacks"].as_array().map_or(0, |list| list.iter().map(|one| number(&one[name])).sum())
        };
        Counts {
            guesses: injected,
            wrong: number(&ahead["failed"]),
            rollbacks: number(&ahead["rollbacks_count"]),
            processes: each("processes"),
            operations: each("operations"),
            held_exits: number(&ahead["held_exits"]),
            never_shown: number(&ahead["output_dropped"]),
        }
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.guesses += other.guesses;
        self.wrong += other.wrong;
        self.rollbacks += other.rollbacks;
        self.processes += other.processes;
        self.operations += other.operations;
        self.held_exits += other.held_exits;
        self.never_shown += other.never_shown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_and_summed() {
        let stats = serde_json::json!({"ahead": {
            "injected": {"read": 3, "fork": 2}, "failed": 2, "rollbacks_count": 2, "held_exits": 1, "output_dropped": 40,
            "rollbacks": [{"processes": 1, "operations": 4}, {"processes": 3, "operations": 0}],
        }});
        let once = Counts::of(&stats);
        let expected =
            Counts { guesses: 5, wrong: 2, rollbacks: 2, processes: 4, operations: 4, held_exits: 1, never_shown: 40 };
        assert_eq!(once, expected);
        let mut twice = once;
        twice += &once;
        assert_eq!((twice.guesses, twice.never_shown), (10, 80));
        assert_eq!(Counts::read(Path::new("")), Counts::default());
    }
}
