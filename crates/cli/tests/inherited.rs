//! What COMMAND inherits is COMMAND's alone: who is at the other end hears when COMMAND closes it, and terminals that
//! processes inside have opened are not confused.

use crate::support;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::fs::{flock, FlockOperation};
use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};
use support::Scene;

/// COMMAND natively, and inside.
fn both(script: &str) -> [Command; 2] {
    let mut native = Command::new("sh");
    native.args(["-c", script]);
    let mut inside = Command::new(env!("CARGO_BIN_EXE_speculator"));
    inside.args(["run", "--", "sh", "-c", script]);
    [native, inside]
}

/// So long COMMAND lives, and until now it has done nothing but close a descriptor.
const LIVES_S: u64 = 30;

fn end(mut child: Child, begun: Instant) {
    assert!(begun.elapsed().as_secs() < LIVES_S - 5, "the end was seen only when COMMAND had ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn who_reads_hears_that_command_has_closed_its_output() {
    for mut command in both("echo ready; exec >&-; exec sleep 30") {
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        end(child, begun);
    }
}

#[test]
fn who_writes_hears_that_command_has_closed_its_input() {
    for mut command in both("exec <&-; exec sleep 30") {
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let written = (0..100).try_for_each(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            input.write_all(&[0; 1000])
        });
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        end(child, begun);
    }
}

#[test]
fn a_lock_that_command_inherits_goes_with_its_descriptor() {
    for mut command in both("echo has; read go; exec 0<&-; exec sleep 30") {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let name = folder.path().join("lock");
        std::fs::write(&name, "go\n").unwrap();
        let held = std::fs::File::open(&name).unwrap();
        let held = {
            let _ = held;
            std::fs::File::open(&name).unwrap()
        };
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::from(held)).stdout(Stdio::piped()).spawn().unwrap();
        drop(command);
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
        let other = std::fs::File::open(&name).unwrap();
        flock(other.as_fd(), FlockOperation::LockExclusive).unwrap();
        end(child, begun);
    }
}

/// That COMMAND has stopped itself is seen by whoever waits for it: a shell, or somebody who takes it for a sign.
#[test]
fn that_command_stops_itself_waits_for_what_it_has_changed() {
    const PROGRAM: &str = r#"
import os, signal
open("changed", "w").write("changed")
os.kill(os.getpid(), signal.SIGSTOP)
"#;
    let scene = Scene::new();
    let stats = scene.path("stats");
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--commit-interval", "60000"]).arg(format!("--stats=json:{}", stats.display()));
    command.args(["--", "/usr/bin/python3", "-c", PROGRAM]).current_dir(scene.path("."));
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    kill_process(pid, Signal::CONT).unwrap();
    assert!(child.wait().unwrap().success());
    let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
    // Nobody else asks for a commit before the end.
    assert_eq!(stats["commits"]["output"], 1, "{}", stats["commits"]);
}

/// `/dev/tty` is for each session another terminal. What two of them are told at the same time reaches each its own.
#[test]
fn each_session_has_its_own_terminal() {
    const PROGRAM: &str = r#"
import os, pty
def pane(text):
    pid, master = pty.fork()
    if pid == 0:
        os.write(os.open("record-" + text, os.O_CREAT | os.O_WRONLY), b"x")
        os.write(os.open("/dev/tty", os.O_WRONLY), text.encode())
        os._exit(0)
    return pid, master
def all_of(master):
    told = b""
    try:
        while piece := os.read(master, 100):
            told += piece
    except OSError:
        pass
    return told.decode()
names = ["pane-%d" % n for n in range(8)]
panes = [pane(name) for name in names]
print([all_of(master) for _, master in panes])
for pid, _ in panes:
    os.waitpid(pid, 0)
"#;
    let outputs = ["", env!("CARGO_BIN_EXE_speculator")].map(|speculator| {
        let scene = Scene::new();
        let mut command = Command::new(if speculator.is_empty() { "/usr/bin/python3" } else { speculator });
        if !speculator.is_empty() {
            command.args(["run", "--", "/usr/bin/python3"]);
        }
        let output = command.args(["-c", PROGRAM]).current_dir(scene.path(".")).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    });
    assert_eq!(outputs[0], outputs[1]);
    assert!(outputs[0].0.contains("'pane-7'"), "{}", outputs[0].0);
}
