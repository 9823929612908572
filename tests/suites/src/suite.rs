//! The suites: how they are built, which scripts they have, and how one is run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;

use crate::cases::Told;
use crate::failed;

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// git's, `t/t*.sh`.
    Git,
    /// SQLite's, `test/*.test`.
    Sqlite,
    /// Python's, the modules of Debian's package of them, `test/test_*`.
    Python,
    /// Redis', `tests/**/*.tcl`, for Debian's programs.
    Redis,
}

/// A script of a suite.
pub struct Script {
    /// Of which.
    pub suite: Suite,
    /// Its name, without what ends it.
    pub name: String,
    file: PathBuf,
}

/// Builds git without what it takes from libraries that not everybody has: its tests are not about these.
const BUILD_GIT: &str = "make -j2 NO_CURL=1 NO_GETTEXT=1 NO_TCLTK=1 NO_OPENSSL=1 NO_EXPAT=1";
const BUILD_SQLITE: &str = "./configure --with-tcl=/usr/lib/x86_64-linux-gnu/tcl8.6 && make testfixture";

/// Redis' tests look for the programs where they would have been built. Server and checkers are one program.
const BUILD_REDIS: &str = r#"for name in server sentinel check-aof check-rdb; do
    cp "$(readlink -f "$(command -v redis-check-rdb)")" "src/redis-$name" || exit; done
cp "$(command -v redis-cli)" "$(command -v redis-benchmark)" src"#;

/// Runs a script of Redis' tests in a copy of them: they work below where they are.
const RUN_REDIS: &str = r#"cp -R "$0/tests" . && ln -s "$0/src" src || exit
exec tclsh tests/test_helper.tcl --single "$1" --clients 1 --durable --baseport "$2" --portcount 500"#;

/// Scripts of Redis that only compute for long, draw at random what they try, or are about what Debian's build has not.
const REDIS_LEFT_OUT: &[&str] =
    &["integration/corrupt-dump-fuzzer", "unit/memefficiency", "unit/printver", "unit/tls", "unit/violations"];

/// Scripts of SQLite that run others, which are scripts of their own here, or that are made to run for hours.
const SQLITE_LEFT_OUT: &[&str] = &[
    "all",
    "async",
    "async2",
    "crash",
    "crash2",
    "extraquick",
    "full",
    "fuzz",
    "fuzz2",
    "fuzz_malloc",
    "memleak",
    "memsubsys1",
    "memsubsys2",
    "misuse",
    "mallocAll",
    "onefile",
    "permutations",
    "quick",
    "rtree",
    "soak",
    "speed1",
    "speed1p",
    "speed2",
    "speed3",
    "speed4",
    "speed4p",
    "sqllimits1",
    "thread001",
    "thread002",
    "tkt2686",
    "valgrind",
    "veryquick",
    "wal",
    "walslow",
];

/// Where Debian's Python is, with its tests.
const PYTHON: &str = "/usr/lib/python3.11";
const PYTHON_PROGRAM: &str = "/usr/bin/python3.11";

/// Runs a module of Python's tests, and says what came of each case as TAP.
const PYTHON_CASES: &str = include_str!("python_cases.py");

/// Modules of Python that say nothing here, as they are about Python's own tools, or only compute for long.
const PYTHON_LEFT_OUT: &[&str] = &["test_peg_generator", "test_tools", "test_zipfile64", "test_capi"];

