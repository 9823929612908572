//! What `try` says, what it ends with, what it lets through, and what it leaves behind: nothing.

use crate::support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::process::{kill_process, Pid, Signal};
use support::manifest::{assert_same, await_news, comparable, manifest};
use support::places::{await_end, await_running, pause, running};
use support::{can_mount, tree, Outcome, Scene};

pub struct Try<'a> {
    pub scene: &'a Scene,
    pub options: Vec<&'a str>,
    pub input: &'a str,
}

impl<'a> Try<'a> {
    pub fn new(scene: &'a Scene, options: &'a str) -> Try<'a> {
        Try { scene, options: options.split_whitespace().collect(), input: "" }
    }

    pub fn sh(&self, script: &str) -> Outcome {
        self.run(&["sh", "-c", script])
    }

    pub fn run(&self, command: &[&str]) -> Outcome {
        let mut child = self.command(command).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(self.input.as_bytes()).unwrap();
        Outcome::of(child.wait_with_output().unwrap())
    }

    /// Not started yet.
    pub fn command(&self, command: &[&str]) -> Command {
        let mut process = Command::new(env!("CARGO_BIN_EXE_speculator"));
        process.arg("try").args(&self.options).arg("--layer-dir").arg(self.scene.path("")).arg("--").args(command);
        process.current_dir(self.scene.path("dir"));
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        process
    }

    /// COMMAND does the one, somebody outside the other before COMMAND ends.
    pub fn meanwhile(&self, inside: &str, outside: &str) -> Outcome {
        let (folder, outside, pause) = (self.scene.path("dir"), outside.to_owned(), pause("1000"));
        let done = pause.clone();
        let somebody = std::thread::spawn(move || {
            let pid = await_running(&done);
            tree::run(&folder, &outside);
            kill_process(Pid::from_raw(pid).unwrap(), Signal::PIPE).unwrap();
        });
        // A shell says nothing of a child that ended by this signal.
        let outcome = self.sh(&format!("{inside}; {pause}; :"));
        somebody.join().unwrap();
        outcome
    }
}

/// Finishes what was interrupted.
pub fn resume(scene: &Scene) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["try", "--resume", "--layer-dir"]).arg(scene.path(""));
    Outcome::of(command.output().unwrap())
}

/// Nothing is left: the folder holds these names, and nothing is mounted or attached.
#[track_caller]
fn left(scene: &Scene, names: &[&str]) {
    scene.left_behind(names);
}

#[track_caller]
fn check(options: &str, script: &str, status: i32, kept: bool, said: &str) {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let outcome = Try::new(&scene, options).sh(script);
    assert_eq!(outcome.status, status, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    assert_eq!(scene.path("dir/made").exists(), kept, "{}", outcome.stderr);
    left(&scene, &["dir"]);
}

#[test]
fn without_anybody_to_ask_it_is_undone_and_says_so() {
    check("", "echo > made", 123, false, "undone: there is no terminal to ask on, and no --yes, --no or --keep-if;");
    check("", "echo > made; exit 4", 4, false, "undone: there is no terminal");
}

#[test]
fn what_is_kept_ends_with_its_own_status() {
    check("--yes", "echo > made", 0, true, "kept: 1 created");
    check("--yes", "echo > made; exit 4", 4, true, "kept: 1 created");
    check("--yes", "echo > made; kill -TERM $$", 143, true, "kept: 1 created");
}

#[test]
fn what_no_undoes_ends_with_its_own_status() {
    check("--no", "echo > made", 0, false, "undone: as --no says");
    check("--no", "echo > made; exit 4", 4, false, "undone: as --no says");
}

#[test]
fn a_command_decides() {
    check("--keep-if true", "echo > made", 0, true, "kept");
    check("--keep-if false", "echo > made", 123, false, "undone: --keep-if failed");
    check("--keep-if=./check", "echo > made; echo 'test -e made' > check; chmod +x check; exit 3", 3, true, "kept");
    check("--keep-if=./check", "echo 'test -e made' > check; chmod +x check", 123, false, "undone");
}

#[test]
fn the_command_that_decides_knows_the_status() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let keep_if = "--keep-if=test $SPECULATOR_STATUS = 7";
    let attempt = Try { scene: &scene, options: vec![keep_if], input: "" };
    assert_eq!(attempt.sh("exit 7").status, 7);
    assert_eq!(attempt.sh("exit 0").status, 123);
    left(&scene, &["dir"]);
}

