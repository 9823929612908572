//! When a commit is asked for. `--commit=eager`: by each change, whether anybody waits or not; by default they share
//! one.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Changes something twenty times, with time between for a commit, and says so at the end.
const SCRIPT: &str = "for i in $(seq 20); do echo $i > file-$i; sleep 0.05; done; echo said";

/// Sends what is in a pipe nowhere, as `grep` does with the rest of its input when nobody wants to see what it finds.
const NOWHERE: &str = r#"exec python3 -I -c '
import os
source, sink = os.pipe()
nowhere = os.open("/dev/null", os.O_WRONLY)
for i in range(20):
    open(f"file-{i}", "w").close()
    os.write(sink, b"read by nobody")
    if os.splice(source, nowhere, 4096) != 14:
        raise SystemExit("not spliced")
print("said")
'"#;

fn commits(how: &str, script: &str) -> (u64, u64, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let stats = folder.path().join("stats");
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.arg("run").arg(how).arg(format!("--stats=json:{}", stats.display()));
    command.args(["--", "sh", "-c", script]).current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stats: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    let count = |cause: &str| stats["commits"][cause].as_u64().unwrap_or(0);
    let other = ["output", "age", "dirty", "end"].map(count).iter().sum();
    (count("eager"), other, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn each_change_is_committed_though_nobody_waits() {
    let (eager, _, stdout) = commits("--commit=eager", SCRIPT);
    assert!(eager >= 20, "{eager} eager commits for 20 changes");
    assert_eq!(stdout, "said\n");
}

#[test]
fn by_default_changes_share_a_commit() {
    let (eager, other, stdout) = commits("--commit=output", SCRIPT);
    assert_eq!(eager, 0);
    assert!(other <= 4, "{other} commits");
    assert_eq!(stdout, "said\n");
}

/// Each of them was a barrier, and a build has a dozen.
#[test]
fn what_goes_nowhere_waits_for_no_commit() {
    let (eager, other, stdout) = commits("--commit=output", NOWHERE);
    assert_eq!(eager, 0);
    assert!(other <= 4, "{other} commits");
    assert_eq!(stdout, "said\n");
}
