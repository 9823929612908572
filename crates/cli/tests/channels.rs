//! Every channel by which a process can learn what another one did: what it prints then waits for the commit.
//!
//! `channels/channels.c` has one case for each: A changes a file, B learns of it through the channel and prints.
//! Nothing but B's print is output, so it was held if `output_bytes_held` is not 0; or else there was a commit before
//! it, which the number of commits tells. Cases where B learns nothing show that nothing is held then.
//!
//! The same cases with a guess: what A does because of one that turns out wrong nobody learns for good, and what it
//! does because of a right one B learns.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;

#[path = "channels/rows.rs"]
mod rows;

/// The cases: each C file there has some.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/channels");
/// How many cases run at a time; they mostly sleep.
const AT_ONCE: usize = 8;
/// An end that the outside peer sees sooner than this after the connection was there did not wait for the end of the
/// world.
const SOON: Duration = Duration::from_millis(400);
/// A and B act after pauses. On a busy machine one may be so late that the case shows nothing: then it is run again,
/// alone, with pauses so many times as long.
const SLOWER: u32 = 8;
/// How often a case in which B has learned of a wrong guess is run by itself.
const ALONE: u32 = 5;
/// No case takes so long, however busy the machine is.
const PATIENCE_S: &str = "120";
/// So long somebody outside looks for what A does.
const WATCHES_S: &str = "30";

/// Channels that let something through, and why; those that programs use most come first. One that no longer does has
/// to go from here.
const KNOWN_LEAKS: &[(&str, &str)] = &[];

/// Cases where B learns nothing and its print is held nevertheless, and why. That is slow, not wrong.
const KNOWN_HELD_FOR_NOTHING: &[(&str, &str)] =
    &[("free_timer", "a timer could have been armed by anybody who has it")];

/// Cases where B sees what it waits for also if A does nothing, and why.
const SEEN_ANYWAY: &[(&str, &str)] = &[
    ("flock_", "the lock is free"),
    ("flock_exit", "the lock is free"),
    ("fcntl_unlock", "the lock is free"),
    ("fcntl_close", "the lock is free"),
    ("fcntl_exit", "the lock is free"),
    ("ofd_close", "the lock is free"),
    ("lease_awaited_open", "nobody has a lease"),
    ("lease_awaited_emptied", "nobody has a lease"),
    ("lease_awaited_creat", "nobody has a lease"),
    ("lease_awaited_openat2", "nobody has a lease"),
    ("lease_awaited_truncate", "nobody has a lease"),
    ("lease_awaited_exec", "nobody has a lease"),
    ("wait_killed_by_b", "B does it"),
    ("totals_by_name", "others write on the same file system"),
    ("totals_by_descriptor", "others write on the same file system"),
    ("ends_vfork_exec", "a child that B makes does it"),
    ("ends_vfork_exit", "a child that B makes does it"),
    ("ends_vfork_killed", "a child that B makes does it"),
];

/// Cases where B learns what A did on a guess that turns out wrong, and why.
const KNOWN_GUESS_LEAKS: &[(&str, &str)] = &[
    // decisions/0037
    ("cpu_time_of", "the time that a failed guess took is not given back"),
    ("cpu_time_awaited", "the time that a failed guess took is not given back"),
    ("cpu_timer", "the time that a failed guess took is not given back"),
];

/// What B's print came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Held,
    Free,
    Leak,
    /// Held, though B learned nothing.
    HeldForNothing,
    /// B did not print: the case itself did not work.
    Broken,
}

struct Case {
    name: String,
    /// What is expected: `held`, `free`, `outside`, or `watched`: then B is outside.
    kind: String,
}

