//! Many random programs in one run: natively and inside; the first that differs is run again alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use transparency::compare::{differences, Remains, Tolerance};
use transparency::directives::Directives;
use transparency::run::{run, Job};
use transparency::scenario::tail;
use transparency::{compile, Settings};

use crate::check::{in_memory, inside, remove_notice};
use crate::counts;
use crate::generate::program;
use crate::matrix::Cell;

/// Programs in one run.
pub const BATCH: u64 = 25;

const TIMEOUT: Duration = Duration::from_secs(120);

/// The ways in which batches run inside, in turn.
fn cell_of(batch: u64) -> Cell {
    let (rate, inject) = match batch % 8 {
        0 | 1 => ("10", "all:10%:1".to_owned()),
        2 => ("50", "all:50%:1".to_owned()),
        3 => ("1", "all:1%:3".to_owned()),
        4 => ("10", "fork:10%:4,wait:10%:4,close:10%:4".to_owned()),
        5 => ("10", "read:10%:4,write:10%:4".to_owned()),
        6 => ("50", "read:50%:2,fork:50%:2,wait:50%:2".to_owned()),
        _ => ("10", "stat:10%:8,close:10%:8,wait:10%:8".to_owned()),
    };
    Cell { rate, inject, seed: batch }
}

/// Batch number `batch`: its programs natively and inside.
pub fn check(settings: &Settings, batch: u64) -> Result<(), String> {
    let source = settings.repository.join("tests/rollback/interpreter.c");
    let interpreter = compile::program(&source, &Directives::default(), &settings.cache)?;
    let home = in_memory().join(format!("programs-{batch}"));
    let failed = |error| format!("cannot make {}: {error}", home.display());
    fs::create_dir_all(&home).map_err(failed)?;
    let script = home.join("script");
    let seeds = batch * BATCH..(batch + 1) * BATCH;
    fs::write(&script, seeds.map(program).collect::<String>()).map_err(failed)?;
    let words = vec![interpreter.display().to_string(), script.display().to_string()];
    let cell = cell_of(batch);
    let stats = home.join("stats.json");
    let mut inside_words = inside(settings, &cell, &stats);
    inside_words.extend(words.iter().cloned());
    let native = run_in(&home, words.clone())?;
    if native.outcome.timed_out || native.outcome.status != 0 || shows_wrong(&native) {
        return Err(format!("natively the programs of batch {batch} fail:\n{}", tail(&native.outcome.stdout)));
    }
    let mut run = run_in(&home, inside_words)?;
    remove_notice(&mut run);
    let found = problem(&native, &run);
    counts::add("random programs", cell.rate, &stats, found.is_some());
    if let Some(found) = found {
        let options = [&settings.prefix[..settings.prefix.len() - 1], &cell.options()[..]].concat().join(" ");
        let home = home.display();
        return Err(format!("  mkdir {home}/run && cd {home}/run && {options} -- {}\n{found}", words.join(" ")));
    }
    fs::remove_dir_all(&home).map_err(|error| format!("cannot remove {}: {error}", home.display()))
}

fn run_in(home: &Path, words: Vec<String>) -> Result<Remains, String> {
    let directory: PathBuf = home.join("run");
    let failed = |error| format!("cannot make {}: {error}", directory.display());
    fs::create_dir(&directory).map_err(failed)?;
    let job =
        Job { words, directory: directory.clone(), environment: vec![], stdin: vec![], user: None, timeout: TIMEOUT };
    let outcome = run(&job)?;
    let tree =
        transparency::tree::read(&directory, &[]).map_err(|error| format!("cannot read what it left: {error}"))?;
    fs::remove_dir_all(&directory).map_err(failed)?;
    Ok(Remains { outcome, tree })
}

fn shows_wrong(remains: &Remains) -> bool {
    String::from_utf8_lossy(&remains.outcome.stdout).contains("WRONG")
}

fn problem(native: &Remains, run: &Remains) -> Option<String> {
    if run.outcome.timed_out {
        return Some(format!("  it did not end within {TIMEOUT:?}; so far:\n{}", tail(&run.outcome.stdout)));
    }
    let mut found = differences(native, run, &Tolerance::default());
    if shows_wrong(run) {
        found.insert(0, "WRONG was shown".to_owned());
    }
    if !run.outcome.left.is_empty() {
        found.push(format!("processes left: {:?}", run.outcome.left));
    }
    (!found.is_empty()).then(|| format!("  {}\n{}", found.join("\n  "), tail(&run.outcome.stderr)))
}
