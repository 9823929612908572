//! Listings of directories that the kernel reads again without asking the mount. Mounts need root.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{seek, Mode, OFlags, RawDir, SeekFrom};
use rustix::process::Signal;

use crate::bluefs_support as support;

use support::{Foreground, Mount, Scene};

/// How long others wait for leases on what somebody has changed, and a little more.
const QUIET: Duration = Duration::from_millis(1_100);
/// Bytes that are read of a listing at once: some names.
const STEP_BYTES: usize = 1024;
/// Names of a directory that take several pages of the kernel.
const COUNT: usize = 60;

fn names(dir: &Path) -> BTreeSet<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    fs::read_dir(dir).expect("a directory").map(name).collect()
}

fn long_name(i: usize) -> String {
    format!("{i:0>200}")
}

fn open_dir(dir: &Path) -> OwnedFd {
    rustix::fs::open(dir, OFlags::DIRECTORY, Mode::empty()).expect("a directory")
}

/// The next names of an open directory, and the place behind each, by one `getdents64`; none: it is at its end.
fn some_names(dir: &OwnedFd) -> Vec<(String, u64)> {
    let mut bytes = [MaybeUninit::uninit(); STEP_BYTES];
    let mut entries = RawDir::new(dir, &mut bytes);
    let mut all = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.expect("an entry");
        all.push((entry.file_name().to_str().expect("text").to_owned(), entry.next_entry_cookie()));
        if entries.is_buffer_empty() {
            break;
        }
    }
    all
}

/// The names that are left of an open directory.
fn other_names(dir: &OwnedFd) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let some = some_names(dir);
        if some.is_empty() {
            return all;
        }
        all.extend(some.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with('.')));
    }
}

/// A directory with long names, which a mount has listed until it is sure of it.
fn long_directory(dir: &Path, seen: &Path) {
    fs::create_dir(dir).expect("a directory");
    (0..COUNT).for_each(|i| fs::write(dir.join(long_name(i)), "").expect("written"));
    std::thread::sleep(QUIET);
    (0..3).for_each(|_| assert_eq!(names(seen).len(), COUNT));
}

/// What has all of these names once, and none else but perhaps some of those.
#[track_caller]
fn check_names(read: &[String], all: impl Iterator<Item = String>, perhaps: &[String]) {
    let once: BTreeSet<&String> = read.iter().collect();
    assert_eq!(once.len(), read.len(), "each name once");
    let all: BTreeSet<String> = all.collect();
    let missing: Vec<&String> = all.iter().filter(|name| !once.contains(name)).collect();
    assert!(missing.is_empty(), "{} are missing: {:?}", missing.len(), missing[0]);
    let more: Vec<&&String> = once.iter().filter(|name| !all.contains(**name) && !perhaps.contains(name)).collect();
    assert!(more.is_empty(), "{} too many: {:?}", more.len(), more[0]);
}

/// Somebody reads a long listing in small steps, and the directory changes meanwhile, through either mount.
#[test]
fn who_reads_a_listing_slowly_misses_nothing_that_stays() {
    let scene = Scene::new();
    let server = scene.serve();
    let (writer, reader) = scene.two_mounts(&server);
    for (round, changer) in [&writer.0, &reader.0].into_iter().enumerate() {
        let (there, here) = (changer.join(format!("{round}")), reader.0.join(format!("{round}")));
        long_directory(&there, &here);
        let open = open_dir(&here);
        let mut read: Vec<String> = Vec::new();
        while read.len() < 8 {
            read.extend(some_names(&open).into_iter().map(|(name, _)| name).filter(|name| !name.starts_with('.')));
        }
        // The last one that was read, and one that was not.
        let last = read.last().expect("names").clone();
        let other = (0..COUNT).map(long_name).rfind(|name| !read.contains(name)).expect("not all are read");
        let new = long_name(COUNT);
        fs::remove_file(there.join(&last)).expect("removed");
        fs::remove_file(there.join(&other)).expect("removed");
        fs::write(there.join(&new), "").expect("written");
        std::thread::sleep(QUIET);
        // The kernel gets another listing meanwhile.
        (0..3).for_each(|_| assert_eq!(names(&here).len(), COUNT - 1));
        read.extend(other_names(&open));
        let stay = (0..COUNT).map(long_name).filter(|name| *name != other);
        check_names(&read, stay, &[other.clone(), new.clone()]);
        // From the beginning there is what is there now.
        seek(&open, SeekFrom::Start(0)).expect("a place");
        let now = (0..=COUNT).map(long_name).filter(|name| *name != other && *name != last);
        check_names(&other_names(&open), now, &[]);
    }
}

