//! `replay`: logs what real programs do and says how many of their calls would ask the supervisor if dependencies were
//! decided when they change (`docs/decisions/0056`).

#![forbid(unsafe_code)]

mod workload;

use clap::Parser;
use replay::simulate::{simulate, Agent, Lanes, Outcome, Setting};
use replay::step::Step;
use replay::{strace, touch};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use workload::{record, Workload, WORKLOADS};

/// Replays what real programs do against epochs of guesses
#[derive(Debug, Parser)]
struct Options {
    /// The project's checkout, which one of the programs clones
    #[arg(long, value_name = "DIR")]
    repository: PathBuf,
    /// Where the C package is that two of the programs build
    #[arg(long, value_name = "DIR")]
    sources: PathBuf,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How many times each program is logged; medians are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Milliseconds from the seal of an epoch to its commit
    #[arg(long, value_name = "MS", default_value_t = 30.0)]
    delay: f64,
    /// Only the programs whose name contains one of these
    names: Vec<String>,
}

/// Ages at which an epoch is sealed, in milliseconds.
const INTERVALS: [f64; 3] = [10.0, 100.0, 500.0];
const LANES: [(&str, Lanes); 3] = [("1 lane", Lanes::Few(1)), ("8 lanes", Lanes::Few(8)), ("exact", Lanes::Exact)];
const AGENTS: [(&str, Agent); 3] =
    [("asks", Agent::Asks), ("contents", Agent::KeepsContents), ("all", Agent::KeepsAll)];

/// What the columns are.
const LEGEND: &str = "
us: microseconds a call under strace.
asks, contents, all: calls in a hundred that ask, if the agent asks at each first touch, keeps contents itself, or keeps
older names, too. All that follows is of an agent that keeps all.
chk/s: checkpoints a second. kept: bytes of contents. procs, back: processes and calls that one failure takes back.
held: for how long the median output is held.";

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("replay: {problem}");
            ExitCode::from(125)
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let chosen: Vec<&Workload> = WORKLOADS
        .iter()
        .filter(|workload| options.names.is_empty() || options.names.iter().any(|name| workload.name.contains(name)))
        .collect();
    if chosen.is_empty() {
        let names = WORKLOADS.map(|workload| workload.name).join("; ");
        return Err(format!("no program has such a name; there are: {names}"));
    }
    println!("guesses at each look-up in the program's directory; {} ms from seal to commit\n", options.delay);
    println!(
        "{:<18} {:>8} {:>6}  {:<8} {:>4}  {:>7} {:>8} {:>6}  {:>6} {:>8} {:>5} {:>7} {:>7}",
        "program",
        "calls",
        "us",
        "lanes",
        "ms",
        "asks %",
        "contents",
        "all",
        "chk/s",
        "kept",
        "procs",
        "back",
        "held ms"
    );
    let mut figures = Vec::new();
    for workload in chosen {
        let mut logs = Vec::new();
        for _ in 0..options.runs {
            logs.push(steps_of(workload, options)?);
        }
        figures.extend(table(workload.name, &logs, options.delay / 1000.0));
    }
    println!("{LEGEND}");
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", serde_json::Value::Array(figures));
        std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(())
}

fn steps_of(workload: &Workload, options: &Options) -> Result<Vec<Step>, String> {
    let place = tempfile::tempdir().map_err(|error| format!("cannot make a directory: {error}"))?;
    let absolute = |path: &PathBuf| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    let recording = record(workload, place.path(), &absolute(&options.repository)?, &absolute(&options.sources)?)?;
    let calls = strace::parse(&recording.log);
    Ok(touch::steps(&calls, &recording.tree, recording.existing.into_iter().collect(), &[recording.outside]))
}

/// One line for each interval and kind of lanes. The figures of each are medians over the logs.
fn table(name: &str, logs: &[Vec<Step>], delay: f64) -> Vec<serde_json::Value> {
    let length = |steps: &Vec<Step>| steps.last().map_or(0.0, |step| step.time);
    let seconds = median(logs.iter().map(length));
    let calls = median(logs.iter().map(|steps| steps.len() as f64));
    let mut figures = Vec::new();
    for (lanes_name, lanes) in LANES {
        for interval in INTERVALS {
            let outcomes: Vec<[Outcome; 3]> = logs
                .iter()
                .map(|steps| {
                    AGENTS
                        .map(|(_, agent)| simulate(steps, Setting { lanes, agent, interval: interval / 1000.0, delay }))
                })
                .collect();
            let last = |figure: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(|outcome| figure(&outcome[2])));
            let asks: Vec<f64> = (0..AGENTS.len())
                .map(|at| median(outcomes.iter().map(|outcome| 100.0 * share(outcome[at].asks, outcome[at].calls))))
                .collect();
            let checkpoints = last(&|outcome| outcome.checkpoints as f64) / seconds;
            let kept = last(&|outcome| outcome.bytes as f64);
            let processes = last(&|outcome| share(outcome.processes_back, outcome.epochs));
            let back = last(&|outcome| share(outcome.calls_back, outcome.epochs));
            let held = last(&|outcome| 1000.0 * median(outcome.held.iter().copied()));
            println!(
                "{name:<18} {calls:>8.0} {:>6.1}  {lanes_name:<8} {interval:>4.0}  {:>7.2} {:>8.2} {:>6.2}  \
                 {checkpoints:>6.0} {kept:>8.0} {processes:>5.1} {back:>7.0} {held:>7.1}",
                1e6 * seconds / calls,
                asks[0],
                asks[1],
                asks[2],
            );
            let outputs = last(&|outcome| outcome.held.len() as f64);
            let waits = last(&|outcome| outcome.waits as f64);
            figures.push(json!({
                "program": name, "lanes": lanes_name, "interval_ms": interval, "calls": calls, "seconds": seconds,
                "asks_percent": asks[0], "asks_percent_contents_kept": asks[1], "asks_percent_all_kept": asks[2],
                "checkpoints_per_second": checkpoints, "bytes_kept": kept, "processes_back": processes,
                "calls_back": back, "output_held_ms": held, "outputs_held": outputs,
                "barriers_met": waits,
            }));
        }
    }
    figures
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// 0 if there is nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
