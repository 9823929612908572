//! Changes that need not ask while something is speculative (decisions/0130): to put something into pipes and Unix
//! sockets and take it out, and to write to files. None does in steady state, and what is left after a guess that came
//! true or failed is what the asking path leaves.

use crate::support;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// What each program begins with. `begin` returns twice, as fork does. `m` is a file in memory, `x` a longer one.
const SETUP: &str = "
import ctypes, os, select, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def begin(): return libc.syscall(0x5bed, 1, 0)
def commit(guess): return libc.syscall(0x5bed, 2, guess)
def fail(guess): return libc.syscall(0x5bed, 3, guess)
count, memory = int(sys.argv[1]), sys.argv[2]
os.chdir(memory)
def made(name, text):
  fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC); os.write(fd, text); return fd
m, x = made('m', b'0123456789'), made('x', b'x' * 20000)
r, w = os.pipe()
s, t = socket.socketpair()
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
";

/// Changes that are made again and again in one guess.
const CHANGES: &[&str] = &[
    "os.pwrite(m, b'new', 2)",
    "os.write(m, b'more')",
    "os.pwrite(x, b'y', i); os.write(x, b'z')",
    "os.write(w, b'ab'); os.read(r, 1); os.read(r, 1)",
    "s.send(b'ab'); t.recv(1); t.recv(9); t.send(b'c'); s.recv(9)",
    "a.send(b'ab'); b.recv(9); b.send(b'c'); a.recv(9)",
    "os.write(s.fileno(), b'ab'); os.read(t.fileno(), 9)",
];

/// Another process that gives back whatever it gets, until nothing more comes.
const ECHOES: &[&str] = &[
    "there, here = os.pipe(), os.pipe()
def echo():
  os.close(there[1]); os.close(here[0])
  while data := os.read(there[0], 9): os.write(here[1], data)
def begun(): os.close(there[0]); os.close(here[1])
def once(): os.write(there[1], b'x'); assert os.read(here[0], 9) == b'x'
def over(): os.close(there[1])",
    "here, there = socket.socketpair()
def echo():
  here.close()
  while data := there.recv(9): there.send(data)
def begun(): there.close()
def once(): here.send(b'x'); assert here.recv(9) == b'x'
def over(): here.shutdown(socket.SHUT_WR)",
];

