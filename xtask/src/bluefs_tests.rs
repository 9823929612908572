//! `contention`, `hostile`, `programs` and `stuck`: tests of BlueFS that try a sample in `test`, and everything here
//! (`bluefs_contention.rs`, `bluefs_hostile.rs`, `bluefs_programs.rs` and `bluefs_stuck.rs` in `crates/cli/tests`).

use crate::shell::{cargo, is_root};

/// Runs those of a module with everything that they can try, which `variable` asks for, and prints their figures.
pub fn run(module: &str, variable: &str) -> Result<(), String> {
    if !is_root() {
        println!("left out without root: mounts and network namespaces");
        return Ok(());
    }
    let tests = cargo(&["test", "--quiet", "--workspace", "--test", "all", "--", &format!("{module}::")]);
    tests.args(["--nocapture", "--test-threads=1"]).env(variable, "all").run()
}
