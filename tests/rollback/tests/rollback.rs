//! The short form: one test for each scenario and each batch of random programs, `cargo test -p rollback --test
//! rollback -- NAME`. Without a name only scenarios that are quick.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use rollback::leftovers::Before;
use rollback::record::{Key, Outcome};
use rollback::subject::Subject;
use rollback::summary::Summary;
use rollback::{check, scenarios};
use transparency::{run, Settings};

/// Batches of random programs: the first ones, and those that have found something (SIGCHLD after the wait, a fault at
/// the moment of a stop; names that cannot be moved or linked for several reasons). From 100 on they make directories,
/// links, mappings and locks, too.
const BATCHES: [u64; 10] = [0, 1, 2, 3, 31, 90, 101, 102, 337, 397];

/// What all tests share.
struct Common {
    settings: Settings,
    turn: RwLock<()>,
    made: Mutex<Vec<(Key, Outcome)>>,
}

fn main() -> ExitCode {
    run::close_inherited_on_exec();
    let arguments = Arguments::from_args();
    let mut settings = Settings::from_environment();
    settings.runs = std::env::temp_dir().join(format!("speculator-rollback-{}", std::process::id()));
    settings.patience = check::PATIENCE;
    let before = Before::look();
    let mut subjects = match Subject::scenarios(&settings) {
        Ok(subjects) => subjects,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.filter.is_none() {
        subjects.retain(|subject| scenarios::SHORT.contains(&subject.name().as_str()));
    }
    subjects.extend(BATCHES.into_iter().map(Subject::Programs));
    let common = Arc::new(Common { settings, turn: RwLock::new(()), made: Mutex::default() });
    let trials = subjects.into_iter().map(|subject| trial(subject, &common)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if arguments.list {
        return conclusion.exit_code();
    }
    if let Ok(made) = common.made.lock() {
        let made: Vec<(Key, &Outcome)> = made.iter().map(|(key, outcome)| (key.clone(), outcome)).collect();
        let summary = Summary::new(&made, 0);
        println!("{}\n{}", summary.by_scenario(), summary.by_rate());
    }
    // Not empty if something failed: what it left is kept.
    let _ = std::fs::remove_dir(&common.settings.runs);
    let _ = std::fs::remove_dir(check::in_memory());
    if let Err(problem) = before.compare() {
        println!("{problem}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn trial(subject: Subject, common: &Arc<Common>) -> Trial {
    let common = Arc::clone(common);
    let (name, kind, hindrance) = (subject.name(), subject.kind(), subject.hindrance(&common.settings));
    if let Some(reason) = &hindrance {
        eprintln!("{name}: left out: {reason}");
    }
    let run = move || match subject.is_alone() {
        true => {
            let _alone = common.turn.write();
            run_short(&subject, &common)
        }
        false => {
            let _with_others = common.turn.read();
            run_short(&subject, &common)
        }
    };
    Trial::test(name, run).with_kind(kind).with_ignored_flag(hindrance.is_some())
}

/// A problem is told at once: a long run need not end before its first failure is known.
fn run_short(subject: &Subject, common: &Common) -> Result<(), Failed> {
    if let Some(problem) = &common.settings.prefix_problem {
        return Err(Failed::from(problem));
    }
    let mut has_failed = false;
    subject.run(&common.settings, &subject.short(), &mut |cell, outcome| {
        if let Some(problem) = outcome.verdict.problem() {
            eprintln!("\n{}: {}\n{problem}", subject.name(), outcome.verdict.word());
            has_failed = true;
        }
        let key = Key { name: subject.name(), cell: cell.clone(), source: String::new() };
        if let Ok(mut made) = common.made.lock() {
            made.push((key, outcome));
        }
        ControlFlow::Continue(())
    })?;
    match has_failed {
        true => Err(Failed::without_message()),
        false => Ok(()),
    }
}