/// The kernel takes a last page that is full for the end, if it is asked for a place that it does not find.
#[test]
fn who_reads_a_listing_slowly_finds_no_end_where_a_page_ends() {
    let scene = Scene::new();
    let server = scene.serve();
    let (writer, reader) = scene.two_mounts(&server);
    let (there, here) = (writer.0.join("dir"), reader.0.join("dir"));
    fs::create_dir(&there).expect("a directory");
    // With `.` and `..` names of 32 bytes each: a page.
    let name = |i: usize| format!("{i:0>8}");
    (0..126).for_each(|i| fs::write(there.join(name(i)), "").expect("written"));
    std::thread::sleep(QUIET);
    (0..3).for_each(|_| assert_eq!(names(&here).len(), 126));
    let open = open_dir(&here);
    let mut read: Vec<String> = some_names(&open).into_iter().map(|(name, _)| name).collect();
    let gone = read.last().expect("names").clone();
    fs::rename(there.join(&gone), there.join(name(126))).expect("renamed");
    std::thread::sleep(QUIET);
    (0..3).for_each(|_| assert_eq!(names(&here).len(), 126));
    read.retain(|name| !name.starts_with('.'));
    read.extend(other_names(&open));
    check_names(&read, (0..126).map(name), &[name(126)]);
}

/// A place in a listing means the same for whoever has the directory open, and after a change.
#[test]
fn a_place_in_a_listing_stays() {
    let scene = Scene::new();
    let server = scene.serve();
    let (writer, reader) = scene.two_mounts(&server);
    let (there, here) = (writer.0.join("dir"), reader.0.join("dir"));
    long_directory(&there, &here);
    let open = open_dir(&here);
    let mut steps = Vec::new();
    loop {
        let step = some_names(&open);
        if step.is_empty() {
            break;
        }
        steps.extend(step);
    }
    let behind = |at: usize| steps[at + 1..].iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let read_from = |at: usize| {
        seek(&open, SeekFrom::Start(steps[at].1)).expect("a place");
        other_names(&open)
    };
    for at in [COUNT - 1, 20, 40, 3] {
        assert_eq!(read_from(at), behind(at), "at {at}");
    }
    fs::write(there.join("new"), "").expect("written");
    fs::remove_file(there.join(&steps[20].0)).expect("removed");
    std::thread::sleep(QUIET);
    (0..3).for_each(|_| assert_eq!(names(&here).len(), COUNT));
    for at in [40, 20] {
        check_names(&read_from(at), behind(at).into_iter(), &["new".to_owned()]);
    }
    // One that the mount does not know any more: behind the first two names.
    seek(&open, SeekFrom::Start(2)).expect("a place");
    assert_eq!(other_names(&open).into_iter().collect::<BTreeSet<_>>(), names(&here));
}

/// A directory that is read while it is removed, through either mount.
#[test]
fn a_directory_that_is_removed_while_it_is_open_has_no_names() {
    let scene = Scene::new();
    let server = scene.serve();
    let (writer, reader) = scene.two_mounts(&server);
    for (round, changer) in [&writer.0, &reader.0].into_iter().enumerate() {
        let (there, here) = (changer.join(format!("{round}")), reader.0.join(format!("{round}")));
        fs::create_dir(&there).expect("a directory");
        fs::write(there.join("file"), "").expect("written");
        std::thread::sleep(QUIET);
        (0..3).for_each(|_| assert_eq!(names(&here).len(), 1));
        let open = open_dir(&here);
        fs::remove_file(there.join("file")).expect("removed");
        fs::remove_dir(&there).expect("removed");
        let mut bytes = [MaybeUninit::uninit(); STEP_BYTES];
        let mut entries = RawDir::new(&open, &mut bytes);
        let first = entries.next().map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        assert!(first.as_ref().is_none_or(|first| first.is_err()), "{first:?}");
        assert!(fs::read_dir(&here).is_err());
    }
}

/// A listing that is sure the kernel reads by itself, also while the mount's process is stopped; and not any more when
/// somebody else has changed it.
#[test]
fn the_kernel_lists_by_itself_what_is_sure_and_no_longer() {
    let scene = Scene::new();
    let server = scene.serve();
    let holder = Foreground::new(&server.address, &scene.path("holder"));
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    fs::create_dir(writer.0.join("dir")).expect("a directory");
    fs::write(writer.0.join("dir/one"), "").expect("written");
    std::thread::sleep(QUIET);
    let dir = holder.mount.0.join("dir");
    let list = move || names(&dir).into_iter().collect::<Vec<_>>().join(" ");
    (0..3).for_each(|_| assert_eq!(list(), "one"));
    holder.signal(Signal::STOP);
    let (tell, told) = std::sync::mpsc::channel();
    let again = list.clone();
    let listing = std::thread::spawn(move || tell.send(again()));
    let said = told.recv_timeout(Duration::from_secs(4));
    holder.signal(Signal::CONT);
    assert_eq!(said.as_deref(), Ok("one"), "the kernel asks a process that is stopped");
    listing.join().expect("no panic").expect("somebody listens");
    fs::write(writer.0.join("dir/two"), "").expect("written");
    assert_eq!(list(), "one two");
    std::thread::sleep(QUIET);
    (0..3).for_each(|_| assert_eq!(list(), "one two"));
    fs::remove_file(writer.0.join("dir/one")).expect("removed");
    assert_eq!(list(), "two");
}
