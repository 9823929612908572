//! How a command is run inside, and what the supervisor says of it afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::figure::Series;

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
    Ok(prefix_of(&binary, stats))
}

/// The same with another binary of ours, such as an older one.
pub fn prefix_of(binary: &Path, stats: Option<&Path>) -> Vec<String> {
    let mut words = vec![binary.display().to_string(), "run".to_owned()];
    words.extend(stats.map(|file| format!("--stats=json:{}", file.display())));
    words.push("--".to_owned());
    words
}

/// The words before a command that run it inside with these options. Only our own program has them.
pub fn prefix_with(options: &[String], stats: &Path) -> Result<Vec<String>, String> {
    if std::env::var_os("SPECULATOR_PREFIX").is_some() {
        return Err("SPECULATOR_PREFIX does not go with this benchmark".to_owned());
    }
    let mut words = prefix(Some(stats))?;
    let end = words.len() - 1;
    words.splice(end..end, options.iter().cloned());
    Ok(words)
}

/// What full speculation did, from the statistics in `file`.
pub fn ahead(file: &Path) -> Result<serde_json::Value, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(value["ahead"].clone())
}

/// A directory for programs and what they leave, removed when dropped.
pub struct Workshop(PathBuf);

impl Workshop {
    /// Makes it.
    pub fn open() -> Result<Workshop, String> {
        let directory = std::env::temp_dir().join(format!("speculator-bench-work-{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(Workshop(directory))
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Compiles `bench/programs/NAME.c`; the program.
    pub fn compile(&self, name: &str, flags: &[&str]) -> Result<String, String> {
        let program = self.file(name);
        let mut compiler = Command::new("cc");
        compiler.arg("-O2").args(flags).arg("-o").arg(&program);
        compiler.arg(repository().join(format!("bench/programs/{name}.c")));
        output_of(compiler)?;
        Ok(program.display().to_string())
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Left behind in TMPDIR at worst.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn binary() -> PathBuf {
    built("speculator")
}

/// What cargo has built for release.
pub fn built(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    target.join("release").join(name)
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

/// What one operation took, ns: a program of `programs` says so.
pub fn nanoseconds(command: Command) -> Result<f64, String> {
    let what = format!("{command:?}");
    let said = output_of(command)?;
    let number = said.strip_prefix("ns ").and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| format!("{what} said {said:?}"))
}

/// What one operation takes, ns, in each of `ways` to run a program, `runs` times in turn. The first way is natively;
/// of the others, `words` says what is run inside.
pub fn compare_ways<const N: usize>(
    workshop: &Workshop,
    runs: usize,
    operation: &str,
    ways: [&str; N],
    words: impl Fn(usize) -> Vec<String>,
) -> Result<[Series; N], String> {
    let mut group = ways.map(|way| Series::new(format!("{operation}, {way}")));
    for _ in 0..runs {
        for (way, series) in group.iter_mut().enumerate() {
            let before = match way {
                0 => Vec::new(),
                _ => prefix_with(&[], &workshop.file("stats.json"))?,
            };
            let mut job = command(&[before, words(way)].concat());
            job.current_dir(workshop.path());
            series.values.push(nanoseconds(job)?);
        }
    }
    Ok(group)
}

/// What machine this is, for a figure's notes.
pub fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    format!("Linux {}, {cores} cores, {}", kernel.trim(), model.trim_start_matches(['\t', ':', ' ']))
}
