//! Keeping a try: what stops it before its first step, what is finished later, and what somebody else does meanwhile.

use crate::support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::try_command::{resume, Try};
use rustix::fs::OFlags;
use rustix::process::{kill_process, Pid, Signal};
use support::places::{await_running, pause, PATIENCE};
use support::{can_mount, tree, Mounted, Outcome, Scene};

/// A small file system of its own at `dir`.
fn small(scene: &Scene, kind: &str) -> Mounted {
    let make = match kind {
        "tmpfs" => "mount -t tmpfs -o nr_inodes=40 tmpfs dir".to_owned(),
        kind => format!("truncate -s 128M disk; mkfs.{kind} -q disk 2>/dev/null; mount -o loop disk dir"),
    };
    tree::run(&scene.path(""), &make);
    Mounted(scene.path("dir"))
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.path(name)).unwrap()
}

/// Nothing was begun: no layer has a name, and nothing of a stage is there.
#[track_caller]
fn undone(scene: &Scene, outcome: &Outcome, why: &str) {
    outcome.expect(125, why);
    assert!(outcome.stderr.contains("cannot keep") && outcome.stderr.contains("everything was undone"));
    assert_eq!(layers(scene), Vec::<PathBuf>::new());
    assert_eq!(stage(&scene.path("dir")), None);
}

fn layers(scene: &Scene) -> Vec<PathBuf> {
    named(&scene.path(""), ".layer")
}

fn stage(root: &Path) -> Option<PathBuf> {
    named(root, ".speculator-try-").pop()
}

fn named(dir: &Path, part: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().contains(part)).collect()
}

/// The disk below takes nothing for the blocks of a file; its pages look as if they had been written.
#[test]
fn what_the_disk_did_not_take_is_written_again() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    tree::run(&scene.path(""), "mkdir below; mount -t tmpfs -o size=48M tmpfs below");
    let _below = Mounted(scene.path("below"));
    tree::run(
        &scene.path(""),
        "truncate -s 40M below/disk; mkfs.ext4 -q -b 4096 -O ^has_journal below/disk; mount -o loop below/disk dir
         dd if=/dev/urandom of=dir/big bs=1M count=8 status=none; sync -f dir
         filefrag -b4096 -e dir/big | awk -F'[ .:]+' '/^ +[0-9]+:/ { print $5, $7 }' | while read -r at len; do
             fallocate -p -o $((at * 4096)) -l $((len * 4096)) below/disk
         done
         dd if=/dev/zero of=below/filler bs=64K status=none 2>/dev/null; test $(stat -f -c %f below) = 0",
    );
    let mounted = Mounted(scene.path("dir"));
    let script = "yes new | head -c 8388608 | dd of=big bs=1M conv=notrunc iflag=fullblock status=none";
    let outcome = Try::new(&scene, "--yes --report=none").sh(script);
    outcome.expect(125, "kept only in part");
    fs::remove_file(scene.path("below/filler")).unwrap();
    let resumed = resume(&scene);
    assert_eq!(resumed.status, 0, "{}", resumed.stderr);
    drop(mounted);
    tree::run(&scene.path(""), "mount -o loop below/disk dir");
    let _mounted = Mounted(scene.path("dir"));
    assert!(read(&scene, "dir/big") == "new\n".repeat(2 << 20), "it is lost");
}

#[test]
fn what_somebody_else_did_in_a_directory_that_was_replaced_is_a_conflict() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let refused = |inside: &str, outside: &str| {
        tree::run(&scene.path("dir"), "rm -rf *; mkdir -p d/sub/deep; echo 1 > d/f; echo 1 > d/sub/f");
        Try::new(&scene, "--yes --report=none").meanwhile(inside, outside).expect(125, "somebody else changed");
    };
    refused("rm -r d; mkdir d; echo new > d/f", "echo theirs > d/f");
    assert_eq!(read(&scene, "dir/d/f"), "theirs\n");
    refused("rm -r d; mkdir -p d/sub; echo new > d/sub/f", "echo theirs > d/sub/f");
    refused("mkdir e; echo mine > e/f", "mkdir e; echo theirs > e/f");
    assert_eq!(read(&scene, "dir/e/f"), "theirs\n");
    refused("rm -r d; mkdir d", "chmod 700 d");
    refused("rm -r d; mkdir -p d/sub", "chmod 700 d/sub");
    refused("rm -r d; echo file > d", "echo theirs > d/f");
    // What only has another name goes there with all that is in it.
    for inside in ["mv d e", "mv d e; mkdir d; echo mine > d/f"] {
        tree::run(&scene.path("dir"), "rm -rf *; mkdir d; echo 1 > d/f");
        let moved = Try::new(&scene, "--yes").meanwhile(inside, "echo theirs > d/more");
        assert_eq!(moved.status, 0, "{inside}: {}", moved.stderr);
        assert_eq!(read(&scene, "dir/e/more"), "theirs\n");
    }
    tree::run(&scene.path("dir"), "rm -rf *; mkdir d; echo 1 > d/f; echo 1 > other");
    let elsewhere = Try::new(&scene, "--yes").meanwhile("rm -r d; mkdir d; echo new > d/f", "echo theirs > other");
    assert_eq!(elsewhere.status, 0, "{}", elsewhere.stderr);
    assert_eq!((read(&scene, "dir/d/f"), read(&scene, "dir/other")), ("new\n".to_owned(), "theirs\n".to_owned()));
}

