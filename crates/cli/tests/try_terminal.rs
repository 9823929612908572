//! `try --terminal`: COMMAND asks on a terminal, natively and inside, and the user's terminal is as it was afterwards.
//!
//! The user is this test, at a terminal that script(1) makes.

use crate::support;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use support::places::{await_running, pause};
use support::{can_mount, Scene};

const PATIENCE: Duration = Duration::from_secs(60);

/// Somebody at a terminal.
struct User {
    shell: Child,
    shown: Receiver<Vec<u8>>,
    /// Everything that was shown.
    seen: String,
    /// How much of it was already looked at.
    looked: usize,
}

impl User {
    /// Runs a line of shell on a new terminal.
    fn at(scene: &Scene, line: &str) -> User {
        let mut script = Command::new("script");
        script.args(["-qec", line, "/dev/null"]).current_dir(scene.path("dir")).env("SHELL", "/bin/sh");
        script.env("SPECULATOR", env!("CARGO_BIN_EXE_speculator")).env("LAYER", scene.path(""));
        let mut shell = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = shell.stdout.take().unwrap();
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut buffer) {
                let _ = sender.send(buffer[..len].to_vec());
            }
        });
        User { shell, shown, seen: String::new(), looked: 0 }
    }

    fn tries(scene: &Scene, options: &str, script: &str) -> User {
        User::at(scene, &format!("\"$SPECULATOR\" try -t {options} --layer-dir \"$LAYER\" -- sh -c '{script}'"))
    }

    /// Waits until this is shown, after what was looked at before.
    #[track_caller]
    fn sees(&mut self, text: &str) -> &mut User {
        let start = Instant::now();
        loop {
            if let Some(at) = self.seen[self.looked..].find(text) {
                self.looked += at + text.len();
                return self;
            }
            let Some(left) = PATIENCE.checked_sub(start.elapsed()) else {
                panic!("{text:?} was never shown, but {:?}", self.seen);
            };
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} was not shown, but {:?}", self.seen),
            }
        }
    }

    fn types(&mut self, text: &str) -> &mut User {
        self.shell.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        self
    }

    /// The exit status, and everything that was shown.
    fn leaves(mut self) -> (i32, String) {
        while let Ok(bytes) = self.shown.recv_timeout(PATIENCE) {
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
        (self.shell.wait().unwrap().code().unwrap(), self.seen)
    }
}

const DIALOGUE: &str = "printf \"name? \"; read -r x; echo \"got $x\"; test -t 0 && test -t 1 && test -t 2 && tty | cut -c1-9; \
                        stty -echo; printf \"secret? \" >/dev/tty; read -r y </dev/tty; stty echo; echo \"$x $y\" > made";

fn converse(user: &mut User) {
    user.sees("name? ").types("hello\n").sees("got hello").sees("secret? ").types("word\n");
}

#[test]
fn a_program_asks_as_it_does_natively() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mut native = User::at(&scene, DIALOGUE);
    converse(&mut native);
    let (status, natively) = native.leaves();
    assert_eq!(status, 0, "{natively}");
    std::fs::remove_file(scene.path("dir/made")).unwrap();

    let mut user = User::tries(&scene, "", DIALOGUE);
    converse(&mut user);
    user.sees("+ ").sees("dir/made").sees("Keep this?").types("y\n").sees("kept: 1 created");
    let (status, shown) = user.leaves();
    assert_eq!(status, 0, "{shown}");
    assert!(shown.starts_with(&natively), "natively {natively:?}, tried {shown:?}");
    assert_eq!(std::fs::read_to_string(scene.path("dir/made")).unwrap(), "hello word\n");
}

#[test]
fn the_interrupt_key_is_for_the_program() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let script = "trap \"echo caught; exit 5\" INT; echo > made; echo ready; while :; do sleep 0.1; done";
    let mut user = User::tries(&scene, "", script);
    user.sees("ready").types("\u{3}").sees("caught").sees("status 5").sees("Keep this?").types("n\n").sees("undone");
    assert_eq!(user.leaves().0, 5);
    assert!(!scene.path("dir/made").exists());
}

#[test]
fn a_question_in_between_has_the_terminal_to_itself() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let script = "bash -c \"exec 3<>/dev/tcp/192.0.2.1/9\" 2>/dev/null || echo no way; read -r x; echo \"<$x>\"";
    let mut user = User::tries(&scene, "", script);
    user.sees("Allow the network?").types("n\n").sees("no way").types("after\n").sees("<after>");
    user.sees("Keep this?").types("n\n");
    assert_eq!(user.leaves().0, 123);
}

#[test]
fn a_question_that_nobody_answered_ends_with_the_command() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let asleep = pause("1000");
    let script = format!("bash -c \"exec 3<>/dev/tcp/192.0.2.1/9\" 2>/dev/null & {asleep}; echo > made");
    let run = format!("\"$SPECULATOR\" try -t --layer-dir \"$LAYER\" -- sh -c '{script}'");
    let mut user = User::at(&scene, &format!("stty -a > ../before; {run}; stty -a > ../after"));
    user.sees("Allow the network?");
    let command = rustix::process::Pid::from_raw(await_running(&asleep)).unwrap();
    rustix::process::kill_process(command, rustix::process::Signal::PIPE).unwrap();
    user.sees("Keep this?").types("y\n").sees("kept: 1 created");
    user.leaves();
    let read = |name: &str| std::fs::read_to_string(scene.path(name)).unwrap();
    assert_eq!(read("before"), read("after"));
}

#[test]
fn the_window_has_the_users_size_also_when_it_changes() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mut user = User::at(
        &scene,
        "stty rows 33 cols 99; (while ! test -e \"$LAYER/now\"; do sleep 0.1; done; stty rows 44 cols 88) </dev/tty & \
         \"$SPECULATOR\" try -t --no --layer-dir \"$LAYER\" -- bash -c 'trap \"stty size; exit 0\" WINCH; stty size; while :; do sleep 0.1; done'",
    );
    user.sees("33 99");
    std::fs::write(scene.path("now"), "").unwrap();
    user.sees("44 88").sees("undone");
    assert_eq!(user.leaves().0, 0);
}

#[test]
fn the_users_terminal_is_as_it_was() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let ends = ["exit 3", "stty raw -echo", "kill -KILL $$", "trap \"\" TERM; echo ready; sleep 600"];
    for end in ends {
        let run = format!("\"$SPECULATOR\" try -t --no --layer-dir \"$LAYER\" -- sh -c '{end}'");
        let mut user = User::at(&scene, &format!("stty -a > ../before; {run}; stty -a > ../after"));
        if end.contains("ready") {
            user.sees("ready");
            let tries = children_named(&user.shell, "speculator");
            for _ in 0..2 {
                tries.iter().for_each(|pid| drop(Command::new("kill").arg(pid).status()));
                std::thread::sleep(Duration::from_millis(300));
            }
            user.sees("everything was undone");
        }
        user.leaves();
        let read = |name: &str| std::fs::read_to_string(scene.path(name)).unwrap();
        assert_eq!(read("before"), read("after"), "{end}");
    }
}

/// The processes below `parent` whose name is `name`, that are children of a shell.
fn children_named(parent: &Child, name: &str) -> Vec<String> {
    let children = |pid: &str| {
        let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        listed.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let shells = children(&parent.id().to_string());
    let tries = shells.iter().flat_map(|shell| children(shell));
    tries
        .filter(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name))
        .collect()
}

#[test]
fn without_a_terminal_it_says_so() {
    let outcome = Scene::new().run("try --terminal -- true");
    outcome.expect(125, "--terminal needs stdin, stdout and stderr to be a terminal");
}
