//! Two mounts of one volume: what one changes the other sees at once, whatever it had in its caches. Mounts need root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bluefs_support as support;

use support::{send, shown, speculator, succeeds, Foreground, Mount, Scene};

/// How long others wait for leases on what somebody has changed, and a little more.
const QUIET: Duration = Duration::from_millis(1_100);
/// How long a lease lasts, and for how long a test waits in vain.
const TERM: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(25);

fn names(dir: &Path) -> BTreeSet<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    fs::read_dir(dir).expect("a directory").map(name).collect()
}

/// Fills the caches of a mount with everything that is in a directory, and with what is not.
fn look_at_all(dir: &Path) {
    for name in names(dir) {
        let meta = fs::symlink_metadata(dir.join(&name)).expect("there");
        if meta.is_file() {
            fs::read(dir.join(&name)).expect("read");
        } else if meta.is_dir() {
            names(&dir.join(&name));
        }
    }
    assert!(!dir.join("none").exists() && !dir.join("moved").exists() && !dir.join("linked").exists());
}

#[test]
fn what_one_mount_changes_the_other_sees_at_once_with_caches_warm() {
    the_other_sees_at_once(&[]);
}

#[test]
fn what_one_mount_changes_the_other_sees_at_once_where_names_are_asked_about() {
    the_other_sees_at_once(&["--ask-names"]);
}

#[track_caller]
fn the_other_sees_at_once(options: &[&str]) {
    let scene = Scene::new();
    let server = scene.serve();
    let [a, b] = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), options));
    for round in 0..2 {
        // Each in its turn writes, and the other has seen everything before.
        let (writer, reader) = if round == 0 { (&a.0, &b.0) } else { (&b.0, &a.0) };
        let (w, r) = (writer.join(format!("{round}")), reader.join(format!("{round}")));
        fs::create_dir(&w).expect("a directory");
        for name in ["written", "appended", "cut", "removed", "replaced", "mode", "from", "twice"] {
            fs::write(w.join(name), format!("old {name}")).expect("written");
        }
        fs::write(w.join("large"), vec![b'o'; 3 << 20]).expect("written");
        fs::create_dir(w.join("dir")).expect("a directory");
        fs::write(w.join("dir/in"), "old").expect("written");
        std::os::unix::fs::symlink("one", w.join("soft")).expect("a link");
        std::thread::sleep(QUIET);
        look_at_all(&r);
        look_at_all(&r);
        let read = |name: &str| fs::read_to_string(r.join(name)).expect("read");

        fs::write(w.join("written"), "new").expect("written");
        assert_eq!((read("written"), fs::metadata(r.join("written")).expect("there").len()), ("new".to_owned(), 3));
        let mut file = fs::OpenOptions::new().append(true).open(w.join("appended")).expect("open");
        file.write_all(b" and new").expect("written");
        assert_eq!(read("appended"), "old appended and new");
        fs::OpenOptions::new().write(true).open(w.join("cut")).expect("open").set_len(3).expect("cut");
        assert_eq!(read("cut"), "old");
        fs::remove_file(w.join("removed")).expect("removed");
        assert!(!r.join("removed").exists() && !names(&r).contains("removed"));
        fs::write(w.join("other"), "another file").expect("written");
        assert!(names(&r).contains("other"));
        fs::rename(w.join("other"), w.join("replaced")).expect("renamed");
        assert_eq!(read("replaced"), "another file");
        fs::set_permissions(w.join("mode"), fs::Permissions::from_mode(0o600)).expect("a mode");
        assert_eq!(fs::metadata(r.join("mode")).expect("there").mode() & 0o7777, 0o600);
        fs::rename(w.join("from"), w.join("moved")).expect("renamed");
        assert!(!r.join("from").exists() && read("moved") == "old from");
        fs::hard_link(w.join("twice"), w.join("linked")).expect("a link");
        assert_eq!(
            (read("linked"), fs::metadata(r.join("twice")).expect("there").nlink()),
            ("old twice".to_owned(), 2)
        );
        fs::create_dir(w.join("none")).expect("a directory");
        assert!(r.join("none").is_dir());
        fs::remove_file(w.join("dir/in")).expect("removed");
        fs::remove_dir(w.join("dir")).expect("removed");
        assert!(!r.join("dir").exists());
        fs::remove_file(w.join("soft")).expect("removed");
        std::os::unix::fs::symlink("two", w.join("soft")).expect("a link");
        assert_eq!(fs::read_link(r.join("soft")).expect("a link"), Path::new("two"));
        fs::write(w.join("large"), vec![b'n'; 3 << 20]).expect("written");
        assert!(fs::read(r.join("large")).expect("read").iter().all(|byte| *byte == b'n'));
        assert_eq!(names(&r), names(&w));
    }
}

