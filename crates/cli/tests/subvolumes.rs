//! Files of a btrfs subvolume have a device number that no mount shows. What is changed there is waited for all the
//! same.

use crate::support;

use std::fs;
use std::process::Command;

use support::{can_mount, skipped, Mounted, Scene};

fn must(command: &mut Command) {
    assert!(command.output().unwrap().status.success(), "{command:?}");
}

fn has_btrfs() -> bool {
    let has_any = fs::read_to_string("/proc/filesystems").unwrap().contains("btrfs");
    if !has_any {
        skipped("this kernel has no btrfs");
    }
    has_any
}

#[test]
fn what_is_changed_in_a_subvolume_is_waited_for() {
    if !can_mount() || !has_btrfs() {
        return;
    }
    let scene = Scene::new();
    let (image, dir, stats) = (scene.path("image"), scene.path("dir"), scene.path("stats"));
    must(Command::new("truncate").args(["-s", "256M"]).arg(&image));
    must(Command::new("mkfs.btrfs").arg("-q").arg(&image));
    fs::create_dir_all(&dir).unwrap();
    must(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir));
    let _mount = Mounted(dir.clone());
    for name in ["inner", "inner/most"] {
        must(Command::new("btrfs").args(["subvolume", "create"]).arg(dir.join(name)));
    }
    let held = |change: &str| {
        let script = format!("{change}; echo changed");
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", "--commit-interval", "60000"]).arg(format!("--stats=json:{}", stats.display()));
        let output = command.args(["--", "sh", "-c", &script]).current_dir(&dir).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "changed\n", "{output:?}");
        let stats: serde_json::Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
        let dirty = stats["commits"]["output"].as_u64().unwrap_or(0) + stats["commits"]["end"].as_u64().unwrap_or(0);
        (stats["output_bytes_held"].as_u64(), dirty > 0)
    };
    for change in [
        ":> file",
        ":> inner/file",
        "mkdir inner/most/made",
        "echo more >> inner/most/file",
        "cd inner/most; mv file moved",
        "chmod 600 inner/file",
        "rm inner/most/moved",
    ] {
        assert_eq!(held(change), (Some(8), true), "{change}");
    }
    assert_eq!(held("cat inner/file"), (Some(0), false), "nothing is changed");
}

/// `umount` said EBUSY: its number may be another file system's next, so that it was kept open. Others who are mounted
/// then are what they are, also under the same number.
#[test]
fn what_is_mounted_inside_can_be_unmounted_inside() {
    if !can_mount() || !has_btrfs() {
        return;
    }
    let scene = Scene::new();
    must(Command::new("truncate").args(["-s", "256M"]).arg(scene.path("image")));
    must(Command::new("mkfs.btrfs").arg("-q").arg(scene.path("image")));
    let script = r#"set -e
for round in 1 2 3; do
    mount -o loop image dir
    test $round = 1 && btrfs subvolume create dir/inner >&2
    echo $round >> dir/file; echo $round >> dir/inner/file
    (cd dir; umount ../dir 2>/dev/null) && echo while it is used
    umount dir
    losetup -j image
    mount -t tmpfs none dir
    echo nothing > dir/file
    umount dir
done
mount -o loop image dir
cat dir/file dir/inner/file
umount dir
"#;
    fs::write(scene.path("script"), script).unwrap();
    // Where the worlds of other tests do not see what is mounted, and have it open.
    let mut command = Command::new("unshare");
    command.args(["--mount", env!("CARGO_BIN_EXE_speculator"), "run", "--", "sh", "script"]);
    let done = command.current_dir(scene.path(".")).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "1\n2\n3\n1\n2\n3\n", "{done:?}");
    scene.nothing_is_attached();
}
