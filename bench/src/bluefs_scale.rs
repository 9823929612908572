//! How BlueFS grows: with its clients, its files, the names in one directory, the size of a file, and with what others
//! have changed. Each as a curve.
//!
//! Clients are those of the client library, over TLS on this machine, where nothing else is said; mounts are real ones.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bluefs::op::{Content, Effect, SetAttr, SetTime, STEPS_MAX};
use bluefs::query::Query;
use bluefs::{Change, Cred, Csn, Ino, Interval, Kind, Name, Outcome, Runs, Step, Time};
use bluefs_client::Client;

use crate::bluefs_served::Served;
use crate::figure::{Base, Figure, Series};
use crate::inside::{machine, output_of, Workshop};
use crate::Options;

/// How long clients work.
const WORK: Duration = Duration::from_secs(10);
const QUICK_WORK: Duration = Duration::from_secs(1);
/// Bytes of each small file.
const SMALL_BYTES: usize = 200;
/// Files in each directory of a tree.
const DIR_FILES: usize = 100;
/// Bytes of changes that make up one interval.
const INTERVAL_BYTES: usize = 4 << 20;
/// Clients with the same invitation.
const CLIENTS_OF_ONE: usize = 250;
const MIB: f64 = (1 << 20) as f64;

/// The parts, by the names that `--only` takes.
const PARTS: [(&str, Part); 5] =
    [("clients", clients), ("files", files), ("directory", directory), ("large", large), ("status", status)];

type Part = fn(&Options, &Workshop) -> Result<Vec<Figure>, String>;

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    let work = Workshop::open()?;
    let mut figures = Vec::new();
    for (name, part) in
        PARTS.iter().filter(|(name, _)| options.only.is_empty() || options.only.iter().any(|only| only == name))
    {
        figures.extend(part(options, &work).map_err(|problem| format!("{name}: {problem}"))?);
    }
    if figures.is_empty() {
        return Err(format!("--only takes one of {}", PARTS.map(|(name, _)| name).join(", ")));
    }
    Ok(figures)
}

