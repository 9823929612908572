//! Calls that need not ask while something is speculative (`--ahead=permits`, decisions/0092): none does in steady
//! state, and each result is that of the asking path.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// What each program begins with. `begin` returns twice, as fork does.
const SETUP: &str = "
import ctypes, fcntl, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
def begin(): return libc.syscall(0x5bed, 1, 0)
def commit(guess): return libc.syscall(0x5bed, 2, guess)
def fail(guess): return libc.syscall(0x5bed, 3, guess)
count = int(sys.argv[1])
f = os.open('a', os.O_RDONLY)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
high = fcntl.fcntl(f, fcntl.F_DUPFD, 3000)
libc.mmap.restype = ctypes.c_void_p
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def mapped(n): return libc.mmap(0, 4096, 1, 2, n, 0)
";

/// Calls that are made again and again in one guess.
const CALLS: &[&str] = &[
    "os.stat('a')",
    "os.lstat('a')",
    "os.stat('d/../a')",
    "os.fstat(f)",
    "os.path.exists('missing')",
    "os.access('a', os.R_OK)",
    "os.pread(f, 3, 1)",
    "os.pread(high, 3, 1)",
    "os.read(f, 1)",
    "os.lseek(f, 1, 0)",
    "os.readv(f, [bytearray(1)])",
    "os.lseek(f, 0, 0); os.read(f, 2); os.pread(f, 2, 0)",
    "g = os.open('a', os.O_RDONLY); os.read(g, 9); os.fstat(g); os.lseek(g, 0, 1); os.close(g)",
    "os.listdir('d')",
    "g = os.open('a', os.O_RDONLY); at = mapped(g); os.close(g); libc.munmap(at, 4096)",
    "libc.munmap(mapped(f), 4096)",
    "resource.getrlimit(resource.RLIMIT_NOFILE)",
    "libc.open(b'missing', os.O_RDONLY); libc.open(b'a/b', os.O_RDONLY)",
    "fcntl.fcntl(f, fcntl.F_GETFD)",
    "libc.statfs(b'/sys/fs/none', bytes(200)); libc.statfs(b'/none', bytes(200))",
    "g = os.open('/proc/filesystems', os.O_RDONLY); os.read(g, 9); os.fstat(g); os.read(g, 9); os.close(g)",
];

/// Calls that are made again and again in one guess, and how many of them stop their process, once each. The others
/// need no question: the `stat` shows that the process has kept, or got, its permit.
const STOPS: &[(&str, u64)] = &[
    ("h = fcntl.fcntl(f, fcntl.F_DUPFD, 100); os.close(h); os.stat('a')", 1),
    ("os.close(libc.dup(f)); os.stat('a')", 1),
    ("os.dup2(f, 50); os.stat('a'); os.fstat(f)", 1),
    ("fcntl.fcntl(f, fcntl.F_SETFD, 1); os.stat('a')", 1),
    ("os.getcwd(); os.stat('a')", 1),
    ("os.statvfs('.'); os.stat('a')", 1),
    ("os.posix_fadvise(f, 0, 0, os.POSIX_FADV_SEQUENTIAL); os.stat('a')", 0),
    ("os.isatty(f); os.stat('a')", 0),
    ("os.close(os.open('new', os.O_WRONLY | os.O_CREAT)); os.stat('a')", 2),
    ("os.chmod('d/e', 0o644); os.stat('a')", 1),
    ("r, w = os.pipe(); os.close(r); os.close(w); os.stat('a')", 2),
    ("r, w = os.pipe(); os.dup2(r, w); os.close(r); os.close(w); os.stat('a')", 3),
    ("libc.waitpid(-1, None, 1); os.stat('a')", 1),
    ("libc.execve(b'missing', None, None); os.stat('a')", 0),
    (
        "n = os.open('n', os.O_RDWR | os.O_CREAT)\n  \
         for k in range(9): os.lseek(n, 0, 2); os.lseek(n, 0, 0); os.read(n, 1)\n  \
         os.close(n); os.unlink('n')",
        4,
    ),
];

