//! What commands other than `run` say to input that is of no use, and where a limit leaves them too little: one line
//! that says what to do, and 125.

use crate::support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use support::{can_mount, is_root, Outcome, Scene};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");
const NOBODY: u32 = 65534;

/// Runs `speculator` with these words behind another program.
fn behind(scene: &Scene, program: &[&str], line: &str) -> Outcome {
    let (first, rest) = program.split_first().unwrap();
    let mut command = Command::new(first);
    command.args(rest).arg(SPECULATOR).args(line.split(' ')).current_dir(scene.path(""));
    Outcome::of(command.env_remove("RUST_BACKTRACE").output().unwrap())
}

/// It ended `speculator` by a signal, of which nobody was told.
#[test]
fn a_limit_of_file_sizes_is_told() {
    let scene = Scene::new();
    let limited = |line: &str| behind(&scene, &["prlimit", "--core=0", "--fsize=0"], line);
    limited("volume create image --size 32M").expect(125, "raise the limit of file sizes");
    scene.left_behind(&["dir"]);
    limited("serve store --listen 127.0.0.1:0").expect(125, "raise the limit of file sizes");
    if is_root() {
        limited("try --yes --layer-dir dir -- true").expect(125, "raise the limit of file sizes");
    }
}

/// COMMAND's own writes end it as they do elsewhere.
#[test]
fn commands_own_writes_meet_the_limit_of_file_sizes_as_elsewhere() {
    const WRITES: &str = "head -c 2048 /dev/zero > file; echo $?; stat -c %s file";
    let scene = Scene::new();
    let run = |before: &[&str]| {
        let mut command = Command::new("prlimit");
        command.args(["--core=0", "--fsize=1024"]).args(before).args(["sh", "-c", WRITES]);
        Outcome::of(command.current_dir(scene.path("dir")).output().unwrap()).stdout
    };
    let natively = run(&[]);
    assert!(natively.starts_with("153\n"), "{natively}");
    assert_eq!(run(&[SPECULATOR, "run", "--"]), natively);
}

/// A thread that could not be started was a panic.
#[test]
fn a_limit_of_processes_is_told_by_serve() {
    let scene = Scene::new();
    if scene.run_as_nobody("--version").is_none_or(|outcome| outcome.status != 0) {
        return;
    }
    let mut command = Command::new("prlimit");
    command.args(["--nproc=0", SPECULATOR, "serve", "store", "--listen", "127.0.0.1:0"]);
    command.env_remove("RUST_BACKTRACE").current_dir(scene.path("dir"));
    if is_root() {
        std::os::unix::fs::chown(scene.path("dir"), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    Outcome::of(command.output().unwrap()).expect(125, "raise the limit of processes");
}

/// `doctor` said that `run` would work.
#[test]
fn a_limit_of_open_files_is_told_by_the_doctor() {
    let scene = Scene::new();
    let outcome = behind(&scene, &["prlimit", "--nofile=16"], "doctor");
    assert_eq!((outcome.status, outcome.stderr.as_str()), (1, ""));
    assert!(outcome.stdout.contains("missing  open files"), "{}", outcome.stdout);
    let outcome = behind(&scene, &["prlimit", "--nofile=6"], "run true");
    outcome.expect(125, "cannot set up a world");
}

/// A mount on the root is behind it: everybody went on to see what was there. On /proc it took away what is needed.
#[test]
fn nothing_is_mounted_where_it_would_not_be_seen() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    std::fs::write(scene.path("file"), "").unwrap();
    for (line, says) in [
        ("run --volume image:/ true", "cannot mount on /: "),
        ("run --volume image:/proc true", "cannot mount on /proc: "),
        ("run --private-tmp=/ true", "cannot mount on /: "),
        ("run --private-tmp=/proc true", "cannot mount on /proc: "),
        ("run --private-tmp=file true", "cannot mount on file: Not a directory; name an existing directory"),
    ] {
        scene.run(line).expect(125, says);
        scene.left_behind(&["dir", "file", "image"]);
    }
}

#[test]
fn without_proc_that_is_said() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    for line in ["volume create image --size 32M", "try --yes true", "top", "mount --plain bluefs://127.0.0.1:1/ dir"] {
        behind(&scene, &["unshare", "-m", "sh", "-c", script, "sh"], line).expect(125, "/proc is not mounted");
        scene.left_behind(&["dir"]);
    }
}

#[test]
fn names_of_files_may_be_any_bytes_and_other_arguments_are_named() {
    let scene = Scene::new();
    let run = |words: &[&[u8]]| {
        let mut command = Command::new(SPECULATOR);
        command.args(words.iter().map(|word| OsStr::from_bytes(word))).current_dir(scene.path("dir"));
        Outcome::of(command.output().unwrap())
    };
    run(&[b"run", b"--stats=json:\xfc", b"--report=json:\xe9", b"true"]).expect(0, "");
    for name in [b"\xfc", b"\xe9"] {
        assert!(scene.path("dir").join(OsStr::from_bytes(name)).exists(), "{name:?}");
    }
    run(&[b"run", b"--volume", b"\xfc:\xe9", b"true"]).expect(125, if is_root() { "volume" } else { "root" });
    run(&[b"commit", b"a\xfc"]).expect(125, "the argument 'a\u{fffd}' is not UTF-8; see speculator commit --help");
}

/// A guess whose number nobody is told can be resolved by nobody, nor an invitation be used.
#[test]
fn output_that_is_closed_is_a_failure() {
    let scene = Scene::new();
    for line in ["doctor", "man run", "completions bash", "--help", "run --help", "--version"] {
        behind(&scene, &["sh", "-c", "exec \"$@\" >&-", "sh"], line).expect(125, "cannot write to standard output");
    }
    let script = format!("{SPECULATOR} begin >&-; echo $?");
    let mut command = Command::new(SPECULATOR);
    command.args(["run", "--", "sh", "-c", &script]).current_dir(scene.path(""));
    let outcome = Outcome::of(command.output().unwrap());
    assert_eq!(outcome.stdout, "125\n", "{}", outcome.stderr);
}

/// Both took all memory.
#[test]
fn a_file_without_an_end_is_not_read_to_it() {
    let scene = Scene::new();
    // With a limit, so that it is not the machine that finds out.
    let limited = |line: &str| behind(&scene, &["prlimit", "--as=2000000000"], line);
    let at = "bluefs://127.0.0.1:1/";
    limited(&format!("bluefs batch --invitation /dev/zero {at} /dev/null")).expect(125, "longer than 4096 bytes");
    limited(&format!("bluefs batch --plain {at} /dev/zero")).expect(125, "longer than 268435456 bytes");
}
