//! Locks of files that were there (`flock` and `fcntl`), taken and given up on a guess: nobody waits for the guess, a
//! wrong one gives back what it took, and whoever is outside gets a lock only when what was written under it is there.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};
use crate::support;

use rustix::fs::{fcntl_lock, flock, FlockOperation};
use std::fs::{self, File};
use std::io::Read;
use std::process::Stdio;
use support::places::{await_running, pause, pause_until};

/// None of these waits. Each begins with the lock free, by `f`, `X` (exclusive, without waiting) and `lock`.
const LOCKS: &[&str] = &[
    "lock(f, X); os.pwrite(f, b'J', 0); lock(f, U); see(f)",
    // Twice the same; to give up what one does not have.
    "lock(f, U); lock(f, X); lock(f, X); lock(f, U); lock(f, U); lock(f, fcntl.LOCK_EX)",
    // As cargo does: each time by another open file.
    "for i in range(4):\n  g = os.open('a', os.O_RDWR | os.O_CREAT); lock(g, X); os.lseek(g, i, 0); os.write(g, b'x'); \
     seen.append((os.lseek(g, 0, 1), os.pread(g, 9, 0))); lock(g, U); os.close(g)",
    // Given up by the last close, and by the end of the process that has it.
    "for i in range(3):\n  g = os.open('a', os.O_RDONLY); lock(g, X); os.close(g)",
    "for i in range(3):\n  if os.fork() == 0: lock(os.open('a', os.O_RDONLY), X); os._exit(i)\n  \
     seen.append(os.wait()[1] >> 8)",
    "os.system('for i in 1 2 3; do flock a echo $i >> b; flock -n a true; echo $?; done; cat b')",
    // Somebody else has it: who does not wait is told.
    "lock(f, X)\nif os.fork() == 0:\n  g = os.open('a', os.O_RDWR); e = errno_of(lock, g, X); lock(f, U); os._exit(e)\n\
     seen.append(os.wait()[1] >> 8); lock(f, X)",
    // Several readers.
    "g = os.open('a', os.O_RDONLY); lock(f, S); lock(g, S); h = os.open('a', os.O_RDONLY); \
     seen.append(errno_of(lock, h, X)); lock(f, U); lock(g, U); os.close(g); os.close(h)",
    // As Go does with go.mod: read under a shared lock, written under an exclusive one of another open file.
    "g = os.open('a', os.O_RDONLY); lock(g, S); seen.append(os.read(g, 9)); lock(g, U); os.close(g); \
     h = os.open('a', os.O_RDWR | os.O_CREAT); lock(h, X); os.pwrite(h, b'J', 0); lock(h, U); os.close(h); see('a')",
    "g = os.open('a', os.O_RDONLY)\nfor i in range(3): lock(f, X); lock(f, U); lock(g, S); lock(g, U)\nlock(f, S); \
     lock(g, S)",
    "g = os.open('a', os.O_RDONLY)\nfor i in range(3):\n  if os.fork() == 0: lock(g, X); lock(g, U); lock(f, X); \
     lock(f, U); os._exit(i)\n  seen.append(os.wait()[1] >> 8); lock(g, X); lock(g, U)",
    // A directory.
    "d = os.open('shared', os.O_RDONLY); lock(d, X); e = os.open('shared', os.O_RDONLY); \
     seen.append(errno_of(lock, e, X)); lock(d, U); os.close(d); os.close(e)",
    // By threads.
    "import threading\ndef work(i):\n  g = os.open('shared', os.O_RDONLY); lock(g, X); lock(g, U); os.close(g)\n\
     for i in range(3): t = threading.Thread(target=work, args=(i,)); t.start(); t.join()",
];

const BEFORE: &str =
    "import fcntl; f = os.open('a', os.O_RDWR); lock = fcntl.flock; S = fcntl.LOCK_SH | fcntl.LOCK_NB; \
                      U = fcntl.LOCK_UN; X = fcntl.LOCK_EX | fcntl.LOCK_NB\n";

