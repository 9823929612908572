//! The programs whose calls are replayed, each in a directory of its own.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program.
pub struct Workload {
    /// Its name in the table.
    pub name: &'static str,
    /// Shell commands that make what it works on; not logged.
    prepare: &'static str,
    /// The shell commands that are logged.
    run: &'static str,
}

/// `$REPOSITORY` is this project's checkout, `$SOURCES` the directory of a C package's source.
pub const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "make -j4",
        prepare: "tar xzf $SOURCES/hello_2.10.orig.tar.gz && cd hello-2.10 && ./configure -q >/dev/null",
        run: "cd hello-2.10 && make -j4",
    },
    Workload {
        name: "shell script",
        prepare: "true",
        run: "for i in $(seq 200); do echo $i | sed s/1/2/ | tr 2 3 >f$i; test -s f$i && cat f$i >>all; done; \
              sort -n all | uniq -c | tail -3; ls | wc -l; rm f*",
    },
    Workload {
        name: "cargo build",
        prepare: "cargo init --quiet --vcs none --name sample sample && cd sample/src && for i in 1 2 3 4 5 6 7 8; do \
                  echo \"pub fn f$i(x: u64) -> u64 { (0..x).map(|y| y * $i).sum() }\" >m$i.rs; \
                  echo \"mod m$i;\" >>mods; \
                  done && cat mods main.rs >all && mv all main.rs && rm mods",
        run: "cd sample && cargo build --offline",
    },
    Workload {
        name: "PostMark",
        prepare: "mkdir files && printf 'set location files\\nset number 500\\nset transactions 500\\n\
                  set size 500 10000\\nset seed 42\\nrun\\nquit\\n' >settings",
        run: "postmark settings",
    },
    Workload {
        name: "git clone, status",
        prepare: "true",
        run: "git clone -q --no-hardlinks $REPOSITORY clone && cd clone && git status && git status",
    },
    Workload {
        name: "SQLite",
        prepare: "(echo 'create table t(a integer primary key, b text);'; for i in $(seq 300); do \
                  echo \"insert into t(b) values('row $i');\"; done; echo 'select count(*) from t;') >work.sql",
        run: "sqlite3 base.db <work.sql",
    },
    Workload {
        name: "tar, gzip",
        prepare: "tar xzf $SOURCES/hello_2.10.orig.tar.gz",
        run: "mkdir out && tar cf - hello-2.10 | gzip | gunzip | tar xf - -C out",
    },
];

/// A log, and what was there before it.
pub struct Recording {
    /// What strace wrote.
    pub log: String,
    /// The directory that the workload worked in.
    pub tree: PathBuf,
    /// All names in it before.
    pub existing: Vec<PathBuf>,
    /// The pipe that took its output, as strace names it.
    pub outside: String,
}

/// Runs a workload under strace, in `place`, which must be empty.
pub fn record(workload: &Workload, place: &Path, repository: &Path, sources: &Path) -> Result<Recording, String> {
    let tree = place.join("tree");
    let temporary = tree.join("tmp");
    let log = place.join("log");
    std::fs::create_dir_all(&temporary).map_err(|error| format!("cannot make {}: {error}", temporary.display()))?;
    let shell = |command: &mut Command| -> Result<String, String> {
        command
            .current_dir(&tree)
            .env("TMPDIR", &temporary)
            .env("REPOSITORY", repository)
            .env("SOURCES", sources)
            .env_remove("CARGO_TARGET_DIR")
            .stdin(Stdio::null());
        shown(command).map_err(|problem| format!("{}: {problem}", workload.name))
    };
    shell(Command::new("sh").args(["-ec", workload.prepare]))?;
    let mut existing = Vec::new();
    list(&tree, &mut existing)?;
    let strace = ["-f", "-qq", "-yy", "-ttt", "-s", "1", "-o"];
    let outside = shell(Command::new("strace").args(strace).arg(&log).args(["sh", "-ec", workload.run]))?;
    let log = std::fs::read(&log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    Ok(Recording { log: String::from_utf8_lossy(&log).into_owned(), tree, existing, outside })
}

/// Runs a command whose output goes into a pipe of ours, and says how strace names that pipe.
fn shown(command: &mut Command) -> Result<String, String> {
    let problem = |error: std::io::Error| error.to_string();
    let (mut reader, writer) = std::io::pipe().map_err(problem)?;
    let name = std::fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).map_err(problem)?;
    command.stdout(writer.try_clone().map_err(problem)?).stderr(writer);
    let mut child = command.spawn().map_err(problem)?;
    // The command holds the pipe's other end, too.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut output = Vec::new();
    reader.read_to_end(&mut output).map_err(problem)?;
    let status = child.wait().map_err(problem)?;
    if !status.success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&output).trim()));
    }
    Ok(name.display().to_string())
}

fn list(directory: &Path, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let problem = |error| format!("cannot list {}: {error}", directory.display());
    into.push(directory.to_owned());
    for entry in std::fs::read_dir(directory).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        if entry.file_type().map_err(problem)?.is_dir() {
            list(&entry.path(), into)?;
        } else {
            into.push(entry.path());
        }
    }
    Ok(())
}
