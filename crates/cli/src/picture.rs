//! Pictures of a run: who guessed what, who depended on whom, and what was taken back. [`chart`] has it over time, each
//! process a lane; [`graph`] has who depended on whom, as Graphviz reads it.

mod chart;
mod graph;
mod scale;

pub use chart::chart;
pub use graph::graph;

use supervisor::{History, Life, Outcome};

/// Where in the history the process is that had this id at this time.
fn life_at(history: &History, pid: i32, at_us: u64) -> Option<usize> {
    history.lives.iter().rposition(|life| life.pid == pid && life.since_us <= at_us)
}

/// A process, for people.
fn title(life: &Life) -> String {
    match life.name.as_str() {
        "" => format!("process {}", life.pid),
        name => format!("{name} {}", life.pid),
    }
}

/// An outcome, for people.
fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Open => "still open at the end",
        Outcome::Right => "right",
        Outcome::Wrong => "wrong",
        Outcome::Unmade => "taken back before it was known",
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use supervisor::{Flow, Guess, Taken, TakenBack};

    pub fn life(pid: i32, name: &str, since_us: u64, until_us: Option<u64>) -> Life {
        Life { pid, name: name.to_owned(), since_us, until_us, ahead_us: vec![(since_us, until_us)] }
    }

    /// A shell that guesses wrong, and a child that it wrote to; later another process with the child's id.
    pub fn history() -> History {
        History {
            lives: vec![
                life(7, "bash", 0, None),
                life(8, "sort \"<&>\"", 10, Some(900)),
                life(8, "cat", 1000, Some(1100)),
            ],
            guesses: vec![
                Guess { pid: 7, why: "open".into(), since_us: 0, until_us: Some(500), outcome: Outcome::Wrong },
                Guess { pid: 7, why: "stat".into(), since_us: 20, until_us: Some(500), outcome: Outcome::Unmade },
                Guess { pid: 8, why: "read".into(), since_us: 1010, until_us: Some(1090), outcome: Outcome::Right },
                Guess { pid: 7, why: "begin".into(), since_us: 1050, until_us: None, outcome: Outcome::Open },
            ],
            checkpoints: vec![Taken { pid: 7, at_us: 1, cost_us: 100 }, Taken { pid: 8, at_us: 30, cost_us: 90 }],
            rollbacks: vec![TakenBack {
                at_us: 500,
                cost_us: 70,
                why: "open".into(),
                cause: 7,
                pids: vec![7, 8],
                operations: 3,
            }],
            flows: vec![
                Flow { at_us: 30, from: 7, to: 8, via: "pipe 12".into() },
                Flow { at_us: 40, from: 7, to: 8, via: "pipe 12".into() },
                Flow { at_us: 1050, from: 8, to: 7, via: "its end".into() },
            ],
            ..History::default()
        }
    }

    #[test]
    fn a_pid_is_the_process_that_had_it_last() {
        let history = history();
        assert_eq!(life_at(&history, 8, 30), Some(1));
        assert_eq!(life_at(&history, 8, 1050), Some(2));
        assert_eq!(life_at(&history, 9, 30), None);
    }
}
