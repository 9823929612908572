//! What came of a run.

use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::matrix::Cell;

/// Which run it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The scenario's, or the batch's.
    pub name: String,
    /// In which way it ran.
    pub cell: Cell,
    /// Stands for what was run: another program of the same name is another run.
    pub source: String,
}

/// How it compares with the native run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It left the same.
    Same,
    /// It left something else: what, and how to see it again.
    Differs(String),
    /// It had not ended when its time was over, so that nothing is known.
    OutOfTime(String),
}

impl Verdict {
    /// What there is to say, if it is not the same.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Verdict::Same => None,
            Verdict::Differs(problem) | Verdict::OutOfTime(problem) => Some(problem),
        }
    }

    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Differs(_) => "DIFFERS",
            Verdict::OutOfTime(_) => "OUT OF TIME",
        }
    }
}

/// A run that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What happened in it.
    pub counts: Counts,
    /// How it compares.
    pub verdict: Verdict,
}
