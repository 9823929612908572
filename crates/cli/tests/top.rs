//! `speculator top` and the pictures of `--report`: what they say of a world is what is going on there.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::places::{pause_until, PATIENCE};
use support::{Outcome, Scene};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// A world whose script has said `ready`, and goes on when its input ends.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(script: &str) -> Running {
        let mut child = Command::new("timeout")
            .args(["-s", "KILL", "300", SPECULATOR, "run", "--", "bash", "-c", script])
            .env("S", SPECULATOR)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Running { child, output }
    }

    /// What `top --json` says of it, as soon as that is so.
    fn until(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let worlds = top("top --json").stdout;
            let mut worlds = worlds.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let ours = worlds.find(|world| is_parent(self.child.id(), &world["front"]));
            if let Some(world) = ours.as_ref().filter(|world| is_so(world)) {
                return world.clone();
            }
            assert!(begin.elapsed() < PATIENCE, "{ours:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Let it go on to its end.
    fn end(mut self) -> (String, Option<i32>) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

fn is_parent(parent: u32, child: &Value) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|pid| pid.trim() == parent.to_string()))
}

fn top(line: &str) -> Outcome {
    Scene::new().run(line)
}

#[test]
fn a_world_that_does_nothing_answers_nevertheless() {
    let world = Running::start("echo ready; read x; echo end");
    let said = world.until(|world| !world["ahead"]["processes"].as_array().unwrap().is_empty());
    assert_eq!(
        (&said["ahead"]["open"], said["command_line"].as_str()),
        (&0.into(), Some("bash -c echo ready; read x; echo end"))
    );
    assert_eq!(world.end(), ("end\n".to_owned(), Some(0)));
}

#[test]
fn who_is_ahead_and_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let (made, go) = (folder.path().join("made"), folder.path().join("go"));
    let script = format!(
        "echo ready; read x; id=$($S begin); [ $id = failed ] && {{ echo again; exit 3; }}
         (mknod {} c 1 3) & {}; $S fail $id",
        made.display(),
        pause_until("sleep 0.05", &go)
    );
    let mut world = Running::start(&script);
    let idle = world.until(|_| true);
    drop(world.child.stdin.take());
    let said = world.until(|world| {
        let processes = world["ahead"]["processes"].as_array().unwrap();
        processes
            .iter()
            .any(|process| process["waits_for"].as_str().is_some_and(|what| what.ends_with("to call mknodat")))
    });
    let ahead = &said["ahead"];
    assert_eq!(
        (&ahead["open"], &ahead["oldest"][0]["why"], &ahead["oldest"][0]["number"]),
        (&1.into(), &"begin".into(), &1.into())
    );
    assert!(ahead["kept"].as_u64().unwrap() >= 1, "{ahead}");
    let shell =
        ahead["processes"].as_array().unwrap().iter().find(|process| process["pid"] == idle["command"]).unwrap();
    assert!(shell["guesses"] == 1 && shell["ahead_us"].as_u64().unwrap() > 0, "{shell}");

    let text = top(&format!("top --once {}", said["command"]));
    assert!(text.stdout.contains("1 open;") && text.stdout.contains("to call mknodat"), "{}", text.stdout);
    assert_eq!(text.stdout.matches("world ").count(), 1, "the others are not asked for: {}", text.stdout);

    std::fs::write(go, "").unwrap();
    assert_eq!(world.end(), ("again\n".to_owned(), Some(3)));
    assert!(!made.exists());
}

#[test]
fn without_a_world_one_line_says_so() {
    top("top 1").expect(125, "no world of yours has a process 1");
}

/// On a terminal, which is as it was afterwards. Other keys change nothing.
#[test]
fn a_key_ends_the_view() {
    let world = Running::start("echo ready; read x");
    let front = world.until(|_| true)["front"].clone();
    let view = format!("trap : INT; {SPECULATOR} top --interval 3600 {front}; echo status $?; stty -a");
    for (keys, status) in [("xq", "status 0"), ("x\x03", "status 130")] {
        let mut script = Command::new("script");
        script.args(["-qec", &view, "/dev/null"]).env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut terminal = script.spawn().unwrap();
        let mut shown = BufReader::new(terminal.stdout.take().unwrap());
        let mut text = String::new();
        while !text.contains("world ") {
            assert_ne!(shown.read_line(&mut text).unwrap(), 0, "{text}");
        }
        terminal.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        shown.read_to_string(&mut text).unwrap();
        assert!(terminal.wait().unwrap().success());
        assert!(text.contains(status), "{text}");
        assert!(
            ["icanon", "echo", "isig"].iter().all(|mode| text.split_whitespace().any(|word| word == *mode)),
            "{text}"
        );
    }
    world.end();
}

#[test]
fn somebody_elses_world_is_not_shown() {
    let world = Running::start("echo ready; read x");
    let said = world.until(|_| true);
    if let Some(outcome) = Scene::new().run_as_nobody(&format!("top {}", said["front"])) {
        if support::is_root() {
            outcome.expect(125, "no world of yours");
        }
    }
    world.end();
}

#[test]
fn nothing_listens_any_more_when_a_world_was_killed() {
    let mut world = Running::start("echo ready; read x");
    let said = world.until(|_| true);
    let name = format!("speculator-world-{}", said["supervisor"]);
    let listens = || std::fs::read_to_string("/proc/net/unix").unwrap().contains(&name);
    assert!(listens());
    let front = rustix::process::Pid::from_raw(said["front"].as_i64().unwrap() as i32).unwrap();
    rustix::process::kill_process(front, rustix::process::Signal::KILL).unwrap();
    world.child.wait().unwrap();
    let begin = Instant::now();
    while listens() {
        assert!(begin.elapsed() < PATIENCE, "{name}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The picture, the graph and the numbers of one run tell the same.
#[test]
fn pictures_of_a_wrong_guess() {
    let scene = Scene::new();
    // Somebody who was there before has read from a pipe before the guess fails.
    let script = "coproc cat; id=$($S begin)
        [ $id = failed ] && { eval \"exec ${COPROC[1]}>&-\"; wait; echo again; exit 0; }
        echo WRONG >&${COPROC[1]}; read -u ${COPROC[0]} x; echo WRONG | tr a-z A-Z | cat; $S fail $id";
    let output = Command::new("timeout")
        .args(["-s", "KILL", "300", SPECULATOR, "run", "--report=svg:p.svg", "--report=dot:p.dot"])
        .args(["--report=json:p.json", "--report", "--", "bash", "-c", script])
        .env("S", SPECULATOR)
        .current_dir(scene.path("."))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let outcome = Outcome::of(output);
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("again\n", 0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("rollbacks          1 (begin 1)"), "{}", outcome.stderr);
    let read = |name: &str| std::fs::read_to_string(scene.path(name)).unwrap();
    let report: Value = serde_json::from_str(&read("p.json")).unwrap();
    let history = &report["history"];
    assert_eq!(history["guesses"][0]["outcome"], "wrong");
    let count = |what: &str| history[what].as_array().unwrap().len();
    let picture = read("p.svg");
    assert_eq!(picture.matches("rollback: ").count(), count("rollbacks"));
    assert_eq!(picture.matches("checkpoint of ").count(), count("checkpoints"));
    assert_eq!(picture.matches(" through ").count(), count("flows"));
    let graph = read("p.dot");
    assert!(
        graph.contains("bash ") && graph.contains("[label=\"fork\"]") && graph.contains("[label=\"pipe "),
        "{graph}"
    );
}
