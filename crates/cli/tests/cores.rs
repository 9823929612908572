//! A core is written by the kernel, and joins a transaction of the file system that it goes to. What its process did
//! on another one is committed before it.

use crate::support;

use std::fs;
use std::process::Command;

use support::{can_mount, Mounted, Scene};

/// The child changes a file where the world began and leaves its core elsewhere; nobody shows anything.
const PROGRAM: &str = r#"
import os, resource, sys, time
if os.fork() == 0:
    with open("changed", "w") as file:
        file.write("changed")
    os.chdir(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.abort()
time.sleep(1.5)
"#;

#[test]
fn a_core_waits_for_what_was_done_elsewhere() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if !can_mount() || pattern.starts_with(['|', '@', '/']) {
        return;
    }
    let scene = Scene::new();
    let (image, dir, stats) = (scene.path("image"), scene.path("dir"), scene.path("stats"));
    let must = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    must(Command::new("truncate").args(["-s", "256M"]).arg(&image));
    must(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
    fs::create_dir_all(&dir).unwrap();
    must(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir));
    let _mount = Mounted(dir.clone());
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--commit-interval", "60000"]).arg(format!("--stats=json:{}", stats.display()));
    // Not what a user's PATH names so: a wrapper may change and show more than the program.
    must(command.args(["--", "/usr/bin/python3", "-c", PROGRAM]).arg(&dir).current_dir(scene.path(".")));
    let is_core = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("core");
    assert!(fs::read_dir(&dir).unwrap().flatten().any(|entry| is_core(&entry)), "no core");
    let stats: serde_json::Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
    // Nobody else asks for a commit before the end.
    assert_eq!(stats["commits"]["output"], 1, "{}", stats["commits"]);
}