/// Record locks: of each process, by ranges. None of these waits.
const RECORDS: &[&str] = &[
    "lock(f, X, 10); os.pwrite(f, b'J', 0); look(0, 1); lock(f, U, 10); look(0, 1); see(f)",
    // Ranges that are split and joined; to give up what one does not have; what the kernel refuses.
    "lock(f, X, 0); lock(f, U, 5, 10); look(0, 3); look(10, 5); look(12, 9); lock(f, X, 5, 10); look(3, 0); \
     lock(f, U, 5, 3); lock(f, U, 5, 3); g = os.open('a', os.O_RDONLY); seen.append(errno_of(lock, g, X)); look(0, 0)",
    // Of a file that the guess has made: by who would wait for it, and then by who would not.
    "n = os.open('new', os.O_RDWR | os.O_CREAT)\nlock(n, fcntl.LOCK_SH, 0); lock(n, X, 0); lock(n, U, 0); os.close(n)",
    // As SQLite does: pending, shared, reserved, exclusive, and back.
    "P = 1 << 30\nfor i in range(3):\n  lock(f, S, 1, P); lock(f, S, 510, P + 2); lock(f, U, 1, P); look(P, 600); \
     lock(f, X, 1, P + 1); lock(f, X, 1, P); lock(f, X, 510, P + 2); look(P, 1); look(P + 2, 1); \
     os.pwrite(f, b'x', i); \
     lock(f, S, 510, P + 2); lock(f, U, 2, P); look(P, 600); lock(f, U, 0)",
    "import sqlite3\nfor i in range(3):\n  d = sqlite3.connect('base'); d.execute('insert into t values (?)', (i,)); \
     d.commit(); seen.append(d.execute('select * from t').fetchall()); d.close()",
    // To close any descriptor of the file gives them up, and so do dup2, close_range and the end of the process.
    "lock(f, X, 0); g = os.open('a', os.O_RDONLY); os.close(g); look(0, 0)",
    "lock(f, X, 0); g = os.open('shared', os.O_RDONLY); h = os.dup(f); os.dup2(g, h); look(0, 0); \
     lock(f, X, 0); seen.append(errno_of(os.dup2, 999, f)); look(0, 0); os.closerange(h, h + 1); look(0, 0)",
    "for i in range(3):\n  if os.fork() == 0: lock(os.open('a', os.O_RDWR), X, 3, i); os._exit(i)\n  \
     seen.append(os.wait()[1] >> 8); look(0, 0)",
    // A child has none of its parent's; who does not wait is told.
    "lock(f, X, 4, 2)\nif os.fork() == 0:\n  e = errno_of(lock, f, X, 9), errno_of(lock, f, S, 1, 5), \
     errno_of(lock, f, X, 2); os.close(f); os._exit(e[0] * 2 + e[1] + e[2])\nseen.append(os.wait()[1] >> 8); \
     look(0, 0); lock(f, X, 0)",
    // A reader does not keep others from reading, and is in the way of who would write.
    "lock(f, S, 0)\nif os.fork() == 0: os._exit(errno_of(lock, f, S, 0) * 2 + errno_of(lock, f, X, 0))\n\
     seen.append(os.wait()[1] >> 8); lock(f, X, 0); look(0, 0)",
    // Who waits gets it when it is given up.
    "r, w = os.pipe(); lock(f, X, 0)\nif os.fork() == 0:\n  os.write(w, b'1'); lock(f, fcntl.LOCK_EX, 0); \
     os._exit(os.pread(f, 1, 0)[0])\nos.read(r, 1); os.pwrite(f, b'K', 0); lock(f, U, 0); \
     seen.append(os.wait()[1] >> 8); look(0, 0)",
    // From the position of the open file, and what is before it.
    "os.lseek(f, 7, 0); lock(f, X, 2, 0, 1); look(0, 0); look(9, 0); lock(f, X, -3, 0, 1); look(0, 0)",
];

