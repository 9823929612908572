//! What `speculator run` says when it cannot: one line, 125 (126 and 127 are COMMAND's), and nothing left behind.
//!
//! More of the kind is in `command_line.rs` (usage, COMMAND, statistics) and `volume.rs` (images, no root).

use crate::support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{can_mount, Outcome, Scene};

/// Runs `speculator` with one system call forbidden: a seccomp filter makes it EPERM.
const WITHOUT: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"#;

fn without(scene: &Scene, call: u32, line: &str) -> Outcome {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-I", "-c", WITHOUT, &call.to_string(), env!("CARGO_BIN_EXE_speculator")]);
    command.args(line.split(' ')).current_dir(scene.path(""));
    Outcome::of(command.output().unwrap())
}

fn in_own_mounts(scene: &Scene, script: &str, line: &str) -> Outcome {
    let mut command = Command::new("unshare");
    let script = format!("{script} && exec \"$0\" {line}");
    command.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_speculator")]).current_dir(scene.path(""));
    Outcome::of(command.output().unwrap())
}

#[track_caller]
fn forbidden(name: &str, call: u32) {
    let scene = Scene::new();
    without(&scene, call, "run touch started").expect(125, name);
    scene.left_behind(&["dir"]);
}

#[test]
fn ptrace_forbidden() {
    forbidden("ptrace is not allowed", 101);
}

#[test]
fn seccomp_forbidden() {
    forbidden("seccomp", 317);
}

#[test]
fn memory_of_processes_forbidden() {
    forbidden("process_vm_readv", 310);
}

/// Each process and thread of ours is the first one too many at some limit. It was a panic, and a status of 101.
#[test]
fn a_low_limit_of_processes() {
    use std::os::unix::process::CommandExt;
    /// Nobody else's processes count for this user.
    const USER: u32 = 64_119;
    /// More than `run` needs.
    const PLENTY: u32 = 24;
    if !support::has_root_for("a user without other processes") {
        return;
    }
    let scene = Scene::new();
    let run_with = |limit: u32| {
        let script = format!("ulimit -u {limit}; exec \"$0\" run true");
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_speculator")]).current_dir("/").uid(USER).gid(USER);
        Outcome::of(command.output().unwrap())
    };
    let mut refused = 0;
    for limit in 1..PLENTY {
        let outcome = run_with(limit);
        if outcome.status != 0 {
            outcome.expect(125, "Resource temporarily unavailable");
            refused += 1;
        }
    }
    assert!(refused > 2, "a front, a supervisor, and what they start");
    run_with(PLENTY).expect(0, "");
    scene.left_behind(&["dir"]);
}

/// In an IPC namespace of its own, with less than a world needs in one piece.
#[test]
fn small_shared_memory_and_the_doctor_says_so() {
    if !can_mount() {
        return;
    }
    let with_limit = |line: &str| {
        let script = format!("echo 1000000 > /proc/sys/kernel/shmmax && exec \"$0\" {line}");
        let mut command = Command::new("unshare");
        command.args(["--ipc", "sh", "-c", &script, env!("CARGO_BIN_EXE_speculator")]);
        Outcome::of(command.output().unwrap())
    };
    with_limit("run true").expect(125, "shared memory");
    let doctor = with_limit("doctor");
    assert_eq!((doctor.status, doctor.stdout.contains("raise kernel.shmmax")), (1, true), "{}", doctor.stdout);
}

#[test]
fn a_run_inside_a_world_passes_through() {
    let scene = Scene::new();
    let nested = |options: &str, command: &str| {
        scene.run(&format!("run {} run {options} -- {command}", env!("CARGO_BIN_EXE_speculator")))
    };
    let outcome = nested("--stats", "cat /proc/self/cmdline");
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "cat\0/proc/self/cmdline\0"));
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("COMMAND runs there"), "{}", outcome.stderr);
    assert_eq!(nested("", "false").status, 1);
    nested("", "no-such-command").expect(127, "not found");
    nested("--private-tmp", "touch started").expect(125, "to the outer run");
    scene.left_behind(&["dir"]);
}

