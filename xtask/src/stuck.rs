//! `stuck`: whoever waits for a BlueFS server that says nothing can be ended (`crates/cli/tests/bluefs_stuck.rs`): every
//! kind of call, with every fault and every end.

use crate::shell::{cargo, is_root};

/// Runs it, and prints how long each took.
pub fn run() -> Result<(), String> {
    if !is_root() {
        println!("left out without root: mounts and network namespaces");
        return Ok(());
    }
    let tests = cargo(&["test", "--quiet", "--workspace", "--test", "all", "--", "bluefs_stuck::"]);
    tests.args(["--nocapture", "--test-threads=1"]).env("BLUEFS_STUCK", "all").run()
}
