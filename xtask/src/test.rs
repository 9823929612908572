//! `test`: everything that says whether the project works, one step after the other; a failed step does not keep the
//! next from running. The table at the end says what passed, how long it took, and what was left out and why.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::shell::{cargo, is_root, job, speculator, target};
use crate::unstable::{self, run_tests};
use crate::volume::Volume;
use crate::{build_release, faults, guarantee, search, setup};

type Step = (&'static str, fn() -> Result<(), String>);

const STEPS: [Step; 13] = [
    ("set-up", setup::run),
    ("format", format_check),
    ("lints", lints),
    ("release build", build_release),
    ("unit and integration tests", workspace_tests),
    ("loom models", loom),
    ("transparency, agent", || transparency(None, &[])),
    ("transparency, stops", || transparency(Some("stops"), &[])),
    ("rollback, short", rollback),
    ("everyday commands, a sample", || {
        everyday(["--sample=16", "--repeat=5", "--rounds=2"].map(str::to_owned).to_vec())
    }),
    ("guarantee", guarantee::sample),
    ("faults, a sample", faults::sample),
    ("search for holes, a sample", search::sample),
];

/// Runs all steps.
pub fn run() -> Result<(), String> {
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    let mut problems = Vec::new();
    for (name, step) in STEPS {
        println!("\n== {name}");
        let start = Instant::now();
        let result = step();
        lines.push(summary(name, &result, start.elapsed()));
        if let Err(problem) = result {
            failed.push(name);
            problems.push(problem);
        }
    }
    // What matters to whoever sees only the end.
    if !problems.is_empty() {
        println!("\n== what failed\n{}", problems.join("\n"));
    }
    let unstable = unstable::seen();
    if !unstable.is_empty() {
        println!("\n== unstable: failed once, passed when run again\n{}", unstable.join("\n"));
    }
    println!("\n{}", lines.join("\n"));
    leave_out();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("failed: {}", failed.join(", ")))
}

fn summary(name: &str, result: &Result<(), String>, took: Duration) -> String {
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    format!("{name:30} {verdict:8} {:6.1} s", took.as_secs_f64())
}

fn leave_out() {
    if !is_root() {
        println!("left out without root: installing packages; volumes (transparency runs on the disk as it is); the crash disk");
    }
}

fn format_check() -> Result<(), String> {
    cargo(&["fmt", "--all", "--", "--check"]).run()?;
    // The agent is a workspace of its own.
    cargo(&["fmt", "--manifest-path", "crates/agent/Cargo.toml", "--", "--check"]).run()
}

fn lints() -> Result<(), String> {
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()?;
    // The agent is built apart, without the standard library.
    let agent =
        ["clippy", "--quiet", "--release", "--manifest-path", "crates/agent/Cargo.toml", "--", "-D", "warnings"];
    cargo(&agent).env("CARGO_TARGET_DIR", target().join("agent")).run()
}

fn workspace_tests() -> Result<(), String> {
    let crates =
        ["test", "--quiet", "--no-fail-fast", "--workspace", "--exclude", "transparency", "--exclude", "rollback"];
    run_tests(&cargo(&crates).args(["--"]), &[])?;
    run_tests(&cargo(&["test", "--quiet", "-p", "transparency", "-p", "rollback", "--lib", "--"]), &[])
}

/// The models in loom's own target directory: its flag would have everything else built again.
fn loom() -> Result<(), String> {
    let flags = "--cfg loom";
    let job = cargo(&["test", "--quiet", "--release", "-p", "commit-clock", "-p", "epochs", "--test", "loom"]);
    let job = job.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target().join("loom"));
    // A model explores all orders: it fails always or never.
    job.run_tests().map_err(|failure| failure.said)
}

/// All transparency scenarios (or those that match `filter`), with the default interposition or `mode`. As root they
/// run on a volume, where fsync is elided and output held.
pub fn transparency(mode: Option<&str>, filter: &[String]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Kept until the tests have ended.
    let volume = Volume::make("transparency", 2048).map_err(|problem| println!("without a volume: {problem}")).ok();
    let mut tests = match &volume {
        Some(volume) => volume.around(Path::new(&program)).env("TRANSPARENCY_DIR", volume.path()),
        None => job(&program),
    };
    tests = tests.args(["test", "--quiet", "-p", "transparency", "--test", "transparency", "--"]);
    if let Some(mode) = mode {
        tests = tests.env("SPECULATOR_INTERPOSE", mode);
    }
    run_tests(&tests, filter)
}

/// Programs under guesses that turn out wrong, the short form.
fn rollback() -> Result<(), String> {
    run_tests(&cargo(&["test", "--quiet", "-p", "rollback", "--test", "rollback", "--"]), &[])
}

/// Everyday commands inside one open guess, as the arguments choose them.
pub fn everyday(arguments: Vec<String>) -> Result<(), String> {
    cargo(&["build", "--quiet", "-p", "everyday"]).run()?;
    let into = std::env::temp_dir().join(format!("speculator-everyday-{}", std::process::id()));
    let speculator = format!("--speculator={}", speculator().display());
    let result = job(target().join("debug/everyday"))
        .args([speculator, format!("--into={}", into.display())])
        .args(arguments)
        .run();
    // What differs keeps its files; they are of no use to whoever does not look at them now.
    if result.is_ok() || std::env::var_os("CI").is_some() {
        let _ = std::fs::remove_dir_all(into);
    }
    result
}
