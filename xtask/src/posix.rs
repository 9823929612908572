//! `posix`: pjdfstest and fsx on a BlueFS mount. Both are installed below `target`; mounts need root.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shell::{build_judged, cargo, is_root, job, speculator, target};

/// Tests whose failure is known, and why.
const EXPECTED: [(&str, &str); 0] = [];

/// What pjdfstest is told of the file system. Its two users are Debian's.
const FEATURES: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n\
    [settings]\nnaptime = 0.01\n";

/// mount(8) looks for what mounts a volume again in /sbin only: for the tests it is there, for nobody else. `$1` is the
/// program, `$2` a directory for it; the test follows.
const WITH_HELPER: &str = r#"
    mount -t tmpfs none "$2" && mkdir "$2/upper" "$2/work" &&
    mount -t overlay none -o "lowerdir=/usr/sbin,upperdir=$2/upper,workdir=$2/work" /usr/sbin &&
    ln -s "$1" /usr/sbin/mount.fuse.bluefs || exit 1
    shift 2; exec "$@""#;

/// What fsx does. Without a least size fsx sometimes reserves no bytes.
/// POSIX has EINVAL for that, which fsx takes for a failure on every file system.
const OPERATIONS: &str =
    "[opsize]\nmin = 1\n[weights]\nclose_open = 2.0\ninvalidate = 1.0\nmapread = 10.0\nmapwrite = 10.0\nread = 10.0\n\
    write = 10.0\ntruncate = 3.0\nfsync = 1.0\nfdatasync = 1.0\npunch_hole = 3.0\nposix_fallocate = 3.0\n\
    sendfile = 3.0\nposix_fadvise = 1.0\ncopy_file_range = 3.0\n";

/// Operations of fsx if nothing else is said.
const OPERATIONS_MAX: u64 = 20_000;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    operations: u64,
    seed: u64,
    /// fsx is run again, with the next seed, until so much time has passed.
    time: Duration,
    filter: Vec<String>,
}

/// Installs both, mounts a volume, and runs them.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    if !is_root() {
        println!("left out without root: mounts");
        return Ok(());
    }
    install()?;
    build_judged()?;
    let mount = Mount::new()?;
    let (posix, random) = (pjdfstest(&mount, &options.filter), fsx(&mount, &options));
    let problems: Vec<String> = [posix, random].into_iter().filter_map(Result::err).collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.join("\n")),
    }
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options, String> {
        let (operations, time) = (OPERATIONS_MAX, Duration::ZERO);
        let mut options = Options { operations, seed: seed(), time, filter: Vec::new() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or(format!("{word} needs a number"));
            match word.as_str() {
                "--operations" => options.operations = number()?,
                "--seed" => options.seed = number()?,
                "--for" => options.time = Duration::from_secs(number()? * 60),
                other if other.starts_with('-') => return Err(format!("posix does not know {other}")),
                other => options.filter.push(other.to_owned()),
            }
        }
        Ok(options)
    }
}

/// One that is new each time.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs())
}

fn root() -> PathBuf {
    target().join("posix")
}

fn install() -> Result<(), String> {
    let is_there = |name| root().join("bin").join(name).exists();
    if is_there("pjdfstest") && is_there("fsx") {
        return Ok(());
    }
    // pjdfstest is linked with libacl. What programs need of that is on every Debian, what compilers need is not.
    let libraries = root().join("lib");
    let made = std::fs::create_dir_all(&libraries);
    made.map_err(|error| format!("cannot make {}: {error}", libraries.display()))?;
    let _ = std::os::unix::fs::symlink("/usr/lib/x86_64-linux-gnu/libacl.so.1", libraries.join("libacl.so"));
    let install = cargo(&["install", "--quiet", "--locked", "--root"]).args([root()]);
    install.args(["pjdfstest@0.2.2", "fsx@0.3.2"]).env("LIBRARY_PATH", &libraries).run()
}

fn pjdfstest(mount: &Mount, filter: &[String]) -> Result<(), String> {
    let names: Vec<String> = EXPECTED.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    for (name, why) in EXPECTED {
        println!("expected to fail: {name}: {why}");
    }
    let expected = names.join(", ");
    run_pjdfstest(mount, &format!("allow_remount = false\nexpected_failures = [{expected}]\n"), filter)?;
    // Those that mount again for reading only, in a process of their own: an earlier test leaves a file open to be
    // written, which makes the file system busy (on tmpfs, too).
    match filter {
        [] => run_pjdfstest(mount, "allow_remount = true\n", &["erofs".to_owned()]),
        _ => Ok(()),
    }
}

fn run_pjdfstest(mount: &Mount, settings: &str, filter: &[String]) -> Result<(), String> {
    let config = mount.file("pjdfstest.toml");
    write(&config, &format!("{FEATURES}{settings}"))?;
    let helper = job("unshare").args(["-m", "sh", "-c", WITH_HELPER, "sh"]).args([speculator(), mount.file("helper")]);
    let test = helper.args([root().join("bin/pjdfstest")]).args(["-c"]).args([config]);
    test.args(["-p"]).args([mount.dir()]).args(["-s"]).args([mount.file("other")]).args(["--"]).args(filter).run()
}

