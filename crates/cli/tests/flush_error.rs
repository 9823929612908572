//! A flush that fails is never swallowed: a loop device whose file has no room left under it fails its writes.

use crate::support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use support::{can_mount, Scene};

/// Each file of the writer; a multiple of a block.
const FILE_LEN: u64 = 262_144;
const FILES: usize = 40;
/// Writes a file, says so, until it fails.
const WRITER: &str = r#"
import os
for i in range(FILES):
    fd = os.open(f"dir/file-{i}", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, bytes([65 + i]) * FILE_LEN)
    FSYNC
    os.close(fd)
    os.write(1, b"written %d\n" % i)
"#;

/// A volume in a small tmpfs that has `room` bytes left; everything is unmounted at the end, also of a failed test.
struct Small {
    scene: Scene,
}

impl Small {
    fn new(room: u64) -> Small {
        let scene = Scene::new();
        let small = scene.path("small");
        fs::create_dir(&small).unwrap();
        must(Command::new("mount").args(["-t", "tmpfs", "-o", "size=16M", "none"]).arg(&small));
        let small = Small { scene };
        small.scene.run("volume create small/image --sparse --size 64M --journal 4M").expect(0, "");
        let length = (16 << 20) - room;
        must(Command::new("fallocate").arg("-l").arg(length.to_string()).arg(small.scene.path("small/blob")));
        small
    }

    fn run(&self, script: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args("run --volume small/image:dir -- /usr/bin/python3 -I -c".split(' ')).arg(script);
        command.current_dir(self.scene.path("")).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// What is in the image once its journal is replayed, on a disk without faults.
    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let (image, dir) = (self.scene.path("image"), self.scene.path("dir"));
        must(Command::new("cp").arg("--sparse=always").arg(self.scene.path("small/image")).arg(&image));
        let _ = Command::new("e2fsck").arg("-fy").arg(&image).output().unwrap();
        self.scene.run("volume mount image dir").expect(0, "");
        let files = fs::read_dir(&dir).unwrap().flatten().filter(|entry| entry.path().is_file());
        let found = files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
        let found = found.collect();
        self.scene.umount();
        found
    }

    /// Only the tmpfs of the test itself is mounted.
    #[track_caller]
    fn nothing_left(&self) {
        let traces = self.scene.traces();
        assert!(traces.len() == 1 && traces[0].contains(" tmpfs "), "{traces:?}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.scene.path("small")).status();
    }
}

#[track_caller]
fn must(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

#[track_caller]
fn expect_told(output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "signal {:?}: {stderr}", output.status.signal());
    let ours: Vec<&str> = stderr.lines().filter(|line| line.starts_with("speculator: ")).collect();
    assert_eq!(ours.len(), 1, "{stderr}");
    let is_clear = ours[0].contains("durable") || ours[0].contains("cannot write what");
    assert!(is_clear && ours[0].contains("/dir"), "{stderr}");
}

fn is_what_was_written(number: u8, bytes: &[u8]) -> bool {
    bytes.len() as u64 == FILE_LEN && bytes.iter().all(|byte| *byte == 65 + number)
}

/// Every file that `shown` tells of is in the image, whole.
#[track_caller]
fn expect_durable(small: &Small, shown: &str, is_whole: fn(u8, &[u8]) -> bool) {
    let contents = small.contents();
    for line in shown.lines() {
        let number: u8 = line.strip_prefix("written ").unwrap().parse().unwrap();
        let found = contents.iter().find(|(name, _)| *name == format!("file-{number}"));
        let whole = found.is_some_and(|(_, bytes)| is_whole(number, bytes));
        assert!(whole, "'{line}' was shown, and the disk has no such file; shown:\n{shown}");
    }
}

/// The writer with files of its usual length.
fn writer(fsync: &str) -> String {
    let writer = WRITER.replace("FSYNC", fsync).replace("FILES", &FILES.to_string());
    writer.replace("FILE_LEN", &FILE_LEN.to_string())
}

fn fails_in_time(fsync: &str) {
    if !can_mount() {
        return;
    }
    // With 1 MiB left the first commits fail.
    fails(&Small::new(1 << 20), &writer(fsync), is_what_was_written);
}

#[track_caller]
fn fails(small: &Small, script: &str, is_whole: fn(u8, &[u8]) -> bool) {
    let output = small.run(script);
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    expect_told(&output);
    small.nothing_left();
    assert!(shown.lines().count() < FILES, "everything was shown:\n{shown}");
    expect_durable(small, &shown, is_whole);
}

#[test]
fn output_that_waits_for_a_flush_that_fails_is_never_shown() {
    fails_in_time("pass");
}

/// Several commits succeed first; what they took must stay. A journal that commits by itself in the background (what
/// was written is more than a quarter of it) and fails then must be noticed, though the next fsync finds nothing left
/// to commit and says so. Only names and lengths are looked at: on a sparse image, data that the journal took can be
/// lost on its way to its place, and the kernel does not tell in time.
#[test]
fn a_journal_that_failed_in_the_background_is_noticed() {
    if !can_mount() {
        return;
    }
    // How far it gets hangs on timing.
    for room in (14..30).map(|eighth| eighth << 17) {
        fails(&Small::new(room), &writer("pass"), |_, bytes| bytes.len() as u64 == FILE_LEN);
    }
}

/// The fsync returned 0 before the flush was tried: the error is told at the end.
#[test]
fn a_flush_that_fails_after_its_fsync_succeeded_is_told() {
    fails_in_time("os.fsync(fd)");
}

/// Nothing is printed: the exit status itself waits for the flush.
#[test]
fn the_exit_status_waits_for_the_flush() {
    if !can_mount() {
        return;
    }
    let small = Small::new(1 << 20);
    let output = small.run(&writer("pass").replace("os.write(1", "(lambda *_: None)(1"));
    expect_told(&output);
    assert!(output.stdout.is_empty());
    small.nothing_left();
}

/// A file on another file system is not written before what its writer depends on is durable.
#[test]
fn a_file_outside_the_volume_does_not_tell_of_what_was_lost() {
    if !can_mount() {
        return;
    }
    let small = Small::new(1 << 20);
    let script = format!("import os\nos.dup2(os.open('told', os.O_WRONLY | os.O_CREAT), 1)\n{}", writer("pass"));
    let output = small.run(&script);
    expect_told(&output);
    let told = fs::read_to_string(small.scene.path("told")).unwrap();
    small.nothing_left();
    expect_durable(&small, &told, is_what_was_written);
}
