//! What programs store in shared mappings of files on mounts. Mounts need root.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::mapping::Mapping;

use crate::bluefs_support as support;

use support::{Foreground, Line, Mount, Scene, Server};

/// How long others wait for leases on what somebody has changed, and a little more.
const QUIET: Duration = Duration::from_millis(1_100);
/// Leases have ended after it.
const TERM: Duration = Duration::from_secs(11);
const PAGE: usize = 4096;
const PAGES: usize = 4;
const WORD: usize = 8;

/// A file of some pages of zeros.
fn make(path: &Path) -> File {
    let file = opened_new(path);
    file.set_len((PAGES * PAGE) as u64).expect("long");
    file
}

fn opened_new(path: &Path) -> File {
    OpenOptions::new().create(true).read(true).write(true).truncate(true).open(path).expect("made")
}

fn opened(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("open")
}

fn stored(file: &File) -> Mapping {
    Mapping::stored(file, PAGES * PAGE).expect("mapped")
}

fn store(mapping: &Mapping, at: usize, number: u64) {
    mapping.store(at, &number.to_le_bytes()).expect("there");
}

fn mapped(mapping: &Mapping, at: usize) -> u64 {
    let mut number = [0; WORD];
    mapping.read(at, &mut number).expect("there");
    u64::from_le_bytes(number)
}

fn put(file: &File, at: usize, number: u64) {
    file.write_all_at(&number.to_le_bytes(), at as u64).expect("written");
}

fn read(file: &File, at: usize) -> u64 {
    let mut number = [0; WORD];
    file.read_exact_at(&mut number, at as u64).expect("there");
    u64::from_le_bytes(number)
}

/// What is stored is read here at once; on another machine behind `msync`, `munmap` and `close`.
#[test]
fn what_is_stored_is_in_the_file() {
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let here = make(&mounts[0].0.join("file"));
    let there = opened(&mounts[1].0.join("file"));
    let (one, other) = (stored(&here), stored(&there));
    let looks = Mapping::shared(File::open(mounts[1].0.join("file")).expect("open"), PAGES * PAGE).expect("mapped");
    assert_eq!((mapped(&looks, 0), mapped(&other, 0)), (0, 0));
    for number in 1..6 {
        store(&one, 0, number);
        store(&one, 2 * PAGE + 16, number);
        assert_eq!((read(&here, 0), mapped(&one, 2 * PAGE + 16)), (number, number));
        one.sync().expect("synced");
        assert_eq!((read(&there, 0), read(&there, 2 * PAGE + 16)), (number, number));
        assert_eq!((mapped(&other, 0), mapped(&looks, 2 * PAGE + 16)), (number, number));
        // The other way round, into the same page.
        put(&there, 8, number);
        assert_eq!((mapped(&one, 8), read(&here, 8), mapped(&one, 0)), (number, number, number));
    }
    store(&one, 24, 7);
    drop(one);
    assert_eq!(read(&there, 24), 7, "munmap");
    let bytes = fs::metadata(mounts[1].0.join("file")).expect("there").len();
    assert_eq!(bytes, (PAGES * PAGE) as u64);
    // Behind the end of a file that was cut there is nothing to be stored in.
    there.set_len(PAGE as u64).expect("cut");
    assert!(other.store(2 * PAGE, &[1]).is_err());
    store(&other, 32, 8);
    drop(other);
    assert_eq!((read(&here, 32), here.metadata().expect("there").len()), (8, PAGE as u64));
}

/// Several machines change the same page, each its own words: by stores, and by calls. Nothing of it is lost.
#[test]
fn nothing_is_lost_of_what_several_machines_store_in_a_page() {
    const ROUNDS: u64 = 40;
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    make(&mounts[0].0.join("file"));
    std::thread::scope(|scope| {
        for i in 0..6 {
            let path = mounts[i % 2].0.join("file");
            scope.spawn(move || {
                let file = opened(&path);
                let (mapping, at) = (stored(&file), i * WORD);
                for number in 1..=ROUNDS {
                    match i / 2 {
                        0 => store(&mapping, at, number),
                        1 => put(&file, at, number),
                        _ => {
                            store(&mapping, at, number);
                            mapping.sync().expect("synced");
                        }
                    }
                    assert_eq!(mapped(&mapping, at), number, "{i}");
                    std::thread::sleep(Duration::from_millis(2));
                    assert_eq!(read(&file, at), number, "{i}");
                }
                mapping.sync().expect("synced");
            });
        }
    });
    for mount in &mounts {
        let file = opened(&mount.0.join("file"));
        let words: Vec<u64> = (0..6).map(|i| read(&file, i * WORD)).collect();
        assert_eq!(words, [ROUNDS; 6]);
    }
}