/// What somebody sees who goes on after a guess of his failed, or came true. Twice as often as not it looks without a
/// question; `seen` is shown at the end.
const LOOKS: &[&str] = &[
    // First what moves no position, then what does: that has to be kept.
    "os.pread(f, 2, 0); os.pread(f, 2, 0); os.read(f, 3); os.read(f, 1)",
    "os.fstat(f); os.fstat(f); os.lseek(f, 4, 0); os.read(f, 1)",
    "os.read(f, 1); os.pread(f, 1, 0); os.read(f, 1); os.lseek(f, 2, 1)",
    // Descriptors that a checkpoint does not have, and those that it has.
    "g = os.open('a', os.O_RDONLY); g = os.open('a', os.O_RDONLY); os.read(g, 2); os.close(g)",
    "os.stat('a'); g = os.open('a', os.O_RDONLY); os.close(f); os.read(g, 3); h = os.open('a', os.O_RDONLY); \
     os.close(h); os.close(g)",
    "os.stat('a'); g = os.open('a', os.O_RDONLY); os.dup2(g, f); os.read(f, 3); os.close(g); os.read(f, 1)",
    // A file that the guess has made, with a position that a second guess has to put back.
    "n = os.open('n', os.O_RDWR | os.O_CREAT); os.write(n, b'abcdef'); os.lseek(n, 1, 0); os.read(n, 1)\n\
     inner = begin()\nif inner > 0: os.lseek(n, 0, 1); os.read(n, 2); os.lseek(n, 5, 0); fail(inner)\n\
     seen.append(os.lseek(n, 0, 1)); seen.append(os.read(n, 9)); at = mapped(n); os.close(n)",
    "n = os.open('n', os.O_RDWR | os.O_CREAT); os.write(n, b'abcdef'); os.lseek(n, 0, 0); seen.append(os.read(n, 9)); \
     seen.append([os.fstat(n).st_nlink, os.fstat(n).st_size])\ninner = begin()\nif inner > 0:\n  \
     os.lseek(n, 0, 0); os.read(n, 1); os.pwrite(n, b'XYZXYZXYZ', 3); os.lseek(n, 0, 0); seen.append(os.read(n, 99)); \
     seen.append([os.lseek(n, 0, 2), os.fstat(n).st_size]); commit(inner)\nos.close(n)",
    // Ends of a pipe that a second guess has closed.
    "r, w = os.pipe(); os.write(w, b'xyz'); os.read(r, 1)\ninner = begin()\nif inner > 0:\n  \
     os.close(w); os.read(r, 1); os.dup2(f, r); os.read(r, 1); fail(inner)\n\
     seen.append([os.read(r, 9), position(r), position(w)]); os.close(w); seen.append(os.read(r, 9)); os.close(r)",
    "r, w = os.pipe()\nif os.fork() == 0:\n  os.close(r); os.write(w, b'told'); os.close(w); os._exit(0)\n\
     os.close(w); seen.append([os.read(r, 9), os.read(r, 9), os.wait()[1]]); os.close(r)",
    // Who was born on the guess makes one of its own, and is put back.
    "if os.fork() == 0:\n  os.close(os.dup(f)); inner = begin()\n  if inner > 0:\n    \
     os.dup2(3, f); fcntl.fcntl(f, fcntl.F_SETFD, 0); g = os.open('a', os.O_RDONLY); os.lseek(f, 0, 0); os.close(f); \
     fail(inner)\n  \
     os._exit(position(f) + 10 * fcntl.fcntl(f, fcntl.F_GETFD))\nseen.append(os.wait()[1])",
    "if os.fork() == 0:\n  inner = begin()\n  if inner > 0:\n    os.close(f); fail(inner)\n  \
     os._exit(position(f))\nseen.append(os.wait()[1])",
    // Programs that are not there, and files that are none; what exec would have closed is still there.
    "r, w = os.pipe(); os.write(w, b'ab'); os.stat('a'); os.symlink('nowhere', 'link')\n\
     def execute(name): seen.append((name, libc.execve(name, None, None), ctypes.get_errno()))\n\
     for name in b'missing', b'missing/b', b'a/b', b'a', b'd', b'', b'd/../missing', b'/proc/self/no', b'link':\n  \
     execute(name); os.stat('a'); execute(name)\n\
     os.rename('d', 'dd'); execute(b'd/e'); execute(b'dd/no'); os.rename('dd', 'd'); os.unlink('a'); execute(b'a')\n\
     os.unlink('link'); execute(b'link'); seen.append(os.read(r, 9)); os.close(r); os.close(w)",
    // The same, with children; it has one that a guess of its own has to leave to it.
    "r, w = os.pipe()\nif os.fork() == 0:\n  log, ended = [], ctypes.c_int(-1)\n  def wait(which, how):\n    \
     ended.value = -1; told = libc.waitpid(which, ctypes.byref(ended), how)\n    \
     log.append((min(told, 1), ctypes.get_errno() if told < 0 else 0, ended.value))\n  \
     wait(-1, 1); wait(-1, 1); wait(-1, 0); wait(1, 0); wait(-1, 1 << 8); wait(-2 ** 31, 1)\n  \
     for i in range(3):\n    if os.fork() == 0: os._exit(i + 4)\n    wait(-1, 0); wait(-1, 1); wait(-1, 1)\n  \
     os.posix_spawn('/bin/true', ['true'], {}); wait(-1, 0); wait(-1, 1)\n  \
     a, b = os.pipe()\n  if os.fork() == 0: os.read(a, 1); os._exit(9)\n  wait(-1, 1); inner = begin()\n  \
     if inner > 0: os.write(b, b'x'); wait(-1, 0); wait(-1, 1); wait(-1, 1); fail(inner)\n  \
     wait(-1, 1); os.write(b, b'x'); wait(-1, 0); wait(-1, 1); os.write(w, str(log).encode()); os._exit(0)\n\
     os.close(w); seen.append([os.read(r, 4096), os.wait()[1]])",
    // The number of a descriptor that no checkpoint has becomes that of one that it has.
    "os.stat('a'); g = os.open('a', os.O_RDONLY); os.dup2(f, g); os.read(g, 3); os.lseek(g, 1, 1)",
    "os.stat('a'); g = os.open('a', os.O_RDONLY); libc.dup3(f, g, 0); os.read(g, 3); h = os.open('a', os.O_RDONLY); \
     os.dup2(h, g); os.close(h); os.read(g, 2)",
    "os.stat('a'); g = os.open('a', os.O_RDONLY); os.close(g); h = libc.dup(f); os.read(h, 2); os.close(h)",
    "os.stat('a'); fcntl.fcntl(f, fcntl.F_SETFD, 0); g = os.open('a', os.O_RDONLY); os.dup2(g, f); os.read(f, 3)",
    "os.stat('a'); g = os.open('a', os.O_RDONLY); os.read(g, 1); inner = begin(); os.read(g, 2); os.close(g); \
     commit(inner)",
    "os.stat('a'); g = os.open('a', os.O_RDONLY)\nif os.fork() == 0:\n  os.read(g, 2); os.read(f, 2); \
     os.close(g); os._exit(0)\nos.wait(); seen.append(os.read(g, 1)); os.close(g)",
    "os.stat('a'); g = os.open('a', os.O_RDONLY); at = mapped(g); os.close(g); seen.append(ctypes.string_at(at, 3)); \
     g = os.open('d', os.O_RDONLY); seen.append(mapped(g) == 2 ** 64 - 1); os.read(f, 1); mapped(f)",
    "os.stat('a'); os.open('missing', os.O_RDONLY) if os.path.exists('missing') else None; os.open('d', os.O_RDONLY)",
    "os.stat('a'); os.write(os.open('a', os.O_WRONLY), b'NEW'); seen.append(os.path.exists('d')); \
     seen.append(os.listdir('d'))",
    "os.stat('a'); os.unlink('a'); seen.append(os.path.exists('a')); g = os.open('d', os.O_RDONLY); \
     seen.append(os.listdir('.'))",
    "os.stat('a'); os.rename('a', 'b'); seen.append(os.path.exists('a')); os.access('d', 4)",
    "os.stat('a'); tried = lambda name, flags: (libc.open(name, flags), ctypes.get_errno()); \
     seen.append([tried(b'missing', 0), tried(b'a/b', 0), tried(b'', 0), tried(b'missing', os.O_DIRECTORY)])\n\
     os.symlink('nowhere', 'link'); seen.append([tried(b'link', 0), tried(b'link', os.O_NOFOLLOW)]); os.unlink('link')",
    "os.stat('/proc/self/stat'); os.stat('a'); seen.append(os.path.exists('/proc/self/fd/3')); \
     os.stat('/dev/null'); os.read(f, 1)",
];

