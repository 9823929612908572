//! 002's figure 3, measured: runs workloads in configurations on a crash disk, cuts the power many times, prints a table.
//!
//! The exit status is 1 when a configuration that should be safe is not, or one that should lose something did not.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use serde::Serialize;
use testkit::crash::{
    private_mounts, record, replay_all, Channel, Configuration, CrashError, CutPlan, Expectation,
    RecordOptions, Report,
};
use testkit::workload::{Programs, Synchrony, Workload};

/// Cuts the power at many moments of many runs, and shows what is lost (002, figure 3).
#[derive(Parser)]
struct Args {
    /// Workloads, by name; see --list
    #[arg(long, value_delimiter = ',', default_value = "writer,writer-fsync")]
    workloads: Vec<String>,
    /// Configurations, by name; all that are known (and ours, with --ours) when left out; see --list
    #[arg(long, value_delimiter = ',')]
    configurations: Vec<String>,
    /// What stands before the workload in the configuration `ours`. With {device} in it, it mounts the disk at {dir}; otherwise
    /// that is done for it. For example "speculator run --" or "speculator run --volume {device}:{dir} --"
    #[arg(long, value_name = "COMMAND")]
    ours: Option<String>,
    /// Makes the file system of `ours`, such as "mkfs.ext4 -q -F {device}"
    #[arg(long, value_name = "COMMAND", requires = "ours")]
    ours_format: Option<String>,
    /// Cuts for each workload in each configuration
    #[arg(long, default_value_t = 500)]
    cuts: usize,
    /// What the cuts are drawn with; from the time when left out
    #[arg(long)]
    seed: Option<u64>,
    /// Changes that a workload makes
    #[arg(long, default_value_t = 200)]
    count: u32,
    /// Length of a block, bytes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(16..))]
    block_len: u32,
    /// How long a workload rests after each change, µs
    #[arg(long, default_value_t = 2000)]
    pause_us: u32,
    /// Size of the disk, MiB
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(16..=4096))]
    disk_mib: u32,
    /// How long a flush takes beyond what it costs here, ms
    #[arg(long, default_value_t = 0.0, value_parser = parse_ms)]
    flush_ms: f64,
    /// How messages get out
    #[arg(long, value_enum, default_value_t = To::Pipe)]
    to: To,
    /// Replays at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// How long a workload may run, s
    #[arg(long, default_value_t = 120)]
    patience_s: u64,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show the names of workloads and configurations
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    Pipe,
    Terminal,
    Udp,
    Tcp,
}

/// A line of the table, and a row of the file.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    report: Report,
    expectation: Expectation,
    as_expected: bool,
    /// The run did not come about.
    error: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        return list();
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("crash-table: {error}");
            ExitCode::from(2)
        }
    }
}

fn list() -> ExitCode {
    println!("workloads: {}", Workload::names().join(" "));
    let names = Configuration::known().into_iter().map(|known| known.name);
    println!("configurations: {} ours", names.collect::<Vec<_>>().join(" "));
    ExitCode::SUCCESS
}

fn run(args: &Args) -> Result<bool, Box<dyn std::error::Error>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second one ends us at once; the keeper and the mount namespace clear up.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    private_mounts()?;
    let workloads = workloads(args)?;
    let configurations = configurations(args)?;
    let programs = Programs::build()?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("seed {seed}, {} cuts each", args.cuts);
    println!("{HEADER}");
    let mut rows = Vec::new();
    for configuration in &configurations {
        for workload in &workloads {
            let expectation = workload.expectation(configuration);
            let measured = measure(args, configuration, workload, &programs, seed, &interrupted);
            let row = match measured {
                Ok(report) => Row::new(report, expectation),
                Err(CrashError::Interrupted) => return Err(CrashError::Interrupted.into()),
                Err(error) => Row::failed(configuration, workload, expectation, &error),
            };
            println!("{}", row.line());
            row.explain();
            std::io::stdout().flush()?;
            rows.push(row);
        }
    }
    println!("\n{}", figure_3(&configurations, &rows));
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(rows.iter().all(|row| row.as_expected))
}

fn workloads(args: &Args) -> Result<Vec<Workload>, String> {
    let parse = |name: &String| {
        let workload = Workload::parse(name);
        let workload = workload.ok_or_else(|| format!("no workload {name}; see --list"))?;
        Ok(Workload {
            count: args.count,
            block_len: args.block_len as usize,
            pause_us: args.pause_us,
            ..workload
        })
    };
    args.workloads.iter().map(parse).collect()
}

fn configurations(args: &Args) -> Result<Vec<Configuration>, String> {
    let mut known = Configuration::known();
    if let Some(command) = &args.ours {
        let mut ours = Configuration::ours(command);
        if let Some(format) = &args.ours_format {
            ours.format = format.split_whitespace().map(str::to_owned).collect();
        }
        known.push(ours);
    }
    if args.configurations.is_empty() {
        return Ok(known);
    }
    let find = |name: &String| {
        let found = known.iter().find(|known| known.name == *name).cloned();
        found.ok_or_else(|| format!("no configuration {name}; see --list (ours needs --ours COMMAND)"))
    };
    args.configurations.iter().map(find).collect()
}

