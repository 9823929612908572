//! Volumes as the supervisor uses them: mounted for a world, seen as ordered domains, unmounted without a trace.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use external_sync::domain::{DomainTable, Place};
use external_sync::volume::{self, Condition, Room, VolumeError, VolumeSpec};
use tempfile::TempDir;

const SIZE: u64 = 64 << 20;

fn is_root() -> bool {
    testkit::skipped::has_root_for("mounting a volume")
}

struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("dir")).unwrap();
        let scene = Scene { folder };
        volume::create(&scene.image(), SIZE, None, Room::Sparse).unwrap();
        scene
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("dir")
    }

    /// Lines of the mount table and names of attached loop devices that have to do with this scene.
    fn traces(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap().to_owned();
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let devices = fs::read_dir("/sys/block").unwrap().flatten();
        let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
        mounts.lines().map(str::to_owned).chain(files).filter(|line| line.contains(&folder)).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !self.traces().is_empty() {
            let _ = std::process::Command::new("umount").arg("-l").arg(self.dir()).status();
        }
    }
}

/// A thread of its own, because the mount namespace of a thread that made one cannot be left again.
fn in_own_thread(scenario: impl FnOnce() + Send + 'static) {
    std::thread::spawn(scenario).join().unwrap();
}

#[test]
fn a_world_sees_its_volume_and_nobody_else_does() {
    if !is_root() {
        return;
    }
    in_own_thread(|| {
        let scene = Scene::new();
        let before = scene.traces();
        let spec = VolumeSpec { image: scene.image(), dir: scene.dir() };
        let world = volume::mount_for_world(&[spec], &[]).unwrap();
        fs::write(scene.dir().join("file"), "inside").unwrap();
        let dir = scene.dir();
        let main_thread = format!("/proc/{}/root", std::process::id());
        let outside = fs::read_dir(PathBuf::from(main_thread).join(dir.strip_prefix("/").unwrap()));
        assert_eq!(outside.unwrap().count(), 0, "outside sees the empty directory");
        check_domain(&scene, world.iter().next().unwrap().dev());
        world.unmount().unwrap();
        assert_eq!(scene.traces(), before);
        assert_eq!(volume::check(&scene.image()).unwrap().condition, Condition::Clean);
    });
}

/// The volume is domain 0, ordered, and its files are on it.
fn check_domain(scene: &Scene, dev: u64) {
    let table = DomainTable::new(&[dev], Path::new("/")).unwrap();
    let first = &table.domains()[0];
    assert!(first.is_ordered(), "{first:?}");
    assert_eq!(fs::metadata(scene.dir().join("file")).unwrap().dev(), dev);
    assert_eq!(table.place(dev), Some(Place::Domain(first.id)));
    rustix::fs::syncfs(table.open(first.id).unwrap()).unwrap();
}

#[test]
fn a_second_world_is_told_that_the_volume_is_in_use() {
    if !is_root() {
        return;
    }
    in_own_thread(|| {
        let scene = Scene::new();
        let spec = VolumeSpec { image: scene.image(), dir: scene.dir() };
        let world = volume::mount_for_world(std::slice::from_ref(&spec), &[]).unwrap();
        let image = scene.image();
        in_own_thread(move || {
            let error = volume::mount_for_world(&[spec], &[]).unwrap_err();
            assert!(matches!(error, VolumeError::InUse { .. }), "{error}");
            let error = volume::check(&image).unwrap_err();
            assert!(matches!(error, VolumeError::InUse { .. }), "{error}");
        });
        world.unmount().unwrap();
    });
}

#[test]
fn when_the_second_volume_cannot_be_mounted_the_first_is_unmounted() {
    if !is_root() {
        return;
    }
    in_own_thread(|| {
        let scene = Scene::new();
        let good = VolumeSpec { image: scene.image(), dir: scene.dir() };
        let bad = VolumeSpec { image: scene.folder.path().join("none"), dir: scene.dir() };
        let same = VolumeSpec { image: scene.image(), dir: scene.dir() };
        assert!(volume::mount_for_world(&[good.clone(), bad], &[]).is_err());
        assert_eq!(scene.traces(), Vec::<String>::new());
        let error = volume::mount_for_world(&[good, same], &[]).unwrap_err();
        assert!(matches!(error, VolumeError::SameMountPoint { .. }), "{error}");
        assert_eq!(scene.traces(), Vec::<String>::new());
    });
}

