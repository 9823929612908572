//! What a run may leave behind: processes, System V segments, mounts, loop devices, files. Others may run worlds at
//! the same time: only what belongs to this campaign counts. Its processes are known by a variable, its files by
//! their directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The variable by which processes that a campaign has started are known. Its value is the directory of the
/// campaign's temporary files.
pub const MARK: &str = "SPECULATOR_FAULTS";

/// How often is looked again before something counts as left: ends take a moment.
const LOOKS_MAX: u32 = 200;
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// What there was.
pub struct Before {
    mark: String,
    mounts: BTreeSet<String>,
    loops: BTreeSet<String>,
    files: BTreeSet<String>,
    segments: BTreeSet<String>,
}

impl Before {
    /// Now.
    pub fn look() -> Before {
        let mark = std::env::var(MARK).unwrap_or_default();
        Before { mounts: mounts(), loops: loops(&mark), files: files(&mark), segments: segments(), mark }
    }

    /// What is there that was not, or that was made by the processes `makers`.
    pub fn what_is_left(&self, makers: &[i32]) -> Vec<String> {
        let mut left = self.look_again(makers);
        for _ in 0..LOOKS_MAX {
            if left.is_empty() {
                break;
            }
            sleep(LOOK_PERIOD);
            left = self.look_again(makers);
        }
        left
    }

    fn look_again(&self, makers: &[i32]) -> Vec<String> {
        let new = |now: BTreeSet<String>, before: &BTreeSet<String>| now.difference(before).cloned().collect();
        let found: [(&str, Vec<String>); 5] = [
            ("process", processes(&self.mark)),
            ("mount", new(mounts(), &self.mounts)),
            ("loop device", new(loops(&self.mark), &self.loops)),
            ("file", new(files(&self.mark), &self.files)),
            ("segment", segments_of(makers, &self.segments)),
        ];
        let left = found.into_iter().flat_map(|(what, names)| names.into_iter().map(move |name| (what, name)));
        left.map(|(what, name)| format!("{what} left: {name}")).collect()
    }
}

/// Processes of the campaign that run `speculator`, or a workload: ourselves aside.
fn processes(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let own = std::process::id().to_string();
    let is_marked = |pid: &Path| {
        let environment = fs::read(pid.join("environ")).unwrap_or_default();
        !pid.ends_with(&own) && environment.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let marked = entries.filter(|pid| pid.join("environ").exists() && is_marked(pid));
    // The harness's own keeper of loop devices waits for our end.
    let marked = marked.map(|pid| (fs::read_to_string(pid.join("comm")).unwrap_or_default(), pid));
    let of_run = marked.filter(|(name, _)| !OWN.contains(&name.trim()));
    of_run.map(|(name, pid)| format!("{} {}", pid.display(), name.trim())).collect()
}

/// Processes that belong to the harness itself.
const OWN: [&str; 2] = ["faults", "crash-keeper"];

fn mounts() -> BTreeSet<String> {
    const MOUNT_POINT: usize = 4;
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(|line| line.split(' ').nth(MOUNT_POINT)).map(str::to_owned).collect()
}

/// Loop devices whose file is in the campaign's directory.
fn loops(directory: &str) -> BTreeSet<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path());
    let file = |device: &Path| fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
    devices.filter(|device| file(device).starts_with(directory)).map(|device| device.display().to_string()).collect()
}

fn files(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// Lines of the kernel's table of segments.
fn segments() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    table.lines().skip(1).map(|line| line.trim().to_owned()).collect()
}

/// Segments that were made by these processes. Numbers of processes come back: one that was there before was made by
/// another one.
fn segments_of(makers: &[i32], before: &BTreeSet<String>) -> Vec<String> {
    theirs(&segments().into_iter().collect::<Vec<_>>(), makers, before)
}

fn theirs(now: &[String], makers: &[i32], before: &BTreeSet<String>) -> Vec<String> {
    const NUMBER: usize = 1;
    const CREATOR: usize = 4;
    let field = |line: &str, at: usize| line.split_whitespace().nth(at).and_then(|word| word.parse::<i32>().ok());
    let known: BTreeSet<_> = before.iter().filter_map(|line| field(line, NUMBER)).collect();
    let is_known = |line: &str| field(line, NUMBER).is_some_and(|number| known.contains(&number));
    let is_theirs = |line: &str| field(line, CREATOR).is_some_and(|creator| makers.contains(&creator));
    now.iter().filter(|line| is_theirs(line) && !is_known(line)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_and_a_file_that_are_left_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let mark = directory.path().display().to_string();
        let before = Before {
            mounts: mounts(),
            loops: loops(&mark),
            files: files(&mark),
            segments: segments(),
            mark: mark.clone(),
        };
        assert_eq!(before.look_again(&[]), Vec::<String>::new());
        fs::write(directory.path().join("left"), "").unwrap();
        let mut child = Command::new("sleep").arg("1000").env(MARK, &mark).spawn().unwrap();
        // Its variables are there once it has executed its program.
        while processes(&mark).is_empty() {
            sleep(LOOK_PERIOD);
        }
        let left = before.look_again(&[]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].starts_with("process left") && left[1].starts_with("file left"), "{left:?}");
    }
    #[test]
    fn a_segment_that_was_there_before_was_made_by_a_process_with_the_same_number() {
        let line = |number: &str| format!("0 {number} 600 4096 77 77 0 0 0 0 0 1 1 1 0 0");
        let before: BTreeSet<String> = [line("5")].into();
        assert_eq!(theirs(&[line("5"), line("6")], &[77], &before), [line("6")]);
        assert_eq!(theirs(&[line("6")], &[78], &before), Vec::<String>::new());
    }
}
