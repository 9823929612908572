//! Where a script has come to: it runs a program that nobody else runs, and who tests it sees that. On a busy machine
//! no pause is long enough.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything takes, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
pub const PAUSE: Duration = Duration::from_millis(5);

/// A `sleep` of so many seconds, written as nobody else writes it.
pub fn pause(seconds: &str) -> String {
    static PAUSES: AtomicUsize = AtomicUsize::new(0);
    let dot = if seconds.contains('.') { "" } else { "." };
    format!("sleep {seconds}{dot}0000{:07}{:03}", std::process::id(), PAUSES.fetch_add(1, Ordering::Relaxed))
}

/// A pause again and again, until there is this file.
pub fn pause_until(pause: &str, file: &Path) -> String {
    format!("until [ -e {} ]; do {pause}; done", file.display())
}

/// Processes that run a command of these words.
pub fn running(command: &str) -> Vec<i32> {
    let line = format!("{}\0", command.replace(' ', "\0"));
    let is_it = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line.as_bytes());
    let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_it).collect()
}

/// Waits until somebody runs this command; who it is.
#[track_caller]
pub fn await_running(command: &str) -> i32 {
    let begin = Instant::now();
    loop {
        if let Some(pid) = running(command).first() {
            return *pid;
        }
        assert!(begin.elapsed() < PATIENCE, "nobody runs {command}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until nobody runs this command any more.
#[track_caller]
pub fn await_end(command: &str) {
    let begin = Instant::now();
    while !running(command).is_empty() {
        assert!(begin.elapsed() < PATIENCE, "somebody still runs {command}");
        std::thread::sleep(PAUSE);
    }
}
