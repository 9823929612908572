//! Locks of files that were there (`flock`), taken and given up on a guess: nobody waits for the guess, a wrong one
//! gives back what it took, and whoever is outside gets a lock only when what was written under it is there.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};
use crate::support;

use rustix::fs::{flock, FlockOperation};
use std::fs::{self, File};
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

#[test]
fn locks_on_a_right_guess_are_as_natively() {
    if !has_root() {
        return;
    }
    LOCKS.iter().for_each(|what| is_as_natively(folder, &format!("{BEFORE}{what}")));
}

#[test]
fn locks_of_a_wrong_guess_have_never_been() {
    if !has_root() {
        return;
    }
    LOCKS.iter().for_each(|what| has_never_been(folder, &format!("{BEFORE}{what}")));
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
