//! Which guesses go wrong, how often, and by which chance; and in which order everything is run.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// One way to run a program inside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// How likely a guess is wrong, in per cent.
    pub rate: u8,
    /// What `--inject` says: which calls are guessed, that rate, and the milliseconds until it is known.
    pub inject: String,
    /// Where chance begins.
    pub seed: u64,
}

impl Cell {
    /// What stands between `speculator run` and the command.
    pub fn options(&self) -> Vec<String> {
        let mut options = vec![format!("--inject={}", self.inject), format!("--seed={}", self.seed)];
        options.extend(self.asks().then(|| "--ahead=ask".to_owned()));
        options
    }

    /// Half of the seeds ask about each call, in each way of injection.
    fn asks(&self) -> bool {
        self.seed / WAYS % 2 == 1
    }
}

/// Ways of injection that take turns.
const WAYS: u64 = 8;

/// Wrong guesses, per cent.
const RATES: [u8; 4] = [0, 1, 10, 50];

/// Milliseconds until it is known whether a guess was right.
const DELAYS_MS: [u8; 3] = [1, 2, 3];

/// All calls, with one rate.
fn all_calls(rate: u8, seed: u64) -> Cell {
    let delay = DELAYS_MS[seed as usize % DELAYS_MS.len()];
    Cell { rate, inject: format!("all:{rate}%:{delay}"), seed }
}

/// Calls that change something, or wait for a child: where no other is guessed, those that look at files have permits
/// and are not asked about.
fn changing_calls(rate: u8, seed: u64) -> Cell {
    const FAMILIES: [&str; 6] = ["rename", "unlink", "mkdir", "fork", "wait", "write"];
    let delay = DELAYS_MS[seed as usize % DELAYS_MS.len()];
    // Where writes are not guessed either, those to pipes, sockets and files have permits as well.
    let families = if (seed / 2).is_multiple_of(2) { &FAMILIES[..] } else { &FAMILIES[..5] };
    let inject: Vec<String> = families.iter().map(|family| format!("{family}:{rate}%:{delay}")).collect();
    Cell { rate, inject: inject.join(","), seed }
}

/// Half of the seeds guess at all calls, so that none has a permit.
fn calls(rate: u8, seed: u64) -> Cell {
    match seed % 2 {
        0 => all_calls(rate, seed),
        _ => changing_calls(rate, seed),
    }
}

/// The runs of one scenario in the short form.
pub fn short(is_heavy: bool) -> Vec<Cell> {
    match is_heavy {
        true => vec![all_calls(1, 1)],
        false => vec![all_calls(10, 1), all_calls(50, 2), changing_calls(10, 3)],
    }
}

/// How a batch of random programs runs: the ways take turns.
pub fn of_batch(batch: u64) -> Cell {
    let (rate, inject) = match batch % WAYS {
        0 => (10, "all:10%:1"),
        1 => (10, "write:10%:1,fork:10%:1,wait:10%:1,unlink:10%:1,rename:10%:1"),
        2 => (50, "all:50%:1"),
        3 => (1, "all:1%:3"),
        4 => (10, "fork:10%:4,wait:10%:4,close:10%:4"),
        5 => (10, "read:10%:4,write:10%:4"),
        6 => (50, "read:50%:2,fork:50%:2,wait:50%:2"),
        _ => (10, "stat:10%:8,close:10%:8,wait:10%:8"),
    };
    Cell { rate, inject: inject.to_owned(), seed: batch }
}

/// How much is run in full.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// The first seed.
    pub first_seed: u64,
    /// Seeds for each rate and scenario.
    pub seeds: u64,
    /// Batches of random programs.
    pub batches: u64,
}

/// One seed: everything is tried a little before anything is tried more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The runs of each scenario.
    pub cells: Vec<Cell>,
    /// This round's share of the batches.
    pub batches: Range<u64>,
}

impl Matrix {
    /// One round for each seed.
    pub fn rounds(&self) -> Vec<Round> {
        let count = self.seeds.max(1);
        let share = |round: u64| self.batches * round / count;
        let cells = |round: u64| match self.seeds {
            0 => Vec::new(),
            _ => RATES.iter().map(|&rate| calls(rate, self.first_seed + round)).collect(),
        };
        (0..count).map(|round| Round { cells: cells(round), batches: share(round)..share(round + 1) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_meets_every_seed_and_every_batch_is_run_once() {
        let rounds = Matrix { first_seed: 5, seeds: 3, batches: 10 }.rounds();
        let cells: Vec<&Cell> = rounds.iter().flat_map(|round| &round.cells).collect();
        assert_eq!(cells.len(), RATES.len() * 3);
        assert_eq!(cells[5], &Cell { rate: 1, inject: "all:1%:1".to_owned(), seed: 6 });
        let batches: Vec<u64> = rounds.into_iter().flat_map(|round| round.batches).collect();
        assert_eq!(batches, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn without_seeds_there_are_still_programs() {
        let rounds = Matrix { first_seed: 1, seeds: 0, batches: 3 }.rounds();
        assert_eq!(rounds, [Round { cells: vec![], batches: 0..3 }]);
    }
}