fn fsx(mount: &Mount, options: &Options) -> Result<(), String> {
    let config = mount.file("fsx.toml");
    write(&config, OPERATIONS)?;
    let begun = Instant::now();
    let run = |seed: u64| {
        println!("fsx: {} operations, --seed {seed}", options.operations);
        let (operations, seed) = (options.operations.to_string(), seed.to_string());
        let test =
            job(root().join("bin/fsx")).args(["-f"]).args([&config]).args(["-N", &operations, "-S", &seed, "-P"]);
        test.args([mount.file("other")]).args([mount.dir().join("fsx")]).run()
    };
    let rounds = rounds(options, || begun.elapsed(), run)?;
    let (seconds, operations) = (begun.elapsed().as_secs(), rounds * options.operations);
    println!(
        "fsx: {operations} operations in {seconds} s, seeds from {}: what was read was what was written",
        options.seed
    );
    Ok(())
}

/// Runs one seed after the other, at least one, until the time is over: how many there were. Each is over when it has
/// done all its operations, so that a seed and a number of operations say what was run. The first failure ends it.
fn rounds(
    options: &Options,
    passed: impl Fn() -> Duration,
    mut run: impl FnMut(u64) -> Result<(), String>,
) -> Result<u64, String> {
    for count in 1.. {
        let seed = options.seed.wrapping_add(count - 1);
        let failed = |why| format!("{why}\nagain: cargo xtask posix --operations {} --seed {seed}", options.operations);
        run(seed).map_err(failed)?;
        if passed() >= options.time {
            return Ok(count);
        }
    }
    Ok(0)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// A volume that is served and mounted; gone when dropped.
struct Mount {
    place: PathBuf,
    server: Child,
}

impl Mount {
    fn new() -> Result<Mount, String> {
        let place = std::env::temp_dir().join(format!("speculator-posix-{}", std::process::id()));
        for folder in ["mount", "other", "helper"] {
            let folder = place.join(folder);
            std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        }
        let mut command = Command::new(speculator());
        command.arg("serve").arg(place.join("store")).args(["--plain", "--listen", "127.0.0.1:0"]);
        let server = command.stdout(Stdio::piped()).spawn();
        let mut server = server.map_err(|error| format!("cannot start the server: {error}"))?;
        let mut line = String::new();
        let said = server.stdout.take().ok_or("the server says nothing")?;
        let mount = Mount { place, server };
        BufReader::new(said).read_line(&mut line).map_err(|error| format!("the server says nothing: {error}"))?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        job(speculator()).args(["mount", "--plain", address]).args([mount.dir()]).run()?;
        Ok(mount)
    }

    fn dir(&self) -> PathBuf {
        self.file("mount")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // What cannot be ended was never there.
        let _ = job("umount").args([self.dir()]).output();
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn parsed(words: &[&str]) -> Result<Options, String> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_asked_for() {
        let expected =
            Options { operations: 7, seed: 9, time: Duration::from_secs(3600), filter: vec!["chmod".to_owned()] };
        assert_eq!(parsed(&["--operations", "7", "--for", "60", "chmod", "--seed", "9"]), Ok(expected));
        assert_eq!(parsed(&[]).map(|options| options.time), Ok(Duration::ZERO));
        assert!(parsed(&["--for"]).is_err() && parsed(&["--for", "long"]).is_err() && parsed(&["--fro", "6"]).is_err());
    }

    /// fsx 0.3.2 by seed 1795817882 fails on a local file system without it, at its operation 6,303.
    #[test]
    fn no_operation_of_fsx_is_about_nothing() {
        assert!(OPERATIONS.starts_with("[opsize]\nmin = 1\n"));
    }

    #[test]
    fn seeds_go_on_until_the_time_is_over() {
        let minutes = Cell::new(0);
        let seeds = |time: &[&str], fails_at: u64| {
            minutes.set(0);
            let mut seeds = Vec::new();
            let options = parsed(&[&["--seed", "9"], time].concat()).expect("options");
            let passed = || Duration::from_secs(60 * minutes.get());
            let told = rounds(&options, passed, |seed| {
                minutes.set(minutes.get() + 4);
                seeds.push(seed);
                if seed == fails_at {
                    Err("fsx failed".to_owned())
                } else {
                    Ok(())
                }
            });
            (told, seeds)
        };
        assert_eq!(seeds(&[], 0), (Ok(1), vec![9]));
        assert_eq!(seeds(&["--for", "10"], 0), (Ok(3), vec![9, 10, 11]));
        let (told, ran) = seeds(&["--for", "10"], 10);
        assert_eq!(
            (told.unwrap_err().lines().last(), ran),
            (Some("again: cargo xtask posix --operations 20000 --seed 10"), vec![9, 10])
        );
    }
}