fn folder(of: &Path) {
    fs::create_dir(of.join("d")).unwrap();
    fs::write(of.join("a"), "0123456789".repeat(10_000)).unwrap();
    fs::write(of.join("d/e"), "").unwrap();
}

fn run(dir: &Path, words: &[&str], program: &str, count: u32) -> (String, serde_json::Value) {
    let stats = dir.parent().unwrap().join("stats.json");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300", SPECULATOR, "run"]).arg(format!("--stats=json:{}", stats.display()));
    command.args(words).args(["--", "python3", "-c", &format!("{SETUP}{program}"), &count.to_string()]);
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program}: {said}{}", String::from_utf8_lossy(&output.stderr));
    (said, serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap())
}

/// A directory with what the programs look at, in one of its own.
fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = place.path().join("here");
    fs::create_dir(&dir).unwrap();
    folder(&dir);
    (place, dir)
}

#[test]
fn no_call_is_asked_about_in_steady_state() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let (_place, dir) = place();
    let loops: Vec<String> = CALLS.iter().map(|calls| format!("for i in range(count):\n  {calls}\n")).collect();
    let program = format!("guess = begin()\n{}commit(guess)", loops.concat());
    let asked = |count| run(&dir, &[], &program, count).1["ahead"]["asked"].as_u64().unwrap();
    // Whatever is touched for the first time is asked about, and once more where somebody's stop came between.
    let (some, more) = (asked(100), asked(500));
    assert!(more <= some + 50, "{some} questions for 100 times, {more} for 500");
    assert!(some < 300, "{some} questions");
    let program = "guess = begin()\nfor i in range(count): os.stat('a')\ncommit(guess)";
    let asked = |count| run(&dir, &["--ahead=ask"], program, count).1["ahead"]["asked"].as_u64().unwrap();
    assert!(asked(300) >= asked(100) + 200, "the reference asks about each call");
}

