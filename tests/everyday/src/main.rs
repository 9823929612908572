//! `everyday`: runs everyday commands, each inside one open guess, and compares all that they leave with a plain run.
//!
//! Each command of `commands.txt` is run plainly, inside a guess that is right, inside one that is wrong, under many
//! guesses of its own that are right, and in each of 20 guesses of one world, one after the other. With `--table` what
//! was found is written as a table for `docs/`.

#![forbid(unsafe_code)]

mod commands;
mod place;
mod run;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use commands::{Command, COMMANDS};
use place::Place;
use run::Outcome;

/// Runs everyday commands inside open guesses and compares them with a plain run
#[derive(Debug, Parser)]
struct Options {
    /// The program that is tested
    #[arg(long, value_name = "FILE")]
    speculator: PathBuf,
    /// An empty directory, made if it is not there: what commands work on is below it
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Write the table of all results as Markdown
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Only so many commands, chosen by the seed
    #[arg(long, value_name = "N", conflicts_with_all = ["names", "table"])]
    sample: Option<usize>,
    /// Run a command that differs so many times again; if it differs in none of them, it is told as unstable and passes
    #[arg(long, value_name = "N", default_value_t = 0)]
    repeat: u32,
    /// Guesses one after the other, in each of which a command is run; 0 for none
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// Commands side by side: one that waits for a guess mostly sleeps
    #[arg(long, value_name = "N", default_value_t = 3)]
    jobs: usize,
    /// The seed of the choice
    #[arg(long, value_name = "S", default_value_t = seed_of_now())]
    seed: u64,
    /// Only these commands
    names: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("everyday: {problem}");
            ExitCode::from(125)
        }
    }
}

/// Whether each command left what its plain run leaves.
fn run(options: &Options) -> Result<bool, String> {
    let commands = chosen(options)?;
    let next = AtomicUsize::new(0);
    let worker = |job: usize| -> Result<(Place, Vec<(usize, Row)>), String> {
        let place = Place::new(&options.speculator, &options.into.join(format!("job-{job}")))?;
        let mut rows = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(command) = commands.get(at) else { return Ok((place, rows)) };
            if let Some(missing) = command.missing() {
                println!("{:22} left out: {missing} is not there", command.name);
                continue;
            }
            let outcome = repeated(&place, command, options)?;
            println!("{:22} {outcome}", command.name);
            rows.push((at, (command.clone(), outcome)));
        }
    };
    let worker = &worker;
    let workers = std::thread::scope(|scope| {
        let started: Vec<_> = (0..options.jobs.max(1)).map(|job| scope.spawn(move || worker(job))).collect();
        let ended = started.into_iter().map(|one| one.join().map_err(|_| "a worker failed".to_owned())?);
        ended.collect::<Result<Vec<(Place, Vec<(usize, Row)>)>, String>>()
    })?;
    let (places, rows): (Vec<Place>, Vec<_>) = workers.into_iter().unzip();
    let mut rows: Vec<(usize, Row)> = rows.into_iter().flatten().collect();
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let differ = rows.iter().filter(|(_, outcome)| !outcome.differences.is_empty()).count();
    println!("\n{}", table::summary(&rows));
    if let Some(file) = &options.table {
        std::fs::write(file, table::markdown(&rows))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    // What differs keeps its files for whoever looks into it.
    if differ == 0 {
        places.iter().for_each(Place::remove);
        let _ = std::fs::remove_dir(&options.into);
    }
    Ok(differ == 0)
}

/// What was found about a command; what differs only sometimes is told, and counts as what it was when run again
/// (docs/decisions/0029).
fn repeated(place: &Place, command: &Command, options: &Options) -> Result<Outcome, String> {
    let first = run::run(place, command, options.rounds)?;
    if first.differences.is_empty() {
        return Ok(first);
    }
    let mut last = None;
    for _ in 0..options.repeat {
        let again = run::run(place, command, options.rounds)?;
        if !again.differences.is_empty() {
            return Ok(again);
        }
        last = Some(again);
    }
    if last.is_some() {
        println!("{:22} unstable: {first}", command.name);
    }
    Ok(last.unwrap_or(first))
}

fn chosen(options: &Options) -> Result<Vec<Command>, String> {
    let all = commands::parse(COMMANDS)?;
    if let Some(count) = options.sample {
        println!("a sample: --sample {count} --seed {}", options.seed);
        return Ok(commands::sample(all, count, options.seed));
    }
    if let Some(unknown) = options.names.iter().find(|name| all.iter().all(|command| command.name != **name)) {
        return Err(format!("there is no command {unknown} in commands.txt"));
    }
    let is_named = |command: &Command| options.names.is_empty() || options.names.contains(&command.name);
    Ok(all.into_iter().filter(is_named).collect())
}

fn seed_of_now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// A command with what was found about it.
type Row = (Command, Outcome);
