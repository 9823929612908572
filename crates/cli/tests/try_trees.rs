//! Files: whatever a script does to a tree with every kind of object in it, `try` undoes it exactly, and keeps it
//! exactly as if the script had been run without it.

use crate::support;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use support::manifest::{assert_same, await_news, comparable, manifest};
use support::{can_mount, tree};
use tempfile::TempDir;

/// A folder on each kind of file system that a layer can be on.
fn folders() -> Vec<TempDir> {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(tempfile::tempdir_in("/dev/shm").ok());
    folders
}

/// Runs `speculator try` on a script in `root`; the layer is made in `folder`.
fn attempt(folder: &Path, root: &Path, decision: &str, script: &str) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["try", decision, "--layer-dir"]).arg(folder).args(["--", "sh", "-c", script]);
    command.current_dir(root).stdin(Stdio::null()).process_group(0);
    command.output().unwrap()
}

/// Undoes it, then keeps it, and compares.
#[track_caller]
fn check(script: &str) {
    if !can_mount() {
        return;
    }
    for folder in folders() {
        let (native, tried) = (folder.path().join("native"), folder.path().join("tried"));
        tree::build(&native);
        tree::build(&tried);
        let what = format!("{}: {script}", folder.path().display());

        let before = manifest(&tried);
        let output = attempt(folder.path(), &tried, "--no", script);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        assert_same(&before, &manifest(&tried), &format!("undone: {what}"));

        let since = await_news();
        tree::run(&native, script);
        let output = attempt(folder.path(), &tried, "--yes", script);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let (expected, found) = (comparable(manifest(&native), since), comparable(manifest(&tried), since));
        assert_ne!(expected, comparable(before, since), "{what}: the script must do something");
        assert_same(&expected, &found, &format!("kept: {what}"));
        nothing_left(folder.path());
    }
}

/// No loop device on a file of ours, no mount, no file.
#[track_caller]
fn nothing_left(folder: &Path) {
    let name = folder.to_str().unwrap();
    let traces = || -> Vec<String> {
        let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
        let files = devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let lines: Vec<String> = mounts.lines().map(str::to_owned).collect();
        files.chain(lines).filter(|line| line.contains(name)).collect()
    };
    // The kernel takes a namespace apart when its last process has been reaped, a little later.
    for _ in 0..100 {
        if traces().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(traces(), Vec::<String>::new());
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["native", "tried"]);
}

#[test]
fn contents() {
    check("echo more >> dir/one; : > dir/two; printf X | dd of=large bs=1 seek=300000 conv=notrunc status=none; truncate -s 5 other/file");
}

#[test]
fn holes() {
    check(
        "printf new | dd of=sparse bs=1M seek=30 conv=notrunc status=none; fallocate -p -o 65536 -l 65536 large;
         truncate -s 9M holes; printf end | dd of=holes bs=1M seek=8 conv=notrunc status=none; truncate -s 20M dir/one;
         dd if=/dev/zero of=zeros bs=64K seek=2 count=1 conv=notrunc status=none; cp --sparse=always sparse copy",
    );
}

#[test]
fn modes_and_owners() {
    check("chmod 4711 dir/one; chown 33:44 dir/two other; chmod 700 dir; chmod 644 modes/none; chown 5 modes/setuid; chgrp 9 symlink -h; chmod 600 fifo; mkdir modes/shared/new; echo > modes/shared/file");
}

