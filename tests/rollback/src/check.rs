//! One scenario: natively once, then inside in every way of the matrix.

use std::path::{Path, PathBuf};

use transparency::compare::{differences, Remains};
use transparency::scenario::{command, expect_sane, run_once, tail, Place};
use transparency::{Scenario, Settings};

use crate::counts;
use crate::matrix::Cell;

/// Failures of one scenario after which no more of its runs are made.
const FAILURES_MAX: usize = 2;

/// A directory in memory, for what is to run in one.
pub fn in_memory() -> PathBuf {
    Path::new("/dev/shm").join(format!("speculator-rollback-{}", std::process::id()))
}

/// Runs `scenario` natively, and inside as each of `cells` says.
pub fn check(scenario: &Scenario, settings: &Settings, cells: &[Cell]) -> Result<(), String> {
    let mut settings = settings.clone();
    if scenario.directives.has("memory") {
        settings.runs = in_memory();
    }
    let place = Place::new(&settings, &scenario.name)?;
    let native = run_once(scenario, &settings, &place, &[])?;
    expect_sane(scenario, &native)?;
    if let Some(marker) = shown_marker(scenario, &native) {
        return Err(format!("natively it says {marker:?}, which only a wrong guess may make it say"));
    }
    place.clear()?;
    let mut failures = Vec::new();
    for cell in cells {
        let stats = settings.runs.join(format!("{}-{}.json", std::process::id(), scenario.name));
        let prefix = inside(&settings, cell, &stats);
        let mut run = run_once(scenario, &settings, &place, &prefix)?;
        remove_notice(&mut run);
        let problem = problem(scenario, &native, &run);
        counts::add(&scenario.name, cell.rate, &stats, problem.is_some());
        let _ = std::fs::remove_file(&stats);
        if let Some(problem) = problem {
            let words = command(scenario, &settings, &place.run)?;
            failures.push(format!("{}\n{problem}", shown(&settings, cell, scenario, &place, &words)));
        }
        place.clear()?;
        if failures.len() == FAILURES_MAX {
            break;
        }
    }
    match failures.is_empty() {
        true => place.remove(),
        false => Err(format!("{} of {} runs failed:\n{}", failures.len(), cells.len(), failures.join("\n"))),
    }
}

/// A world that outlives its command by a moment has no statistics, and says so. Whether it outlives it for long is found by its processes.
pub fn remove_notice(run: &mut Remains) {
    const NOTICE: &str = "speculator: processes of this world go on, so there are no statistics yet\n";
    let stderr = String::from_utf8_lossy(&run.outcome.stderr);
    if stderr.contains(NOTICE) {
        run.outcome.stderr = stderr.replace(NOTICE, "").into_bytes();
    }
}

/// What stands before a command to run it inside.
pub fn inside(settings: &Settings, cell: &Cell, stats: &Path) -> Vec<String> {
    let mut prefix = settings.prefix.clone();
    let end = prefix.pop();
    prefix.extend(cell.options());
    prefix.push(format!("--stats=json:{}", stats.display()));
    prefix.extend(end);
    prefix
}

/// The command that shows it again, in a directory that is empty.
fn shown(settings: &Settings, cell: &Cell, scenario: &Scenario, place: &Place, words: &[String]) -> String {
    let mut prefix = settings.prefix.clone();
    let end = prefix.pop();
    prefix.extend(cell.options());
    prefix.extend(end);
    let directory = place.run.display();
    let stdin = match scenario.directives.words("stdin") {
        words if words.is_empty() => "< /dev/null |".to_owned(),
        words => format!("<<< '{}' |", words.join(" ")),
    };
    format!(
        "  mkdir -p {directory} && cd {directory} && env -i PATH={} HOME={directory} TMPDIR={directory} LC_ALL=C TZ=UTC TERM=xterm SOURCES={} \
         {} {} {stdin} cat",
        transparency::run::PATH,
        settings.sources.display(),
        prefix.join(" "),
        words.join(" "),
    )
}

fn problem(scenario: &Scenario, native: &Remains, run: &Remains) -> Option<String> {
    let outcome = &run.outcome;
    if outcome.timed_out {
        let shown = [&outcome.stdout[..], &outcome.stderr[..]].concat();
        return Some(format!("  it did not end within {:?}; so far:\n{}", scenario.timeout(), tail(&shown)));
    }
    let mut found = differences(native, run, &scenario.tolerance());
    if let Some(marker) = shown_marker(scenario, run) {
        found.insert(0, format!("{marker:?} was shown, which only a wrong guess could make it say"));
    }
    if outcome.left != native.outcome.left {
        found.push(format!("processes left: native {:?}, inside {:?}", native.outcome.left, outcome.left));
    }
    (!found.is_empty())
        .then(|| format!("  {}\n  inside, end of stderr:\n{}", found.join("\n  "), tail(&outcome.stderr)))
}

/// A text that only a wrong guess can produce, if it was shown.
fn shown_marker(scenario: &Scenario, remains: &Remains) -> Option<String> {
    let shown = [&remains.outcome.stdout[..], &remains.outcome.stderr[..]].concat();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    scenario.directives.words("never").into_iter().find(|marker| shown.contains(marker.as_str()))
}
