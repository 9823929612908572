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