struct Bench {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = folder.path().join("channels");
        let files = fs::read_dir(SOURCES).unwrap().map(|entry| entry.unwrap().path());
        let sources = files.filter(|path| path.extension().is_some_and(|ending| ending == "c"));
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-pthread", "-o"]).arg(&program).args(sources);
        let compiled = compiler.status();
        assert!(compiled.unwrap().success());
        Bench { program, folder }
    }

    fn cases(&self) -> Vec<Case> {
        let list = Command::new(&self.program).arg("--list").output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let words = list.lines().map(|line| line.split_once(' ').unwrap());
        words.map(|(name, kind)| Case { name: name.to_owned(), kind: kind.to_owned() }).collect()
    }

    /// Runs a case in which A does what it does because of a guess. Returns what B printed, and how many processes were
    /// taken back.
    fn run_guess(&self, case: &Case, guess: &str, slowness: u32) -> (String, u64) {
        let name = format!("{guess}-{slowness}-{}", case.name);
        let folder = self.folder.path().join(&name);
        let link = prepare(&folder, &id(&name));
        let stats = self.folder.path().join(format!("stats-{name}"));
        let mut command = Command::new("timeout");
        command.args(["-k", "1", PATIENCE_S, env!("CARGO_BIN_EXE_speculator"), "run"]);
        // A right guess is known at once, so that what has to wait for it is not late.
        let (wrong, delay) = if guess == "wrong" { (100, 500) } else { (0, 20) };
        command.arg(format!("--inject=readdir:{wrong}%:{delay}")).arg(format!("--stats=json:{}", stats.display()));
        command.arg("--").arg(&self.program).arg(&case.name).current_dir(&folder);
        command.env("LC_ALL", "C").env("CHANNELS_ID", id(&name)).env("CHANNELS_GUESS", guess);
        command.env("CHANNELS_SLOWNESS", slowness.to_string());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let _ = fs::remove_file(link);
        let stats: Value =
            fs::read(&stats).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap_or_default());
        let rollbacks = stats["ahead"]["rollbacks"].as_array();
        let processes = rollbacks.into_iter().flatten().filter_map(|rollback| rollback["processes"].as_u64());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let shown = format!("{}{stderr}", String::from_utf8_lossy(&output.stdout));
        (shown, processes.max().unwrap_or(0))
    }

    /// Whether B learns what A did on a wrong guess also when nothing else runs: beside others A may be so late that B
    /// sees its end. What was seen only beside others is told.
    fn learns_alone(&self, case: &Case) -> bool {
        let learns = (0..ALONE).any(|_| self.run_guess(case, "wrong", 1).0.contains("saw"));
        if !learns {
            println!("{:26} unstable: learned what a failed guess did, and in {ALONE} runs by itself not", case.name);
        }
        learns
    }

    fn run(&self, case: &Case, slowness: u32) -> (Verdict, String) {
        let name = format!("held-{slowness}-{}", case.name);
        let folder = self.folder.path().join(&name);
        let link = prepare(&folder, &id(&name));
        let stats = self.folder.path().join(format!("stats-{name}"));
        let outside = (case.kind == "outside").then(|| match case.name.contains("fifo") {
            true => Peer::read(&folder.join("fifo")),
            false => Peer::listen(),
        });
        let port = outside.as_ref().map_or(0, |peer| peer.port);
        let watcher = (case.kind == "watched").then(|| self.watch(case, &folder, slowness));
        // A case that hangs must not hang the test.
        let mut command = Command::new("timeout");
        command.args(["-k", "1", PATIENCE_S, env!("CARGO_BIN_EXE_speculator"), "run", "--commit-interval", "1000"]);
        if case.name.starts_with("room_") {
            command.arg("--hold-input");
        }
        command.arg(format!("--stats=json:{}", stats.display())).arg("--").arg(&self.program);
        command.args([&case.name, &port.to_string()]).current_dir(&folder);
        command.env("LC_ALL", "C").env("CHANNELS_ID", id(&name)).env("CHANNELS_SLOWNESS", slowness.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let _ = fs::remove_file(link);
        let stats: Value =
            fs::read(&stats).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap_or_default());
        let end = outside.and_then(Peer::saw_end).or_else(|| watcher?.saw(output.status.success()));
        judge(case, &output, &stats, end)
    }

    /// Starts B of a case outside, and waits until it looks.
    fn watch(&self, case: &Case, folder: &Path, slowness: u32) -> Watcher {
        let mut command = Command::new("timeout");
        command.args([WATCHES_S]).arg(&self.program).args(["--watch", &case.name]).current_dir(folder);
        command.env("CHANNELS_SLOWNESS", slowness.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("ready"), "{}", case.name);
        Watcher { child, lines }
    }
}

