//! `speculator volume`: there and back again, and every kind of bad input.

use crate::support;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use support::{can_mount, Scene};

#[test]
fn there_and_back_again_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    assert_eq!(scene.traces().len(), 2, "one mount, one loop device: {:?}", scene.traces());
    assert!(scene.traces()[0].contains("data=journal"), "{:?}", scene.traces());
    fs::write(scene.path("dir/file"), "kept").unwrap();
    scene.umount();
    scene.left_behind(&["dir", "image"]);
    assert!(scene.run("volume check image").expect(0, "").stdout.ends_with("image: clean\n"));

    scene.run("volume mount image dir").expect(0, "");
    assert_eq!(fs::read_to_string(scene.path("dir/file")).unwrap(), "kept");
    scene.umount();
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn doctor_calls_a_mounted_volume_ordered() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    let outcome = scene.run("doctor --json");
    scene.umount();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let dir = fs::canonicalize(scene.path("dir")).unwrap();
    let found =
        report["file_systems"].as_array().unwrap().iter().find(|found| found["mount_point"] == dir.to_str().unwrap());
    let found = found.unwrap();
    assert_eq!((&found["class"], &found["ordered"]), (&"ordered".into(), &"kept".into()));
}

#[test]
fn a_volume_that_is_mounted_or_attached_is_not_mounted_again() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    fs::create_dir(scene.path("dir2")).unwrap();
    fs::hard_link(scene.path("image"), scene.path("same")).unwrap();
    scene.run("volume mount image dir").expect(0, "");
    let mounted_on = format!("mounted on {}", fs::canonicalize(scene.path("dir")).unwrap().display());
    scene.run("volume mount image dir2").expect(125, &mounted_on);
    scene.run("volume mount same dir2").expect(125, &mounted_on);
    scene.run("volume check image").expect(125, &mounted_on);
    scene.run("run --volume image:dir2 true").expect(125, &mounted_on);
    scene.umount();
    scene.left_behind(&["dir", "dir2", "image", "same"]);
}

/// While others look for free loop devices the kernel keeps one attached a moment longer than it is mounted.
#[test]
fn a_volume_that_was_just_unmounted_can_be_used_again_at_once() {
    const SIDE_BY_SIDE: usize = 4;
    const ROUNDS: usize = 12;
    if !can_mount() {
        return;
    }
    let rounds = || {
        let scene = Scene::with_volume();
        for _ in 0..ROUNDS {
            scene.run("volume mount image dir").expect(0, "");
            let dir = fs::canonicalize(scene.path("dir")).unwrap();
            assert!(Command::new("umount").arg(&dir).status().unwrap().success());
            scene.run("run --volume image:dir true").expect(0, "");
        }
    };
    std::thread::scope(|scope| {
        (0..SIDE_BY_SIDE).for_each(|_| drop(scope.spawn(rounds)));
    });
}

#[test]
fn a_block_device_is_a_volume_too_unless_it_is_mounted_or_read_only() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let attach = |options: &[&str]| {
        let output =
            Command::new("losetup").args(options).args(["--show", "-f"]).arg(scene.path("image")).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let detach = |device: &str| assert!(Command::new("losetup").args(["-d", device]).status().unwrap().success());

    let device = attach(&[]);
    scene.run(&format!("volume check {device}")).expect(0, "");
    scene.run(&format!("volume mount {device} dir")).expect(0, "");
    let again = scene.run(&format!("volume mount {device} dir"));
    let in_use = scene.run("volume mount image dir");
    detach(&device); // When the last user is gone.
    scene.umount();
    again.expect(125, "in use");
    in_use.expect(125, "in use");
    scene.left_behind(&["dir", "image"]);

    let device = attach(&["-r"]);
    let outcome = scene.run(&format!("volume mount {device} dir"));
    detach(&device);
    outcome.expect(125, "a volume has to be writable");
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn a_mount_in_use_is_not_unmounted() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    let file = fs::File::create(scene.path("dir/open")).unwrap();
    scene.run("volume umount dir").expect(125, "still used by a process");
    drop(file);
    scene.umount();
    scene.left_behind(&["dir", "image"]);
}