#[test]
fn a_stage_of_somebody_else_decides_nothing() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let _dir = small(&scene, "tmpfs");
    Try::new(&scene, "--yes --report=none --crash-after=0").sh("echo mine > new");
    let own = stage(&scene.path("dir")).unwrap();
    assert_eq!(own.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    let away = scene.path("dir/away");
    fs::rename(&own, &away).unwrap();
    for mode in [0o777, 0o700] {
        fs::create_dir(&own).unwrap();
        fs::write(own.join("held-0"), "theirs").unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
        resume(&scene).expect(125, "made by somebody else");
        fs::remove_dir_all(&own).unwrap();
    }
    assert!(!scene.path("dir/new").exists());
    fs::rename(&away, &own).unwrap();
    let resumed = resume(&scene);
    assert_eq!(resumed.status, 0, "{}", resumed.stderr);
    assert_eq!(read(&scene, "dir/new"), "mine\n");
    assert_eq!(stage(&scene.path("dir")), None);
}

#[test]
fn a_directory_that_somebody_has_removed_since_does_not_hold_up_resume() {
    if !can_mount() {
        return;
    }
    for operations in 1..40 {
        let scene = Scene::new();
        let _dir = small(&scene, "tmpfs");
        let options = format!("--yes --report=none --crash-after={operations}");
        let outcome = Try::new(&scene, &options).sh("mkdir d; echo > d/f");
        assert_eq!(outcome.status, 125, "never so far: {}", outcome.stderr);
        if scene.path("dir/d/f").exists() && stage(&scene.path("dir")).is_none() {
            fs::remove_dir_all(scene.path("dir/d")).unwrap();
            let resumed = resume(&scene);
            assert_eq!(resumed.status, 0, "{}", resumed.stderr);
            assert_eq!(layers(&scene), Vec::<PathBuf>::new());
            return;
        }
    }
    panic!("never so far");
}

/// An editor that saves, say, between the crash and `--resume`.
#[test]
fn what_somebody_has_replaced_since_is_overwritten_by_force_only() {
    if !can_mount() {
        return;
    }
    let scripts = ["echo mine >> f", "mv f g", "ln f g", "ln f g; echo mine >> f"];
    // Whoever reads it goes on reading the old one, which is there without a name.
    for (script, is_open) in scripts.iter().flat_map(|script| [(script, false), (script, true)]) {
        let scene = Scene::new();
        let _dir = small(&scene, "ext4");
        tree::run(&scene.path("dir"), "echo 1 > f; chmod 600 f");
        let _open = is_open.then(|| fs::File::open(scene.path("dir/f")).unwrap());
        let outcome = Try::new(&scene, "--yes --report=none --crash-after=0").sh(script);
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        tree::run(&scene.path("dir"), "echo theirs > other; mv other f");
        let resumed = resume(&scene);
        resumed.expect(125, "somebody else has removed or replaced it (--resume with --force lets COMMAND win)");
        assert!(resumed.stderr.contains(scene.path("dir/").to_str().unwrap()), "{}", resumed.stderr);
        assert_eq!(read(&scene, "dir/f"), "theirs\n");
        let forced = scene.run("try --resume --force --layer-dir .");
        assert_eq!(forced.status, 0, "{script}: {}", forced.stderr);
        let mine = if script.contains("echo") { "1\nmine\n" } else { "1\n" };
        let (changed, placed) = (script.contains("echo"), script.contains(" g"));
        assert_eq!(read(&scene, "dir/f"), if changed { mine } else { "theirs\n" }, "{script}");
        if placed {
            assert_eq!(read(&scene, "dir/g"), mine, "{script}");
            assert_eq!(fs::metadata(scene.path("dir/g")).unwrap().mode() & 0o777, 0o600);
        }
        assert_eq!((layers(&scene), stage(&scene.path("dir"))), (Vec::new(), None));
    }
}

