//! Running other programs: what is run is shown, what fails is told.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::unstable::{failed_names, passed, unexplained, Failure};

/// The status of a program that judges, if it found what must not be (`STATUS_FOUND` in testkit and in `search`). What
/// did not run, or panicked, has another one.
const FOUND: i32 = 3;

/// Lines that are told of one command's failures.
const FAILURE_LINES_MAX: usize = 60;

/// The variable that says which of several cases a test takes.
pub const SAMPLE_VARIABLE: &str = "SPECULATOR_SAMPLE";

/// How long a command of tests may take: several times what the longest one takes. CI that is ended from outside says
/// nothing of which test hangs.
const TESTS_MAX: Duration = Duration::from_secs(25 * 60);

/// How long output is waited for behind the end of a command.
const LEFT_PIPE: Duration = Duration::from_secs(5);

/// How libtest's line on a test ends that takes long.
const SLOW: &str = "has been running for over 60 seconds";

/// A command that is about to run.
pub struct Job(Command);

/// Whether the build that the tests belong to is judged, and not the release.
static JUDGES_TEST_BUILD: AtomicBool = AtomicBool::new(false);

/// From now on the build that the tests belong to is judged: the same sources, which check themselves more (overflows,
/// `debug_assert`). Another build for the release alone would take as long as everything else that is built.
pub fn judge_test_build() {
    JUDGES_TEST_BUILD.store(true, Ordering::Relaxed);
}

/// The folder of the build that is judged, below [`target`].
fn judged() -> &'static str {
    if JUDGES_TEST_BUILD.load(Ordering::Relaxed) {
        return "debug";
    }
    "release"
}

/// The file into which tests write that they were left out, and why (testkit's `skipped`): libtest shows what they say
/// only if they fail.
pub fn skipped() -> PathBuf {
    std::env::temp_dir().join(format!("speculator-skipped-{}", std::process::id()))
}

/// Builds all tests and programs, in one: programs alone would have dependencies with fewer features.
pub fn build_tests() -> Result<(), String> {
    cargo(&["build", "--quiet", "--workspace", "--bins", "--tests"]).run()
}

/// Builds a program that compares, such as `search`. It is always one of the tests' build.
pub fn build_comparer(name: &str) -> Result<(), String> {
    if JUDGES_TEST_BUILD.load(Ordering::Relaxed) {
        return build_tests();
    }
    cargo(&["build", "--quiet", "--workspace", "--bin", name]).run()
}

/// A program that compares, with `speculator` and the folder into which it writes as its first arguments.
pub fn comparer(name: &str, into: &Path) -> Job {
    let speculator = format!("--speculator={}", speculator().display());
    job(target().join("debug").join(name)).args([speculator, format!("--into={}", into.display())])
}

/// Builds `speculator`, and the programs that judge it.
pub fn build_judged() -> Result<(), String> {
    if JUDGES_TEST_BUILD.load(Ordering::Relaxed) {
        return build_tests();
    }
    // Chosen together: each by itself would have dependencies with other features.
    nice_cargo(&["build", "--release", "-p", "cli", "-p", "testkit"]).run()
}

/// What tests that take one of several cases choose it by: another number in each run of ours, or one that is given.
pub fn sample_number() -> &'static str {
    static SAMPLE: OnceLock<String> = OnceLock::new();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    SAMPLE.get_or_init(|| std::env::var(SAMPLE_VARIABLE).unwrap_or_else(|_| now().to_string()))
}

/// A command.
pub fn job(program: impl AsRef<OsStr>) -> Job {
    let mut command = Command::new(program);
    command.current_dir(repository()).env("SPECULATOR_BUILD", judged());
    command.env("SPECULATOR_SKIPPED", skipped()).env(SAMPLE_VARIABLE, sample_number());
    Job(command)
}

/// `cargo` with these arguments: the same that runs us.
pub fn cargo(arguments: &[&str]) -> Job {
    job(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(arguments)
}

/// The same, giving way to whatever else runs: tests that run beside it.
pub fn nice_cargo(arguments: &[&str]) -> Job {
    job("nice").args([std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())]).args(arguments)
}

