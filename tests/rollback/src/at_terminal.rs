//! One program at a terminal: natively once, then inside in several ways.

use std::fs;

use transparency::terminal::{difference, screens, Problem, TerminalScenario};
use transparency::Settings;

use crate::check::{inside, Stats};
use crate::matrix::Cell;
use crate::record::{Outcome, Verdict};
use crate::subject::Tell;

/// Runs `scenario` natively, and inside as each of `cells` says.
pub fn check(scenario: &TerminalScenario, settings: &Settings, cells: &[Cell], tell: Tell) -> Result<(), String> {
    fs::create_dir_all(&settings.runs).map_err(|error| format!("cannot make {}: {error}", settings.runs.display()))?;
    let native = screens(scenario, settings, &[]).map_err(|problem| format!("natively: {problem}"))?;
    for cell in cells {
        let stats = Stats::of(scenario.name, settings);
        let prefix = inside(settings, cell, &stats);
        let found = screens(scenario, settings, &prefix);
        let shown = |problem: &str| format!("  {} {}\n{problem}", prefix.join(" "), scenario.command.join(" "));
        let verdict = match found {
            Ok(found) => difference(&native, &found).map_or(Verdict::Same, |how| Verdict::Differs(shown(&how))),
            Err(Problem::OutOfTime(problem)) => Verdict::OutOfTime(shown(&problem)),
            Err(Problem::Other(problem)) => return Err(problem),
        };
        if tell(cell, Outcome { counts: stats.take(), verdict }).is_break() {
            break;
        }
    }
    Ok(())
}
