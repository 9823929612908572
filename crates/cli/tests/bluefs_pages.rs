//! Contents of a mount in the kernel's page cache, for whoever maps them, and reads beside. Mounts need root.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Barrier};
use std::time::Duration;

use rustix::fs::{fadvise, Advice};
use rustix::process::Signal;
use testkit::mapping::Mapping;

use crate::bluefs_support as support;

use support::{Foreground, Mount, Scene};

/// How long others wait for leases on what somebody has changed, and a little more.
const QUIET: Duration = Duration::from_millis(1_100);
/// How long a test waits in vain.
const PATIENCE: Duration = Duration::from_secs(4);
const PAGE: usize = 4096;
const PAGES: usize = 8;
/// How often a file becomes longer.
const ROUNDS_OF_LENGTHS: usize = 300;

/// Has a page hold a number, in all of its words.
fn put(file: &File, page: usize, number: u64) {
    file.write_all_at(&number.to_le_bytes().repeat(PAGE / 8), (page * PAGE) as u64).expect("written");
}

fn mapped(mapping: &Mapping, page: usize) -> u64 {
    let mut number = [0; 8];
    mapping.read(page * PAGE + 64, &mut number).expect("there");
    u64::from_le_bytes(number)
}

fn read(file: &File, page: usize) -> u64 {
    let mut number = [0; 8];
    file.read_exact_at(&mut number, (page * PAGE + 64) as u64).expect("there");
    u64::from_le_bytes(number)
}

fn make(path: &Path) -> File {
    let file = OpenOptions::new().create(true).write(true).truncate(true).open(path).expect("made");
    (0..PAGES).for_each(|page| put(&file, page, 1));
    file
}

/// A mount whose process is stopped says nothing: the kernel has what was mapped.
#[test]
fn what_was_mapped_is_looked_at_again_without_the_mount() {
    let scene = Scene::new();
    let server = scene.serve();
    let holder = Foreground::new(&server.address, &scene.path("holder"));
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    let written = make(&writer.0.join("file"));
    std::thread::sleep(QUIET);
    let path = holder.mount.0.join("file");
    let file = File::open(&path).expect("open");
    let mapping = Mapping::new(&file, PAGES * PAGE).expect("mapped");
    let look = move || (0..PAGES).map(|page| mapped(&mapping, page)).sum::<u64>();
    assert_eq!(look(), PAGES as u64);
    holder.signal(Signal::STOP);
    let (tell, told) = mpsc::channel();
    let looking = std::thread::spawn(move || {
        tell.send(look()).expect("somebody listens");
        look
    });
    let said = told.recv_timeout(PATIENCE);
    holder.signal(Signal::CONT);
    assert_eq!(said, Ok(PAGES as u64), "the kernel asks a process that is stopped");
    let look = looking.join().expect("no panic");
    (0..PAGES).for_each(|page| put(&written, page, 3));
    assert_eq!(look(), 3 * PAGES as u64);
    std::thread::sleep(QUIET);
    assert_eq!(look(), 3 * PAGES as u64);
    written.set_len(0).expect("cut");
    assert!(fs::read(&path).expect("read").is_empty());
}

