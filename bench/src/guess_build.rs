//! Whole builds inside one open guess: right in the end against the same in `run`, and wrong in the end.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Instant;

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::{ahead, built, command, machine, output_of, prefix_with, repository, Workshop};
use crate::Options;

/// A build may take so many times as long in a guess as in `run`.
const RIGHT_MAX: f64 = 1.25;

/// No build takes so many seconds; the small ones of `--quick` none of the second.
const PATIENCE_S: u32 = 300;
const QUICK_PATIENCE_S: u32 = 30;

/// One thing that is built: what makes the directory ready, untimed and outside, and what is timed.
struct Job {
    name: &'static str,
    prepare: &'static str,
    script: &'static str,
    quick: &'static str,
}

const JOBS: [Job; 4] = [
    Job {
        name: "GNU hello",
        prepare: r#"cp "$ARCHIVE" source.tar.gz"#,
        script: "tar xzf source.tar.gz; cd hello-*; ./configure --quiet --disable-nls; make -j2; make check; ./hello",
        quick: "tar xzf source.tar.gz; cd hello-*; gcc -c -Ilib -o one.o lib/xalloc-die.c || true; ls",
    },
    Job {
        name: "git clone and checkout",
        prepare: "git init -q -b main from; cd from; git config user.name a; git config user.email a@example.org; \
            for n in $(seq 20); do mkdir -p d$n; for f in $(seq 10); do seq $((n * f)) > d$n/f$f; done; \
            git add .; git commit -qm $n; done",
        script: "git clone -q --no-hardlinks from copy; cd copy; git checkout -q HEAD~10; git status --short",
        quick: "git clone -q --no-hardlinks from copy; cd copy; git checkout -q HEAD~1",
    },
    Job {
        name: "cargo build",
        prepare: "cargo new -q --vcs none --lib part; cargo new -q --vcs none whole; \
            printf 'part = { path = \"../part\" }\\n' >> whole/Cargo.toml; \
            printf 'fn main() { println!(\"{}\", part::add(1, 2)); }\\n' > whole/src/main.rs",
        script: "cd whole; cargo build -q --offline; target/debug/whole",
        quick: "cd whole; cargo metadata -q --offline --format-version 1 > out",
    },
    Job {
        name: "go build",
        prepare: "mkdir go; cd go; printf 'module m\\n' > go.mod; \
            printf 'package main\\n\\nimport \"fmt\"\\n\\nfunc main() { fmt.Println(1) }\\n' > m.go",
        script: "cd go; GOCACHE=$PWD/cache GOFLAGS=-mod=mod go build -o m .; ./m",
        quick: "cd go; gofmt -l .",
    },
];

/// How a build is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Run,
    Right,
    Wrong,
}

const WAYS: [Way; 3] = [Way::Run, Way::Right, Way::Wrong];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Run => "in run",
            Way::Right => "speculator, in a right guess",
            Way::Wrong => "speculator, in a wrong guess",
        }
    }

    /// What `sh` runs. The build's own output goes to a file of its own.
    fn script(self, build: &str) -> String {
        let build = format!("( set -e; {build} ) > log 2>&1");
        match self {
            Way::Run => build,
            Way::Right => format!(
                "id=$(\"$SPECULATOR\" begin); {build}; s=$?; [ \"$id\" = failed ] || \"$SPECULATOR\" commit \"$id\"; exit $s"
            ),
            Way::Wrong => format!(
                "id=$(\"$SPECULATOR\" begin); if [ \"$id\" != failed ]; then {build}; \"$SPECULATOR\" fail \"$id\"; exit 9; fi"
            ),
        }
    }
}

/// What one run has shown.
struct Found {
    seconds: f64,
    /// What a reader has to know of it.
    did: String,
    /// Why it is no measurement.
    problem: Option<String>,
}

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let workshop = Workshop::open()?;
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    let mut notes = vec![machine(), "the world's start and end are part of each time".to_owned()];
    for job in &JOBS {
        let mut group = WAYS.map(|way| Series::new(format!("{}, {}", job.name, way.name())));
        let mut last = WAYS.map(|_| String::new());
        // What failed once is not tried again: it may have waited until its time was over.
        let mut has_failed = WAYS.map(|_| false);
        for run in 0..options.runs {
            for (at, way) in WAYS.into_iter().enumerate() {
                if has_failed[at] {
                    continue;
                }
                let found = measure(&workshop, job, way, options.quick)?;
                eprintln!("run {}: {}: {:.3} s; {}", run + 1, group[at].name, found.seconds, found.did);
                has_failed[at] = found.problem.is_some();
                match found.problem {
                    None => group[at].values.push(found.seconds),
                    Some(problem) => notes.push(format!("{}, run {}: {problem}", group[at].name, run + 1)),
                }
                last[at] = found.did;
            }
        }
        for (series, did) in group.iter().zip(last).filter(|(_, did)| !did.is_empty()) {
            notes.push(format!("{}: {did}", series.name));
        }
        let measured = group[1].median() / group[0].median();
        let claim = format!("{}: right guess / run", job.name);
        targets.push(Target { claim, measured, limit: Limit::AtMost(RIGHT_MAX) });
        series.extend(group);
    }
    let title = "Builds inside one open guess".to_owned();
    Ok(Figure { name: "guess-build", title, unit: "s", series, base: Base::Groups(WAYS.len()), targets, notes })
}