fn measure(
    args: &Args,
    configuration: &Configuration,
    workload: &Workload,
    programs: &Programs,
    seed: u64,
    interrupted: &AtomicBool,
) -> Result<Report, CrashError> {
    let options = RecordOptions {
        disk_len: (args.disk_mib as usize) << 20,
        flush_delay: Duration::from_secs_f64(args.flush_ms / 1000.0),
        channel: match args.to {
            To::Pipe => Channel::Pipe,
            To::Terminal => Channel::Terminal,
            To::Udp => Channel::Udp,
            To::Tcp => Channel::Tcp,
        },
        patience: Duration::from_secs(args.patience_s),
        interrupted,
    };
    let recording = record(configuration, &options, |dir, target| {
        workload.command(programs, dir, target)
    })?;
    let log = &recording.log;
    let plan = CutPlan::new(log, seed, args.cuts);
    let begin = Instant::now();
    let recover = &configuration.recover_options;
    let outcomes = replay_all(log, recover, &plan.cuts, args.jobs, interrupted, |dir, seen| {
        workload.check(dir, seen)
    })?;
    Ok(Report {
        configuration: configuration.name.clone(),
        workload: workload.name(),
        run_s: recording.elapsed.as_secs_f64(),
        replay_s: begin.elapsed().as_secs_f64(),
        ..Report::new(log, &plan, &outcomes)
    })
}

const HEADER: &str = "configuration      workload         cuts  not-durable  out-of-order  corrupt   run s  replay s  writes  flushes  as expected";

impl Row {
    fn new(report: Report, expectation: Expectation) -> Row {
        let as_expected = match expectation {
            Expectation::Safe => !report.has_violations(),
            Expectation::Lossy => report.has_violations(),
            Expectation::Unknown => true,
        };
        Row {
            report,
            expectation,
            as_expected,
            error: None,
        }
    }

    fn failed(
        configuration: &Configuration,
        workload: &Workload,
        expectation: Expectation,
        error: &CrashError,
    ) -> Row {
        Row {
            report: Report {
                configuration: configuration.name.clone(),
                workload: workload.name(),
                ..Report::default()
            },
            expectation,
            as_expected: false,
            error: Some(error.to_string()),
        }
    }

    fn line(&self) -> String {
        let report = &self.report;
        let expected = match (self.as_expected, self.expectation) {
            (true, Expectation::Safe) => "yes: safe",
            (true, Expectation::Lossy) => "yes: loses",
            (true, Expectation::Unknown) => "no claim",
            (false, _) if self.error.is_some() => "NO: DID NOT RUN",
            (false, Expectation::Lossy) => "NO: FOUND NO LOSS",
            (false, _) => "NO: LOSES",
        };
        format!(
            "{:<18} {:<15} {:>5} {:>12} {:>13} {:>8} {:>7.2} {:>9.1} {:>7} {:>8}  {expected}",
            report.configuration,
            report.workload,
            report.cut_points,
            report.not_durable,
            report.out_of_order,
            report.corrupt,
            report.run_s,
            report.replay_s,
            report.writes,
            report.flushes,
        )
    }

    /// What a reader needs who did not expect this.
    fn explain(&self) {
        if let Some(error) = &self.error {
            println!("    {error}");
        }
        if self.as_expected {
            return;
        }
        for example in &self.report.examples {
            println!(
                "    cut at {}: {} events on the platter, {} writes kept, {} messages seen: {:?}",
                example.at, example.certain, example.kept, example.observed, example.violations
            );
        }
    }
}

/// The paper's table: is data durable on write, on fsync? From the workloads that write only, and those that sync.
fn figure_3(configurations: &[Configuration], rows: &[Row]) -> String {
    let mut table = format!("{:<18} {:<22} data durable on fsync", "", "data durable on write");
    for configuration in configurations {
        let answer = |synced: bool| {
            let is_cell = |row: &&Row| {
                let workload = Workload::parse(&row.report.workload);
                let syncs = workload.is_some_and(|workload| workload.synchrony != Synchrony::None);
                row.report.configuration == configuration.name && syncs == synced && row.error.is_none()
            };
            let cells: Vec<&Row> = rows.iter().filter(is_cell).collect();
            match cells.iter().any(|row| row.report.has_violations()) {
                _ if cells.is_empty() => "-",
                true => "No",
                false => "Yes",
            }
        };
        let line = format!("\n{:<18} {:<22} {}", configuration.name, answer(false), answer(true));
        table.push_str(&line);
    }
    table
}

fn parse_ms(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=10_000.0).contains(&ms) => Ok(ms),
        _ => Err("use 0 to 10000 milliseconds".to_owned()),
    }
}
