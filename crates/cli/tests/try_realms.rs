//! Keeping on file systems that take some things only from where they belong: projects of XFS, encrypted directories of
//! ext4, subvolumes of btrfs; and the access control lists of XFS, which it tells of twice.

use crate::support;

use std::path::Path;
use std::process::Command;

use crate::try_command::{resume, Try};
use support::manifest::{assert_same, await_news, comparable, manifest};
use support::{can_mount, skipped, tree, Mounted, Scene};

/// A file system of its own at `dir`; `None`, and says so, where that cannot be.
fn mounted(scene: &Scene, kind: &str, size: &str, options: &str) -> Option<Mounted> {
    if !can_mount() {
        return None;
    }
    let make = format!(
        "command -v mkfs.{kind} > /dev/null && truncate -s {size} disk &&
         mkfs.{kind} -q {options} disk > /dev/null 2>&1 && mount -o loop disk dir"
    );
    let made = Command::new("sh").args(["-c", &make]).current_dir(scene.path("")).status().unwrap();
    if !made.success() {
        skipped(&format!("no {kind} here"));
        return None;
    }
    Some(Mounted(scene.path("dir")))
}

fn python(dir: &Path, script: &str, args: &[&str]) -> Option<String> {
    let output = Command::new("python3").args(["-c", script]).args(args).current_dir(dir).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// Takes a directory and a number.
const SET_PROJECT: &str = "import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(fd, 0x401c5820, struct.pack('IIIII8x', 0x200, 0, 0, int(sys.argv[2]), 0))";

/// Of each file and directory below another, its project.
const PROJECTS: &str = "import fcntl, os, struct, sys
for top, dirs, files in os.walk(sys.argv[1]):
    for name in ['.'] + files:
        path = os.path.join(top, name)
        if os.path.islink(path) or not (os.path.isdir(path) or os.path.isfile(path)): continue
        found = bytearray(28)
        fcntl.ioctl(os.open(path, os.O_RDONLY), 0x801c581f, found)
        print(os.path.relpath(path, sys.argv[1]), struct.unpack('IIIII8x', found)[3])";

const SCRIPT: &str = "echo new > new; ln -s new link; mkfifo fifo; mkdir -p a/b; echo deep > a/b/deep; ln new a/hard
    mv f g; echo more >> g; mv old a/old; echo > a/old/x; sed -i s/1/2/ s; rm gone; chmod 600 a/b/deep";

const PREPARE: &str = "mkdir old; echo 1 > f; echo 1 > s; echo > gone; touch -d 2001-01-01 f s";

#[test]
fn what_is_made_in_a_project_belongs_to_it() {
    let scene = Scene::new();
    let Some(_dir) = mounted(&scene, "xfs", "320M", "") else { return };
    let project = |name: &str, within: &str| {
        let dir = scene.path("dir").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        assert!(python(&dir, SET_PROJECT, &[".", "42"]).is_some());
        tree::run(&dir, within);
        dir
    };
    let (native, tried) = (project("native", PREPARE), project("tried", PREPARE));
    let since = await_news();
    tree::run(&native, SCRIPT);
    let outcome = Try::new(&scene, "--yes --report=none").sh(&format!("cd tried; {SCRIPT}"));
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_same(&comparable(manifest(&native), since), &comparable(manifest(&tried), since), "kept");
    let of = |dir: &Path| {
        let mut told: Vec<String> = python(dir, PROJECTS, &["."]).unwrap().lines().map(str::to_owned).collect();
        told.sort();
        told
    };
    assert_eq!(of(&tried), of(&native));
    assert!(of(&native).iter().all(|line| line.ends_with(" 42")), "{:?}", of(&native));

    // Wherever it is cut short.
    for operations in 0..16 {
        let cut = project(&format!("cut{operations}"), "true");
        let options = format!("--yes --report=none --crash-after={operations}");
        let script = format!("cd cut{operations}; echo new > new; ln -s new link");
        let outcome = Try::new(&scene, &options).sh(&script);
        if outcome.status == 125 {
            let resumed = resume(&scene);
            assert_eq!(resumed.status, 0, "after {operations}: {}", resumed.stderr);
        }
        let mut names: Vec<_> = cut.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["link", "new"], "after {operations}");
        if outcome.status == 0 {
            break;
        }
    }

    nothing_odd_is_left(&scene, &project("odd", "true"));

    // What somebody has replaced since the crash is made again, and belongs to it as well.
    let forced = project("forced", PREPARE);
    for _ in 0..2 {
        Try::new(&scene, "--yes --report=none --crash-after=0").sh("cd forced; mkdir -p n; mv f n/g; ln n/g h");
        tree::run(&forced, "echo theirs > other; mv other f");
        let outcome = scene.run("try --resume --force --layer-dir .");
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        tree::run(&forced, "test $(stat -c %h n/g) = 2; rm h");
        assert!(of(&forced).iter().all(|line| line.ends_with(" 42")), "{:?}", of(&forced));
    }
    assert_eq!(std::fs::read_to_string(forced.join("n/g")).unwrap(), "theirs\n");

    // A directory within another project, whose stage is in the other.
    assert!(python(&scene.path("dir"), SET_PROJECT, &[".", "7"]).is_some());
    let (native, tried) = (project("inner-native", PREPARE), project("inner-tried", PREPARE));
    let since = await_news();
    tree::run(&native, SCRIPT);
    let outcome = Try::new(&scene, "--yes --report=none").sh(&format!("cd inner-tried; {SCRIPT}"));
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_same(&comparable(manifest(&native), since), &comparable(manifest(&tried), since), "kept in another");
    assert_eq!(of(&tried), of(&native));
}

