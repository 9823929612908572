//! `bench {interposition|postmark|sqlite|build|checkpoint|worth|overhead|answers|epochs|bluefs|bluefs-scale|
//! ahead-calls|guess-build|growth|signals|barriers|all} [--runs N] [--quick] [--only PART] [--max N] [--before FILE]`:
//! the figures of the papers.
//!
//! Everything that is compared is measured in one run, interleaved, and given as medians and ratios: absolute times
//! move from machine to machine. Each figure leaves a table on standard output and, under `bench-results/`, a JSON
//! file with every single measurement and an SVG plot.

#![forbid(unsafe_code)]

mod ahead_calls;
mod answers;
mod barriers;
mod bluefs;
mod bluefs_place;
mod bluefs_scale;
mod bluefs_served;
mod build;
mod checkpoint;
mod epochs;
mod figure;
mod growth;
mod guess_build;
mod guest;
mod image;
mod inside;
mod interposition;
mod overhead;
mod peers;
mod plot;
mod postmark;
mod report;
mod servers;
mod signals;
mod sqlite;
mod worth;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each peer is measured.
    pub runs: usize,
    /// Smaller workloads: says whether everything works, not how fast.
    pub quick: bool,
    /// No point of a curve beyond this one, where the benchmark has room for it.
    pub max: Option<f64>,
    /// An older `speculator`, to be measured beside this one where a figure has room for it.
    pub before: Option<PathBuf>,
    /// Parts of a benchmark that has several, if not all of them are wanted.
    pub only: Vec<String>,
}

type Bench = fn(&Options) -> Result<Vec<figure::Figure>, String>;

const BENCHES: [(&str, Bench); 16] = [
    ("interposition", |options| Ok(vec![interposition::run(options)?])),
    ("postmark", |options| Ok(vec![postmark::run(options)?])),
    ("sqlite", |options| Ok(vec![sqlite::run(options)?])),
    ("build", |options| Ok(vec![build::run(options)?])),
    ("checkpoint", checkpoint::run),
    ("worth", |options| Ok(vec![worth::run(options)?])),
    ("overhead", |options| Ok(vec![overhead::run(options)?])),
    ("answers", answers::run),
    ("epochs", epochs::run),
    ("bluefs", bluefs::run),
    ("bluefs-scale", bluefs_scale::run),
    ("ahead-calls", |options| Ok(vec![ahead_calls::run(options)?])),
    ("guess-build", |options| Ok(vec![guess_build::run(options)?])),
    ("growth", growth::run),
    ("signals", |options| Ok(vec![signals::run(options)?])),
    ("barriers", |options| Ok(vec![barriers::run(options)?])),
];

/// Set in the process that has its own mount namespace.
const PRIVATE: &str = "SPECULATOR_BENCH_PRIVATE_MOUNTS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if std::env::var_os(PRIVATE).is_none() {
        // Mounts of its own: whatever happens to us, none is left behind. Without root there are none to make.
        let error = with_private_mounts(&arguments);
        eprintln!("bench: no mount namespace ({error}): only what needs no mount will work");
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this program again in a mount namespace of its own; returns only if that is impossible.
fn with_private_mounts(arguments: &[String]) -> std::io::Error {
    let Ok(this) = std::env::current_exe() else { return std::io::Error::other("cannot find this program") };
    let may = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return std::io::Error::other("unshare --mount is refused");
    }
    Command::new("unshare").arg("--mount").arg(this).args(arguments).env(PRIVATE, "1").exec()
}

fn run(arguments: &[String]) -> Result<(), String> {
    let (wanted, options) = parse(arguments)?;
    let chosen: Vec<&(&str, Bench)> = BENCHES.iter().filter(|(name, _)| wanted == "all" || wanted == *name).collect();
    if chosen.is_empty() {
        let names = BENCHES.map(|(name, _)| name).join(", ");
        return Err(format!("no benchmark {wanted}; there are {names}, all"));
    }
    for (name, bench) in chosen {
        for figure in bench(&options).map_err(|problem| format!("{name}: {problem}"))? {
            report::publish(&figure)?;
        }
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(String, Options), String> {
    let mut options = Options { runs: 5, quick: false, max: None, before: None, only: Vec::new() };
    let mut wanted = "all".to_owned();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.quick = true,
            "--max" => {
                let number = words.next().and_then(|text| text.parse().ok());
                options.max = Some(number.ok_or("--max needs a number")?);
            }
            "--before" => {
                let binary = words.next().map(PathBuf::from).filter(|binary| binary.is_file());
                // Benchmarks change their working directory.
                let binary = binary.and_then(|binary| binary.canonicalize().ok());
                options.before = Some(binary.ok_or("--before needs an older binary of speculator")?);
            }
            "--only" => options.only.push(words.next().ok_or("--only needs the name of a part")?.clone()),
            "--runs" => {
                let number = words.next().and_then(|text| text.parse().ok()).filter(|runs| *runs > 0);
                options.runs = number.ok_or("--runs needs a number")?;
            }
            name => wanted = name.to_owned(),
        }
    }
    Ok((wanted, options))
}
