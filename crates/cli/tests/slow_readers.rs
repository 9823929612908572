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