#[test]
fn a_command_that_cannot_be_run() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    Try::new(&scene, "--yes").run(&["no-such-command"]).expect(127, "not found");
    Try::new(&scene, "--yes").run(&["/etc/passwd"]).expect(126, "make it executable");
    fs::write(scene.path("dir/bad"), "#!/no/such/interpreter\n").unwrap();
    tree::run(&scene.path("dir"), "chmod +x bad");
    Try::new(&scene, "--yes").run(&["./bad"]).expect(127, "the interpreter that it names");
    left(&scene, &["dir"]);
}

#[test]
fn output_is_held_and_released_as_it_was() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let script = "echo one; echo two >&2; seq 100000";
    let kept = Try::new(&scene, "--yes --report=none").sh(script);
    let lines: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(kept.stdout, format!("one\n{lines}"));
    assert!(kept.stderr.starts_with("two\n"), "{}", kept.stderr);
    let undone = Try::new(&scene, "--no").sh(script);
    assert_eq!(undone.stdout, "");
    assert!(undone.stderr.contains("stdout and 4 on stderr, the last 20 lines:\n  | 99981\n"), "{}", undone.stderr);
    assert!(undone.stderr.contains("  | 100000\n"), "{}", undone.stderr);
    // The rest is in a file.
    let named = undone.stderr.lines().find_map(|line| line.strip_prefix("speculator: all that it printed is in "));
    let file = PathBuf::from(named.unwrap());
    let text = fs::read_to_string(&file).unwrap();
    // Two streams are read as they come: between them there is no order.
    assert_eq!(text.len(), 588_903);
    assert!(text.contains("two\n") && text.ends_with("99999\n100000\n"));
    fs::remove_file(&file).unwrap();
    left(&scene, &["dir"]);
    let short = Try::new(&scene, "--no").sh("echo one");
    assert!(short.stderr.contains("stdout and 0 on stderr:\n  | one\n"), "{}", short.stderr);
    left(&scene, &["dir"]);
}

#[test]
fn input_that_is_a_pipe_arrives() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let attempt = Try { scene: &scene, options: vec!["--yes"], input: "a\nb\n" };
    assert_eq!(attempt.sh("cat | tr a-b x-y").stdout, "x\ny\n");
}

#[test]
fn processes_that_go_on_are_told_and_ended() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    for option in ["--yes", "--no"] {
        let (first, second) = (pause("4711"), pause("4711"));
        let script = format!("setsid {first} & until pgrep -fx '{first}' >/dev/null; do :; done; {second} & :");
        let outcome = Try::new(&scene, option).sh(&script);
        assert!(outcome.stderr.contains(&format!("left running, and ended: {first}")), "{}", outcome.stderr);
        assert_eq!((running(&first), running(&second)), (vec![], vec![]));
    }
    let waited = Try::new(&scene, "--yes --wait").sh("(sleep 0.5; echo > late) & :");
    assert!(!waited.stderr.contains("left running"), "{}", waited.stderr);
    assert!(scene.path("dir/late").exists());
    left(&scene, &["dir"]);
}

#[test]
fn the_network_is_refused_and_told() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let script = "import socket
for kind, address in [(socket.SOCK_STREAM, ('192.0.2.1', 443)), (socket.SOCK_DGRAM, ('192.0.2.2', 53))]:
    s = socket.socket(socket.AF_INET, kind)
    try: s.connect(address) if kind == socket.SOCK_STREAM else s.sendto(b'x', address); print('reached')
    except OSError as e: print(e.errno)