/// A shell in a world that goes on when it is told to, and says when it has come so far.
struct World {
    child: Child,
    orders: ChildStdin,
    words: BufReader<ChildStdout>,
}

impl World {
    fn start(scene: &Scene, options: &str, script: &str) -> World {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.arg("run").args(options.split_whitespace()).args(["--", "sh", "-c", script]);
        command.current_dir(scene.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, words) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        World { child, orders, words }
    }

    #[track_caller]
    fn says(&mut self, word: &str) {
        let mut line = String::new();
        self.words.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), word);
    }

    fn go_on(&mut self) {
        self.orders.write_all(b"\n").unwrap();
    }

    #[track_caller]
    fn ends(mut self) {
        drop(self.orders);
        assert!(self.child.wait().unwrap().success());
    }
}

/// A world held a directory of each file system that it found when it began.
#[test]
fn a_world_keeps_no_volume_busy_that_it_has_only_read() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    fs::write(scene.path("dir/file"), "kept\n").unwrap();
    let mut world = World::start(&scene, "", "cat dir/file; read line; test ! -e dir/file && echo gone");
    world.says("kept");
    scene.umount();
    world.go_on();
    world.says("gone");
    world.ends();
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn a_world_lets_a_volume_go_when_it_has_changed_nothing_for_a_while_and_comes_back_to_it() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    let script = "echo first > dir/file; echo one; read line; echo second >> dir/file; echo two; read line";
    let mut world = World::start(&scene, "--commit-interval 0.1", script);
    world.says("one");
    scene.umount();
    scene.run("volume mount image dir").expect(0, "");
    world.go_on();
    world.says("two");
    scene.umount();
    world.go_on();
    world.ends();
    scene.run("volume mount image dir").expect(0, "");
    assert_eq!(fs::read_to_string(scene.path("dir/file")).unwrap(), "first\nsecond\n");
    scene.umount();
    scene.left_behind(&["dir", "image"]);
}

/// What was mounted after the beginning had a number, but counted for nothing: output did not wait for it.
#[test]
fn what_is_mounted_and_changed_inside_is_committed_and_can_be_unmounted_inside() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    // -n: nothing is noted in /run, which may be on a disk.
    let script =
        "mount -n -o loop image dir && echo new > dir/file && echo held && umount -n dir && ls -A dir && echo done";
    let natively = Command::new("sh").args(["-c", script]).current_dir(scene.path("")).output().unwrap();
    let natively = support::Outcome::of(natively);
    assert_eq!((natively.status, natively.stdout.as_str()), (0, "held\ndone\n"), "{}", natively.stderr);
    let mut world = World::start(&scene, "--stats=json:stats", script);
    world.says("held");
    world.says("done");
    world.ends();
    let stats = scene.stats();
    assert_eq!(stats["output_bytes_held"], "held\n".len(), "{stats}");
    scene.left_behind(&["dir", "image", "stats"]);
}

/// An fsync that had nothing of its own world to wait for was answered at once, and what somebody else had written was
/// not durable.
#[test]
fn an_fsync_inside_covers_what_was_written_outside() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    let script = "echo a > dir/a; echo one; read line; sync dir/b; echo two";
    let mut world = World::start(&scene, "--stats=json:stats", script);
    world.says("one");
    fs::write(scene.path("dir/b"), "of somebody else").unwrap();
    world.go_on();
    world.says("two");
    world.ends();
    let stats = scene.stats();
    assert_eq!(stats["output_bytes_held"], "one\ntwo\n".len(), "{stats}");
    scene.umount();
    scene.left_behind(&["dir", "image", "stats"]);
}