/// Both have renamed a new file over it.
#[test]
fn what_both_have_replaced_is_overwritten_by_force_only() {
    if !can_mount() {
        return;
    }
    let scripts = [
        "echo mine > new; mv new f",
        "mv mine f",
        "rm f; mkdir f",
        "rm f; mv sub f",
        "echo mine > a; rm f; ln a f",
        "rm f; ln -s mine f",
    ];
    for script in scripts {
        let scene = Scene::new();
        let _dir = small(&scene, "ext4");
        tree::run(&scene.path("dir"), "echo 1 > f; echo mine > mine; mkdir sub; echo theirs > other");
        let outcome = Try::new(&scene, "--yes --report=none --crash-after=0").sh(script);
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        tree::run(&scene.path("dir"), "mv other f");
        resume(&scene).expect(125, "dir/f: somebody else has removed or replaced it");
        assert_eq!(read(&scene, "dir/f"), "theirs\n");
        // But never a directory.
        tree::run(&scene.path("dir"), "mv f other; mkdir f; echo theirs > f/theirs");
        if !script.contains("mkdir") {
            let forced = scene.run("try --resume --force --layer-dir .");
            forced.expect(125, "dir/f: somebody else has made a directory there; move it away");
        }
        assert_eq!(read(&scene, "dir/f/theirs"), "theirs\n");
        tree::run(&scene.path("dir"), "mv f theirs; mv other f");
        let forced = scene.run("try --resume --force --layer-dir .");
        assert_eq!(forced.status, 0, "{script}: {}", forced.stderr);
        let found = fs::symlink_metadata(scene.path("dir/f")).unwrap();
        match script {
            _ if script.contains("-s") => assert!(found.is_symlink(), "{script}"),
            _ if script.contains("mkdir") || script.contains("sub") => assert!(found.is_dir(), "{script}"),
            _ => assert_eq!(read(&scene, "dir/f"), "mine\n", "{script}"),
        }
        assert_eq!((layers(&scene), stage(&scene.path("dir"))), (Vec::new(), None), "{script}");
    }
}

/// Their roots have the same number.
#[test]
fn force_does_not_keep_everything_on_another_file_system() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let first = small(&scene, "tmpfs");
    tree::run(&scene.path("dir"), "echo 1 > f");
    Try::new(&scene, "--yes --report=none --crash-after=0").sh("echo mine >> f; echo mine > new");
    tree::run(&scene.path(""), "mkdir aside; mount --bind dir aside");
    let _aside = Mounted(scene.path("aside"));
    drop(first);
    let other = small(&scene, "tmpfs");
    let forced = scene.run("try --resume --force --layer-dir .");
    forced.expect(125, "it may be another file system");
    assert_eq!((layers(&scene).len(), fs::read_dir(scene.path("dir")).unwrap().count()), (1, 0));
    drop(other);
    tree::run(&scene.path(""), "mount --bind aside dir");
    let _dir = Mounted(scene.path("dir"));
    let resumed = resume(&scene);
    assert_eq!(resumed.status, 0, "{}", resumed.stderr);
    assert_eq!(read(&scene, "dir/f"), "1\nmine\n");
}

/// Whoever writes there can make it.
#[test]
fn a_directory_of_the_odd_name_of_what_is_made_holds_nothing_up() {
    if !can_mount() {
        return;
    }
    for is_resumed in [true, false] {
        let scene = Scene::new();
        let _dir = small(&scene, "tmpfs");
        Try::new(&scene, "--yes --report=none --crash-after=0").sh("echo mine > new");
        let odd = PathBuf::from(format!("{}-new-0", stage(&scene.path("dir")).unwrap().display()));
        fs::create_dir(&odd).unwrap();
        let layer = layers(&scene).remove(0);
        let give_up = format!("try --give-up {}", layer.display());
        let outcome = if is_resumed { resume(&scene) } else { scene.run(&give_up) };
        assert_eq!((outcome.status, layers(&scene)), (0, Vec::new()), "{}", outcome.stderr);
        assert!(odd.exists());
    }
}

