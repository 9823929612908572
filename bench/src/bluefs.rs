//! Everyday work on a directory of a server at the other end of a line: BlueFS, sshfs, rclone, and a local disk; and
//! NFS and BlueFS in a guest.
//!
//! Each row says what it took, and the line says exactly what went over it. What is durable when a command returns
//! differs: see the notes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::network::Shape;

use crate::bluefs_place::{peers, Peer, Place, Took};
use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::{machine, output_of, repository, Workshop};
use crate::Options;

/// A step of the work.
struct Row {
    name: &'static str,
    /// Whether the directory is mounted anew before it, so that no client has anything in its caches.
    cold: bool,
    /// For `sh`, in the directory. `$IN` has what is put in, `$MB` the size of the large file, `$PM` PostMark's files.
    script: &'static str,
}

const fn warm(name: &'static str, script: &'static str) -> Row {
    Row { name, cold: false, script }
}

const fn cold(name: &'static str, script: &'static str) -> Row {
    Row { name, cold: true, script }
}

const LIST: &str = "find tree -printf '%s\\n' > /dev/null";
const READ: &str = "find tree -type f -exec cat {} + > /dev/null";
const WRITE_LARGE: Row = warm("write a large file", "dd if=/dev/zero of=large bs=1M count=$MB conv=fsync status=none");
const READ_LARGE: Row = cold("read a large file, cold", "dd if=large of=/dev/null bs=1M status=none");

const EVERYDAY: &[Row] = &[
    warm("untar", "tar -xf $IN/tree.tar"),
    cold("list and stat, cold", LIST),
    warm("list and stat, again", LIST),
    cold("read all files, cold", READ),
    warm("read all files, again", READ),
    warm("rm -rf", "rm -rf tree"),
    warm("git clone", "git clone -q file://$IN/repository clone"),
    warm("git status", "git -C clone status --short"),
    warm("git checkout", "git -C clone checkout -q other"),
    WRITE_LARGE,
    READ_LARGE,
];

const POSTMARK: &[Row] = &[warm(
    "PostMark",
    "mkdir pm; for set in 'location pm' \"number $PM\" \"transactions $PM\" 'size 500 10000' 'seed 42'; do \
     echo \"set $set\"; done > settings; printf 'run\\nquit\\n' >> settings; postmark settings > report; rm -rf pm",
)];

const BUILD: &[Row] = &[
    warm("untar a C package", "tar -xzf $IN/source.tar.gz"),
    warm("configure", "cd hello-*; ./configure --quiet --disable-nls > /dev/null 2>&1"),
    warm("make", "cd hello-*; make > /dev/null 2>&1; ./hello > /dev/null"),
    warm("remove it", "rm -rf hello-*"),
];

const NPM: &[Row] =
    &[warm("npm install", "mkdir app; cd app; npm install --offline --no-audit --no-fund $IN/packages/* > /dev/null")];

const REMOVE: &[Row] = &[cold("rm -rf of many files", "rm -rf tree")];

const BULK: &[Row] = &[WRITE_LARGE, READ_LARGE];

/// Work over one line.
struct Part {
    /// What `--only` takes, and the name of the results.
    name: &'static str,
    round_trip_ms: u64,
    /// Megabits a second; 0: no limit.
    rate: u64,
    rows: &'static [Row],
    /// Files of the tree, and megabytes of the large file; with `--quick`.
    files: [u32; 2],
    megabytes: [u32; 2],
    /// Whether the tree is there before the first row.
    is_put: bool,
}

const fn part(name: &'static str, round_trip_ms: u64, rate: u64, rows: &'static [Row]) -> Part {
    Part { name, round_trip_ms, rate, rows, files: [1000, 40], megabytes: [128, 8], is_put: false }
}

const PARTS: [Part; 14] = [
    part("bluefs-0ms", 0, 0, EVERYDAY),
    part("bluefs-30ms", 30, 0, EVERYDAY),
    part("bluefs-30ms-100mbit", 30, 100, EVERYDAY),
    part("bluefs-30ms-1gbit", 30, 1000, EVERYDAY),
    part("bluefs-postmark-0ms", 0, 0, POSTMARK),
    part("bluefs-postmark-30ms", 30, 0, POSTMARK),
    part("bluefs-build-0ms", 0, 0, BUILD),
    part("bluefs-build-30ms", 30, 0, BUILD),
    part("bluefs-npm-0ms", 0, 0, NPM),
    part("bluefs-npm-30ms", 30, 0, NPM),
    Part { files: [10_000, 200], is_put: true, ..part("bluefs-remove-0ms", 0, 0, REMOVE) },
    Part { files: [10_000, 200], is_put: true, ..part("bluefs-remove-30ms", 30, 0, REMOVE) },
    Part { megabytes: [1024, 8], ..part("bluefs-bulk-100mbit", 30, 100, BULK) },
    Part { megabytes: [1024, 8], ..part("bluefs-bulk-1gbit", 30, 1000, BULK) },
];

/// The part of a line's rate that bulk is to have.
const BULK_PART_MIN: f64 = 0.9;