/// Curves along one axis.
struct Curves {
    at: &'static [f64],
    what: &'static str,
    notes: Vec<String>,
    /// Name of the results, title, unit, and a series for each point.
    kinds: Vec<(&'static str, &'static str, &'static str, Vec<Series>)>,
}

impl Curves {
    fn new(
        options: &Options,
        all: &'static [f64],
        quick: usize,
        what: &'static str,
        kinds: &[(&'static str, &'static str, &'static str)],
    ) -> Curves {
        let bound = |n: &f64| options.max.is_none_or(|max| *n <= max);
        let end = all.iter().take_while(|n| bound(n)).count().min(if options.quick { quick } else { all.len() });
        let at = &all[..end.max(1)];
        let series = || at.iter().map(|n| Series::new(format!("{n} {what}"))).collect();
        let kinds = kinds.iter().map(|(name, title, unit)| (*name, *title, *unit, series())).collect();
        Curves { at, what, notes: vec![machine()], kinds }
    }

    /// What was measured at a point, in the order of the kinds.
    fn add(&mut self, point: usize, values: &[f64]) {
        let mut said = format!("{} {}:", self.at[point], self.what);
        for ((_, title, unit, series), value) in self.kinds.iter_mut().zip(values) {
            series[point].values.push(*value);
            said += &format!(" {title} {value:.3} {unit};");
        }
        eprintln!("{said}");
    }

    fn figures(self) -> Vec<Figure> {
        let Curves { at, what, notes, kinds } = self;
        let figure = |(name, title, unit, series): (&'static str, &'static str, &'static str, _)| {
            let (title, notes) = (format!("{title}, by {what}"), notes.clone());
            Figure { name, title, unit, series, base: Base::Curve(at), targets: Vec::new(), notes }
        };
        kinds.into_iter().map(figure).collect()
    }
}

/// Clients that make, write, and look at files in directories of their own.
fn clients(options: &Options, work: &Workshop) -> Result<Vec<Figure>, String> {
    let kinds = [
        ("bluefs-clients", "operations in a second", "1/s"),
        ("bluefs-clients-longest", "longest wait for one", "ms"),
        ("bluefs-clients-memory", "memory of the server", "MiB"),
        ("bluefs-clients-cpu", "processor time of the server for each", "µs"),
        ("bluefs-clients-log", "log for each that changes something", "bytes"),
    ];
    let mut curves = Curves::new(options, &[1.0, 10.0, 100.0, 1000.0], 2, "clients", &kinds);
    curves.notes.push("of the library; each makes a file, writes 1 KiB, and asks for another one's inode".to_owned());
    for run in 0..options.runs {
        for (point, count) in curves.at.iter().copied().enumerate() {
            let store = work.file(&format!("clients-{run}-{count}"));
            let served = Served::start(&store)?;
            let found = at_work(&served, count as usize, if options.quick { QUICK_WORK } else { WORK })?;
            curves.add(point, &found);
            drop(served);
            // What is left behind goes with the workshop.
            let _ = std::fs::remove_dir_all(store);
        }
    }
    Ok(curves.figures())
}

/// One run with so many clients.
fn at_work(served: &Served, count: usize, time: Duration) -> Result<[f64; 5], String> {
    let all: Result<Vec<Client>, String> = (0..count).map(|number| served.client_by(number / CLIENTS_OF_ONE)).collect();
    let (all, stop, start) = (all?, Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(count + 1)));
    let threads: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(number, client)| {
            let (client, stop, start) = (client.clone(), stop.clone(), start.clone());
            std::thread::spawn(move || {
                let dir = create(&client, Ino::ROOT, &format!("client-{number}"), Kind::Dir);
                start.wait();
                worker(&client, dir?, &stop)
            })
        })
        .collect();
    start.wait();
    let (before, begun) = (served.used(), Instant::now());
    std::thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    let (mut done, mut longest) = (0, Duration::ZERO);
    for thread in threads {
        let (count, wait) = thread.join().map_err(|_| "a client has ended")??;
        (done, longest) = (done + count, longest.max(wait));
    }
    let (seconds, after) = (begun.elapsed().as_secs_f64(), served.used());
    let each = |value: f64| value / done as f64;
    let records = after.log_bytes.saturating_sub(before.log_bytes) as f64;
    let cpu_us = each((after.cpu_s - before.cpu_s) * 1e6);
    // Two of three operations change something.
    Ok([done as f64 / seconds, longest.as_secs_f64() * 1e3, after.memory_mib, cpu_us, each(records) * 1.5])
}

/// How many operations, and the longest one.
fn worker(client: &Client, dir: Ino, stop: &AtomicBool) -> Result<(u64, Duration), String> {
    let (mut done, mut longest, mut last) = (0, Duration::ZERO, dir);
    let mut timed = |begun: Instant| longest = longest.max(begun.elapsed());
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let file = create(client, dir, &format!("file-{done}"), Kind::File)?;
        timed(begun);
        let begun = Instant::now();
        let write = Change::Write { ino: file, offset: 0, content: Content::Inline(vec![b'x'; 1024]) };
        client.change_told(&Cred::root(), write, &|| false).map_err(|errno| format!("write: {errno:?}"))?;
        timed(begun);
        let begun = Instant::now();
        client.ask(&Cred::root(), Query::Inode(last), &|| false).map_err(|errno| format!("stat: {errno:?}"))?;
        timed(begun);
        (done, last) = (done + 3, file);
    }
    Ok((done, longest))
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn creation(dir: Ino, text: &str, kind: Kind, ino: Option<Ino>) -> Change {
    let mode = if kind == Kind::Dir { 0o755 } else { 0o644 };
    Change::Create { dir, name: name(text), ino, kind, mode, rdev: 0, target: Vec::new() }
}

fn create(client: &Client, dir: Ino, text: &str, kind: Kind) -> Result<Ino, String> {
    let told = client.change_told(&Cred::root(), creation(dir, text, kind, None), &|| false);
    match told.map_err(|errno| format!("create: {errno:?}"))?.effect {
        Effect::Created(ino) => Ok(ino),
        other => Err(format!("create: {other:?}")),
    }
}

/// Makes many changes in few intervals, which are on their way one after the other.
struct Filler<'c> {
    client: &'c Client,
    steps: Vec<Step>,
    bytes: usize,
    numbers: std::ops::Range<u64>,
}

