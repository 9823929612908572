//! `cargo xtask`: set-up, tests, demo and benchmarks. Standard library only, so that it builds anywhere in a second.

#![forbid(unsafe_code)]

mod bluefs_tests;
mod demo;
mod docs;
mod faults;
mod fuzz;
mod guarantee;
mod histories;
mod packages;
mod peers;
mod posix;
mod search;
mod setup;
mod shell;
mod test;
mod unstable;
mod volume;

use std::process::ExitCode;

use shell::{build_judged, cargo, repository, target};

/// What there is: the command, its arguments, and what it does.
const COMMANDS: [(&str, &str, &str); 22] = [
    ("setup", "", "installs what is missing of Debian's packages (as root), fetches the C package that tests build"),
    ("demo", "", "SQLite natively, under eatmydata and under `speculator run`: times, and what each loses in a crash"),
    ("test", "", "everything: format, lints, unit tests, models, transparency in both modes, the guarantee"),
    ("transparency", "[FILTER]", "only that; SPECULATOR_INTERPOSE=stops for the other mode"),
    (
        "equivalence",
        "[--seeds N] [--programs N] [--for MINUTES] [--jobs N] [FILTER]",
        "programs under guesses that turn out wrong, in full; goes on where it ended",
    ),
    (
        "everyday",
        "[--table] [--rounds N] [NAME …]",
        "everyday commands inside one open guess, and in N (20) in a row; --table writes docs/EVERYDAY.md",
    ),
    ("replay", "[--runs N] [NAME …]", "logs real programs, says how many of their calls would ask about a guess"),
    (
        "slow-link",
        "[--rtt MS] [--rate MBIT] … -- COMMAND",
        "runs a command at the other end of a slow line to a server",
    ),
    ("guarantee", "", "only the crash disk: 002's figure 3 and the workloads of the guarantee"),
    ("faults", "[N] [--seed S]", "kills and stops the supervising processes at N (500) random moments"),
    ("posix", "[--operations N] [--for MINUTES] [--seed S] [NAME …]", "pjdfstest and fsx on a BlueFS mount"),
    ("peers", "", "fetches sshd and rclone for `bench bluefs`, and unpacks them below target/peers"),
    (
        "histories",
        "[N] [--seed S] [--jobs N] [--pages] [--planted ERROR]",
        "N (100) histories of several BlueFS clients, with faults",
    ),
    ("fuzz", "[--for MINUTES] [--seed S]", "hostile clients, servers and files of BlueFS, so long at each"),
    ("hostile", "", "clients of BlueFS that lie, hoard and flood: what they are told, and how long another one waits"),
    ("contention", "", "two mounts of BlueFS want the same: appends, lock files, make, a long transaction"),
    ("programs", "", "git, cargo, npm and the build of a C package, on the disk and on a BlueFS mount"),
    ("stuck", "", "whoever waits for a BlueFS server that says nothing: programs, clients and mounts are ended"),
    (
        "suites",
        "[git] [sqlite] [python] [redis] [--places mount,run,ahead] [--sample N] [--seed S] [--only TEXT]",
        "their own test suites",
    ),
    ("search", "[--pairs N] [--seed S] [--action NAME] [--observation NAME] [-v]", "looks for what is shown too early"),
    ("bench", "NAME|all [--runs N] [--quick] [--only PART] [--max N] [--before FILE]", "figures into bench-results/"),
    ("docs", "", "regenerates docs/SYSCALLS.md; looks whether what the documents name is there"),
];

/// The names of `bench`.
const BENCHES: [&str; 17] = [
    "interposition",
    "postmark",
    "sqlite",
    "build",
    "checkpoint",
    "worth",
    "overhead",
    "answers",
    "epochs",
    "bluefs",
    "bluefs-scale",
    "ahead-calls",
    "guess-build",
    "growth",
    "signals",
    "barriers",
    "all",
];

/// What `help` prints.
fn help() -> String {
    let mut text = "cargo xtask COMMAND\n".to_owned();
    for (name, arguments, what) in COMMANDS {
        text += &format!("\n  {}\n      {what}\n", format!("{name} {arguments}").trim_end());
    }
    text + &format!("\nNames of benchmarks: {}\n", BENCHES.join(", "))
}

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
    let (name, rest) = arguments.split_first().ok_or("no command; see cargo xtask help")?;
    if ["test", "transparency", "equivalence", "everyday", "suites"].contains(&name.as_str()) {
        shell::take_interrupts()?;
    }
    match name.as_str() {
        "setup" => setup::run(),
        "demo" => demo::run(),
        "test" => test::run(),
        "transparency" => transparency(rest),
        "equivalence" => equivalence(rest),
        "everyday" => everyday(rest),
        "replay" => replay(rest),
        // Its exit status is the command's, and interrupts reach both.
        "slow-link" => Err(cargo(&["run", "--quiet", "-p", "testkit", "--bin", "slow-link", "--"]).args(rest).exec()),
        "guarantee" => guarantee::run(),
        "faults" => faults::run(rest),
        "posix" => posix::run(rest),
        "peers" => peers::run(),
        "histories" => histories::run(rest),
        "contention" => bluefs_tests::run("bluefs_contention", "BLUEFS_CONTENTION"),
        "hostile" => bluefs_tests::run("bluefs_hostile", "BLUEFS_HOSTILE"),
        "fuzz" => fuzz::run(rest),
        "programs" => bluefs_tests::run("bluefs_programs", "BLUEFS_PROGRAMS"),
        "stuck" => bluefs_tests::run("bluefs_stuck", "BLUEFS_STUCK"),
        "search" => search::run(rest),
        "suites" => suites(rest),
        "bench" => bench(rest),
        "docs" => docs::run(),
        "help" | "--help" | "-h" => {
            print!("{}", help());
            Ok(())
        }
        other => Err(format!("no command {other}; see cargo xtask help")),
    }
}

