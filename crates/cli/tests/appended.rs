//! What a program appends to a file and flushes is on the disk before the file's size counts it, also where our commit
//! of the whole file system stands for its flush. Then a crash at no moment leaves zeroes at the file's end, at which a
//! program may give up. The crash disk looks after each flush. Needs root, FUSE and loop devices.
//!
//! `setpriority` is a barrier: it waits for what was shown. A commit of everything may catch what a program appends
//! meanwhile to a file that is not the log, and has not flushed yet, as `sync` natively does.

use std::sync::atomic::AtomicBool;

use testkit::crash::{
    private_mounts, record, replay_all, Configuration, Cut, DiskEvent, Expectation, Log, RecordOptions, Violation,
};

use crate::support::has_root_for;

/// ext4 as it is mounted everywhere: it orders only the data of blocks that it allocates, and not the new ones that it
/// notes as unwritten.
const MOUNT: &str = "commit=60";

/// Each round appends to one of two files, of which one at most is the log of the file system, and changes a name: that
/// is more than a flush of the one file would commit. The second write says that no write flushes the file.
const FLUSHES: &str = "
import os
files = [os.open('appended%d' % n, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for n in range(2)]
os.close(os.open('0', os.O_CREAT))
for n in range(60):
    os.rename(str(n), str(n + 1))
    os.write(files[n % 2], b'x' * 2000)
    os.write(files[n % 2], b'x' * 48)
    os.fdatasync(files[n % 2])
    os.write(1, b'%d\\n' % n)
    os.setpriority(os.PRIO_PROCESS, 0, 0)
";

/// The file is the log after a few rounds. Then its appends are committed with something else, for a barrier and not
/// for its own flush.
const LOG: &str = "
import os
file = os.open('appended0', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.close(os.open('0', os.O_CREAT))
for n in range(5):
    os.write(file, b'x' * 2048)
    os.fdatasync(file)
    os.write(1, b'log\\n')
    os.setpriority(os.PRIO_PROCESS, 0, 0)
for n in range(60):
    os.rename(str(n), str(n + 1))
    os.write(file, b'x' * 2048)
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    os.write(1, b'%d\\n' % n)
";

/// The log is flushed by the write to it, while what was shown of the round before is committed with a name.
const WRITES: &str = "
import os
file = os.open('appended0', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.close(os.open('0', os.O_CREAT))
for n in range(60):
    os.rename(str(n), str(n + 1))
    os.write(file, b'x' * 2048)
    os.fdatasync(file)
    os.write(1, b'%d\\n' % n)
    if n < 5:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
";

/// Another process commits names all the time, and the file is flushed a while after it was appended to, so that no
/// write flushes it.
const BESIDE: &str = "
import os, time
file = os.open('appended0', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.close(os.open('0', os.O_CREAT))
other = None
for n in range(60):
    os.write(file, b'x' * 2048)
    time.sleep(0.002)
    os.fdatasync(file)
    os.write(1, b'%d\\n' % n)
    if n == 5:
        other = os.fork()
    if other == 0:
        names = 0
        while not os.path.exists('end'):
            os.rename(str(names), str(names + 1))
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            names += 1
        os._exit(0)
os.close(os.open('end', os.O_CREAT))
os.wait()
";

fn after_each_flush(log: &Log) -> Vec<Cut> {
    let cut = |event: &DiskEvent| match event {
        DiskEvent::Flush { end, .. } if *end < log.end => Some(Cut::nothing_kept(log, end + 1)),
        _ => None,
    };
    log.disk.iter().filter_map(cut).collect()
}

fn check(program: &str) {
    if !has_root_for("the crash disk") {
        return;
    }
    private_mounts().unwrap();
    let interrupted = AtomicBool::new(false);
    let options = RecordOptions::small(&interrupted);
    let command = format!("{} run --", env!("CARGO_BIN_EXE_speculator"));
    let ours = Configuration::ours(&command, MOUNT, Expectation::Durable);
    let recording = record(&ours, &options, |_, _| ["python3", "-c", program].map(Into::into).to_vec()).unwrap();
    let cuts = after_each_flush(&recording.log);
    assert!(cuts.len() >= 60, "{} flushes", cuts.len());
    let look = |dir: &std::path::Path, _: &[_]| {
        let files = ["appended0", "appended1"].map(|name| std::fs::read(dir.join(name)).unwrap_or_default());
        let bad = files.into_iter().filter(|bytes| bytes.contains(&0));
        bad.map(|bytes| Violation::Corrupt(format!("zeroes among {} bytes", bytes.len()))).collect()
    };
    let outcomes = replay_all(&recording.log, MOUNT, &cuts, 1, &interrupted, look).unwrap();
    let bad: Vec<_> = outcomes.iter().filter(|outcome| !outcome.violations.is_empty()).collect();
    let first = bad.first().map(|outcome| &outcome.violations);
    assert!(bad.is_empty(), "{} of {} cuts; the first: {first:?}", bad.len(), cuts.len());
}

#[test]
fn a_commit_in_the_place_of_a_flush_leaves_no_zeroes() {
    check(FLUSHES);
}

#[test]
fn a_commit_of_more_than_the_log_leaves_no_zeroes_in_it() {
    check(LOG);
}

#[test]
fn a_write_that_flushes_leaves_no_zeroes_beside_a_commit() {
    check(WRITES);
}

#[test]
fn what_is_appended_beside_a_commit_leaves_no_zeroes() {
    check(BESIDE);
}
