//! `guarantee`: the crash disk (testkit's `crash-table`): 002's figure 3, and the workloads that external synchrony is
//! judged by, each cut at 500 points and more.

use crate::shell::{build_judged, is_root, job, program, speculator, Job};

/// Cuts for each workload in each configuration, as the project promises.
const CUTS: &str = "500";

/// Configurations beside ours in figure 3; each that loses something shows that the crash disk notices.
const FIGURE_3: &str = "async,sync-nobarrier,sync,eatmydata,ours";

/// Workloads that only ours is held to: three processes in a pipeline, two over loopback TCP, threads, many files,
/// SQLite with a rollback journal and with a log.
const OTHERS: &str = "pipeline,tcp,threads,files,sqlite,sqlite-wal";

/// Servers whose clients are outside: what was acknowledged is there after the crash.
const SERVERS: [&str; 3] = ["postgresql", "redis", "sqlite-server"];
/// A disk with room for them.
const FOR_SERVERS: &[&str] = &["--disk-mib", "64", "--count", "150"];

/// A file system that keeps no order, where fsync is real, and the flush of one file may be a commit.
const UNORDERED: &[&str] = &["--ours-mount", "commit=5", "--ours-promise", "durable"];

/// Cuts of what starts a server after each, where all of them would take too long; drawn with a seed that is printed.
const CUTS_FEW: &str = "60";

/// Where the kernel hands data over, or changes a file without a call: pages that are sent while another process
/// writes, and cores.
const RACES: &str = "sendfile,splice";
const CORE: &str = "core";

/// Whether cores are files beside the process that leaves them (core(5)).
fn has_cores() -> bool {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    pattern.starts_with("core")
}

/// A job that runs `crash-table` with ours as a configuration.
pub fn crash_table() -> Job {
    crash_table_of("run --")
}

fn crash_table_of(command: &str) -> Job {
    let ours = format!("{} {command}", speculator().display());
    job(program("crash-table")).args(["--ours", &ours])
}

/// Runs it in full.
pub fn run() -> Result<(), String> {
    run_with(CUTS)
}

/// The same with fewer cuts of servers.
pub fn sample() -> Result<(), String> {
    run_with(CUTS_FEW)
}

fn run_with(cuts_of_servers: &str) -> Result<(), String> {
    if !is_root() {
        println!("left out without root: the crash disk (FUSE, loop devices and mounts)");
        return Ok(());
    }
    build_judged()?;
    let figure =
        crash_table().args(["--workloads", "writer,writer-fsync", "--configurations", FIGURE_3, "--cuts", CUTS]);
    let figure = figure.run();
    let mut others = vec![OTHERS, RACES];
    match has_cores() {
        true => others.push(CORE),
        false => println!("left out: cores, which are no files here (/proc/sys/kernel/core_pattern)"),
    }
    let others = others.join(",");
    let ours = crash_table().args(["--workloads", &others, "--configurations", "ours", "--cuts", CUTS]).run();
    let one_file = crash_table().args(["--workloads", "writer-fsync,tcp-fsync,threads-fsync"]);
    let one_file = one_file.args(UNORDERED).args(["--configurations", "ours", "--cuts", CUTS]).run();
    figure.and(ours).and(one_file).and_then(|()| servers(cuts_of_servers)).and_then(|()| finds_early_output())
}

fn servers(cuts: &str) -> Result<(), String> {
    println!("\nservers whose clients are outside: where order is kept, and where it is not");
    let job = || {
        let workloads = SERVERS.join(",");
        crash_table().args(FOR_SERVERS).args(["--workloads", &workloads, "--configurations", "ours", "--cuts", cuts])
    };
    job().run().and_then(|()| job().args(UNORDERED).run())
}

/// The crash disk must find losses when our own engine shows output before it is durable. Any other failure would prove
/// nothing.
fn finds_early_output() -> Result<(), String> {
    println!("\noutput released too early on purpose: losses must be found");
    let early = || crash_table_of("run --release-early --").args(["--configurations", "ours"]);
    let writers = early().args(["--workloads", "writer,writer-fsync", "--cuts", CUTS]);
    // One by one: each of them has to show it.
    let alone = |server: &str| early().args(FOR_SERVERS).args(["--workloads", server, "--cuts", CUTS_FEW]);
    let servers = SERVERS.map(alone);
    std::iter::once(writers).chain(servers).try_for_each(|job| job.has_to_find("the crash disk"))
}