const COUNT: &str = r#"
import fcntl, os, sys
os.chdir(sys.argv[1])
f = os.open('count', os.O_RDWR); log = os.open('log', os.O_WRONLY | os.O_APPEND)
for i in range(30):
    fcntl.lockf(f, fcntl.LOCK_EX)
    n = int(os.pread(f, 20, 0)); os.pwrite(f, b'%d' % (n + 1), 0)
    fcntl.lockf(f, fcntl.LOCK_UN)
    os.write(log, b'%s %d\n' % (sys.argv[2].encode(), i))
"#;

#[test]
fn two_mounts_count_together_under_a_lock_and_append_to_one_file() {
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    fs::write(mounts[0].0.join("count"), "0").expect("written");
    fs::write(mounts[0].0.join("log"), "").expect("written");
    let start = |mount: &Mount, name: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", COUNT]).arg(&mount.0).arg(name).spawn().expect("python")
    };
    let both = [start(&mounts[0], "a"), start(&mounts[1], "b")];
    both.into_iter().for_each(|mut child| assert!(child.wait().expect("a child").success()));
    for mount in &mounts {
        assert_eq!(fs::read_to_string(mount.0.join("count")).expect("read"), "60");
        let log = fs::read_to_string(mount.0.join("log")).expect("read");
        let of = |who: &str| log.lines().filter(|line| line.starts_with(who)).map(str::to_owned).collect::<Vec<_>>();
        let all = |who: &str| (0..30).map(|i| format!("{who} {i}")).collect::<Vec<_>>();
        assert_eq!((of("a"), of("b"), log.lines().count()), (all("a"), all("b"), 60));
    }
}

/// A client that has leases hears nothing any more: who writes waits until they are over, and no longer.
#[track_caller]
fn writes_within_a_term_after(signal: Signal) {
    let scene = Scene::new();
    let server = scene.serve();
    let holder = Foreground::new(&server.address, &scene.path("holder"));
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    fs::write(writer.0.join("file"), "old").expect("written");
    std::thread::sleep(QUIET);
    for _ in 0..2 {
        assert_eq!(fs::read_to_string(holder.mount.0.join("file")).expect("read"), "old");
    }
    holder.signal(signal);
    let begun = Instant::now();
    fs::write(writer.0.join("file"), "new").expect("written");
    let took = begun.elapsed();
    assert!(took > TERM / 2 && took < PATIENCE, "it took {took:?}: the holder had a lease");
    if signal == Signal::STOP {
        holder.signal(Signal::CONT);
        assert_eq!(fs::read_to_string(holder.mount.0.join("file")).expect("read"), "new");
    }
    assert_eq!(fs::read_to_string(writer.0.join("file")).expect("read"), "new");
}

#[test]
fn a_stopped_client_is_waited_for_no_longer_than_a_term() {
    writes_within_a_term_after(Signal::STOP);
}

#[test]
fn a_killed_client_is_waited_for_no_longer_than_a_term() {
    writes_within_a_term_after(Signal::KILL);
}

