//! File systems that come and go while a world runs.

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{can_mount, skipped, Scene};

/// Unmounts at the end, also of a failed test.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

fn must(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// `umount` said EBUSY after a shared writable mapping: the commit engine kept the file system open for stores that
/// come without a call.
#[test]
fn what_was_mapped_can_be_unmounted() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let (image, dir) = (scene.path("image"), scene.path("dir"));
    must(Command::new("truncate").args(["-s", "32M"]).arg(&image));
    must(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
    let _mount = Mount(dir.clone());
    let program = r#"
import ctypes, mmap, os, subprocess, sys
image, point = sys.argv[1:]
subprocess.run(["mount", "-o", "loop", image, point], check=True)
libc = ctypes.CDLL(None, use_errno=True)
with open(point + "/file", "wb+") as file:
    file.truncate(4096)
    with mmap.mmap(file.fileno(), 4096) as mapping:
        mapping[:6] = b"stored"
        busy = libc.umount2(point.encode(), 0), ctypes.get_errno()
print("while it is mapped", busy)
print("then", libc.umount2(point.encode(), 0))
subprocess.run(["mount", "-o", "loop", image, point], check=True)
print(open(point + "/file", "rb").read(6))
"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    let output = command.args(["run", "--", "python3", "-c", program]).args([&image, &dir]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        shown,
        "while it is mapped (-1, 16)\nthen 0\nb'stored'\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn mount_overlay(scene: &Scene, point: &Path) {
    let layers = ["lower", "upper", "work"].map(|name| scene.path(name));
    for layer in &layers {
        let _ = fs::create_dir(layer);
    }
    let [lower, upper, work] = layers.map(|layer| layer.display().to_string());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    must(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(point));
}

/// A device number that was a tmpfs's is an overlay's now, whose files are on a disk: what is changed there has to
/// be committed before output.
#[test]
fn a_number_that_comes_back_is_not_memory_any_more() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let point = scene.path("dir");
    must(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&point));
    let _mount = Mount(point.clone());
    let former = fs::metadata(&point).unwrap().dev();
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args([
        "run",
        "--stats=json:stats",
        "--",
        "sh",
        "-c",
        "echo ready; read line; echo x > dir/file; echo done",
    ]);
    command.current_dir(scene.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(shown.next().unwrap().unwrap(), "ready");
    must(Command::new("umount").arg(&point));
    mount_overlay(&scene, &point);
    let is_same = fs::metadata(&point).unwrap().dev() == former;
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(shown.next().unwrap().unwrap(), "done");
    assert!(child.wait().unwrap().success());
    if !is_same {
        skipped("somebody else got the device number");
        return;
    }
    let stats = scene.stats();
    assert!(stats["output_bytes_held"].as_u64() >= Some(5), "{stats}");
}

/// A directory is made behind a symbolic link that somebody else turns from a file system in memory to one on a disk,
/// just when it had been looked where the link leads.
#[test]
fn what_is_made_behind_a_link_that_turns_is_waited_for() {
    const ROUNDS: u32 = 60;
    const PROGRAM: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) { // DISK MEMORY NAME: both have a directory "made" for what is made.
    char link[200], other[200], name[300];
    sprintf(link, "%s/link%s", argv[2], argv[3]), sprintf(other, "%s/other%s", argv[2], argv[3]);
    if (symlink(argv[2], link) || symlink(argv[1], other)) return 1;
    pid_t turner = fork();
    if (!turner)
        for (;;) syscall(SYS_renameat2, AT_FDCWD, link, AT_FDCWD, other, 2 /* RENAME_EXCHANGE */);
    usleep(3000);
    sprintf(name, "%s/made/%s", link, argv[3]);
    int failed = mkdir(name, 0700);
    if (write(1, "made\n", 5) != 5 || failed) return 1;
    return kill(turner, SIGKILL);
}
"#;
    let memory = Path::new("/dev/shm");
    let scene = Scene::new();
    let is_memory = fs::metadata(memory).is_ok_and(|found| found.dev() != fs::metadata(scene.path(".")).unwrap().dev());
    if !is_memory {
        skipped("nothing is mounted at /dev/shm");
        return;
    }
    let memory = tempfile::tempdir_in(memory).unwrap();
    let (source, program) = (scene.path("turns.c"), scene.path("turns"));
    fs::write(&source, PROGRAM).unwrap();
    must(Command::new("cc").args(["-O1", "-w", "-D_GNU_SOURCE", "-o"]).arg(&program).arg(&source));
    for dir in [scene.path("."), memory.path().to_owned()] {
        fs::create_dir(dir.join("made")).unwrap();
    }
    let mut on_disk = 0;
    for round in 0..ROUNDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", "--commit-interval", "60000", "--stats=json:stats", "--"]).arg(&program);
        command.arg(scene.path(".")).arg(memory.path()).arg(round.to_string()).current_dir(scene.path("."));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let is_made_on_disk = scene.path("made").join(round.to_string()).exists();
        on_disk += u32::from(is_made_on_disk);
        let stats = scene.stats();
        let is_waited_for = stats["output_bytes_held"] == 5 || stats["commits"]["output"].as_u64() >= Some(1);
        assert!(is_waited_for || !is_made_on_disk, "round {round}: {stats}");
    }
    println!("{on_disk} of {ROUNDS} were made on the disk");
}

/// A `/proc` that is mounted in a namespace of mounts of its own, as in a container, has a number that nobody else
/// knows. What it shows of somebody inside is waited for all the same.
#[test]
fn a_proc_of_its_own_shows_what_others_do() {
    const PROGRAM: &str = r#"
import ctypes, os, time
child = os.fork()
if child == 0:
    time.sleep(0.3)
    open("changed", "w").write("changed")
    ctypes.CDLL(None).prctl(15, b"has-changed")
    time.sleep(1)
    os._exit(0)
name = os.open("/proc/%d/comm" % child, os.O_RDONLY)
while b"has-changed" not in os.pread(name, 100, 0):
    time.sleep(0.01)
os.write(1, b"seen\n")
os.wait()
"#;
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let own: &[&str] = &["unshare", "--pid", "--fork", "--mount", "--mount-proc"];
    for namespaces in [&[], own] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", "--commit-interval", "60000", "--stats=json:stats", "--"]).args(namespaces);
        let output = command.args(["python3", "-c", PROGRAM]).current_dir(scene.path(".")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "seen\n", "{output:?}");
        assert_eq!(scene.stats()["output_bytes_held"], 5, "{namespaces:?}");
    }
}
