//! Names change, and what a program has from names stays: its working directory, its open files, what is mounted.
//! Mounts need root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::bluefs_support as support;

use support::{succeeds, Mount, Scene};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
/// How long others wait for leases on what somebody has changed, and a little more.
const QUIET: Duration = Duration::from_millis(1_100);
/// For how long a program looks, ms.
const LOOKS_FOR: &str = "2000";
/// Makes, removes and lists a file until the file `over` is there; each name is looked up often enough to be kept.
const CHANGES: &str = "while [ ! -e over ]; do \
    : >d/x; ls d >/dev/null; rm d/x; ls -l d/ >/dev/null; stat d/x d/kept d/x d/kept d/x >/dev/null 2>&1; done; \
    rm over";

/// Runs the program in a directory `d` while names in it change.
#[track_caller]
fn looks_while_names_change(program: &Path, dir: &Path) {
    fs::create_dir(dir.join("d")).expect("a directory");
    fs::write(dir.join("d/kept"), "").expect("written");
    let mut shell = Command::new("sh").args(["-c", CHANGES]).current_dir(dir).spawn().expect("a shell");
    let looked = Command::new(program).args([LOOKS_FOR, "kept"]).current_dir(dir.join("d")).output();
    fs::write(dir.join("over"), "").expect("written");
    assert!(shell.wait().expect("a child").success());
    let looked = looked.expect("it starts");
    assert!(looked.status.success(), "{}", String::from_utf8_lossy(&looked.stderr));
}

#[test]
fn a_working_directory_stays_where_it_is_while_names_change() {
    let scene = Scene::new();
    let (program, source) = (scene.path("program"), format!("{PROGRAMS}/getcwd_always.c"));
    succeeds(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source));
    fs::create_dir(scene.path("disk")).expect("a directory");
    looks_while_names_change(&program, &scene.path("disk"));
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("a"), &[]);
    looks_while_names_change(&program, &mount.0);
}

/// What others change, and what this mount changes.
#[test]
fn what_is_mounted_and_what_is_open_stays_when_names_change() {
    let scene = Scene::new();
    let server = scene.serve();
    let (a, b) =
        (Mount::new(&server.address, &scene.path("a"), &[]), Mount::new(&server.address, &scene.path("b"), &[]));
    fs::create_dir_all(a.0.join("d/below")).expect("a directory");
    fs::write(a.0.join("d/open"), "").expect("written");
    fs::create_dir(scene.path("other")).expect("a directory");
    symlink("of another file system", scene.path("other/mark")).expect("a link");
    let below = a.0.join("d/below");
    succeeds(Command::new("mount").arg("--bind").arg(scene.path("other")).arg(&below));
    let mounted = Mount(below.clone());
    std::thread::sleep(QUIET);
    let open = fs::File::open(a.0.join("d/open")).expect("open");
    let name_of = |file: &fs::File| {
        use std::os::fd::AsRawFd;
        fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a link")
    };
    for changed in [&b.0, &a.0] {
        let new = changed.join("d/new");
        for _ in 0..3 {
            // What is looked at often is kept, if anything is.
            assert!(fs::symlink_metadata(below.join("mark")).is_ok() && a.0.join("d/open").exists());
            assert!(!a.0.join("d/new").exists());
        }
        fs::write(&new, "").expect("written");
        assert!(a.0.join("d/new").exists() && a.0.join("d/open").exists());
        assert!(fs::symlink_metadata(below.join("mark")).is_ok(), "it is not mounted any more");
        assert_eq!(name_of(&open), a.0.join("d/open"));
        fs::remove_file(&new).expect("removed");
        std::thread::sleep(QUIET);
    }
    drop((open, mounted));
}