#[test]
fn a_server_that_starts_again_waits_for_leases_only_if_there_were_any() {
    let scene = Scene::new();
    let server = scene.serve();
    // Transactions take no leases.
    fs::write(scene.path("list"), "write a one\n").expect("written");
    let address = server.address.clone();
    let batch = |address: &str| {
        let begun = Instant::now();
        succeeds(speculator().args(["bluefs", "batch", "--plain", address]).arg(scene.path("list")));
        begun.elapsed()
    };
    batch(&address);
    let port = server.port().to_owned();
    let holder = Foreground::new(&server.address, &scene.path("holder"));
    std::thread::sleep(QUIET);
    assert_eq!(fs::read_to_string(holder.mount.0.join("a")).expect("read"), "one");
    holder.signal(Signal::STOP);
    drop(server);
    let server = support::Server::start(&scene.path("store"), &format!("127.0.0.1:{port}"));
    let took = batch(&server.address);
    assert!(took > TERM / 2 && took < PATIENCE, "it took {took:?}: the holder may still have its lease");
    holder.signal(Signal::CONT);
    assert_eq!(fs::read_to_string(holder.mount.0.join("a")).expect("read"), "one");
    fs::write(scene.path("list"), "write a two\n").expect("written");
    batch(&server.address);
    assert_eq!(fs::read_to_string(holder.mount.0.join("a")).expect("read"), "two");
}

/// What somebody sees while the process of the mount is stopped: what the kernel says by itself.
#[track_caller]
fn while_stopped<T: Send>(holder: &Foreground, look: &(impl Fn() -> T + Sync)) -> T {
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        holder.signal(Signal::STOP);
        scope.spawn(move || tell.send(look()));
        let said = told.recv_timeout(Duration::from_secs(4));
        // Whoever looks has to end.
        holder.signal(Signal::CONT);
        said.expect("the kernel asks a process that is stopped")
    })
}

/// What is known under a lease the kernel says by itself, also while the mount's process is stopped; and not any more
/// when somebody else has changed it.
#[test]
fn the_kernel_says_what_is_sure_by_itself_and_no_longer() {
    let scene = Scene::new();
    let server = scene.serve();
    let holder = Foreground::new(&server.address, &scene.path("holder"));
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    fs::write(writer.0.join("file"), "old").expect("written");
    fs::create_dir(writer.0.join("dir")).expect("a directory");
    fs::write(writer.0.join("dir/in"), "in").expect("written");
    std::thread::sleep(QUIET);
    let dir = holder.mount.0.clone();
    let look = move || {
        let size = fs::symlink_metadata(dir.join("file")).expect("there").len();
        (size, dir.join("dir/in").exists(), dir.join("none").exists())
    };
    for _ in 0..3 {
        assert_eq!(look(), (3, true, false));
    }
    assert_eq!(while_stopped(&holder, &look), (3, true, false));
    for _ in 0..3 {
        assert_eq!(look(), (3, true, false));
    }
    fs::write(writer.0.join("none"), "").expect("written");
    assert_eq!(look(), (3, true, true));
    fs::remove_file(writer.0.join("dir/in")).expect("removed");
    assert_eq!(look(), (3, false, true));
    fs::write(writer.0.join("file"), "newer").expect("written");
    assert_eq!(look(), (5, false, true));
}

/// What is under a lease is told when it is looked at for the first time (docs/decisions/0263).
#[test]
fn what_was_looked_at_once_the_kernel_says_by_itself() {
    let scene = Scene::new();
    let server = scene.serve();
    let holder = Foreground::new(&server.address, &scene.path("holder"));
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    fs::create_dir(writer.0.join("dir")).expect("a directory");
    (0..20).for_each(|i| fs::write(writer.0.join(format!("dir/{i}")), "old").expect("written"));
    std::thread::sleep(QUIET);
    let dir = holder.mount.0.join("dir");
    let look = move || (0..20).map(|i| fs::metadata(dir.join(i.to_string())).expect("there").len()).sum::<u64>();
    // Of the root it is known that there is a lease when somebody looks again.
    fs::metadata(&holder.mount.0).expect("there");
    assert_eq!(look(), 60);
    assert_eq!(while_stopped(&holder, &look), 60);
    fs::write(writer.0.join("dir/7"), "newer").expect("written");
    assert_eq!(look(), 62);
}

/// One mount changes a file now and then, while several threads of the other look at it all the time, by its name and
/// by descriptors, and change what is beside it. Nobody ever sees less than what had returned before.
#[test]
fn who_looks_all_the_time_never_sees_what_was_before() {
    never_sees_what_was_before(&[]);
}