impl Suite {
    /// All of them.
    pub const ALL: [Suite; 4] = [Suite::Git, Suite::Sqlite, Suite::Python, Suite::Redis];

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Git => "git",
            Suite::Sqlite => "sqlite",
            Suite::Python => "python",
            Suite::Redis => "redis",
        }
    }

    /// Unpacks and builds it, unless it is built or installed. Says where.
    pub fn build(self, sources: &Path, build: &Path) -> Result<PathBuf, String> {
        let (source, command, made) = match self {
            Suite::Git => ("git_", BUILD_GIT, "t/helper/test-tool"),
            Suite::Sqlite => ("sqlite3_", BUILD_SQLITE, "testfixture"),
            Suite::Redis => ("redis_", BUILD_REDIS, "src/redis-cli"),
            Suite::Python => {
                let is_there = Path::new(PYTHON).join("test/test_os.py").exists();
                return is_there
                    .then(|| PYTHON.into())
                    .ok_or("python: install Debian's libpython3.11-testsuite".to_owned());
            }
        };
        let built = build.join(self.name());
        if built.join(made).exists() {
            return Ok(built);
        }
        let is_it = |name: &str| name.starts_with(source) && name.contains(".orig.tar.");
        let names = std::fs::read_dir(sources).map_err(|error| failed("read", sources, &error))?;
        let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let archive =
            names.find(|name| is_it(name)).ok_or(format!("no {source}*.orig.tar.* in {}", sources.display()))?;
        std::fs::create_dir_all(&built).map_err(|error| failed("make", &built, &error))?;
        println!("{}: {command}", self.name());
        let log = built.join("build.log");
        let file = std::fs::File::create(&log).map_err(|error| failed("make", &log, &error))?;
        let other = file.try_clone().map_err(|error| failed("write", &log, &error))?;
        let unpack = "tar -xf \"$0\" --strip-components=1";
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{unpack} && {command}")]).arg(sources.join(archive)).current_dir(&built);
        let status = shell.stdin(Stdio::null()).stdout(file).stderr(other).status();
        match status {
            Ok(status) if status.success() && built.join(made).exists() => Ok(built),
            Ok(_) => Err(format!("{} cannot be built; see {}", self.name(), log.display())),
            Err(error) => Err(format!("cannot start sh: {error}")),
        }
    }

    /// Its scripts, by name.
    pub fn scripts(self, built: &Path) -> Result<Vec<Script>, String> {
        let (folder, end) = match self {
            Suite::Redis => return redis_scripts(built),
            Suite::Git => (built.join("t"), ".sh"),
            Suite::Sqlite => (built.join("test"), ".test"),
            Suite::Python => (built.join("test"), ""),
        };
        let entries = std::fs::read_dir(&folder).map_err(|error| failed("read", &folder, &error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let scripts = names.filter_map(|file| {
            let name = file.strip_suffix(end)?.trim_end_matches(".py").to_owned();
            let is_script = match self {
                Suite::Git => name.starts_with('t') && name.as_bytes().get(1).is_some_and(u8::is_ascii_digit),
                Suite::Sqlite => !SQLITE_LEFT_OUT.contains(&name.as_str()),
                Suite::Python => name.starts_with("test_") && !PYTHON_LEFT_OUT.contains(&name.as_str()),
                Suite::Redis => false,
            };
            is_script.then(|| Script { suite: self, name, file: folder.join(file) })
        });
        let mut scripts: Vec<Script> = scripts.collect();
        scripts.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(scripts)
    }
}

/// Those that its tests run when none is named, but for those that are left out.
fn redis_scripts(built: &Path) -> Result<Vec<Script>, String> {
    let helper = built.join("tests/test_helper.tcl");
    let text = std::fs::read_to_string(&helper).map_err(|error| failed("read", &helper, &error))?;
    let list = text.split_once("set ::all_tests {").and_then(|(_, rest)| rest.split_once('}'));
    let (list, _) = list.ok_or(format!("{} has no list of tests", helper.display()))?;
    let names = list.split_whitespace().filter(|name| !REDIS_LEFT_OUT.contains(name));
    Ok(names.map(|name| Script { suite: Suite::Redis, name: name.to_owned(), file: built.to_owned() }).collect())
}

impl Script {
    /// What runs it so that everything it makes is below `work`, and where it has to be run. `logs` is for what it says
    /// besides. `job`: of those that run side by side, the how manieth it is.
    pub fn command(&self, work: &Path, logs: &Path, job: usize) -> (Vec<PathBuf>, PathBuf) {
        let built = self.file.parent().unwrap_or(Path::new("/"));
        match self.suite {
            Suite::Git => {
                let root = PathBuf::from(format!("--root={}", work.display()));
                let environment = format!("TEST_OUTPUT_DIRECTORY={}", logs.display());
                let words = vec!["env".into(), environment.into(), self.file.clone(), "-V".into(), root];
                (words, built.to_owned())
            }
            Suite::Sqlite => {
                let fixture = built.join("../testfixture");
                (vec![fixture, self.file.clone()], work.to_owned())
            }
            Suite::Python => {
                let mut words: Vec<PathBuf> = vec!["env".into(), format!("TMPDIR={}", work.display()).into()];
                words.extend([PYTHON_PROGRAM, "-c", PYTHON_CASES, &self.name].map(PathBuf::from));
                words.push(logs.to_owned());
                (words, work.to_owned())
            }
            Suite::Redis => {
                let port = (21111 + job * 1000).to_string();
                let mut words: Vec<PathBuf> = ["sh", "-c", RUN_REDIS].map(PathBuf::from).into();
                words.extend([self.file.clone(), self.name.clone().into(), port.into()]);
                (words, work.to_owned())
            }
        }
    }

    /// What it has said of its cases.
    pub fn read(&self, said: &str) -> Told {
        match self.suite {
            Suite::Git | Suite::Python => Told::of_tap(said),
            Suite::Sqlite => Told::of_sqlite(said),
            Suite::Redis => Told::of_redis(said),
        }
    }
}