impl Part {
    /// Whether `--only` means it; without that the first two are run.
    fn is_wanted(&self, only: &[String]) -> bool {
        let short = self.name.trim_start_matches("bluefs-");
        match only {
            [] => ["bluefs-0ms", "bluefs-30ms"].contains(&self.name),
            only => only.iter().any(|only| only == "all" || only == short || only == self.name),
        }
    }

    fn size(&self, sizes: [u32; 2], options: &Options) -> u32 {
        sizes[usize::from(options.quick)]
    }

    fn shape(&self) -> Shape {
        let rate = (self.rate > 0).then_some(self.rate * 1_000_000);
        Shape { round_trip: Duration::from_millis(self.round_trip_ms), rate, ..Shape::default() }
    }

    /// What it needs and is not there.
    fn missing(&self, input: &Path) -> Option<&'static str> {
        let there = |name: &str| Command::new("which").arg(name).output().is_ok_and(|found| found.status.success());
        match self.name {
            name if name.contains("postmark") && !there("postmark") => Some("postmark (cargo xtask setup)"),
            name if name.contains("build") && !input.join("source.tar.gz").exists() => {
                Some("the C package (cargo xtask setup)")
            }
            name if name.contains("npm") && !there("npm") => Some("npm"),
            _ => None,
        }
    }
}

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    let wanted: Vec<&Part> = PARTS.iter().filter(|part| part.is_wanted(&options.only)).collect();
    if wanted.is_empty() {
        let names = PARTS.each_ref().map(|part| part.name.trim_start_matches("bluefs-"));
        return Err(format!("--only takes one of {}, or all", names.join(", ")));
    }
    let mut figures = Vec::new();
    for part in wanted {
        let work = Workshop::open()?;
        make_input(work.path(), part.size(part.files, options))?;
        match part.missing(work.path()) {
            Some(what) => println!("left out: {}: {what} is not there", part.name),
            None => figures.push(figure(options, &work, part)?),
        }
    }
    Ok(figures)
}

fn figure(options: &Options, work: &Workshop, part: &Part) -> Result<Figure, String> {
    let (peers, left_out) = peers();
    let mut series: Vec<Series> = Vec::new();
    for row in part.rows {
        series.extend(peers.iter().map(|peer| Series::new(format!("{}: {}", row.name, peer.name()))));
    }
    let (mut last, mut failed) = (BTreeMap::new(), BTreeMap::new());
    let (files, megabytes) = (part.size(part.files, options), part.size(part.megabytes, options));
    let input = work.path().display().to_string();
    let variables = [("IN", input), ("MB", megabytes.to_string()), ("PM", (files / 2).to_string())];
    for run in 0..options.runs {
        for (index, peer) in peers.iter().enumerate() {
            let dir = work.file(&format!("{}-{}-{run}", part.name, peer.name().replace(' ', "-")));
            let mut place = Place::new(*peer, dir, part.shape())?;
            if part.is_put {
                place.put(&work.file("tree"))?;
            }
            for (row, step) in part.rows.iter().enumerate() {
                match place.step(step.script, step.cold, &variables) {
                    Ok(took) => {
                        series[row * peers.len() + index].values.push(took.seconds);
                        last.insert((row, index), took);
                    }
                    // What another one cannot do is no reason to measure nothing.
                    Err(problem) if ![Peer::Local, Peer::Bluefs, Peer::BluefsInGuest].contains(peer) => {
                        failed.insert((row, index), problem);
                    }
                    Err(problem) => return Err(format!("{}: {}: {problem}", step.name, peer.name())),
                }
            }
        }
    }
    let rate = if part.rate == 0 { "no limit of its rate".to_owned() } else { format!("{} Mbit/s", part.rate) };
    let shape = format!("{} ms, {rate}", part.round_trip_ms);
    let mut notes = vec![
        format!("{}; a line of {shape}; {files} files of 1 to 20 KB, a large file of {megabytes} MB", machine()),
        "durable when a command returns: BlueFS: everything; sshfs and the local disk: nothing without fsync; NFS: \
         names, and what was written to files that were closed; rclone: nothing (files are sent 5 s after they were \
         closed)"
            .to_owned(),
    ];
    notes.extend(left_out);
    for ((row, index), took) in &last {
        notes.extend(note(part, &part.rows[*row], peers[*index], took));
    }
    for ((row, index), problem) in failed {
        let line = problem.lines().last().unwrap_or_default();
        notes.push(format!("{}: {} fails: {line}", part.rows[row].name, peers[index].name()));
    }
    let targets = targets(part, &peers, &series, megabytes);
    let title = format!("Everyday work on a server's directory, {shape}");
    Ok(Figure { name: part.name, title, unit: "s", series, base: Base::Groups(peers.len()), targets, notes })
}