l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname()); print('inside')
";
    let outcome = Try::new(&scene, "--yes --network=no").run(&["python3", "-c", script]);
    assert_eq!(outcome.stdout, "101\n101\ninside\n");
    assert!(
        outcome.stderr.contains("python3 tried to connect to 192.0.2.1:443/tcp and was refused"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("python3 tried to send to 192.0.2.2:53/udp and was refused"), "{}", outcome.stderr);
    Try::new(&scene, "--network=ask").run(&["true"]).expect(125, "there is no terminal to ask on");
}

#[test]
fn the_network_that_was_allowed_is_there_and_told() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = format!("import socket; print(socket.create_connection(('127.0.0.1', {})).recv(5))", address.port());
    let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"hello").unwrap());
    let outcome = Try::new(&scene, "--yes --network=yes").run(&["python3", "-c", &script]);
    assert_eq!(outcome.stdout, "b'hello'\n", "{}", outcome.stderr);
    let told = format!("python3 did, which cannot be undone: connect to {address}/tcp");
    assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
    server.join().unwrap();
}

#[test]
fn sockets_of_others_cannot_be_reached_and_own_ones_can() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let _listener = UnixListener::bind(scene.path("dir/theirs")).unwrap();
    let script = "import socket
s = socket.socket(socket.AF_UNIX)
try: s.connect('theirs'); print('reached')
except OSError as e: print(e.errno)
l = socket.socket(socket.AF_UNIX); l.bind('ours'); l.listen(); socket.socket(socket.AF_UNIX).connect('ours'); print('inside')
";
    for options in ["--yes --network=no", "--yes --network=yes"] {
        let outcome = Try::new(&scene, options).run(&["python3", "-c", script]);
        assert_eq!(outcome.stdout, "111\ninside\n", "{}", outcome.stderr);
        assert!(outcome.stderr.contains("python3 tried to connect to theirs and was refused"), "{}", outcome.stderr);
        fs::remove_file(scene.path("dir/ours")).unwrap();
    }
}

#[test]
fn what_changes_the_machine_is_refused_and_told() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let script = "mount -t tmpfs x /mnt; hostname other; date -s 2001-01-01; swapoff -a; chroot / reboot -f;
                  echo 1 > /proc/sys/kernel/panic; echo b > /proc/sysrq-trigger; exit 0";
    let before = fs::read_to_string("/proc/sys/kernel/panic").unwrap();
    let outcome = Try::new(&scene, "--no").sh(script);
    for told in [
        "mount tried to mount",
        "hostname tried to sethostname",
        "date tried to clock_settime",
        "reboot tried to reboot",
    ] {
        assert!(outcome.stderr.contains(told), "{told}: {}", outcome.stderr);
    }
    assert_eq!(fs::read_to_string("/proc/sys/kernel/panic").unwrap(), before);
    // Block devices, file handles, and other processes.
    let script = "import os, glob
for f in glob.glob('/dev/vd*') + glob.glob('/dev/sd*') + glob.glob('/dev/loop*') + ['/dev/mem', '/dev/kmsg']:
    try: os.close(os.open(f, os.O_WRONLY)); print('opened', f)
    except OSError: pass
print(sorted(p for p in os.listdir('/proc') if p.isdigit()))
";
    let outcome = Try::new(&scene, "--yes").run(&["python3", "-c", script]);
    assert_eq!(outcome.stdout, "['1', '2']\n", "{}", outcome.stderr);
}

