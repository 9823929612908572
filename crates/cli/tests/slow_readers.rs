//! A reader outside who is slow gets what was sent, not what is stored there later: the pipe that he reads holds
//! bytes, and no pages of files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

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
