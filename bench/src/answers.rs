//! Servers whose clients are outside: each answer waits until what it depends on is durable. Natively and under
//! `run`, on the file system of `TMPDIR` and on one that keeps order.
//!
//! Rounds differ more than the ways do, so that what is held against a limit is the median of each round's ratio.
//! Every second round begins with the other way.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::image::{Image, Mounted};
use crate::inside::{machine, prefix, Workshop};
use crate::servers::{self, Place, Time};
use crate::Options;

/// Clients of the databases.
const CLIENTS: [u32; 3] = [1, 4, 16];

/// A file system, and how much slower than natively an answer may be there.
struct Disk<'a> {
    name: &'static str,
    /// A new directory each time.
    work: PathBuf,
    latency: f64,
    _mounted: Option<Mounted<'a>>,
}

type Measure = fn(&[Disk], &str, &Options) -> Result<Figure, String>;

const FIGURES: [(&str, Measure); 4] =
    [("ping-pong", ping_pong), ("pgbench", pgbench), ("redis", redis), ("nginx", nginx)];
const DISKS: [&str; 2] = ["no-volume", "volume"];

/// Runs all of them, or those that the options name.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    let names = FIGURES.map(|(name, _)| name);
    if let Some(other) = options.only.iter().find(|word| ![&names[..], &DISKS].concat().contains(&word.as_str())) {
        return Err(format!("--only {other}: there are {}, {}", names.join(", "), DISKS.join(", ")));
    }
    let chosen = |name: &str, among: &[&str]| {
        options.only.iter().all(|word| !among.contains(&word.as_str())) || options.only.iter().any(|word| word == name)
    };
    let workshop = Workshop::open()?;
    let image = Image::make(1024, 256)?;
    let mut disks = Vec::new();
    if chosen(DISKS[0], &DISKS) {
        disks.push(Disk { name: "no volume", work: workshop.file("work"), latency: 1.2, _mounted: None });
    }
    if chosen(DISKS[1], &DISKS) {
        let mounted = image.mount("")?;
        let work = mounted.path().join("work");
        disks.push(Disk { name: "volume", work, latency: 1.5, _mounted: Some(mounted) });
    }
    let program = workshop.compile("answers", &[])?;
    let figures = FIGURES.iter().filter(|(name, _)| chosen(name, &names));
    // What is not installed is left out, and said so.
    let measured = figures.filter_map(|(name, measure)| match measure(&disks, &program, options) {
        Ok(figure) => Some(figure),
        Err(why) => {
            println!("left out: {name}: {why}");
            None
        }
    });
    Ok(measured.collect())
}

/// How long each server is asked.
fn time(options: &Options) -> Time {
    let of_warm_up = Duration::from_secs(1);
    Time { of_warm_up, measured: Duration::from_secs(if options.quick { 1 } else { 3 }) }
}

/// Measures `ways` of running something `options.runs` times, interleaved. Each way is the options of `run`, or
/// none: natively. A measurement has one value for each of `names`.
fn compare(
    names: &[String],
    disk: &Disk,
    ways: &[(&str, Option<Vec<String>>)],
    options: &Options,
    measure: &dyn Fn(&Place) -> Result<Vec<f64>, String>,
) -> Result<Vec<Series>, String> {
    let mut series = Vec::new();
    for name in names {
        series.extend(ways.iter().map(|(way, _)| Series::new(format!("{name}, {}, {way}", disk.name))));
    }
    for round in 0..options.runs {
        for way in 0..ways.len() {
            let way = if round % 2 == 0 { way } else { ways.len() - 1 - way };
            let prefix = ways[way].1.as_ref().map_or(Ok(Vec::new()), |more| prefix_with(more))?;
            std::fs::create_dir(&disk.work).map_err(|error| format!("cannot make {}: {error}", disk.work.display()))?;
            let measured = measure(&Place { prefix: &prefix, dir: &disk.work });
            remove(&disk.work)?;
            // What the last one left to be written is not the next one's cost.
            crate::inside::output_of(crate::inside::command(&["sync".to_owned()]))?;
            for (series, value) in series.iter_mut().skip(way).step_by(ways.len()).zip(measured?) {
                series.values.push(value);
                eprintln!("{}: {value:.3}", series.name);
            }
        }
    }
    Ok(series)
}

fn remove(dir: &Path) -> Result<(), String> {
    std::fs::remove_dir_all(dir).map_err(|error| format!("cannot remove {}: {error}", dir.display()))
}

