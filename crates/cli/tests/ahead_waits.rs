//! Waits for children on a guess that take fewer questions, or none
//! (docs/decisions/0217-a-wait-is-answered-with-its-signal.md).

use crate::ahead_new_files::{folder, has_never_been, has_root, is_as_natively};
use crate::support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// Bears so many children in one guess, one after the other, in a process that was born on it. Each is waited for so
/// that its end comes while its parent waits, which then looks for more. `guess` is left out natively.
const WAITS: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int heard;
static void on_child(int number) { (void)number; heard++; }
static void bear(int count) {
    struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
    sigaction(SIGCHLD, &action, 0);
    for (int i = 0; i < count; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) { usleep(2000); _exit(i % 100); }
        pid_t told = waitpid(-1, &status, 0);
        int then = heard;
        pid_t more = waitpid(-1, 0, WNOHANG);
        dprintf(1, "%d %d %d %d\n", told == child, WEXITSTATUS(status), then, more);
    }
}
int main(int count, char **arguments) {
    long guess = count > 2 ? syscall(0x5bed, 1, 0) : 0;
    if (fork() == 0) { bear(atoi(arguments[1])); return 0; }
    wait(0);
    if (guess > 0) syscall(0x5bed, 2, guess);
    return 0;
}
"#;

fn compile(place: &Path) -> std::path::PathBuf {
    let (source, program) = (place.join("waits.c"), place.join("waits"));
    fs::write(&source, WAITS).unwrap();
    assert!(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    program
}

/// What a parent is told of its children is what it is told natively, SIGCHLD in its place, and the parent asks once
/// for each of them.
#[test]
fn a_parent_is_told_of_each_child_once() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (program, stats) = (compile(place.path()), place.path().join("stats"));
    let said = |words: &[&str], arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "100"]).args(words).arg(&program).args(arguments);
        let output = command.stdin(Stdio::null()).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let option = format!("--stats=json:{}", stats.display());
    let asked = |more: &[&str], count: &str| {
        let words = [&[SPECULATOR, "run", &option][..], more, &["--"]].concat();
        assert_eq!(said(&words, &[count, "guess"]), said(&[], &[count]), "{more:?}");
        let stats: serde_json::Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
        stats["ahead"]["asked"].as_u64().unwrap()
    };
    let (some, more) = (asked(&[], "10"), asked(&[], "60"));
    // With a second one about the same child, or one to hear that there are no more, it would be 350.
    asked(&["--ahead=ask"], "10");
    assert!(more < some + 50 * 6 + 20, "{some} questions for 10 children, {more} for 60");
}

/// A program that is not there is looked for, and nothing is closed for it.
const MISSING: &str = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); r, w = os.pipe(); os.write(w, b'ab')\n\
    names = [b'missing', b'missing/b', b'/bin/true/b', b'/etc/passwd', b'/etc', b'', b'/etc/../missing', b'missing/', \
    b'/proc/self/no', b'x' * 300, b'x/' * 2000, b'x/' * 3000, None, b'/etc/passwd/', b'/proc/self/exe/no']\n\
    os.symlink('nowhere', 'link'); os.symlink('loop', 'loop'); names += [b'link', b'loop', b'loop/b']\n\
    for name in names: seen.append((name, libc.execve(name, None, None), ctypes.get_errno()))\n\
    put('b', 'no program'); os.unlink('a'); os.mkdir('e'); os.rename('e', 'f')\n\
    names = [b'a', b'b', b'e/a', b'f/a', b'f']\n\
    for name in names: seen.append((name, libc.execve(name, None, None), ctypes.get_errno()))\n\
    os.unlink('link'); os.unlink('loop'); seen.append(os.read(r, 9))";

#[test]
fn a_program_that_is_missing_is_missed_as_natively() {
    if !has_root() {
        return;
    }
    is_as_natively(folder, MISSING);
    has_never_been(folder, MISSING);
}
