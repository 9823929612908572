//! File systems that cannot commit in a way that we trust: writes there wait, and `sync` reaches them.

use crate::support;

use std::fs;
use std::process::Command;

use support::{can_mount, Scene};

/// Unmounts at the end, also of a failed test.
struct Mount(std::path::PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// ext4 without barriers counts as outside. What `sync` has to write there is counted by its device.
#[test]
fn sync_reaches_them() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let (image, dir) = (scene.path("image"), scene.path("dir"));
    let must = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    must(Command::new("truncate").args(["-s", "32M"]).arg(&image));
    must(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
    must(Command::new("mount").args(["-o", "loop,barrier=0,commit=300"]).arg(&image).arg(&dir));
    let _mount = Mount(dir.clone());
    let device = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let device = device.lines().find(|line| line.contains(dir.to_str().unwrap())).unwrap();
    let device = device.split(" - ext4 ").nth(1).unwrap().split(' ').next().unwrap().strip_prefix("/dev/").unwrap();
    let written = || -> u64 {
        let stat = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
        stat.split_whitespace().nth(6).unwrap().parse().unwrap()
    };
    must(Command::new("sync").arg("-f").arg(&dir));
    let before = written();
    let script = format!("head -c 1000000 /dev/zero > {}/file; sync; cat /sys/block/{device}/stat", dir.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    let output = command.args(["run", "--", "sh", "-c", &script]).output().unwrap();
    let stat = String::from_utf8(output.stdout).unwrap();
    let after: u64 = stat.split_whitespace().nth(6).unwrap().parse().unwrap();
    assert!(after >= before + 1_000_000 / 512, "{before} sectors before, {after} after sync");
}
