//! BlueFS from the command line: the same work on a directory and on a mount, transactions, a server that goes away,
//! and a store that is damaged. Mounts need root.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::bluefs_support as support;

use support::{speculator, succeeds, text, Mount, Scene, Server};

/// What is done on both, each in an empty directory of its own. What differs by nature (inode numbers, sizes of
/// directories, times) is not shown.
const WORK: &str = r#"
umask 022
show() {
    find . -mindepth 1 -printf '%P %y %m %n %l\n' | sort
    find . -type f -printf '%P %s ' -exec md5sum {} \; | sort
}
mkdir -p a/b/c; echo one > a/one; cp a/one a/b/two; ln a/one a/b/link; ln -s ../one a/b/soft; cat a/b/soft
mkfifo pipe; (echo through > pipe &) ; cat pipe
mv a/b a/moved; mv a/moved/c .; rmdir c; rmdir a; echo rmdir $?
mkdir a/in; mv a a/in 2>/dev/null; echo cycle $?
for i in 1 2 3; do echo line $i >> log; done; cat log
seq 1 200000 > big; md5sum < big; truncate -s 1000 big; truncate -s 300000 big; md5sum < big
dd if=/dev/zero of=hole bs=1 seek=500000 count=1 2>/dev/null; stat -c %s hole
fallocate -p -o 0 -l 100000 big; md5sum < big
fallocate -o 299990 -l 50000 big; stat -c %s big; md5sum < big
fallocate -n -o 400000 -l 70000 big; stat -c %s big; md5sum < big
fallocate -z -o 200000 -l 99999 big; md5sum < big; fallocate -z -n -o 340000 -l 50000 big; stat -c %s big
truncate -s 345000 big; truncate -s 420000 big; md5sum < big; fallocate -l 9 big 9< big; stat -c %s big
python3 -c 'import os, errno
def tried(*of):
    try: print(os.posix_fallocate(*of))
    except OSError as e: print(errno.errorcode[e.errno])
