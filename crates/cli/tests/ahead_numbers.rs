//! Numbers of processes are given again: what was known of an earlier process of that number, or of a checkpoint that
//! had it, says nothing of this one.

use crate::support;

use std::process::{Command, Stdio};

use support::Scene;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_numbers");
const ROUNDS: &str = "100";
const END: &str = "all were heard of\n";

/// A parent that asked for a child which was not heard of yet was told that it had none (`ECHILD`): its shell took the
/// command for done, and went on.
#[test]
fn a_child_with_an_earlier_ones_number_is_waited_for() {
    if !support::has_root_for("a pid namespace, in which numbers come again soon") {
        return;
    }
    let namespace = Namespace::with("again");
    let run = |prefix: &[&str]| namespace.run(prefix, &[ROUNDS]);
    assert_eq!(run(&[]), END, "natively");
    for inject in ["all:0%:2", "all:5%:1"] {
        let inject = format!("--inject={inject}");
        assert_eq!(run(&[env!("CARGO_BIN_EXE_speculator"), "run", &inject, "--"]), END, "{inject}");
    }
}

/// The group of a process that a namespace begins with is that of whoever made the namespace.
#[test]
fn a_group_of_an_outer_namespace_is_waited_for() {
    if !support::has_root_for("a pid namespace whose first process leads no group") {
        return;
    }
    let namespace = Namespace::with("group");
    let natively = namespace.run(&[], &[]);
    assert_eq!(natively, "1 0 0\n1 256 0\n1 512 0\n");
    for inject in ["--inject=all:0%:2", "--inject=wait:0%:50,fork:0%:50"] {
        assert_eq!(namespace.run(&[env!("CARGO_BIN_EXE_speculator"), "run", inject, "--"], &[]), natively, "{inject}");
    }
}

/// A program of ours that is run in a pid namespace of its own.
struct Namespace {
    scene: Scene,
    program: &'static str,
}

impl Namespace {
    fn with(program: &'static str) -> Self {
        let scene = Scene::new();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-o"]).arg(scene.path(program)).arg(format!("{FOLDER}/{program}.c"));
        assert!(compiler.status().unwrap().success());
        Self { scene, program }
    }

    /// What it shows.
    fn run(&self, prefix: &[&str], arguments: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120", "unshare", "--pid", "--fork", "--mount-proc"]).args(prefix);
        command.arg(format!("./{}", self.program)).args(arguments);
        let output = command.current_dir(self.scene.path(".")).stdin(Stdio::null()).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}
