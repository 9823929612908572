//! Servers whose clients are outside: each answer waits until what it depends on is durable. Natively and under
//! `run`, on the file system of `TMPDIR` and on one that keeps order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::image::{Image, Mounted};
use crate::inside::{machine, prefix, Workshop};
use crate::servers::{self, Place};
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

/// Runs all of them.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    let workshop = Workshop::open()?;
    let image = Image::make(1024, 256)?;
    let mounted = image.mount("")?;
    let plain = Disk { name: "no volume", work: workshop.file("work"), latency: 1.2, _mounted: None };
    let work = mounted.path().join("work");
    let disks = [plain, Disk { name: "volume", work, latency: 1.5, _mounted: Some(mounted) }];
    let program = workshop.compile("answers", &[])?;
    let figures = [
        ping_pong(&disks, &program, options),
        pgbench(&disks, options),
        redis(&disks, options),
        nginx(&disks, options),
    ];
    // What is not installed is left out, and said so.
    Ok(figures.into_iter().filter_map(|figure| figure.map_err(|why| println!("left out: {why}")).ok()).collect())
}

/// Measures `ways` of running something `options.runs` times, interleaved. Each way is the options of `run`, or
/// none: natively.
fn compare(
    name: &str,
    disk: &Disk,
    ways: &[(&str, Option<Vec<String>>)],
    options: &Options,
    measure: &dyn Fn(&Place) -> Result<f64, String>,
) -> Result<Vec<Series>, String> {
    let mut series: Vec<Series> =
        ways.iter().map(|(way, _)| Series::new(format!("{name}, {}, {way}", disk.name))).collect();
    for _ in 0..options.runs {
        for ((_, inside), series) in ways.iter().zip(&mut series) {
            let prefix = inside.as_ref().map_or(Ok(Vec::new()), |more| prefix_with(more))?;
            std::fs::create_dir(&disk.work).map_err(|error| format!("cannot make {}: {error}", disk.work.display()))?;
            let measured = measure(&Place { prefix: &prefix, dir: &disk.work });
            remove(&disk.work)?;
            series.values.push(measured?);
            eprintln!("{}: {:.3}", series.name, series.values.last().unwrap_or(&f64::NAN));
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

fn figure(name: &'static str, title: &str, unit: &'static str, series: Vec<Series>, base: Base) -> Figure {
    Figure { name, title: title.to_owned(), unit, series, base, targets: Vec::new(), notes: vec![machine()] }
}

fn ping_pong(disks: &[Disk], program: &str, options: &Options) -> Result<Figure, String> {
    let count = if options.quick { 50 } else { 2_000 };
    let mut series = Vec::new();
    for disk in disks {
        let measure = |place: &Place| servers::ping_pong(place, program, count);
        series.extend(compare("ping-pong", disk, &two_ways(), options, &measure)?);
    }
    let title = "100 bytes appended, fdatasync, one byte answered to a client outside: median time";
    let mut figure = figure("answers-ping-pong", title, "ms", series, Base::Pairs);
    figure.targets = (0..disks.len())
        .map(|index| Target {
            claim: format!("ping-pong, {}: speculator / native", disks[index].name),
            measured: figure.ratio(2 * index + 1),
            limit: Limit::AtMost(disks[index].latency),
        })
        .collect();
    Ok(figure)
}

/// Transactions a second: ours is at least 0.95 of native.
fn rates(name: &'static str, title: &str, series: Vec<Series>) -> Figure {
    let mut figure = figure(name, title, "1/s", series, Base::Pairs);
    figure.targets = (1..figure.series.len())
        .step_by(2)
        .map(|index| Target {
            claim: format!("{} / native", figure.series[index].name),
            measured: figure.ratio(index),
            limit: Limit::AtLeast(0.95),
        })
        .collect();
    figure
}

fn pgbench(disks: &[Disk], options: &Options) -> Result<Figure, String> {
    let seconds = if options.quick { 1 } else { 10 };
    let mut series = Vec::new();
    for disk in disks {
        for clients in CLIENTS {
            let measure = |place: &Place| servers::pgbench(place, clients, seconds);
            series.extend(compare(&format!("pgbench -c {clients}"), disk, &two_ways(), options, &measure)?);
        }
    }
    Ok(rates("answers-pgbench", "PostgreSQL with clients outside: transactions a second", series))
}

fn redis(disks: &[Disk], options: &Options) -> Result<Figure, String> {
    if servers::find("redis-server", &[]).is_none() || servers::find("redis-benchmark", &[]).is_none() {
        return Err("no redis: install redis-server and redis-tools".to_owned());
    }
    let requests = if options.quick { 2_000 } else { 20_000 };
    let mut series = Vec::new();
    for disk in disks {
        for clients in CLIENTS {
            let measure = |place: &Place| servers::redis(place, clients, requests);
            series.extend(compare(&format!("redis -c {clients}"), disk, &two_ways(), options, &measure)?);
        }
    }
    Ok(rates("answers-redis", "redis, appendfsync always, with clients outside: sets a second", series))
}

fn nginx(disks: &[Disk], options: &Options) -> Result<Figure, String> {
    let time = if options.quick { Duration::from_millis(300) } else { Duration::from_secs(10) };
    let mut series = Vec::new();
    for disk in disks {
        let log = disk.work.join("log").display().to_string();
        let volatile = ("speculator --volatile", Some(vec!["--volatile".to_owned(), log]));
        let ways: Vec<_> = two_ways().into_iter().chain([volatile]).collect();
        series.extend(compare("nginx", disk, &ways, options, &|place| servers::nginx(place, time))?);
    }
    let title = "nginx with an access log, one client outside: requests a second";
    let mut figure = figure("answers-nginx", title, "1/s", series, Base::Groups(3));
    figure.targets = (2..figure.series.len())
        .step_by(3)
        .map(|index| Target {
            claim: format!("{} / native", figure.series[index].name),
            measured: figure.ratio(index),
            limit: Limit::AtLeast(0.9),
        })
        .collect();
    Ok(figure)
}