const BEFORE_RECORDS: &str = "
import fcntl, struct
f = os.open('a', os.O_RDWR); lock = fcntl.lockf; S = fcntl.LOCK_SH | fcntl.LOCK_NB
U = fcntl.LOCK_UN; X = fcntl.LOCK_EX | fcntl.LOCK_NB
def look(start, len):
    r, w = os.pipe()
    if os.fork() == 0:
        asked = struct.pack('hhqqi', fcntl.F_WRLCK, 0, start, len, 0)
        kind, _, start, len, pid = struct.unpack('hhqqi', fcntl.fcntl(f, fcntl.F_GETLK, asked))
        os.write(w, repr((kind, start, len, pid == os.getppid())).encode()); os._exit(0)
    os.close(w); seen.append(os.read(r, 99)); os.close(r); os.wait()
";

/// With a small database.
fn folder_of_records() -> tempfile::TempDir {
    let dir = folder();
    let make = "import sqlite3; d = sqlite3.connect('base'); d.execute('create table t(a)'); d.commit()";
    assert!(std::process::Command::new(support::python())
        .args(["-c", make])
        .current_dir(dir.path())
        .status()
        .unwrap()
        .success());
    dir
}

#[test]
fn locks_on_a_right_guess_are_as_natively() {
    if !has_root() {
        return;
    }
    LOCKS.iter().for_each(|what| is_as_natively(folder, &format!("{BEFORE}{what}")));
    RECORDS.iter().for_each(|what| is_as_natively(folder_of_records, &format!("{BEFORE_RECORDS}{what}")));
}

#[test]
fn locks_of_a_wrong_guess_have_never_been() {
    if !has_root() {
        return;
    }
    LOCKS.iter().for_each(|what| has_never_been(folder, &format!("{BEFORE}{what}")));
    RECORDS.iter().for_each(|what| has_never_been(folder_of_records, &format!("{BEFORE_RECORDS}{what}")));
}

/// While the guess is open the lock is taken, also where it was given up on the guess: what was written under it is not
/// there yet.
#[test]
fn outside_a_lock_is_taken_until_the_guess_is_resolved() {
    if !has_root() {
        return;
    }
    const GIVES_UP: [&str; 3] = [
        "exec 4<> lock; flock 4; echo new > data; flock -u 4",
        "exec 4<> lock; flock 4; echo new > data; exec 4>&-",
        "flock lock sh -c 'echo new > data'",
    ];
    for gives_up in GIVES_UP {
        for (end, status, data) in [("fail", 7, "old\n"), ("commit", 0, "new\n")] {
            let (dir, other) = (folder(), folder());
            fs::write(dir.path().join("data"), "old\n").unwrap();
            fs::write(dir.path().join("lock"), "").unwrap();
            let (pause, go) = (pause("0.02"), other.path().join("go"));
            let script = format!(
                "cd {}; id=$($S begin); [ $id = failed ] && exit 7; {gives_up}; {}; $S {end} $id",
                dir.path().display(),
                pause_until(&pause, &go)
            );
            let child = speculator().args(["bash", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
            await_running(&pause);
            let lock = File::open(dir.path().join("lock")).unwrap();
            let taken = flock(&lock, FlockOperation::NonBlockingLockExclusive);
            assert_eq!(taken, Err(rustix::io::Errno::WOULDBLOCK), "{gives_up}");
            fs::write(&go, "").unwrap();
            flock(&lock, FlockOperation::LockExclusive).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("data")).unwrap(), data, "{gives_up}; {end}");
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.status.code(), errors(&output).as_str()), (Some(status), ""), "{gives_up}; {end}");
        }
    }
}

