//! 002's figure 3, measured: runs workloads in configurations on a crash disk, cuts the power many times, prints a
//! table.
//!
//! The exit status is 3 when a configuration that should be safe is not, 1 when one that should lose something did not,
//! and 2 when something did not run.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use testkit::crash::{private_mounts, Channel, Configuration, CrashError, Expectation, RecordOptions};
use testkit::table::{figure_3, measure, verdict, MeasureOptions, Row, Verdict, HEADER};
use testkit::workload::{Programs, Workload};
use testkit::STATUS_FOUND;

/// Cuts the power at many moments of many runs, and shows what is lost (002, figure 3).
#[derive(Parser)]
struct Args {
    /// Workloads, by name; see --list
    #[arg(long, value_delimiter = ',', default_value = "writer,writer-fsync")]
    workloads: Vec<String>,
    /// Configurations, by name; all that are known (and ours, with --ours) when left out; see --list
    #[arg(long, value_delimiter = ',')]
    configurations: Vec<String>,
    /// What stands before the workload in the configuration `ours`. With {device} in it, it mounts the disk at {dir};
    /// otherwise that is done for it. For example "speculator run --" or "speculator run --volume {device}:{dir} --"
    #[arg(long, value_name = "COMMAND")]
    ours: Option<String>,
    /// How the disk is mounted for `ours`, unless its command does that, and after each cut
    #[arg(long, value_name = "OPTIONS", default_value = "data=journal")]
    ours_mount: String,
    /// What `ours` promises: with --elide-fsync on a file system that does not keep order it is `durable`
    #[arg(long, value_enum, default_value_t = Promise::Both)]
    ours_promise: Promise,
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
    #[arg(long, default_value_t = 8000)]
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
    /// Keep the disk as it was at the first violation of each line, before recovery, as an image in this directory
    #[arg(long, value_name = "DIR")]
    keep_images: Option<PathBuf>,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show the names of workloads and configurations
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Promise {
    /// Durable before observed, and ordered
    Both,
    /// Durable before observed
    Durable,
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    Pipe,
    Terminal,
    Udp,
    Tcp,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        return list();
    }
    match run(&args) {
        Ok(Verdict::AsExpected) => ExitCode::SUCCESS,
        Ok(Verdict::FoundNoLoss) => ExitCode::FAILURE,
        Ok(Verdict::Loses) => ExitCode::from(STATUS_FOUND),
        Ok(Verdict::DidNotRun) => ExitCode::from(2),
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

fn run(args: &Args) -> Result<Verdict, Box<dyn std::error::Error>> {
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
    let options = options(args, seed, &interrupted);
    println!("seed {seed}, {} cuts each", args.cuts);
    println!("{HEADER}");
    let mut rows = Vec::new();
    for configuration in &configurations {
        for workload in &workloads {
            let row = match measure(&options, configuration, workload, &programs) {
                Err(CrashError::Interrupted) => return Err(CrashError::Interrupted.into()),
                measured => Row::new(configuration, workload, measured),
            };
            println!("{row}");
            std::io::stdout().flush()?;
            rows.push(row);
        }
    }
    println!("\n{}", figure_3(&configurations, &rows));
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(verdict(&rows))
}

fn options<'run>(args: &'run Args, seed: u64, interrupted: &'run AtomicBool) -> MeasureOptions<'run> {
    let record = RecordOptions {
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
        fault: None,
        disturb: None,
    };
    MeasureOptions { record, cuts: args.cuts, seed, jobs: args.jobs, keep_images: args.keep_images.as_deref() }
}

fn workloads(args: &Args) -> Result<Vec<Workload>, String> {
    let parse = |name: &String| {
        let workload = Workload::parse(name);
        let workload = workload.ok_or_else(|| format!("no workload {name}; see --list"))?;
        Ok(Workload { count: args.count, block_len: args.block_len as usize, pause_us: args.pause_us, ..workload })
    };
    args.workloads.iter().map(parse).collect()
}

fn configurations(args: &Args) -> Result<Vec<Configuration>, String> {
    let mut known = Configuration::known();
    let promise = match args.ours_promise {
        Promise::Both => Expectation::Safe,
        Promise::Durable => Expectation::Durable,
    };
    if let Some(command) = &args.ours {
        let mut ours = Configuration::ours(command, &args.ours_mount, promise);
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

fn parse_ms(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=10_000.0).contains(&ms) => Ok(ms),
        _ => Err("use 0 to 10000 milliseconds".to_owned()),
    }
}
