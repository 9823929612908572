//! What checkpoints and rollbacks cost: of one process against a plain fork and reap; of whole worlds by processes and
//! objects; and in memory.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::{ahead, built, command, machine, output_of, prefix_with, Workshop};
use crate::Options;

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    let workshop = Workshop::open()?;
    Ok(vec![single(options)?, threads(options)?, rollbacks(options, &workshop)?, memory(options, &workshop)?])
}

/// One process: `checkpoint`'s example `cost` measures in one run of its own, hundreds of times each.
fn single(options: &Options) -> Result<Figure, String> {
    let sizes: &[(u32, &str)] =
        if options.quick { &[(0, "small")] } else { &[(0, "small"), (64, "64 MB"), (1024, "1 GB")] };
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    for &(mebibytes, name) in sizes {
        let ways = ["fork and reap", "checkpoint, discarded at once", "checkpoint, as in a world", "restored"];
        let mut group = ways.map(|way| Series::new(format!("{name}, {way}")));
        for _ in 0..options.runs {
            let mut cost = Command::new(built("examples/cost"));
            cost.args(["--one", &mebibytes.to_string(), "0"]);
            let said = output_of(cost)?;
            let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [native, discarded, deferred, _, restored] = numbers[..] else {
                return Err(format!("cost said {said:?}"));
            };
            for (series, value) in group.iter_mut().zip([native, discarded, deferred, restored]) {
                series.values.push(value);
            }
        }
        let (native, ours) = (group[0].median(), group[2].median());
        let limit = if mebibytes == 0 { 1.5 } else { f64::INFINITY };
        let claim = format!("{name}: checkpoint and discard / fork and reap");
        targets.push(Target { claim, measured: ours / native, limit: Limit::AtMost(limit) });
        let claim = format!("{name}: checkpoints per second");
        targets.push(Target { claim, measured: 1e6 / ours, limit: Limit::AtMost(f64::INFINITY) });
        series.extend(group);
    }
    let title = "A checkpoint of one process, against a plain fork and reap".to_owned();
    let notes = vec![machine()];
    Ok(Figure { name: "checkpoint", title, unit: "µs", series, base: Base::Groups(4), targets, notes })
}

/// One process with several threads: `checkpoint`'s example `cost_threads`.
fn threads(options: &Options) -> Result<Figure, String> {
    let sizes: &[u32] = if options.quick { &[10] } else { &[10, 500] };
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    for (mebibytes, threads) in sizes.iter().flat_map(|&size| [1, 4, 16, 64].map(|threads| (size, threads))) {
        let name = format!("{mebibytes} MiB, {threads} threads");
        let ways = ["fork and reap", "all stopped", "checkpoint and discard", "put back"];
        let mut group = ways.map(|way| Series::new(format!("{name}, {way}")));
        for _ in 0..options.runs {
            let mut cost = Command::new(built("examples/cost_threads"));
            cost.args(["--one", &mebibytes.to_string(), &threads.to_string()]);
            let said = output_of(cost)?;
            let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let values: [f64; 4] = numbers.try_into().map_err(|_| format!("cost_threads said {said:?}"))?;
            group.iter_mut().zip(values).for_each(|(series, value)| series.values.push(value));
        }
        let measured = (group[1].median() + group[2].median()) / group[0].median();
        let claim = format!("{name}: stop, checkpoint and discard / fork and reap");
        targets.push(Target { claim, measured, limit: Limit::AtMost(f64::INFINITY) });
        series.extend(group);
    }
    let title = "A checkpoint of a process with several threads, against a plain fork and reap".to_owned();
    let notes = vec![machine()];
    Ok(Figure { name: "checkpoint-threads", title, unit: "µs", series, base: Base::Groups(4), targets, notes })
}