impl<'c> Filler<'c> {
    fn new(client: &'c Client) -> Filler<'c> {
        Filler { client, steps: Vec::new(), bytes: 0, numbers: 0..0 }
    }

    /// A number for a new inode.
    fn ino(&mut self) -> Result<Ino, String> {
        if self.numbers.is_empty() {
            let group = self.client.lend(&|| false).map_err(|errno| format!("lend: {errno:?}"))?;
            self.numbers = group.0 * 64..(group.0 + 1) * 64;
        }
        self.numbers.next().map(Ino).ok_or_else(|| "a group without numbers".to_owned())
    }

    fn add(&mut self, change: Change) -> Result<(), String> {
        self.bytes += change.bytes();
        self.steps.push(Step { cred: 0, time: None, change });
        if self.steps.len() == STEPS_MAX || self.bytes > INTERVAL_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let (steps, creds) = (std::mem::take(&mut self.steps), vec![Cred::root()]);
        self.bytes = 0;
        let interval = Interval { number: 0, base: Csn(0), after: Runs::new(), reads: vec![], creds, steps };
        match self.client.submit(interval, Vec::new(), &|| false) {
            Ok(Outcome::Committed { .. }) => Ok(()),
            other => Err(format!("the changes are refused: {other:?}")),
        }
    }

    fn dir(&mut self, dir: Ino, text: &str) -> Result<Ino, String> {
        let ino = self.ino()?;
        self.add(creation(dir, text, Kind::Dir, Some(ino)))?;
        Ok(ino)
    }

    fn file(&mut self, dir: Ino, text: &str, data: Vec<u8>) -> Result<Ino, String> {
        let ino = self.ino()?;
        self.add(creation(dir, text, Kind::File, Some(ino)))?;
        self.add(Change::Write { ino, offset: 0, content: Content::Inline(data) })?;
        Ok(ino)
    }
}

/// A volume with many files: what it takes up, how long it takes to open it.
fn files(options: &Options, work: &Workshop) -> Result<Vec<Figure>, String> {
    let kinds = [
        ("bluefs-files", "files made in a second", "1/s"),
        ("bluefs-files-open", "opening the store", "s"),
        ("bluefs-files-memory", "memory of the server, just started", "MiB"),
        ("bluefs-files-peak", "most memory of the server while it opens the store", "MiB"),
        ("bluefs-files-filled", "memory of the server that made them", "MiB"),
        ("bluefs-files-store", "store for each file", "bytes"),
        ("bluefs-files-crash", "opening the store after a kill", "s"),
    ];
    let mut curves = Curves::new(options, &[1e3, 1e4, 1e5, 1e6], 2, "files", &kinds);
    curves.notes.push(format!("of {SMALL_BYTES} bytes, {DIR_FILES} in each directory, in large transactions"));
    for run in 0..options.runs {
        for (point, count) in curves.at.iter().copied().enumerate() {
            let store = work.file(&format!("files-{run}-{count}"));
            let served = Served::start(&store)?;
            let client = served.client()?;
            let begun = Instant::now();
            let mut filler = Filler::new(&client);
            let mut dir = Ino::ROOT;
            for number in 0..count as usize {
                if number % DIR_FILES == 0 {
                    dir = filler.dir(Ino::ROOT, &format!("dir-{}", number / DIR_FILES))?;
                }
                filler.file(dir, &format!("file-{number}"), vec![b'x'; SMALL_BYTES])?;
            }
            filler.flush()?;
            let made_per_s = count / begun.elapsed().as_secs_f64();
            drop(client);
            let filled = served.used();
            let killed = served.killed()?;
            let killed_s = killed.opened_s;
            let served = killed.restart()?;
            let used = served.used();
            let each = used.state_bytes as f64 / count;
            let values =
                [made_per_s, served.opened_s, used.memory_mib, used.peak_mib, filled.memory_mib, each, killed_s];
            curves.add(point, &values);
            drop(served);
            let _ = std::fs::remove_dir_all(store);
        }
    }
    Ok(curves.figures())
}

/// One large directory.
fn directory(options: &Options, work: &Workshop) -> Result<Vec<Figure>, String> {
    let kinds = [
        ("bluefs-directory", "listing with attributes, cold", "s"),
        ("bluefs-directory-again", "the same again", "s"),
        ("bluefs-directory-create", "making one more file", "ms"),
        ("bluefs-directory-remove", "removing one file", "ms"),
        ("bluefs-directory-memory", "memory of the mount", "MiB"),
    ];
    let mut curves = Curves::new(options, &[1e2, 1e3, 1e4, 1e5], 2, "names", &kinds);
    curves.notes.push("in one directory, on a mount".to_owned());
    for run in 0..options.runs {
        for (point, count) in curves.at.iter().copied().enumerate() {
            let store = work.file(&format!("directory-{run}-{count}"));
            let served = Served::start(&store)?;
            {
                let client = served.client()?;
                let mut filler = Filler::new(&client);
                for number in 0..count as usize {
                    filler.file(Ino::ROOT, &format!("file-{number}"), vec![b'x'; SMALL_BYTES])?;
                }
                filler.flush()?;
            }
            let dir = work.file(&format!("mount-{run}-{count}"));
            let mount = served.mount(&dir)?;
            let list = || seconds_of("find . -type f -printf '%s\\n' > /dev/null", &dir);
            let (cold, again) = (list()?, list()?);
            let memory = mount.memory_mib();
            const TIMES: f64 = 20.0;
            let create = seconds_of("for i in $(seq 20); do : > new$i; done", &dir)? / TIMES * 1e3;
            let remove = seconds_of("for i in $(seq 20); do rm file-$i; done", &dir)? / TIMES * 1e3;
            curves.add(point, &[cold, again, create, remove, memory]);
            drop((mount, served));
            let _ = std::fs::remove_dir_all(store);
        }
    }
    Ok(curves.figures())
}

/// One large file.
fn large(options: &Options, work: &Workshop) -> Result<Vec<Figure>, String> {
    let kinds = [
        ("bluefs-large-write", "writing", "MiB/s"),
        ("bluefs-large-read", "reading, cold", "MiB/s"),
        ("bluefs-large-open", "opening the store", "s"),
        ("bluefs-large-memory", "most memory of the server", "MiB"),
        ("bluefs-large-mount", "memory of the mount", "MiB"),
        ("bluefs-large-store", "state for each byte of the file", "bytes"),
        ("bluefs-large-log", "log", "MiB"),
    ];
    let mut curves = Curves::new(options, &[16.0, 128.0, 1024.0, 10_240.0], 2, "MiB", &kinds);
    curves.notes.push("one file, written and read by dd in pieces of 1 MiB on a mount".to_owned());
    for run in 0..options.runs {
        for (point, count) in curves.at.iter().copied().enumerate() {
            let store = work.file(&format!("large-{run}-{count}"));
            let served = Served::start(&store)?;
            let dir = work.file(&format!("large-mount-{run}-{count}"));
            let mount = served.mount(&dir)?;
            let write = format!("dd if=/dev/zero of=large bs=1M count={count} conv=fsync status=none");
            let write = count / seconds_of(&write, &dir)?;
            drop(mount);
            let filled = served.used();
            let served = served.restart()?;
            let mount = served.mount(&dir)?;
            let read = count / seconds_of("dd if=large of=/dev/null bs=1M status=none", &dir)?;
            let (used, memory) = (served.used(), mount.memory_mib());
            let store_each = used.state_bytes as f64 / (count * MIB);
            let (peak, log) = (filled.peak_mib.max(used.peak_mib), filled.log_bytes as f64 / MIB);
            curves.add(point, &[write, read, served.opened_s, peak, memory, store_each, log]);
            drop((mount, served));
            let _ = std::fs::remove_dir_all(store);
        }
    }
    Ok(curves.figures())
}

/// `git status` after others have changed some of many files.
fn status(options: &Options, work: &Workshop) -> Result<Vec<Figure>, String> {
    let kinds = [("bluefs-status", "git status", "s"), ("bluefs-status-local", "git status on the local disk", "s")];
    // No change at all is the first point; a logarithm has no place for it.
    let mut curves = Curves::new(options, &[1.0, 10.0, 1000.0], 2, "changes (1: none)", &kinds);
    let count = if options.quick { 500 } else { 50_000 };
    curves.notes.push(format!("{count} files of {SMALL_BYTES} bytes; others change them through another client"));
    let local = work.file("repository");
    let make = format!(
        "set -e; mkdir repository; cd repository; git init -q .; git config user.email bench@localhost; \
         git config user.name bench; i=0; while [ $i -lt {dirs} ]; do mkdir d$i; \
         (cd d$i; seq 1 {DIR_FILES} | split -l 1 -a 3 - f); i=$((i + 1)); done; \
         git add .; git commit -q -m one; git gc -q",
        dirs = count / DIR_FILES
    );
    seconds_of(&make, work.path())?;
    for run in 0..options.runs {
        let store = work.file(&format!("status-{run}"));
        let served = Served::start(&store)?;
        let client = served.client()?;
        let mut copied = Vec::new();
        let mut filler = Filler::new(&client);
        copy(&mut filler, &local, Ino::ROOT, &mut copied)?;
        filler.flush()?;
        let dir = work.file(&format!("status-mount-{run}"));
        let _mount = served.mount(&dir)?;
        let git = |dir: &Path| seconds_of("git -c safe.directory='*' status --short > /dev/null", dir);
        // The index does not know these inodes yet: the first one reads every file.
        curves.notes.push(format!("the first git status after the copy: {:.3} s", git(&dir)?));
        for (point, changes) in curves.at.iter().copied().enumerate() {
            let changes = if changes == 1.0 { 0 } else { changes as usize };
            let step = (copied.len() / changes.max(1)).max(1);
            for (ino, path) in copied.iter().step_by(step).take(changes) {
                let change = Change::Append { ino: *ino, content: Content::Inline(b"more\n".to_vec()) };
                client.change_told(&Cred::root(), change, &|| false).map_err(|errno| format!("append: {errno:?}"))?;
                let text = std::fs::read_to_string(path).map_err(|error| error.to_string())? + "more\n";
                std::fs::write(path, text).map_err(|error| error.to_string())?;
            }
            git(&local)?;
            curves.add(point, &[git(&dir)?, git(&local)?]);
        }
        drop(client);
    }
    Ok(curves.figures())
}

/// Copies a tree; says which files outside `.git` there are.
fn copy(filler: &mut Filler, from: &Path, to: Ino, files: &mut Vec<(Ino, std::path::PathBuf)>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", from.display());
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (text, metadata) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata().map_err(failed)?);
        if metadata.is_dir() {
            let dir = filler.dir(to, &text)?;
            copy(filler, &entry.path(), dir, files)?;
            continue;
        }
        let data = std::fs::read(entry.path()).map_err(failed)?;
        let ino = filler.ino()?;
        filler.add(creation(to, &text, Kind::File, Some(ino)))?;
        for (piece, data) in data.chunks(bluefs::op::STEP_BYTES_MAX).enumerate() {
            let offset = (piece * bluefs::op::STEP_BYTES_MAX) as u64;
            filler.add(Change::Write { ino, offset, content: Content::Inline(data.to_vec()) })?;
        }
        let modified = metadata.modified().map_err(failed)?.duration_since(std::time::UNIX_EPOCH);
        let mtime = Time(modified.map_or(0, |since| since.as_nanos() as i64));
        let set = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
        filler.add(Change::SetAttr { ino, set })?;
        if !from.components().any(|part| part.as_os_str() == ".git") {
            files.push((ino, entry.path()));
        }
    }
    Ok(())
}

/// Runs a script in a directory: how long it takes, s.
fn seconds_of(script: &str, dir: &Path) -> Result<f64, String> {
    let begun = Instant::now();
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).env("LC_ALL", "C");
    output_of(command)?;
    Ok(begun.elapsed().as_secs_f64())
}