/// What somebody does who goes on after a guess of his failed, or came true: again and again, so that most of it is not
/// asked about.
const WORK: &[&str] = &[
    "for i in range(9): os.pwrite(m, b'%d' % i, i % 4)",
    "for i in range(9): os.write(m, b'%d' % i)",
    "for i in range(9): os.pwrite(x, b'new', 3000 * i); os.write(x, b'%d' % i); os.lseek(x, 100, 1)",
    // Two descriptions of one file: each has a position.
    "y = os.open('m', os.O_RDWR)\nfor i in range(5): os.write(m, b'm'); os.write(y, b'y')",
    // Two guesses, of which the inner one comes true or fails, too.
    "for i in range(5): os.write(m, b'o'); os.write(w, b'o')\ninner = begin()\nif inner > 0:\n  for i in range(5): \
     os.write(m, b'i'); os.write(w, b'i')\n  (fail if number % 2 else commit)(inner)\nfor i in range(5): \
     os.write(m, b'p'); os.write(w, b'p')",
    "for i in range(5): os.write(m, b'o'); s.send(b'o')\ninner = begin()\nif inner > 0:\n  for i in range(5): \
     os.write(m, b'i'); s.send(b'i')\n  (fail if number % 2 else commit)(inner)\nfor i in range(5): os.write(m, b'p'); \
     s.send(b'p')",
    "for i in range(9): os.write(w, b'%d' % i)\nseen.append(os.read(r, 4))",
    "os.write(w, b'12345')\nfor i in range(4): seen.append(os.read(r, 1)); os.write(w, b'z')",
    "for i in range(9): s.send(b'%d' % i)\nseen.append(t.recv(4))",
    "for i in range(4): a.send(b'%d' % i); seen.append(b.recv(9)); b.send(b'back'); a.send(b'left')",
    // What is made in the guess goes with it.
    "n = made('n', b'new')\nfor i in range(9): os.write(n, b'%d' % i); os.pwrite(n, b'!', 0)",
    "for i in range(5): os.write(m, b'before')\nos.ftruncate(m, 3)\nfor i in range(5): os.pwrite(m, b'after', 7)",
    "for i in range(5): os.pwrite(m, b'%d' % i, 0)\nos.rename('m', 'k')\nfor i in range(5): os.pwrite(m, b'k', i)",
    "for i in range(5): os.pwrite(m, b'%d' % i, 0)\nos.dup2(x, m)\nfor i in range(5): os.write(m, b'x')",
    "for i in range(5): os.write(w, b'%d' % i)\nos.close(w); seen.append(os.read(r, 99)); seen.append(os.read(r, 9))",
    // Somebody else does a part of it.
    "for i in range(5): os.write(w, b'%d' % i); os.pwrite(m, b'p', i)\nif os.fork() == 0:\n  for i in range(5): \
     os.write(w, b'c'); os.pwrite(m, b'c', 5 + i); os.read(r, 1)\n  os._exit(0)\nos.wait()\nfor i in range(3): \
     seen.append(os.read(r, 1))",
    // Too much to go in as a whole.
    "for i in range(3): os.write(w, b'%d' % i * 9000); seen.append(len(os.read(r, 5000)))",
];

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(dir.path().join("memory")).unwrap();
        Self { dir }
    }

    fn memory(&self) -> PathBuf {
        self.dir.path().join("memory")
    }

    /// Runs SETUP and the program inside: what it says, and the statistics.
    fn run(&self, words: &[&str], program: &str, count: u32) -> (String, serde_json::Value) {
        let (stats, memory) = (self.dir.path().join("stats.json"), self.memory());
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "300", SPECULATOR, "run"]).arg(format!("--stats=json:{}", stats.display()));
        command.arg(format!("--private-tmp={}", memory.display())).args(words);
        command.args(["--", "python3", "-c", &format!("{SETUP}{program}"), &count.to_string()]).arg(&memory);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{program}: {said}{}", String::from_utf8_lossy(&output.stderr));
        (said, read_stats(&stats))
    }

    fn asked(&self, words: &[&str], program: &str, count: u32) -> u64 {
        self.run(words, program, count).1["ahead"]["asked"].as_u64().unwrap()
    }
}

fn read_stats(file: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn no_change_is_asked_about_in_steady_state() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let place = Place::new();
    for change in CHANGES {
        let program = format!("guess = begin()\nfor i in range(count):\n  {change}\ncommit(guess)");
        let (some, more) = (place.asked(&[], &program, 100), place.asked(&[], &program, 400));
        assert!(more <= some + 20, "{change}: {some} questions for 100 times, {more} for 400");
        assert!(some < 100, "{change}: {some} questions");
        let asked = |count| place.asked(&["--ahead=ask"], &program, count);
        let (some, more) = (asked(100), asked(400));
        assert!(
            more >= some + 200,
            "{change}: the reference asks about each call: {some} for 100 times, {more} for 400"
        );
    }
}

#[test]
fn two_processes_talk_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let place = Place::new();
    for echo in ECHOES {
        let program = format!(
            "{echo}
guess = begin()
if os.fork() == 0: echo(); os._exit(0)
begun()
for i in range(count): once()
over(); commit(guess); os.wait()"
        );
        let (some, more) = (place.asked(&[], &program, 100), place.asked(&[], &program, 400));
        assert!(more <= some + 20, "{echo}: {some} questions for 100 times, {more} for 400");
    }
}

