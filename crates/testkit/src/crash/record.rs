//! Runs a workload on a crash disk, and keeps what happened.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};

use super::configuration::{Configuration, MountedBy};
use super::disk::{CrashDisk, DiskOptions};
use super::error::CrashError;
use super::fault::Fault;
use super::log::Log;
use super::mounted::Mounted;
use super::observer::{Channel, Observer};

/// How to run.
pub struct RecordOptions<'flag> {
    /// Size of the disk, bytes.
    pub disk_len: usize,
    /// What a flush costs beyond what it costs here.
    pub flush_delay: Duration,
    /// Where the workload's messages go.
    pub channel: Channel,
    /// A workload that runs longer is killed, which is an error.
    pub patience: Duration,
    /// Set from elsewhere to end early.
    pub interrupted: &'flag AtomicBool,
    /// What goes wrong with the disk while the workload runs; then a workload that fails is no error.
    pub fault: Option<Fault>,
    /// What is done to the processes of the command while it runs: called in a thread of its own with the command's
    /// process id. Then, too, a workload that fails is no error.
    pub disturb: Option<&'flag (dyn Fn(i32) + Sync)>,
}

impl<'flag> RecordOptions<'flag> {
    /// A disk of 32 MiB that flushes at once and does not fail, for a workload that says in a pipe what it has done.
    pub fn small(interrupted: &'flag AtomicBool) -> Self {
        Self {
            disk_len: 32 << 20,
            flush_delay: Duration::ZERO,
            channel: Channel::Pipe,
            patience: Duration::from_secs(300),
            interrupted,
            fault: None,
            disturb: None,
        }
    }
}

/// What was recorded.
pub struct Recording {
    /// Everything that happened on the clock.
    pub log: Log,
    /// How long the workload ran.
    pub elapsed: Duration,
    /// How the workload ended: `0`, or for people to read.
    pub status: String,
    /// What it complained of.
    pub stderr: String,
    /// Requests that failed.
    pub faults_hit: u64,
}

/// Stands in a workload's command where the configuration's prefix belongs, if that is not in front of it all.
pub const PREFIX: &str = "{prefix}";

const STDERR_LEN_MAX: u64 = 64 << 10;
const EXIT_POLL: Duration = Duration::from_millis(1);
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

/// Runs `workload` (given the directory and where messages go: `stdout`, `udp:PORT`, `tcp:PORT`; it returns program and
/// arguments) in `configuration`. A workload that fails is an error.
pub fn record(
    configuration: &Configuration,
    options: &RecordOptions<'_>,
    workload: impl FnOnce(&Path, &str) -> Vec<OsString>,
) -> Result<Recording, CrashError> {
    let disk_options = DiskOptions { flush_delay: Duration::ZERO };
    let mut disk = CrashDisk::with_options(options.disk_len, disk_options)?;
    disk.format(&configuration.format)?;
    let dir = tempfile::Builder::new().prefix("crash-run-").tempdir();
    let dir = dir.map_err(CrashError::system("make a temporary directory"))?;
    let mounted = match &configuration.mounted_by {
        MountedBy::Harness(options) => Some(Mounted::new(disk.device(), dir.path(), "ext4", options)?),
        MountedBy::Prefix => None,
    };
    if let Some(mounted) = &mounted {
        sync_mount(mounted.dir())?;
    }
    disk.set_flush_delay(options.flush_delay);
    let observer = Observer::new(disk.clock());
    let (target, stdout) = message_target(&observer, options.channel)?;
    let prefix = substitute(&configuration.prefix, disk.device(), dir.path());
    let mut command = workload(dir.path(), &target);
    let place = command.iter().position(|word| word == PREFIX);
    command.splice(place.map_or(0..0, |at| at..at + 1), prefix);
    disk.start_recording();
    disk.set_fault(options.fault);
    let begin = Instant::now();
    let (status, stderr) = run_observed(&command, stdout, options, dir.path())?;
    let elapsed = begin.elapsed();
    let faults_hit = disk.faults_hit();
    observer.wait_for_end(OUTPUT_PATIENCE);
    if status == "0" {
        observer.exited(&status);
    }
    let mut log = disk.stop_recording();
    log.messages = observer.finish();
    disk.set_flush_delay(Duration::ZERO);
    disk.set_fault(None);
    drop(mounted);
    Ok(Recording { log, elapsed, status, stderr, faults_hit })
}

