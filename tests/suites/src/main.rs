//! `suites`: the test suites of git, SQLite, Python and Redis, which nobody here wrote. Each of their scripts is run
//! natively on the disk, and then in other places: on a BlueFS mount, inside `speculator run`, inside one open guess.
//! What came of each case is compared. A case that fails natively has to fail in the same way everywhere.

#![forbid(unsafe_code)]

mod cases;
mod known;
mod places;
mod suite;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser;

use places::{Place, Places, Workshop};
use suite::{Script, Suite};

/// Runs the test suites of git, SQLite, Python and Redis on the disk and in other places, and compares each case
#[derive(Debug, Parser)]
struct Options {
    /// The program that is tested
    #[arg(long, value_name = "FILE")]
    speculator: PathBuf,
    /// An empty directory, made if it is not there: scripts work below it
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Where Debian's source packages are
    #[arg(long, value_name = "DIR")]
    sources: PathBuf,
    /// Where the suites are built, and stay
    #[arg(long, value_name = "DIR")]
    build: PathBuf,
    /// Where scripts are run besides the disk
    #[arg(long, value_delimiter = ',', default_value = "mount")]
    places: Vec<Place>,
    /// Only so many scripts of each suite, chosen by the seed; 0 for all
    #[arg(long, value_name = "N", default_value_t = 30)]
    sample: usize,
    /// The seed of the choice
    #[arg(long, value_name = "S", default_value_t = seed_of_now())]
    seed: u64,
    /// Scripts side by side
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// A script that differs is run so many times again, natively, too; what differs in none of these is told only
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// So long a script may take natively, in seconds, and five times as long elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,
    /// Which suite
    #[arg(value_name = "SUITE")]
    suites: Vec<Suite>,
    /// Only scripts with this in their names
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// What came of one script in all places.
enum Verdict {
    /// The same everywhere; so many cases.
    Same(usize),
    /// Known differences only.
    Known(usize, Vec<String>),
    /// Others.
    Differs(Vec<String>),
    /// Not even natively it did end, or two native runs differed.
    Unstable(String),
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("suites: {problem}");
            ExitCode::from(125)
        }
    }
}

fn run(options: &Options) -> Result<bool, String> {
    let suites = if options.suites.is_empty() { &Suite::ALL[..] } else { &options.suites };
    let mut scripts = Vec::new();
    for suite in suites {
        let built = suite.build(&options.sources, &options.build)?;
        scripts.extend(chosen(suite.scripts(&built)?, options));
    }
    if scripts.is_empty() {
        return Err("no script has such a name".to_owned());
    }
    let workshop = Workshop::new(&options.speculator, &options.into, &options.places)?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = |job: usize| {
        let places = workshop.places(job);
        while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let verdict = judge(script, &places, options)?;
            println!("{:8} {:44} {}", script.suite.name(), script.name, told(&verdict));
            found.lock().map_err(|_| "a worker failed")?.push(verdict);
        }
        Ok::<(), String>(())
    };
    let worker = &worker;
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..options.jobs.max(1)).map(|job| scope.spawn(move || worker(job))).collect();
        started.into_iter().try_for_each(|one| one.join().map_err(|_| "a worker failed".to_owned())?)
    })?;
    let found = found.into_inner().map_err(|_| "a worker failed")?;
    println!("\n{}", summary(&found));
    let is_same = !found.iter().any(|verdict| matches!(verdict, Verdict::Differs(_)));
    if is_same {
        workshop.remove();
    }
    Ok(is_same)
}

fn chosen(all: Vec<Script>, options: &Options) -> Vec<Script> {
    let is_named = |script: &Script| options.only.as_ref().is_none_or(|text| script.name.contains(text));
    let mut named: Vec<Script> = all.into_iter().filter(is_named).collect();
    if options.sample == 0 || options.only.is_some() || named.len() <= options.sample {
        return named;
    }
    if let Some(first) = named.first() {
        let (suite, all) = (first.suite.name(), named.len());
        println!("{suite}: {} of {all} scripts: --sample {} --seed {}", options.sample, options.sample, options.seed);
    }
    fastrand::Rng::with_seed(options.seed).shuffle(&mut named);
    named.truncate(options.sample);
    named.sort_by(|one, other| one.name.cmp(&other.name));
    named
}

/// Runs a script on the disk and everywhere else.
fn judge(script: &Script, places: &Places, options: &Options) -> Result<Verdict, String> {
    let patience = Duration::from_secs(options.patience);
    let natively = places.run(Place::Disk, script, patience)?;
    if let Some(why) = &natively.unfinished {
        return Ok(Verdict::Unstable(format!("natively: {why}")));
    }
    let (mut known, mut differs) = (Vec::new(), Vec::new());
    for &place in &options.places {
        let mut differences = places.run(place, script, patience * 5)?.differences(&natively);
        for _ in 0..options.repeat {
            // What is known needs no other run.
            if differences.iter().all(|what| known::why(script, place, what).is_some()) {
                break;
            }
            let again = places.run(Place::Disk, script, patience)?;
            if let Some(difference) = again.differences(&natively).first() {
                return Ok(Verdict::Unstable(format!("two native runs: {difference}")));
            }
            let others = places.run(place, script, patience * 5)?.differences(&natively);
            // What is not found again is told, and counts as what natively happens.
            let (same, once): (Vec<_>, Vec<_>) = differences.into_iter().partition(|it| others.contains(it));
            known.extend(once.into_iter().map(|it| format!("{}: once only: {it}", place.name())));
            differences = same;
        }
        for difference in differences {
            match known::why(script, place, &difference) {
                Some(why) => known.push(format!("{}: {difference} ({why})", place.name())),
                None => differs.push(format!("{}: {difference}", place.name())),
            }
        }
    }
    Ok(match (differs.is_empty(), known.is_empty()) {
        (true, true) => Verdict::Same(natively.count()),
        (true, false) => Verdict::Known(natively.count(), known),
        (false, _) => Verdict::Differs(differs),
    })
}

fn told(verdict: &Verdict) -> String {
    let list = |lines: &[String]| {
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = write!(text, "\n    {line}");
            text
        })
    };
    match verdict {
        Verdict::Same(count) => format!("same, {count} cases"),
        Verdict::Known(count, why) => format!("same but for what is known, {count} cases{}", list(why)),
        Verdict::Differs(differences) => format!("DIFFERS{}", list(differences)),
        Verdict::Unstable(why) => format!("unstable {why}"),
    }
}

fn summary(found: &[Verdict]) -> String {
    let (mut cases, mut same, mut known, mut differs, mut unstable) = (0, 0, 0, 0, 0);
    for verdict in found {
        match verdict {
            Verdict::Same(count) => (cases, same) = (cases + count, same + 1),
            Verdict::Known(count, _) => (cases, known) = (cases + count, known + 1),
            Verdict::Differs(_) => differs += 1,
            Verdict::Unstable(_) => unstable += 1,
        }
    }
    format!(
        "{} scripts: {same} the same, {known} but for known differences ({cases} cases in both), {differs} differ, \
         {unstable} unstable natively",
        found.len()
    )
}

fn seed_of_now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// An error about a file.
fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
