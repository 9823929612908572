//! What the environment says about how to run: the prefix that means "inside", and where.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How and where scenarios run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What stands before a command to run it inside; empty means that nothing was found.
    pub prefix: Vec<String>,
    /// Whether the prefix can be run at all, and if not, why.
    pub prefix_problem: Option<String>,
    /// Where compiled programs are kept between runs.
    pub cache: PathBuf,
    /// Where the directories that scenarios run in are made.
    pub runs: PathBuf,
    /// Archives fetched by `cargo xtask setup`.
    pub sources: PathBuf,
    /// The Rust compiler itself, which needs no set-up of its user's, as rustup's front does; in `$TEST_RUSTC`.
    pub rustc: Option<PathBuf>,
    /// The root of the repository.
    pub repository: PathBuf,
    /// How many times as long as a scenario says a run may take: on a busy machine, and inside.
    pub patience: u32,
    /// By how much scenarios that repeat something divide their rounds; in `$ROUNDS_DIVIDED_BY`.
    pub rounds_divisor: Option<u32>,
}

impl Settings {
    /// Reads the environment:
    /// `SPECULATOR_PREFIX` (words, instead of `speculator run --`), `SPECULATOR_INTERPOSE` (`stops`),
    /// `TRANSPARENCY_DIR` (where to run; put it on a volume to have fsync elided), `TRANSPARENCY_CACHE`.
    pub fn from_environment() -> Settings {
        let repository = repository();
        let prefix = prefix(&repository);
        let prefix_problem = prefix_problem(&prefix);
        let base = std::env::temp_dir().join("speculator-transparency");
        let runs = variable("TRANSPARENCY_DIR").map_or_else(|| base.join("runs"), PathBuf::from);
        let cache = variable("TRANSPARENCY_CACHE").map_or_else(|| base.join("cache"), PathBuf::from);
        let sources = repository.join("target/sources");
        Settings {
            prefix,
            prefix_problem,
            cache,
            runs,
            sources,
            rustc: rustc(),
            repository,
            patience: 4,
            rounds_divisor: None,
        }
    }
}

fn rustc() -> Option<PathBuf> {
    let told = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let root = String::from_utf8(told.stdout).ok()?;
    let compiler = Path::new(root.trim()).join("bin/rustc");
    compiler.exists().then_some(compiler)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn prefix(repository: &Path) -> Vec<String> {
    if let Some(words) = variable("SPECULATOR_PREFIX") {
        return words.split_whitespace().map(str::to_owned).collect();
    }
    let target = variable("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
    let build = variable("SPECULATOR_BUILD").unwrap_or_else(|| "release".to_owned());
    let binary = target.join(build).join("speculator");
    let mut words = vec![binary.display().to_string(), "run".to_owned()];
    if let Some(how) = variable("SPECULATOR_INTERPOSE") {
        words.push(format!("--interpose={how}"));
    }
    words.push("--".to_owned());
    words
}

fn prefix_problem(prefix: &[String]) -> Option<String> {
    let program = Path::new(prefix.first()?);
    if program.is_absolute() && !program.exists() {
        return Some(format!("{} is not built: cargo build --release -p cli", program.display()));
    }
    None
}