/// What went over the line, and what the server has computed.
fn note(part: &Part, row: &Row, peer: Peer, took: &Took) -> Option<String> {
    let [there, back] = took.carried;
    let trips = match Duration::from_millis(part.round_trip_ms).as_secs_f64() {
        0.0 => String::new(),
        trip => format!(", the time of {:.0} round trips", took.seconds / trip),
    };
    (there.packets > 0).then(|| {
        format!(
            "{}: {}: {} packets and {} bytes there, {} and {} back{trips}; {:.2} s of the server's processor \
             (last run)",
            row.name,
            peer.name(),
            there.packets,
            there.bytes,
            back.packets,
            back.bytes,
            took.server_s
        )
    })
}

/// No row is to be slower than sshfs, or, in a guest, than NFS; bulk is to use the line.
fn targets(part: &Part, peers: &[Peer], series: &[Series], megabytes: u32) -> Vec<Target> {
    let at = |row: usize, peer| Some(series[row * peers.len() + peers.iter().position(|one| *one == peer)?].median());
    let mut targets = Vec::new();
    for (index, row) in part.rows.iter().enumerate() {
        let Some(ours) = at(index, Peer::Bluefs) else { continue };
        if let Some(theirs) = at(index, Peer::Sshfs).filter(|theirs| !theirs.is_nan()) {
            let (claim, measured) = (format!("{}: BlueFS / sshfs", row.name), ours / theirs);
            targets.push(Target { claim, measured, limit: Limit::AtMost(1.0) });
        }
        // Without a delay, what a switch between two programs of a guest costs would be measured: BlueFS makes some for
        // each request, NFS none.
        let in_guest = (at(index, Peer::BluefsInGuest), at(index, Peer::NfsInGuest));
        if let (Some(ours), Some(theirs), 1..) = (in_guest.0, in_guest.1, part.round_trip_ms) {
            if !theirs.is_nan() {
                let claim = format!("{}: BlueFS / NFS, both in a guest", row.name);
                targets.push(Target { claim, measured: ours / theirs, limit: Limit::AtMost(1.0) });
            }
        }
        if part.rate > 0 && row.name.contains("large file") {
            let megabits = f64::from(megabytes) * f64::from(8 << 20) / 1e6;
            let (claim, measured) = (format!("{}: part of the line", row.name), megabits / ours / part.rate as f64);
            targets.push(Target { claim, measured, limit: Limit::AtLeast(BULK_PART_MIN) });
        }
    }
    targets
}

/// A tree of small files, also as an archive, a repository with two branches, a C package, and packages of npm.
fn make_input(dir: &Path, files: u32) -> Result<(), String> {
    let script = r#"set -e; cd "$1"; mkdir tree; i=0
        while [ $i -lt $2 ]; do
            d=tree/d$((i / 20)); [ -d $d ] || mkdir $d
            head -c $((1000 + i * 7919 % 19000)) /dev/zero | tr '\0' x > $d/f$i; i=$((i + 1))
        done
        tar -cf tree.tar tree
        git init -q repository; cp -r tree repository/; cd repository
        git config user.email bench@localhost; git config user.name bench
        git add .; git commit -q -m one; git checkout -q -b other
        for f in tree/d0/*; do echo more >> $f; done; git rm -rq tree/d1; git commit -q -a -m two; git checkout -q -
        cd ..; mkdir packages
        for p in one two three four; do
            mkdir packages/$p; cp -r tree/d0 packages/$p/lib
            printf '{"name": "package-%s", "version": "1.0.0"}' $p > packages/$p/package.json
            (cd packages/$p; tar -czf ../$p.tgz --transform 's,^\.,package,' .); rm -r packages/$p
        done
        [ ! -f "$3" ] || cp "$3" source.tar.gz"#;
    let source = repository().join("target/sources/hello_2.10.orig.tar.gz");
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(dir).arg(files.to_string()).arg(source);
    output_of(command).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_chosen_by_name() {
        let chosen = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            PARTS.iter().filter(|part| part.is_wanted(&only)).map(|part| part.name).collect()
        };
        assert_eq!(chosen(&[]), ["bluefs-0ms", "bluefs-30ms"]);
        assert_eq!(chosen(&["remove-30ms", "bluefs-0ms"]), ["bluefs-0ms", "bluefs-remove-30ms"]);
        assert_eq!(chosen(&["all"]).len(), PARTS.len());
        assert!(chosen(&["none"]).is_empty());
    }

    #[test]
    fn bars_are_about_the_slowest_peer_and_the_line() {
        let part = part("bluefs-bulk", 30, 100, BULK);
        let series = |values: &[f64]| values.iter().map(|s| Series { name: String::new(), values: vec![*s] }).collect();
        let peers = [Peer::Local, Peer::Bluefs, Peer::Sshfs];
        let all: Vec<Series> = series(&[0.1, 2.0, 1.0, 0.1, 1.0, 4.0]);
        // 10 MiB in 1 s are 83.9 Mbit/s.
        let met: Vec<(bool, f64)> =
            targets(&part, &peers, &all, 10).iter().map(|target| (target.met(), target.measured)).collect();
        let [slower, write, faster, read] = met.as_slice() else { panic!("{met:?}") };
        assert_eq!((*slower, *faster), ((false, 2.0), (true, 0.25)));
        assert!(!write.0 && !read.0 && (read.1 - 0.839).abs() < 0.001, "{met:?}");
    }
}
