//! Who may do what, and what is set, compared with what the local file system does. Mounts need root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::bluefs_support::{succeeds, Mount, Scene};

/// Runs this for a local directory and for a mount, with a directory of each in which `prepare` was run: it says the
/// same.
#[track_caller]
fn says_the_same(prepare: &str, run: impl Fn(&Path) -> String) {
    let scene = Scene::new();
    // Others than root get to both.
    fs::set_permissions(scene.dir.path(), Permissions::from_mode(0o755)).expect("an own directory");
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    let said = [scene.path("local"), mount.0.join("dir")].map(|dir| {
        fs::create_dir(&dir).expect("a directory");
        succeeds(Command::new("sh").args(["-ec", prepare]).current_dir(&dir));
        run(&dir)
    });
    assert_eq!(said[1], said[0]);
    assert!(!said[0].is_empty());
}

/// What a shell says as this user, with these options of setpriv(1).
fn said(dir: &Path, options: &[&str], script: &str) -> String {
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid=1000", "--regid=1000"]).args(options).args(["sh", "-c", script]);
    succeeds(setpriv.current_dir(dir).env("LC_ALL", "C"))
}

#[test]
fn capabilities_are_as_good_as_being_root() {
    const PREPARE: &str = "
        echo secret > secret; chmod 000 secret; touch owned victim moved; mkdir closed sticky; chmod 700 closed
        chmod 1755 sticky; touch sticky/file closed/inside; mkdir -m 2755 group; chgrp 55 group";
    const SCRIPT: &str = "
        exec 2>&1
        touch new closed/new; mkdir dir; ln -s target link; mkfifo fifo; mkdir group/dir; touch group/file
        chown 5:6 owned; chmod 640 victim; cat secret; ls closed; rm -f sticky/file; mv moved closed/there
        ln secret closed/hard; touch -d 2001-01-01 victim; rmdir nothing; truncate -s 7 victim
        find . -printf '%P %m %U %G %y\\n' | sort";
    let all = "+dac_override,+chown,+fowner,+dac_read_search";
    for capabilities in [all, "+chown", "+fowner", "+dac_override", "+dac_read_search"] {
        let (inheritable, ambient) = (format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}"));
        says_the_same(PREPARE, |dir| said(dir, &["--clear-groups", &inheritable, &ambient], SCRIPT));
    }
}

/// A server is told 64 of them.
#[test]
fn of_many_groups_the_last_one_counts_too() {
    const PREPARE: &str = "
        mkdir shared from; chgrp 2099 shared; chmod 775 shared; chgrp 2098 from; chmod 775 from
        touch from/file; mkdir from/dir; chgrp 2097 from/dir; chmod 770 from/dir; touch readable
        chgrp 2096 readable; chmod 640 readable";
    const SCRIPT: &str = "
        exec 2>&1
        touch shared/new; chgrp 2095 shared/new; mv from/file from/dir shared; cat readable; ls shared/dir; rmdir from
        chgrp 3000 shared/new; chmod 2755 shared/new; find . -printf '%P %m %U %G\\n' | sort";
    let groups: Vec<String> = (2000..2100).map(|group| group.to_string()).collect();
    let groups = format!("--groups={}", groups.join(","));
    says_the_same(PREPARE, |dir| said(dir, &[&groups], SCRIPT));
}

#[test]
fn what_is_set_is_what_is_there() {
    const SCRIPT: &str = r#"
import os, sys
os.chdir(sys.argv[1])
for time in (-500_000_000, -1_500_000_000, -1, -3_000_000_000, 5):
    os.utime('file', ns=(time, time - 1))
    told = os.stat('file')
    print(told.st_atime_ns, told.st_mtime_ns)
def mode(path):
    return oct(os.stat(path).st_mode)
def unowned(path):
    os.chown(path, -1, -1)
    return mode(path)
for bits in (0o6755, 0o2644, 0o4755, 0o755):
    for path in ('file', 'dir'):
        os.chmod(path, bits)
        print(mode(path), unowned(path))
os.chmod('file', 0o4755)
os.seteuid(1000)
try:
    print(unowned('file'))
except OSError as error:
    print(error.strerror)
os.seteuid(0)
print(mode('file'))
"#;
    says_the_same("touch file; mkdir dir", |dir| succeeds(Command::new("python3").args(["-c", SCRIPT]).arg(dir)));
}

/// Found by comparing what calls do on a mount and on ext4.
#[test]
fn who_is_not_in_the_group_takes_its_bit_away_and_anybody_makes_a_whiteout() {
    const PREPARE: &str = "
        for name in written cut owned given; do echo text > $name; done; chown 1000:55 *; chmod 2645 *
        for name in others others-cut; do echo text > $name; chgrp 55 $name; chmod 2646 $name; done; chmod 777 .";
    const SCRIPT: &str = "
        exec 2>&1
        echo >> written; truncate -s 1 cut; chown 1000 owned; chgrp 1000 given; echo >> others; truncate -s 1 others-cut
        mknod null c 1 3; mknod whiteout c 0 0
        find . -printf '%P %m %U %G %y\\n' | sort";
    for groups in ["--clear-groups", "--groups=55"] {
        says_the_same(PREPARE, |dir| said(dir, &[groups], SCRIPT));
    }
}

#[test]
fn names_of_attributes_have_a_namespace() {
    const SCRIPT: &str = r#"
import os, sys
os.chdir(sys.argv[1])
for name in ('user.a', 'user.', 'trusted.a', 'trusted.', 'user', 'a', 'os2.a', 'system.a'):
    try:
        os.setxattr('file', name, b'x')
        print(name, 'is set')
    except OSError as error:
        print(name, error.strerror)
print(sorted(os.listxattr('file')))
"#;
    says_the_same("touch file", |dir| succeeds(Command::new("python3").args(["-c", SCRIPT]).arg(dir)));
}