/// Runs a program of Python that gives up a lock on a guess, and asks for the lock outside while the guess is open.
/// Then the guess is resolved, and the lock is had.
fn gives_up(before: &str, during: &str, is_free: bool, (end, status, data): (&str, i32, &str)) {
    const AROUND: &str = "
import ctypes, fcntl, mmap, os, sys
def write(what): f = os.open('data', os.O_WRONLY | os.O_TRUNC); os.write(f, what); os.close(f)
def stored(): return mmap.mmap(os.open('data', os.O_RDWR), 3)
call, lock = ctypes.CDLL(None).syscall, fcntl.flock
S, X, U = fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
f = os.open('lock', os.O_RDWR); other = None; exec(sys.argv[1]); id = call(0x5bed, 1, 0)
if id < 0: sys.exit(7)
exec(sys.argv[2]); os.system(sys.argv[3]); call(0x5bed, 2 if sys.argv[4] == 'commit' else 3, id)
if other is not None: call(0x5bed, 2, other)
";
    let (dir, ready) = (folder(), folder());
    fs::write(dir.path().join("data"), "old").unwrap();
    fs::write(dir.path().join("lock"), "text").unwrap();
    let (pause, go) = (pause("0.02"), ready.path().join("go"));
    let mut command = speculator();
    command.args([&support::python(), "-c", AROUND, before, during, &pause_until(&pause, &go), end]);
    command.current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_running(&pause);
    let lock = File::open(dir.path().join("lock")).unwrap();
    let taken = flock(&lock, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(taken.is_ok(), is_free, "{before}; {during}; {end}");
    assert_eq!(fs::read_to_string(dir.path().join("data")).unwrap(), "old", "{before}; {during}; {end}");
    fs::write(&go, "").unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("data")).unwrap(), data, "{before}; {during}; {end}");
    let said = (output.status.code(), errors(&output));
    assert_eq!(said, (Some(status), String::new()), "{before}; {during}; {end}");
}

/// Nothing is to be found of what was done under the lock, and nobody comes back to where it was had.
#[test]
fn outside_a_lock_under_which_nothing_was_changed_is_free() {
    if !has_root() {
        return;
    }
    const GIVES_UP: [&str; 5] = [
        "lock(f, S); os.read(f, 2); os.fstat(f); os.stat('data'); lock(f, U)",
        "lock(f, X); lock(f, X); lock(f, U); lock(f, S); lock(f, U)",
        "write(b'old'); lock(f, X); lock(f, U)",
        "m = stored(); m[0:3] = b'old'; lock(f, X); lock(f, U)",
        "if os.fork() == 0: lock(f, S); os.read(f, 2); lock(f, U); os._exit(0)\nos.wait()",
    ];
    for during in GIVES_UP {
        gives_up("", during, true, ("commit", 0, "old"));
        gives_up("", during, true, ("fail", 7, "old"));
    }
}

/// What was done under the lock comes later, or the guess may be taken back to where the lock was had.
#[test]
fn outside_a_lock_under_which_something_was_changed_is_taken() {
    if !has_root() {
        return;
    }
    const GIVES_UP: [(&str, &str, &str); 8] = [
        ("", "lock(f, S); write(b'new'); lock(f, U)", "new"),
        ("", "lock(f, S); write(b'new'); lock(f, U); lock(f, S); lock(f, U)", "new"),
        ("", "m = stored(); lock(f, S); m[0:3] = b'new'; lock(f, U)", "new"),
        ("", "lock(f, S)\nif os.fork() == 0: write(b'new'); os._exit(0)\nos.wait(); lock(f, U)", "new"),
        ("", "lock(f, S); os.close(1); lock(f, U)", "old"),
        ("", "lock(f, S); os.chmod('data', 0o600); lock(f, U)", "old"),
        ("", "lock(f, S); other = call(0x5bed, 1, 0); lock(f, U)", "old"),
        ("lock(f, S)", "lock(f, U)", "old"),
    ];
    for (before, during, data) in GIVES_UP {
        gives_up(before, during, false, ("commit", 0, data));
        gives_up(before, during, false, ("fail", 7, "old"));
    }
}

