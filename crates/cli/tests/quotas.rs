//! Limits of the users of a file system are kept on its disk: who sets them changes it without a file or a name, and
//! what is shown afterwards waits for that.

use crate::support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use support::{can_mount, Scene};

/// Unmounts at the end, also of a failed test.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Sets a limit for a user that no machine has, by the device or by a descriptor, and says so. Where the kernel or the
/// file system has no limits this is an error, which is not known before the call.
const PROGRAM: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
quotactl, quotactl_fd, set_limits, user = 179, 443, 0x800008 << 8, 64118
limits = (ctypes.c_uint64 * 9)(1000, 0, 0, 0, 0, 0, 0, 0, 1)
how, device, point = sys.argv[1:]
if how == "quotactl":
    result = libc.syscall(quotactl, set_limits, device.encode(), user, limits)
elif how == "quotactl_fd":
    result = libc.syscall(quotactl_fd, os.open(point, os.O_RDONLY), set_limits, user, limits)
else:
    result, _ = -1, ctypes.set_errno(3)
print("set" if result == 0 else "no limits here" if ctypes.get_errno() == 3 else ctypes.get_errno())
"#;

#[test]
fn what_is_shown_after_a_limit_was_set_waits_for_it() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let (image, dir) = (scene.path("image"), scene.path("dir"));
    let has_run = |command: &mut Command| command.status().unwrap().success();
    assert!(has_run(Command::new("truncate").args(["-s", "32M"]).arg(&image)));
    // Not every kernel can mount a file system that keeps limits.
    let mounted = [&["-O", "quota"][..], &[]].into_iter().any(|features| {
        let made = has_run(Command::new("mkfs.ext4").args(["-q", "-F"]).args(features).arg(&image));
        made && has_run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir))
    });
    assert!(mounted);
    let _mount = Mount(dir.clone());
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let device = table.lines().find(|line| line.contains(dir.to_str().unwrap())).unwrap();
    let device = device.split(" - ext4 ").nth(1).unwrap().split(' ').next().unwrap();
    let held = |how: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", "--commit-interval", "60000", "--stats=json:stats", "--"]);
        command.args(["/usr/bin/python3", "-I", "-c", PROGRAM, how, device]).arg(&dir).current_dir(scene.path(""));
        let output = command.output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(matches!(shown.trim(), "set" | "no limits here"), "{how}: {shown}");
        scene.stats()["output_bytes_held"].as_u64().unwrap() == shown.len() as u64
    };
    assert!(held("quotactl"));
    assert!(held("quotactl_fd"));
    // The world's start has nothing for which the line would wait.
    assert!(!held("nothing"));
}
