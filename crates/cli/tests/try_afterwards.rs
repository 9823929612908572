//! What becomes of a try whose keeping was interrupted: it is listed, told of, finished, or given up.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::try_command::{resume, Try};
use support::{can_mount, tree, Outcome, Scene};

fn afterwards(scene: &Scene, words: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.arg("try").args(words).arg("--layer-dir").arg(scene.path(""));
    Outcome::of(command.output().unwrap())
}

fn give_up(scene: &Scene, layer: &Path) -> Outcome {
    afterwards(scene, &["--give-up", layer.to_str().unwrap()])
}

fn give_up_by_force(scene: &Scene, layer: &Path) -> Outcome {
    afterwards(scene, &["--force", "--give-up", layer.to_str().unwrap()])
}

/// Cuts keeping short when a directory of the user's is in the stage: the layer, and the stage.
fn cut_with_something_in_the_stage(scene: &Scene) -> (PathBuf, PathBuf) {
    for operations in 0..40 {
        let options = format!("--yes --report=none --crash-after={operations}");
        let outcome = Try::new(scene, &options).sh("echo mine > new; mv d e");
        assert_eq!(outcome.status, 125, "never so far: {}", outcome.stderr);
        let layer = layers(scene).remove(0);
        if let Some(stage) = stage(scene).filter(|stage| stage.join("held-0").exists()) {
            return (layer, stage);
        }
        assert_eq!(give_up(scene, &layer).status, 0);
    }
    panic!("never so far");
}

fn layers(scene: &Scene) -> Vec<PathBuf> {
    scene.names().iter().filter(|name| name.ends_with(".layer")).map(|name| scene.path(name)).collect()
}

/// The stage at the root of the file system, if there is one.
fn stage(scene: &Scene) -> Option<PathBuf> {
    let mut found = fs::read_dir(scene.path("dir")).unwrap().flatten().map(|entry| entry.path());
    found.find(|path| path.to_string_lossy().contains(".speculator-try-"))
}

#[test]
fn what_was_interrupted_is_listed_and_given_up() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let dir = scene.path("dir");
    tree::run(&scene.path(""), "mount -t tmpfs tmpfs dir; mkdir dir/d; echo 1 > dir/d/f");
    let _mounted = support::Mounted(dir.clone());
    let none = afterwards(&scene, &["--list"]);
    assert_eq!((none.status, none.stdout.as_str()), (0, ""), "{}", none.stderr);
    assert!(none.stderr.contains("nothing was interrupted"), "{}", none.stderr);

    // Nothing but names of what COMMAND made.
    let outcome = Try::new(&scene, "--yes --report=none --crash-after=1").sh("echo mine > new");
    assert_eq!(outcome.status, 125, "{}", outcome.stderr);
    let layer = layers(&scene).remove(0);
    let listed = afterwards(&scene, &["--list"]);
    assert_eq!(listed.status, 0, "{}", listed.stderr);
    let line = format!("{}: {} (", layer.display(), dir.display());
    assert!(listed.stdout.starts_with(&line) && listed.stdout.ends_with("begun)\n"), "{}", listed.stdout);
    let next = Try::new(&scene, "--no --report=none").sh("true");
    assert!(next.stderr.contains(&format!("keeping {} was interrupted", layer.display())), "{}", next.stderr);
    let given_up = give_up(&scene, &layer);
    assert_eq!(given_up.status, 0, "{}", given_up.stderr);
    assert!(!given_up.stderr.contains("had to make room"), "{}", given_up.stderr);
    assert_eq!((layers(&scene), stage(&scene)), (Vec::new(), None));
    assert!(!dir.join("new").exists());
    assert!(resume(&scene).stderr.contains("nothing was interrupted"));

    // A directory of the user's is on its way.
    for operations in 0.. {
        let options = format!("--yes --report=none --crash-after={operations}");
        let outcome = Try::new(&scene, &options).sh("mv d e");
        assert_eq!(outcome.status, 125, "never so far: {}", outcome.stderr);
        let layer = layers(&scene).remove(0);
        let held = stage(&scene).map(|stage| stage.join("held-0")).filter(|held| held.exists());
        let given_up = give_up(&scene, &layer);
        assert_eq!(given_up.status, 0, "{}", given_up.stderr);
        if let Some(held) = held {
            let said = format!("what had to make room for it is in {}\n", held.parent().unwrap().display());
            assert!(given_up.stderr.contains(&said), "{}", given_up.stderr);
            assert_eq!(fs::read_to_string(held.join("f")).unwrap(), "1\n");
            return;
        }
        assert_eq!(stage(&scene), None);
    }
}

