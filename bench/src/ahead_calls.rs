//! What a call costs inside an open guess, against the same call where nobody guesses; and how often it is asked about.

use std::path::Path;

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::{command, machine, nanoseconds, prefix_with, statistic, Workshop};
use crate::Options;

/// Operations of `aheadcalls.c`, how often each is done in one run, and in one run with the asking path.
const OPERATIONS: [(&str, u32); 14] = [
    ("stat", 200_000),
    ("fstat", 200_000),
    ("missing", 200_000),
    ("pread", 200_000),
    ("lseek", 200_000),
    ("read", 200_000),
    ("open_read_close", 100_000),
    ("readdir", 50_000),
    ("pwrite_new", 200_000),
    ("pwrite_memory", 200_000),
    ("write_memory", 200_000),
    ("pipe", 20_000),
    ("socket", 20_000),
    (FORK, 200),
];
const FORK: &str = "fork_exec_wait";

/// How much dearer a call may be than where nobody guesses, and a child that executes a program.
const RATIO_MAX: f64 = 1.3;
const FORK_RATIO_MAX: f64 = 1.5;

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let names = OPERATIONS.map(|(name, _)| name);
    if let Some(other) = options.only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(format!("--only {other}: there are {}", names.join(", ")));
    }
    let is_wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let shop = Workshop::open()?;
    let program = shop.compile("aheadcalls", &[])?;
    let memory = shop.file("memory");
    std::fs::create_dir_all(&memory).map_err(|error| format!("cannot make {}: {error}", memory.display()))?;
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    for (operation, count) in OPERATIONS.into_iter().filter(|(operation, _)| is_wanted(operation)) {
        let count = if options.quick { count / 100 + 10 } else { count };
        let mut ways: Vec<Series> =
            ["run", "guess", "guess, asking"].iter().map(|way| Series::new(format!("{operation} {way}"))).collect();
        for _ in 0..options.runs {
            ways[0].values.push(once(&shop, &program, &["--ahead=permits"], operation, count, "0")?);
            ways[1].values.push(once(&shop, &program, &["--ahead=permits"], operation, count, "1")?);
            ways[2].values.push(once(&shop, &program, &["--ahead=ask"], operation, count.min(2_000), "1")?);
        }
        let ratio = ways[1].median() / ways[0].median();
        let stops = stops(&shop, &program, operation, count.min(2_000))?;
        eprintln!(
            "{operation}: {:.0} ns, {:.0} in a guess ({ratio:.2} ×), {:.0} where each call asks; {stops} stops for each \
             further one",
            ways[0].median(),
            ways[1].median(),
            ways[2].median()
        );
        let is_fork = operation == FORK;
        let limit = Limit::AtMost(if is_fork { FORK_RATIO_MAX } else { RATIO_MAX });
        targets.push(Target { claim: format!("{operation}: in a guess / run"), measured: ratio, limit });
        if !is_fork {
            let claim = format!("{operation}: stops for each further one");
            targets.push(Target { claim, measured: stops, limit: Limit::AtMost(0.01) });
        }
        series.extend(ways);
    }
    Ok(Figure {
        name: "ahead-calls",
        title: "One operation, with and without an open guess".to_owned(),
        unit: "ns",
        series,
        base: Base::Groups(3),
        targets,
        notes: vec![machine()],
    })
}

fn once(
    shop: &Workshop,
    program: &str,
    options: &[&str],
    operation: &str,
    count: u32,
    guess: &str,
) -> Result<f64, String> {
    let memory = shop.file("memory");
    let mut options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    options.push(format!("--private-tmp={}", memory.display()));
    let mut words = prefix_with(&options, &stats(shop))?;
    words.extend([program, operation, &count.to_string(), guess].map(str::to_owned));
    let mut job = command(&words);
    job.current_dir(shop.path()).env("MEMORY", &memory);
    nanoseconds(job)
}

fn stats(shop: &Workshop) -> std::path::PathBuf {
    shop.file("stats.json")
}

/// Stops for each further operation in a guess: those of a run of 2 × `count` less those of a run of `count`.
fn stops(shop: &Workshop, program: &str, operation: &str, count: u32) -> Result<f64, String> {
    let mut stops = [0.0; 2];
    for (factor, stops) in [1, 2].into_iter().zip(&mut stops) {
        once(shop, program, &["--ahead=permits"], operation, count * factor, "1")?;
        let file: &Path = &stats(shop);
        *stops = statistic(file, "tracee_stops").ok_or("no statistics")?;
    }
    // The warm-up of aheadcalls is a tenth.
    Ok((stops[1] - stops[0]) / (f64::from(count) * 1.1))
}