/// What is made in the directory itself has a name there for a moment: after a crash at this moment that name goes.
fn nothing_odd_is_left(scene: &Scene, dir: &Path) {
    let names = || -> Vec<String> {
        let names = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".speculator")).collect()
    };
    let (mut made, mut replaced) = (0, 0);
    for operations in 0..12 {
        let attempt = format!("--yes --report=none --crash-after={operations}");
        let attempt = Try::new(scene, &attempt);
        if attempt.sh("cd odd; echo new > new").status == 125 {
            made += names().len();
            let layer = scene.names().into_iter().find(|name| name.ends_with(".layer")).unwrap();
            let given_up = scene.run(&format!("try --give-up {layer}"));
            assert_eq!((given_up.status, names()), (0, Vec::new()), "after {operations}: {}", given_up.stderr);
        }
        tree::run(dir, "rm -f new program; cp /bin/sleep program");
        // The new one takes its name as long as it is being run.
        let mut running = Command::new(dir.join("program")).arg("1000").spawn().unwrap();
        let status = attempt.sh("cd odd; echo more >> program").status;
        replaced += names().len();
        running.kill().unwrap();
        running.wait().unwrap();
        if status == 125 {
            let resumed = resume(scene);
            assert_eq!((resumed.status, names()), (0, Vec::new()), "after {operations}: {}", resumed.stderr);
        }
    }
    assert!(made > 0 && replaced > 0, "{made} and {replaced}");
}

/// Without us a rename says EXDEV, and mv(1) copies.
#[test]
fn what_cannot_go_where_it_was_moved_is_found_first() {
    let scene = Scene::new();
    let Some(_dir) = mounted(&scene, "xfs", "320M", "") else { return };
    let dir = scene.path("dir");
    tree::run(&dir, "mkdir p q; echo 1 > plain; mkdir sub");
    for (name, number) in [("p", "42"), ("q", "43")] {
        assert!(python(&dir, SET_PROJECT, &[name, number]).is_some());
    }
    tree::run(&dir, "echo 1 > q/f");
    for script in ["mv plain p/", "ln plain p/", "mv sub p/", "mv q/f p/", "echo > new; ln new p/"] {
        let outcome = Try::new(&scene, "--yes --report=none").sh(&format!("echo > first; {script}"));
        outcome.expect(125, "the project (quota) of what was moved there is another one");
        assert!(!dir.join("first").exists() && dir.join("plain").exists(), "{script}");
    }
    let outcome = Try::new(&scene, "--yes --report=none").sh("mv q/f . && rm -r p");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
}

/// Takes the root of the file system and directories.
const ENCRYPT: &str = "import array, fcntl, os, struct, sys
key = b'k' * 64
added = array.array('B', struct.pack('II32sII32s', 2, 0, b'', len(key), 0, b'') + key)
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0xc0506617, added)
for name in sys.argv[2:]:
    policy = struct.pack('BBBBB3s16s', 2, 1, 4, 3, 0, b'', bytes(added[8:24]))
    fcntl.ioctl(os.open(name, os.O_RDONLY), 0x800c6613, policy)";