#[test]
fn who_looks_all_the_time_where_names_are_asked_about_never_sees_what_was_before() {
    never_sees_what_was_before(&["--ask-names"]);
}

#[track_caller]
fn never_sees_what_was_before(options: &[&str]) {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let scene = Scene::new();
    let server = scene.serve();
    let (writer, reader) = (
        Mount::new(&server.address, &scene.path("a"), options),
        Mount::new(&server.address, &scene.path("b"), options),
    );
    fs::write(writer.0.join("file"), "").expect("written");
    fs::create_dir(reader.0.join("own")).expect("a directory");
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for i in 0..3 {
            let (file, own, done, over) = (reader.0.join("file"), reader.0.join("own"), &done, &over);
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    let before = done.load(Ordering::SeqCst);
                    let size = match i {
                        0 => fs::File::open(&file).expect("open").metadata().expect("there").len(),
                        _ => fs::metadata(&file).expect("there").len(),
                    };
                    assert!(size >= before, "{size} and not {before}");
                    fs::metadata(&own).expect("there");
                }
            });
        }
        let mut file = fs::OpenOptions::new().append(true).open(writer.0.join("file")).expect("open");
        for i in 1..=5 {
            std::thread::sleep(QUIET);
            file.write_all(b"x").expect("written");
            done.store(i, Ordering::SeqCst);
            for j in 0..20 {
                let dir = reader.0.join("own");
                fs::create_dir(dir.join(format!("{i}-{j}"))).expect("a directory");
                assert_eq!(fs::metadata(&dir).expect("there").nlink(), 2 + (i - 1) * 20 + j + 1);
            }
        }
        over.store(true, Ordering::SeqCst);
    });
}

/// The kernel reads a listing again that it has, without asking the mount for anything.
#[test]
fn a_listing_that_is_sure_is_asked_for_once() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("a"), &[]);
    (0..50).for_each(|i| fs::write(mount.0.join(format!("{i}")), "").expect("written"));
    (0..2).for_each(|_| assert_eq!(names(&mount.0).len(), 50));
    let hits = || shown(&mount.0).expect("it is shown")["hits"].as_u64().expect("a number");
    let before = hits();
    (0..20).for_each(|_| assert_eq!(names(&mount.0).len(), 50));
    // Its attributes may be asked for once more: they hold for as long as a lease.
    assert!(hits() - before <= 5, "{} questions", hits() - before);
}