/// Threads that look at files have the permits of their process
/// ([0240](../../../docs/decisions/0240-threads-have-permits.md)).
#[test]
fn threads_ask_about_no_call_in_steady_state() {
    if !support::has_root_for("running ahead") {
        return;
    }
    const OF_THREADS: &str = "
import threading
def use_files(n):
  for i in range(n):
    g = os.open('a', os.O_RDONLY); os.read(g, 9); os.fstat(g); os.lseek(g, 0, 1); os.pread(g, 3, 1); os.close(g)
    os.stat('d/../a'); os.path.exists('missing'); os.pread(f, 3, 1); os.listdir('d'); libc.munmap(mapped(f), 4096)
def all_use_files(n):
  threads = [threading.Thread(target=use_files, args=(n,)) for _ in range(3)]
  for thread in threads: thread.start()
  for thread in threads: thread.join()
";
    let (_place, dir) = place();
    let program = format!("{OF_THREADS}\nguess = begin()\nall_use_files(count)\ncommit(guess)");
    let asked = |words: &[&str], count| run(&dir, words, &program, count).1["ahead"]["asked"].as_u64().unwrap();
    let (some, more) = (asked(&[], 100), asked(&[], 300));
    // A thread that another one's first calls have cost its permit asks again.
    assert!(more < some + 200, "{some} questions for 3 x 100 times, {more} for 3 x 300");
    assert!(asked(&["--ahead=ask"], 30) > 3 * 30 * 10, "the reference asks about each call");
    // A process with a shared mapping of a file that was there has permits, too: for all but that file.
    let program = format!(
        "{OF_THREADS}\nimport mmap\nos.write(os.open('m', os.O_RDWR | os.O_CREAT), b'x' * 4096); guess = begin()\n\
         at = mmap.mmap(os.open('m', os.O_RDWR), 4096); at[1] = 65\nall_use_files(count); commit(guess)"
    );
    let asked = |count| run(&dir, &[], &program, count).1["ahead"]["asked"].as_u64().unwrap();
    let (some, more) = (asked(100), asked(300));
    assert!(more < some + 200, "with a shared mapping: {some} questions for 3 x 100 times, {more} for 3 x 300");
}

