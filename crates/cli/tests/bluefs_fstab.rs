//! A mount by mount(8): a line of `fstab`, other options for a mount that is there, and what is refused. What is behind
//! a mount keeps nothing of whoever has made it.

use crate::bluefs_support as support;

use std::process::Command;

use support::{speculator, succeeds, text, Mount, Scene, Server};

/// mount(8) looks for its helpers in /sbin only, and notes in /run what it has mounted. Both are this script's own, in
/// a namespace. `$1` is the program, `$2` the server's address, `$3` a directory to work in.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs none /run
mount -t tmpfs none "$3"
mkdir "$3/upper" "$3/work" "$3/dir"
mount -t overlay none -o "lowerdir=/usr/sbin,upperdir=$3/upper,workdir=$3/work" /usr/sbin
ln -s "$1" /usr/sbin/mount.fuse.bluefs
cd "$3"
echo "$2 $3/dir fuse.bluefs plain,_netdev,noexec,on-disconnect=error,x-test 0 0" > fstab
mount -T fstab dir
echo written > dir/file
cp /bin/true dir/program; ./dir/program 2>/dev/null || echo noexec
mount -o remount,ro dir
cat dir/file; (echo more > dir/file) 2>/dev/null || echo read-only
findmnt -no OPTIONS dir | tr , '\n' | grep -x -e ro -e nosuid -e nodev -e noexec | sort | paste -sd' '
mount -o remount,rw dir
echo more > dir/file; cat dir/file
umount dir
mount -f -T fstab dir; ls dir
echo "$2 $3/dir fuse.bluefs roo 0 0" > fstab
mount -T fstab dir 2>&1 && echo mounted || echo status $?
mount -i -t fuse.bluefs "$2" dir 2>/dev/null && echo mounted || echo "without the helper: no"
echo "bluefs://127.0.0.1:1/ $3/dir fuse.bluefs plain 0 0" > fstab
mount -T fstab dir 2>/dev/null && echo mounted || echo status $?
"#;

const SAID: &str = "noexec
written
read-only
nodev noexec nosuid ro
more
speculator: roo is no option of a BlueFS mount; see speculator mount --help
status 1
without the helper: no
status 32
";

#[test]
fn a_line_of_fstab_mounts_a_volume() {
    let scene = Scene::new();
    let (server, work) = (scene.serve(), scene.path("work"));
    std::fs::create_dir(&work).unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", SCRIPT, "sh", env!("CARGO_BIN_EXE_speculator"), &server.address])
        .arg(&work)
        .output()
        .expect("unshare(1)");
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), (SAID, ""), "{}", output.status);
}

/// Somebody's working directory and a descriptor of theirs are on a file system that is to go. An invitation may be a
/// descriptor, and paths are as whoever names them sees them.
const FROM_ELSEWHERE: &str = r#"
set -e
cd "$3"
mkdir elsewhere dir
mount -t tmpfs none elsewhere
cd elsewhere
echo "$4" > invitation
exec 7> open 8< invitation
"$1" mount --invitation /dev/fd/8 --cache ../cache "$2" ../dir
exec 7>&- 8<&-
cd ..
umount elsewhere
echo written > dir/file
cat dir/file
ls cache | grep -x lock
umount dir
"#;

#[test]
fn a_mount_keeps_no_directory_and_no_descriptor_of_whoever_makes_it() {
    let scene = Scene::new();
    let (server, work) = (Server::with(&scene.path("store"), &["--listen", "127.0.0.1:0"]), scene.path("work"));
    std::fs::create_dir(&work).unwrap();
    let invitation = succeeds(speculator().arg("invite").arg(scene.path("store")));
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-c", FROM_ELSEWHERE, "bash", env!("CARGO_BIN_EXE_speculator"), &server.address]);
    let output = command.arg(&work).arg(invitation.trim()).output().expect("unshare(1)");
    let said = (text(&output.stdout), text(&output.stderr));
    assert_eq!(said, ("written\nlock\n".to_owned(), String::new()), "{}", output.status);
}

#[test]
fn what_cannot_be_mounted_is_told_without_numbers() {
    let scene = Scene::new();
    let server = scene.serve();
    let mut command = speculator();
    command.args(["mount", "--plain", &server.address]).arg(scene.path("nowhere"));
    let output = command.output().expect("it starts");
    let why = format!(
        "speculator: cannot mount at {}: look at the directory: No such file or directory; is the directory there? see \
         speculator doctor, too\n",
        scene.path("nowhere").display()
    );
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(125), why));
}

/// For want of descriptors a mount fails at each place at which it needs one.
#[test]
fn a_mount_that_fails_late_leaves_no_mount_point() {
    const LIMITED: &str = r#"ulimit -n "$1"; shift; exec "$@""#;
    let scene = Scene::new();
    let (server, dir) = (scene.serve(), scene.path("dir"));
    std::fs::create_dir(&dir).unwrap();
    let (mount, mut told) = (Mount(dir.clone()), String::new());
    for descriptors in 6..64 {
        let mut command = Command::new("sh");
        command.args(["-c", LIMITED, "sh", &descriptors.to_string(), env!("CARGO_BIN_EXE_speculator"), "mount"]);
        let output = command.args(["--plain", &server.address]).arg(&dir).output().expect("it starts");
        assert_eq!(mount.is_there(), output.status.success(), "{descriptors}: {}", text(&output.stderr));
        if output.status.success() {
            break;
        }
        told += &text(&output.stderr);
    }
    assert!(mount.is_there(), "{told}");
    assert!(told.contains("start a process that forgets names"), "none has failed behind mount(2): {told}");
}