#[test]
fn what_is_not_asked_about_is_taken_back_as_if_it_were() {
    if !support::has_root_for("running ahead") {
        return;
    }
    for ending in ["commit", "fail"] {
        let said = ["--ahead=ask", "--ahead=permits"].map(|ahead| {
            let program = format!(
                "
def position(fd):
  try: return os.lseek(fd, 0, 1)
  except OSError as error: return error.errno
def rest(fd):
  try: return os.read(fd, 99999) if select.select([fd], [], [], 0)[0] else None
  except OSError as error: return error.errno
work = {WORK:?}
for number in range(2 * len(work)):
  for name in os.listdir('.'): os.unlink(name)
  for end in s, t, a, b: end.detach()
  os.closerange(3, 20)
  m, x, (r, w) = made('m', b'0123456789'), made('x', b'x' * 20000), os.pipe()
  s, t = socket.socketpair()
  a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  os.write(w, b'old'); s.send(b'old'); a.send(b'old'); seen = []
  guess = begin()
  if guess > 0:
    exec(work[number // 2]); {ending}(guess)
  queues = [rest(fd) for fd in (r, s.fileno(), t.fileno(), a.fileno(), b.fileno())]
  files = [(name, open(name, 'rb').read().strip(b'x')) for name in sorted(os.listdir('.'))]
  print(number, guess > 0, seen, queues, files, [position(fd) for fd in range(3, 14)], os.stat('x').st_size)"
            );
            Place::new().run(&[ahead], &program, 1).0
        });
        let [asked, permitted] = said.each_ref().map(|said| said.lines().collect::<Vec<_>>());
        assert_eq!(asked.len(), 2 * WORK.len(), "{ending}: {}", said[0]);
        for (asked, permitted) in asked.iter().zip(&permitted) {
            assert_eq!(asked, permitted, "{ending}");
        }
        assert_eq!(asked.len(), permitted.len(), "{ending}");
    }
}

/// Somebody who does not guess waits in a pipe for whatever comes. What he has got of guesses that fail he has not
/// got in the end, and everything else he has, in its order.
#[test]
fn nobody_keeps_what_he_got_of_a_guess_that_failed() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let ends = ["there, here = os.pipe()", "there, here = (end.detach() for end in socket.socketpair())"];
    for ends in ends {
        let program = format!(
            "
{ends}
reader = os.fork()
if reader == 0:
  os.close(here); got = b''
  while not got.endswith(b'.'): got += os.read(there, 1)
  print(got.decode()); sys.stdout.flush(); os._exit(0)
os.close(there)
for i in range(count):
  for k in range(3): os.write(here, b'c'); time.sleep(0.0003 * (i % 3))
  guess = begin()
  if guess > 0:
    for k in range(3): os.write(here, b'g')
    time.sleep(0.001 * (i % 2)); (commit if i % 4 == 0 else fail)(guess)
  os.write(here, b'-')
os.write(here, b'.'); os.wait()"
        );
        let (said, stats) = Place::new().run(&[], &program, 24);
        let expected: String = (0..24).map(|i| if i % 4 == 0 { "cccggg-" } else { "ccc-" }).collect();
        assert_eq!(said.trim(), format!("{expected}."), "{ends}");
        assert!(stats["ahead"]["permits"].as_u64().unwrap() > 0, "nobody had a permit: {stats}");
    }
}

/// A signal interrupts who sleeps in a call of which nobody was asked, as it does natively.
#[test]
fn a_sleeper_hears_signals() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
class Heard(Exception): pass
def heard(*_): raise Heard()
signal.signal(signal.SIGALRM, heard)
guess = begin()
for i in range(20): os.write(w, b'x'); os.read(r, 1)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try: os.read(r, 1)
except Heard: print('heard')
os.write(w, b'y'); print(os.read(r, 9))
commit(guess)";
    assert_eq!(Place::new().run(&[], program, 1).0, "heard\nb'y'\n");
}

/// Whoever waits for what nobody will write is no reason for a guess to stay open for ever.
#[test]
fn a_guess_that_everybody_waits_for_fails() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
guess = begin()
if guess > 0:
  for i in range(20): os.write(w, b'x'); os.read(r, 1)
  os.read(r, 1)
print(guess > 0)";
    assert_eq!(Place::new().run(&[], program, 1).0, "False\n");
}
