//! `test`: everything that says whether the project works, one step after the other; a failed step does not keep the
//! next from running. The table at the end says what passed, how long it took, and what was left out and why.
//!
//! What is tried waits a lot, for disks and for pauses; builds and models compute. So these run beside it. All that is
//! built is chosen from the whole workspace (chosen by `-p`, dependencies would be built again with fewer features),
//! and once: the programs that are judged are those that the tests belong to, not a release.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::shell::{
    build_comparer, build_tests, cargo, comparer, is_root, job, judge_test_build, nice_cargo, sample_number, skipped,
    target, SAMPLE_VARIABLE,
};
use crate::unstable::{self, run_tests};
use crate::volume::Volume;
use crate::{faults, guarantee, histories, search, setup};

type Step = (&'static str, fn() -> Result<(), String>);

/// Steps that run one after the other.
type Lane = &'static [Step];

/// Groups of lanes that run at the same time. Two steps that build in the same folder wait for each other.
const GROUPS: [&[Lane]; 5] = [
    &[&[("set-up", setup::run)]],
    &[&[("format", format_check)]],
    &[&[("test build", build_tests)]],
    // The first and the last one take about as long, and wait half of their time.
    &[
        &[("tests of the command line", command_line)],
        &[("loom models", loom)],
        &[
            ("unit and other integration tests", others),
            ("transparency, agent", || transparency(None, &[])),
            ("transparency, stops", || transparency(Some("stops"), &[])),
            ("rollback, short", rollback),
            ("everyday commands, a sample", everyday_sample),
        ],
    ],
    // They wait for disks and pauses most of the time; each has disks, mounts and servers of its own.
    &[
        &[("guarantee", guarantee::sample)],
        &[("lints", lints), ("faults, a sample", faults::sample)],
        &[("search for holes, a sample", search::sample)],
        &[("histories of BlueFS, a sample", histories::sample)],
    ],
];

/// What a step came to.
struct Done {
    name: &'static str,
    result: Result<(), String>,
    took: Duration,
}

/// Runs all steps.
pub fn run() -> Result<(), String> {
    judge_test_build();
    // Of another process that had this number.
    let _ = std::fs::remove_file(skipped());
    println!("tests that take one of several cases choose it by {SAMPLE_VARIABLE}={}", sample_number());
    let mut lines = Vec::new();
    let mut all = Vec::new();
    for group in GROUPS {
        let computed = computed_by_children();
        let done = side_by_side(group);
        let computed = computed_by_children().saturating_sub(computed);
        lines.extend(done.iter().map(Done::line));
        if let Some(last) = lines.last_mut() {
            last.push_str(&format!(", {:6.1} s of processor time", computed.as_secs_f64()));
        }
        all.extend(done);
    }
    let problems: Vec<&str> = all.iter().filter_map(|done| done.result.as_ref().err()).map(String::as_str).collect();
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
    tell_skipped();
    let failed: Vec<&str> = all.iter().filter(|done| done.result.is_err()).map(|done| done.name).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

fn side_by_side(group: &'static [Lane]) -> Vec<Done> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = group.iter().map(|lane| (lane, scope.spawn(|| one_by_one(lane)))).collect();
        let ended = threads.into_iter().map(|(lane, thread)| (lane, thread.join()));
        ended.flat_map(|(lane, done)| done.unwrap_or_else(|_| vec![Done::panicked(lane[0].0)])).collect()
    })
}

fn one_by_one(lane: Lane) -> Vec<Done> {
    let step = |step: &Step| std::panic::catch_unwind(|| timed(step)).unwrap_or_else(|_| Done::panicked(step.0));
    lane.iter().map(step).collect()
}

fn timed(step: &Step) -> Done {
    let (name, run) = *step;
    println!("\n== {name}");
    let start = Instant::now();
    let result = run();
    Done { name, result, took: start.elapsed() }
}

impl Done {
    fn panicked(name: &'static str) -> Done {
        Done { name, result: Err(format!("{name}: a panic")), took: Duration::ZERO }
    }

    fn line(&self) -> String {
        let verdict = if self.result.is_ok() { "ok" } else { "FAILED" };
        format!("{:30} {verdict:8} {:6.1} s", self.name, self.took.as_secs_f64())
    }
}

/// The processor time of all commands that have ended, and of what these have waited for.
fn computed_by_children() -> Duration {
    /// Of the clock that `/proc` counts in (proc(5): `sysconf(_SC_CLK_TCK)`), which is 100 on x86-64.
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything, the state is the first; cutime and cstime are the 14th and 15th.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / TICKS_PER_S)
}

fn leave_out() {
    if !is_root() {
        println!("left out without root: installing packages; volumes (transparency runs on the disk as it is); the crash disk");
    }
}

/// Tests that were left out, each once, with why: they look as if they had passed.
fn tell_skipped() {
    let text = std::fs::read_to_string(skipped()).unwrap_or_default();
    let _ = std::fs::remove_file(skipped());
    let tests: BTreeSet<&str> = text.lines().collect();
    if !tests.is_empty() {
        println!("tests that were left out:\n  {}", tests.into_iter().collect::<Vec<_>>().join("\n  "));
    }
}

