//! `contention`: two mounts of BlueFS want the same at the same time (`crates/cli/tests/bluefs_contention.rs`).

use crate::shell::{cargo, is_root};

/// Runs it, with figures.
pub fn run() -> Result<(), String> {
    if !is_root() {
        println!("left out without root: mounts and network namespaces");
        return Ok(());
    }
    let tests = cargo(&["test", "--quiet", "--workspace", "--test", "all", "--", "bluefs_contention::"]);
    tests.args(["--nocapture", "--test-threads=1"]).env("BLUEFS_CONTENTION", "all").run()
}