impl Job {
    /// Further arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Job {
        self.0.args(arguments);
        self
    }

    /// A variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Job {
        self.0.env(name, value);
        self
    }

    /// Another directory than the repository's root.
    pub fn within(mut self, directory: &Path) -> Job {
        self.0.current_dir(directory);
        self
    }

    /// The same command once more, with further arguments.
    pub fn again(&self, arguments: &[String]) -> Job {
        let mut command = Command::new(self.0.get_program());
        command.args(self.0.get_args()).args(arguments);
        command.envs(self.0.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(directory) = self.0.get_current_dir() {
            command.current_dir(directory);
        }
        Job(command)
    }

    /// The same in a namespace of its own for System V objects: what nobody removes of them goes with it. Root only.
    pub fn with_own_segments(self) -> Job {
        job("unshare").args(["--ipc"]).args([self.0.get_program()]).args(self.0.get_args())
    }

    /// As it would be typed.
    pub fn line(&self) -> String {
        let words = std::iter::once(self.0.get_program()).chain(self.0.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// Shows the command and runs it on our terminal.
    pub fn run(mut self) -> Result<(), String> {
        let line = self.line();
        println!("$ {line}");
        let status = self.0.status().map_err(|error| format!("cannot run {line}: {error}"))?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{line}: {status}"))
    }

    /// The same for a judge of what is wrong on purpose: it has to find that, and any other end is an error.
    pub fn has_to_find(mut self, judge: &str) -> Result<(), String> {
        let line = self.line();
        println!("$ {line}");
        let status = self.0.status().map_err(|error| format!("cannot run {line}: {error}"))?;
        match status.code() {
            Some(FOUND) => Ok(()),
            Some(0) => Err(format!("{line}: output was released too early, and {judge} found nothing")),
            _ => Err(format!("{line}: {status}")),
        }
    }

    /// The same for tests: what they say is shown as it comes; what failed is in the error. How many have passed.
    pub fn run_tests(self) -> Result<usize, Failure> {
        self.run_tests_within(TESTS_MAX)
    }

    /// The same with another limit of time.
    pub fn run_tests_within(mut self, limit: Duration) -> Result<usize, Failure> {
        let line = self.line();
        println!("$ {line}");
        let failed = |said: String| Failure { names: Vec::new(), unexplained: None, said };
        // What cargo says of targets that failed is read here.
        self.0.env("CARGO_TERM_COLOR", "never");
        let child = self.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed(format!("cannot run {line}: {error}")))?;
        let stdout = Shown::new(child.stdout.take(), |line| println!("{line}"));
        let stderr = Shown::new(child.stderr.take(), |line| eprintln!("{line}"));
        let ended = wait(&mut child, limit).map_err(|error| failed(format!("cannot wait for {line}: {error}")))?;
        let (lines, problems) = (stdout.lines(), stderr.lines());
        let Some(status) = ended else {
            let minutes = limit.as_secs_f64() / 60.0;
            let slow = lines.iter().filter(|line| line.ends_with(SLOW)).cloned().collect::<Vec<_>>();
            let said =
                format!("{line}: it did not end in {minutes} minutes, and was killed; of these tests some hang:");
            return Err(failed(format!("{said}\n{}", slow.join("\n"))));
        };
        if status.success() {
            return Ok(passed(&lines));
        }
        let unexplained = unexplained(&lines, &problems);
        let told = unexplained.iter().map(String::as_str).chain(told_of_failures(&lines)).collect::<Vec<_>>();
        let said = format!("{line}: {status}\n{}", told.join("\n"));
        Err(Failure { names: failed_names(lines.iter().map(String::as_str)), unexplained, said })
    }

    /// Shows the command and becomes it; why that failed.
    pub fn exec(mut self) -> String {
        let line = self.line();
        println!("$ {line}");
        format!("cannot run {line}: {}", self.0.exec())
    }

    /// Runs it without a word; its standard output.
    pub fn output(mut self) -> Result<String, String> {
        let line = self.line();
        let output = self.0.output().map_err(|error| format!("cannot run {line}: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{line}: {}: {}", output.status, said.trim()))
    }
}

/// The lines of a pipe; each is shown as it comes.
struct Shown {
    came: Receiver<String>,
}

impl Shown {
    fn new(pipe: Option<impl Read + Send + 'static>, show: fn(&str)) -> Shown {
        let (tell, came) = channel();
        std::thread::spawn(move || {
            let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n')).map_while(Result::ok);
            let text = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
            text.inspect(|line| show(line)).try_for_each(|line| tell.send(line))
        });
        Shown { came }
    }

    /// All of them, once the command has ended: what it has left running may keep the pipe open for ever.
    fn lines(self) -> Vec<String> {
        let until = Instant::now() + LEFT_PIPE;
        let left = || until.checked_duration_since(Instant::now());
        std::iter::from_fn(|| self.came.recv_timeout(left()?).ok()).collect()
    }
}

/// Waits for a command; `None`: it did not end in time, and was killed with everything that it had begun.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // Some may be made while others are killed. Those that are gone meanwhile are of no interest.
    for _ in 0..5 {
        let _ = job("kill").args(["-KILL"]).args(descendants(child.id()).iter().map(u32::to_string)).output();
    }
    child.kill()?;
    child.wait().map(|_| None)
}