#[test]
fn what_somebody_else_changed_meanwhile_is_not_overwritten() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let both = |inside: &str, outside: &str, options: &str| {
        tree::run(&scene.path("dir"), "rm -rf *; mkdir d d2; echo 1 > a; echo 1 > d/b; echo 2 > d2/b; rm -f ../ready");
        Try::new(&scene, options).meanwhile(inside, outside)
    };
    let refused = |inside: &str, outside: &str| {
        let outcome = both(inside, outside, "--yes --report=none");
        outcome.expect(125, "somebody else changed");
    };
    refused("echo 2 > a", "echo 3 > a");
    assert_eq!(fs::read_to_string(scene.path("dir/a")).unwrap(), "3\n");
    refused("echo 2 >> a", "chmod 600 a");
    refused("rm a", "echo 3 > a");
    refused("rm -r d", "echo 3 > d/new");
    refused("echo 2 > new", "echo 3 > new");
    refused("echo 2 >> d/b", "rm -r d");
    refused("mv d e", "echo 3 > d/b; mv d f");
    refused("rm d/b", "mv d e; mv d2 d");
    assert_eq!(fs::read_to_string(scene.path("dir/d/b")).unwrap(), "2\n", "COMMAND has never seen it");
    let same_directory = both("echo 2 > mine", "echo 3 > theirs", "--yes");
    assert_eq!(same_directory.status, 0, "{}", same_directory.stderr);
    assert!(scene.path("dir/mine").exists() && scene.path("dir/theirs").exists());
    let forced = both("echo 2 > a", "echo 3 > a", "--yes --force");
    assert_eq!(forced.status, 0, "{}", forced.stderr);
    assert_eq!(fs::read_to_string(scene.path("dir/a")).unwrap(), "2\n");
    let replaced = both("echo 2 > a", "echo 3 > other; mv other a", "--yes --force");
    assert_eq!(replaced.status, 0, "{}", replaced.stderr);
    assert_eq!(fs::read_to_string(scene.path("dir/a")).unwrap(), "2\n");
    left(&scene, &["dir"]);
}

/// Somebody makes what COMMAND has made before keeping is finished.
#[test]
fn what_somebody_else_made_meanwhile_is_not_taken_for_what_was_kept() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let outcome = Try::new(&scene, "--yes --report=none --crash-after=0").sh("echo mine > new");
    assert_eq!(outcome.status, 125);
    let resume = || resume(&scene);
    let new = scene.path("dir/new");
    fs::write(&new, "theirs\n").unwrap();
    resume().expect(125, "new");
    assert_eq!(fs::read_to_string(&new).unwrap(), "theirs\n");
    fs::remove_file(&new).unwrap();
    let resumed = resume();
    assert_eq!(resumed.status, 0, "{}", resumed.stderr);
    assert_eq!(fs::read_to_string(&new).unwrap(), "mine\n");
    left(&scene, &["dir"]);
}

/// More than the pipe holds through which COMMAND reads.
#[test]
fn what_command_did_not_read_of_a_large_file_is_there_for_the_next_one() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let large = scene.path("dir/large");
    let lines: String = (0..40_000).map(|number| format!("{number}\n")).collect();
    fs::write(&large, &lines).unwrap();
    let program = env!("CARGO_BIN_EXE_speculator");
    let script = r#""$0" try --yes --report=none --layer-dir "$1" head -c 10 > /dev/null;
                    "$0" try --yes --report=none --layer-dir "$1" /there/is/none 2> /dev/null; exec cat"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, program]).arg(scene.path("")).current_dir(scene.path("dir"));
    let output = shell.stdin(fs::File::open(&large).unwrap()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().len(), lines.len() - 10);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn keeping_that_was_cut_short_anywhere_is_finished_later() {
    if !can_mount() {
        return;
    }
    let script = "mv dir/sub t; rm -r dir; mkdir dir; mv t dir/again; echo more >> dir/again/three; mv other/file dir/one; mv link-a l;
                  echo x > other/new; ln other/new other/new2; chmod 700 other; mv many m; rm m/1 m/150; echo y >> m/20; truncate -s 3 large;
                  mv other o; mv o/swap dir/swap; mkdir o/d; mkfifo o/d/f; echo z >> pair-a; rm pair-a; rm -rf modes";
    let native = Scene::new();
    tree::build(&native.path("dir"));
    let since = await_news();
    tree::run(&native.path("dir"), script);
    let expected = comparable(manifest(&native.path("dir")), since);
    let mut cuts = 0;
    for operations in 0.. {
        let scene = Scene::new();
        tree::build(&scene.path("dir"));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let options = format!("--yes --report=none --crash-after={operations}");
        let outcome = Try::new(&scene, &options).sh(script);
        let resume = || resume(&scene);
        if outcome.status == 0 {
            assert!(resume().stderr.contains("nothing was interrupted"));
            break;
        }
        assert_eq!(outcome.status, 125);
        cuts += 1;
        let resumed = resume();
        assert_eq!(resumed.status, 0, "after {operations}: {}", resumed.stderr);
        let found = comparable(manifest(&scene.path("dir")), since);
        assert_same(&expected, &found, &format!("cut after {operations}"));
        left(&scene, &["dir"]);
    }
    assert!(cuts > 20, "only {cuts} cuts");
}

