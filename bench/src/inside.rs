//! How a command is run inside, and what the supervisor says of it afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The words before a command that run it inside; with statistics into `stats`, if that is wanted and possible.
/// `SPECULATOR_PREFIX` replaces them (and then there are no statistics).
pub fn prefix(stats: Option<&Path>) -> Result<Vec<String>, String> {
    if let Ok(words) = std::env::var("SPECULATOR_PREFIX") {
        return Ok(words.split_whitespace().map(str::to_owned).collect());
    }
    let binary = binary();
    if !binary.exists() {
        return Err(format!("{} is not built: cargo build --release -p cli", binary.display()));
    }
    let mut words = vec![binary.display().to_string(), "run".to_owned()];
    words.extend(stats.map(|file| format!("--stats=json:{}", file.display())));
    words.push("--".to_owned());
    Ok(words)
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn binary() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    target.join("release/speculator")
}

/// A number in the statistics in `file`.
pub fn statistic(file: &Path, field: &str) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    value.get(field)?.as_f64()
}

/// A command from words.
pub fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Runs `command` to its end; its standard output.
pub fn output_of(mut command: Command) -> Result<String, String> {
    let what = format!("{command:?}");
    let output = command.output().map_err(|error| format!("cannot run {what}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = said.lines().rev().take(5).collect();
        return Err(format!("{what}: {}: {}", output.status, end.join(" / ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What machine this is, for a figure's notes.
pub fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    format!("Linux {}, {cores} cores, {}", kernel.trim(), model.trim_start_matches(['\t', ':', ' ']))
}