/// Names of an open directory, from its beginning.
fn names_again(dir: &mut rustix::fs::Dir) -> BTreeSet<String> {
    dir.rewind();
    let names = dir.map(|entry| entry.expect("an entry").file_name().to_str().expect("text").to_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

fn open_dir(dir: &Path) -> rustix::fs::Dir {
    let opened = rustix::fs::open(dir, rustix::fs::OFlags::DIRECTORY, 0.into()).expect("a directory");
    rustix::fs::Dir::new(opened).expect("a directory")
}

/// Sets a directory's time to what it always was.
fn set_back(dir: &Path) {
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(dir).and_then(|dir| dir.set_modified(old)).expect("a time");
}

/// The kernel has a listing, and everything that is asked for meanwhile is sure again.
#[test]
fn a_listing_is_not_kept_over_a_change_though_the_times_are_set_back() {
    let scene = Scene::new();
    let server = scene.serve();
    let (writer, reader) = scene.two_mounts(&server);
    let (there, here) = (writer.0.join("dir"), reader.0.join("dir"));
    fs::create_dir(&there).expect("a directory");
    fs::write(there.join("one"), "").expect("written");
    set_back(&there);
    let names_of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    for (i, expected) in [&["one"][..], &["one", "two"], &["two"], &["three"]].iter().enumerate() {
        match i {
            1 => fs::write(there.join("two"), "").expect("written"),
            2 => fs::remove_file(there.join("one")).expect("removed"),
            3 => fs::rename(there.join("two"), there.join("three")).expect("renamed"),
            _ => {}
        }
        set_back(&there);
        std::thread::sleep(QUIET);
        (0..3).for_each(|_| _ = fs::metadata(&here).expect("there"));
        (0..3).for_each(|_| assert_eq!(names(&here), names_of(expected), "round {i}"));
    }
    // One that stays open.
    let mut open = open_dir(&here);
    (0..3).for_each(|_| assert_eq!(names_again(&mut open), names_of(&["three"])));
    fs::write(there.join("four"), "").expect("written");
    set_back(&there);
    std::thread::sleep(QUIET);
    (0..3).for_each(|_| _ = fs::metadata(&here).expect("there"));
    (0..3).for_each(|_| assert_eq!(names_again(&mut open), names_of(&["three", "four"])));
    assert_eq!(names(&here), names_of(&["three", "four"]));
}

/// Names come and go through one mount, and the directory's time is set back each time; several threads of the other
/// list it all the time. A listing has what was there before it began, and nothing that was gone.
#[test]
fn who_lists_all_the_time_never_sees_what_was_before() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let scene = Scene::new();
    let server = scene.serve();
    let (writer, reader) = scene.two_mounts(&server);
    for mount in [&writer, &reader] {
        fs::create_dir(mount.0.join("dir")).or_else(|_| fs::metadata(mount.0.join("dir")).map(drop)).expect("there");
    }
    // The number of the last name that is there, and that it is.
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    fs::write(writer.0.join("dir/0"), "").expect("written");
    set_back(&writer.0.join("dir"));
    std::thread::scope(|scope| {
        for i in 0..3 {
            let (reader, done, over) = (reader.0.clone(), &done, &over);
            scope.spawn(move || {
                let mut open = open_dir(&reader.join("dir"));
                while !over.load(Ordering::SeqCst) {
                    let before = done.load(Ordering::SeqCst);
                    // One reads what stays open again.
                    let seen = if i == 0 { names_again(&mut open) } else { names(&reader.join("dir")) };
                    let seen: Vec<u64> = seen.iter().map(|name| name.parse().expect("a number")).collect();
                    assert!(seen.iter().any(|number| *number >= before), "{seen:?} of reader {i}, after {before}");
                    assert!(seen.iter().all(|number| *number + 1 >= before), "{seen:?} of reader {i}, after {before}");
                }
            });
        }
        for i in 1..=6 {
            std::thread::sleep(QUIET);
            let dir = if i % 3 == 0 { &reader.0 } else { &writer.0 }.join("dir");
            fs::write(dir.join(format!("{i}")), "").expect("written");
            set_back(&dir);
            done.store(i, Ordering::SeqCst);
            fs::remove_file(dir.join(format!("{}", i - 1))).expect("removed");
            set_back(&dir);
        }
        over.store(true, Ordering::SeqCst);
    });
}

/// A line to a server over which everything that it says comes late.
fn late_line(server: &str) -> String {
    const LATE: Duration = Duration::from_millis(300);
    fn pass(mut from: TcpStream, mut to: TcpStream, late: Duration) {
        let mut bytes = [0; 65_536];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            std::thread::sleep(late);
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("bluefs://{}/", listener.local_addr().expect("an address"));
    let server = server.trim_start_matches("bluefs://").trim_end_matches('/').to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&server).expect("a server");
            let clone = |socket: &TcpStream| socket.try_clone().expect("a socket");
            let (from, to) = (clone(&client), clone(&server));
            std::thread::spawn(move || pass(from, to, Duration::ZERO));
            std::thread::spawn(move || pass(server, client, LATE));
        }
    });
    address
}

/// What one thread of a machine changes, another machine sees before the first one hears of it. Who was told by that
/// one sees it on the first machine, too, though the kernel there may have said names and attributes by itself before.
#[test]
fn what_another_machine_has_seen_of_a_change_shows_where_it_is_made() {
    what_is_seen_elsewhere_shows(&[]);
}

#[test]
fn what_another_machine_has_seen_of_a_change_shows_where_names_are_asked_about() {
    what_is_seen_elsewhere_shows(&["--ask-names"]);
}

