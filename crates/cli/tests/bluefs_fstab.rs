//! A mount by mount(8): a line of `fstab`, other options for a mount that is there, and what is refused.

use crate::bluefs_support as support;

use std::process::Command;

use support::{text, Scene};

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