#[test]
fn a_working_directory_on_a_volume_is_entered_again() {
    if !is_root() {
        return;
    }
    // In a thread that has left the process's file-system state by an earlier namespace.
    in_own_thread(|| {
        let scene = Scene::new();
        let other = Scene::new();
        let first = VolumeSpec { image: other.image(), dir: other.dir() };
        let private = volume::mount_for_world(&[first], &[]).unwrap();
        std::env::set_current_dir(scene.dir()).unwrap();
        let spec = VolumeSpec { image: scene.image(), dir: scene.dir() };
        let world = volume::mount_for_world(&[spec], &[]).unwrap();
        fs::write("file", "on the volume").unwrap();
        let dev = world.iter().next().unwrap().dev();
        assert_eq!(fs::metadata("file").unwrap().dev(), dev);
        std::env::set_current_dir("/").unwrap();
        world.unmount().unwrap();
        private.unmount().unwrap();
    });
}

#[test]
fn a_volume_in_use_stays_mounted() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let mounted = volume::mount(&scene.image(), &scene.dir()).unwrap();
    let file = fs::File::create(scene.dir().join("open")).unwrap();
    let error = mounted.unmount().unwrap_err();
    assert!(matches!(error, VolumeError::Busy { .. }), "{error}");
    drop(file);
    volume::umount(&scene.dir()).unwrap();
    assert_eq!(scene.traces(), Vec::<String>::new());
}

#[test]
fn an_abandoned_volume_is_unmounted() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    drop(volume::mount(&scene.image(), &scene.dir()).unwrap());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !scene.traces().is_empty() {
        assert!(std::time::Instant::now() < end, "{:?}", scene.traces());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The image as a crash would leave it is checked with its journal replayed, and itself stays as it is.
#[test]
fn an_image_that_was_not_unmounted_is_checked_as_its_next_mount_will_see_it() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let crashed = scene.folder.path().join("crashed");
    let mounted = volume::mount(&scene.image(), &scene.dir()).unwrap();
    fs::write(scene.dir().join("file"), "committed").unwrap();
    rustix::fs::syncfs(mounted.root()).unwrap();
    fs::copy(scene.image(), &crashed).unwrap();
    mounted.unmount().unwrap();

    let before = fs::read(&crashed).unwrap();
    let report = volume::check(&crashed).unwrap();
    assert_eq!(report.condition, Condition::NeedsReplay, "{}", report.details);
    assert!(fs::read(&crashed).unwrap() == before, "a check changes nothing");

    let mounted = volume::mount(&crashed, &scene.dir()).unwrap();
    assert_eq!(fs::read_to_string(scene.dir().join("file")).unwrap(), "committed");
    mounted.unmount().unwrap();
    assert_eq!(volume::check(&crashed).unwrap().condition, Condition::Clean);
}

#[test]
fn a_volume_without_room_is_not_made_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        assert!(std::process::Command::new(program).args(args).arg(folder.path()).status().unwrap().success());
    };
    run("mount", &["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
    let result = volume::create(&folder.path().join("image"), 1 << 30, None, Room::Reserved);
    let left = fs::read_dir(folder.path()).unwrap().count();
    run("umount", &[]);
    let error = result.unwrap_err();
    let is_told =
        matches!(error, VolumeError::ProgramFailed { .. } | VolumeError::Create { .. } | VolumeError::Reserve { .. });
    assert!(is_told, "{error}");
    assert_eq!(left, 0);
}

#[test]
fn room_is_reserved_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    volume::create(&image, SIZE, None, Room::Reserved).unwrap();
    let found = fs::metadata(&image).unwrap();
    assert!(found.blocks() * 512 >= SIZE, "{} blocks", found.blocks());
    assert_eq!(volume::check(&image).unwrap().condition, Condition::Clean);
}

#[test]
fn an_image_is_sparse_private_and_labelled() {
    let scene = Scene::new();
    let found = fs::metadata(scene.image()).unwrap();
    assert_eq!(found.len(), SIZE);
    assert!(found.blocks() * 512 < SIZE / 2, "{} blocks", found.blocks());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let report = volume::check(&scene.image()).unwrap();
    assert!(report.is_volume && report.condition == Condition::Clean, "{}", report.details);
}
