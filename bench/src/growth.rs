//! How the cost of a guess grows: calls in a second against processes, open guesses, changed objects and pages; memory
//! that is held meanwhile; and the time of a rollback against what was touched. Each as a curve.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::figure::{Base, Figure, Series};
use crate::inside::{ahead, command, machine, prefix_with, Workshop};
use crate::Options;

/// One run takes no longer; what comes to more is told, and no larger one is tried.
const PATIENCE: Duration = Duration::from_secs(120);
const QUICK_PATIENCE: Duration = Duration::from_secs(20);
/// How long calls are made in each run.
const CALLS_LAST: Duration = Duration::from_secs(1);
const QUICK_CALLS_LAST: Duration = Duration::from_millis(100);

/// What grows, and how far.
struct Axis {
    mode: &'static str,
    /// In titles and names of series.
    what: &'static str,
    files: [&'static str; 3],
    at: &'static [f64],
    /// How many of these are enough to see whether it works.
    quick: usize,
}

const AXES: [Axis; 4] = [
    Axis {
        mode: "processes",
        what: "processes",
        files: ["growth-processes", "growth-processes-memory", "growth-processes-rollback"],
        at: &[1.0, 3.0, 10.0, 30.0, 100.0],
        quick: 3,
    },
    Axis {
        mode: "guesses",
        what: "open guesses",
        files: ["growth-guesses", "growth-guesses-memory", "growth-guesses-rollback"],
        at: &[1.0, 10.0, 100.0, 500.0, 2000.0],
        quick: 3,
    },
    Axis {
        mode: "objects",
        what: "changed objects",
        files: ["growth-objects", "growth-objects-memory", "growth-objects-rollback"],
        at: &[1.0, 100.0, 1000.0, 10_000.0, 100_000.0],
        quick: 3,
    },
    Axis {
        mode: "pages",
        what: "changed pages",
        files: ["growth-pages", "growth-pages-memory", "growth-pages-rollback"],
        at: &[1.0, 100.0, 10_000.0, 100_000.0],
        quick: 3,
    },
];

/// What one run has shown.
#[derive(Default)]
struct Found {
    calls_per_s: f64,
    rollback_us: f64,
    memory_mib: f64,
}

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    let workshop = Workshop::open()?;
    let program = workshop.compile("growth", &[])?;
    let mut figures = Vec::new();
    for axis in &AXES {
        figures.extend(along(axis, options, &workshop, &program)?);
    }
    Ok(figures)
}

fn along(axis: &Axis, options: &Options, workshop: &Workshop, program: &str) -> Result<[Figure; 3], String> {
    let at = if options.quick { &axis.at[..axis.quick.min(axis.at.len())] } else { axis.at };
    let kinds = [("calls in a second", "1/s"), ("memory of the supervisor", "MiB"), ("a rollback", "µs")];
    let empty = || -> Vec<Series> { at.iter().map(|n| Series::new(format!("{n} {}", axis.what))).collect() };
    let mut curves = kinds.map(|_| empty());
    let mut notes = vec![machine()];
    'sizes: for (point, &n) in at.iter().enumerate() {
        for _ in 0..options.runs {
            for is_wrong in [false, true] {
                match measure(axis, n, is_wrong, options, workshop, program)? {
                    Ok(found) if is_wrong => curves[2][point].values.push(found.rollback_us),
                    Ok(found) => {
                        curves[0][point].values.push(found.calls_per_s);
                        curves[1][point].values.push(found.memory_mib);
                    }
                    Err(problem) => {
                        notes.push(format!("{n} {}: {problem}; no more are tried", axis.what));
                        break 'sizes;
                    }
                }
            }
        }
        let [calls, memory, rollback] = [0, 1, 2].map(|kind| curves[kind][point].median());
        eprintln!("{n} {}: {calls:.0} calls/s, {memory:.0} MiB, a rollback {rollback:.0} µs", axis.what);
    }
    let mut kinds = kinds.into_iter().zip(axis.files).zip(curves);
    let figures = std::array::from_fn(|_| {
        let ((kind, name), series) = kinds.next()?;
        let title = format!("{}, by {}", kind.0, axis.what);
        let (notes, base) = (notes.clone(), Base::Curve(at));
        Some(Figure { name, title, unit: kind.1, series, base, targets: Vec::new(), notes })
    });
    match figures {
        [Some(calls), Some(memory), Some(rollback)] => Ok([calls, memory, rollback]),
        _ => Err("there are three kinds of curves".to_owned()),
    }
}

/// One world; the inner error says why there is no measurement.
fn measure(
    axis: &Axis,
    n: f64,
    is_wrong: bool,
    options: &Options,
    workshop: &Workshop,
    program: &str,
) -> Result<Result<Found, String>, String> {
    let stats = workshop.file("stats.json");
    let lasts = if options.quick { QUICK_CALLS_LAST } else { CALLS_LAST };
    let mut words = prefix_with(&[], &stats)?;
    words.extend([program.to_owned(), axis.mode.to_owned(), n.to_string(), lasts.as_millis().to_string()]);
    words.extend(is_wrong.then(|| "fail".to_owned()));
    let mut job = command(&words);
    job.current_dir(workshop.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = job.spawn().map_err(|error| format!("cannot run {words:?}: {error}"))?;
    let patience = if options.quick { QUICK_PATIENCE } else { PATIENCE };
    let (memory_mib, is_late) = watched(&child, Path::new(&words[0]), patience);
    let output = child.wait_with_output().map_err(|error| format!("cannot wait for {words:?}: {error}"))?;
    if is_late {
        return Ok(Err(format!("not done after {} s", patience.as_secs())));
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Ok(Err(format!("{}: {}", output.status, said.lines().last().unwrap_or_default())));
    }
    let did = ahead(&stats)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let us = did["rollbacks"].as_array().into_iter().flatten().filter_map(|one| one["us"].as_f64()).sum();
    let has_failed = did["failed"].as_u64() != Some(0) || did["unmade"].as_u64() != Some(0);
    if has_failed != is_wrong {
        return Ok(Err(format!("guesses failed: {}, waits: {}", did["failed"], did["barriers"])));
    }
    let calls_per_s = said.trim().parse().unwrap_or(f64::NAN);
    Ok(Ok(Found { calls_per_s, rollback_us: us, memory_mib }))
}

/// Looks until the world has ended, or for so long at most: then it is killed. The most memory that one of the
/// processes around it has had, MiB.
fn watched(child: &Child, binary: &Path, patience: Duration) -> (f64, bool) {
    let (pid, start) = (child.id(), Instant::now());
    let mut most = 0.0_f64;
    loop {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let has_ended = state.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'));
        if has_ended {
            return (most, false);
        }
        most = around(pid, binary).into_iter().map(|pid| high_water_mib(&pid)).fold(most, f64::max);
        if start.elapsed() > patience {
            // The world ends with its front.
            let _ = command(&["kill", "-KILL", &pid.to_string()].map(str::to_owned)).status();
            return (most, true);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The front and its children that run the same program.
fn around(front: u32, binary: &Path) -> Vec<PathBuf> {
    let children = std::fs::read_to_string(format!("/proc/{front}/task/{front}/children")).unwrap_or_default();
    let all = children.split_whitespace().map(str::to_owned).chain([front.to_string()]);
    let at = all.map(|pid| Path::new("/proc").join(pid));
    at.filter(|at| std::fs::read_link(at.join("exe")).is_ok_and(|exe| exe == binary)).collect()
}

fn high_water_mib(process: &Path) -> f64 {
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}