/// All processes below one, those that were started last first.
fn descendants(of: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may hold anything: the state, and the parent.
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let known: Vec<(u32, u32)> = processes.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        let of = found[at];
        found.extend(known.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        at += 1;
    }
    found.into_iter().skip(1).rev().collect()
}

/// What tests have said of their failures, up to a bound.
fn told_of_failures(lines: &[String]) -> Vec<&str> {
    let mut tells = false;
    let mut told = Vec::new();
    for line in lines {
        tells = (tells || line == "failures:") && !line.starts_with("test result:");
        if tells && !line.is_empty() {
            told.push(line.as_str());
        }
    }
    told.truncate(FAILURE_LINES_MAX);
    told
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// A program of the build that is judged.
pub fn program(name: &str) -> PathBuf {
    target().join(judged()).join(name)
}

/// The binary `speculator` that is judged.
pub fn speculator() -> PathBuf {
    program("speculator")
}

/// Whether we are root.
pub fn is_root() -> bool {
    job("id").args(["-u"]).output().is_ok_and(|text| text.trim() == "0")
}

/// SIGHUP, SIGINT and SIGQUIT of this process in the mask of ignored signals (proc(5)).
const INTERRUPTS: u64 = 1 << 0 | 1 << 1 | 1 << 2;

/// A shell ignores SIGINT and SIGQUIT for what it starts with `&`, and `nohup` SIGHUP, and programs inherit that. Tests
/// end programs by these signals: if they are ignored, we begin again with their defaults.
pub fn take_interrupts() -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"))?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.ok_or("no SigIgn in /proc/self/status")? & INTERRUPTS == 0 {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    Err(job("env").args(["--default-signal=HUP,INT,QUIT"]).args([program]).args(std::env::args_os().skip(1)).exec())
}

/// Where `command` would be found on the usual path, if anywhere.
pub fn find(command: &str) -> Option<PathBuf> {
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin:/usr/games";
    usual.split(':').map(|directory| Path::new(directory).join(command)).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(2);

    /// CI hung until it was ended from outside, which told nobody which test it was.
    #[test]
    fn tests_that_hang_are_killed_and_told() {
        let hangs = "echo '..test a::b has been running for over 60 seconds'; setsid sleep 1000 & echo $!; wait";
        let failure = job("sh").args(["-c", hangs]).run_tests_within(SOON).expect_err("it hangs");
        assert!(failure.names.is_empty() && failure.said.contains("test a::b has been"), "{}", failure.said);
    }

    #[test]
    fn what_a_command_leaves_running_is_not_waited_for() {
        let begun = Instant::now();
        let leaves = "echo 'test result: ok. 1 passed; 0 failed'; setsid sleep 15 & exit 0";
        assert!(job("sh").args(["-c", leaves]).run_tests_within(60 * SOON).is_ok_and(|passed| passed == 1));
        assert!(begun.elapsed() < 6 * SOON);
    }

    #[test]
    fn everything_below_a_command_is_killed() {
        let script = "setsid sh -c 'echo $$; exec sleep 1000' & wait";
        let mut child = job("sh").args(["-c", script]).0.stdout(Stdio::piped()).spawn().expect("a child");
        let mut pid = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut pid).expect("a line");
        assert!(wait(&mut child, Duration::ZERO).expect("a wait").is_none());
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let begun = Instant::now();
        // Whoever adopts it may take a moment to wait for it.
        while state().contains(") S ") && begun.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!state().contains(") S "), "{}", state());
    }
}
