//! `speculator begin`, `commit` and `fail` in scripts: what was done since `begin` is kept, or has never been.

use crate::support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::places::{await_running, pause, pause_until};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// Run a bash script in a world, its output through pipes. `$S` is the program.
fn run(dir: &Path, script: &str) -> Output {
    Command::new("timeout")
        .args(["-s", "KILL", "300", SPECULATOR, "run", "--", "bash", "-c", script])
        .current_dir(dir)
        .env("S", SPECULATOR)
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1)")
}

/// As `run`, and goes on meanwhile.
fn start(dir: &Path, script: &str) -> std::process::Child {
    Command::new("timeout")
        .args(["-s", "KILL", "300", SPECULATOR, "run", "--", "bash", "-c", script])
        .current_dir(dir)
        .env("S", SPECULATOR)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout(1)")
}

#[track_caller]
fn check(script: &str, stdout: &str, status: i32) {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), script);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((text.as_ref(), output.status.code()), (stdout, Some(status)), "{errors}");
}

/// What each script does between `begin` and the end of its guess; `$id` is failed the second time.
fn script(between: &str, end: &str) -> String {
    format!(
        "echo start; x=1; id=$($S begin); if [ \"$id\" = failed ]; then echo again $x; exit 7; fi; x=2; {between}; $S {end} $id; echo after $x"
    )
}

#[test]
fn a_failed_guess_has_never_been() {
    check(&script("echo WRONG", "fail"), "start\nagain 1\n", 7);
}

#[test]
fn a_right_guess_is_kept() {
    check(&script("echo right", "commit"), "start\nright\nafter 2\n", 0);
}

#[test]
fn children_and_pipes_are_taken_back_together() {
    let between =
        "(echo WRONG; exit 3) | cat; seq 1000 | sort -rn | head -1; for i in 1 2 3; do (exit $i); echo WRONG $?; done";
    check(&script(between, "fail"), "start\nagain 1\n", 7);
    let right = between.replace("WRONG", "right");
    check(&script(&right, "commit"), "start\nright\n1000\nright 1\nright 2\nright 3\nafter 2\n", 0);
}

#[test]
fn writes_to_files_are_held() {
    let before = "echo old > f; exec 5>>f; ";
    let with = |end: &str| format!("{before}{}", script("echo new >&5", end));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &with("fail")).status.code(), Some(7));
    assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), "old\n");
    assert_eq!(run(dir.path(), &with("commit")).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), "old\nnew\n");
}

/// A watcher outside sees the names as they are on the disk until the guess is right.
#[test]
fn removed_and_renamed_files_stay_until_the_guess_is_right() {
    for (end, status, left) in [("fail", 7, "a b d e"), ("commit", 0, "c e")] {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["a", "b", "d", "e"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let (pause, go) = (pause("0.02"), other.path().join("go"));
        let between = format!("rm a; mv b c; mv -f d e; {}", pause_until(&pause, &go));
        let child = start(dir.path(), &script(&between, end));
        await_running(&pause);
        let names = || {
            let entries = std::fs::read_dir(dir.path()).unwrap().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(names(), "a b d e", "while it is a guess");
        std::fs::write(go, "").unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), errors.as_ref(), names().as_str()), (Some(status), "", left));
        let moved = if end == "commit" { "d" } else { "e" };
        assert_eq!(std::fs::read_to_string(dir.path().join("e")).unwrap(), moved);
    }
}

/// Who would see a change that is held waits until it is made, and then sees it.
#[test]
fn a_name_that_is_held_is_not_seen_before_it_is_made() {
    let look = |look: &str| {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("a"), "text").unwrap();
        let (moved, go, end) = (pause("0.02"), other.path().join("go"), other.path().join("end"));
        // Its process depends on nothing, and looks while another one has removed the name.
        let script = format!(
            "({}; {look}) & id=$($S begin); [ $id = failed ] && exit 7; mv a b; {}; $S commit $id; wait",
            pause_until("sleep 0.02", &go),
            pause_until(&moved, &end)
        );
        let child = start(dir.path(), &script);
        await_running(&moved);
        std::fs::write(go, "").unwrap();
        // Time to look: what it sees it sees later, too.
        std::thread::sleep(std::time::Duration::from_millis(500));
        std::fs::write(end, "").unwrap();
        String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
    };
    assert_eq!(look("cat b"), "text");
    assert_eq!(look("ls"), "b\n");
    assert_eq!(look("[ -e a ] || echo gone"), "gone\n");
}

/// What would be created if it were not there is opened at once; nothing is emptied.
#[test]
fn what_exists_is_opened_for_creation() {
    let dir = tempfile::tempdir().unwrap();
    let before = "echo old > f; ";
    let with =
        |end: &str| format!("{before}{}", script("echo gone > /dev/null; ls /none 2>/dev/null; echo new >> f", end));
    let output = run(dir.path(), &with("fail"));
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(7), &b""[..]));
    assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), "old\n");
    let output = run(dir.path(), &with("commit"));
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), "old\nnew\n");
}

/// Somebody may be about to run it, and would be told that it is being written.
#[test]
fn a_program_that_would_be_emptied_waits() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &format!("echo old > f; chmod +x f; {}", script("echo WRONG > f", "commit")));
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"start\nagain 1\n"[..], Some(7)));
    assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), "old\n");
}

#[test]
fn descriptors_and_positions_come_back() {
    let before = "printf 'one\\ntwo\\nthree\\n' > f; exec 5<f; read -u 5 a; ";
    let middle = script("read -u 5 b; exec 5<&-; exec 6</dev/null", "fail")
        .replace("echo again $x", "read -u 5 b; echo again $a $b");
    check(&format!("{before}{middle}"), "start\nagain one two\n", 7);
}

