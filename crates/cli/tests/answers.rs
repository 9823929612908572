//! Answers to whoever waits outside: what they wait for, and what they need not wait for.

mod support;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use support::{can_mount, Scene};

/// What is not in a JSON object.
const NONE: serde_json::Value = serde_json::Value::Null;
/// Requests of one client.
const ROUNDS: u64 = 20;

/// Runs a program of Python inside, with `dir` the volume if `options` mount it.
fn python(scene: &Scene, options: &str, program: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.arg("run").args(options.split_whitespace()).arg("--stats=json:stats");
    command.args(["--", "/usr/bin/python3", "-I", "-c", program]).current_dir(scene.path(""));
    command
}

/// A request is a byte, and so is its answer. Returns the answers.
fn ask(mut server: Command) -> Vec<u8> {
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut requests, mut answers) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut got = Vec::new();
    for round in 0..ROUNDS {
        requests.write_all(&[round as u8]).unwrap();
        let mut answer = [0];
        answers.read_exact(&mut answer).unwrap();
        got.push(answer[0]);
    }
    drop(requests);
    assert!(server.wait().unwrap().success());
    got
}

const APPENDS_AND_ANSWERS: &str = "\
import os
log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
while request := os.read(0, 1):
    os.write(log, request * 100)
    os.fdatasync(log)
    os.write(1, request)
";

/// Where fsync is a wait for the disk, an answer after it is not one more.
#[test]
fn a_server_that_answers_after_its_fsync_waits_once() {
    let scene = Scene::new();
    let server = python(&scene, "", APPENDS_AND_ANSWERS);
    assert_eq!(ask(server), (0..ROUNDS as u8).collect::<Vec<u8>>());
    let stats = scene.stats();
    if stats["commits"].as_object().unwrap().is_empty() {
        return eprintln!("skipped: the folder for temporary files is on no file system that can commit");
    }
    // The first answer is held; from then on it is known that answers follow. The end of input is an answer of its own.
    assert!(stats["fsyncs_committed"].as_u64().unwrap() >= ROUNDS - 1, "{stats}");
    assert!(stats["output_hold_us"]["count"].as_u64().unwrap() <= 3, "{stats}");
    assert_eq!(std::fs::read(scene.path("log")).unwrap().len() as u64, ROUNDS * 100);
}

/// A program that shows nothing in between keeps its fsyncs: they are of one file each, a commit is of the file system.
#[test]
fn a_program_that_only_writes_keeps_its_fsyncs() {
    let scene = Scene::new();
    let program = "\
import os
for i in range(20):
    log = os.open(f'log{i}', os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(log, b'x' * 100)
    os.fsync(log)
";
    assert!(python(&scene, "", program).status().unwrap().success());
    assert_eq!(scene.stats()["fsyncs_committed"], 0);
}

/// C libraries ask for the socket of a name service with each user that they look up.
#[test]
fn a_socket_that_is_not_there_costs_no_commit() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let program = "\
import os, socket
log = os.open('dir/log', os.O_WRONLY | os.O_CREAT, 0o600)
for i in range(30):
    os.write(log, b'x')
    s = socket.socket(socket.AF_UNIX)
    try: s.connect('dir/nobody')
    except FileNotFoundError: s.close()
    else: raise SystemExit(1)
";
    assert!(python(&scene, "--volume image:dir", program).status().unwrap().success());
    let stats = scene.stats();
    assert_eq!((&stats["barriers"]["connect"], &stats["waits"]["connect"]), (&NONE, &NONE), "{stats}");
}
