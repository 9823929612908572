//! `demo`: a real SQLite workload with `synchronous=FULL`, natively, under eatmydata and under `speculator run`, on the
//! same volume: how long each takes, and what each would have lost if the power had failed.

use std::fmt::Write as _;
use std::path::Path;

use crate::shell::{build_judged, find, is_root, speculator};
use crate::volume::Volume;
use crate::{guarantee, setup};

/// Transactions of one insert each.
const TRANSACTIONS: u32 = 1000;

/// Runs of each, interleaved; the median is shown.
const RUNS: usize = 5;

/// Crash points for each.
const CUTS: &str = "200";

struct Way {
    name: &'static str,
    prefix: Vec<String>,
    seconds: Vec<f64>,
}

/// Runs it.
pub fn run() -> Result<(), String> {
    setup::run()?;
    build_judged()?;
    if !is_root() {
        println!("left out without root: the volume and the crash points (mounts, loop devices, FUSE); nothing is left to show");
        return Ok(());
    }
    times()?;
    crash_points()
}

fn times() -> Result<(), String> {
    let volume = Volume::make("demo", 512)?;
    std::fs::write(volume.image().with_file_name("script"), script())
        .map_err(|error| format!("cannot write the script: {error}"))?;
    let mut ways = ways()?;
    println!(
        "\nSQLite, {TRANSACTIONS} transactions, synchronous=FULL, {RUNS} runs each on an ext4 volume (data=journal)"
    );
    for _ in 0..RUNS {
        for way in &mut ways {
            way.seconds.push(time_one(&volume, &way.prefix)?);
        }
    }
    println!("{}", table(&ways));
    Ok(())
}

fn ways() -> Result<Vec<Way>, String> {
    let eatmydata = find("eatmydata").ok_or("eatmydata is not installed: cargo xtask setup")?;
    let way = |name, prefix| Way { name, prefix, seconds: Vec::new() };
    let ours = vec![speculator().display().to_string(), "run".to_owned(), "--".to_owned()];
    Ok(vec![
        way("natively", Vec::new()),
        way("eatmydata", vec![eatmydata.display().to_string()]),
        way("speculator run", ours),
    ])
}

/// Times inside the namespace that has the volume: mounting is not part of it.
fn time_one(volume: &Volume, prefix: &[String]) -> Result<f64, String> {
    let script = volume.image().with_file_name("script");
    let timed = "cd \"$0\" && rm -f demo.db && sync && input=\"$1\" && shift && start=$(date +%s%N) && \
        \"$@\" < \"$input\" > /dev/null && echo $(($(date +%s%N) - start))";
    let shell = volume.around(Path::new("sh")).args(["-c", timed]).args([volume.path(), script]);
    let said = shell.args(prefix).args(["sqlite3", "demo.db"]).output()?;
    let ns: f64 = said.trim().parse().map_err(|_| format!("cannot time sqlite3: it said {said:?}"))?;
    Ok(ns / 1e9)
}

fn script() -> String {
    let mut text = "pragma synchronous=full;\ncreate table t(id integer primary key, v text);\n".to_owned();
    for row in 0..TRANSACTIONS {
        // Writing to a String does not fail.
        let _ = writeln!(text, "insert into t(v) values('the value of row {row}');");
    }
    text + "select count(*) from t;\n"
}

fn table(ways: &[Way]) -> String {
    let native = median(&ways[0].seconds);
    let line = |way: &Way| {
        let seconds = median(&way.seconds);
        format!("  {:16} {seconds:8.3} s   {:6.1} x as fast", way.name, native / seconds)
    };
    ways.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// SQLite on a disk whose power is cut; what was printed must be there afterwards.
fn crash_points() -> Result<(), String> {
    println!(
        "\nThe same database on a disk whose power is cut at {CUTS} points of the run: after how many of them was a"
    );
    println!("transaction missing that had been reported as committed, or the database out of order or damaged?");
    let configurations = "journal,eatmydata-journal,ours";
    let arguments = ["--workloads", "sqlite", "--configurations", configurations, "--cuts", CUTS];
    guarantee::crash_table().args(arguments).run()
}