/// Whole worlds: a chain of processes that pass a guess on, which then fails.
fn rollbacks(options: &Options, workshop: &Workshop) -> Result<Figure, String> {
    const ROUNDS: &str = "10";
    let program = workshop.compile("rollback", &[])?;
    let sizes: &[(u32, u32)] = match options.quick {
        true => &[(1, 0), (5, 10)],
        false => &[(1, 0), (2, 0), (5, 0), (10, 0), (20, 0), (50, 0), (100, 0), (1, 10), (1, 50), (1, 100), (1, 200)],
    };
    let mut series: Vec<Series> = Vec::new();
    let mut notes = vec![machine()];
    for run in 0..options.runs {
        for (index, (processes, objects)) in sizes.iter().enumerate() {
            let stats = workshop.file("stats.json");
            let mut words = prefix_with(&[], &stats)?;
            words.extend([program.clone(), processes.to_string(), objects.to_string(), ROUNDS.to_owned()]);
            output_of(limited(&words))?;
            let did = ahead(&stats)?;
            let undone = did["rollbacks"].as_array().cloned().unwrap_or_default();
            let widest =
                undone.last().map(|one| format!("{} processes, {} operations", one["processes"], one["operations"]));
            let widest = widest.ok_or("nothing was rolled back")?;
            if run == 0 {
                series.push(Series::new(format!("speculator, {widest}")));
                eprintln!("{processes} children, {objects} objects each: {widest}");
            }
            series[index].values.extend(undone.iter().filter_map(|one| one["us"].as_f64()));
        }
    }
    notes.push(format!("{ROUNDS} rollbacks in each of {} runs", options.runs));
    let title = "A rollback, by processes and operations undone".to_owned();
    Ok(Figure { name: "rollback", title, unit: "µs", series, base: Base::One(0), targets: Vec::new(), notes })
}

/// A command that cannot hang.
fn limited(words: &[String]) -> Command {
    let mut all = ["timeout", "-s", "KILL", "120"].map(str::to_owned).to_vec();
    all.extend_from_slice(words);
    command(&all)
}

/// Memory of a world whose program keeps many speculations open: proportional shares, of everybody in it.
fn memory(options: &Options, workshop: &Workshop) -> Result<Figure, String> {
    let program = workshop.compile("open", &[])?;
    let counts: &[usize] = if options.quick { &[0, 100] } else { &[0, 500, 1000, 2000] };
    let mut series: Vec<Series> = counts.iter().map(|count| Series::new(format!("speculator, {count} open"))).collect();
    let mut tables: Vec<Series> =
        counts.iter().map(|count| Series::new(format!("speculator, {count} open: page tables"))).collect();
    for _ in 0..options.runs {
        for ((&count, series), tables) in counts.iter().zip(&mut series).zip(&mut tables) {
            let go = workshop.file("go");
            // It may not be there.
            let _ = std::fs::remove_file(&go);
            let mut words = prefix_with(&[], &workshop.file("stats.json"))?;
            words.extend([program.clone(), count.to_string()]);
            let mut job = limited(&words);
            job.current_dir(workshop.path()).stdin(Stdio::null());
            let mut world = job.spawn().map_err(|error| format!("cannot run {words:?}: {error}"))?;
            let measured = held(&mut world, count);
            std::fs::write(&go, "").map_err(|error| format!("cannot make {}: {error}", go.display()))?;
            let status = world.wait().map_err(|error| error.to_string())?;
            let (share, table) = measured?;
            if !status.success() {
                return Err(format!("{count} open speculations: {status}"));
            }
            series.values.push(share);
            tables.values.push(table);
        }
    }
    let last = series.len() - 1;
    let measured = series[last].median() - series[0].median();
    let claim = format!("MiB held by {} open speculations", counts[last]);
    let each = Target {
        claim: "KiB held by each".into(),
        measured: measured * 1024.0 / counts[last] as f64,
        limit: Limit::AtMost(f64::INFINITY),
    };
    let targets = vec![Target { claim, measured, limit: Limit::AtMost(f64::INFINITY) }, each];
    let title = "Memory of a world with open speculations (sum of Pss)".to_owned();
    series.extend(tables);
    let notes = vec![machine(), "beside it the kernel keeps a task and its stack for each".to_owned()];
    Ok(Figure { name: "open-speculations", title, unit: "MiB", series, base: Base::One(0), targets, notes })
}

/// Waits until `world` has as many checkpoints; then what all its processes hold, and their page tables, MiB.
fn held(world: &mut Child, count: usize) -> Result<(f64, f64), String> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let family = family(world.id());
        // timeout, front, supervisor, program.
        const OTHERS: usize = 4;
        if family.len() >= count + OTHERS && family.len() == before {
            let sum = |file: &str, field: &str| family.iter().map(|&pid| kib(pid, file, field)).sum::<f64>() / 1024.0;
            return Ok((sum("smaps_rollup", "Pss:"), sum("status", "VmPTE:")));
        }
        before = family.len();
        if Instant::now() > end || world.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err(format!("{count} speculations were not open in time: {} processes", family.len()));
        }
    }
}

fn kib(pid: u32, file: &str, field: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok());
    found.unwrap_or(0.0)
}

/// A process and all that descend from it.
fn family(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        next += 1;
        let Ok(tasks) = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")) else { continue };
        for task in tasks.flatten() {
            let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    all
}
