//! What can run natively and inside: scenarios, programs at a terminal, batches of random programs.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use transparency::terminal::TerminalScenario;
use transparency::{terminal_scenarios, Scenario, Settings};

use crate::journal::digest;
use crate::matrix::{self, Cell, Round};
use crate::record::Outcome;
use crate::{at_terminal, check, programs, scenarios};

/// Hears of each run that was made, and says whether there are to be more.
pub type Tell<'a> = &'a mut dyn FnMut(&Cell, Outcome) -> ControlFlow<()>;

/// Something that runs natively once, and then inside in several ways.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A program or script.
    Scenario(Scenario),
    /// A program that owns a terminal.
    Terminal(TerminalScenario),
    /// The batch of this number of random programs.
    Programs(u64),
}

impl Subject {
    /// All scenarios, those at a terminal last.
    pub fn scenarios(settings: &Settings) -> Result<Vec<Subject>, String> {
        let mut all: Vec<Subject> = scenarios::all(settings)?.into_iter().map(Subject::Scenario).collect();
        all.extend(terminal_scenarios::all().into_iter().map(Subject::Terminal));
        Ok(all)
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Subject::Scenario(scenario) => scenario.name.clone(),
            Subject::Terminal(scenario) => scenario.name.to_owned(),
            Subject::Programs(batch) => format!("programs_{batch:04}"),
        }
    }

    /// Under what it is summed up.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::Scenario(_) => "scenario",
            Subject::Terminal(_) => "terminal",
            Subject::Programs(_) => "random",
        }
    }

    /// Why it cannot run here, if it cannot.
    pub fn hindrance(&self, settings: &Settings) -> Option<String> {
        match self {
            Subject::Scenario(scenario) => scenario.hindrance(settings),
            Subject::Terminal(scenario) => scenario.hindrance(),
            Subject::Programs(_) => None,
        }
    }

    /// Whether nothing else should run beside it: it says so, or it takes all that the machine has.
    pub fn is_alone(&self) -> bool {
        match self {
            Subject::Scenario(scenario) => scenario.directives.has("alone") || scenarios::is_heavy(scenario),
            Subject::Terminal(_) | Subject::Programs(_) => false,
        }
    }

    /// Stands for what is run.
    pub fn source(&self, settings: &Settings) -> Result<String, String> {
        let file = |path: &Path| fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
        Ok(digest(&match self {
            Subject::Scenario(scenario) => file(&scenario.source)?,
            Subject::Terminal(scenario) => format!("{scenario:?}").into_bytes(),
            Subject::Programs(batch) => {
                [programs::interpreter_text(settings)?, programs::script(*batch).into_bytes()].concat()
            }
        }))
    }

    /// Its runs in the short form.
    pub fn short(&self) -> Vec<Cell> {
        match self {
            Subject::Scenario(scenario) => matrix::short(scenarios::is_heavy(scenario)),
            Subject::Terminal(_) => matrix::short(true),
            Subject::Programs(batch) => vec![matrix::of_batch(*batch)],
        }
    }

    /// Its runs in this round.
    pub fn in_round(&self, round: &Round) -> Vec<Cell> {
        match self {
            Subject::Scenario(_) | Subject::Terminal(_) => round.cells.clone(),
            Subject::Programs(batch) => vec![matrix::of_batch(*batch)],
        }
    }

    /// Runs it natively, and inside as each of `cells` says. An error says why that could not be tried.
    pub fn run(&self, settings: &Settings, cells: &[Cell], tell: Tell) -> Result<(), String> {
        match self {
            Subject::Scenario(scenario) => check::check(scenario, settings, cells, tell),
            Subject::Terminal(scenario) => at_terminal::check(scenario, settings, cells, tell),
            Subject::Programs(batch) => programs::check(*batch, settings, cells, tell),
        }
    }
}