/// What the runtime of Go does with each file that it opens, by threads of who goes with a guess.
#[test]
fn flags_and_watches_of_own_files_need_no_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let (_place, dir) = place();
    let program = "
import select, threading
def use_files(name):
  watched = select.epoll()
  for i in range(count):
    g = os.open(name, os.O_RDONLY)
    flags = fcntl.fcntl(g, fcntl.F_GETFL); fcntl.fcntl(g, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    if fcntl.fcntl(g, fcntl.F_GETFL) != flags | os.O_NONBLOCK: print('WRONG')
    try: watched.register(g, select.EPOLLIN)
    except PermissionError: pass
    else: print('WRONG')
    fcntl.fcntl(g, fcntl.F_SETFL, flags); os.close(g)
guess = begin()
os.close(os.open('new', os.O_WRONLY | os.O_CREAT, 0o600))
if os.fork() == 0:
  threads = [threading.Thread(target=use_files, args=(name,)) for name in ('a', 'new')]
  for thread in threads: thread.start()
  for thread in threads: thread.join()
  os._exit(0)
os.wait()
commit(guess)";
    let asked = |words: &[&str], count| {
        let (said, stats) = run(&dir, words, program, count);
        assert_eq!(said, "");
        stats["ahead"]["asked"].as_u64().unwrap()
    };
    // Of the file that the guess has made the open is asked about.
    let (some, more) = (asked(&[], 50), asked(&[], 150));
    assert!(more < some + 100 + 200, "{some} questions for 50 times, {more} for 150");
    let reference = asked(&["--ahead=ask"], 10);
    assert!(reference > 2 * 10 * 6, "the reference asks about each call: {reference} questions");
}

/// What stands in a lock of a file that is closed is given up by that.
#[test]
fn who_goes_asks_before_a_lock_is_closed() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let (_place, dir) = place();
    let program = "