#[track_caller]
fn what_is_seen_elsewhere_shows(options: &[&str]) {
    let scene = Scene::new();
    let server = scene.serve();
    let late = late_line(&server.address);
    let (a, b) = (Mount::new(&late, &scene.path("a"), options), Mount::new(&server.address, &scene.path("b"), &[]));
    fs::write(b.0.join("file"), "old").expect("written");
    fs::write(b.0.join("gone"), "").expect("written");
    std::thread::sleep(QUIET);
    let at = |mount: &Mount| {
        let dir = mount.0.clone();
        move || {
            let meta = fs::symlink_metadata(dir.join("file")).expect("there");
            (meta.len(), meta.mode() & 0o777, dir.join("new").exists(), dir.join("gone").exists())
        }
    };
    let (at_a, at_b) = (at(&a), at(&b));
    let seen_while = |change: &(dyn Fn() + Sync)| {
        let before = at_a();
        (0..3).for_each(|_| assert_eq!(at_a(), before));
        std::thread::scope(|scope| {
            let changes = scope.spawn(change);
            while at_b() == before {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!((at_a(), at_b()), (at_b(), at_a()));
            changes.join().expect("no panic");
        });
    };
    let file = a.0.join("file");
    let append = fs::OpenOptions::new().append(true).open(&file).expect("open");
    seen_while(&|| (&append).write_all(b" and new").expect("written"));
    seen_while(&|| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode"));
    seen_while(&|| drop(fs::File::create(a.0.join("new")).expect("made")));
    seen_while(&|| fs::remove_file(a.0.join("gone")).expect("removed"));
}

#[test]
fn top_shows_a_mount_also_while_its_server_is_away() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("a"), &[]);
    fs::write(mount.0.join("file"), "text").expect("written");
    let status = shown(&mount.0).expect("it is shown");
    // A creation and a write.
    assert_eq!((&status["changes"], &status["is_connected"]), (&2.into(), &true.into()), "{status}");
    assert!(status["volume"].as_str().is_some_and(|volume| volume.starts_with("bluefs://127.0.0.1")), "{status}");
    let process = status["process"].to_string();
    let text = succeeds(speculator().args(["top", "--once", &process]));
    assert!(text.contains("connected") && text.contains("2 changes"), "{text}");
    drop(server);
    let mut waits = Command::new("touch").arg(mount.0.join("other")).spawn().expect("touch");
    let begun = Instant::now();
    while shown(&mount.0).is_none_or(|status| status["is_connected"] == true || status["in_flight"] == 0) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", shown(&mount.0));
        std::thread::sleep(Duration::from_millis(50));
    }
    waits.kill().expect("a child");
    waits.wait().expect("a child");
    let dir = mount.0.clone();
    drop(mount);
    let begun = Instant::now();
    while shown(&dir).is_some() {
        assert!(begun.elapsed() < PATIENCE, "it is unmounted");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs what `prepare` has made in many threads while the server is stopped: all of them have asked it something at
/// once.
#[track_caller]
fn asks_all_at_once<W: FnOnce() + Send>(scene: &Scene, prepare: impl Fn(&Path, usize) -> W) {
    const THREADS: usize = 8;
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("a"), &[]);
    fs::write(mount.0.join("file"), vec![b'x'; THREADS * 4096]).expect("written");
    let all: Vec<W> = (0..THREADS).map(|i| prepare(&mount.0, i)).collect();
    // The kernel knows the directory itself.
    (0..3).for_each(|_| _ = fs::metadata(&mount.0).expect("there"));
    std::thread::scope(|scope| {
        send(&server.child, Signal::STOP);
        all.into_iter().for_each(|what| _ = scope.spawn(what));
        let begun = Instant::now();
        let in_flight = || shown(&mount.0).map_or(0, |status| status["in_flight"].as_u64().expect("a number"));
        while in_flight() < THREADS as u64 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let most = in_flight();
        send(&server.child, Signal::CONT);
        assert!(most >= THREADS as u64, "{most} at once");
    });
}

