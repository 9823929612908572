//! Names change, and what a program has from names stays: its working directory, its open files, what is mounted.
//! Mounts need root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bluefs_support as support;

use rustix::process::Signal;
use support::{succeeds, Foreground, Mount, Scene};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
/// How long others wait for leases on what somebody has changed, and a little more.
const QUIET: Duration = Duration::from_millis(1_100);
/// Names that the kernel keeps, and names that are asked about each time.
const WAYS: [&[&str]; 2] = [&[], &["--ask-names"]];
/// For how long others are let wait, and when what was ended has to be over, on a machine that has other work.
const WAITS: Duration = Duration::from_millis(500);
const OVER_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const TICK: Duration = Duration::from_millis(10);
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
    for options in WAYS {
        let server = scene.serve();
        let mount = Mount::new(&server.address, &scene.path("a"), options);
        looks_while_names_change(&program, &mount.0);
        fs::remove_dir_all(mount.0.join("d")).expect("removed");
    }
}

/// What others change, and what this mount changes.
#[test]
fn what_is_mounted_and_what_is_open_stays_when_names_change() {
    WAYS.into_iter().for_each(what_is_mounted_and_what_is_open_stays);
}

fn what_is_mounted_and_what_is_open_stays(options: &[&str]) {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = |name| Mount::new(&server.address, &scene.path(name), options);
    let (a, b) = (mount("a"), mount("b"));
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

/// A mount whose names another mount wants to change, while an operation here has their directory's lock: that one
/// waits for a third one, which is stopped. The process that has the kernel forget names waits for the lock then.
#[test]
fn a_mount_that_is_killed_while_a_directory_is_waited_for_is_over() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = |name| Foreground::new(&server.address, &scene.path(name));
    let (holder, third) = (mount("holder"), mount("third"));
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    fs::create_dir(writer.0.join("d")).expect("a directory");
    fs::write(writer.0.join("d/x"), "").expect("written");
    std::thread::sleep(QUIET);
    for dir in [&holder.mount.0, &third.mount.0] {
        for _ in 0..4 {
            assert!(dir.join("d/x").exists() && !dir.join("d/new").exists());
        }
    }
    let helpers = children(&holder);
    assert!(!helpers.is_empty(), "nobody forgets names");
    third.signal(Signal::STOP);
    let shell = |script: &str, dir: &Path| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir).stderr(std::process::Stdio::null()).spawn().expect("a shell")
    };
    // It has the directory's lock, and waits for the third one's lease.
    let mut makes = shell("mkdir d/other", &holder.mount.0);
    std::thread::sleep(WAITS);
    let mut writes = shell(": > d/z", &writer.0);
    std::thread::sleep(WAITS);
    let begun = Instant::now();
    holder.signal(Signal::KILL);
    let status = makes.wait().expect("a child");
    assert!(!status.success() && begun.elapsed() < OVER_MAX, "{status} after {:?}", begun.elapsed());
    while helpers.iter().any(|helper| is_running(*helper)) {
        assert!(begun.elapsed() < OVER_MAX, "who forgets names still runs");
        std::thread::sleep(LOOK_EVERY);
    }
    assert!(fs::symlink_metadata(holder.mount.0.join("d")).is_err(), "nobody serves it");
    third.signal(Signal::CONT);
    assert!(writes.wait().expect("a child").success());
}