#[test]
fn what_is_given_up_is_a_layer() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let other = scene.path("dir/file");
    fs::write(&other, "mine").unwrap();
    give_up(&scene, &other).expect(125, "its name is not that of a layer of speculator try");
    assert!(other.exists());
    give_up(&scene, &scene.path("speculator-try-0-0.layer")).expect(125, "No such file or directory");
    let broken = scene.path("speculator-try-1-0.layer");
    fs::write(&broken, "nothing").unwrap();
    // In a directory for everybody, anybody may have made what only looks like one.
    for (mode, owner) in [(0o644, 0), (0o600, 65534)] {
        fs::set_permissions(&broken, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&broken, Some(owner), None).unwrap();
        give_up(&scene, &broken).expect(125, "it is not a file that only root can read and write");
        assert!(broken.exists());
    }
    std::os::unix::fs::chown(&broken, Some(0), None).unwrap();
    assert_eq!(afterwards(&scene, &["--list"]).status, 125);
    give_up(&scene, &broken).expect(125, "cannot be read");
    let given_up = give_up_by_force(&scene, &broken);
    assert_eq!(given_up.status, 0, "{}", given_up.stderr);
    assert!(given_up.stderr.contains("what it held cannot be read"), "{}", given_up.stderr);
    scene.left_behind(&["dir"]);
}

#[test]
fn what_stopped_half_way_says_how_to_go_on() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    Try::new(&scene, "--yes --report=none --crash-after=0").sh("mkdir d; echo mine > d/new");
    fs::write(scene.path("dir/d"), "theirs").unwrap();
    let resumed = resume(&scene);
    resumed.expect(125, format!("--resume --layer-dir {}", scene.path("").display()).trim_end_matches('/'));
    fs::remove_file(scene.path("dir/d")).unwrap();
    assert_eq!(resume(&scene).status, 0);
    assert_eq!(fs::read_to_string(scene.path("dir/d/new")).unwrap(), "mine\n");
}

#[test]
fn what_cannot_be_looked_into_is_only_given_up_by_force() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    tree::run(&scene.path(""), "mkdir image; mount -t tmpfs tmpfs dir; mkdir dir/d");
    let _mounted = support::Mounted(scene.path("dir"));
    let (layer, stage) = cut_with_something_in_the_stage(&scene);

    let refused = |outcome: Outcome, why: &str| {
        outcome.expect(125, why);
        outcome.expect(125, "cannot give up");
        outcome.expect(125, "--force; it was left as it is");
        assert!(layer.exists() && stage.join("held-0").exists());
    };
    // As of another file system of a kind that has no number of its own.
    let elsewhere = scene.path("dir/elsewhere");
    fs::rename(&stage, &elsewhere).unwrap();
    give_up(&scene, &layer).expect(125, "it may be another file system; what had to make room");
    fs::rename(&elsewhere, &stage).unwrap();

    let program = env!("CARGO_BIN_EXE_speculator");
    let without_devices = format!(
        "unshare -m sh -c 'mount --bind /dev/null /dev/loop-control && exec {program} try --give-up {}'",
        layer.display()
    );
    let outcome = Command::new("sh").args(["-c", &without_devices]).output().unwrap();
    refused(Outcome::of(outcome), "no loop device");

    // Synchronized, as the mount namespace of another test may keep the file system for a moment.
    let set_version = |number: u32| {
        let script = format!(
            "mount -o loop {} image && printf '\\{number}' | dd of=image/plan conv=notrunc,fsync status=none
             umount image",
            layer.display()
        );
        tree::run(&scene.path(""), &script);
    };
    set_version(4);
    refused(give_up(&scene, &layer), "it was made by another version of speculator");
    let forced = give_up_by_force(&scene, &layer);
    assert_eq!((forced.status, layer.exists()), (0, false), "{}", forced.stderr);
    assert!(stage.join("held-0").exists());
}

