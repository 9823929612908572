//! Programs that do not work inside: one line says why, and nothing hangs.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use support::{skipped, Outcome, Scene};

/// A 32-bit program, by hand: a C library for it is rarely there. It prints `hi` and exits with 7.
const PROGRAM_32: &str = "
.globl _start
_start: movl $4, %eax; movl $1, %ebx; movl $text, %ecx; movl $3, %edx; int $0x80
movl $1, %eax; movl $7, %ebx; int $0x80
text: .ascii \"hi\\n\"
";

fn build(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn program_32(scene: &Scene) {
    fs::write(scene.path("a.s"), PROGRAM_32).unwrap();
    build(Command::new("as").arg("--32").arg(scene.path("a.s")).arg("-o").arg(scene.path("a.o")));
    build(Command::new("ld").args(["-m", "elf_i386"]).arg(scene.path("a.o")).arg("-o").arg(scene.path("a32")));
}

fn inside(scene: &Scene, script: &str) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--", "sh", "-c", script]).current_dir(scene.path(""));
    Outcome::of(command.output().unwrap())
}

fn is_there(path: &str) -> bool {
    let there = Path::new(path).exists();
    if !there {
        skipped(&format!("{path} is not installed"));
    }
    there
}

#[test]
fn a_32_bit_program_is_refused_by_one_line() {
    if !is_there("/usr/bin/as") {
        return;
    }
    let scene = Scene::new();
    program_32(&scene);
    let direct = scene.run("run ./a32");
    assert!(direct.stdout.is_empty(), "{}", direct.stdout);
    direct.expect(126, "it is a 32-bit program");
    // What COMMAND becomes is COMMAND.
    let becomes = inside(&scene, "exec ./a32");
    assert_eq!((becomes.status, becomes.stderr.lines().count()), (126, 1), "{}", becomes.stderr);
    let later = inside(&scene, "./a32 >told; echo status $?");
    assert_eq!(later.stdout, "status 137\n");
    assert_eq!(
        later.stderr.lines().filter(|line| line.contains("it is a 32-bit program")).count(),
        1,
        "{}",
        later.stderr
    );
    assert_eq!(fs::read_to_string(scene.path("told")).unwrap(), "", "none of its calls was made");
}

#[test]
fn strace_and_gdb_are_refused_and_the_shell_goes_on() {
    let scene = Scene::new();
    if is_there("/usr/bin/strace") {
        let outcome = inside(&scene, "strace -o log true; test $? -ne 0 && echo goes on");
        assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "goes on\n"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("Operation not permitted"), "{}", outcome.stderr);
    }
    if is_there("/usr/bin/gdb") {
        let outcome =
            inside(&scene, "gdb -nx -batch -ex run -ex bt /bin/true </dev/null >log 2>&1; cat log; echo goes on");
        assert_eq!(outcome.status, 0);
        assert!(outcome.stdout.contains("Operation not permitted"), "{}", outcome.stdout);
        assert!(outcome.stdout.ends_with("goes on\n"), "{}", outcome.stdout);
    }
}

/// A traced program gets no rights of its owner: silence would be a program that fails for no reason that its user can
/// see.
#[test]
fn a_setuid_program_of_an_ordinary_user_runs_rightly_or_is_refused_by_one_line() {
    if !support::has_root_for("a setuid program") || !is_there("/usr/bin/id") {
        return;
    }
    let scene = Scene::new();
    support::copy_program("/usr/bin/id", scene.path("id"));
    fs::set_permissions(scene.path("id"), fs::Permissions::from_mode(0o4755)).unwrap();
    let Some(outcome) = scene.run_as_nobody("run ./id -u") else { return };
    let right = outcome.stdout == "0\n" && outcome.status == 0;
    let told =
        outcome.stderr.lines().filter(|line| line.starts_with("speculator: ") && line.contains("setuid")).count();
    assert!(right || told == 1, "stdout: {}stderr: {}", outcome.stdout, outcome.stderr);
    assert!(right || outcome.status == 126, "COMMAND was killed, status {}", outcome.status);
}

/// Many such programs do without (ssh-agent, ping): they run, and one line says what they do not have.
#[test]
fn a_setgid_program_and_one_with_capabilities_are_told_of_once() {
    if !support::has_root_for("a setgid program") || !is_there("/usr/bin/id") {
        return;
    }
    let scene = Scene::new();
    support::copy_program("/usr/bin/id", scene.path("of-group"));
    fs::set_permissions(scene.path("of-group"), fs::Permissions::from_mode(0o2755)).unwrap();
    support::copy_program("/usr/bin/id", scene.path("capable"));
    // VFS_CAP_REVISION_2 with cap_net_raw, permitted and effective.
    let value: Vec<u8> = [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    rustix::fs::setxattr(scene.path("capable"), "security.capability", &value, rustix::fs::XattrFlags::empty())
        .unwrap();
    fs::write(scene.path("script"), "./of-group -g\n./of-group -g\n./capable -u\n./capable -u\n").unwrap();
    let Some(outcome) = scene.run_as_nobody("run sh script") else { return };
    let told = |what: &str| outcome.stderr.lines().filter(|line| line.contains(what)).count();
    assert_eq!((told("the rights of its group"), told("its capabilities")), (1, 1), "{}", outcome.stderr);
    assert_eq!(outcome.stdout.lines().count(), 4, "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn a_setuid_program_of_root_takes_its_owner() {
    if !support::has_root_for("a setuid program") {
        return;
    }
    let scene = Scene::new();
    support::copy_program("/usr/bin/id", scene.path("id"));
    std::os::unix::fs::chown(scene.path("id"), Some(65534), None).unwrap();
    fs::set_permissions(scene.path("id"), fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(scene.run("run ./id -u").expect(0, "").stdout, "65534\n");
}

/// A tracer may look only into what its user may read. The program was killed; now its parent hears of it as of any
/// file that may not be executed.
#[test]
fn a_program_that_an_ordinary_user_may_not_read_is_not_executed() {
    if !support::has_root_for("a program of somebody else") {
        return;
    }
    let scene = Scene::new();
    support::copy_program("/bin/true", scene.path("unreadable"));
    fs::set_permissions(scene.path("unreadable"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(
        scene.path("script"),
        "./unreadable 2>/dev/null; echo status $?\n./missing 2>/dev/null; echo status $?\n",
    )
    .unwrap();
    let Some(outcome) = scene.run_as_nobody("run sh script") else { return };
    assert_eq!(outcome.expect(0, "").stdout, "status 126\nstatus 127\n");
    let Some(outcome) = scene.run_as_nobody("run ./unreadable") else { return };
    assert_eq!(outcome.expect(126, "may not read it").stderr.matches("unreadable").count(), 1);
    assert_eq!(scene.run("run ./unreadable").expect(0, "").stdout, "");
}