/// B of a case, outside.
struct Watcher {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watcher {
    /// Whether it saw what A did, if A did it. When is not asked: it looks all the time.
    fn saw(mut self, is_done: bool) -> Option<Duration> {
        if !is_done {
            // `timeout` passes SIGTERM on; SIGKILL would end it alone.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let saw = self.lines.next().and_then(Result::ok).as_deref() == Some("saw");
        let _ = self.child.wait();
        saw.then_some(Duration::ZERO)
    }
}

/// What is in the folder that a case runs in. Returns a link on tmpfs to `made` in it.
fn prepare(folder: &Path, id: &str) -> PathBuf {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("data"), "old data").unwrap();
    fs::write(folder.join("other"), "other").unwrap();
    fs::write(folder.join("lock"), "").unwrap();
    fs::write(folder.join("script"), format!("#!{}/prog --say\n", folder.display())).unwrap();
    fs::set_permissions(folder.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap().success());
    let link = PathBuf::from(format!("/dev/shm/channels-{id}"));
    let _ = fs::remove_file(&link);
    symlink(folder.join("made"), &link).unwrap();
    link
}

/// A name that no other run of a case has.
fn id(name: &str) -> String {
    format!("{}-{name}", std::process::id())
}

fn judge(case: &Case, output: &Output, stats: &Value, end: Option<Duration>) -> (Verdict, String) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let bytes = stats["output_bytes_held"].as_u64();
    let note = format!("{} bytes, commits {}, barriers {}", bytes.unwrap_or(0), stats["commits"], stats["barriers"]);
    let worked = if matches!(case.kind.as_str(), "outside" | "watched") { end.is_some() } else { stdout == "saw\n" };
    let Some(bytes) = bytes.filter(|_| worked) else {
        return (Verdict::Broken, format!("{:?}: {}", output.status.code(), stderr.trim()));
    };
    let verdict = match case.kind.as_str() {
        "free" if bytes == 0 => Verdict::Free,
        "free" => Verdict::HeldForNothing,
        "held" if bytes > 0 => Verdict::Held,
        // What B did may have waited for a commit before it learned anything; then the parent's change afterwards takes
        // another one.
        "held" if commits(stats) >= 2 + of_a(case) => Verdict::Held,
        // The parent changes something later: there is another commit if there was one before the peer saw anything.
        "watched" if commits(stats) >= 2 => Verdict::Held,
        "outside" if commits(stats) >= 2 || end.is_some_and(|end| end > SOON) => Verdict::Held,
        _ => Verdict::Leak,
    };
    (verdict, format!("{note}{}", end.map_or(String::new(), |end| format!(", end seen after {} ms", end.as_millis()))))
}

/// Whether a verdict may be another one if nobody is late. Whoever saw what A did, and showed it, has shown it.
fn may_be_of_timing(case: &Case, verdict: Verdict) -> bool {
    let is_seen_anyway = SEEN_ANYWAY.iter().any(|(known, _)| *known == case.name);
    match verdict {
        Verdict::Held | Verdict::Free => false,
        Verdict::Leak => matches!(case.kind.as_str(), "outside" | "watched") || is_seen_anyway,
        Verdict::HeldForNothing => KNOWN_HELD_FOR_NOTHING.iter().all(|(known, _)| *known != case.name),
        Verdict::Broken => true,
    }
}

/// Commits for which A itself asks, before it does what B learns.
fn of_a(case: &Case) -> u64 {
    case.name.starts_with("stored_").into()
}

