//! What running ahead is worth: 200 operations, one after the other, each of which is slow; waited for, and guessed
//! with more or less luck.

use std::process::Stdio;
use std::time::Instant;

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::{ahead, command, machine, output_of, prefix_with, Workshop};
use crate::Options;

const OPERATIONS: u32 = 200;

/// Percentages of wrong guesses.
const WRONG: [u32; 4] = [0, 10, 50, 100];

/// Waiting takes long, and always as long: it is measured so often at most.
const WAITING_RUNS_MAX: usize = 3;

/// What is measured in one group: the base, and each percentage.
const GROUP: usize = 1 + WRONG.len();

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let workshop = Workshop::open()?;
    // Without the C library, and so without any other `stat` than those that are counted.
    let waits = workshop.compile("waits", &["-static", "-nostdlib", "-fno-stack-protector", "-fno-builtin"])?;
    let script = format!("i=0; while [ $i -lt {OPERATIONS} ]; do test -e /etc/passwd || exit 1; i=$((i+1)); done");
    let programs = [
        ("C program", vec![waits, OPERATIONS.to_string()]),
        ("shell script", ["dash", "-c", &script].map(str::to_owned).to_vec()),
    ];
    let delays: &[u32] = if options.quick { &[5] } else { &[5, 30] };
    let (mut series, mut targets, mut notes) = (Vec::new(), Vec::new(), vec![machine()]);
    notes.push(format!("waiting is measured {} times, all else {}", options.runs.min(WAITING_RUNS_MAX), options.runs));
    for (program, words) in &programs {
        for &delay in delays {
            let mut group = vec![Series::new(format!("{program}, {delay} ms, waiting"))];
            group.extend(WRONG.map(|wrong| Series::new(format!("{program}, {delay} ms, speculator {wrong} % wrong"))));
            let mut found = vec![String::new(); GROUP];
            for run in 0..options.runs {
                for (index, series) in group.iter_mut().enumerate() {
                    if index == 0 && run >= WAITING_RUNS_MAX {
                        continue;
                    }
                    let wrong = index.checked_sub(1).map(|index| WRONG[index]);
                    let (seconds, did) = measure(&workshop, words, delay, wrong)?;
                    series.values.push(seconds);
                    found[index] = did;
                }
            }
            for (series, did) in group.iter().zip(found) {
                eprintln!("{}: {:.3} s", series.name, series.median());
                notes.push(format!("{}: {did}", series.name));
            }
            let measured = group[0].median() / group[1].median();
            let least = if delay == 30 { 20.0 } else { 0.0 };
            let claim = format!("{program}, {delay} ms: waiting / speculator 0 % wrong");
            targets.push(Target { claim, measured, limit: Limit::AtLeast(least) });
            series.extend(group);
        }
    }
    let title = format!("{OPERATIONS} slow operations, waited for and guessed");
    Ok(Figure { name: "worth", title, unit: "s", series, base: Base::Groups(GROUP), targets, notes })
}

/// Wall time of a whole world, and what happened in it. `wrong`: percentage of guesses; waiting if there is none.
fn measure(workshop: &Workshop, words: &[String], delay: u32, wrong: Option<u32>) -> Result<(f64, String), String> {
    let stats = workshop.file("stats.json");
    let speculate = if wrong.is_some() { "yes" } else { "no" };
    let inject = format!("--inject=stat:{}%:{delay}", wrong.unwrap_or(0));
    let mut all = prefix_with(&[inject, format!("--speculate={speculate}")], &stats)?;
    all.extend_from_slice(words);
    let mut job = command(&all);
    job.stdin(Stdio::null());
    let start = Instant::now();
    output_of(job)?;
    let seconds = start.elapsed().as_secs_f64();
    let did = ahead(&stats)?;
    let count = |field: &str| did[field].as_u64().unwrap_or(0);
    let guessed = did["injected"]["stat"].as_u64().unwrap_or(0);
    let text = format!(
        "{} waited for, {guessed} guessed, {} right, {} wrong, {} unmade; {} open at most, {} checkpoints",
        count("waited"),
        count("committed"),
        count("failed"),
        count("unmade"),
        count("open_max"),
        count("checkpoints"),
    );
    Ok((seconds, text))
}
