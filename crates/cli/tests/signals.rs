//! What a shell sees and does: signals to the process group and to us alone, and the end by a signal.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, kill_process_group, Pid, Signal};

/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

fn start(script: &str) -> (Child, BufReader<ChildStdout>) {
    start_in("bash", script)
}

fn start_in(shell: &str, script: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--", shell, "-c", script]).process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

const COUNTS: &str =
    "trap 'echo got; n=$((n+1))' TERM; trap 'echo $n; exit 0' USR1; echo ready; while :; do read -t 0.05 <> <(:); done";

#[test]
fn a_signal_to_the_group_comes_once_and_one_to_us_is_sent_on() {
    let (mut child, mut out) = start(COUNTS);
    let us = Pid::from_child(&child);
    assert_eq!(line(&mut out), "ready");
    kill_process_group(us, Signal::TERM).unwrap();
    assert_eq!(line(&mut out), "got");
    std::thread::sleep(Duration::from_millis(700));
    kill_process(us, Signal::TERM).unwrap();
    assert_eq!(line(&mut out), "got");
    std::thread::sleep(Duration::from_millis(700));
    kill_process(us, Signal::USR1).unwrap();
    assert_eq!(line(&mut out), "2");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Whoever starts a daemon ends at once. The kernel mostly reported that end before the first stop of the daemon,
/// and the world had nobody who would say that COMMAND had ended.
#[test]
fn who_starts_a_daemon_and_ends_is_not_waited_for() {
    for round in 0..12 {
        let (mut child, mut out) = start_in("sh", "exec 3<&0; { read -r line <&3; echo went on; } &");
        let end = Instant::now() + PATIENCE;
        let mut status = child.try_wait().unwrap();
        while status.is_none() && Instant::now() < end {
            std::thread::sleep(PAUSE);
            status = child.try_wait().unwrap();
        }
        drop(child.stdin.take());
        assert_eq!(line(&mut out), "went on", "round {round}");
        child.wait().unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(0), "round {round}: run waited for the daemon");
    }
}

/// A shell stops its loop at ^C only if it sees that the signal ended what it had started.
#[test]
fn the_end_by_a_signal_is_ours_too() {
    for (script, signal) in [("kill -INT $$", 2), ("kill -TERM $$", 15), ("kill -KILL $$", 9), ("kill -SEGV $$", 11)] {
        let status = start(script).0.wait().unwrap();
        assert_eq!((status.code(), status.signal(), status.core_dumped()), (None, Some(signal), false), "{script}");
    }
    let (mut child, mut out) = start("echo ready; exec sleep 100");
    assert_eq!(line(&mut out), "ready");
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

/// Each stop of a tracee sends SIGCHLD to the supervisor's process. A thread of it that does not block it is woken,
/// drops it, and leaves none for the one that waits for it. One did, because it was started too early.
#[test]
fn no_thread_of_the_supervisor_takes_the_signal_of_a_stop() {
    let script = "read -r supervisor < <(awk '/^TracerPid/ { print $2 }' /proc/self/status); \
        awk '/^SigBlk/ { print $2 }' /proc/$supervisor/task/*/status";
    let (mut child, mut out) = start(script);
    let masks: Vec<String> = std::iter::from_fn(|| Some(line(&mut out)).filter(|line| !line.is_empty())).collect();
    assert!(child.wait().unwrap().success());
    assert!(masks.len() > 2, "the event loop, and threads that commit and write: {masks:?}");
    for mask in &masks {
        const SIGCHLD_BIT: u64 = 1 << 16;
        assert_ne!(u64::from_str_radix(mask, 16).unwrap() & SIGCHLD_BIT, 0, "{masks:?}");
    }
}

/// What a number means is told by its name.
#[test]
fn what_is_refused_is_told_by_its_name() {
    // Accounting is refused before the path is looked at, which names no file.
    let python = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.prctl(22, 2, 0)\n\
        libc.ptrace(0, 0, 0, 0)\nassert libc.acct(b'/no/such/file') == -1 and ctypes.get_errno() == 38\n";
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    let command = command.args(["run", "-vv", "--", "/usr/bin/python3", "-I", "-c", python]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    for name in ["prctl(PR_SET_SECCOMP)", "ptrace(PTRACE_TRACEME)", "acct"] {
        assert!(stderr.contains(name), "{stderr}");
    }
}

#[test]
fn what_is_refused_is_told_once_or_each_time() {
    let python = "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor _ in range(3): libc.syscall(425, 1, 0)\n";
    for (flags, lines) in [("-v", 1), ("-vv", 3), ("--", 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", flags]).args((flags != "--").then_some("--"));
        let output = command.args(["/usr/bin/python3", "-I", "-c", python]).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.lines().filter(|line| line.contains("io_uring_setup")).count(), lines, "{flags}: {stderr}");
    }
}
