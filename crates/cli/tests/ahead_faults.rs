//! What goes wrong in the middle of a guess: the supervisor is killed in a rollback, or there are no more processes, no
//! memory, no room on a disk. The world ends cleanly or goes on; what was committed is there, what was not is not;
//! nothing of it is left.

use crate::support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, prlimit, Pid, Resource, Rlimit, Signal};
use support::{can_mount, is_root, places, skipped, Scene};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_faults/many.c");
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/programs");

/// Marks all processes of one test, by a variable that they inherit.
struct Mark {
    name: String,
    /// Segments that somebody had left before.
    left_before: HashSet<String>,
}

impl Mark {
    fn new(test: &str) -> Mark {
        Mark { name: format!("AHEAD_FAULTS_{test}_{}", std::process::id()), left_before: orphaned_segments() }
    }

    /// `speculator run` with these options, in a folder; what hangs is killed.
    fn run(&self, folder: &Path, options: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "300", SPECULATOR, "run"]).args(options).current_dir(folder);
        command.env("S", SPECULATOR).env(&self.name, "1").stdin(Stdio::null());
        command
    }

    fn processes(&self) -> usize {
        self.folders().len()
    }

    /// The folders in `/proc` of its processes.
    fn folders(&self) -> Vec<PathBuf> {
        let has_mark = |pid: &PathBuf| {
            let environ = std::fs::read(pid.join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environ).contains(&self.name)
        };
        std::fs::read_dir("/proc").unwrap().flatten().map(|process| process.path()).filter(has_mark).collect()
    }

    /// No process, no segment of shared memory, no mount.
    #[track_caller]
    fn nothing_is_left(&self, scene: &Scene) {
        let begin = Instant::now();
        let segments = || &orphaned_segments() - &self.left_before;
        while self.processes() > 0 || !segments().is_empty() {
            let (processes, segments) = (self.processes(), segments());
            assert!(begin.elapsed() < places::PATIENCE, "{processes} processes, segments {segments:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        scene.nothing_is_attached();
    }
}

/// System V segments, by their identifiers, that nobody uses and whose creator is gone.
fn orphaned_segments() -> HashSet<String> {
    let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let is_orphaned = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(6) == Some(&"0") && words.get(4).is_some_and(|creator| !Path::new("/proc").join(creator).exists())
    };
    let id = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    text.lines().skip(1).filter(is_orphaned).filter_map(id).collect()
}