f = os.open("big", os.O_RDWR)
tried(f, 0, 0); tried(f, 0, 1 << 62); tried(os.open("big", os.O_RDONLY), 0, 9); tried(os.pipe()[1], 0, 9)
tried(f, 430000, 9); print(os.fstat(f).st_size)'
chmod 600 log; chmod 4755 hole; chown 1000:1000 one 2>/dev/null; echo chown $?
chown 7:8 log; stat -c '%u %g %a' log hole
touch -d 2001-02-03T04:05:06 a/one; stat -c %Y a/one a/moved/link
exec 5< log; rm log; cat <&5; exec 5<&-; ls log 2>/dev/null; echo gone $?
cp /bin/true run; ./run; echo ran $?; chmod 644 run; ./run 2>/dev/null; echo ran $?
tar -cf t.tar a && mkdir out && tar -xf t.tar -C out && diff -r a out/a && echo same
mkdir many; for i in $(seq 1 300); do : > many/file-$i; done; ls many | wc -l
rm many/file-1*; ls many | wc -l; rm -r many t.tar
python3 - <<'P'
import os, fcntl, errno
f = os.open('data', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
try: os.open('data', os.O_CREAT | os.O_EXCL)
except OSError as e: print(errno.errorcode[e.errno])
os.pwrite(f, b'0123456789', 5); print(os.pread(f, 100, 0), os.fstat(f).st_size)
g = os.open('data', os.O_WRONLY | os.O_APPEND); os.write(g, b'x'); os.write(g, b'y'); print(os.fstat(f).st_size)
fcntl.lockf(f, fcntl.LOCK_EX)
pid = os.fork()
if pid == 0:
    h = os.open('data', os.O_RDWR)
    try: fcntl.lockf(h, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e: os._exit(7 if e.errno == errno.EAGAIN else 8)
    os._exit(0)
print('other', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.close(os.open('data', os.O_RDONLY))
pid = os.fork()
if pid == 0:
    fcntl.lockf(os.open('data', os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(0)
print('closed', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.setxattr('data', 'user.note', b'value'); print(os.getxattr('data', 'user.note'), os.listxattr('data'))
os.mkdir('many')
for call in (lambda: os.rename('none', 'x'), lambda: os.rmdir('data'), lambda: os.unlink('many'),
             lambda: os.mkdir('data/x'), lambda: os.open('a/none', 0), lambda: os.mkdir('x' * 256),
             lambda: os.link('many', 'l'), lambda: os.readlink('data'), lambda: os.setxattr('data', 'user.x', b'', 2)):
    try: call(); print('done')
    except OSError as e: print(errno.errorcode[e.errno])
P
su nobody -s /bin/sh -c 'cat run > /dev/null; echo read $?; echo x > run; echo write $?
: > own; echo create $?' 2>/dev/null
chmod 777 .
su nobody -s /bin/sh -c ': > own; stat -c "%U %a" own; chmod 400 own; echo x > own; echo write $?
rm -f run; echo $?' 2>/dev/null
show
"#;

fn work_in(dir: &Path) -> Output {
    std::fs::create_dir_all(dir).expect("a directory");
    let mut command = Command::new("timeout");
    command.args(["120", "bash", "-c", WORK]).current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null());
    command.output().expect("bash")
}

#[test]
fn the_same_work_natively_and_on_a_mount() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    // Nobody else passes through a private directory of root's.
    std::fs::set_permissions(scene.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let (native, mounted) = (work_in(&scene.path("native")), work_in(&mount.0.join("work")));
    assert!(native.status.success(), "{}", text(&native.stderr));
    let (native_text, mounted_text) = (text(&native.stdout), text(&mounted.stdout));
    for (i, (mounted, native)) in mounted_text.lines().zip(native_text.lines()).enumerate() {
        assert_eq!(mounted, native, "line {i}");
    }
    assert_eq!(mounted.status, native.status, "{}", text(&mounted.stderr));
    let (native, mounted) = (native_text.lines().count(), mounted_text.lines().count());
    assert!(native == mounted && native > 60, "{native} lines and {mounted}\n{native_text}");
    succeeds(Command::new("umount").arg(&mount.0));
    drop((mount, server));
    assert!(succeeds(speculator().arg("fsck").arg(scene.path("store"))).ends_with(": clean\n"));
}

#[test]
fn two_mounts_see_each_others_changes_at_once() {
    let scene = Scene::new();
    let server = scene.serve();
    let (a, b) = scene.two_mounts(&server);
    for i in 0..50 {
        let name = format!("file{}", i % 3);
        std::fs::write(a.0.join(&name), format!("{i}")).expect("written");
        assert_eq!(std::fs::read_to_string(b.0.join(&name)).expect("read"), format!("{i}"));
        std::fs::rename(b.0.join(&name), b.0.join("other")).expect("renamed");
        assert!(!a.0.join(&name).exists() && a.0.join("other").exists());
    }
}

#[test]
fn what_was_acknowledged_survives_the_servers_death() {
    let scene = Scene::new();
    let server = scene.serve();
    let port = server.port().to_owned();
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    for i in 0..20 {
        std::fs::write(mount.0.join(format!("{i}")), format!("{i}")).expect("written");
    }
    drop(server);
    let file = mount.0.join("later");
    let writing = std::thread::spawn(move || std::fs::write(file, "later"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!writing.is_finished(), "it waits for the server");
    let _server = Server::start(&scene.path("store"), &format!("127.0.0.1:{port}"));
    writing.join().expect("no panic").expect("written");
    for i in 0..20 {
        assert_eq!(std::fs::read_to_string(mount.0.join(format!("{i}"))).expect("read"), format!("{i}"));
    }
    assert_eq!(std::fs::read_to_string(mount.0.join("later")).expect("read"), "later");
}

#[track_caller]
fn ends_soon(child: &mut Child) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        match child.try_wait().expect("a child") {
            Some(status) => return status,
            None if begun.elapsed() > Duration::from_secs(20) => panic!("it hangs"),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Writes a file `d/file` that no mount knows: to read it a mount has to ask.
fn write_unseen(scene: &Scene, server: &Server) {
    std::fs::write(scene.path("list"), "mkdir d\nwrite d/file x\n").expect("written");
    succeeds(speculator().args(["bluefs", "batch", "--plain", &server.address]).arg(scene.path("list")));
}

#[test]
fn without_a_server_nothing_hangs_that_is_to_end() {
    let scene = Scene::new();
    let server = scene.serve();
    write_unseen(&scene, &server);
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    drop(server);
    let mut readers: Vec<Child> =
        (0..40).map(|_| Command::new("cat").arg(mount.0.join("d/file")).spawn().expect("cat")).collect();
    std::thread::sleep(Duration::from_millis(300));
    for (i, reader) in readers.iter_mut().enumerate() {
        assert!(reader.try_wait().expect("a child").is_none(), "it waits");
        let signal = if i % 2 == 0 { rustix::process::Signal::KILL } else { rustix::process::Signal::INT };
        let pid = rustix::process::Pid::from_raw(reader.id() as i32).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("sent");
        assert_eq!(ends_soon(reader).signal(), Some(signal.as_raw()));
    }
    let mut umount = Command::new("umount").arg(&mount.0).spawn().expect("umount");
    assert!(ends_soon(&mut umount).success());
    assert!(!mount.is_there());
}

#[test]
fn without_a_server_programs_get_an_error_if_it_is_wanted() {
    let scene = Scene::new();
    let server = scene.serve();
    write_unseen(&scene, &server);
    let mount = Mount::new(&server.address, &scene.path("mount"), &["--on-disconnect=error"]);
    drop(server);
    let mut cat = Command::new("cat").arg(mount.0.join("d/file")).stderr(Stdio::null()).spawn().expect("cat");
    assert_eq!(ends_soon(&mut cat).code(), Some(1));
}

#[test]
fn a_batch_from_standard_input() {
    let scene = Scene::new();
    let server = scene.serve();
    let list = scene.path("list");
    std::fs::write(&list, "mkdir d\nwrite d/a 'one two'\nrename d e\n").expect("written");
    let told = succeeds(speculator().args(["bluefs", "batch", "--plain", &server.address]).arg(&list));
    assert_eq!(told, "3 operations are on the server's disk, as commit 1\n");
    std::fs::write(&list, "write e/b x\nremove e/none\n").expect("written");
    let failed =
        speculator().args(["bluefs", "batch", "--plain", &server.address]).arg(&list).output().expect("it starts");
    assert_eq!(failed.status.code(), Some(125));
    let expected = format!("speculator: {}: line 2: No such file or directory; nothing was changed\n", list.display());
    assert_eq!(text(&failed.stderr), expected);
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    assert_eq!(std::fs::read_to_string(mount.0.join("e/a")).expect("read"), "one two");
    assert!(!mount.0.join("e/b").exists());
}

#[track_caller]
fn fails(command: &mut Command, status: i32, says: &str) {
    let output = command.output().expect("it starts");
    let told = text(&output.stderr) + &text(&output.stdout);
    assert_eq!((output.status.code(), told.lines().count()), (Some(status), 1), "{told}");
    assert!(told.contains(says), "{told}");
}

#[test]
fn failures_are_one_line() {
    let scene = Scene::new();
    let (store, other) = (scene.path("store"), scene.path("other"));
    std::fs::create_dir(&other).expect("a directory");
    std::fs::write(other.join("file"), "x").expect("written");
    fails(
        speculator().args(["serve", "--plain", "--listen", "127.0.0.1:0"]).arg(&other),
        125,
        "no store, and not empty",
    );
    fails(speculator().args(["serve", "--plain", "--listen", "0.0.0.0:0"]).arg(&store), 125, "could do everything");
    fails(speculator().arg("fsck").arg(scene.path("none")), 125, "there is no store");
    fails(speculator().args(["mount", "--plain", "bluefs://127.0.0.1:1/"]).arg(&other), 125, "Connection refused");
    fails(speculator().args(["mount", "ftp://x"]).arg(&other), 125, "no address of a volume");
    // Whoever has to mend two things is not to start a server for the first before hearing of the second.
    for (at, says) in [(other.join("file"), "Not a directory"), (scene.path("none"), "No such file or directory")] {
        fails(speculator().args(["mount", "--plain", "bluefs://127.0.0.1:1/"]).arg(at), 125, says);
    }
    for size in [["--cache-size", "1G"], ["-o", "cache-size=1G"]] {
        let mut mount = speculator();
        fails(
            mount.args(["mount", "--plain", "bluefs://127.0.0.1:1/"]).args(size).arg(&other),
            125,
            "give --cache DIR",
        );
    }
    let server = scene.serve();
    fails(
        speculator().args(["serve", "--plain", "--listen", "127.0.0.1:0"]).arg(&store),
        125,
        "another process uses this store",
    );
    fails(
        speculator().args(["mount", "--plain", &format!("{}/none", server.address)]).arg(&other),
        125,
        "no such volume",
    );
    let nowhere = scene.path("nowhere");
    fails(speculator().args(["mount", "--plain", &server.address]).arg(nowhere), 125, "No such file or directory");
}

#[test]
fn a_client_is_plain_only_if_it_is_said_and_on_this_machine() {
    let scene = Scene::new();
    let server = scene.serve();
    let (list, dir) = (scene.path("list"), scene.path("mount"));
    std::fs::write(&list, "mkdir d\n").expect("written");
    std::fs::create_dir(&dir).expect("a directory");
    // If a command mounts that must not, it is taken off.
    let mounted = Mount(dir.clone());
    let invitation = succeeds(speculator().arg("invite").arg(scene.path("store")));
    let file = scene.path("invitation");
    std::fs::write(&file, &invitation).expect("written");
    let mount_list = format!("plain,invitation={}", file.display());
    for (command, at) in [(&["mount"][..], &dir), (&["bluefs", "batch"], &list)] {
        let with = |address: &str, options: &[&str]| {
            let mut with = speculator();
            with.args(command).args(options).arg(address).arg(at);
            with
        };
        let needed = format!("cannot connect to {}/: an invitation is needed; give --invitation FILE", server.address);
        fails(&mut with(&server.address, &[]), 125, &needed);
        for elsewhere in ["192.0.2.1", "[2001:db8::1]"] {
            let address = format!("bluefs://{elsewhere}:{}/", server.port());
            let place = elsewhere.trim_matches(['[', ']']);
            fails(&mut with(&address, &["--plain"]), 125, &format!("{place} is not a loopback address"));
        }
        let both = ["--plain", "--invitation", file.to_str().expect("a path")];
        fails(&mut with(&server.address, &both), 125, "at once; leave one of them out");
        let environment = ("SPECULATOR_INVITATION", invitation.trim());
        let mut plain = with(&server.address, &["--plain"]);
        fails(plain.envs([environment]), 125, "(SPECULATOR_INVITATION) at once");
    }
    let mount = |list: &str| {
        let mut mount = speculator();
        mount.args(["mount", &server.address, "-o", list]).arg(&dir);
        mount
    };
    fails(&mut mount(&mount_list), 125, "at once; leave one of them out");
    succeeds(&mut mount("plain"));
    assert!(mounted.is_there());
}

#[test]
fn a_damaged_store_is_not_served() {
    let scene = Scene::new();
    let server = scene.serve();
    std::fs::write(scene.path("list"), "write a one\n").expect("written");
    succeeds(speculator().args(["bluefs", "batch", "--plain", &server.address]).arg(scene.path("list")));
    drop(server);
    let log = std::fs::read_dir(scene.path("store")).expect("a store").map(|entry| entry.expect("an entry").path());
    let log = log.filter(|path| path.to_string_lossy().contains("log-")).max().expect("a log");
    let mut bytes = std::fs::read(&log).expect("read");
    // Behind the records there are zeros.
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("records");
    bytes[end / 2] ^= 4;
    std::fs::write(&log, bytes).expect("written");
    fails(
        speculator().args(["serve", "--plain", "--listen", "127.0.0.1:0"]).arg(scene.path("store")),
        125,
        "the store is damaged: record",
    );
    fails(speculator().arg("fsck").arg(scene.path("store")), 1, "damaged: record");
}

#[test]
fn who_is_invited_comes_in_and_nobody_else() {
    let scene = Scene::new();
    let (store, list) = (scene.path("store"), scene.path("list"));
    let server = Server::with(&store, &["--listen", "127.0.0.1:0", "--volume", "work"]);
    std::fs::write(&list, "mkdir d\n").expect("written");
    let invite = |name: &str, options: &[&str]| {
        let told = succeeds(speculator().arg("invite").arg(&store).args(options));
        std::fs::write(scene.path(name), told).expect("written");
        scene.path(name)
    };
    let batch = |address: &str, invitation: &Path| {
        let mut command = speculator();
        command.args(["bluefs", "batch", address, "--invitation"]).arg(invitation).arg(&list);
        command
    };
    let (writer, reader) =
        (invite("writer", &["--volume", "work"]), invite("reader", &["--volume=work", "--read-only"]));
    let brief = invite("brief", &["--volume", "work", "--expires", "0s"]);
    succeeds(&mut batch(&server.address, &writer));
    fails(&mut batch(&server.address, &reader), 125, "Read-only file system");
    fails(&mut batch(&server.address, &brief), 125, "no right to it");
    fails(&mut batch(&format!("{}/default", server.address), &writer), 125, "no right to it");
    fails(speculator().args(["bluefs", "batch", "--plain", &server.address]).arg(&list), 125, "cannot connect");
    // Another server at the same address is not the one that has invited.
    let other = Server::with(&scene.path("other"), &["--listen", "127.0.0.1:0", "--volume", "work"]);
    fails(&mut batch(&other.address, &writer), 125, "cannot connect");

    let mount = Mount::new(&server.address, &scene.path("mount"), &["--invitation", writer.to_str().expect("a path")]);
    std::fs::write(mount.0.join("d/file"), vec![b'x'; 3 << 20]).expect("written");
    assert_eq!(std::fs::read(mount.0.join("d/file")).expect("read"), vec![b'x'; 3 << 20]);
    let listed = succeeds(speculator().arg("invite").arg(&store).arg("--list"));
    let number = listed.lines().find(|line| line.contains("read-write")).expect("it is listed");
    let number = number.split(' ').next().expect("a number");
    succeeds(speculator().arg("invite").arg(&store).args(["--withdraw", number]));
    let begun = Instant::now();
    while std::fs::metadata(mount.0.join("d")).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the mount still works");
        std::thread::sleep(Duration::from_millis(50));
    }
    fails(&mut batch(&server.address, &writer), 125, "no right to it");
}
