//! A name that was looked at a moment ago is opened without another look, inside a guess (decisions/0209).

use crate::support;

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

fn compile(dir: &Path, source: &Path) -> std::path::PathBuf {
    let program = dir.join("program");
    assert!(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status().unwrap().success());
    program
}

fn inside(dir: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", SPECULATOR, "run", "--"]).current_dir(dir).stdin(Stdio::null());
    command
}

/// The program `looked_then_opened` says that each open is as it is natively, whatever came between it and the look.
#[test]
fn what_comes_between_a_look_and_an_open_counts() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/looked_then_opened.c");
    let program = compile(place.path(), &source);
    let dir = place.path().join("here");
    fs::create_dir(&dir).unwrap();
    let output = inside(&dir).arg(program).arg("guess").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"done\n"[..]));
}

/// Opens `x` in a guess, and once more when there is a flag. If the guess fails, it says so and opens nothing.
const OPENS_AGAIN: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    long guess = syscall(0x5bed, 1, 0);
    if (guess < 0) return puts("taken back"), 0;
    for (int i = 0; i < 20; i++) close(open("x", O_RDONLY));
    close(open("x", O_RDONLY));
    while (access("flag", F_OK) != 0) {}
    close(open("x", O_RDONLY));
    syscall(0x5bed, 2, guess);
    return puts("opened"), 0;
}
"#;

/// Somebody outside has put a FIFO in the place of the file: whoever would write there does not see that a guess opens
/// it.
#[test]
fn a_look_does_not_hold_for_long() {
    if !support::has_root_for("running ahead") {
        return;
    }
    const O_NONBLOCK: i32 = 0o4000;
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = place.path().join("opens_again.c");
    fs::write(&source, OPENS_AGAIN).unwrap();
    let program = compile(place.path(), &source);
    let dir = place.path().join("here");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("x"), "").unwrap();
    assert!(Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap().success());
    let mut child = inside(&dir).arg(program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    fs::rename(dir.join("fifo"), dir.join("x")).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    fs::write(dir.join("flag"), "").unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let mut is_seen = false;
    while !is_seen && child.try_wait().unwrap().is_none() && Instant::now() < until {
        is_seen = fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(dir.join("x")).is_ok();
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((is_seen, &*String::from_utf8_lossy(&output.stdout)), (false, "taken back\n"));
}
