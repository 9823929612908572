//! Runs `speculator` and looks at what it says and leaves behind.
#![allow(dead_code)] // Each test file uses its part.

pub mod guess;
pub mod manifest;
pub mod places;
pub mod tree;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;
pub use testkit::skipped::{has_root_for, skipped};

/// Somebody who is not root.
const NOBODY: u32 = 65534;

/// A folder for one test. Whatever is still mounted in it at the end is unmounted.
pub struct Scene {
    folder: TempDir,
}

/// What a run of `speculator` came to.
pub struct Outcome {
    /// Its exit status.
    pub status: i32,
    /// What it wrote.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Scene {
    pub fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("dir")).unwrap();
        Scene { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a small volume `image`.
    pub fn with_volume() -> Scene {
        let scene = Scene::new();
        scene.run("volume create image --size 64M").expect(0, "");
        scene
    }

    /// Runs `speculator` with these words in the scene's folder.
    pub fn run(&self, line: &str) -> Outcome {
        Outcome::of(self.command(line).output().unwrap())
    }

    /// The same as an ordinary user; `None`, and says so, if that cannot be arranged.
    pub fn run_as_nobody(&self, line: &str) -> Option<Outcome> {
        if !is_root() {
            return Some(self.run(line));
        }
        open_to_all(self.folder.path());
        match self.command(line).uid(NOBODY).gid(NOBODY).output() {
            Ok(output) => Some(Outcome::of(output)),
            Err(error) => {
                skipped(&format!("nobody cannot run speculator: {error}"));
                None
            }
        }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        // A folder in PATH that nobody may search makes a missing command a forbidden one, as for env(1).
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }

    /// Unmounts the volume at `dir`, as soon as nobody keeps it busy. A world of another test may have copied the mount
    /// when it began: then the image stays attached until that world ends.
    #[track_caller]
    pub fn umount(&self) {
        let begin = Instant::now();
        let mut outcome = self.run("volume umount dir");
        assert!(!outcome.stderr.contains("no volume is mounted there"), "{}", outcome.stderr);
        let is_there = || self.traces().iter().any(|trace| trace.contains(" ext4 ") || trace.contains("/image"));
        while outcome.status != 0 && is_there() {
            assert!(begin.elapsed() < places::PATIENCE, "{}", outcome.stderr);
            std::thread::sleep(places::PAUSE);
            outcome = self.run("volume umount dir");
        }
    }

    /// What has to do with this scene in the mount table and among the loop devices.
    pub fn traces(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let devices = fs::read_dir("/sys/block").unwrap().flatten();
        let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
        mounts.lines().map(str::to_owned).chain(files).filter(|line| line.contains(folder)).collect()
    }

    /// What `--stats=json:stats` has left.
    pub fn stats(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.path("stats")).unwrap()).unwrap()
    }

    /// The names in the scene's folder.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Nothing is mounted or attached any more. A world of another test may have copied a mount when it began, and has
    /// it until it ends.
    #[track_caller]
    pub fn nothing_is_attached(&self) {
        let end = Instant::now() + places::PATIENCE;
        while !self.traces().is_empty() && Instant::now() < end {
            std::thread::sleep(places::PAUSE);
        }
        assert_eq!(self.traces(), Vec::<String>::new());
    }

    /// Nothing is mounted or attached, and the folder holds these names.
    #[track_caller]
    pub fn left_behind(&self, names: &[&str]) {
        self.nothing_is_attached();
        assert_eq!(self.names(), names);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !self.traces().is_empty() {
            let _ = Command::new("umount").arg("-l").arg(self.path("dir")).status();
        }
    }
}

impl Outcome {
    pub fn of(output: Output) -> Outcome {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Outcome {
            status: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap()),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// The status, and what stderr holds: nothing, or one line that says who speaks, holds `stderr`, and says what to
    /// do.
    #[track_caller]
    pub fn expect(&self, status: i32, stderr: &str) -> &Outcome {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        if stderr.is_empty() {
            assert_eq!(self.stderr, "");
            return self;
        }
        assert!(self.stderr.starts_with("speculator: ") && self.stderr.contains("; "), "{}", self.stderr);
        assert_eq!(self.stderr.matches('\n').count(), 1, "{}", self.stderr);
        assert!(self.stderr.contains(stderr), "{}", self.stderr);
        self
    }
}

/// A temporary folder is its owner's only; nobody has to get in.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// False, and says so, when not root; in CI that is a failure.
pub fn can_mount() -> bool {
    has_root_for("mounting a volume")
}

/// Copies a program. Another process does it: a child that a test beside this one has just made would keep the copy
/// open for writing until it has begun its own program, and who executes a file that is open so hears ETXTBSY.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let copied = Command::new("cp").args(["--preserve=mode", "--"]).args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is not copied to {}", from.display(), to.display());
}

/// The beginning of a command that may not raise its hard limits, as root may (`ulimit -n`); nothing for others.
pub fn keeping_hard_limits() -> &'static str {
    match is_root() {
        true => "setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource",
        false => "",
    }
}

/// The interpreter itself: what is in PATH may be a script that looks for it.
pub fn python() -> String {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What is mounted at this path; it is unmounted at the end, also of a failed test.
pub struct Mounted(pub PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // A world that has just ended may have it open for a moment.
        let is_unmounted = || Command::new("umount").arg(&self.0).output().is_ok_and(|output| output.status.success());
        let pause = || std::thread::sleep(Duration::from_millis(50));
        let is_free = is_unmounted()
            || (0..100).any(|_| {
                pause();
                is_unmounted()
            });
        if !is_free {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// One of these, another one in each run of `cargo xtask test`, which says how it was chosen and passes that on to a
/// repetition; by itself a test takes the first one, or what `SPECULATOR_SAMPLE` says.
pub fn sample<T: Copy>(of: &[T]) -> T {
    let chosen = std::env::var("SPECULATOR_SAMPLE").ok().and_then(|number| number.parse::<usize>().ok());
    of[chosen.unwrap_or(0) % of.len()]
}
