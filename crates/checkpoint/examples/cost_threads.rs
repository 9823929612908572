//! What a checkpoint of all threads costs, as medians: all threads are stopped, a vessel is taken and discarded, and
//! all go on; against a fork and reap by the process itself; and what it costs to put all of them back.
//!
//! `cargo run --release -p checkpoint --example cost_threads [-- MEBIBYTES…]`; with `-- --one MEBIBYTES THREADS` one
//! line of numbers for programs: fork and reap, all threads stopped, checkpoint and discard, all put back.

use checkpoint::ThreadedVessel;
use procfs::{ProcessId, ThreadId};
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tracee::{process_state, Stopped};

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
static int order(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : 1; }
static void *work(void *unused) { for (;;) pause(); }
int main(int argc, char **argv) {
    size_t len = strtoul(argv[1], 0, 10) << 20, threads = strtoul(argv[2], 0, 10), rounds = strtoul(argv[3], 0, 10);
    char *memory = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, len);
    double *times = calloc(rounds, sizeof *times);
    for (size_t i = 1; i < threads; i++) { pthread_t t; if (pthread_create(&t, 0, work, 0)) return 1; }
    usleep(50000);
    for (size_t i = 0; i < rounds; i++) {
        double start = now();
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, 0, 0);
        times[i] = now() - start;
    }
    qsort(times, rounds, sizeof *times, order);
    printf("%f\n", times[rounds / 2]);
    fflush(stdout);
    for (;;) pause();
}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("speculator-cost-threads-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = measure_all(&folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure_all(folder: &Path) -> Result<(), Box<dyn Error>> {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, PROGRAM)?;
    let compiled = Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).arg(&program).arg(&source).status()?;
    if !compiled.success() {
        return Err("cc failed".into());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [one, mebibytes, threads] = &arguments[..] {
        if one == "--one" {
            let [native, stopped, vessel, restored] = measure(&program, mebibytes.parse()?, threads.parse()?)?;
            println!("{native:.1} {stopped:.1} {vessel:.1} {restored:.1}");
            return Ok(());
        }
    }
    let mut sizes: Vec<usize> = arguments.iter().filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![10, 500];
    }
    println!("medians, µs     threads   fork+reap   stop all   vessel+discard   put back");
    for mebibytes in sizes {
        for threads in [1, 4, 16, 64] {
            let [native, stopped, vessel, restored] = measure(&program, mebibytes, threads)?;
            println!("{mebibytes:8} MiB {threads:8} {native:11.1} {stopped:10.1} {vessel:16.1} {restored:10.1}");
        }
    }
    Ok(())
}

fn measure(program: &Path, mebibytes: usize, threads: usize) -> Result<[f64; 4], Box<dyn Error>> {
    let rounds = if mebibytes < 100 { 101 } else { 21 };
    let arguments = [mebibytes, threads, rounds].map(|number| number.to_string());
    let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn()?;
    let pid = ProcessId::from_raw(child.id() as i32);
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    // As a world's supervisor does.
    process_state::run_first();
    let tids = procfs::threads(pid)?;
    tids.iter().try_for_each(|&tid| tracee::seize(tid))?;
    let gate = gate(pid)?;
    let (mut stopped, mut vessels, mut restored) = (vec![], vec![], vec![]);
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut threads = tracee::halt_all(&tids)?;
        stopped.push(begin.elapsed());
        let begin = Instant::now();
        let vessel = ThreadedVessel::fork(pid, &threads, gate)?;
        let taken = begin.elapsed();
        let begin = Instant::now();
        vessel.restore(&mut threads, gate)?;
        restored.push(begin.elapsed());
        let begin = Instant::now();
        vessel.discard(&threads[&pid.leader()], gate)?;
        vessels.push(taken + begin.elapsed());
        resume(threads)?;
    }
    child.kill()?;
    for &tid in tids.iter().rev() {
        let _ended = tracee::await_end(tid);
    }
    // Whoever traced it has seen its end already.
    let _ended = child.wait();
    Ok([line.trim().parse()?, median(stopped), median(vessels), median(restored)])
}

fn resume(threads: HashMap<ThreadId, Stopped>) -> tracee::Result<()> {
    threads.into_values().try_for_each(|stopped| stopped.resume(0))
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / 1000.0
}

/// A `syscall` instruction that every program has: in its vdso.
fn gate(pid: ProcessId) -> Result<u64, Box<dyn Error>> {
    let maps = procfs::text(pid, "maps")?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).ok_or("no vdso")?;
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).ok_or("no range")?;
    let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
    let bytes = tracee::read_bytes(pid, start, (end - start) as usize)?;
    let at = bytes.windows(2).position(|bytes| bytes == [0x0f, 0x05]).ok_or("no system call in it")?;
    Ok(start + at as u64)
}
