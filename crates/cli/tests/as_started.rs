//! COMMAND finds what it would find without us: standard descriptors that are closed, signals that are ignored or
//! blocked, and a file in no format that the kernel knows is a script for /bin/sh.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use support::{is_root, skipped, Outcome, Scene};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// What stands before COMMAND: nothing, `run`, `run` in a world, and `try` for root.
fn ways(scene: &Scene) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let run = format!("{SPECULATOR} run --");
    let mut ways = vec![words(""), words(&run), words(&format!("{run} {run}"))];
    match is_root() {
        true => {
            let layer = scene.path("").display().to_string();
            ways.push(words(&format!("{SPECULATOR} try --yes --report=none --layer-dir {layer} --")));
        }
        false => skipped("try needs root"),
    }
    ways
}

/// Runs `sh -c BEFORE` with each way and `command` behind it as its arguments, in the scene's folder `dir`.
fn each(scene: &Scene, before: &str, command: &[&str]) -> Vec<(String, Outcome)> {
    let outcome = |way: Vec<String>| {
        let mut process = Command::new("sh");
        process.args(["-c", before, "sh"]).args(&way).args(command);
        process.current_dir(scene.path("dir")).stdin(Stdio::null());
        (way.join(" "), Outcome::of(process.output().unwrap()))
    };
    ways(scene).into_iter().map(outcome).collect()
}

#[test]
fn a_standard_descriptor_that_is_closed_is_closed_for_command() {
    const LOOKS: &str =
        "open=; for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && open=$open$fd; done; echo \"open: $open\" > seen";
    for (closing, open) in [("", "012"), ("<&-", "12"), (">&-", "02"), ("2>&-", "01"), ("<&- >&- 2>&-", "")] {
        let scene = Scene::new();
        for (way, outcome) in each(&scene, &format!("rm -f seen; exec \"$@\" {closing}"), &["sh", "-c", LOOKS]) {
            assert_eq!(outcome.status, 0, "{way} {closing}: {}", outcome.stderr);
            let seen = fs::read_to_string(scene.path("dir/seen")).unwrap();
            assert_eq!(seen, format!("open: {open}\n"), "{way} {closing}");
        }
    }
}

#[test]
fn signals_are_ignored_and_blocked_as_they_were() {
    let scene = Scene::new();
    for how in [
        "--default-signal=PIPE",
        "--ignore-signal=PIPE",
        "--ignore-signal=XFSZ",
        "--ignore-signal=PIPE,XFSZ --block-signal=USR1",
    ] {
        let before = format!("exec env {how} \"$@\"");
        let all = each(&scene, &before, &["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
        for (way, outcome) in &all {
            assert_eq!((outcome.status, &outcome.stdout), (0, &all[0].1.stdout), "{way} {how}: {}", outcome.stderr);
        }
    }
}

#[test]
fn a_script_without_an_interpreter_is_for_sh() {
    let scene = Scene::new();
    for (name, text, mode) in [
        ("script", "echo \"$0\" \"$#\" \"$@\"; cat /proc/$$/comm; exit 7\n", 0o755),
        ("empty", "", 0o755),
        ("not executable", "exit 7\n", 0o644),
    ] {
        let file = scene.path("dir").join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        // env(1) finds and runs it by execvp(3).
        let all = each(
            &scene,
            "[ \"$1\" = \"${1#/}\" ] && set -- env \"$@\"; exec \"$@\"",
            &[&format!("./{name}"), "a", "b c"],
        );
        for (way, outcome) in &all {
            let (native, inside) = (&all[0].1, outcome);
            assert_eq!((inside.status, &inside.stdout), (native.status, &native.stdout), "{way}: {}", inside.stderr);
        }
    }
    let by_path = each(&scene, "PATH=.:$PATH; [ \"$1\" = script ] && set -- env \"$@\"; exec \"$@\"", &["script", "a"]);
    for (way, outcome) in &by_path {
        assert_eq!((outcome.status, &outcome.stdout), (7, &by_path[0].1.stdout), "{way}: {}", outcome.stderr);
    }
}

/// What clap makes of the command line took up more.
#[test]
fn a_small_stack_is_enough_and_is_commands_too() {
    let scene = Scene::new();
    for (way, outcome) in each(&scene, "ulimit -s 256; exec \"$@\"", &["sh", "-c", "ulimit -s"]) {
        assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "256\n"), "{way}: {}", outcome.stderr);
    }
}