#[test]
fn a_kill_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    tree::build(&scene.path("dir/tree"));
    let before = manifest(&scene.path("dir"));
    let mut process = Command::new(env!("CARGO_BIN_EXE_speculator"));
    process.args(["try", "--yes", "--layer-dir"]).arg(scene.path("")).args(["--", "sh", "-c"]);
    let asleep = pause("4713");
    process.arg(format!("rm -rf *; {asleep}; :")).current_dir(scene.path("dir"));
    let mut child = process.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_running(&asleep);
    child.kill().unwrap();
    child.wait().unwrap();
    await_end(&asleep);
    left(&scene, &["dir"]);
    assert_same(&before, &manifest(&scene.path("dir")), "killed");
}

#[test]
fn the_report_for_programs() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    tree::run(&scene.path("dir"), "echo 1 > a; echo 1 > b; mkdir d; echo x > d/f");
    let report = scene.path("report");
    let option = format!("--no --report=json:{}", report.display());
    tree::run(&scene.path("dir"), "echo > \"$(printf 'z\\377')\"");
    Try::new(&scene, &option).sh("mv z* \"$(printf 'y\\376')\"");
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let last = |bytes: &serde_json::Value| bytes.as_array().and_then(|bytes| bytes.last().cloned());
    assert_eq!(last(&json["changes"][0]["path_bytes"]), Some(0o376.into()));
    assert_eq!(last(&json["changes"][0]["from_bytes"]), Some(0o377.into()));
    let option = format!("--no --diff --report=json:{}", report.display());
    let outcome = Try::new(&scene, &option).sh("echo 2 >> a; rm b; mv d e; echo > new; chmod 600 e/f; seq 10000");
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(json["decision"], "undone");
    // All of it, also where the report for people shows the last lines only.
    let lines: String = (1..=10_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(json["stdout_bytes"], lines.len());
    let printed = json["printed"].as_array().unwrap();
    assert!(printed.iter().all(|piece| piece["stream"] == "stdout"));
    assert_eq!(printed.iter().map(|piece| piece["text"].as_str().unwrap()).collect::<String>(), lines);
    let told: Vec<(String, String)> = json["changes"].as_array().unwrap().iter().map(told).collect();
    let expected = [("changed", "a"), ("removed", "b"), ("renamed", "e"), ("changed", "e/f"), ("created", "new")]
        .map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(told, expected);
    assert!(outcome.stderr.contains("@@ -1 +1,2 @@\n 1\n+2\n"), "{}", outcome.stderr);
    fn told(change: &serde_json::Value) -> (String, String) {
        let path = change["path"].as_str().unwrap();
        let at = path.find("/dir/").map_or(path, |at| &path[at + 5..]);
        (change["change"].as_str().unwrap().to_owned(), at.to_owned())
    }
}

/// Runs a shell script in whose arguments a try of what follows them begins.
fn shell(scene: &Scene, script: &str, stdin: impl Into<Stdio>) -> Outcome {
    let inner = Try::new(scene, "--yes --report=none").command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    Outcome::of(command.current_dir(scene.path("dir")).stdin(stdin).output().unwrap())
}