#[test]
fn names_of_one_directory_are_looked_up_at_once() {
    asks_all_at_once(&Scene::new(), |dir, i| {
        let name = dir.join(format!("none{i}"));
        move || assert!(!name.exists())
    });
}

#[test]
fn parts_of_one_file_are_written_at_once() {
    use std::os::unix::fs::FileExt;
    let scene = Scene::new();
    asks_all_at_once(&scene, |dir, i| {
        let file = fs::OpenOptions::new().write(true).open(dir.join("file")).expect("open");
        file.metadata().expect("there");
        move || file.write_all_at(&[b'0' + i as u8; 4096], i as u64 * 4096).expect("written")
    });
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("b"), &[]);
    let file = fs::read(mount.0.join("file")).expect("read");
    assert!(file.chunks(4096).enumerate().all(|(i, part)| part.iter().all(|byte| *byte == b'0' + i as u8)));
}

#[test]
fn how_much_space_there_is_is_not_asked_each_time_and_shows_own_changes() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("a"), &[]);
    let free = || rustix::fs::statvfs(&mount.0).expect("a file system").f_bfree;
    let asked = || shown(&mount.0).expect("it is shown")["asked"].as_u64().expect("a number");
    let (before, empty) = (asked(), free());
    (0..20).for_each(|_| assert_eq!(free(), empty));
    assert!(asked() < before + 20, "{} questions", asked() - before);
    fs::write(mount.0.join("file"), vec![b'x'; 1 << 20]).expect("written");
    assert!(free() < empty, "what the mount itself has written shows at once");
    let before = (free(), asked()).1;
    for _ in 0..20 {
        drop(fs::File::open(mount.0.join("file")).expect("open"));
        free();
    }
    assert!(asked() < before + 20, "a file that is closed and has a name frees nothing");
    let file = fs::File::open(mount.0.join("file")).expect("open");
    fs::remove_file(mount.0.join("file")).expect("removed");
    free();
    drop(file);
    let begun = std::time::Instant::now();
    while free() < empty {
        assert!(begun.elapsed() < Duration::from_secs(4), "a file without a name frees room when it is closed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Rights of groups are looked at where it takes them, also of what is known.
#[test]
fn who_may_read_by_a_group_reads() {
    let scene = Scene::new();
    let server = scene.serve();
    let mount = Mount::new(&server.address, &scene.path("a"), &[]);
    let (file, dir) = (mount.0.join("dir/file"), mount.0.join("dir"));
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::create_dir(&dir).expect("a directory");
    fs::write(&file, "text").expect("written");
    for (path, mode) in [(&file, 0o640), (&dir, 0o750)] {
        std::os::unix::fs::chown(path, None, Some(24)).expect("a group");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let run = |groups: &str, command: &[&str], path: &Path| {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=1000", "--regid=1000", groups]).args(command).arg(path);
        setpriv.output().expect("setpriv").status.success()
    };
    // Who has it open was let in: whoever goes on with it need not be. So is who has it executed.
    let given = |command: &str, file: fs::File| {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", command]);
        let output = setpriv.stdin(file.try_clone().expect("a descriptor")).stdout(file).output().expect("setpriv");
        output.status.success()
    };
    let secret = mount.0.join("secret");
    fs::write(&secret, "old text").expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("a mode");
    let open = || fs::OpenOptions::new().read(true).write(true).open(&secret).expect("open");
    assert!(given("read -r word rest; test $word = old", open()));
    assert!(given("truncate -s 0 /proc/self/fd/1 2> /dev/null; echo new", open()));
    assert!(fs::read_to_string(&secret).expect("read").starts_with("new\n"));
    let program = mount.0.join("program");
    fs::copy("/bin/true", &program).expect("copied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o711)).expect("a mode");
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid=1000", "--regid=1000", "--clear-groups"]).arg(&program);
    assert!(setpriv.status().expect("setpriv").success());
    for _ in 0..3 {
        assert!(run("--groups=1000,24", &["cat"], &file) && run("--groups=1000,24", &["ls"], &dir));
        assert!(!run("--clear-groups", &["cat"], &file) && !run("--clear-groups", &["ls"], &dir));
        std::thread::sleep(QUIET);
    }
}