/// Two layers: what is seen of the file system are two directories of it.
#[test]
fn two_parts_of_one_file_system_have_its_room_together() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    tree::run(
        &scene.path(""),
        "mkdir a b; mount -t tmpfs -o size=8M tmpfs dir; mkdir dir/a dir/b; mount --bind dir/a a; mount --bind dir/b b",
    );
    let _parts = [Mounted(scene.path("a")), Mounted(scene.path("b"))];
    tree::run(&scene.path(""), "umount dir");
    let outcome =
        Try::new(&scene, "--yes --report=none").sh("for d in a b; do head -c 5M /dev/urandom > ../$d/f; done");
    undone(&scene, &outcome, "bytes and has");
    assert!(outcome.stderr.contains("/b (together with /"), "{}", outcome.stderr);
    assert!(!scene.path("a/f").exists());
}

#[test]
fn a_layer_that_cannot_be_finished_does_not_hold_up_others() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    Try::new(&scene, "--yes --report=none --crash-after=0").sh("echo mine > new");
    let broken = scene.path("speculator-try-0-0.layer");
    fs::write(&broken, "nothing").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o600)).unwrap();
    let resumed = resume(&scene);
    assert_eq!(resumed.status, 125, "{}", resumed.stderr);
    assert!(resumed.stderr.contains("kept: what 1 ") && resumed.stderr.contains("cannot finish"), "{}", resumed.stderr);
    assert_eq!(read(&scene, "dir/new"), "mine\n");
    assert_eq!(layers(&scene), [broken]);
}

#[test]
fn a_directory_with_the_layer_in_it_stays() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir_all(scene.path("dir/d/layers")).unwrap();
    for script in ["mv d e", "mv d/layers layers", "rm -r d/layers", "rm -r d; mkdir -p d/layers"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["try", "--yes", "--report=none", "--layer-dir", "d/layers", "sh", "-c", script]);
        let outcome = Outcome::of(command.current_dir(scene.path("dir")).stdin(Stdio::null()).output().unwrap());
        undone(&scene, &outcome, "choose another place with --layer-dir");
        assert_eq!(fs::read_dir(scene.path("dir/d/layers")).unwrap().count(), 0, "{script}");
    }
}

#[test]
fn what_the_file_system_would_refuse_is_found_before_anything_is_done() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let dir = small(&scene, "ext4");
    tree::run(
        &scene.path("dir"),
        "echo a > log; chattr +a log; mkdir -p app m/app; chattr +a app m/app; mkdir -p i/sub; echo > i/f; chattr +i i
         touch -a -d 2001-01-01 f; echo > f",
    );
    let unprotect = Unprotect(scene.path("dir"));
    let mut attempt = Try::new(&scene, "--yes --report=none");
    undone(&scene, &attempt.sh("echo other > f; echo b >> log"), "dir/log: it cannot be changed");
    undone(&scene, &attempt.sh("echo other > f; echo > app/new"), "dir/app: it cannot be changed");
    // Also where it has another name by then.
    undone(&scene, &attempt.sh("echo other > f; mv m n; echo > n/app/new"), "dir/n/app: it cannot be changed");
    let large = "import os; os.setxattr('f', 'user.big', b'v' * 9000)";
    undone(&scene, &attempt.run(&["python3", "-c", large]), "dir/f: its extended attribute user.big");
    assert_eq!((read(&scene, "dir/log"), read(&scene, "dir/f")), ("a\n".to_owned(), "\n".to_owned()));
    let below = attempt.sh("ls i > /dev/null; cat i/f; echo > i/sub/new");
    assert_eq!(below.status, 0, "{}", below.stderr);
    assert!(scene.path("dir/i/sub/new").exists());
    drop((unprotect, dir));

    let _dir = small(&scene, "tmpfs");
    attempt.options = vec!["--yes", "--report=none"];
    undone(&scene, &attempt.sh("for n in $(seq 30); do echo > $n; done"), "dir needs 61 inodes");
    let fewer = attempt.sh("for n in $(seq 15); do echo > $n; done");
    assert_eq!(fewer.status, 0, "{}", fewer.stderr);
}

/// So that it can be removed.
struct Unprotect(PathBuf);

impl Drop for Unprotect {
    fn drop(&mut self) {
        let _ = Command::new("chattr").args(["-R", "-i", "-a"]).arg(&self.0).output();
    }
}