/// Who learns of a younger guess while it has a lock may be taken back to where it has it.
#[test]
fn a_lock_that_was_taken_on_an_older_guess_is_kept() {
    if !has_root() {
        return;
    }
    const PROGRAM: &str = "
import ctypes, fcntl, os, sys, time
call, lock = ctypes.CDLL(None).syscall, fcntl.flock
f = os.open('lock', os.O_RDWR); r, w = os.pipe(); id = call(0x5bed, 1, 0); child = os.fork()
if child == 0:
    os.write(w, b'%d' % call(0x5bed, 1, 0)); os.execlp('sleep', *sys.argv[1].split())
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
lock(f, fcntl.LOCK_SH); young = int(os.read(r, 9)); lock(f, fcntl.LOCK_UN); os.system(sys.argv[3])
if young >= 0: call(0x5bed, 3, young)
call(0x5bed, 2, id); os.kill(child, 9); print(young < 0)
";
    let (dir, ready) = (folder(), folder());
    fs::write(dir.path().join("lock"), "").unwrap();
    let (guessed, go) = (ready.path().join("guessed"), ready.path().join("go"));
    let (sleep, pause) = (pause("60"), pause("0.02"));
    let mut command = speculator();
    command.args([&support::python(), "-c", PROGRAM, &sleep]).arg(&guessed).arg(pause_until(&pause, &go));
    command.current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_running(&sleep);
    fs::write(&guessed, "").unwrap();
    await_running(&pause);
    let lock = File::open(dir.path().join("lock")).unwrap();
    let taken = flock(&lock, FlockOperation::NonBlockingLockExclusive);
    fs::write(&go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(taken, Err(rustix::io::Errno::WOULDBLOCK));
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), ("True\n", ""));
}

/// A lock that was taken before the guess, and given up on it.
#[test]
fn an_older_lock_is_given_up_when_the_guess_is_right() {
    if !has_root() {
        return;
    }
    for gives_up in ["flock -u 4", "exec 4>&-"] {
        for (end, left) in [("commit", "new free"), ("fail", "old taken")] {
            let dir = folder();
            fs::write(dir.path().join("data"), "old\n").unwrap();
            fs::write(dir.path().join("lock"), "").unwrap();
            let script = format!(
                "exec 4<> lock; flock 4; id=$($S begin)
                 if [ $id != failed ]; then echo new > data; {gives_up}; $S {end} $id; fi
                 echo $(cat data) $(flock -n lock echo free || echo taken)"
            );
            let output = speculator().args(["bash", "-c", &script]).current_dir(dir.path()).output().unwrap();
            assert_eq!((text(&output), errors(&output)), (format!("{left}\n"), String::new()), "{gives_up}; {end}");
        }
    }
}

/// Who waits for a lock that somebody outside has gets it on the guess.
#[test]
fn who_waits_for_a_lock_of_outside_gets_it() {
    if !has_root() {
        return;
    }
    let (dir, other) = (folder(), folder());
    fs::write(dir.path().join("lock"), "").unwrap();
    let lock = File::open(dir.path().join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let (pause, go) = (pause("0.02"), other.path().join("go"));
    let script = format!(
        "id=$($S begin); [ $id = failed ] && exit 7; flock -n lock true; echo $?; {}; flock lock echo got
         $S commit $id",
        pause_until(&pause, &go)
    );
    let mut command = speculator();
    command.args(["bash", "-c", &script]).current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_running(&pause);
    fs::write(&go, "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(lock);
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str(), output.status.code()), ("1\ngot\n", "", Some(0)));
}