#[test]
fn without_loop_devices() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let hide = "mount --bind /dev/null /dev/loop-control";
    in_own_mounts(&scene, hide, "run --volume image:dir touch started").expect(125, "no loop device");
    scene.left_behind(&["dir", "image"]);
}

/// FUSE is the crash disk's: `run` does without.
#[test]
fn without_fuse_it_works() {
    if !can_mount() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let scene = Scene::with_volume();
    let hide = "mount --bind /dev/null /dev/fuse";
    in_own_mounts(&scene, hide, "run --volume image:dir true").expect(0, "");
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn without_proc() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    in_own_mounts(&scene, "mount -t tmpfs none /proc", "run touch started").expect(125, "/proc");
    scene.left_behind(&["dir"]);
}

#[test]
fn images_that_are_no_volumes() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let good = fs::read(scene.path("image")).unwrap();
    fs::write(scene.path("garbage"), vec![7; 1 << 20]).unwrap();
    fs::write(scene.path("short"), &good[..16 << 20]).unwrap();
    let mut corrupt = good;
    corrupt[4096..8192].fill(0xa5); // The group descriptors.
    fs::write(scene.path("corrupt"), corrupt).unwrap();
    scene.run("run --volume missing:dir touch started").expect(125, "no such file");
    scene.run("run --volume garbage:dir touch started").expect(125, "no ext4 file system");
    scene.run("run --volume short:dir touch started").expect(125, "shorter than its file system");
    scene.run("run --volume corrupt:dir touch started").expect(125, "damaged");
    scene.run("run --volume image:none touch started").expect(125, "name an existing directory");
    scene.run("run --volume image:garbage touch started").expect(125, "garbage");
    scene.run("run --volume image:dir --volume image:dir touch started").expect(125, "two volumes");
    scene.left_behind(&["corrupt", "dir", "garbage", "image", "short"]);
}

#[test]
fn the_second_of_two_volumes_is_bad() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    fs::create_dir(scene.path("dir2")).unwrap();
    scene.run("run --volume image:dir --volume missing:dir2 touch started").expect(125, "no such file");
    scene.run("run --volume image:dir --volume image:dir2 touch started").expect(125, "in use");
    scene.left_behind(&["dir", "dir2", "image"]);
    scene.run("run --volume image:dir true").expect(0, "");
}

#[test]
fn a_volume_that_another_world_uses() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args("run --volume image:dir -- sh -c".split(' ')).arg("echo up; read line").current_dir(scene.path(""));
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut up).unwrap();
    let outcome = scene.run("run --volume image:dir touch started");
    drop(other.stdin.take());
    other.wait().unwrap();
    outcome.expect(125, "in use");
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn command_missing_or_not_executable_on_a_volume() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    scene.run("run --volume image:dir ./no-such-command").expect(127, "not found");
    scene.run("run --volume image:dir /etc/passwd").expect(126, "Permission denied");
    scene.run("run --volume image:dir dir/no-such-command").expect(127, "not found");
    scene.run("run --volume image:dir --stats=json:none/file true").expect(125, "cannot write statistics");
    scene.left_behind(&["dir", "image"]);
}

/// No room is the program's own error: the same errno as natively, and its own status.
#[test]
fn a_volume_that_is_full() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let script = r#"
import errno, os, sys
fd = os.open("dir/big", os.O_WRONLY | os.O_CREAT, 0o644)
try:
    while True:
        os.write(fd, bytes(65536))
except OSError as error:
    print(errno.errorcode[error.errno])
sys.exit(9)
"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args("run --volume image:dir -- /usr/bin/python3 -I -c".split(' ')).arg(script);
    let outcome = Outcome::of(command.current_dir(scene.path("")).output().unwrap());
    outcome.expect(9, "");
    assert_eq!(outcome.stdout, "ENOSPC\n");
    scene.left_behind(&["dir", "image"]);
    scene.run("run --volume image:dir rm dir/big").expect(0, "");
    scene.left_behind(&["dir", "image"]);
}