fn tell(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The status with which it ends, if it does.
#[track_caller]
fn ends(child: &mut Child, mut meanwhile: impl FnMut(&Child)) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        meanwhile(child);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_while_a_command_decides_is_a_no() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let asleep = pause("1000");
    let keep_if = format!("--keep-if={asleep}; true");
    let attempt = Try { scene: &scene, options: vec!["--report=none", &keep_if], input: "" };
    let mut child = attempt.command(&["sh", "-c", "echo > made"]).spawn().unwrap();
    await_running(&asleep);
    tell(&child, Signal::INT);
    assert_eq!(ends(&mut child, |_| {}), Some(130));
    let said = Outcome::of(child.wait_with_output().unwrap());
    assert!(said.stderr.contains("interrupted: everything was undone"), "{}", said.stderr);
    assert!(!scene.path("dir/made").exists());
    scene.left_behind(&["dir"]);
}

#[test]
fn an_ignored_signal_is_ignored() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let asleep = pause("1000");
    let attempt = Try::new(&scene, "--yes --report=none");
    let inner = attempt.command(&["sh", "-c", &format!("echo > made; {asleep}; :")]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(scene.path("dir")).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = await_running(&asleep);
    for _ in 0..2 {
        tell(&child, Signal::HUP);
        std::thread::sleep(Duration::from_millis(200));
    }
    kill_process(Pid::from_raw(pid).unwrap(), Signal::PIPE).unwrap();
    assert_eq!(ends(&mut child, |_| {}), Some(0));
    assert!(scene.path("dir/made").exists());
}

#[test]
fn a_signal_ends_what_nobody_reads() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mut command = Try::new(&scene, "--yes --report=none").command(&["sh", "-c", "echo > made; seq 200000"]);
    let mut child = command.spawn().unwrap();
    let status = ends(&mut child, |child| {
        if scene.path("dir/made").exists() {
            tell(child, Signal::TERM);
        }
    });
    assert_eq!(status, Some(143));
    let said = Outcome::of(child.wait_with_output().unwrap());
    assert!(said.stderr.contains("interrupted: kept, but not everything that COMMAND printed"), "{}", said.stderr);
    scene.left_behind(&["dir"]);
}

#[test]
fn what_was_printed_is_in_a_file_if_it_cannot_be_kept() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    fs::write(scene.path("dir/a"), "1\n").unwrap();
    for options in ["--yes", "--yes --report=none"] {
        let outcome = Try::new(&scene, options).meanwhile("echo 2 > a; seq 2000", "echo 3 > a");
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        let mut lines = outcome.stderr.lines();
        let named = lines.find_map(|line| line.strip_prefix("speculator: all that it printed is in ")).unwrap();
        let printed: String = (1..=2000).map(|number| format!("{number}\n")).collect();
        assert_eq!(fs::read_to_string(named).unwrap(), printed);
        fs::remove_file(named).unwrap();
    }
}

#[test]
fn a_stream_that_does_not_wait_gets_everything() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut command = Try::new(&scene, "--yes --report=none").command(&["seq", "100000"]);
    let child = command.stdout(writer).spawn().unwrap();
    drop(command);
    let mut printed = Vec::new();
    let mut buffer = [0; 16 << 10];
    while let Ok(len @ 1..) = reader.read(&mut buffer) {
        printed.extend_from_slice(&buffer[..len]);
        std::thread::sleep(Duration::from_millis(2));
    }
    let said = Outcome::of(child.wait_with_output().unwrap());
    assert_eq!(said.status, 0, "{}", said.stderr);
    assert_eq!(printed.len(), 588_895);
}

#[test]
fn what_somebody_has_mounted_meanwhile_stays_mounted() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir_all(scene.path("dir/d/sub")).unwrap();
    for inside in ["rm -r d", "mv d e", "rm -r d; mkdir d"] {
        let attempt = Try::new(&scene, "--yes --report=none --force");
        let outcome = attempt.meanwhile(inside, "mount -t tmpfs theirs d/sub; echo > d/sub/file");
        let _mounted = Mounted(scene.path("dir/d/sub"));
        undone(&scene, &outcome, "theirs was mounted at");
        assert!(scene.path("dir/d/sub/file").exists(), "{inside}");
    }
}

