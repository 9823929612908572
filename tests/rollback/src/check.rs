//! One scenario: natively once, then inside in every way of the matrix.

use std::path::{Path, PathBuf};

use transparency::compare::{differences, Remains};
use transparency::scenario::{command, expect_sane, run_once, tail, Place};
use transparency::{Scenario, Settings};

use crate::counts::Counts;
use crate::matrix::Cell;
use crate::record::{Outcome, Verdict};
use crate::subject::Tell;

/// How many times as long as natively a run inside may take: a wrong guess is made again, after its delay, and some
/// programs make many thousands.
pub const PATIENCE: u32 = 4;

/// By how much programs divide their rounds: each runs with many seeds, and a wrong guess costs more than its call.
const ROUNDS_DIVISOR: u32 = 5;

/// A directory in memory, for what is to run in one.
pub fn in_memory() -> PathBuf {
    Path::new("/dev/shm").join(format!("speculator-rollback-{}", std::process::id()))
}

/// The file in which a run inside leaves its statistics.
#[derive(Debug)]
pub struct Stats(PathBuf);

impl Stats {
    /// For a run of what has this name.
    pub fn of(name: &str, settings: &Settings) -> Stats {
        Stats(settings.runs.join(format!("{name}.json")))
    }

    /// Reads it and removes it.
    pub fn take(self) -> Counts {
        let counts = Counts::read(&self.0);
        // It is not there where the world has outlived its command.
        let _ = std::fs::remove_file(&self.0);
        counts
    }
}

/// Runs `scenario` natively, and inside as each of `cells` says.
pub fn check(scenario: &Scenario, settings: &Settings, cells: &[Cell], tell: Tell) -> Result<(), String> {
    let mut settings = settings.clone();
    settings.rounds_divisor = Some(ROUNDS_DIVISOR);
    if scenario.directives.has("memory") {
        settings.runs = in_memory();
    }
    let place = Place::new(&settings, &scenario.name)?;
    let result = check_in(&place, scenario, &settings, cells, tell);
    place.remove()?;
    result
}

fn check_in(place: &Place, scenario: &Scenario, settings: &Settings, cells: &[Cell], tell: Tell) -> Result<(), String> {
    let native = run_once(scenario, settings, place, &[])?;
    expect_sane(scenario, &native)?;
    if let Some(marker) = shown_marker(scenario, &native) {
        return Err(format!("natively it says {marker:?}, which only a wrong guess may make it say"));
    }
    place.clear()?;
    let words = command(scenario, settings, &place.run)?;
    let mut natives = vec![native];
    for cell in cells {
        let stats = Stats::of(&scenario.name, settings);
        let mut run = run_once(scenario, settings, place, &inside(settings, cell, &stats))?;
        remove_notice(&mut run);
        place.clear()?;
        let shown = shown(settings, cell, scenario, place, &words);
        let mut verdict = like_one_of(scenario, &natives, &run, &shown);
        if matches!(verdict, Verdict::Differs(_)) && natives.len() == 1 {
            natives.extend(again_natively(scenario, settings, place)?);
            verdict = like_one_of(scenario, &natives, &run, &shown);
            if matches!(verdict, Verdict::Same) {
                println!("{}: natively it is not always the same, and inside as in a later native run", scenario.name);
            }
        }
        if tell(cell, Outcome { counts: stats.take(), verdict }).is_break() {
            break;
        }
    }
    Ok(())
}

/// As one of the native runs; else how it differs from the first one.
fn like_one_of(scenario: &Scenario, natives: &[Remains], run: &Remains, shown: &str) -> Verdict {
    let mut verdicts = natives.iter().map(|native| verdict(scenario, native, run, shown));
    let first = verdicts.next().expect("there is a native run");
    match first {
        Verdict::Differs(_) => verdicts.find(|verdict| matches!(verdict, Verdict::Same)).unwrap_or(first),
        first => first,
    }
}

/// A program may depend on who is faster, one time in many: then the first native run is no measure.
fn again_natively(scenario: &Scenario, settings: &Settings, place: &Place) -> Result<Vec<Remains>, String> {
    const TIMES: usize = 20;
    let mut natives = Vec::new();
    for _ in 0..TIMES {
        natives.push(run_once(scenario, settings, place, &[])?);
        place.clear()?;
    }
    Ok(natives)
}

/// A world that outlives its command by a moment has no statistics, and says so. Whether it outlives it for long is
/// found by its processes.
pub fn remove_notice(run: &mut Remains) {
    const NOTICE: &str = "speculator: processes of this world go on, so there are no statistics yet\n";
    let stderr = String::from_utf8_lossy(&run.outcome.stderr);
    if stderr.contains(NOTICE) {
        run.outcome.stderr = stderr.replace(NOTICE, "").into_bytes();
    }
}

/// What stands before a command to run it inside.
pub fn inside(settings: &Settings, cell: &Cell, stats: &Stats) -> Vec<String> {
    let mut prefix = shown_prefix(settings, cell);
    let end = prefix.pop();
    prefix.push(format!("--stats=json:{}", stats.0.display()));
    prefix.extend(end);
    prefix
}

/// The same for somebody who types it.
pub fn shown_prefix(settings: &Settings, cell: &Cell) -> Vec<String> {
    let mut prefix = settings.prefix.clone();
    let end = prefix.pop();
    prefix.extend(cell.options());
    prefix.extend(end);
    prefix
}

/// The command that shows it again, in a directory that is empty.
fn shown(settings: &Settings, cell: &Cell, scenario: &Scenario, place: &Place, words: &[String]) -> String {
    let prefix = shown_prefix(settings, cell);
    let directory = place.run.display();
    let stdin = match scenario.directives.words("stdin") {
        words if words.is_empty() => "< /dev/null |".to_owned(),
        words => format!("<<< '{}' |", words.join(" ")),
    };
    format!(
        "  mkdir -p {directory} && cd {directory} && env -i PATH={} HOME={directory} TMPDIR={directory} LC_ALL=C TZ=UTC TERM=xterm SOURCES={} \
         ROUNDS_DIVIDED_BY={ROUNDS_DIVISOR} {} {} {stdin} cat",
        transparency::run::PATH,
        settings.sources.display(),
        prefix.join(" "),
        words.join(" "),
    )
}

fn verdict(scenario: &Scenario, native: &Remains, run: &Remains, shown: &str) -> Verdict {
    let outcome = &run.outcome;
    let mut found = Vec::new();
    if let Some(marker) = shown_marker(scenario, run) {
        found.push(format!("{marker:?} was shown, which only a wrong guess could make it say"));
    }
    if outcome.timed_out && found.is_empty() {
        let said = [&outcome.stdout[..], &outcome.stderr[..]].concat();
        return Verdict::OutOfTime(format!("{shown}\n  it did not end in time; so far:\n{}", tail(&said)));
    }
    found.extend(differences(native, run, &scenario.tolerance()));
    if outcome.left != native.outcome.left {
        found.push(format!("processes left: native {:?}, inside {:?}", native.outcome.left, outcome.left));
    }
    if found.is_empty() {
        return Verdict::Same;
    }
    Verdict::Differs(format!("{shown}\n  {}\n  inside, end of stderr:\n{}", found.join("\n  "), tail(&outcome.stderr)))
}

/// A text that only a wrong guess can produce, if it was shown.
fn shown_marker(scenario: &Scenario, remains: &Remains) -> Option<String> {
    let shown = [&remains.outcome.stdout[..], &remains.outcome.stderr[..]].concat();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    scenario.directives.words("never").into_iter().find(|marker| shown.contains(marker.as_str()))
}
