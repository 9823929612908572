//! Programs that are held, and scenarios: a state is set up, kept, reported, changed, reported, put back, and reported
//! again.
#![allow(dead_code, missing_docs)]

use checkpoint::Vessel;
use procfs::{ProcessId, ThreadId};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use tracee::{Stop, Stopped};

/// What every program begins with. `int3` stops it; `begin` waits until it is held.
pub const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sched.h>
#include <time.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#define STOP() __asm__ volatile("int3" ::: "memory")
static void begin(void) { char c; if (write(1, "ready\n", 6) != 6) _exit(9); if (read(0, &c, 1) != 1) _exit(9); }
static uint64_t hash(const void *p, size_t n) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211u;
    return h;
}
#define SAY(...) do { char line_[4096]; int n_ = snprintf(line_, sizeof line_, __VA_ARGS__); \
    if (write(1, line_, n_) != n_ || write(1, "\n", 1) != 1) _exit(8); } while (0)
"#;

/// A program that is held.
pub struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub stopped: Option<Stopped>,
}

/// Compile a program, the prelude before it. Each call has a file of its own: a test must not write what another one
/// runs.
pub fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    static COMPILED: AtomicUsize = AtomicUsize::new(0);
    let name = &format!("{}-{name}-{}", env!("CARGO_CRATE_NAME"), COMPILED.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::var("CHECKPOINT_PROGRAMS").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    let file = path.with_extension("c");
    std::fs::write(&file, format!("{PRELUDE}{source}")).unwrap();
    let done = Command::new("cc").args(["-O1", "-w", "-o"]).arg(&path).arg(&file).args(flags).status().unwrap();
    assert!(done.success(), "{name} does not compile");
    path
}

impl Program {
    pub fn start(path: &std::path::Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(path);
        let mut child =
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        tracee::seize(ThreadId::from_raw(child.id() as i32)).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        Self { child, lines, stopped: None }
    }

    pub fn pid(&self) -> ProcessId {
        ProcessId::from_raw(self.child.id() as i32)
    }

    /// Wait for its next stop of this kind; others are passed over.
    pub fn await_stop(&mut self, stop: impl Fn(Stop) -> bool) -> &Stopped {
        loop {
            let stopped = Stopped::await_thread(self.pid().leader()).expect("it stops");
            if stop(stopped.stop()) {
                return self.stopped.insert(stopped);
            }
            let signal = stopped.signal();
            stopped.resume(signal).unwrap();
        }
    }

    /// Wait until it waits in one of these calls, for longer than its `begin` does.
    pub fn await_call(&self, numbers: &[i64]) {
        let is_in = || {
            let text = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid())).unwrap();
            let mut words = text.split(' ').map(str::to_owned);
            let number = words.next().and_then(|number| number.parse().ok());
            let is_of_begin = number == Some(libc::SYS_read) && words.next().as_deref() == Some("0x0");
            number.is_some_and(|number| numbers.contains(&number)) && !is_of_begin
        };
        while !is_in() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Wait for its next `int3`; signals are delivered.
    pub fn trap(&mut self) -> &Stopped {
        self.await_stop(|stop| stop == Stop::Signal(libc::SIGTRAP))
    }

    pub fn stopped(&self) -> &Stopped {
        self.stopped.as_ref().expect("it is stopped")
    }

    pub fn resume(&mut self) {
        self.resume_with(0)
    }

    pub fn resume_with(&mut self, signal: i32) {
        self.stopped.take().expect("it is stopped").resume(signal).unwrap()
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn gate(&self) -> u64 {
        gate(self.pid())
    }

    pub fn fork(&self) -> Vessel {
        Vessel::fork(self.stopped(), self.gate()).unwrap()
    }

    pub fn restore(&self, vessel: &Vessel) -> checkpoint::Copied {
        vessel.restore(self.stopped(), self.gate()).unwrap()
    }

    pub fn discard(&self, vessel: Vessel) {
        let pid = vessel.id().process();
        assert!(vessel.discard(Some((self.stopped(), self.gate()))).unwrap().is_none());
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "nothing is left of a vessel");
    }

    /// Run it to its end; its exit status.
    pub fn end(mut self) -> Option<i32> {
        self.resume();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // The first thread's end is told after those of the others, which their tracer has to hear of.
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok().map(ThreadId::from_raw));
        for tid in tids.filter(|tid| !tid.is_leader_of(self.pid())) {
            let _ = tracee::await_end(tid);
        }
        let _ = self.child.wait();
    }
}

/// A `syscall` instruction that every program has: in its vdso, or in the C library if that is unmapped.
pub fn gate(pid: ProcessId) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let find = |is_it: fn(&str) -> bool| maps.lines().find(|line| is_it(line));
    let vdso = find(|line| line.ends_with("[vdso]"));
    let library = || find(|line| line.contains(" r-xp ") && line.contains("/libc.so"));
    let line = vdso.or_else(library).expect("there is a vdso, or a C library");
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
    let bytes = tracee::read_bytes(pid, start, (end - start) as usize).unwrap();
    start + bytes.windows(2).position(|bytes| bytes == [0x0f, 0x05]).expect("it makes system calls") as u64
}

/// The state that `setup` makes and `report` shows is back after `change`, and what follows happens again.
pub fn check(name: &str, source: &str) {
    check_with(name, source, &[])
}

pub fn check_with(name: &str, source: &str, flags: &[&str]) {
    let main = "\nint main(int argc, char **argv) { begin(); setup(); STOP(); report(); change(); report(); STOP(); SAY(\"end\"); return 0; }";
    let path = compile(name, &format!("{source}{main}"), flags);
    // Without a restore the program goes on: what is shown below is not just what it always does.
    let mut program = Program::start(&path, &[]);
    program.trap();
    let vessel = program.fork();
    program.resume();
    program.trap();
    let (before, after) = (program.line(), program.line());
    assert_ne!(before, after, "{name}: the change can be seen");
    for round in 0..3 {
        program.restore(&vessel);
        program.resume();
        program.trap();
        assert_eq!(program.line(), before, "{name}: as it was, round {round}");
        assert_eq!(program.line(), after, "{name}: goes on as it did, round {round}");
    }
    program.discard(vessel);
    program.resume();
    assert_eq!(program.line(), "end", "{name}");
}