#[test]
fn what_is_not_read_is_there_for_the_next_reader() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let check = |script: &str, expected: &str| {
        let outcome = shell(&scene, script, Stdio::null());
        assert_eq!((outcome.status, outcome.stdout.as_str()), (0, expected), "{script}: {}", outcome.stderr);
    };
    check("printf '1\\n2\\n3\\n' | while read -r name; do \"$@\" echo $name; done", "1\n2\n3\n");
    check("seq 20000 | { \"$@\" sh -c 'read a; read b; echo $a $b'; tail -n 1; }", "1 2\n20000\n");
    check("seq 20000 | { \"$@\" head -c 90003 > /dev/null; head -n 2; }", "52\n16853\n");
    check("seq 20000 | { \"$@\" wc -l; wc -l; }", "20000\n0\n");
    check("seq 20000 > ../list; { \"$@\" sh -c 'read a'; sed -n 1p; } < ../list", "2\n");
    check("\"$@\" cat < /dev/null; echo | \"$@\" true", "");
    check("(sleep 0.2; echo late) | { \"$@\" cat; }", "late\n");
    // Nobody ever writes.
    check("mkfifo ../fifo; exec 3<> ../fifo; \"$@\" true <&3", "");
    // COMMAND is not even begun: its directory is not there inside.
    check("seq 20000 > ../list; cd /proc/$$; { \"$@\" true 2> /dev/null; wc -l; } < \"$OLDPWD/../list\"", "20000\n");

    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.write_all(b"1\n2\n3\n").unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let outcome = shell(&scene, "\"$@\" sh -c 'read a; echo $a'; cat", std::os::fd::OwnedFd::from(theirs));
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "1\n2\n3\n"), "{}", outcome.stderr);
}

/// Natively it is at its end at once.
#[test]
fn a_fifo_that_never_had_a_writer_is_at_its_end() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let fifo = scene.path("fifo");
    tree::run(&scene.path(""), "mkfifo fifo");
    let options = fs::File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).clone();
    for command in ["cat", "timeout 20 \"$@\" cat"] {
        let outcome = shell(&scene, command, options.open(&fifo).unwrap());
        assert_eq!((outcome.status, outcome.stdout.as_str()), (0, ""), "{command}: {}", outcome.stderr);
    }
}

/// In a root for chroot(1), say: through the processes of others COMMAND would see the file systems without a layer.
#[test]
fn processes_outside_are_not_seen_in_another_place() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let us = std::process::id();
    for how in ["-t proc proc", "--rbind /proc"] {
        tree::run(&scene.path("dir"), &format!("mkdir -p p/proc; mount {how} p/proc; mount --make-rprivate p/proc"));
        let script = format!("test ! -e p/proc/{us} && echo > p/proc/1/root/$PWD/there && test -e there");
        let outcome = Try::new(&scene, "--no").sh(&script);
        tree::run(&scene.path("dir"), "umount -R p/proc");
        assert_eq!(outcome.status, 0, "{how}: {}", outcome.stderr);
        assert!(!scene.path("dir/there").exists(), "{how}");
    }
    left(&scene, &["dir"]);
}

#[test]
fn a_limit_of_the_length_of_files_is_commands() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let script =
        "ulimit -S -f 8; exec \"$@\" sh -c 'ulimit -S -f; echo > made; head -c 9000 /dev/zero > long; echo $?'";
    let outcome = shell(&scene, script, Stdio::null());
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "8\n153\n"), "{}", outcome.stderr);
    assert!(scene.path("dir/made").exists());
}

#[test]
fn where_command_cannot_begin_is_told() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let outcome = shell(&scene, "cd /proc/$$ && \"$@\" true", Stdio::null());
    outcome.expect(125, "cannot make a layer: the working directory: No such file or directory");
    let nowhere = scene.run("try --layer-dir /nowhere -- true");
    nowhere.expect(125, "cannot make a layer in /nowhere: a file without a name: No such file or directory; choose");
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let scene = Scene::new();
    if let Some(outcome) = scene.run_as_nobody("try --yes -- true") {
        outcome.expect(125, "run as root");
    }
}
