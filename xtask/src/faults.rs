//! `faults`: the processes that stand around a world are killed and stopped at random moments (testkit's `faults`).

use crate::shell::{build_judged, is_root, job, program, speculator, Job};

/// How many cases are a sample: about half a minute.
const SAMPLE: &str = "30";

fn campaign() -> Job {
    let ours = speculator().display().to_string();
    job(program("faults")).args(["--speculator", &ours])
}

/// A campaign, with the program's own arguments.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if !is_root() {
        println!("left out without root: the crash disk (FUSE, loop devices and mounts)");
        return Ok(());
    }
    build_judged()?;
    campaign().args(arguments).run()
}

/// A few cases, and that a world which shows its output too early is found out.
pub fn sample() -> Result<(), String> {
    run(&[SAMPLE.to_owned()])?;
    if !is_root() {
        return Ok(());
    }
    println!("\noutput released too early on purpose: losses must be found");
    campaign().args(["10", "--seed", "1", "--options=--release-early"]).has_to_find("the campaign")
}