#[test]
fn what_somebody_has_mounted_through_another_mount_stays_mounted() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir_all(scene.path("dir/d/sub")).unwrap();
    tree::run(&scene.path(""), "mkdir other; mount --bind dir other");
    let _other = Mounted(scene.path("other"));
    for inside in ["rm -r d", "mv d e", "rm -r d; mkdir d"] {
        let attempt = Try::new(&scene, "--yes --report=none --force");
        let outcome = attempt.meanwhile(inside, "mount -t tmpfs theirs ../other/d/sub; echo > ../other/d/sub/file");
        let _mounted = Mounted(scene.path("other/d/sub"));
        undone(&scene, &outcome, "theirs was mounted at");
        assert!(scene.path("other/d/sub/file").exists(), "{inside}");
    }
}

/// As ip-netns(8) makes them.
#[test]
fn a_file_that_a_namespace_is_mounted_on_stays() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    tree::run(&scene.path("dir"), "mkdir names; echo > names/uts; mount --bind /proc/self/ns/uts names/uts");
    let _mounted = Mounted(scene.path("dir/names/uts"));
    let script = "echo > made; rm names/uts || echo stays; mv names/uts other || echo stays; mv names moved";
    let outcome = Try::new(&scene, "--yes --report=none").sh(script);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "stays\nstays\n"), "{}", outcome.stderr);
    assert!(scene.path("dir/made").exists() && scene.path("dir/moved/uts").exists());
    tree::run(&scene.path("dir"), "mv moved names");
}

/// They take its mount point away as well, and the kernel unmounts it for everybody.
#[test]
fn somebody_may_unmount_something_just_when_it_begins() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let over = scene.path("over");
    let script = "while [ ! -e over ]; do mkdir m; mount -t tmpfs theirs m; umount m; rmdir m; done";
    let mut somebody = Command::new("sh").args(["-c", script]).current_dir(scene.path("")).spawn().unwrap();
    let outcomes = (0..20).map(|_| Try::new(&scene, "--no --report=none").sh("true"));
    let failed: Vec<String> = outcomes.filter(|outcome| outcome.status != 0).map(|outcome| outcome.stderr).collect();
    fs::write(over, "").unwrap();
    somebody.wait().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_program_that_is_run_and_has_several_names_is_not_torn_apart() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let asleep = pause("1000");
    tree::run(&scene.path("dir"), "cp /bin/sleep program; ln program other");
    let seconds = asleep.strip_prefix("sleep ").unwrap();
    let mut running = Command::new(scene.path("dir/program")).arg(seconds).spawn().unwrap();
    let attempt = Try::new(&scene, "--yes --report=none");
    undone(&scene, &attempt.sh("echo new > program"), "dir/program: it is being run and has several names");
    fs::remove_file(scene.path("dir/other")).unwrap();
    let kept = attempt.sh("echo new > program");
    assert_eq!(kept.status, 0, "{}", kept.stderr);
    assert_eq!(read(&scene, "dir/program"), "new\n");
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn settings_of_a_file_system_that_the_layer_does_not_have_stay() {
    let has_btrfs = fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("btrfs"));
    if !can_mount() || !has_btrfs {
        return;
    }
    let scene = Scene::new();
    let _dir = small(&scene, "btrfs");
    let set = "import os; os.setxattr('f', 'btrfs.compression', b'zlib'); os.setxattr('f', 'user.one', b'1')";
    tree::run(&scene.path("dir"), &format!("echo 1 > f; python3 -c \"{set}\""));
    let script = "import os; os.removexattr('f', 'user.one'); open('f', 'a').write('2\\n')";
    let outcome = Try::new(&scene, "--yes --report=none").run(&["python3", "-c", script]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let get = "import os; print(os.listxattr('f'))";
    let told = Command::new("python3").args(["-c", get]).current_dir(scene.path("dir")).output().unwrap();
    assert_eq!(String::from_utf8(told.stdout).unwrap(), "['btrfs.compression']\n");
    assert_eq!(read(&scene, "dir/f"), "1\n2\n");
}

/// The root of a file system is in the layer from the beginning.
#[test]
fn a_root_that_only_somebody_else_has_changed_is_none_of_its_business() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir(scene.path("dir/d")).unwrap();
    tree::run(&scene.path("dir"), "mount -t tmpfs tmpfs d");
    let mounted = Mounted(scene.path("dir/d"));
    let outside = "chmod 711 d; echo > d/theirs; touch -d @978307200 d";
    let outcome = Try::new(&scene, "--yes").meanwhile("echo > made", outside);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("kept: 1 created\n"), "{}", outcome.stderr);
    let found = fs::metadata(&mounted.0).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, found.mtime()), (0o711, 978_307_200));
}