/// Runs a program of Python that locks a file on a guess, and asks for the lock outside: while the guess is open, and
/// then until it is had. What was written under the lock is there then.
fn asks_outside(gives_up: &str, (end, status, data): (&str, i32, &str)) {
    const AROUND: &str = "
import ctypes, fcntl, os, sys
def write(what): f = os.open('data', os.O_WRONLY | os.O_TRUNC); os.write(f, what); os.close(f)
call, X = ctypes.CDLL(None).syscall, fcntl.LOCK_EX | fcntl.LOCK_NB
f = os.open('lock', os.O_RDWR); id = call(0x5bed, 1, 0)
if id < 0: sys.exit(7)
exec(sys.argv[1]); os.system(sys.argv[2]); call(0x5bed, 2 if sys.argv[3] == 'commit' else 3, id); exec(sys.argv[4])
";
    let (dir, other) = (folder(), folder());
    fs::write(dir.path().join("data"), "old").unwrap();
    fs::write(dir.path().join("lock"), "").unwrap();
    let (pause, go) = (pause("0.02"), other.path().join("go"));
    let (during, after) = gives_up.split_once(" // ").unwrap_or((gives_up, ""));
    let mut command = speculator();
    command.args([&support::python(), "-c", AROUND, during, &pause_until(&pause, &go), end, after]);
    let child = command.current_dir(dir.path()).stderr(Stdio::piped()).spawn().unwrap();
    await_running(&pause);
    let lock = File::options().read(true).write(true).open(dir.path().join("lock")).unwrap();
    let taken = fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(taken, Err(rustix::io::Errno::AGAIN), "{gives_up}; {end}");
    assert_eq!(fs::read_to_string(dir.path().join("data")).unwrap(), "old");
    fs::write(&go, "").unwrap();
    fcntl_lock(&lock, FlockOperation::LockExclusive).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("data")).unwrap(), data, "{gives_up}; {end}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), errors(&output).as_str()), (Some(status), ""), "{gives_up}; {end}");
}

#[test]
fn outside_a_record_lock_is_taken_until_the_guess_is_resolved() {
    if !has_root() {
        return;
    }
    const GIVES_UP: [&str; 3] = [
        "fcntl.lockf(f, X); write(b'new'); fcntl.lockf(f, fcntl.LOCK_UN)",
        "fcntl.lockf(f, X); write(b'new'); os.close(os.open('lock', os.O_RDONLY))",
        "if os.fork() == 0: fcntl.lockf(f, X); write(b'new'); os._exit(0)\nos.wait()",
    ];
    for gives_up in GIVES_UP {
        asks_outside(gives_up, ("commit", 0, "new"));
        asks_outside(gives_up, ("fail", 7, "old"));
    }
}

/// Who still has a record lock when the guess is right keeps it.
#[test]
fn a_record_lock_outlives_a_right_guess() {
    if !has_root() {
        return;
    }
    for gives_up in
        ["fcntl.lockf(f, fcntl.LOCK_UN)", "os.close(f)", "os.dup2(0, f)", "os._exit(0)", "os.execlp('true', 'true')"]
    {
        let gives_up =
            format!("fcntl.lockf(f, X); write(b'new') // os.system('sleep 0.3'); write(b'last'); {gives_up}");
        asks_outside(&gives_up, ("commit", 0, "last"));
    }
}

/// Who has a record lock outside keeps it, and who waits for it inside gets it then.
#[test]
fn who_waits_for_a_record_lock_of_outside_gets_it() {
    if !has_root() {
        return;
    }
    const PROGRAM: &str = "
import ctypes, fcntl, os, sys
call, X = ctypes.CDLL(None).syscall, fcntl.LOCK_EX | fcntl.LOCK_NB
f = os.open('lock', os.O_RDWR); id = call(0x5bed, 1, 0)
if id < 0: sys.exit(7)
try: fcntl.lockf(f, X, 1)
except OSError as e: r = e.errno
fcntl.lockf(f, X, 1, 5); os.system(sys.argv[1]); call(0x5bed, 2, id)
fcntl.lockf(f, fcntl.LOCK_EX); print(r, 'got')
";
    let (dir, other) = (folder(), folder());
    fs::write(dir.path().join("lock"), "").unwrap();
    let lock = "import fcntl, os, sys; f = os.open('lock', os.O_RDWR); fcntl.lockf(f, fcntl.LOCK_EX, 1); \
                print('locked', flush=True); sys.stdin.read()";
    let mut holder = std::process::Command::new(support::python());
    holder.args(["-c", lock]).current_dir(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut line = [0; 7];
    holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    let (pause, go) = (pause("0.02"), other.path().join("go"));
    let mut command = speculator();
    command.args([&support::python(), "-c", PROGRAM, &pause_until(&pause, &go)]);
    command.current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_running(&pause);
    fs::write(&go, "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str(), output.status.code()), ("11 got\n", "", Some(0)));
}
