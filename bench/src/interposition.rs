//! What it costs to see every system call: single operations natively and inside, interleaved.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::{command, machine, nanoseconds, output_of, prefix, prefix_of, repository, statistic};
use crate::Options;

/// An operation of `microbench.c`, and how often it is done in one run.
struct Operation {
    name: &'static str,
    count: u32,
    /// Whether it is to make no stop in steady state. Process creation cannot do without.
    no_stops: bool,
}

const fn call(name: &'static str, count: u32) -> Operation {
    Operation { name, count, no_stops: true }
}

const fn process(name: &'static str) -> Operation {
    Operation { name, count: 300, no_stops: false }
}

const OPERATIONS: [Operation; 10] = [
    call("getppid", 1_000_000),
    call("fcntl", 1_000_000),
    call("lseek", 1_000_000),
    call("read", 1_000_000),
    call("pwrite", 200_000),
    call("open_read_close", 200_000),
    call("stat", 300_000),
    process("fork_exec"),
    process("vfork_exec"),
    process("posix_spawn"),
];

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let directory = std::env::temp_dir().join(format!("speculator-microbench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let result = Micro::compile(&directory).and_then(|micro| micro.figure(options));
    // Left behind in TMPDIR at worst.
    let _ = std::fs::remove_dir_all(&directory);
    result
}

struct Micro {
    directory: PathBuf,
    program: String,
}

impl Micro {
    fn compile(directory: &Path) -> Result<Micro, String> {
        let program = directory.join("microbench");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o"]).arg(&program).arg(repository().join("bench/programs/microbench.c"));
        output_of(compiler)?;
        Ok(Micro { directory: directory.to_path_buf(), program: program.display().to_string() })
    }

    fn figure(&self, options: &Options) -> Result<Figure, String> {
        let mut series = Vec::new();
        let mut targets = Vec::new();
        for operation in &OPERATIONS {
            let count = if options.quick { operation.count / 100 + 10 } else { operation.count };
            let ways = self.measure(operation, count, options)?;
            targets.extend(target(operation.name, &ways));
            targets.extend(self.stops(operation, count)?);
            series.extend(ways);
        }
        Ok(Figure {
            name: "interposition",
            title: "One operation, natively and inside".to_owned(),
            unit: "ns",
            series,
            base: Base::Groups(if options.before.is_some() { 3 } else { 2 }),
            targets,
            notes: vec![machine()],
        })
    }

    /// Natively, inside, and inside with the older binary if there is one.
    fn measure(&self, operation: &Operation, count: u32, options: &Options) -> Result<Vec<Series>, String> {
        let mut ways = vec![("native", Vec::new()), ("inside", prefix(None)?)];
        ways.extend(options.before.as_deref().map(|binary| ("inside, before", prefix_of(binary, None))));
        let mut series: Vec<Series> =
            ways.iter().map(|(how, _)| Series::new(format!("{} {how}", operation.name))).collect();
        for _ in 0..options.runs {
            for ((_, prefix), series) in ways.iter().zip(&mut series) {
                series.values.push(self.run(prefix, operation.name, count)?);
            }
        }
        eprintln!("{}: {:.0} ns natively, {:.0} ns inside", operation.name, series[0].median(), series[1].median());
        Ok(series)
    }

    fn run(&self, before: &[String], operation: &str, count: u32) -> Result<f64, String> {
        let mut words = before.to_vec();
        words.extend([self.program.clone(), operation.to_owned(), count.to_string()]);
        let mut job = command(&words);
        job.current_dir(&self.directory);
        nanoseconds(job)
    }

    /// Stops for each further operation: those of a run of 2 × `count` less those of a run of `count`.
    fn stops(&self, operation: &Operation, count: u32) -> Result<Option<Target>, String> {
        let file = self.directory.join("stats.json");
        let count = count.min(20_000);
        let mut stops = [0.0; 2];
        for (factor, stops) in [1, 2].into_iter().zip(&mut stops) {
            self.run(&prefix(Some(&file))?, operation.name, count * factor)?;
            let Some(found) = statistic(&file, "tracee_stops") else { return Ok(None) };
            *stops = found;
        }
        // The warm-up of microbench is a tenth.
        let measured = (stops[1] - stops[0]) / (f64::from(count) * 1.1);
        let limit = Limit::AtMost(if operation.no_stops { 0.001 } else { f64::INFINITY });
        Ok(Some(Target { claim: format!("{}: stops for each further one", operation.name), measured, limit }))
    }
}

fn target(operation: &str, ways: &[Series]) -> Option<Target> {
    let [native, inside, ..] = ways else { return None };
    let difference = inside.median() - native.median();
    let ratio = inside.median() / native.median();
    let (claim, measured, limit) = match operation {
        "fcntl" | "lseek" => ("ns over native", difference, 150.0),
        "open_read_close" | "stat" => ("inside / native", ratio, 1.10),
        "fork_exec" | "vfork_exec" | "posix_spawn" => ("inside / native", ratio, 1.5),
        _ => return None,
    };
    Some(Target { claim: format!("{operation}: {claim}"), measured, limit: Limit::AtMost(limit) })
}