guess = begin()
if os.fork() == 0:
  for i in range(count):
    g = os.open('a', os.O_RDONLY); fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB); os.close(g)
    h = os.open('d/e', os.O_RDONLY); os.close(h)
  # What closes any descriptor of a file gives up a record lock of it.
  g = os.open('a', os.O_RDWR); fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB); os.close(os.open('a', os.O_RDONLY))
  if os.fork() == 0:
    fcntl.lockf(os.open('a', os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(0)
  os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
print(os.waitstatus_to_exitcode(os.wait()[1]))
commit(guess)";
    let asked = |count| {
        let (said, stats) = run(&dir, &[], program, count);
        assert_eq!(said, "0\n");
        stats["ahead"]["asked"].as_u64().unwrap()
    };
    let (some, more) = (asked(20), asked(60));
    assert!(some >= 20 * 2 && more >= 60 * 2, "{some} questions for 20 times, {more} for 60: a lock is closed unasked");
    assert!(more < 60 * 2 + 100, "{more} questions for 60 times");
}

/// What a process does to its own descriptors, and what it asks of itself, stops it once and costs it no permit.
#[test]
fn what_concerns_nobody_else_takes_one_stop() {
    if !support::has_root_for("running ahead") {
        return;
    }
    for (calls, expected) in STOPS {
        let (_place, dir) = place();
        let program = format!("guess = begin()\nfor i in range(count):\n  {calls}\ncommit(guess)");
        let stops = |count| run(&dir, &[], &program, count).1["tracee_stops"].as_u64().unwrap();
        let (some, more) = (stops(100), stops(300));
        assert!(more < some + 200 * expected + 60, "{calls}: {some} stops for 100 times, {more} for 300");
    }
}

/// Nothing is put back of who was born on the guess: what it does to its descriptors of files it need not tell.
#[test]
fn who_goes_with_a_guess_changes_descriptors_of_files_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let (_place, dir) = place();
    let program = "
guess = begin()
if os.fork() == 0:
  null = os.open('/dev/null', os.O_RDWR)
  for i in range(count):
    os.dup2(f, 50); fcntl.fcntl(f, fcntl.F_SETFD, 1); os.close(50)
    os.close(libc.dup(f)); libc.dup3(f, 51, 0); libc.close(99)
    os.dup2(null, 52); os.dup2(f, 52); os.close(libc.dup(null)); libc.waitpid(-1, None, 1)
  os._exit(0)
os.wait()
commit(guess)";
    let asked = |words: &[&str], count| run(&dir, words, program, count).1["ahead"]["asked"].as_u64().unwrap();
    let (some, more) = (asked(&[], 100), asked(&[], 300));
    assert!(more < some + 40, "{some} questions for 100 times, {more} for 300");
    let (some, more) = (asked(&["--ahead=ask"], 100), asked(&["--ahead=ask"], 300));
    assert!(more >= some + 200 * 10, "the reference asks about each call");
}

/// Who goes with a guess makes children that do so, too: of these only the birth is asked about.
#[test]
fn children_of_who_goes_with_a_guess_end_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let (_place, dir) = place();
    let program = "
guess = begin()
if os.fork() == 0:
  for i in range(count):
    if os.fork() == 0: os._exit(3)
    if os.waitstatus_to_exitcode(os.wait()[1]) != 3: print('WRONG')
  os._exit(0)
os.wait()
commit(guess)";
    let asked = |words: &[&str], count| run(&dir, words, program, count).1["ahead"]["asked"].as_u64().unwrap();
    let (some, more) = (asked(&[], 100), asked(&[], 300));
    assert!(more < some + 200 + 100, "{some} questions for 100 children, {more} for 300");
    let (some, more) = (asked(&["--ahead=ask"], 100), asked(&["--ahead=ask"], 300));
    assert!(more >= some + 200 * 3, "the reference asks about each call");
}

/// A pipe that was made on a guess, while no other guess is made, goes with all who have it: nobody asks about it.
#[test]
fn a_pipe_of_a_guess_needs_no_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let (_place, dir) = place();
    let program = "
guess = begin()
seen = []
there, back = os.pipe(), os.pipe()
if os.fork() == 0:
  for i in range(count): os.write(back[1], os.read(there[0], 9) + b'!')
  os._exit(0)
for i in range(count):
  r, w = os.pipe()
  os.write(w, b'abcdefghij'); seen.append(os.read(r, 4)); os.fstat(r); os.dup2(w, 60); os.close(w); os.close(60)
  seen.append(os.read(r, 9)); seen.append(os.read(r, 9)); os.close(r)
  os.write(there[1], b'%d' % i); seen.append(os.read(back[0], 9))