fn sync_mount(dir: &Path) -> Result<(), CrashError> {
    let what = || format!("sync {}", dir.display());
    let opened = std::fs::File::open(dir).map_err(CrashError::system(what()))?;
    rustix::fs::syncfs(&opened).map_err(CrashError::system(what()))
}

fn message_target(observer: &Observer, channel: Channel) -> Result<(String, OwnedFd), CrashError> {
    let target = match channel {
        Channel::Udp => format!("udp:{}", observer.udp()?.port()),
        Channel::Tcp => format!("tcp:{}", observer.tcp()?.port()),
        Channel::Pipe | Channel::Terminal | Channel::Exit => "stdout".to_owned(),
    };
    let stdout = match channel {
        Channel::Terminal => observer.terminal()?,
        _ => observer.pipe()?,
    };
    Ok((target, stdout))
}

fn substitute(prefix: &[String], device: &Path, dir: &Path) -> Vec<OsString> {
    let device = device.to_string_lossy();
    let dir = dir.to_string_lossy();
    let words = prefix.iter();
    words.map(|word| word.replace("{device}", &device).replace("{dir}", &dir).into()).collect()
}

/// The exit status as text, and what the command complained of. The command runs in a process group of its own:
/// whatever it leaves behind is ended with it.
fn run_observed(
    command: &[OsString],
    stdout: OwnedFd,
    options: &RecordOptions<'_>,
    dir: &Path,
) -> Result<(String, String), CrashError> {
    let text = || {
        let words = command.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    };
    // Should we be killed, it must not keep the mount busy.
    let mut builder = Command::new("setpriv");
    builder
        .args(["--pdeathsig", "KILL", "--"])
        .args(command)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = Group(builder.spawn().map_err(CrashError::system(text()))?);
    // Holds the write end of the pipe, which would never end.
    drop(builder);
    let stderr = child.0.stderr.take();
    let stderr = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(stderr) = stderr {
            let _ = stderr.take(STDERR_LEN_MAX).read_to_string(&mut text);
        }
        text
    });
    let pid = child.0.id() as i32;
    let ended = std::thread::scope(|scope| {
        if let Some(disturb) = options.disturb {
            scope.spawn(move || disturb(pid));
        }
        wait(&mut child.0, options)
    });
    drop(child);
    let stderr = stderr.join().unwrap_or_default().trim().to_owned();
    let bad = |outcome: String| CrashError::Command { command: text(), outcome, stderr: stderr.clone() };
    match ended? {
        Some(status) if status.success() => Ok(("0".to_owned(), stderr)),
        Some(status) if options.fault.is_some() || options.disturb.is_some() => Ok((describe(status), stderr)),
        Some(status) => Err(bad(describe(status))),
        None => Err(bad(format!("did not end in {:?}", options.patience))),
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
    }
}

fn wait(child: &mut Child, options: &RecordOptions<'_>) -> Result<Option<ExitStatus>, CrashError> {
    let end = Instant::now() + options.patience;
    while Instant::now() < end {
        if options.interrupted.load(Ordering::SeqCst) {
            return Err(CrashError::Interrupted);
        }
        let status = child.try_wait().map_err(CrashError::system("wait"))?;
        if status.is_some() {
            return Ok(status);
        }
        std::thread::sleep(EXIT_POLL);
    }
    Ok(None)
}

/// A child and what it started; killed on drop.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}
