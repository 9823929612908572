//! `cargo xtask`: set-up, tests, demo and benchmarks. Standard library only, so that it builds anywhere in a second.
//!
//! | command | what it does |
//! |---|---|
//! | `setup` | installs what is missing of Debian's packages (as root), fetches the C package that tests build |
//! | `demo` | SQLite natively, under eatmydata and under `speculator run`: times, and what each loses in a crash |
//! | `test` | everything: format, lints, unit tests, models, transparency in both modes, the guarantee |
//! | `transparency [FILTER]` | only that; `SPECULATOR_INTERPOSE=stops` for the other mode |
//! | `equivalence [--seeds N] [--programs N] [--for MINUTES] [FILTER]` | programs under guesses that turn out wrong, in full; goes on where it ended |
//! | `everyday [--table] [NAME …]` | everyday commands inside one open guess; `--table` writes `docs/EVERYDAY.md` |
//! | `guarantee` | only the crash disk: 002's figure 3 and the workloads of the guarantee |
//! | `faults [N] [--seed S]` | kills and stops the supervising processes at N (500) random moments |
//! | `bench NAME [--runs N] [--quick]` | figures into `bench-results/` |
//! | `docs` | regenerates `docs/SYSCALLS.md` |

#![forbid(unsafe_code)]

mod demo;
mod faults;
mod guarantee;
mod packages;
mod setup;
mod shell;
mod test;
mod unstable;
mod volume;

use std::process::ExitCode;

use shell::{cargo, repository, target};

const USAGE: &str = "cargo xtask setup | demo | test | transparency [FILTER] | \
    equivalence [--seeds N] [--programs N] [--for MINUTES] [--jobs N] [FILTER] | \
    everyday [--table] [NAME …] | guarantee | faults [N] [--seed S] | \
    bench interposition|postmark|sqlite|build|checkpoint|worth|overhead|answers|all [--runs N] [--quick] | docs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let (name, rest) = arguments.split_first().ok_or_else(|| format!("usage: {USAGE}"))?;
    match name.as_str() {
        "setup" => setup::run(),
        "demo" => demo::run(),
        "test" => test::run(),
        "transparency" => transparency(rest),
        "equivalence" => equivalence(rest),
        "everyday" => everyday(rest),
        "guarantee" => guarantee::run(),
        "faults" => faults::run(rest),
        "bench" => bench(rest),
        "docs" => docs(),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("no command {other}; usage: {USAGE}")),
    }
}

fn transparency(filter: &[String]) -> Result<(), String> {
    build_release()?;
    test::transparency(std::env::var("SPECULATOR_INTERPOSE").ok().as_deref(), filter)
}

/// Every scenario with every rate and many seeds, and many random programs. An interrupt has to reach who runs them, and is waited for: so that is
/// what we become.
fn equivalence(arguments: &[String]) -> Result<(), String> {
    build_release()?;
    let into = format!("--into={}", target().join("equivalence").display());
    Err(cargo(&["run", "--quiet", "-p", "rollback", "--", &into]).args(arguments).exec())
}

/// Everyday commands inside one open guess, all or those that are named.
fn everyday(arguments: &[String]) -> Result<(), String> {
    build_release()?;
    let table = repository().join("docs/EVERYDAY.md");
    let table = format!("--table={}", table.display());
    let arguments = arguments.iter().map(|word| if word == "--table" { table.clone() } else { word.clone() });
    test::everyday(arguments.collect())
}

fn bench(arguments: &[String]) -> Result<(), String> {
    if !shell::is_root() {
        println!("left out without root: postmark, sqlite, build, answers (they mount file systems)");
    }
    build_release()?;
    cargo(&["build", "--quiet", "--release", "-p", "checkpoint", "--example", "cost"]).run()?;
    cargo(&["run", "--quiet", "--release", "-p", "bench", "--"]).args(arguments).run()
}

fn docs() -> Result<(), String> {
    let text = cargo(&["run", "--quiet", "-p", "syscall-table", "--example", "syscalls_md"]).output()?;
    let file = repository().join("docs/SYSCALLS.md");
    std::fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}

/// Builds the `speculator` binary.
fn build_release() -> Result<(), String> {
    cargo(&["build", "--release", "-p", "cli"]).run()
}