os.wait()
print(seen, flush=True)
commit(guess)";
    let (expected, stats) = run(&dir, &["--ahead=ask"], program, 50);
    let asked = |stats: &serde_json::Value| stats["ahead"]["asked"].as_u64().unwrap();
    assert!(asked(&stats) >= 50 * 12, "the reference asks about each call");
    assert_eq!(run(&dir, &[], program, 50).0, expected);
    let (some, more) = (asked(&run(&dir, &[], program, 100).1), asked(&run(&dir, &[], program, 300).1));
    assert!(more < some + 100, "{some} questions for 100 times, {more} for 300");
}

/// While one process changes its own descriptors another one keeps its permit.
#[test]
fn what_concerns_nobody_else_takes_nobodys_permit() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let (_place, dir) = place();
    let program = "
guess = begin()
if os.fork() == 0:
  for i in range(count):
    os.dup2(f, 50); fcntl.fcntl(f, fcntl.F_SETFD, 1); fcntl.fcntl(f, fcntl.F_GETFD); os.getcwd(); os.isatty(f)
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_SEQUENTIAL); os.close(libc.dup(f))
  os._exit(0)
while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
  for i in range(5000): os.stat('a')
os.wait()
commit(guess)";
    let asked = |count| run(&dir, &[], program, count).1["ahead"]["asked"].as_u64().unwrap();
    let (some, more) = (asked(100), asked(300));
    // Of the child's calls at most one is asked about each time.
    assert!(more < some + 200 + 150, "{some} questions for 100 times, {more} for 300");
}

#[test]
fn what_is_not_asked_about_is_taken_back_as_if_it_were() {
    if !support::has_root_for("running ahead") {
        return;
    }
    for ending in ["commit", "fail"] {
        let mut said = Vec::new();
        for ahead in ["--ahead=ask", "--ahead=permits"] {
            let (_place, dir) = place();
            for number in 0..LOOKS.len() {
                fs::create_dir(dir.join(number.to_string())).unwrap();
                folder(&dir.join(number.to_string()));
            }
            let program = format!(
                "
def position(n):
  try: return os.lseek(n, 0, 1)
  except OSError as error: return error.errno
os.close(f)
for number, work in enumerate({LOOKS:?}):
  os.chdir(str(number)); seen = []
  f = os.open('a', os.O_RDONLY); os.read(f, 5)
  guess = begin()
  if guess > 0:
    exec(work); {ending}(guess)
  left = sorted(os.listdir('.'))
  print(number, guess > 0, seen, [position(n) for n in range(3, 9)], left, [open(n).read(4) for n in left if n != 'd'])
  os.closerange(3, 9); os.chdir('..')"
            );
            said.push(run(&dir, &[ahead], &program, 1).0);
        }
        assert_eq!(said[0], said[1], "{ending}");
        let outcome = if ending == "fail" { "False" } else { "True" };
        let as_meant = said[1].lines().filter(|line| line.split(' ').nth(1) == Some(outcome)).count();
        assert_eq!(as_meant, LOOKS.len(), "{ending}: {}", said[1]);
    }
}

/// Somebody who does not guess reads a file in memory all the time while guesses change it that all fail: what he has
/// seen in the end is what was always there.
#[test]
fn nobody_keeps_what_he_saw_of_a_guess_that_failed() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = place.path().join("here");
    let memory = place.path().join("memory");
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&memory).unwrap();
    folder(&dir);
    let private = format!("--private-tmp={}", memory.display());
    let program = format!(
        "
os.chdir({memory:?})
open('x', 'w').write('old')
reader = os.fork()
if reader == 0:
  seen, x = set(), os.open('x', os.O_RDONLY)
  while not os.path.exists('stop'):
    seen.add(os.pread(x, 9, 0)); os.lseek(x, 0, 0); seen.add(os.read(x, 9)); seen.add(os.stat('x').st_size)
    y = os.open('x', os.O_RDONLY); seen.add(os.read(y, 9)); os.close(y)
  print(sorted(seen, key=str)); sys.stdout.flush(); os._exit(0)
for i in range(count):
  guess = begin()
  if guess > 0:
    os.close(os.open('x', os.O_RDONLY))
    w = os.open('x', os.O_WRONLY); os.pwrite(w, b'newer', 0); os.close(w); fail(guess)
open('stop', 'w').close()
os.wait()
"
    );
    let (said, stats) = run(&dir, &[&private], &program, 40);
    assert_eq!(said.trim(), "[3, b'old']");
    assert!(stats["ahead"]["permits"].as_u64().unwrap() > 0, "nobody had a permit: {stats}");
}

