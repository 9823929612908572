//! Which guesses go wrong, how often, and by which chance.

/// One way to run a program inside.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Which calls are guessed, and how likely a guess is wrong, in per cent.
    pub rate: &'static str,
    /// What `--inject` says.
    pub inject: String,
    /// Where chance begins.
    pub seed: u64,
}

/// How much is run.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Seeds for each rate and scenario; none: the short form.
    pub seeds: u64,
    /// Random programs.
    pub programs: u64,
    /// The first seed.
    pub first_seed: u64,
}

/// Wrong guesses, per cent.
const RATES: [&str; 4] = ["0", "1", "10", "50"];

/// Milliseconds until it is known whether a guess was right.
const DELAYS_MS: [&str; 3] = ["1", "2", "3"];

impl Matrix {
    /// Reads `ROLLBACK_SEEDS`, `ROLLBACK_PROGRAMS`, `ROLLBACK_FIRST_SEED`.
    pub fn from_environment() -> Matrix {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Matrix {
            seeds: number("ROLLBACK_SEEDS").unwrap_or(0),
            programs: number("ROLLBACK_PROGRAMS").unwrap_or(100),
            first_seed: number("ROLLBACK_FIRST_SEED").unwrap_or(1),
        }
    }

    /// The runs of one scenario.
    pub fn cells(&self, is_heavy: bool) -> Vec<Cell> {
        match (self.seeds, is_heavy) {
            (0, true) => vec![cell("1", self.first_seed)],
            (0, false) => vec![cell("10", self.first_seed), cell("50", self.first_seed + 1)],
            (seeds, _) => {
                let seeds = self.first_seed..self.first_seed + seeds;
                RATES.iter().flat_map(|rate| seeds.clone().map(|seed| cell(rate, seed))).collect()
            }
        }
    }
}

/// All calls, with one rate.
pub fn cell(rate: &'static str, seed: u64) -> Cell {
    let delay = DELAYS_MS[seed as usize % DELAYS_MS.len()];
    Cell { rate, inject: format!("all:{rate}%:{delay}"), seed }
}

impl Cell {
    /// What stands between `speculator run` and the command.
    pub fn options(&self) -> Vec<String> {
        vec![format!("--inject={}", self.inject), format!("--seed={}", self.seed)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_meets_every_seed() {
        let matrix = Matrix { seeds: 3, programs: 0, first_seed: 5 };
        let cells = matrix.cells(false);
        assert_eq!(cells.len(), RATES.len() * 3);
        assert_eq!(cells[4], Cell { rate: "1", inject: "all:1%:1".to_owned(), seed: 6 });
    }
}
