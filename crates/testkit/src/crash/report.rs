//! What the cuts showed.

use serde::Serialize;

use super::cut::{Cut, CutPlan};
use super::log::Log;

/// A promise not kept, as seen by a checker after one cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "promise", content = "what")]
pub enum Violation {
    /// *Durable before observed*: somebody saw output whose cause is not there.
    NotDurable(String),
    /// *Ordered*: a later change is there without an earlier one.
    OutOfOrder(String),
    /// The file system does not mount, or what is read from it is garbage or an error.
    Corrupt(String),
}

/// What one cut showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The cut.
    pub cut: Cut,
    /// How many messages had been seen.
    pub observed: usize,
    /// Empty when all promises were kept.
    pub violations: Vec<Violation>,
}

/// A cut that showed a violation, enough to look at it again (with the same log).
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// The moment.
    pub at: u64,
    /// Writes and flushes certainly on the platter.
    pub certain: usize,
    /// Further writes, or parts, that reached it.
    pub kept: usize,
    /// Messages seen by then.
    pub observed: usize,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

/// Counts over all cuts of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// What the file system was.
    pub configuration: String,
    /// What ran.
    pub workload: String,
    /// Which cuts.
    pub seed: u64,
    /// How many.
    pub cut_points: usize,
    /// Cuts after which observed output had no cause on the disk.
    pub not_durable: usize,
    /// Cuts after which something later was there without something earlier.
    pub out_of_order: usize,
    /// Cuts after which the file system did not mount, or showed garbage or errors.
    pub corrupt: usize,
    /// Cuts with none of these.
    pub clean: usize,
    /// Size of the log.
    pub writes: usize,
    /// Size of the log.
    pub flushes: usize,
    /// Size of the log.
    pub messages: usize,
    /// How long the workload ran, s.
    pub run_s: f64,
    /// How long the cuts took, s.
    pub replay_s: f64,
    /// Some of the violations, of every kind.
    pub examples: Vec<Example>,
}

const EXAMPLES_MAX: usize = 3;

impl Report {
    /// Counts; names and times are the caller's to fill in.
    pub fn new(log: &Log, plan: &CutPlan, outcomes: &[Outcome]) -> Report {
        let count = |is: fn(&Violation) -> bool| {
            let has = |outcome: &&Outcome| outcome.violations.iter().any(is);
            outcomes.iter().filter(has).count()
        };
        let kinds: [fn(&Violation) -> bool; 3] = [
            |violation| matches!(violation, Violation::NotDurable(_)),
            |violation| matches!(violation, Violation::OutOfOrder(_)),
            |violation| matches!(violation, Violation::Corrupt(_)),
        ];
        let mut examples = Vec::new();
        for is in kinds {
            let has = |outcome: &&Outcome| outcome.violations.iter().any(is);
            let some = outcomes.iter().filter(has).take(EXAMPLES_MAX);
            examples.extend(some.map(example));
        }
        Report {
            seed: plan.seed,
            cut_points: outcomes.len(),
            not_durable: count(kinds[0]),
            out_of_order: count(kinds[1]),
            corrupt: count(kinds[2]),
            clean: outcomes.iter().filter(|o| o.violations.is_empty()).count(),
            writes: log.writes(),
            flushes: log.flushes(),
            messages: log.messages.len(),
            examples,
            ..Report::default()
        }
    }

    /// Whether any cut showed a violation.
    pub fn has_violations(&self) -> bool {
        self.clean < self.cut_points
    }
}

fn example(outcome: &Outcome) -> Example {
    Example {
        at: outcome.cut.at,
        certain: outcome.cut.certain,
        kept: outcome.cut.kept.len(),
        observed: outcome.observed,
        violations: outcome.violations.clone(),
    }
}