fn commits(stats: &Value) -> u64 {
    stats["commits"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
}

/// Somebody outside who waits for the end of a connection, or of a FIFO.
struct Peer {
    port: u16,
    fifo: Option<PathBuf>,
    thread: thread::JoinHandle<Option<Duration>>,
}

impl Peer {
    fn listen() -> Peer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = thread::spawn(move || {
            let (mut stream, _): (TcpStream, _) = listener.accept().ok()?;
            let start = Instant::now();
            let _ = stream.read(&mut [0]); // The end or a reset.
            Some(start.elapsed())
        });
        Peer { port, fifo: None, thread }
    }

    fn read(fifo: &Path) -> Peer {
        let path = fifo.to_owned();
        let thread = thread::spawn(move || {
            let mut fifo = fs::File::open(path).ok()?;
            let start = Instant::now();
            let _ = fifo.read(&mut [0]);
            Some(start.elapsed())
        });
        Peer { port: 0, fifo: Some(fifo.to_owned()), thread }
    }

    /// How long after the connection was there; `None` if it never was.
    fn saw_end(self) -> Option<Duration> {
        // So that a peer whom nobody called does not wait for ever.
        match &self.fifo {
            Some(fifo) => drop(fs::File::options().read(true).write(true).open(fifo)),
            None => drop(TcpStream::connect(("127.0.0.1", self.port))),
        }
        self.thread.join().ok().flatten()
    }
}

/// Runs `each` case, several at a time; what came of it, in their order.
fn side_by_side<T: Send>(cases: &[Case], each: impl Fn(&Case) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((index, case)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, cases.get(i)?)))
                {
                    let result = each(case);
                    results.lock().unwrap().insert(index, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}

/// Those that `CHANNELS` names a part of (`CHANNELS=tcp_,wait_killed`), or all.
fn chosen(bench: &Bench) -> Vec<Case> {
    let parts = std::env::var("CHANNELS").unwrap_or_default();
    let is_chosen = |case: &Case| parts.split(',').any(|part| case.name.contains(part));
    bench.cases().into_iter().filter(is_chosen).collect()
}

#[test]
fn what_a_failed_guess_did_is_learned_through_no_channel() {
    let bench = Bench::new();
    let cases: Vec<Case> = chosen(&bench).into_iter().filter(|case| case.kind == "held").collect();
    let mut wrong = Vec::new();
    let results = side_by_side(&cases, |case| (bench.run_guess(case, "wrong", 1), bench.run_guess(case, "right", 1)));
    for (case, ((failed, processes), (kept, _))) in cases.iter().zip(results) {
        println!("{:26} {processes} processes taken back; {kept:?}", case.name);
        let is_seen_anyway = SEEN_ANYWAY.iter().any(|(known, _)| *known == case.name);
        let is_known = KNOWN_GUESS_LEAKS.iter().any(|(known, _)| *known == case.name);
        if failed.contains("saw") && !is_seen_anyway && !is_known && bench.learns_alone(case) {
            wrong.push(format!("{}: learned what a failed guess did: {failed}", case.name));
        }
        let is_learned = kept == "saw\n" || bench.run_guess(case, "right", SLOWER).0 == "saw\n";
        if !is_learned {
            wrong.push(format!("{}: not learned, though the guess was right: {kept}", case.name));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_rule_of_the_table_has_a_case() {
    let names: Vec<String> = Bench::new().cases().into_iter().map(|case| case.name).collect();
    let gaps = rows::gaps(&names);
    assert!(gaps.is_empty(), "\n{}", gaps.join("\n"));
}

#[test]
fn what_was_learned_through_any_channel_is_held() {
    let bench = Bench::new();
    let cases = chosen(&bench);
    let results = side_by_side(&cases, |case| bench.run(case, 1));
    let mut wrong = Vec::new();
    for (case, (mut verdict, mut note)) in cases.iter().zip(results) {
        let name = &case.name;
        println!("{name:26} {verdict:?}: {note}");
        if may_be_of_timing(case, verdict) {
            (verdict, note) = bench.run(case, SLOWER);
            println!("{name:26} slower, {verdict:?}: {note}");
        }
        let known = KNOWN_LEAKS.iter().chain(KNOWN_HELD_FOR_NOTHING).find(|(known, _)| known == name);
        match (verdict, known) {
            (Verdict::Held | Verdict::Free, None) | (Verdict::Leak | Verdict::HeldForNothing, Some(_)) => {}
            // Whether a leak shows may hang on timing: that it did not this time proves nothing.
            (Verdict::Held | Verdict::Free, Some((_, reason))) => {
                println!("{name}: {verdict:?}, but listed as known: {reason}")
            }
            (_, Some((_, reason))) => wrong.push(format!("{name}: {verdict:?}, but listed as known: {reason}")),
            (_, None) => wrong.push(format!("{name}: {verdict:?}: {note}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