fn told(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Something is shown and written before the guess; then children, pipes, held writes and files in memory, all of it
/// wrong.
const SCRIPT: &str = r#"
    echo start; echo old > f; exec 5>>f
    id=$($S begin); [ "$id" = failed ] && { echo again; exit 7; }
    echo WRONG; echo WRONG >&5; [ -d private ] && echo WRONG > private/new
    (echo WRONG; exit 3) | tr a-z A-Z | cat; for i in 1 2; do (exit $i); done
    $S fail $id; echo WRONG after"#;

#[test]
fn killed_at_every_step_of_a_rollback() {
    let mark = Mark::new("ROLLBACK");
    for steps in 0..200 {
        let scene = Scene::new();
        std::fs::create_dir(scene.path("private")).unwrap();
        let crash = format!("--crash-in-rollback={steps}");
        let private = format!("--private-tmp={}", scene.path("private").display());
        let options = if is_root() { vec![crash.as_str(), &private] } else { vec![crash.as_str()] };
        let output = mark.run(&scene.path("."), &options).args(["--", "bash", "-c", SCRIPT]).output().unwrap();
        let (stdout, stderr, status) = told(&output);
        mark.nothing_is_left(&scene);
        assert_eq!(std::fs::read_to_string(scene.path("f")).unwrap(), "old\n", "after {steps} steps");
        assert!(!scene.path("private/new").exists(), "after {steps} steps");
        if status == Some(7) {
            assert_eq!((stdout.as_str(), stderr.as_str()), ("start\nagain\n", ""));
            assert!(steps > 10, "a rollback of several processes has more than {steps} steps");
            return;
        }
        assert_eq!((stdout.as_str(), status), ("start\n", Some(125)), "after {steps} steps: {stderr}");
        assert!(stderr.contains("the supervisor died") && stderr.lines().count() == 1, "after {steps} steps: {stderr}");
    }
    panic!("a rollback does not have so many steps");
}

/// A user who may have few processes: a checkpoint is one.
#[test]
fn no_more_processes() {
    if !support::has_root_for("becoming a user who has no other processes") {
        return;
    }
    const USER: u32 = 61_237;
    let scene = Scene::new();
    let program = scene.path("many");
    let mut compiler = Command::new("cc");
    assert!(compiler.args(["-O1", "-I", INCLUDE, "-o"]).arg(&program).arg(SOURCE).status().unwrap().success());
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(scene.path("."), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mark = Mark::new("PROCESSES");
    let mut command = Command::new("prlimit");
    command.args(["--nproc=60", "timeout", "-s", "KILL", "300", SPECULATOR, "run", "--", "./many"]);
    command.current_dir(scene.path(".")).env(&mark.name, "1").stdin(Stdio::null()).uid(USER).gid(USER);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skipped(&format!("another user cannot run speculator: {error}")),
    };
    let (stdout, stderr, status) = told(&output);
    assert_eq!((stdout.as_str(), status), ("again\n", Some(0)), "{stderr}");
    mark.nothing_is_left(&scene);
}

/// The supervisor cannot hold any more of what a guess shows.
#[test]
fn no_memory_for_output_that_is_held() {
    let mark = Mark::new("MEMORY");
    let scene = Scene::new();
    let script = "echo start; until [ -e limited ]; do sleep 0.01; done; id=$($S begin)
        [ $id = failed ] && { echo WRONG again; exit 1; }; head -c 400000000 /dev/zero; $S commit $id";
    let mut child = mark
        .run(&scene.path("."), &["--", "bash", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "start\n");
    let supervisor = supervisor_of(child.id());
    let limit = Some(memory_of(supervisor) + (16 << 20));
    prlimit(Pid::from_raw(supervisor), Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
    std::fs::write(scene.path("limited"), "").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("", Some(125)), "{stderr}");
    assert!(stderr.contains("the supervisor died"), "{stderr}");
    mark.nothing_is_left(&scene);
}

/// Whoever was forked on a guess is killed from outside: there is nothing left of it to remove when the guess fails.
#[test]
fn a_child_of_a_guess_is_killed_from_outside() {
    let (mark, scene) = (Mark::new("OUTSIDE"), Scene::new());
    let script =
        "echo start; id=$($S begin); [ $id = failed ] && { echo again; exit 7; }; sleep 1000 & wait $!; echo WRONG";
    let mut command = mark.run(&scene.path("."), &["--", "bash", "-c", script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sleeper = loop {
        let is_sleep = |pid: &&PathBuf| std::fs::read(pid.join("comm")).is_ok_and(|name| name == b"sleep\n");
        if let Some(pid) = mark.folders().iter().find(is_sleep) {
            break pid.file_name().unwrap().to_str().unwrap().parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    kill_process(Pid::from_raw(sleeper).unwrap(), Signal::KILL).unwrap();
    let (stdout, stderr, status) = told(&child.wait_with_output().unwrap());
    assert_eq!((stdout.as_str(), status), ("start\nagain\n", Some(7)), "{stderr}");
    mark.nothing_is_left(&scene);
}

/// The child of `speculator` below `timeout` that is not COMMAND.
fn supervisor_of(timeout: u32) -> i32 {
    let children = |pid: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<String>>()
    };
    let front = children(&timeout.to_string()).remove(0);
    let is_ours =
        |pid: &&String| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "speculator\n");
    children(&front).iter().find(is_ours).unwrap().parse().unwrap()
}

/// Its address space, bytes.
fn memory_of(pid: i32) -> u64 {
    let sizes = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    sizes.split(' ').next().unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

/// A write that is held must not turn out to have no room: the program hears of that where it would have heard without
/// us.
#[test]
fn no_room_for_writes_that_are_held() {
    if !can_mount() {
        return;
    }
    let script = "echo start; dd if=/dev/zero of=dir/other bs=1M count=43 status=none; : > dir/f; exec 5<>dir/f
                  head -c 20000000 /dev/zero >&5; echo $?; [ $(stat -c %s dir/f) -lt 8000000 ] && echo full";
    let run = |options: &[&str]| {
        let (mark, scene) = (Mark::new("ROOM"), Scene::with_volume());
        let mut all = vec!["--volume", "image:dir"];
        all.extend(options);
        let output = mark.run(&scene.path("."), &all).args(["--", "bash", "-c", script]).output().unwrap();
        mark.nothing_is_left(&scene);
        told(&output)
    };
    let plain = run(&[]);
    assert!(plain.0.starts_with("start\n1\n") && plain.1.contains("No space left"), "{plain:?}");
    assert_eq!(run(&["--inject=open:0:100"]), plain);
    assert_eq!(run(&["--inject=open:20%:20"]), plain);
}