#[test]
fn what_is_made_in_an_encrypted_directory_is_encrypted() {
    let scene = Scene::new();
    let Some(_dir) = mounted(&scene, "ext4", "64M", "-O encrypt") else { return };
    let dir = scene.path("dir");
    tree::run(&dir, "mkdir native tried; echo 1 > plain");
    if python(&dir, ENCRYPT, &[".", "native", "tried"]).is_none() {
        skipped("this kernel does not encrypt");
        return;
    }
    let (native, tried) = (dir.join("native"), dir.join("tried"));
    tree::run(&native, PREPARE);
    tree::run(&tried, PREPARE);
    let since = await_news();
    tree::run(&native, SCRIPT);
    let outcome = Try::new(&scene, "--yes --report=none").sh(&format!("cd tried; {SCRIPT}"));
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_same(&comparable(manifest(&native), since), &comparable(manifest(&tried), since), "kept");
    tree::run(&tried, "for name in new s a a/b a/b/deep; do lsattr -d $name | grep -q '^[^ ]*E'; done");
    // So is what has to be made again, as somebody has replaced it since the crash.
    tree::run(&tried, "echo 1 > f");
    Try::new(&scene, "--yes --report=none --crash-after=0").sh("cd tried; mv f moved");
    tree::run(&tried, "echo theirs > other; mv other f");
    let forced = scene.run("try --resume --force --layer-dir .");
    assert_eq!(forced.status, 0, "{}", forced.stderr);
    tree::run(&tried, "lsattr moved | grep -q '^[^ ]*E' && test $(cat moved) = 1");
    let outcome = Try::new(&scene, "--yes --report=none").sh("echo > first; mv plain tried/");
    outcome.expect(125, "not encrypted as the directory is");
    assert!(!dir.join("first").exists());
}

#[test]
fn a_subvolume_is_kept_by_itself() {
    let scene = Scene::new();
    let Some(_dir) = mounted(&scene, "btrfs", "300M", "") else { return };
    tree::run(
        &scene.path(""),
        "mkdir sub; btrfs subvolume create dir/@ > /dev/null; btrfs subvolume create dir/@/nested > /dev/null
         mount -o subvol=@ $(findmnt -no SOURCE dir) sub; mkdir sub/nested/d; echo 1 > sub/nested/f",
    );
    let _sub = Mounted(scene.path("sub"));
    let attempt = Try::new(&scene, "--yes --report=none");
    let kept = attempt.sh("cd ../sub; echo > made; mkdir d; mv made d/");
    assert_eq!(kept.status, 0, "{}", kept.stderr);
    assert!(scene.path("sub/d/made").exists());
    let changed = attempt.sh("cd ../sub; echo 2 >> nested/f; mkdir nested/e");
    assert_eq!(changed.status, 0, "{}", changed.stderr);
    assert_eq!(std::fs::read_to_string(scene.path("sub/nested/f")).unwrap(), "1\n2\n");
    for script in ["echo > nested/new", "rm nested/f", "mv nested/d d2", "mkdir nested/g; echo > nested/g/x"] {
        let outcome = attempt.sh(&format!("cd ../sub; echo > first; {script}"));
        outcome.expect(125, "it is in another subvolume than");
        assert!(!scene.path("sub/first").exists(), "{script}");
    }
}

/// `(tag, permissions, user)…` as an attribute.
const ACL: &str = "import os, struct
def acl(*entries): return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in entries)
N = 0xffffffff
def to(path, user, kind='access'):
    os.setxattr(path, 'system.posix_acl_' + kind, acl((1, 7, N), (2, 5, user), (4, 5, N), (16, 5, N), (32, 0, N)))
";

#[test]
fn access_control_lists_of_xfs() {
    let scene = Scene::new();
    let Some(_dir) = mounted(&scene, "xfs", "320M", "") else { return };
    let dir = scene.path("dir");
    let prepare = |name: &str| {
        tree::run(&dir, &format!("mkdir -p {name}/d; echo 1 > {name}/f; echo 1 > {name}/g"));
        let set = format!("{ACL}to('d', 7, 'default'); to('f', 7); to('g', 7)");
        assert!(python(&dir.join(name), &set, &[]).is_some());
        tree::run(&dir.join(name), "touch -d 2001-01-01 d f g");
        dir.join(name)
    };
    let script = format!(
        "mkdir d/e d/plain; echo > d/e/f; cp f h; python3 -c \"{ACL}to('f', 8)
to('new', 9) if os.path.exists('new') else None
os.removexattr('d/plain', 'system.posix_acl_access'); os.removexattr('d/plain', 'system.posix_acl_default')
os.removexattr('g', 'system.posix_acl_access'); os.removexattr('d', 'system.posix_acl_default')\""
    );
    let native = prepare("native");
    let since = await_news();
    tree::run(&native, &script);
    let expected = comparable(manifest(&native), since);
    for operations in (0..60).rev().step_by(3) {
        let tried = prepare("tried");
        let options = format!("--yes --report=none --crash-after={operations}");
        let outcome = Try::new(&scene, &options).sh(&format!("cd tried; {script}"));
        if outcome.status == 125 {
            let resumed = resume(&scene);
            assert_eq!(resumed.status, 0, "after {operations}: {}", resumed.stderr);
        }
        assert_same(&expected, &comparable(manifest(&tried), since), &format!("after {operations}"));
        std::fs::remove_dir_all(tried).unwrap();
    }
}