#[test]
fn what_is_on_a_file_system_that_is_not_mounted_is_named() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    tree::run(&scene.path(""), "truncate -s 64M disk; mkfs.ext4 -q disk 2>/dev/null");
    let mount = || tree::run(&scene.path(""), "mount -o loop disk dir");
    mount();
    let mounted = support::Mounted(scene.path("dir"));
    tree::run(&scene.path("dir"), "mkdir d; echo 1 > d/f");
    let (layer, stage) = cut_with_something_in_the_stage(&scene);
    drop(mounted);

    let where_it_is = format!(
        "may be in {} at the root of the ext4 that was mounted at {}",
        stage.file_name().unwrap().display(),
        scene.path("dir").display()
    );
    let refused = give_up(&scene, &layer);
    refused.expect(125, &where_it_is);
    assert!(layer.exists());
    mount();
    let mounted = support::Mounted(scene.path("dir"));
    let given_up = give_up(&scene, &layer);
    assert_eq!(given_up.status, 0, "{}", given_up.stderr);
    assert!(given_up.stderr.contains(&format!("is in {}\n", stage.display())), "{}", given_up.stderr);
    assert!(stage.join("held-0/f").exists() && layers(&scene).is_empty());

    tree::run(&scene.path("dir"), "mkdir d");
    tree::run(&stage, "rm -r \"$PWD\"");
    let (layer, stage) = cut_with_something_in_the_stage(&scene);
    drop(mounted);
    let forced = give_up_by_force(&scene, &layer);
    assert_eq!((forced.status, layer.exists()), (0, false), "{}", forced.stderr);
    let where_it_is = format!("may be in {}, at the root of the ext4", stage.file_name().unwrap().display());
    assert!(forced.stderr.contains(&where_it_is), "{}", forced.stderr);
}

#[test]
fn giving_up_that_was_cut_short_is_gone_on_with() {
    if !can_mount() {
        return;
    }
    let mut refused = 0;
    for operations in 0..20 {
        let scene = Scene::new();
        tree::run(&scene.path(""), "mount -t tmpfs tmpfs dir; mkdir dir/d");
        let _mounted = support::Mounted(scene.path("dir"));
        // What is made is in the stage.
        let first = Try::new(&scene, "--yes --report=none --crash-after=3").sh("echo mine > new; echo mine > other");
        assert_eq!(first.status, 125, "{}", first.stderr);
        let layer = layers(&scene).remove(0);
        let cut = format!("--crash-after={operations}");
        let given_up = afterwards(&scene, &["--give-up", layer.to_str().unwrap(), &cut]);
        if given_up.status == 0 {
            assert!(refused > 1, "only {refused} behind the first step");
            return;
        }
        assert!(layer.exists());
        let resumed = resume(&scene);
        if resumed.status != 0 {
            refused += 1;
            resumed.expect(125, &format!("it is given up; run speculator try --give-up {} once more", layer.display()));
            assert!(afterwards(&scene, &["--list"]).stdout.contains("given up, but not removed yet"));
            let again = give_up(&scene, &layer);
            assert_eq!(again.status, 0, "{}", again.stderr);
        }
        assert_eq!((layers(&scene), stage(&scene)), (Vec::new(), None));
    }
    panic!("never done");
}

#[test]
fn what_somebody_keeps_now_is_listed_as_that() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let first = Try::new(&scene, "--yes --report=none --crash-after=1").sh("echo mine > new");
    assert_eq!(first.status, 125, "{}", first.stderr);
    let layer = layers(&scene).remove(0);
    assert!(afterwards(&scene, &["--list"]).stdout.ends_with("begun)\n"));
    let held = fs::File::open(&layer).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let listed = afterwards(&scene, &["--list"]);
    let line = format!("{}: is being kept now\n", layer.display());
    assert_eq!((listed.status, listed.stdout), (0, line), "{}", listed.stderr);
    drop(held);
    assert_eq!(resume(&scene).status, 0);
}