#[test]
fn programs_that_were_started_are_taken_back() {
    check(&script("exec bash -c 'echo WRONG; $S fail '$id", "fail"), "start\nagain 1\n", 7);
}

#[test]
fn an_inner_guess_fails_alone() {
    let script = "a=$($S begin); b=$($S begin); if [ $b = failed ]; then echo inner again $a; $S commit $a; exit 3; fi; echo WRONG; $S fail $b";
    check(script, "inner again 1\n", 3);
}

#[test]
fn outside_a_world_there_is_nothing_to_guess() {
    for arguments in [&["begin"][..], &["commit", "1"], &["fail", "1"]] {
        let output = Command::new(SPECULATOR).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{errors}");
        assert!(errors.contains("not inside a world") && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn each_guess_is_resolved_once() {
    check("id=$($S begin); $S commit $id; $S commit $id 2>/dev/null; echo $?", "125\n", 0);
}

/// With wrong guesses all over, a program ends as it would have without.
#[test]
fn wrong_guesses_leave_no_trace() {
    let script = "test -e /etc/passwd && echo yes || echo NO; echo a b | tr a-z A-Z | cat; (exit 4); echo $?; x=$(seq 3 | tail -1); echo $x; \
                  printf 'b\\na\\n' > f; sort f";
    for seed in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new("timeout")
            .args(["-s", "KILL", "300", SPECULATOR, "run", "--inject", "all:0.2:1", "--seed", &seed.to_string()])
            .args(["--", "bash", "-c", script])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output()
            .expect("timeout(1)");
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((text.as_ref(), output.status.code()), ("yes\nA B\n4\n3\na\nb\n", Some(0)), "seed {seed}: {errors}");
    }
}

/// A device that is made on a disk cannot be taken back: the script waits for its own guess, and the guess fails.
#[test]
fn a_guess_that_nobody_can_resolve_fails() {
    check(&script("mknod new c 1 3; echo WRONG", "commit"), "start\nagain 1\n", 7);
}

/// Whoever could resolve it has ended.
#[test]
fn a_guess_that_was_forgotten_fails() {
    check("id=$($S begin); [ $id = failed ] && { echo never mind; exit 3; }; echo WRONG", "never mind\n", 3);
}

/// Timers, which a copy of a process does not have, and what a child used that has not really ended.
#[test]
fn timers_and_usage() {
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/speculate/own_state.c");
    const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/programs");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("own_state");
    let compiled = Command::new("cc").args(["-O1", "-I", INCLUDE, "-o"]).arg(&program).arg(SOURCE).status();
    assert!(compiled.unwrap().success());
    for (what, expected) in [("kept", "10 0\n"), ("new", "0 0\n"), ("exec", "10 0\n"), ("usage", "3 1 1\n")] {
        let output = run(dir.path(), &format!("exec {} {what}", program.display()));
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((text.as_ref(), output.status.code()), (expected, Some(0)), "{what}: {errors}");
    }
}

/// What a script prints in a world, and the world's trace of what it was asked.
fn traced(script: &str) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["-s", "KILL", "300", SPECULATOR, "run", "--", "bash", "-c", script])
        .current_dir(dir.path())
        .env("S", SPECULATOR)
        .env("SPECULATOR_TRACE", dir.path().join("trace"))
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1)");
    let trace = std::fs::read_to_string(dir.path().join("trace")).unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), trace)
}

/// A process ended on a guess, which was right; a while later calls are not asked about any more.
#[test]
fn after_the_last_guess_nobody_asks() {
    let script =
        "id=$($S begin); (exit 3); echo $? | cat; $S commit $id; for i in 1 2 3 4 5; do sleep 0.1; done; echo end";
    let (said, trace) = traced(script);
    assert_eq!(said, "3\nend\n");
    assert!(trace.contains("exit_group") && trace.lines().any(|line| line.ends_with(" off")), "{trace}");
}

/// An inner guess was undone with the outer one: nobody resolves it, and nobody is asked any more.
#[test]
fn a_guess_that_was_undone_is_not_open() {
    let script = "a=$($S begin); [ $a = failed ] || { b=$($S begin); $S fail $a; }; $S commit 2 2> /dev/null; \
                  echo $a $?; for i in 1 2 3 4 5; do sleep 0.1; done; echo end";
    let (said, trace) = traced(script);
    assert_eq!(said, "failed 125\nend\n");
    assert!(trace.lines().any(|line| line.ends_with(" off")), "{trace}");
}

#[test]
fn nothing_goes_on_when_the_world_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mark = format!("SPECULATE_TEST_{}", std::process::id());
    // It is not COMMAND, and goes on when that is killed; nothing follows it.
    let asleep = pause("3");
    let mut child = Command::new(SPECULATOR)
        .args(["run", "--", "bash", "-c", &format!("id=$($S begin); echo > $PWD/begun; {asleep}; echo WRONG")])
        .current_dir(dir.path())
        .env("S", SPECULATOR)
        .env(&mark, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    await_running(&asleep);
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    for _ in 0..200 {
        if marked(&mark) == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{} processes were left", marked(&mark));
}

fn marked(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let has_mark = |pid: &std::path::Path| {
        std::fs::read(pid.join("environ")).is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(mark))
    };
    processes.filter(|process| has_mark(&process.path())).count()
}

/// Whoever reads our standard error has left when there is something to warn of: COMMAND's end is told all the same.
#[test]
fn a_warning_that_nobody_reads_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", SPECULATOR, "run", "--", "bash", "-c", &script("mknod new c 1 3", "commit")]);
    command.env("S", SPECULATOR).current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.stderr(writer).status();
    assert_eq!(status.unwrap().code(), Some(7));
}
