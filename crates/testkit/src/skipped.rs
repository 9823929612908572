//! Tests that cannot run where they are.
//!
//! What a test says is shown only if it fails: a test that was left out would look like one that has passed.

use std::fs::OpenOptions;
use std::io::Write;

/// The variable that names the file into which they are written; `cargo xtask test` shows it at its end.
pub const FILE: &str = "SPECULATOR_SKIPPED";

/// The test that runs in this thread is left out.
pub fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    let Some(file) = std::env::var_os(FILE) else { return };
    // The tests of several programs write into it, each a line at once.
    let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or("a test"));
    let written = OpenOptions::new().append(true).create(true).open(&file);
    let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "{}: {written:?}", file.display());
}

/// False, and the test is left out, when not root; in CI that is a failure.
pub fn has_root_for(what: &str) -> bool {
    can_run(rustix::process::geteuid().is_root(), &format!("{what} needs root"))
}

/// `able`; if that is false, the test is left out, and why; in CI that is a failure.
pub fn can_run(able: bool, why: &str) -> bool {
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(able || !is_ci, "CI leaves none of these out: {why}");
    if !able {
        skipped(why);
    }
    able
}
