//! The full matrix: every scenario with every rate and many seeds, and many random programs. What was made is written
//! down, and the next invocation goes on from there.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use rollback::journal::{digest, Journal};
use rollback::leftovers::Before;
use rollback::matrix::Matrix;
use rollback::schedule::{outcomes, plan, End, Schedule, Unit};
use rollback::subject::Subject;
use rollback::summary::Summary;
use rollback::{check, programs};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use transparency::{run, Settings};

/// Runs programs natively and inside with guesses that turn out wrong, and compares what they leave. Runs that were
/// made with this version of speculator are not made again; an interrupt ends it at once and loses only the runs under
/// way.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask equivalence")]
struct Arguments {
    /// Seeds for each rate and scenario.
    #[arg(long, value_name = "N", default_value_t = 25)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first_seed: u64,
    /// Random programs.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    programs: u64,
    /// Begin no run after this time.
    #[arg(long = "for", value_name = "MINUTES")]
    minutes: Option<u64>,
    /// Runs side by side; those that are heavy have the machine for themselves [default: three for each core].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Without the scenarios that have the machine for themselves: these take most of the time.
    #[arg(long)]
    quick: bool,
    /// Make those runs again that ran out of time.
    #[arg(long)]
    again: bool,
    /// Where what was made is written down, and the summary.
    #[arg(long, value_name = "DIR", default_value = "target/equivalence", overrides_with = "into")]
    into: PathBuf,
    /// Only scenarios and batches (programs_0000) whose name has one of these in it.
    filter: Vec<String>,
}

fn main() -> ExitCode {
    run::close_inherited_on_exec();
    match equivalence(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("equivalence: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all that was made is the same.
fn equivalence(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let end = End {
        at: arguments.minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
        ..End::default()
    };
    end_on_signals(&end)?;
    let settings = settings()?;
    let binary =
        fs::read(&settings.prefix[0]).map_err(|error| format!("cannot read {}: {error}", settings.prefix[0]))?;
    let version = digest(&binary);
    let mut journal = Journal::open(&arguments.into, &version)?;
    if arguments.again {
        journal.forget_out_of_time();
    }
    let units = planned(arguments, &settings)?;
    let before = Before::look();
    // A run mostly waits until its guesses are known: most take a core for a third of their time.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cores * 3);
    let mut problems = Schedule::new(units.clone(), &mut journal, &settings, end).run(jobs);
    // Not empty if something failed: what it left is kept.
    let _ = fs::remove_dir(&settings.runs);
    let _ = fs::remove_dir(check::in_memory());
    problems.extend(before.compare().err());
    let (made, left) = outcomes(&units, &journal);
    let summary = Summary::new(&made, left);
    write_summary(&arguments.into, &summary, &version)?;
    print!("\n{}\n{}\n{}{}", summary.by_scenario(), summary.by_rate(), summary.problems(), summary.progress());
    problems.iter().for_each(|problem| println!("{problem}"));
    Ok(summary.is_clean() && problems.is_empty())
}

fn settings() -> Result<Settings, String> {
    let mut settings = Settings::from_environment();
    settings.runs = std::env::temp_dir().join(format!("speculator-rollback-{}", std::process::id()));
    settings.patience = check::PATIENCE;
    match &settings.prefix_problem {
        Some(problem) => Err(problem.clone()),
        None => Ok(settings),
    }
}

fn planned(arguments: &Arguments, settings: &Settings) -> Result<Vec<Unit>, String> {
    let mut scenarios = Subject::scenarios(settings)?;
    scenarios.retain(|subject| {
        let hindrance = subject.hindrance(settings);
        if let Some(reason) = &hindrance {
            println!("{}: left out: {reason}", subject.name());
        }
        hindrance.is_none()
    });
    scenarios.retain(|subject| !arguments.quick || !subject.is_alone());
    let batches = arguments.programs.div_ceil(programs::BATCH);
    let matrix = Matrix { first_seed: arguments.first_seed, seeds: arguments.seeds, batches };
    let filter = &arguments.filter;
    plan(&matrix, &scenarios, settings, |name| filter.is_empty() || filter.iter().any(|part| name.contains(part)))
}

/// On a signal all that runs is killed, and the summary shown.
fn end_on_signals(end: &End) -> Result<(), Box<dyn Error>> {
    let (mut signals, interrupted) = (Signals::new([SIGINT, SIGTERM])?, end.interrupted.clone());
    std::thread::spawn(move || {
        if signals.forever().next().is_none() {
            return;
        }
        interrupted.store(true, Ordering::Relaxed);
        // What is just being started is killed the next time.
        loop {
            run::kill_all_marked();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    Ok(())
}

fn write_summary(folder: &Path, summary: &Summary, version: &str) -> Result<(), Box<dyn Error>> {
    let file = folder.join("summary.json");
    let text = serde_json::to_string_pretty(&summary.json(version))? + "\n";
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}