/// Without the process that has the kernel ask again names are asked about each time: others do not wait for the end of
/// a lease, but for names that were told before.
#[test]
fn where_nobody_forgets_names_none_are_kept() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = Foreground::new(&server.address, &scene.path("a"));
    let other = Mount::new(&server.address, &scene.path("b"), &[]);
    let helper = *children(&mount).first().expect("a process that forgets names");
    rustix::process::kill_process(rustix::process::Pid::from_raw(helper as i32).expect("a number"), Signal::KILL)
        .expect("it is there");
    let begun = Instant::now();
    while is_running(helper) {
        assert!(begun.elapsed() < OVER_MAX, "it still runs");
        std::thread::sleep(LOOK_EVERY);
    }
    for round in 0..3 {
        let name = format!("new-{round}");
        std::thread::sleep(QUIET);
        for _ in 0..8 {
            assert!(!mount.mount.0.join(&name).exists());
            std::thread::sleep(TICK);
        }
        let begun = Instant::now();
        fs::write(other.0.join(&name), "").expect("written");
        assert!(mount.mount.0.join(&name).exists());
        assert!(begun.elapsed() < OVER_MAX, "it took {:?}", begun.elapsed());
    }
}

/// A name that the kernel keeps is moved to a directory that has another lease, while somebody else makes and removes
/// files there. What another mount then does to it is seen at once, and nobody waits for long.
#[test]
fn a_name_that_is_moved_far_away_is_what_it_is_there() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = |name| Mount::new(&server.address, &scene.path(name), &[]);
    let (a, b) = (mount("a"), mount("b"));
    fs::create_dir(a.0.join("from")).expect("a directory");
    // Inodes have leases in groups of their numbers.
    (0..300).for_each(|i| fs::write(a.0.join(format!("from/{i}")), "").expect("written"));
    fs::create_dir(a.0.join("to")).expect("a directory");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let busy = a.0.join("to/busy");
                fs::create_dir(&busy).expect("a directory");
                fs::remove_dir(&busy).expect("removed");
            }
        });
        for round in 0..4 {
            let (from, to) = (a.0.join(format!("from/{round}")), a.0.join("to/moved"));
            std::thread::sleep(QUIET);
            for _ in 0..8 {
                // Attributes that are told for no time are believed for a tick of the kernel's clock.
                assert!(from.exists() && !to.exists());
                std::thread::sleep(TICK);
            }
            let begun = Instant::now();
            // Here nobody has a lease on the other directory now.
            fs::write(b.0.join("to/other"), "").expect("written");
            fs::rename(&from, &to).expect("moved");
            assert!(to.exists() && !from.exists());
            fs::rename(b.0.join("to/moved"), b.0.join(format!("away-{round}"))).expect("moved");
            assert!(!to.exists());
            fs::write(b.0.join(format!("from/{round}")), "").expect("written");
            assert!(from.exists());
            assert!(begun.elapsed() < OVER_MAX, "it took {:?}", begun.elapsed());
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// The processes that a mount has started.
fn children(mount: &Foreground) -> Vec<u32> {
    let pid = mount.child.id();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let all = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    all.flat_map(|all| all.split_whitespace().map(|pid| pid.parse().expect("a number")).collect::<Vec<u32>>()).collect()
}

fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

/// What the kernel opens without asking the mount, and what loses its name then.
const NAMELESS: &str = r#"
import os, stat, time
os.mkfifo('fifo')
open('file', 'w').write('contents')
os.mkdir('dir')
held = [os.open('fifo', os.O_RDWR), os.open('file', os.O_PATH), os.open('dir', os.O_PATH)]
os.chdir('dir')
os.unlink('../fifo')
os.unlink('../file')
os.rmdir('../dir')
time.sleep(0.6)
shown = [os.fstat(fd) for fd in held] + [os.stat('.')]
print([(stat.filemode(one.st_mode)[0], one.st_nlink) for one in shown], shown[1].st_size)
"#;

/// The server frees it at once, as nobody has it open through the mount.
#[test]
fn what_is_open_without_the_mount_and_has_lost_its_name_can_be_looked_at() {
    for way in WAYS {
        let scene = Scene::new();
        let server = scene.serve();
        let mount = Mount::new(&server.address, &scene.path("a"), way);
        let shown = succeeds(Command::new("python3").args(["-c", NAMELESS]).current_dir(&mount.0));
        assert_eq!(shown, "[('p', 0), ('-', 0), ('d', 0), ('d', 0)] 8\n");
    }
}