fn transparency(filter: &[String]) -> Result<(), String> {
    build_judged()?;
    test::transparency(std::env::var("SPECULATOR_INTERPOSE").ok().as_deref(), filter)
}

/// Every scenario with every rate and many seeds, and many random programs. An interrupt has to reach who runs them,
/// and is waited for: so that is what we become.
fn equivalence(arguments: &[String]) -> Result<(), String> {
    build_judged()?;
    let into = format!("--into={}", target().join("equivalence").display());
    Err(cargo(&["run", "--quiet", "-p", "rollback", "--", &into]).args(arguments).exec())
}

/// Everyday commands inside one open guess, all or those that are named.
fn everyday(arguments: &[String]) -> Result<(), String> {
    build_judged()?;
    let table = repository().join("docs/EVERYDAY.md");
    let table = format!("--table={}", table.display());
    let arguments = arguments.iter().map(|word| if word == "--table" { table.clone() } else { word.clone() });
    test::everyday(arguments.collect())
}

/// The suites of git, SQLite, Python and Redis, on the disk and in other places.
fn suites(arguments: &[String]) -> Result<(), String> {
    if !shell::is_root() {
        println!("left out without root: mounts");
        return Ok(());
    }
    for package in ["git", "sqlite3", "redis"] {
        setup::fetch(package)?;
    }
    build_judged()?;
    shell::build_comparer("suites")?;
    let into = std::env::temp_dir().join(format!("speculator-suites-{}", std::process::id()));
    let folders = [("--sources=", setup::sources()), ("--build=", target().join("suites"))];
    let folders = folders.map(|(option, folder)| format!("{option}{}", folder.display()));
    shell::comparer("suites", &into).args(folders).args(arguments).run()
}

/// Logs what real programs do, and replays it against epochs of guesses.
fn replay(arguments: &[String]) -> Result<(), String> {
    setup::fetch_source()?;
    let results = repository().join("bench-results");
    std::fs::create_dir_all(&results).map_err(|error| format!("cannot make {}: {error}", results.display()))?;
    let options = [
        format!("--repository={}", repository().display()),
        format!("--sources={}", setup::sources().display()),
        format!("--json={}", results.join("replay.json").display()),
    ];
    cargo(&["run", "--quiet", "--release", "-p", "replay", "--"]).args(options).args(arguments).run()
}

fn bench(arguments: &[String]) -> Result<(), String> {
    // It is built for minutes, and would find this out only then.
    if let Some(unknown) = unknown_bench(arguments) {
        return Err(format!("no benchmark {unknown}; there are {}", BENCHES.join(", ")));
    }
    if !shell::is_root() {
        println!("left out without root: postmark, sqlite, build, answers (they mount file systems)");
    }
    build_judged()?;
    let examples = ["--example", "cost", "--example", "cost_threads"];
    cargo(&[&["build", "--quiet", "--release", "-p", "checkpoint"], &examples[..]].concat()).run()?;
    cargo(&["run", "--quiet", "--release", "-p", "bench", "--"]).args(arguments).run()
}

/// A word that should name a benchmark, and names none.
fn unknown_bench(arguments: &[String]) -> Option<&String> {
    let takes_value = |word: &String| ["--runs", "--only", "--max", "--before"].contains(&word.as_str());
    let is_value = |at: usize| at > 0 && takes_value(&arguments[at - 1]);
    let names = arguments.iter().enumerate().filter(|(at, word)| !word.starts_with('-') && !is_value(*at));
    names.map(|(_, word)| word).find(|word| !BENCHES.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_that_is_none_is_found_before_anything_is_built() {
        let unknown = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            unknown_bench(&words).cloned()
        };
        assert_eq!(unknown("nonsense --quick"), Some("nonsense".to_owned()));
        assert_eq!(unknown("--runs 3 sqlite --only speculator --before old"), None);
        assert_eq!(unknown(""), None);
    }

    /// As `bench` has them itself.
    #[test]
    fn each_benchmark_is_named() {
        let path = repository().join("bench/src/main.rs");
        let text = std::fs::read_to_string(path).expect("its source");
        let rows = text.lines().filter_map(|line| line.trim_start().strip_prefix("(\"")?.split_once("\", "));
        let names: Vec<&str> = rows.map(|(name, _)| name).chain(["all"]).collect();
        assert_eq!(names, BENCHES);
    }

    #[test]
    fn each_command_is_in_the_help() {
        let source = include_str!("main.rs");
        let matched = source.split_once("match name.as_str() {").expect("the commands").1;
        let arms = matched.lines().map_while(|line| (!line.starts_with("    }")).then_some(line));
        let names: Vec<&str> = arms
            .filter_map(|line| line.trim_start().strip_prefix('"')?.split_once("\" =>"))
            .map(|(name, _)| name)
            .collect();
        assert!(names.len() == COMMANDS.len() + 1, "{names:?}");
        for name in names.iter().filter(|name| !name.starts_with("help")) {
            assert!(COMMANDS.iter().any(|(known, ..)| known == name), "{name}");
        }
    }
}