/// Who counts in a mapping under a lock counts with everybody else: a lock that is given back tells what was stored.
#[test]
fn what_is_stored_under_a_lock_is_seen_by_who_has_it_next() {
    const ROUNDS: u64 = 30;
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    make(&mounts[0].0.join("file"));
    for locks in ["fcntl", "flock"] {
        std::thread::scope(|scope| {
            for i in 0..4 {
                let path = mounts[i % 2].0.join("file");
                scope.spawn(move || {
                    let mut counter = Command::new("python3");
                    counter.args(["-c", COUNTER, locks]).arg(path).arg(ROUNDS.to_string());
                    support::succeeds(&mut counter);
                });
            }
        });
    }
    assert_eq!(read(&opened(&mounts[1].0.join("file")), 0), 2 * 4 * ROUNDS);
}

const COUNTER: &str = r#"
import fcntl, mmap, os, sys
locks, path, rounds = sys.argv[1:]
f = os.open(path, os.O_RDWR)
m = mmap.mmap(f, 0)
lock = fcntl.lockf if locks == 'fcntl' else fcntl.flock
for _ in range(int(rounds)):
    lock(f, fcntl.LOCK_EX)
    m[0:8] = (int.from_bytes(m[0:8], 'little') + 1).to_bytes(8, 'little')
    lock(f, fcntl.LOCK_UN)
os._exit(0)
"#;

/// Who shares a lock from now on that it has had alone shows what it stored: another machine may look under it, too.
#[test]
fn what_is_stored_under_a_lock_is_seen_by_who_shares_it() {
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    make(&mounts[0].0.join("file"));
    let [here, there] = mounts.each_ref().map(|mount| mount.0.join("file"));
    for locks in ["fcntl", "flock"] {
        let mut sharing = Command::new("python3");
        support::succeeds(sharing.args(["-c", SHARING, locks]).args([&here, &there]));
    }
}

const SHARING: &str = r#"
import fcntl, mmap, os, sys
locks, here, there = sys.argv[1:]
f, g = os.open(here, os.O_RDWR), os.open(there, os.O_RDWR)
m = mmap.mmap(f, 0)
lock = fcntl.lockf if locks == 'fcntl' else fcntl.flock
for number in range(1, 40):
    lock(f, fcntl.LOCK_EX)
    m[8:16] = number.to_bytes(8, 'little')
    lock(f, fcntl.LOCK_SH)
    lock(g, fcntl.LOCK_SH)
    seen = int.from_bytes(os.pread(g, 8, 8), 'little')
    assert seen == number, (seen, number)
    lock(g, fcntl.LOCK_UN)
os._exit(0)
"#;

/// What was stored before another machine writes the same bytes does not replace what that one has written.
#[test]
fn what_was_stored_before_others_write_is_written_before_that() {
    const ROUNDS: u64 = 30;
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let here = make(&mounts[0].0.join("file"));
    let there = opened(&mounts[1].0.join("file"));
    let mapping = stored(&here);
    for number in 1..=ROUNDS {
        // It has a lease, and what it shows is known.
        mapped(&mapping, 0);
        store(&mapping, 0, number);
        put(&there, 0, ROUNDS + number);
        here.sync_all().expect("synced");
        assert_eq!((read(&there, 0), mapped(&mapping, 0)), (ROUNDS + number, ROUNDS + number), "{number}");
    }
}