fn measure(workshop: &Workshop, job: &Job, way: Way, is_quick: bool) -> Result<Found, String> {
    let (work, stats) = (workshop.file("work"), workshop.file("stats.json"));
    let _ = std::fs::remove_file(&stats);
    std::fs::create_dir(&work).map_err(|error| format!("cannot make {}: {error}", work.display()))?;
    let archive = repository().join("target/sources/hello_2.10.orig.tar.gz");
    let mut prepare = command(&["sh".to_owned(), "-ec".to_owned(), job.prepare.to_owned()]);
    prepare.current_dir(&work).env("ARCHIVE", archive);
    output_of(prepare).map_err(|problem| format!("{problem} (is all there? cargo xtask setup)"))?;
    let before = listing(&work)?;
    let build = if is_quick { job.quick } else { job.script };
    let patience = if is_quick { QUICK_PATIENCE_S } else { PATIENCE_S };
    let patience = ["timeout", "-k", "1", &patience.to_string()].map(str::to_owned);
    let words =
        [patience.to_vec(), prefix_with(&[], &stats)?, ["sh".to_owned(), "-c".to_owned(), way.script(build)].to_vec()]
            .concat();
    let mut timed = command(&words);
    timed.current_dir(&work).stdin(Stdio::null()).env("SPECULATOR", built("speculator"));
    let start = Instant::now();
    let output = timed.output().map_err(|error| format!("cannot run {words:?}: {error}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let did = if way == Way::Run { String::new() } else { told(&stats) };
    let problem = problem(way, &output, &work, &before)?;
    std::fs::remove_dir_all(&work).map_err(|error| format!("cannot remove {}: {error}", work.display()))?;
    Ok(Found { seconds, did, problem })
}

/// Waits, and what was taken back.
fn told(stats: &Path) -> String {
    let Ok(did) = ahead(stats) else { return "no statistics".to_owned() };
    let barriers: Vec<String> =
        did["barriers"].as_object().into_iter().flatten().map(|(name, count)| format!("{name} {count}")).collect();
    let waits = if barriers.is_empty() { "no waits".to_owned() } else { format!("waits: {}", barriers.join(", ")) };
    let rollbacks = did["rollbacks"].as_array().into_iter().flatten().map(|rollback| {
        let number = |field: &str| rollback[field].as_u64().unwrap_or(0);
        let (us, processes, operations) = (number("us"), number("processes"), number("operations"));
        format!("; {processes} processes and {operations} operations taken back in {us} µs")
    });
    format!(
        "{waits}{}; {} ends of processes in a guess",
        rollbacks.collect::<String>(),
        did["held_exits"].as_u64().unwrap_or(0) + did["unasked_ends"].as_u64().unwrap_or(0)
    )
}

fn problem(way: Way, output: &Output, work: &Path, before: &[String]) -> Result<Option<String>, String> {
    if output.status.code().is_some_and(|code| [124, 137].contains(&code)) {
        return Ok(Some("it did not end in its time".to_owned()));
    }
    if !output.status.success() {
        let log = std::fs::read_to_string(work.join("log")).unwrap_or_default();
        let said = format!("{log}{}", String::from_utf8_lossy(&output.stderr));
        let end: Vec<&str> = said.lines().rev().take(3).collect();
        return Ok(Some(format!("{}: {}", output.status, end.join(" / "))));
    }
    if way != Way::Wrong {
        return Ok(None);
    }
    let after = listing(work)?;
    Ok((after != before).then(|| format!("not all is back: {} names instead of {}", after.len(), before.len())))
}

/// All names below a directory, with kind, mode, size and time of change.
fn listing(work: &Path) -> Result<Vec<String>, String> {
    let words = ["find", ".", "-printf", "%P %y %m %s %T@\\n"].map(str::to_owned);
    let mut find = command(&words);
    find.current_dir(work);
    let mut lines: Vec<String> = output_of(find)?.lines().map(str::to_owned).collect();
    // A name that came and went leaves its directory's time and size.
    lines.iter_mut().filter(|line| line.contains(" d ")).for_each(|line| {
        *line = line.split(' ').take(3).collect::<Vec<_>>().join(" ");
    });
    lines.sort();
    Ok(lines)
}
