//! A disk that fails at a chosen write or flush, and what is shown nevertheless: nothing that the disk does not have.
//!
//! Each fault is drawn from a seed, which a failure names: `DISK_FAULTS=SEED` runs that one alone. Needs root, FUSE and
//! loop devices.

use std::sync::atomic::AtomicBool;

use testkit::crash::{
    private_mounts, record, replay_all, Configuration, CutPlan, Expectation, Fault, RecordOptions, Recording,
};
use testkit::workload::{Programs, Workload};

use crate::support::has_root_for;

const SEEDS: u64 = 30;
const CUTS: usize = 12;
const WORKLOADS: [&str; 3] = ["writer", "writer-fsync", "sqlite"];

fn run(seed: u64, name: &str, programs: &Programs) -> Result<(bool, bool), String> {
    let interrupted = AtomicBool::new(false);
    let fault = Fault::of_seed(seed);
    let options = RecordOptions { fault: Some(fault), ..RecordOptions::small(&interrupted) };
    let command = format!("{} run --volume {{device}}:{{dir}} --", env!("CARGO_BIN_EXE_speculator"));
    let ours = Configuration::ours(&command, "data=journal", Expectation::Safe);
    let workload = Workload { count: 40, pause_us: 300, ..Workload::parse(name).unwrap() };
    let told = |what: String| format!("seed {seed}, {name}: {fault}: {what}");
    let recording = record(&ours, &options, |dir, target| workload.command(programs, dir, target));
    let recording = recording.map_err(|error| told(error.to_string()))?;
    expect_told(&recording).map_err(told)?;
    let plan = CutPlan::new(&recording.log, seed, CUTS);
    let outcomes = replay_all(&recording.log, "data=journal", &plan.cuts, 1, &interrupted, |dir, seen| {
        workload.check(programs, dir, seen)
    });
    let outcomes = outcomes.map_err(|error| told(error.to_string()))?;
    match outcomes.iter().find(|outcome| !outcome.violations.is_empty()) {
        Some(bad) => Err(told(format!("{:?} after {}", bad.violations, recording.status))),
        None => Ok((recording.faults_hit > 0, recording.status != "0")),
    }
}

/// Status 125 and one line of ours, or, if the fault did not matter, 0 and none.
fn expect_told(recording: &Recording) -> Result<(), String> {
    let ours = recording.stderr.lines().filter(|line| line.starts_with("speculator: ")).count();
    let is_told = match recording.status.as_str() {
        "0" => ours == 0,
        "exited with 125" => ours == 1,
        _ => false,
    };
    match is_told && (recording.faults_hit > 0 || recording.status == "0") {
        true => Ok(()),
        false => Err(format!("{}, {} requests failed: {}", recording.status, recording.faults_hit, recording.stderr)),
    }
}

#[test]
fn nothing_that_the_disk_lost_was_shown() {
    if !has_root_for("the crash disk") {
        return;
    }
    private_mounts().unwrap();
    let programs = Programs::build().unwrap();
    let only = std::env::var("DISK_FAULTS").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = only.map_or(1..SEEDS + 1, |seed| seed..seed + 1);
    let (mut hit, mut ended) = (0, 0);
    let mut wrong = Vec::new();
    for seed in seeds {
        let name = WORKLOADS[seed as usize % WORKLOADS.len()];
        match run(seed, name, &programs) {
            Ok((was_hit, was_told)) => (hit, ended) = (hit + u32::from(was_hit), ended + u32::from(was_told)),
            Err(problem) => wrong.push(problem),
        }
    }
    println!("{hit} faults came about, {ended} runs ended with status 125");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(only.is_some() || ended > 10, "too few faults came about: {hit}, {ended} told");
}
