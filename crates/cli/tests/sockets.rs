//! Who talks to whom: between two processes inside, what an answer depends on goes with it; to outside, the answer
//! waits for its commit.

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use support::{can_mount, Scene};

const TALK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/talk.py");
/// Requests of a client inside: none of them may wait for a commit.
const INSIDE: usize = 200;
/// Commits that such a run may have: names of sockets, connecting, the output at the end.
const COMMITS_FEW: u64 = 10;
/// Requests of a client outside: each waits for its commit.
const OUTSIDE: usize = 40;

/// `talk.py` inside, with a volume at `dir`.
fn start(scene: &Scene, words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args("run --volume image:dir --stats=json:stats -- /usr/bin/python3 -I".split(' '));
    command.arg(TALK).args(words.split(' ')).current_dir(scene.path(""));
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// How often anything was committed in the run that has ended.
fn commits(scene: &Scene) -> u64 {
    let stats = fs::read(scene.path("stats")).unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
    stats["commits"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// What the server has written.
fn log(scene: &Scene) -> String {
    scene.run("volume mount image dir").expect(0, "");
    let log = fs::read_to_string(scene.path("dir/log"));
    scene.umount();
    log.unwrap()
}

fn requests(count: usize) -> String {
    (0..count).map(|i| format!("{i}\n")).collect()
}

fn ask_inside(family: &str) {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let output = start(&scene, &format!("ask {family} dir {INSIDE}")).wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{INSIDE} right\n"));
    assert!(commits(&scene) <= COMMITS_FEW, "{} commits", commits(&scene));
    assert_eq!(log(&scene), requests(INSIDE));
}

fn ask_from_outside(words: &str) {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let mut server = start(&scene, words);
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut port = String::new();
    stdout.read_line(&mut port).unwrap();
    ask(port.trim().parse().unwrap());
    assert!(server.wait().unwrap().success());
    assert!(commits(&scene) >= OUTSIDE as u64, "{} commits", commits(&scene));
    assert_eq!(log(&scene), requests(OUTSIDE));
}

fn ask(port: u16) {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answers = BufReader::new(client.try_clone().unwrap());
    for i in 0..OUTSIDE {
        writeln!(client, "{i}").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("did {i}\n"));
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    answers.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn answers_over_loopback_are_not_held() {
    ask_inside("tcp");
}

#[test]
fn answers_over_a_unix_socket_are_not_held() {
    ask_inside("unix");
}

#[test]
fn answers_to_outside_wait_for_their_commit() {
    ask_from_outside("serve dir");
}

/// The process that answers has changed nothing itself: it depends on another one's change, which reached it through a
/// socket.
#[test]
fn answers_to_outside_wait_for_what_another_process_did() {
    ask_from_outside("relay dir");
}
