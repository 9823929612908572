//! Each commit flushes the disk's cache, and no error in writing is passed over: on loop devices, whose flushes the
//! kernel counts, and on one whose image has no room where a file lies.

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use external_sync::flush::Root;
use support::{can_mount, Mounted, Scene};

const BLOCK: u64 = 4096;
/// Where the files that programs of the tests change are, and how long they are.
const FILE_LEN: usize = 2 << 20;

#[track_caller]
fn must(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A file system on a loop device, mounted on `disk`.
struct Disk {
    // Unmounted before its folder goes.
    _mounted: Mounted,
    scene: Scene,
}

impl Disk {
    /// `None`, and says so, without the program.
    fn new(mkfs: &str, options: &str) -> Option<Disk> {
        let scene = Scene::new();
        let program = mkfs.split(' ').next().unwrap();
        if Command::new(program).arg("-V").output().is_err() {
            eprintln!("skipped: there is no {program}");
            return None;
        }
        let image = scene.path("image");
        fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        must(Command::new(program).args(mkfs.split(' ').skip(1)).arg(&image));
        Some(Disk { _mounted: mount(&scene, "image", options), scene })
    }

    /// The loop device below.
    fn device(&self) -> String {
        let disk = self.scene.path("disk");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == disk.to_str()).unwrap();
        line.split(" - ").nth(1).unwrap().split(' ').nth(1).unwrap().trim_start_matches("/dev/").to_owned()
    }

    /// Whether the kernel sends flushes to it, and counts them; says so if not.
    fn counts_flushes(&self) -> bool {
        let cache = fs::read_to_string(format!("/sys/block/{}/queue/write_cache", self.device())).unwrap();
        let counts = cache.trim() == "write back" && self.flushes().is_some();
        if !counts {
            eprintln!("skipped: this kernel sends no flushes to a loop device, or does not count them");
        }
        counts
    }

    fn flushes(&self) -> Option<u64> {
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.device())).unwrap();
        stat.split_whitespace().nth(15)?.parse().ok()
    }

    fn start(&self, script: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", "--", "/usr/bin/python3", "-I", "-c", script]).current_dir(self.scene.path(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

fn mount(scene: &Scene, image: &str, options: &str) -> Mounted {
    let disk = scene.path("disk");
    fs::create_dir(&disk).unwrap();
    must(Command::new("mount").args(["-o", &format!("loop,{options}")]).arg(scene.path(image)).arg(&disk));
    Mounted(disk)
}

/// Overwrites a block in place, again and again, and says so.
const OVERWRITES: &str = r#"
import os
f = os.open("disk/file", os.O_RDWR)
for i in range(10):
    os.pwrite(f, b"%4096d" % i, 0)
    os.write(1, b"line\n")
    os.read(0, 1)
"#;

/// Between two lines outside there are at least so many flushes; and a commit makes one also where the file system has
/// nothing to write any more: data that was overwritten in place may be in the disk's cache.
fn every_line_has_flushes(mkfs: &str, at_least: u64) {
    if !can_mount() {
        return;
    }
    let Some(disk) = Disk::new(mkfs, "rw") else { return };
    if !disk.counts_flushes() {
        return;
    }
    fs::write(disk.scene.path("disk/file"), vec![b'x'; FILE_LEN]).unwrap();
    must(Command::new("sync").arg("-f").arg(disk.scene.path("disk")));
    let mut flushes = vec![disk.flushes().unwrap()];
    let mut child = disk.start(OVERWRITES);
    let mut go_on = child.stdin.take().unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        assert_eq!(line.unwrap(), "line");
        flushes.push(disk.flushes().unwrap());
        go_on.write_all(b"x").unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(flushes.len(), 11);
    assert!(flushes.windows(2).all(|two| two[1] >= two[0] + at_least), "{flushes:?}");
    let path = disk.scene.path("disk");
    let found = external_sync::domain::file_systems().unwrap().into_iter().find(|found| found.mount_point == path);
    let root = Root::new(fs::File::open(&path).unwrap().into(), &found.unwrap().way).unwrap();
    root.commit_all().unwrap();
    for _ in 0..3 {
        let before = disk.flushes().unwrap();
        root.commit_all().unwrap();
        assert!(disk.flushes().unwrap() > before, "nothing is flushed");
    }
}

#[test]
fn ext4_with_a_journal_flushes_for_every_commit() {
    every_line_has_flushes("mkfs.ext4 -q", 1);
}

/// Its syncfs flushes and then writes metadata; that has a flush of its own.
#[test]
fn ext4_without_a_journal_flushes_twice() {
    every_line_has_flushes("mkfs.ext4 -q -O ^has_journal", 2);
}

/// Its syncfs flushes only if its log has something to write.
#[test]
fn xfs_flushes_for_every_commit() {
    every_line_has_flushes("mkfs.xfs -q", 1);
}

#[test]
fn btrfs_flushes_for_every_commit() {
    every_line_has_flushes("mkfs.btrfs -q", 1);
}

/// ext4 on an image in memory that has no room any more, where `disk/upper/big` is to be written.
struct Broken {
    _mounted: Mounted,
    _memory: Mounted,
    scene: Scene,
}

impl Broken {
    fn new() -> Broken {
        let scene = Scene::new();
        let memory = Mounted(scene.path("memory"));
        fs::create_dir(&memory.0).unwrap();
        must(Command::new("mount").args(["-t", "tmpfs", "-o", "size=40M", "none"]).arg(&memory.0));
        let image = scene.path("memory/image");
        // Everything has its room, also what a mkfs would leave out.
        fs::write(&image, vec![0; 32 << 20]).unwrap();
        must(Command::new("mkfs.ext4").args(["-q", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0"]).arg(&image));
        let mounted = mount(&scene, "memory/image", "nodiscard");
        let big = scene.path("disk/upper/big");
        fs::create_dir(scene.path("disk/upper")).unwrap();
        fs::write(&big, vec![b'x'; FILE_LEN]).unwrap();
        must(Command::new("sync").arg("-f").arg(scene.path("disk")));
        // mkfs makes holes where it writes zeroes: metadata gets its room, too.
        let whole = fs::read(&image).unwrap();
        fs::OpenOptions::new().write(true).open(&image).unwrap().write_all(&whole).unwrap();
        for (first, count) in extents(&must(Command::new("filefrag").arg("-v").arg(&big))) {
            let [offset, length] = [first * BLOCK, count * BLOCK].map(|number| number.to_string());
            must(Command::new("fallocate").args(["-p", "-o", &offset, "-l", &length]).arg(&image));
        }
        let mut rest = fs::File::create(scene.path("memory/rest")).unwrap();
        while rest.write_all(&[0; BLOCK as usize]).is_ok() {}
        Broken { _mounted: mounted, _memory: memory, scene }
    }

    /// Of a file that a program overwrites, beside so many others that try to unmount the disk.
    #[track_caller]
    fn expect_told(&self, name: &str, unmounts: u32) {
        let script = OVERWRITE.replace("NAME", name).replace("UNMOUNTS", &unmounts.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", "--", "/usr/bin/python3", "-I", "-c", &script]).current_dir(self.scene.path(""));
        let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(stdout, b"", "shown, and not durable; {status}: {stderr}");
        assert_eq!(status.code(), Some(125), "{stderr}");
        assert!(stderr.contains("durable"), "{stderr}");
    }
}

/// Where filefrag(8) says that a file lies: first block and count.
fn extents(text: &str) -> Vec<(u64, u64)> {
    let numbers = |line: &str| -> Option<(u64, u64)> {
        let mut fields = line.split(':').map(str::trim);
        fields.next()?.parse::<u64>().ok()?;
        let (first, last) = fields.nth(1)?.split_once("..")?;
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
        Some((first, last - first + 1))
    };
    let found: Vec<_> = text.lines().filter_map(numbers).collect();
    assert!(!found.is_empty(), "{text}");
    found
}

const OVERWRITE: &str = r#"
import ctypes, os, time
f = os.open(NAME, os.O_RDWR)
for _ in range(UNMOUNTS):
    if os.fork() == 0:
        umount2 = ctypes.CDLL(None).umount2
        for _ in range(3000): umount2(b"disk", 0)
        os._exit(0)
time.sleep(0.2)
os.pwrite(f, b"N" * 4096, 1 << 20)
time.sleep(0.2)
os.write(1, b"done\n")
"#;

#[test]
fn data_that_cannot_be_written_is_told() {
    if can_mount() {
        Broken::new().expect_told("'disk/upper/big'", 0);
    }
}

/// An overlay does not hear of it: its upper layer does.
#[test]
fn data_that_an_overlay_cannot_write_is_told() {
    if !can_mount() {
        return;
    }
    let broken = Broken::new();
    let path = |name: &str| -> PathBuf {
        let path = broken.scene.path(name);
        let _ = fs::create_dir(&path);
        path
    };
    let [lower, work, over] = ["lower", "disk/work", "over"].map(path);
    let upper = broken.scene.path("disk/upper");
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let over = Mounted(over);
    must(Command::new("mount").args(["-t", "overlay", "-o", &options, "none"]).arg(&over.0));
    broken.expect_told("'over/big'", 0);
}

/// An unmount flushes, too: the error that it hears of is no secret of its own.
#[test]
fn an_unmount_takes_no_error_away() {
    if !can_mount() {
        return;
    }
    Broken::new().expect_told("'disk/upper/big'", 6);
}

/// What `speculator doctor` says of `disk`: class and reason.
fn promise(disk: &Disk) -> (String, String) {
    let outcome = disk.scene.run("doctor --json");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let path = disk.scene.path("disk");
    let all = report["file_systems"].as_array().unwrap();
    let found = all.iter().find(|one| one["mount_point"].as_str() == path.to_str()).unwrap();
    let word = |name: &str| found[name].as_str().unwrap().to_owned();
    (word("class"), word("reason"))
}

#[test]
fn a_file_system_that_may_have_encrypted_files_is_not_ordered() {
    if !can_mount() {
        return;
    }
    let Some(plain) = Disk::new("mkfs.ext4 -q", "data=journal") else { return };
    assert_eq!(promise(&plain).0, "ordered");
    let scene = Scene::new();
    fs::File::create(scene.path("image")).unwrap().set_len(64 << 20).unwrap();
    must(Command::new("mkfs.ext4").args(["-q", "-O", "encrypt"]).arg(scene.path("image")));
    let refused = scene.run("run --volume image:dir -- true");
    refused.expect(125, "encrypt");
    scene.nothing_is_attached();
    if !std::path::Path::new("/sys/fs/ext4/features/encryption").exists() {
        eprintln!("skipped: this kernel has no encryption of files");
        return;
    }
    let encrypting = Disk::new("mkfs.ext4 -q -O encrypt", "data=journal").unwrap();
    let (class, reason) = promise(&encrypting);
    assert_eq!(class, "durable");
    assert!(reason.contains("encrypted"), "{reason}");
}

/// Whoever makes a file system read-only when everything there is committed takes nothing away.
#[test]
fn a_file_system_may_become_read_only_when_all_is_committed() {
    if !can_mount() {
        return;
    }
    for mkfs in ["mkfs.ext4 -q", "mkfs.btrfs -q"] {
        let Some(disk) = Disk::new(mkfs, "rw") else { continue };
        let lines =
            ["echo text > disk/file", "mount -o remount,ro disk", "umount disk/.", "echo > disk/other", "echo end"];
        fs::write(disk.scene.path("script"), lines.join("\n")).unwrap();
        let done = disk.scene.run("run -- sh script");
        assert_eq!((done.status, done.stderr.contains("speculator")), (0, false), "{mkfs}: {}", done.stderr);
        assert!(done.stdout.ends_with("end\n"), "{mkfs}: {}", done.stderr);
    }
}

#[test]
fn a_volume_on_what_does_not_flush_is_warned_of() {
    if !can_mount() {
        return;
    }
    let Some(disk) = Disk::new("mkfs.ext4 -q", "nobarrier") else { return };
    assert_eq!(promise(&disk).0, "outside");
    disk.scene.run("volume create disk/image --size 64M").expect(0, "");
    let mounted = disk.scene.run("volume mount disk/image dir");
    disk.scene.umount();
    mounted.expect(0, "does not keep its promises");
    assert!(mounted.stderr.contains("(ext4), which does not flush"), "{}", mounted.stderr);
}

/// The reader of a pipe that COMMAND has inherited hears of its end behind a commit of what was changed before.
#[track_caller]
fn the_end_comes_behind_a_commit(script: &str) {
    if !can_mount() {
        return;
    }
    let Some(disk) = Disk::new("mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", "rw") else { return };
    if !disk.counts_flushes() {
        return;
    }
    must(Command::new("sync").arg("-f").arg(disk.scene.path("disk")));
    let before = disk.flushes().unwrap();
    let mut child = disk.start(script);
    child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    let flushes = disk.flushes().unwrap();
    child.wait().unwrap();
    assert!(disk.scene.path("disk/made").exists());
    assert!(flushes > before, "the end was seen before the first commit");
}

/// While it is under way over a socket no process has it, and one close has us look.
#[test]
fn the_end_of_a_pipe_that_was_under_way_over_a_socket() {
    the_end_comes_behind_a_commit(
        r#"
import os, socket, time
ours, others = socket.socketpair()
if os.fork() == 0:
    ours.close(); os.close(1); os.close(0)
    time.sleep(1)
    _, passed, _, _ = socket.recv_fds(others, 10, 1)
    open("disk/made", "w").close()
    os.close(passed[0])
    time.sleep(1)
    os._exit(0)
others.close()
socket.send_fds(ours, [b"x"], [1])
os.close(1); os.close(0)
os.wait()
"#,
    );
}

/// The first thread shows no descriptors any more when it has ended, and one close has us look.
#[test]
fn the_end_of_a_pipe_behind_that_of_the_first_thread() {
    the_end_comes_behind_a_commit(
        r#"
import ctypes, os, threading, time
def others():
    time.sleep(0.3)
    os.close(0)
    time.sleep(0.7)
    open("disk/made", "w").close()
    os.close(1)
    time.sleep(1)
    os._exit(0)
threading.Thread(target=others).start()
SYS_exit = 60
ctypes.CDLL(None).syscall(SYS_exit, 0)
"#,
    );
}