#[test]
fn bad_images_are_refused() {
    let scene = Scene::with_volume();
    let good = fs::read(scene.path("image")).unwrap();
    fs::write(scene.path("garbage"), vec![7; 1 << 20]).unwrap();
    fs::write(scene.path("empty"), "").unwrap();
    fs::write(scene.path("short"), &good[..16 << 20]).unwrap();
    scene.run("volume mount missing dir").expect(125, "no such file");
    scene.run("volume mount dir dir").expect(125, "neither a regular file nor a block device");
    scene.run("volume mount /dev/null dir").expect(125, "neither a regular file nor a block device");
    scene.run("volume mount garbage dir").expect(125, "no ext4 file system");
    scene.run("volume mount empty dir").expect(125, "no ext4 file system");
    scene.run("volume mount short dir").expect(125, "shorter than its file system");
    scene.run("volume mount image none").expect(125, "No such file or directory");
    scene.run("volume mount image garbage").expect(125, "Not a directory");
    scene.run("volume check missing").expect(125, "no such file");
    scene.run("volume check garbage").expect(125, "no ext4 file system");
    scene.run("volume umount dir").expect(125, "no volume is mounted there");
    scene.run("volume umount /").expect(125, "no volume is mounted there");
    scene.left_behind(&["dir", "empty", "garbage", "image", "short"]);
}

#[test]
fn a_corrupt_image_is_refused_and_found_damaged() {
    let scene = Scene::with_volume();
    let image = OpenOptions::new().write(true).open(scene.path("image")).unwrap();
    // The group descriptors: the superblock still looks fine.
    image.write_all_at(&[0xa5; 4096], 4096).unwrap();
    drop(image);
    assert!(scene.run("volume check image").expect(1, "").stdout.contains("image: damaged"));
    if can_mount() {
        scene.run("volume mount image dir").expect(125, "damaged");
    }
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn a_read_only_image_is_refused() {
    let scene = Scene::with_volume();
    fs::set_permissions(scene.path("image"), fs::Permissions::from_mode(0o444)).unwrap();
    scene.run("volume mount image dir").expect(125, "a volume has to be writable");
    if can_mount() {
        scene.run("run --volume image:dir true").expect(125, "a volume has to be writable");
    }
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn without_loop_devices_the_error_says_so() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    // /dev/null in place of the control device, for this one command only.
    let script = "mount --bind /dev/null /dev/loop-control && exec \"$0\" volume mount image dir";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_speculator")]).current_dir(scene.path(""));
    support::Outcome::of(command.output().unwrap()).expect(125, "no loop device (/dev/loop-control: ");
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn without_root_nothing_is_mounted() {
    let scene = Scene::with_volume();
    fs::set_permissions(scene.path("image"), fs::Permissions::from_mode(0o666)).unwrap();
    if let Some(outcome) = scene.run_as_nobody("volume mount image dir") {
        outcome.expect(125, "run as root");
    }
    if let Some(outcome) = scene.run_as_nobody("run --volume image:dir true") {
        outcome.expect(125, "run as root");
    }
    scene.left_behind(&["dir", "image"]);
}

#[test]
fn bad_sizes_and_places_are_refused_and_nothing_is_made() {
    let scene = Scene::new();
    fs::write(scene.path("there"), "precious").unwrap();
    scene.run("volume create x --size 1M").expect(125, "use at least 32M");
    scene.run("volume create x --size 64M --journal 1M").expect(125, "use at least 4M");
    scene.run("volume create x --size 64M --journal 40M").expect(125, "use at most 33554432 bytes");
    scene.run("volume create x --size 5Q").expect(125, "such as 512M or 2G");
    scene.run("volume create x --size -5").expect(125, "-5");
    scene.run("volume create x").expect(125, "--size");
    scene.run("volume create none/x --size 64M").expect(125, "create its directory first");
    scene.run("volume create there --size 64M").expect(125, "it exists already");
    scene.run("volume create dir --size 64M").expect(125, "it exists already");
    assert_eq!(fs::read_to_string(scene.path("there")).unwrap(), "precious");
    scene.left_behind(&["dir", "there"]);
}
