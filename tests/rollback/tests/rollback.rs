//! One test for each scenario and each batch of random programs: `cargo test -p rollback --test rollback -- NAME`.
//!
//! `ROLLBACK_SEEDS` seeds for each rate (none: the short form), `ROLLBACK_PROGRAMS` random programs, `ROLLBACK_FIRST_SEED`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use rollback::leftovers::Before;
use rollback::matrix::Matrix;
use rollback::{check, counts, programs, scenarios};
use transparency::{run, terminal, terminal_scenarios, Scenario, Settings};

fn main() -> ExitCode {
    run::close_inherited_on_exec();
    let arguments = Arguments::from_args();
    let mut settings = Settings::from_environment();
    settings.runs = std::env::temp_dir().join(format!("speculator-rollback-{}", std::process::id()));
    // A wrong guess is made again, after its delay: some programs make many thousands.
    settings.patience = 4;
    let settings = Arc::new(settings);
    let matrix = Matrix::from_environment();
    let before = Before::look();
    let found = match scenarios::all(&settings) {
        Ok(found) => found,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let turn = Arc::new(RwLock::new(()));
    let mut trials: Vec<Trial> = found.into_iter().map(|one| trial(one, &settings, &matrix, &turn)).collect();
    trials.extend(terminal_scenarios::all().into_iter().map(|one| terminal_trial(one, &settings, &matrix)));
    trials.extend((0..matrix.programs.div_ceil(programs::BATCH)).map(|batch| programs_trial(batch, &settings)));
    if matrix.seeds == 0 && arguments.filter.is_none() {
        trials.retain(|trial| trial.kind() == "random" || scenarios::SHORT.contains(&trial.name()));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if arguments.list {
        return conclusion.exit_code();
    }
    println!("{}\n{}", counts::by_scenario(), counts::table());
    // Not empty if something failed: what it left is kept.
    let _ = std::fs::remove_dir(&settings.runs);
    let _ = std::fs::remove_dir(check::in_memory());
    if let Err(problem) = before.compare() {
        println!("{problem}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Told at once: a long run need not end before its first failure is known.
fn told(name: &str, result: Result<(), String>) -> Result<(), Failed> {
    result.map_err(|problem| {
        eprintln!("\n{name}:\n{problem}");
        Failed::without_message()
    })
}

fn trial(scenario: Scenario, settings: &Arc<Settings>, matrix: &Matrix, turn: &Arc<RwLock<()>>) -> Trial {
    let (settings, turn) = (Arc::clone(settings), Arc::clone(turn));
    let cells = matrix.cells(scenarios::is_heavy(&scenario));
    let hindrance = scenario.hindrance(&settings);
    if let Some(reason) = &hindrance {
        eprintln!("{}: left out: {reason}", scenario.name);
    }
    let name = scenario.name.clone();
    let run = move || {
        if scenario.directives.has("alone") {
            let _alone = turn.write();
            return told(&scenario.name, check::check(&scenario, &settings, &cells));
        }
        let _with_others = turn.read();
        told(&scenario.name, check::check(&scenario, &settings, &cells))
    };
    Trial::test(name, run).with_kind("scenario").with_ignored_flag(hindrance.is_some())
}

fn terminal_trial(scenario: terminal::TerminalScenario, settings: &Arc<Settings>, matrix: &Matrix) -> Trial {
    let settings = Arc::clone(settings);
    let cells = matrix.cells(true);
    let hindrance = scenario.hindrance();
    let name = scenario.name;
    let run = move || {
        for cell in &cells {
            let mut settings = Settings::clone(&settings);
            let end = settings.prefix.pop();
            settings.prefix.extend(cell.options());
            settings.prefix.extend(end);
            let checked = terminal::check(&scenario, &settings);
            counts::add(name, cell.rate, Path::new(""), checked.is_err());
            checked.map_err(|error| format!("{}\n{error}", settings.prefix.join(" ")))?;
        }
        Ok(())
    };
    Trial::test(name, run).with_kind("terminal").with_ignored_flag(hindrance.is_some())
}

fn programs_trial(batch: u64, settings: &Arc<Settings>) -> Trial {
    let settings = Arc::clone(settings);
    let name = format!("programs_{batch:04}");
    let told_as = name.clone();
    let run = move || told(&told_as, programs::check(&settings, batch));
    Trial::test(name, run).with_kind("random")
}
