//! Many random programs in one run: natively and inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use transparency::compare::{differences, Remains, Tolerance};
use transparency::directives::Directives;
use transparency::run::{run, Job};
use transparency::scenario::tail;
use transparency::{compile, Settings};

use crate::check::{in_memory, inside, remove_notice, shown_prefix, Stats};
use crate::generate::program;
use crate::matrix::Cell;
use crate::record::{Outcome, Verdict};
use crate::subject::Tell;

/// Programs in one run.
pub const BATCH: u64 = 25;

const TIMEOUT: Duration = Duration::from_secs(120);

/// What plays the programs.
pub fn interpreter(settings: &Settings) -> PathBuf {
    settings.repository.join("tests/rollback/interpreter.c")
}

/// All that the interpreter is made of.
pub fn interpreter_text(settings: &Settings) -> Result<Vec<u8>, String> {
    let main = interpreter(settings);
    let mut text = Vec::new();
    for file in [main.with_file_name("objects.h"), main] {
        text.extend(fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?);
    }
    Ok(text)
}

/// The programs of batch number `batch`.
pub fn script(batch: u64) -> String {
    (batch * BATCH..(batch + 1) * BATCH).map(program).collect()
}

/// Batch number `batch`: its programs natively, and inside as each of `cells` says. Where they differ, the script is
/// kept.
pub fn check(batch: u64, settings: &Settings, cells: &[Cell], tell: Tell) -> Result<(), String> {
    let interpreter = compile::program(&interpreter(settings), &Directives::default(), &settings.cache)?;
    let home = in_memory().join(format!("programs-{batch}"));
    let failed = |error| format!("cannot make {}: {error}", home.display());
    fs::create_dir_all(&home).map_err(failed)?;
    fs::create_dir_all(&settings.runs).map_err(failed)?;
    let file = home.join("script");
    fs::write(&file, script(batch)).map_err(failed)?;
    let words = vec![interpreter.display().to_string(), file.display().to_string()];
    let result = check_in(&home, batch, &words, settings, cells, tell);
    if !matches!(result, Ok(false)) {
        fs::remove_dir_all(&home).map_err(|error| format!("cannot remove {}: {error}", home.display()))?;
    }
    result.map(drop)
}

/// Whether all were the same.
fn check_in(
    home: &Path,
    batch: u64,
    words: &[String],
    settings: &Settings,
    cells: &[Cell],
    tell: Tell,
) -> Result<bool, String> {
    let native = run_in(home, words.to_vec())?;
    if native.outcome.timed_out || native.outcome.status != 0 || shows_wrong(&native) {
        return Err(format!("natively the programs of batch {batch} fail:\n{}", tail(&native.outcome.stdout)));
    }
    let mut all_same = true;
    for cell in cells {
        let stats = Stats::of(&format!("programs-{batch}"), settings);
        let mut run = run_in(home, [&inside(settings, cell, &stats), words].concat())?;
        remove_notice(&mut run);
        let (prefix, directory) = (shown_prefix(settings, cell).join(" "), home.join("run"));
        let directory = directory.display();
        let shown = format!("  mkdir {directory} && cd {directory} && {prefix} {}", words.join(" "));
        let verdict = verdict(&native, &run, &shown);
        all_same &= verdict == Verdict::Same;
        if tell(cell, Outcome { counts: stats.take(), verdict }).is_break() {
            break;
        }
    }
    Ok(all_same)
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

fn verdict(native: &Remains, run: &Remains, shown: &str) -> Verdict {
    let mut found = Vec::new();
    if shows_wrong(run) {
        found.push("WRONG was shown".to_owned());
    }
    if run.outcome.timed_out && found.is_empty() {
        let said = tail(&run.outcome.stdout);
        return Verdict::OutOfTime(format!("{shown}\n  it did not end within {TIMEOUT:?}; so far:\n{said}"));
    }
    found.extend(differences(native, run, &Tolerance::default()));
    if !run.outcome.left.is_empty() {
        found.push(format!("processes left: {:?}", run.outcome.left));
    }
    if found.is_empty() {
        return Verdict::Same;
    }
    Verdict::Differs(format!("{shown}\n  {}\n{}", found.join("\n  "), tail(&run.outcome.stderr)))
}