#[test]
fn attributes() {
    check(
        "python3 -c 'import os, struct
os.setxattr(\"attributes\", \"user.one\", b\"other\"); os.removexattr(\"attributes\", \"user.two\"); os.setxattr(\"dir\", \"user.new\", b\"n\")
os.removexattr(\"attributes\", \"system.posix_acl_access\"); os.removexattr(\"attributed\", \"user.dir\")
os.setxattr(\"dir/one\", \"user.big\", b\"v\" * 2000)
os.setxattr(\"dir/two\", \"security.capability\", struct.pack(\"<IIIII\", 0x02000001, 0x400, 0, 0, 0))'
         mkdir attributed/inherits; echo > attributed/file",
    );
}

#[test]
fn times() {
    check("touch -d '1999-12-31 23:59:59.987654321' dir/one dir other/file fifo; touch -h -d '1998-01-01' symlink; touch -d '2036-06-06' times .; touch empty");
}

#[test]
fn hard_links() {
    check("ln link-a new-name; ln dir/one other/one; rm link-b; ln other/one again; ln -f pair-a dir/two; ln symlink symlink2; ln fifo fifo2");
}

#[test]
fn a_hard_link_changed_under_one_name_shows_under_all() {
    check("echo more >> link-a; chmod 600 pair-b; touch -d '2011-11-11' dir/link-c");
}

#[test]
fn a_hard_link_changed_under_a_name_that_is_gone() {
    check("echo more >> link-a; rm link-a; echo more >> pair-a; mv pair-a pair-c; rm pair-c");
}

#[test]
fn hard_links_of_new_files() {
    check("echo new > n1; ln n1 n2; ln n2 dir/n3; mv n1 empty/n4; echo more >> n2");
}

#[test]
fn renamed_files() {
    check("mv dir/one dir/uno; mv dir/two other/; mv other/file dir/sub/deep/; mv large small; echo more >> small; mv link-b empty/; mv fifo pipe; mv device other/; mv symlink other/; mv -T dangling empty/d");
}

#[test]
fn files_that_swap_their_names() {
    check("mv dir/one t; mv dir/two dir/one; mv t dir/two; mv other/file t; mv other/swap other/file; mv t other/swap; echo more >> other/swap");
}

#[test]
fn renamed_directories() {
    check("mv dir renamed; echo more >> renamed/one; rm renamed/two; mv renamed/sub/deep renamed/sub/deeper; mkdir renamed/new; echo x > renamed/new/x");
}

#[test]
fn nested_renames() {
    check("mv dir/sub/deep dir/sub/d; mv dir/sub dir/s; mv dir d; mv d/s/d empty/moved; mv empty/moved/file empty/moved/f; mv d other/d; mv other o");
}

#[test]
fn directories_that_swap_their_names() {
    check("mv dir t; mv other dir; mv t other; echo more >> other/one; mv other/sub dir/sub; mv dir/file other/");
}

#[test]
fn a_directory_turned_inside_out() {
    check("mv dir/sub t; mv dir t/dir; mv t dir");
}

#[test]
fn a_file_becomes_a_directory_and_a_directory_a_file() {
    check("rm dir/one; mkdir dir/one; echo x > dir/one/x; rm -r dir/sub; echo x > dir/sub; rm fifo; ln -s dir fifo; rm symlink; mkfifo symlink; rm dirlink; mkdir dirlink");
}

#[test]
fn a_directory_that_is_made_again() {
    check("rm -r dir; mkdir dir; echo other > dir/one; mkdir dir/sub; rm -r many; mkdir many; for i in $(seq 100 250); do echo $i > many/$i; done");
}

#[test]
fn what_moved_out_of_a_directory_that_is_made_again() {
    check("mv dir/sub/three kept; mv dir/sub/deep t; rm -r dir; mkdir -p dir/sub; mv t dir/sub/deep; mv kept dir/sub/three; echo more >> dir/sub/three");
}

#[test]
fn what_replaces_by_renaming() {
    check("cp dir/one dir/.one.tmp; echo more >> dir/.one.tmp; mv dir/.one.tmp dir/one; sed -i s/two/zwei/ dir/two; sed -i s/linked/l/ link-a; ln -sf other symlink");
}

#[test]
fn every_kind_is_made() {
    check("mkfifo f; mknod c c 1 5; mknod b b 7 98; ln -s target s; mkdir -m 3770 d; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; install -m 4755 -o 7 -g 8 large program; mkdir -p a/b/c/d/e; chmod 0 fifo; mv socket socket2; mv block b2");
}

#[test]
fn every_kind_is_removed() {
    check("rm -f fifo device block socket symlink dangling dirlink sparse link-a attributes; rm -r modes times attributed");
}

#[test]
fn remove_everything() {
    check("rm -rf ..?* .[!.]* *");
}

#[test]
fn odd_names() {
    check("for f in *name* new* not* nnn*; do echo more >> \"$f\"; done; mkdir \"$(printf 'b\\\\ad,:=\\376')\"; mv new* b*/; echo x > \"$(printf 'esc\\033[1m')\"; mkdir ' '; mv dir ' /d d'");
}

#[test]
fn what_was_read_or_opened_is_not_changed() {
    check("cat large > /dev/null; python3 -c 'open(\"dir/one\", \"r+\").close()'; cat sparse dir/two | wc -c > count; touch count -d 2012-12-12");
}

#[test]
fn the_comparison_sees_each_difference() {
    for script in [
        "chmod 601 large",
        "chown 1 large",
        "touch -d '2001-02-03 04:05:06.123456788' large",
        "printf x >> large",
        "ln large l",
        "rm dir/link-c; cp -p link-a dir/link-c",
        "fallocate -p -o 0 -l 4096 zeros",
        "rm fifo",
        "echo > new",
        "python3 -c 'import os; os.setxattr(\"large\", \"user.x\", b\"\")'",
        "ln -sfn other dirlink",
    ] {
        let folder = tempfile::tempdir().unwrap();
        tree::build(folder.path());
        let before = comparable(manifest(folder.path()), i64::MAX);
        tree::run(folder.path(), &format!("{script}; touch -d '2001-02-03 04:05:06.123456789' . dir"));
        assert_ne!(before, comparable(manifest(folder.path()), i64::MAX), "{script}");
    }
}