/// Somebody writes numbers that grow, page by page; others read and map, on the writer's mount and on another one, and
/// the kernel drops pages meanwhile. Nobody ever sees less than what had been written before, and nothing stands still.
#[track_caller]
fn nobody_sees_what_was_before(pause: Duration, rounds: u64) {
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let written = make(&mounts[0].0.join("file"));
    std::thread::sleep(QUIET);
    let (done, over) = (AtomicU64::new(1), AtomicBool::new(false));
    let (looks, opened) = (AtomicU64::new(0), Barrier::new(7));
    std::thread::scope(|scope| {
        for i in 0..6 {
            let (path, done, over, looks, opened) = (mounts[i % 2].0.join("file"), &done, &over, &looks, &opened);
            scope.spawn(move || {
                let file = File::open(&path).expect("open");
                let mapping = Mapping::new(&file, PAGES * PAGE).expect("mapped");
                opened.wait();
                let mut count = 0;
                while !over.load(Ordering::SeqCst) {
                    let page = count % PAGES;
                    let before = done.load(Ordering::SeqCst);
                    let seen = match i / 2 {
                        0 => mapped(&mapping, page),
                        1 => read(&file, page),
                        _ => read(&File::open(&path).expect("open"), page),
                    };
                    assert!(seen >= before, "{i}: {seen} and not {before} in page {page}");
                    if i / 2 == 1 && count % 50 == 0 {
                        fadvise(&file, 0, None, Advice::DontNeed).expect("dropped");
                    }
                    count += 1;
                    looks.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        opened.wait();
        for number in 2..2 + rounds {
            std::thread::sleep(pause);
            (0..PAGES).for_each(|page| put(&written, page, number));
            done.store(number, Ordering::SeqCst);
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(looks.into_inner() > rounds);
}

#[test]
fn who_reads_and_maps_all_the_time_never_sees_what_was_before() {
    nobody_sees_what_was_before(QUIET, 4);
}

#[test]
fn who_reads_and_maps_beside_a_writer_never_sees_what_was_before() {
    nobody_sees_what_was_before(Duration::from_millis(3), 40);
}

/// A mapping of a file that is open to be written fills the same pages as others of the file.
#[test]
fn what_was_mapped_of_a_file_that_is_open_to_be_written_is_forgotten_with_a_change() {
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let written = make(&mounts[0].0.join("file"));
    std::thread::sleep(QUIET);
    let path = mounts[1].0.join("file");
    let file = File::open(&path).expect("open");
    let mapping = Mapping::new(&file, PAGES * PAGE).expect("mapped");
    let also_written = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let other = Mapping::new(&also_written, PAGES * PAGE).expect("mapped");
    (0..PAGES).for_each(|page| assert_eq!(mapped(&other, page), 1));
    (0..PAGES).for_each(|page| put(&written, page, 2));
    for page in 0..PAGES {
        assert_eq!((mapped(&mapping, page), mapped(&other, page), read(&file, page)), (2, 2, 2));
    }
    (0..PAGES).for_each(|page| put(&also_written, page, 3));
    for page in 0..PAGES {
        assert_eq!((mapped(&mapping, page), mapped(&other, page), read(&file, page)), (3, 3, 3));
    }
}

/// A mapping that outlives a server: nothing is shown of what another mount has changed meanwhile.
#[test]
fn a_mapping_is_right_after_the_server_was_away() {
    let scene = Scene::new();
    let server = scene.serve();
    let port = server.port().to_owned();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let written = make(&mounts[0].0.join("file"));
    std::thread::sleep(QUIET);
    let file = File::open(mounts[1].0.join("file")).expect("open");
    let mapping = Mapping::new(&file, PAGES * PAGE).expect("mapped");
    (0..PAGES).for_each(|page| assert_eq!(mapped(&mapping, page), 1));
    drop(server);
    let _again = support::Server::start(&scene.path("store"), &format!("127.0.0.1:{port}"));
    (0..PAGES).for_each(|page| put(&written, page, 2));
    (0..PAGES).for_each(|page| assert_eq!(mapped(&mapping, page), 2));
}

/// Another machine makes a file longer, while this mount writes within it: whoever reads behind that finds what is
/// there. The kernel drops what it is told of a file's length if a write ends while it asks: no read may go by that.
#[test]
fn a_read_beside_a_write_of_its_mount_goes_as_far_as_others_have_written() {
    const WORD: u64 = 8;
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    let grown = OpenOptions::new().create(true).append(true).open(mounts[0].0.join("file")).expect("made");
    (&grown).write_all(&[1; WORD as usize]).expect("written");
    std::thread::sleep(QUIET);
    let path = mounts[1].0.join("file");
    let (len, over) = (AtomicU64::new(WORD), AtomicBool::new(false));
    let readers: Vec<File> = (0..2).map(|_| File::open(&path).expect("open")).collect();
    let written = OpenOptions::new().write(true).open(&path).expect("open");
    let is_over = || over.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        for file in readers {
            let (len, is_over) = (&len, &is_over);
            scope.spawn(move || {
                let mut looks = 0u64;
                while !is_over() {
                    let before = len.load(Ordering::SeqCst);
                    let mut word = [0; WORD as usize];
                    let count = file.read_at(&mut word, before - WORD).expect("read");
                    assert_eq!((count, word), (WORD as usize, [1; WORD as usize]), "look {looks}, {before} bytes");
                    looks += 1;
                }
            });
        }
        scope.spawn(|| {
            while !is_over() {
                written.write_all_at(&[1], 0).expect("written");
            }
        });
        for _ in 0..ROUNDS_OF_LENGTHS {
            std::thread::sleep(Duration::from_millis(3));
            (&grown).write_all(&[1; WORD as usize]).expect("written");
            len.fetch_add(WORD, Ordering::SeqCst);
        }
        over.store(true, Ordering::SeqCst);
    });
}