/// The program `busy_neighbours`, natively and inside, on one processor, where nobody else runs while the supervisor
/// does.
struct Neighbours(tempfile::TempDir);

impl Neighbours {
    fn compile() -> Self {
        let neighbours = Self(tempfile::tempdir().unwrap());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/busy_neighbours.c");
        assert!(Command::new("cc")
            .args(["-O1", "-o"])
            .arg(neighbours.program())
            .arg(source)
            .status()
            .unwrap()
            .success());
        neighbours
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("busy_neighbours")
    }

    /// What it says natively is what it says inside; how many calls were asked about there.
    fn asked(&self, arguments: &[&str]) -> u64 {
        let stats = self.0.path().join("stats");
        let options = format!("--stats=json:{}", stats.display());
        let run = |words: &[&str]| {
            let mut pinned = Command::new("timeout");
            pinned.args(["--signal=KILL", "60", "taskset", "--cpu-list", "0"]).args(words);
            pinned.arg(self.program()).args(arguments).stdin(Stdio::null()).output().unwrap()
        };
        let (expected, inside) = (run(&[]), run(&[SPECULATOR, "run", &options, "--"]));
        assert!(expected.stdout.starts_with(b"children "));
        // A guess that fails, as nobody gets on, is told of.
        assert_eq!(String::from_utf8_lossy(&inside.stderr), "");
        assert_eq!((inside.status.code(), inside.stdout), (Some(0), expected.stdout));
        let stats: serde_json::Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
        stats["ahead"]["asked"].as_u64().unwrap()
    }
}

/// Whoever is called out of a call that was made already gets to leave it.
#[test]
fn who_is_called_out_at_the_end_of_a_call_gets_on() {
    Neighbours::compile().asked(&[]);
}

/// While a call waits until others have left theirs, nobody takes their core to ask about one call after the other.
#[test]
fn who_asks_stands_back_for_those_who_leave_their_calls() {
    // Some 350 are asked about; without standing back 5,000 and more.
    let asked = Neighbours::compile().asked(&["20"]);
    assert!(asked < 2000, "{asked} calls were asked about");
}

/// Executes itself so many times in a child, in one guess.
const EXECUTES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
    (void)count;
    int left = atoi(arguments[1]), status = 1;
    long guess = arguments[2][0] == '1' ? syscall(0x5bed, 1, 0) : 0;
    if (guess > 0 && fork() != 0) {
        wait(&status);
        syscall(0x5bed, 2, guess);
        return printf("status %d\n", status), 0;
    }
    if (left == 0) return 0;
    char number[16];
    snprintf(number, sizeof number, "%d", left - 1);
    execl("/proc/self/exe", "again", number, "0", (char *)0);
    return 1;
}
"#;

/// What a program looks at when it begins is not asked about (decisions/0210).
#[test]
fn a_new_program_looks_at_its_libraries_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, program, stats) =
        (place.path().join("executes.c"), place.path().join("executes"), place.path().join("stats"));
    fs::write(&source, EXECUTES.replace("/proc/self/exe", program.to_str().unwrap())).unwrap();
    assert!(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    let asked = |count: u64| {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "60", SPECULATOR, "run", &format!("--stats=json:{}", stats.display()), "--"]);
        let output = command.arg(&program).args([&count.to_string(), "1"]).stdin(Stdio::null()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "status 0\n");
        let stats: serde_json::Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
        stats["ahead"]["asked"].as_u64().unwrap()
    };
    let (some, more) = (asked(10), asked(60));
    // About the call that executes it.
    assert!(more < some + 80, "{some} questions for 10 programs, {more} for 60");
}