fn format_check() -> Result<(), String> {
    cargo(&["fmt", "--all", "--", "--check"]).run()?;
    // The agent is a workspace of its own.
    cargo(&["fmt", "--manifest-path", "crates/agent/Cargo.toml", "--", "--check"]).run()
}

fn lints() -> Result<(), String> {
    nice_cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()?;
    // The agent is built apart, without the standard library.
    let agent =
        ["clippy", "--quiet", "--release", "--manifest-path", "crates/agent/Cargo.toml", "--", "-D", "warnings"];
    nice_cargo(&agent).env("CARGO_TARGET_DIR", target().join("agent")).run()
}

/// How many integration tests of one file run at a time: half of the time of each is waiting for disks and for pauses.
const AT_ONCE: &str = "5";

/// Integration tests of `speculator`: they take as long as all others.
fn command_line() -> Result<(), String> {
    let tests = cargo(&["test", "--quiet", "--workspace", "--test", "all", "--"]);
    run_tests(&tests.env("RUST_TEST_THREADS", AT_ONCE), &[])
}

/// The files of integration tests but for `all`, the only name with this letter.
const BUT_FOR_ALL: &str = "[!a]*";

/// Unit tests; integration tests but for those that have steps of their own; examples in documentation.
fn others() -> Result<(), String> {
    let job = |chosen: &[&str]| cargo(&["test", "--quiet", "--no-fail-fast", "--workspace"]).args(chosen).args(["--"]);
    run_tests(&job(&["--lib", "--bins"]), &[])?;
    let integration = job(&["--exclude", "transparency", "--exclude", "rollback", "--test", BUT_FOR_ALL]);
    run_tests(&integration.env("RUST_TEST_THREADS", AT_ONCE), &[])?;
    run_tests(&job(&["--doc"]), &[])
}

/// The models in loom's own target directory: its flag would have everything else built again.
fn loom() -> Result<(), String> {
    let flags = "--cfg loom";
    let job = nice_cargo(&["test", "--quiet", "--release", "-p", "commit-clock", "-p", "epochs", "--test", "loom"]);
    let job = job.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target().join("loom"));
    // A model explores all orders: it fails always or never.
    job.run_tests().map(drop).map_err(|failure| failure.said)
}

/// All transparency scenarios (or those that match `filter`), with the default interposition or `mode`. As root they
/// run on a volume, where fsync is elided and output held.
pub fn transparency(mode: Option<&str>, filter: &[String]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Kept until the tests have ended.
    let volume = match Volume::make(mode.unwrap_or("agent"), 2048) {
        Ok(volume) => Some(volume),
        // On the disk as it is, half of what is to be shown would not be.
        Err(problem) if is_root() => return Err(format!("no volume to run on: {problem}")),
        Err(problem) => {
            println!("without a volume: {problem}");
            None
        }
    };
    let mut tests = match &volume {
        Some(volume) => volume.around(Path::new(&program)).env("TRANSPARENCY_DIR", volume.path()),
        None => job(&program),
    };
    tests = tests.args(["test", "--quiet", "--workspace", "--test", "transparency", "--"]);
    if let Some(mode) = mode {
        tests = tests.env("SPECULATOR_INTERPOSE", mode);
    }
    run_tests(&tests, filter)
}

/// Programs under guesses that turn out wrong, the short form.
fn rollback() -> Result<(), String> {
    run_tests(&cargo(&["test", "--quiet", "--workspace", "--test", "rollback", "--"]), &[])
}

fn everyday_sample() -> Result<(), String> {
    everyday(["--sample=16", "--repeat=5", "--rounds=2"].map(str::to_owned).to_vec())
}

/// Everyday commands inside one open guess, as the arguments choose them.
pub fn everyday(arguments: Vec<String>) -> Result<(), String> {
    build_comparer("everyday")?;
    let into = std::env::temp_dir().join(format!("speculator-everyday-{}", std::process::id()));
    let result = comparer("everyday", &into).args(arguments).run();
    // What differs keeps its files; they are of no use to whoever does not look at them now.
    if result.is_ok() || std::env::var_os("CI").is_some() {
        let _ = std::fs::remove_dir_all(into);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::shell::repository;

    /// The names of all files of integration tests: `FOLDER/PACKAGE/tests/NAME.rs`.
    fn files() -> Vec<String> {
        let below =
            |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let packages = ["crates", "tests"].into_iter().flat_map(|folder| below(repository().join(folder)));
        let found = packages.filter(|package| package.join("Cargo.toml").is_file() && !package.ends_with("cli"));
        let files = found.flat_map(|package| below(package.join("tests")));
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
    }

    #[test]
    fn only_all_is_left_to_the_step_of_the_command_line() {
        let files = files();
        assert!(files.iter().any(|name| name == "loom"), "{files:?}");
        assert_eq!(files.iter().find(|name| name.starts_with('a')), None, "{BUT_FOR_ALL} leaves it out");
    }
}
