//! Numbers of processes are given again: what was known of an earlier process of that number, or of a checkpoint that
//! had it, says nothing of this one.

use crate::support;

use std::process::{Command, Stdio};

use support::Scene;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_numbers/again.c");
const ROUNDS: &str = "100";
const END: &str = "all were heard of\n";

/// A parent that asked for a child which was not heard of yet was told that it had none (`ECHILD`): its shell took the
/// command for done, and went on.
#[test]
fn a_child_with_an_earlier_ones_number_is_waited_for() {
    if !support::has_root_for("a pid namespace, in which numbers come again soon") {
        return;
    }
    let scene = Scene::new();
    let program = scene.path("again");
    let mut compiler = Command::new("cc");
    assert!(compiler.args(["-O1", "-o"]).arg(&program).arg(SOURCE).status().unwrap().success());
    let run = |prefix: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120", "unshare", "--pid", "--fork", "--mount-proc"]).args(prefix);
        command.args(["./again", ROUNDS]).current_dir(scene.path(".")).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&[]), END, "natively");
    for inject in ["all:0%:2", "all:5%:1"] {
        let inject = format!("--inject={inject}");
        assert_eq!(run(&[env!("CARGO_BIN_EXE_speculator"), "run", &inject, "--"]), END, "{inject}");
    }
}