/// The kernel writes nothing back of a file while it is cut, and a new connection has all pages forgotten. Whoever cuts
/// is a process of its own, which can be killed should it wait for ever: that ends the wait of everybody else.
#[test]
fn who_cuts_a_file_waits_for_the_next_connection() {
    const WAITS: Duration = Duration::from_millis(400);
    const CUT_WITHIN: Duration = Duration::from_secs(30);
    let scene = Scene::new();
    let server = scene.serve();
    let port = server.port().to_owned();
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    let path = mount.0.join("file");
    make(&path);
    let mut cutting = Command::new("python3");
    cutting.args(["-c", CUTTING]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cutting = cutting.spawn().expect("it begins");
    cutting.stdout.as_mut().expect("a pipe").read_exact(&mut [0; STORED.len()]).expect("it has stored");
    drop(server);
    cutting.stdin.take().expect("a pipe").write_all(b"cut").expect("it is told");
    std::thread::sleep(WAITS);
    assert!(cutting.try_wait().expect("a child").is_none(), "there is no server");
    let _again = Server::start(&scene.path("store"), &format!("127.0.0.1:{port}"));
    let begun = Instant::now();
    while cutting.try_wait().expect("a child").is_none() && begun.elapsed() < CUT_WITHIN {
        std::thread::sleep(Duration::from_millis(20));
    }
    let is_cut = begun.elapsed() < CUT_WITHIN;
    let _ = cutting.kill();
    assert!(is_cut && cutting.wait().expect("a child").success(), "it waits for ever, or sees something else");
    assert_eq!((read(&opened(&path), 0), fs::metadata(&path).expect("there").len()), (1, PAGE as u64));
}

const STORED: &[u8] = b"stored";

const CUTTING: &str = r#"
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0)
m[0:8] = (1).to_bytes(8, 'little')
m[8192:8200] = (2).to_bytes(8, 'little')
os.write(1, b'stored')
sys.stdin.read()
os.ftruncate(f, 4096)
assert m[0:8] == (1).to_bytes(8, 'little')
os._exit(0)
"#;

/// A file is cut and grows again beside who stores in it, on the same machine and on another one. Nothing hangs, and
/// what was cut off is zero.
#[test]
fn a_file_is_cut_beside_who_stores_in_it() {
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let file = make(&mounts[0].0.join("file"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mapping = stored(&file);
        let over = &over;
        scope.spawn(move || {
            let mut number = 0;
            while !over.load(Ordering::SeqCst) {
                number += 1;
                store(&mapping, 0, number);
                // It may be behind the end.
                let _ = mapping.store(3 * PAGE, &number.to_le_bytes());
            }
        });
        for round in 0..60 {
            let cut = opened(&mounts[usize::from(round % 3 == 2)].0.join("file"));
            cut.set_len((PAGE + 100) as u64).expect("cut");
            cut.set_len((PAGES * PAGE) as u64).expect("longer");
            assert_eq!(read(&cut, 2 * PAGE), 0);
        }
        over.store(true, Ordering::SeqCst);
    });
    file.sync_all().expect("synced");
    let there = opened(&mounts[1].0.join("file"));
    assert_eq!((read(&there, 0), read(&there, 3 * PAGE)), (read(&file, 0), read(&file, 3 * PAGE)));
    assert_ne!(read(&there, 0), 0);
}

/// What was stored before the server went away is there when it is back.
#[test]
fn what_was_stored_outlives_the_server() {
    let scene = Scene::new();
    let server = scene.serve();
    let port = server.port().to_owned();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let file = make(&mounts[0].0.join("file"));
    let mapping = stored(&file);
    store(&mapping, 0, 1);
    // What was changed since the pages were told makes no difference, be it by this machine or by another.
    fs::write(mounts[0].0.join("one"), "x").expect("written");
    std::thread::sleep(QUIET);
    fs::write(mounts[1].0.join("other"), "x").expect("written");
    store(&mapping, PAGE, 2);
    drop(server);
    let _again = Server::start(&scene.path("store"), &format!("127.0.0.1:{port}"));
    fs::write(mounts[1].0.join("other"), "y").expect("written");
    mapping.sync().expect("synced");
    let there = opened(&mounts[1].0.join("file"));
    assert_eq!((read(&there, 0), read(&there, PAGE)), (1, 2));
    assert_eq!((mapped(&mapping, 0), mapped(&mapping, PAGE)), (1, 2));
}