/// The words before a command that run it inside, with options.
fn prefix_with(options: &[String]) -> Result<Vec<String>, String> {
    let mut words = prefix(None)?;
    let end = words.len().saturating_sub(1);
    words.splice(end..end, options.iter().cloned());
    Ok(words)
}

/// Natively and inside.
fn two_ways() -> Vec<(&'static str, Option<Vec<String>>)> {
    vec![("native", None), ("speculator", Some(Vec::new()))]
}

fn figure(name: &'static str, title: &str, unit: &'static str, series: Vec<Series>, options: &Options) -> Figure {
    let mut notes = vec![machine()];
    if options.quick {
        notes.push("measured for one second each: says that it works, not how fast it is".to_owned());
    }
    Figure { name, title: title.to_owned(), unit, series, base: Base::Pairs, targets: Vec::new(), notes }
}

fn ping_pong(disks: &[Disk], program: &str, options: &Options) -> Result<Figure, String> {
    let mut series = Vec::new();
    for disk in disks {
        let measure = |place: &Place| Ok(vec![servers::ping_pong(place, program, time(options))?]);
        series.extend(compare(&["ping-pong".to_owned()], disk, &two_ways(), options, &measure)?);
    }
    let title = "100 bytes appended, fdatasync, one byte answered to a client outside: median time";
    let mut figure = figure("answers-ping-pong", title, "ms", series, options);
    figure.targets = (0..disks.len())
        .map(|index| Target {
            claim: format!("ping-pong, {}: speculator / native, median of rounds", disks[index].name),
            measured: figure.ratio_of_rounds(2 * index + 1),
            limit: Limit::AtMost(disks[index].latency),
        })
        .collect();
    Ok(figure)
}

/// What is answered in a second: at least `least` of native, in the last of each group of `len` series.
fn at_least(figure: &Figure, len: usize, least: f64) -> Vec<Target> {
    let last = (len - 1..figure.series.len()).step_by(len);
    let target = |index: usize| Target {
        claim: format!("{} / native, median of rounds", figure.series[index].name),
        measured: figure.ratio_of_rounds(index),
        limit: Limit::AtLeast(least),
    };
    last.map(target).collect()
}

fn pgbench(disks: &[Disk], _: &str, options: &Options) -> Result<Figure, String> {
    let names = CLIENTS.map(|clients| format!("pgbench -c {clients}"));
    let mut series = Vec::new();
    for disk in disks {
        let measure = |place: &Place| servers::pgbench(place, &CLIENTS, time(options));
        series.extend(compare(&names, disk, &two_ways(), options, &measure)?);
    }
    let title = "PostgreSQL with clients outside: transactions a second";
    let mut figure = figure("answers-pgbench", title, "1/s", series, options);
    figure.targets = at_least(&figure, 2, 0.95);
    Ok(figure)
}

fn redis(disks: &[Disk], _: &str, options: &Options) -> Result<Figure, String> {
    if servers::find("redis-server", &[]).is_none() || servers::find("redis-benchmark", &[]).is_none() {
        return Err("no redis: install redis-server and redis-tools".to_owned());
    }
    let names = CLIENTS.map(|clients| format!("redis -c {clients}"));
    let mut series = Vec::new();
    for disk in disks {
        let measure = |place: &Place| servers::redis(place, &CLIENTS, time(options));
        series.extend(compare(&names, disk, &two_ways(), options, &measure)?);
    }
    let title = "redis, appendfsync always, with clients outside: sets a second";
    let mut figure = figure("answers-redis", title, "1/s", series, options);
    figure.targets = at_least(&figure, 2, 0.95);
    Ok(figure)
}

fn nginx(disks: &[Disk], _: &str, options: &Options) -> Result<Figure, String> {
    let mut series = Vec::new();
    for disk in disks {
        let log = disk.work.join("log").display().to_string();
        let volatile = ("speculator --volatile", Some(vec!["--volatile".to_owned(), log]));
        let ways: Vec<_> = two_ways().into_iter().chain([volatile]).collect();
        let measure = |place: &Place| Ok(vec![servers::nginx(place, time(options))?]);
        series.extend(compare(&["nginx".to_owned()], disk, &ways, options, &measure)?);
    }
    let title = "nginx with an access log, one client outside: requests a second";
    let mut figure = figure("answers-nginx", title, "1/s", series, options);
    figure.base = Base::Groups(3);
    figure.targets = at_least(&figure, 3, 0.9);
    Ok(figure)
}
