//! A reader outside who is slow gets what was sent, not what is stored there later: the pipe that he reads holds
//! bytes, and no pages of files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Sends a file's first bytes to its standard output with the given call, changes them, says so on standard error,
/// and lives until its input ends.
const PROGRAM: &str = r#"
import os, sys
name = sys.argv[1]
file = os.open("record", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"before", 0)
os.fsync(file)
if name == "sendfile":
    os.sendfile(1, file, 0, 6)
elif name == "splice":
    os.splice(file, 1, 6, offset_src=0)
else:
    reader, writer = os.pipe()
    os.splice(file, writer, 6, offset_src=0)
    os.splice(reader, 1, 6)
os.pwrite(file, b"after!", 0)
os.write(2, b"changed\n")
os.read(0, 1)
"#;

fn start(name: &str, folder: &std::path::Path, stdout: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--", "python3", "-c", PROGRAM, name]).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn what_was_sent_is_read(mut child: Child, mut reader: impl Read) {
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "changed\n");
    let mut got = [0; 6];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), "before");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(folder.path().join("record"), "").unwrap();
    folder
}

#[test]
fn a_pipe_holds_what_was_sent() {
    for name in ["sendfile", "splice", "splice-through-a-pipe"] {
        let folder = folder();
        let mut child = start(name, folder.path(), Stdio::piped());
        let reader = child.stdout.take().unwrap();
        what_was_sent_is_read(child, reader);
    }
}

#[test]
fn a_socket_holds_what_was_sent() {
    for name in ["sendfile", "splice-through-a-pipe"] {
        let folder = folder();
        let (reader, writer) = UnixStream::pair().unwrap();
        let child = start(name, folder.path(), Stdio::from(std::os::fd::OwnedFd::from(writer)));
        what_was_sent_is_read(child, reader);
    }
}

/// COMMAND has ended, and what it wrote is held for somebody who does not read. A signal that ends `run` ends it then,
/// too; what was written is still there for whoever reads it later. (COMMAND ignores the signal: it ends by itself.)
#[test]
fn a_signal_ends_a_run_that_waits_for_a_reader() {
    const LEN: usize = 300_000;
    let folder = folder();
    // One write, right after the change: it is held as a whole. After a commit COMMAND itself would wait for the
    // reader.
    let script = format!("printf changed > record; dd if=/dev/zero bs={LEN} count=1 status=none");
    let script = format!("trap '' TERM; {script}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--commit-interval=60", "--", "sh", "-c", &script]).current_dir(folder.path());
    command.stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        std::thread::sleep(Duration::from_millis(100));
        // Until then COMMAND may not ignore the signal yet.
        if fs::read(folder.path().join("record")).unwrap().is_empty() && Instant::now() < end {
            continue;
        }
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
    };
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    assert_eq!(status.and_then(|status| status.signal()), Some(15), "{status:?}");
    assert_eq!(got.len(), LEN);
}

/// A socket that was told outside not to copy what it sends. What is sent so could change before it has left: who tries
/// is told, as if too much were under way, and sends it with a copy.
#[test]
fn an_inherited_socket_copies_what_is_sent() {
    const OUTSIDE: &str = r#"
import socket, subprocess, sys
SO_ZEROCOPY = 60
listener = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(listener.getsockname())
receiver = listener.accept()[0]
sender.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
world = [sys.argv[1], "run", "--", sys.executable, "-c", sys.argv[2], str(sender.fileno())]
subprocess.run(world, pass_fds=[sender.fileno()], check=True)
sender.close()
print(receiver.recv(100).decode(), end="")
"#;
    const INSIDE: &str = r#"
import errno, socket, sys
MSG_ZEROCOPY = 0x4000000
sender = socket.socket(fileno=int(sys.argv[1]))
for send in lambda: sender.send(b"pages", MSG_ZEROCOPY), lambda: sender.sendmsg([b"pages"], [], MSG_ZEROCOPY):
    try:
        send()
    except OSError as error:
        assert error.errno == errno.ENOBUFS, error
    else:
        assert False, "sent without a copy"
sender.send(b"a copy")
"#;
    let mut command = Command::new("python3");
    command.args(["-c", OUTSIDE, env!("CARGO_BIN_EXE_speculator"), INSIDE]);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a copy");
}

/// A server with a client that does not read. What it has for that client waits, and is at some point too much; what it
/// has for others, and what it may do only when its own output has left, does not wait for that client.
#[test]
fn who_does_not_read_keeps_nobody_else_waiting() {
    const SERVER: &str = r#"
import os, socket, sys
port = int(sys.argv[1])
record = os.open("record", os.O_RDWR)
def change(what):
    os.pwrite(record, what, 0)
def connect():
    return socket.create_connection(("127.0.0.1", port))
slow = socket.socket()
slow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
slow.connect(("127.0.0.1", port))
slow.setblocking(False)
fast = connect()
sent = 0
try:
    while True:
        change(b"%d" % sent)
        sent += slow.send(bytes(65536))
except BlockingIOError:
    pass
change(b"answer")
fast.send(b"answer")
third = connect()
change(b"second")
fast.send(b"second")
print(sent, flush=True)
os.read(0, 1)
"#;
    let folder = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--", "python3", "-c", SERVER, &port]).current_dir(folder.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut slow, _) = listener.accept().unwrap();
    let (mut fast, _) = listener.accept().unwrap();
    fast.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = [0; 6];
    let first = fast.read_exact(&mut answer).map(|()| answer);
    let second = first.as_ref().ok().map(|_| (listener.accept().unwrap(), fast.read_exact(&mut answer)));
    if second.is_none() {
        child.kill().unwrap();
    }
    assert_eq!(&first.expect("who reads has an answer"), b"answer");
    assert!(second.is_some_and(|(_, second)| second.is_ok()) && &answer == b"second");
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let sent: u64 = said.trim().parse().unwrap();
    assert!(sent > 65536, "{sent}");
    // Nothing of it is lost, also if the server ends first.
    drop(child.stdin.take());
    let got = std::io::copy(&mut slow, &mut std::io::sink()).unwrap();
    assert_eq!(got, sent);
    assert!(child.wait().unwrap().success());
}