/// A machine that was away until its leases had ended takes away nothing of what others have written since.
#[test]
fn what_was_stored_under_a_lost_lease_takes_nothing_else_away() {
    let scene = Scene::new();
    let server = scene.serve();
    let sleeper = Foreground::new(&server.address, &scene.path("sleeper"));
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    let file = make(&sleeper.mount.0.join("file"));
    let mapping = stored(&file);
    store(&mapping, 0, 1);
    sleeper.signal(Signal::STOP);
    std::thread::sleep(TERM);
    let there = opened(&writer.0.join("file"));
    put(&there, WORD, 2);
    sleeper.signal(Signal::CONT);
    mapping.sync().and(file.sync_all()).expect("synced");
    assert_eq!((read(&there, 0), read(&there, WORD)), (1, 2));
    // Pages that the kernel has are shown without a question: until the mount has been told that it may go on, and has
    // had them forgotten, a mapping shows what was there before.
    let patience = Instant::now() + TERM;
    while mapped(&mapping, WORD) != 2 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((mapped(&mapping, 0), mapped(&mapping, WORD)), (1, 2));
}

/// While there is no connection whoever stores waits, and is not ended by SIGBUS. That takes long on a busy machine to
/// show, or many tries.
#[test]
fn who_stores_waits_for_the_next_connection() {
    const FILES: usize = 6;
    const CUTS: usize = 12;
    let scene = Scene::new();
    let server = scene.serve();
    let line = Line::new(&server.address);
    let mount = Mount::new(&line.address, &scene.path("mount"), &[]);
    let is_over = AtomicBool::new(false);
    let name = |number: usize| format!("file{number}");
    std::thread::scope(|scope| {
        let storing: Vec<_> = (0..FILES)
            .map(|number| {
                let (path, is_over) = (mount.0.join(name(number)), &is_over);
                scope.spawn(move || {
                    let file = make(&path);
                    let (mapping, mut count) = (stored(&file), 0u64);
                    while !is_over.load(Ordering::SeqCst) {
                        count += 1;
                        store(&mapping, count as usize % PAGES * PAGE, count);
                        std::thread::sleep(Duration::from_micros(300));
                    }
                    mapping.sync().and(file.sync_all()).expect("synced");
                    count
                })
            })
            .collect();
        for _ in 0..CUTS {
            std::thread::sleep(Duration::from_millis(300));
            line.hold(true);
            line.cut();
            std::thread::sleep(Duration::from_millis(150));
            line.hold(false);
        }
        is_over.store(true, Ordering::SeqCst);
        let another = Mount::new(&server.address, &scene.path("another"), &[]);
        for (number, storing) in storing.into_iter().enumerate() {
            let count = storing.join().expect("nobody is ended");
            let file = opened(&another.0.join(name(number)));
            let last = |page: usize| (0..=count).rev().find(|stored| *stored as usize % PAGES == page).unwrap_or(0);
            let seen: Vec<u64> = (0..PAGES).map(|page| read(&file, page * PAGE)).collect();
            assert_eq!(seen, (0..PAGES).map(last).collect::<Vec<_>>());
        }
    });
}

/// A mount that is killed while the kernel writes back what it is to forget.
#[test]
fn a_mount_can_be_killed_while_pages_are_being_forgotten() {
    let scene = Scene::new();
    let mut server = scene.serve();
    let mut killed = Foreground::new(&server.address, &scene.path("killed"));
    let another = Mount::new(&server.address, &scene.path("another"), &[]);
    make(&killed.mount.0.join("file"));
    let mut holder = Command::new("python3");
    holder.args(["-c", HOLDER]).arg(killed.mount.0.join("file")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("python");
    let mut said = [0];
    std::io::Read::read_exact(holder.stdout.as_mut().expect("piped"), &mut said).expect("a byte");
    let path = another.0.join("file");
    let writes = std::thread::spawn(move || put(&opened(&path), WORD, 2));
    std::thread::sleep(Duration::from_millis(100));
    server.child.kill().expect("killed");
    killed.child.kill().expect("killed");
    holder.kill().expect("killed");
    let begun = std::time::Instant::now();
    killed.child.wait().expect("ended");
    holder.wait().expect("ended");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let port = server.port().to_owned();
    drop(server);
    let _again = Server::start(&scene.path("store"), &format!("127.0.0.1:{port}"));
    writes.join().expect("no panic");
}

const HOLDER: &str = r#"
import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
m[0:1] = b'x'
os.write(1, b'x')
while True:
    m[0:1] = b'x'
"#;
