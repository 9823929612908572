//! Speculative changes of files in memory that only the world sees (000, 6.3): taken back exactly, and the same result
//! as without speculation.

use crate::support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_files");

/// What each does is gone after a failure, times and inodes included. Variables: `opened` is the descriptor of `b`,
/// read and write.
const CHANGES: &[&str] = &[
    "pass",
    "put('a', 'short')",
    "put('a', 'more', 'a')",
    "put('new', 'x')",
    "os.truncate('big', 100)",
    "os.truncate('sparse', 2000000)",
    "f = open('sparse', 'r+b'); f.seek(100); f.write(b'zz'); f.seek(900000); f.write(b'q' * 5000); f.close()",
    "os.pwrite(opened, b'abc', 3); os.write(opened, b'12'); os.writev(opened, [b'12', b'345'])",
    "os.unlink('b'); os.pwrite(opened, b'zzz', 0)",
    "os.unlink('a'); os.unlink('hard')",
    "os.unlink('sym'); os.unlink('fifo')",
    "os.rename('a', 'renamed')",
    "os.rename('a', 'b')",
    "os.rename('d', 'e'); put('e/f', 'zz'); os.rename('e/f', 'g')",
    "os.rename('d/sub', 'sub2')",
    "os.mkdir('n'); os.mkdir('n/m'); put('n/m/x', '1'); os.rename('n/m', 'mm')",
    "os.link('a', 'hard2'); os.symlink('x', 'y'); os.mkfifo('ff')",
    "os.chmod('b', 0o600); os.chown('b', 5, 6); os.chmod('d', 0o700); os.chown('d', 7, 7); os.lchown('sym', 3, 3)",
    "os.utime('a'); os.utime('d', ns=(1, 1)); os.utime('sym', ns=(9, 9), follow_symlinks=False)",
    "os.setxattr('a', 'user.k', b'w'); os.setxattr('d', 'user.d', b'1'); os.removexattr('hard', 'user.k')",
    "os.fchmod(opened, 0o777); os.ftruncate(opened, 2); os.setxattr(opened, 'user.z', b'1'); os.fchown(opened, 4, 4)",
    "os.posix_fallocate(opened, 0, 20000)",
    "o = os.open('d/f', os.O_RDONLY); os.copy_file_range(o, opened, 4); os.sendfile(opened, o, 0, 4)",
    "os.rename('a', 'a2'); put('a', 'zz'); os.unlink('a2'); os.rename('a', 'q'); os.link('q', 'a')",
    "rename2(b'a', b'd', EXCHANGE)",
    "rename2(b'a', b'free', NOREPLACE); rename2(b'b', b'big', NOREPLACE)",
    "os.chdir('d'); put('../up', '1'); os.rename('f', '../b'); put('/proc/self/cwd/k', '1')",
    "d = os.open('d', os.O_RDONLY); os.unlink('f', dir_fd=d); os.mkdir('z', dir_fd=d); os.chmod('z', 0o1777, dir_fd=d)",
    "p = os.fork()\nif p == 0:\n  put('child', '1'); os.unlink('big'); os._exit(0)\nos.waitpid(p, 0); put('child', '2', 'a')",
    "shutil.copy('big', 'big2'); shutil.copy2('big2', 'a')",
    "t = tempfile.NamedTemporaryFile(dir='.'); t.write(b'1' * 100000); t.flush(); t.close()",
    "put('sym', 'through'); os.symlink('d/target', 'dl'); put('dl', '1')",
    "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    // Calls that fail leave nothing either.
    "for f in (lambda: os.unlink('none'), lambda: os.mkdir('d'), lambda: os.rename('d', 'd/sub/x'), lambda: os.link('d', 'dd')):\n  try: f()\n  except OSError: pass",
];

fn has_root() -> bool {
    support::has_root_for("a memory file system of the world")
}

fn speculator(memory: &Path) -> Command {
    // What hangs must not hang the test.
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "600", env!("CARGO_BIN_EXE_speculator"), "run"]);
    command.arg(format!("--private-tmp={}", memory.display()));
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_failed_leaves_nothing() {
    if !has_root() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for change in CHANGES {
        let mut command = speculator(folder.path());
        command.args([&support::python(), &format!("{FOLDER}/undo.py")]).arg(folder.path()).arg(change);
        let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
        let out = text(&output);
        let (before, after) = out.split_once("==\n").unwrap_or_else(|| panic!("{change}: {output:?}"));
        assert!(!before.is_empty(), "{change}: {output:?}");
        assert_eq!(format!("{before}position 0\n"), after, "{change}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{change} was seen outside");
    }
}

fn script(memory: &Path) -> String {
    let memory = memory.display();
    let python = support::python();
    format!("PYTHON={python} sh {FOLDER}/work.sh {memory}; cd /; {python} {FOLDER}/manifest.py {memory}")
}

/// The same, in a tmpfs of the same kind.
fn natively(folder: &Path) -> String {
    let mount =
        format!("mount -t tmpfs -o noatime,mode=$(stat -c %a {0}) tmpfs {0}; {1}", folder.display(), script(folder));
    let output = Command::new("unshare").args(["-m", "sh", "-c", &mount]).output().unwrap();
    text(&output)
}

#[test]
fn guesses_that_turn_out_wrong_change_nothing() {
    if !has_root() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let expected = natively(folder.path());
    assert!(expected.contains("LINE 1"), "{expected}");
    for (rate, seed) in [("0", 1), support::sample(&[("0.1", 2), ("0.1", 3), ("0.5", 4)])] {
        let mut command = speculator(folder.path());
        command.args([
            "--inject",
            &format!("all:{rate}:2"),
            "--seed",
            &format!("{seed}"),
            "sh",
            "-c",
            &script(folder.path()),
        ]);
        let output = command.output().unwrap();
        assert_eq!(text(&output), expected, "rate {rate}, seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn memory_of_the_world_is_its_own() {
    if !has_root() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(folder.path().join("outside"), "").unwrap();
    let show = format!("ls -A {0}; echo x > {0}/inside; findmnt -no FSTYPE {0}; ls -A {0}", folder.path().display());
    let output = speculator(folder.path()).args(["sh", "-c", &show]).output().unwrap();
    assert_eq!(text(&output), "tmpfs\ninside\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!folder.path().join("inside").exists());
    let missing = folder.path().join("missing");
    let output = speculator(&missing).arg("true").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
}
