//! Runs one command to its end, with a limit of time.
//!
//! Every process started from here inherits a variable that no other process has. What outlives its time, or is left
//! over at the end, is found by that variable in `/proc/*/environ`: a daemon that left its session is found, a process
//! that somebody else started never is. A program that writes its title over its environment (redis) is found by its
//! process group, as long as it has not left that.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, kill_process_group, Pid, Signal};

/// A command, and the circumstances that it runs in. Nothing is inherited from the harness's environment.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The directory that it starts in, and its `HOME` and `TMPDIR`.
    pub directory: PathBuf,
    /// Further variables.
    pub environment: Vec<(String, String)>,
    /// What it can read from standard input.
    pub stdin: Vec<u8>,
    /// User and group to run as.
    pub user: Option<u32>,
    /// When it is killed.
    pub timeout: Duration,
}

/// What a command has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit status as a shell shows it: 128+n for signal n.
    pub status: i32,
    /// Whether it had to be killed.
    pub timed_out: bool,
    /// Processes of it that went on after its end: their names.
    pub left: Vec<String>,
}

/// The variable that marks the processes of this harness.
pub const MARK: &str = "SPECULATOR_TEST_MARK";

/// Where programs are looked for: nothing of the tester's own (pyenv, cargo) changes a scenario.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin";

/// Makes every descriptor but the standard ones close-on-exec: what the harness was started with must not reach
/// the programs, some of which list or number theirs.
pub fn close_inherited_on_exec() {
    let Ok(own) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = own.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        #[allow(unsafe_code)]
        // SAFETY: borrowed for one call only; a number that is closed by now (the listing's own) gives EBADF.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
    }
}

/// A mark that no other process has; of constant length, so that stacks are laid out the same way.
pub fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:010}-{:08}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Sets the variables that every scenario sees, and no others.
pub fn set_environment(command: &mut Command, directory: &Path, mark: &str) {
    command.env_clear().env("PATH", PATH).env("HOME", directory).env("TMPDIR", directory);
    command.env("LC_ALL", "C").env("TZ", "UTC").env("TERM", "xterm").env(MARK, mark);
}

/// Runs `job` to its end.
pub fn run(job: &Job) -> Result<Outcome, String> {
    let mark = new_mark();
    let mut child = start(job, &mark)?;
    let group = Group::of(&child);
    let stdin = child.stdin.take();
    let input = job.stdin.clone();
    thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(&input)));
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let (status, timed_out) = wait(&mut child, job.timeout, &mark)?;
    let left = if timed_out { Vec::new() } else { left_over(&mark) };
    kill_marked(&mark);
    drop(group);
    Ok(Outcome {
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
        status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        timed_out,
        left,
    })
}

/// The names of those that carry `mark` and are still there after a moment in which what was about to end could end.
fn left_over(mark: &str) -> Vec<String> {
    let mut left = marked(mark);
    // On a busy machine that takes long; mostly there is nobody.
    for _ in 0..250 {
        if left.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        left = marked(mark);
    }
    let name = |pid: &Pid| fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default();
    let mut names: Vec<String> = left.iter().map(|pid| name(pid).trim().to_owned()).collect();
    names.sort();
    names
}

fn start(job: &Job, mark: &str) -> Result<Child, String> {
    let (program, arguments) = job.words.split_first().ok_or("a scenario without a command")?;
    let mut command = Command::new(program);
    set_environment(&mut command, &job.directory, mark);
    command.args(arguments).envs(job.environment.iter().cloned()).current_dir(&job.directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(user) = job.user {
        command.uid(user).gid(user);
    }
    // Its own group: a program that signals its group must not reach the harness.
    command.process_group(0);
    command.spawn().map_err(|error| format!("cannot start {program}: {error}"))
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            // What could be read counts, also when an error ends it.
            let _ = pipe.read_to_end(&mut all);
        }
        all
    })
}

fn wait(child: &mut Child, timeout: Duration, mark: &str) -> Result<(ExitStatus, bool), String> {
    // While the whole machine stands still, nobody's time passes.
    const PASSES_MAX: Duration = Duration::from_secs(1);
    let mut left = timeout;
    let mut timed_out = false;
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok((status, timed_out)),
            Ok(None) => {}
            Err(error) => return Err(format!("cannot wait: {error}")),
        }
        if left.is_zero() {
            timed_out = true;
            kill_marked(mark);
            let _ = child.kill();
        }
        let start = Instant::now();
        thread::sleep(pause);
        left = left.saturating_sub(start.elapsed().min(PASSES_MAX));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills whatever carries `mark`, and looks again until nothing does.
pub fn kill_marked(mark: &str) {
    for _ in 0..50 {
        let pids = marked(mark);
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            // It may be gone already.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Kills once whatever runs for this harness, for one that is about to end early.
pub fn kill_all_marked() {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    groups.into_iter().for_each(kill_group);
    for pid in carriers(&format!("{MARK}={:010}-", std::process::id())) {
        // It may be gone already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The process groups of all jobs that have not ended.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// The process group of a job. It is killed at the end. Without a member its number could be somebody else's, but
/// numbers are given out in turn.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).extend(group);
        Group(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.0.into_iter().for_each(kill_group);
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).retain(|group| Some(*group) != self.0);
    }
}

fn kill_group(group: Pid) {
    // Mostly it has no member any more.
    let _ = kill_process_group(group, Signal::KILL);
}

fn marked(mark: &str) -> Vec<Pid> {
    carriers(&format!("{MARK}={mark}\0"))
}

/// Who of those that carry `mark` runs a command of these words.
pub fn who_runs(mark: &str, command: &str) -> Vec<Pid> {
    let line = format!("{}\0", command.replace(' ', "\0"));
    let mut found = marked(mark);
    found.retain(|pid| {
        let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        fs::read(path).is_ok_and(|found| found == line.as_bytes())
    });
    found
}

/// Processes whose environment has this in it.
fn carriers(wanted: &str) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let names = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    names.filter(|pid| carries(*pid, wanted.as_bytes())).filter_map(Pid::from_raw).collect()
}

fn carries(pid: i32, wanted: &[u8]) -> bool {
    // A zombie's environment is empty: it does not count.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A native redis was left, and the harness waited for the pipes that it had.
    #[test]
    fn who_has_lost_the_mark_is_not_left() {
        let script = "env -i sleep 1000 2> /dev/null & echo $!";
        let job = Job {
            words: ["sh", "-c", script].map(str::to_owned).to_vec(),
            directory: std::env::temp_dir(),
            environment: Vec::new(),
            stdin: Vec::new(),
            user: None,
            timeout: Duration::from_secs(60),
        };
        let outcome = run(&job).expect("it runs");
        let pid = String::from_utf8(outcome.stdout).expect("a number").trim().to_owned();
        let begun = Instant::now();
        // Nobody may have waited for it.
        let runs = || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{pid} is left");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
