//! Programs that guess. What one does when its guess fails is what it does natively, where nobody takes its guess: so
//! it runs there first.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// How Python calls on speculations; a guess ends as the program's argument says.
const PYTHON: &str = r#"
import array, ctypes, fcntl, os, select, signal, socket, struct, sys, time
libc = ctypes.CDLL(None)
def begin(): return libc.syscall(0x5bed, 1, 0, 0)
def finish(guess): return libc.syscall(0x5bed, 3 if sys.argv[1] == 'fail' else 2, guess, 0)
def depth(): return max(0, libc.syscall(0x5bed, 4, 0, 0))
def show(*words): os.write(1, (' '.join(map(str, words)) + '\n').encode())
def status(child): return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"#;

/// The calls of `speculator.h`, for Perl, and how the tests end a guess.
const PERL: &str = r#"
use strict; use Socket; $| = 1;
my $end = $ARGV[0];
sub begin { return syscall(0x5bed, 1, 0, 0) }
sub finish { return syscall(0x5bed, $end eq 'fail' ? 3 : 2, $_[0], 0) }
sub depth { return syscall(0x5bed, 4, 0, 0) }
sub event { my $fd = syscall(290, $_[0], $_[1]); open(my $handle, '+<&=', $fd) or die; return $handle }
sub take { my $value; sysread($_[0], $value, 8) == 8 or die; return unpack 'Q', $value }
sub give { syswrite($_[0], pack 'Q', $_[1]) == 8 or die }
"#;

/// Children that ended on a guess end for good a moment after it was resolved. There are no figures while somebody is
/// left, which is rare: then it is run again.
const ATTEMPTS: usize = 10;

fn python(program: &str) -> String {
    format!("{PYTHON}{program}")
}

/// Run a Python program natively and inside, where its guess fails: both say `stdout`. Barriers it may meet: none of
/// those named.
#[track_caller]
pub fn check_failure(program: &str, stdout: &str, never_waits_at: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let native = run(dir.path(), &["python3", "-c", &python(program), "fail"]);
    let said = String::from_utf8_lossy(&native.stdout);
    assert_eq!(said, stdout, "natively: {}", String::from_utf8_lossy(&native.stderr));
    check_inside(&["python3", "-c", &python(program), "fail"], stdout, never_waits_at);
}

/// The same where its guess turns out right.
#[track_caller]
pub fn check_success(program: &str, stdout: &str, never_waits_at: &[&str]) {
    check_inside(&["python3", "-c", &python(program), "commit"], stdout, never_waits_at);
}

/// Run a Perl program inside, whose guess ends so.
#[track_caller]
pub fn check_perl(program: &str, end: &str, stdout: &str, never_waits_at: &[&str]) {
    check_inside(&["perl", "-e", &format!("{PERL}{program}"), end], stdout, never_waits_at);
}

/// What C programs share: a guess, how it ends, and lines.
pub const C: &str = r#"
#include "check.h"
static long begin(void) { return syscall(0x5bed, 1, 0, 0); }
static void finish(long guess, const char *how) { syscall(0x5bed, *how == 'f' ? 3 : 2, guess, 0); }
static void say(const char *text) { OK(write(1, text, strlen(text))); }
"#;

/// Both ends of the guess of a C program; one that fails says what is said natively, where nobody takes guesses.
#[track_caller]
pub fn check_both_ends(name: &str, program: &str, failed: &str, right: &str, never_waits_at: &[&str]) {
    let source = format!("{C}{program}");
    check_compiled(name, &source, "fail", failed, never_waits_at);
    check_compiled(name, &source, "commit", right, never_waits_at);
}

/// Compile a C program that guesses, and run it inside, where its guess ends so; if it fails, what it says is what it
/// says natively.
#[track_caller]
pub fn check_compiled(name: &str, source: &str, end: &str, stdout: &str, never_waits_at: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (text, program) = (dir.path().join(format!("{name}.c")), dir.path().join(name));
    std::fs::write(&text, source).unwrap();
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-I"]).arg(headers).arg(&text).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success(), "{name} does not compile");
    let program = program.to_str().unwrap();
    if end == "fail" {
        let native = run(dir.path(), &[program, end]);
        assert_eq!(String::from_utf8_lossy(&native.stdout), stdout, "natively: {native:?}");
    }
    check_inside(&[program, end], stdout, never_waits_at);
}

/// Run a command inside.
#[track_caller]
pub fn check_inside(command: &[&str], stdout: &str, never_waits_at: &[&str]) {
    let speculator = [env!("CARGO_BIN_EXE_speculator"), "run", "--stats=json:stats", "--"];
    for _ in 0..ATTEMPTS {
        let dir = tempfile::tempdir().unwrap();
        let output = run(dir.path(), &[&speculator, command].concat());
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((text.as_ref(), output.status.code()), (stdout, Some(0)), "{errors}");
        let stats = std::fs::read_to_string(dir.path().join("stats")).unwrap_or_default();
        if stats.is_empty() && errors.contains("there are no statistics yet") {
            continue;
        }
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        let barriers = &stats["ahead"]["barriers"];
        for call in never_waits_at {
            assert!(barriers[call].is_null(), "{call}: {barriers}");
        }
        return;
    }
    panic!("somebody is always left");
}

fn run(dir: &Path, command: &[&str]) -> Output {
    Command::new("timeout")
        .args(["-s", "KILL", "300"])
        .args(command)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1)")
}

/// What stands in `lost+found` of the file system of the tests' files for a world that has ended.
pub fn staged() -> Vec<PathBuf> {
    let above = Path::new(env!("CARGO_TARGET_TMPDIR")).ancestors();
    let Some(dir) = above.map(|dir| dir.join("lost+found")).find(|dir| dir.is_dir()) else { return Vec::new() };
    let entries = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    let is_in_use = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('-').nth(1).is_some_and(|pid| Path::new("/proc").join(pid).is_dir())
    };
    entries.filter(|path| path.to_string_lossy().contains("speculator-") && !is_in_use(path)).collect()
}

/// Runs a Python program inside, in a directory of its own, with `kind` and `count` as its arguments, and beside it
/// somebody outside. What it printed, with `HERE` for that directory, and how many questions it asked.
pub fn questions_of(
    words: &[&str],
    program: &str,
    (kind, count): (&str, u32),
    dir: &Path,
    outside: &(dyn Fn(&Path) + Sync),
) -> (String, u64) {
    let stats = dir.with_extension("json");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300", env!("CARGO_BIN_EXE_speculator"), "run"]);
    command.arg(format!("--stats=json:{}", stats.display())).args(words);
    command.args(["--", "python3", "-c", program, kind, &count.to_string()]);
    command.current_dir(dir).stdin(Stdio::null());
    let output = std::thread::scope(|scope| {
        scope.spawn(|| outside(dir));
        command.output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stdout).replace(&dir.display().to_string(), "HERE");
    assert!(output.status.success(), "{program}: {said}{}", String::from_utf8_lossy(&output.stderr));
    let stats: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(stats).unwrap()).unwrap();
    (said, stats["ahead"]["asked"].as_u64().unwrap())
}
