//! Compiles the programs of `tests/programs/`, once: the result is kept under a name made of the source, the shared
//! headers and the flags.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::directives::Directives;

/// Compiles the C program `source` into `cache` and returns the path of the result.
pub fn program(source: &Path, directives: &Directives, cache: &Path) -> Result<PathBuf, String> {
    let mut flags = flags_of(&["-std=gnu11", "-Wall", "-Wno-unused-result"]);
    if directives.has("no-libc") {
        flags.extend(flags_of(&["-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-O1"]));
    } else {
        flags.extend(flags_of(&["-O1", "-pthread"]));
    }
    let libraries = directives.words("build");
    compile("cc", source, &flags, &libraries, cache)
}

/// Compiles `source` as a shared object.
pub fn library(source: &Path, cache: &Path) -> Result<PathBuf, String> {
    compile("cc", source, &flags_of(&["-shared", "-fPIC", "-O1"]), &[], cache)
}

/// Builds the Go program `source`.
pub fn go_program(source: &Path, cache: &Path) -> Result<PathBuf, String> {
    build_once(source, &[], cache, |output| {
        let mut command = Command::new("go");
        command.arg("build").arg("-o").arg(output).arg(source).env("GO111MODULE", "off").env("CGO_ENABLED", "0");
        command
    })
}

fn flags_of(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

fn compile(compiler: &str, source: &Path, flags: &[String], last: &[String], cache: &Path) -> Result<PathBuf, String> {
    let all: Vec<String> = flags.iter().chain(last).cloned().collect();
    build_once(source, &all, cache, |output| {
        let mut command = Command::new(compiler);
        command.args(flags).arg(source).arg("-o").arg(output).args(last);
        command
    })
}

fn build_once(
    source: &Path,
    flags: &[String],
    cache: &Path,
    command: impl Fn(&Path) -> Command,
) -> Result<PathBuf, String> {
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Its own folder, so that argv[0] ends with the program's name.
    let folder = cache.join(format!("{:016x}", key(source, flags)?));
    let output = folder.join(&name);
    if output.exists() {
        return Ok(output);
    }
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    // Several tests may compile one program at the same time; none may write what another one already runs.
    static BUILDS: AtomicUsize = AtomicUsize::new(0);
    let unfinished = format!("{name}.{}.{}", std::process::id(), BUILDS.fetch_add(1, Ordering::Relaxed));
    let unfinished = folder.join(unfinished);
    run(command(&unfinished), source)?;
    fs::rename(&unfinished, &output).map_err(|error| format!("cannot keep {}: {error}", output.display()))?;
    Ok(output)
}

fn key(source: &Path, flags: &[String]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    flags.hash(&mut hasher);
    let text = fs::read(source).map_err(|error| format!("cannot read {}: {error}", source.display()))?;
    text.hash(&mut hasher);
    for header in ["check.h", "objects.h"] {
        fs::read(source.with_file_name(header)).unwrap_or_default().hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn run(mut command: Command, source: &Path) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{} does not compile:\n{}", source.display(), String::from_utf8_lossy(&output.stderr)))
}
