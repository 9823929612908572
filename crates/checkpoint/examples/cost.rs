//! What checkpoints cost, as medians: a plain fork and reap by the process itself, a vessel taken and discarded, and a
//! process put back.
//!
//! `cargo run --release -p checkpoint --example cost [-- MEBIBYTES]`; with `-- --one MEBIBYTES DIRTY` one line of
//! numbers for programs: fork and reap, vessel and discard, the same as in a world (the process is known, and nobody
//! waits for the vessel's first stop, nor for its end: those that have ended are reaped in the next), fork of a vessel,
//! restore.

use checkpoint::{Dying, Known, ToReap, Vessel};
use procfs::ProcessId;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tracee::{process_state, Stop, Stopped};

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
static int order(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : 1; }
int main(int argc, char **argv) {
    size_t len = strtoul(argv[1], 0, 10) << 20, rounds = strtoul(argv[2], 0, 10), dirty = strtoul(argv[3], 0, 10);
    char *memory = mmap(0, len + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, len + 4096);
    double *times = calloc(rounds, sizeof *times);
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
    char c;
    read(0, &c, 1);
    for (;;) {
        __asm__ volatile("int3" ::: "memory");
        for (size_t i = 0; i < dirty; i++) memory[(i * 7919 % (len / 4096)) * 4096]++;
        memory[0]++;
    }
}
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("speculator-cost-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = measure_all(&folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure_all(folder: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let source = folder.join("program.c");
    std::fs::write(&source, PROGRAM)?;
    for (name, flags) in [("static", &["-static"][..]), ("dynamic", &[])] {
        let done =
            Command::new("cc").args(["-O1", "-w", "-o"]).arg(folder.join(name)).arg(&source).args(flags).status()?;
        if !done.success() {
            return Err("cc failed".into());
        }
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [_, mebibytes, dirty] = &arguments[..] {
        let mebibytes = mebibytes.parse()?;
        let costs = measure(&folder.join("static"), mebibytes, rounds_for(mebibytes), dirty.parse()?)?;
        println!("{}", costs.map(|cost| cost.to_string()).join(" "));
        return Ok(());
    }
    println!("medians, µs      resident  dirtied   fork+reap   vessel+discard  ratio   known, later  ratio   fork alone  restore");
    let only: Option<usize> = arguments.first().and_then(|argument| argument.parse().ok());
    for program in ["static", "dynamic"] {
        for mebibytes in [0, 64, 1024] {
            for dirty in [0usize, 100, 10_000] {
                if dirty * 4096 <= mebibytes << 20 && only.is_none_or(|only| only == mebibytes) {
                    let costs = measure(&folder.join(program), mebibytes, rounds_for(mebibytes), dirty)?;
                    let [native, discarded, deferred, forked, restored] = costs;
                    println!(
                        "{program:8} {mebibytes:12} MiB {dirty:8} {native:11.1} {discarded:16.1} {:6.2} {deferred:14.1} {:6.2} {forked:12.1} {restored:8.1}",
                        discarded / native,
                        deferred / native,
                    );
                }
            }
        }
    }
    Ok(())
}

/// So many vessels that were given up are left to end by themselves.
const UNREAPED_MAX: usize = 8;

fn rounds_for(mebibytes: usize) -> usize {
    match mebibytes {
        0..=15 => 1001,
        16..=255 => 201,
        _ => 21,
    }
}

fn measure(
    path: &std::path::Path,
    mebibytes: usize,
    rounds: usize,
    dirty: usize,
) -> Result<[f64; 5], Box<dyn std::error::Error>> {
    let arguments = [mebibytes, rounds, dirty].map(|n| n.to_string());
    let mut child = Command::new(path).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let pid = ProcessId::from_raw(child.id() as i32);
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let native: f64 = line.trim().parse()?;
    // As a world's supervisor does.
    process_state::run_first();
    tracee::seize(pid.leader())?;
    drop(child.stdin.take());
    let mut p = next_trap(pid)?;
    let gate = gate(pid)?;
    let (mut discarded, mut deferred, mut forked, mut restored) = (vec![], vec![], vec![], vec![]);
    let (mut dying, mut dead): (Vec<Dying>, Vec<ToReap>) = (vec![], vec![]);
    // As the supervisor, which sees the calls that would change this, knows most processes.
    let affinity = process_state::affinity(pid.leader())?;
    let affinity_of = Some((pid.leader(), affinity.clone()));
    let known = Known {
        one_thread: true,
        no_timers: true,
        own_memory: true,
        inherited_memory: true,
        no_advice: true,
        affinity_of,
    };
    for _ in 0..rounds {
        let start = Instant::now();
        // And as there, on a machine that has nothing else to do, on our core.
        process_state::bring_near(pid.leader());
        for vessel in std::mem::take(&mut dying) {
            match vessel.look() {
                Ok(ended) => dead.push(ended),
                Err(still) => dying.push(still),
            }
        }
        if dying.len() >= UNREAPED_MAX {
            dead.extend(dying.drain(..).map(Dying::await_end));
        }
        let vessel = Vessel::fork_known(&p, gate, known.clone(), &mut dead)?;
        forked.push(start.elapsed());
        dying.push(vessel.give_up()?);
        deferred.push(start.elapsed());
    }
    ToReap::all(dying.into_iter().map(Dying::await_end), &p, gate, false)?;
    process_state::set_affinity(pid.leader(), &affinity)?;
    for _ in 0..rounds {
        let start = Instant::now();
        let vessel = Vessel::fork(&p, gate)?;
        vessel.discard(Some((&p, gate)))?;
        discarded.push(start.elapsed());
    }
    for _ in 0..rounds.min(101) {
        let vessel = Vessel::fork(&p, gate)?;
        p.resume(0)?;
        p = next_trap(pid)?;
        let start = Instant::now();
        vessel.restore(&p, gate)?;
        restored.push(start.elapsed());
        vessel.discard(Some((&p, gate)))?;
    }
    child.kill()?;
    child.wait()?;
    Ok([native, median(discarded), median(deferred), median(forked), median(restored)])
}

fn next_trap(pid: ProcessId) -> tracee::Result<Stopped> {
    loop {
        let stopped = Stopped::await_thread(pid.leader())?;
        if stopped.stop() == Stop::Signal(libc::SIGTRAP) {
            return Ok(stopped);
        }
        let signal = stopped.signal();
        stopped.resume(signal)?;
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / 1000.0
}

/// A `syscall` instruction that every program has: in its vdso.
fn gate(pid: ProcessId) -> Result<u64, Box<dyn std::error::Error>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).ok_or("no vdso")?;
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).ok_or("no range")?;
    let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
    let bytes = tracee::read_bytes(pid, start, (end - start) as usize)?;
    let at = bytes.windows(2).position(|bytes| bytes == [0x0f, 0x05]).ok_or("no system call in it")?;
    Ok(start + at as u64)
}
