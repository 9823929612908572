//! Locks between two mounts of one volume, compared with what the local file system does. Mounts need root.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bluefs_support::{succeeds, Mount, Scene};

fn python(script: &str, dirs: [&Path; 2]) -> String {
    succeeds(Command::new("python3").args(["-c", script]).args(dirs))
}

/// Runs a script in a local directory, and in two mounts of one volume: it says the same.
#[track_caller]
fn says_the_same(script: &str) {
    let scene = Scene::new();
    fs::create_dir(scene.path("local")).expect("a directory");
    let natively = python(script, [&scene.path("local"), &scene.path("local")]);
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    assert_eq!(python(script, [&mounts[0].0, &mounts[1].0]), natively);
    assert!(natively.contains("given") && natively.contains("refused"), "{natively}");
}

/// Children open the file in one of the two directories and try to lock it.
const TRY: &str = r#"
import fcntl, os, sys
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, LOCK_NB
def opened(i):
    return os.open(sys.argv[1 + i] + '/file', os.O_RDWR | os.O_CREAT)
def attempt(call, fd, how):
    try:
        call(fd, how | LOCK_NB)
        return 'given'
    except BlockingIOError:
        return 'refused'
def child(i, call, how):
    r, w = os.pipe()
    if os.fork() == 0:
        os.write(w, attempt(call, opened(i), how).encode())
        os._exit(0)
    os.wait()
    return os.read(r, 10).decode()
def all(what):
    calls = (fcntl.flock, fcntl.lockf)
    print(what, [child(i, call, how) for i in (0, 1) for call in calls for how in (LOCK_SH, LOCK_EX)])
"#;

#[test]
fn flock_and_fcntl_hold_between_mounts_and_do_not_hinder_each_other() {
    let script = r#"
fd = opened(0)
all('free')
for call in (fcntl.flock, fcntl.lockf):
    for how in (LOCK_SH, LOCK_EX):
        call(fd, how)
        all((call.__name__, how))
        call(fd, LOCK_UN)
        all('given back')
fcntl.flock(fd, LOCK_EX)
print('both', attempt(fcntl.lockf, fd, LOCK_EX), attempt(fcntl.flock, opened(0), LOCK_EX))
all('both')
os.close(os.dup(fd))
all('a copy is closed, which gives back those of fcntl alone')
"#;
    says_the_same(&[TRY, script].concat());
}

/// Who closes a file has given its lock back when the call returns, as far as anybody on the same machine can tell.
#[test]
fn flock_goes_with_the_open_file() {
    let script = r#"
for i in range(100):
    fd = opened(0)
    fcntl.flock(fd, LOCK_EX | LOCK_NB)
    if i % 10 == 0:
        print(child(0, fcntl.flock, LOCK_EX), child(1, fcntl.flock, LOCK_SH), child(1, fcntl.lockf, LOCK_EX))
    os.close(fd)
fd = opened(0)
fcntl.flock(fd, LOCK_EX)
if os.fork() == 0:
    os.close(fd)
    os._exit(0)
os.wait()
print('a child has closed its descriptor', child(1, fcntl.flock, LOCK_EX))
os.close(fd)
fd = opened(1)
fcntl.flock(fd, LOCK_EX)
print('waited for')
"#;
    says_the_same(&[TRY, script].concat());
}

/// The same for a lock of an open file description, while another one of the same file stays open.
#[test]
fn a_lock_of_an_open_file_description_goes_with_it() {
    let script = r#"
import signal, struct
F_OFD_SETLK, F_OFD_SETLKW = 37, 38
signal.alarm(60)
def ofd(fd, command=F_OFD_SETLK):
    fcntl.fcntl(fd, command, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 10, 5, 0))
def try_ofd(fd, how):
    ofd(fd)
other = opened(0)
for i in range(30):
    fd = opened(0)
    ofd(fd)
    if i % 10 == 0:
        print(attempt(try_ofd, other, 0), attempt(try_ofd, opened(1), 0), attempt(fcntl.flock, other, LOCK_SH))
        fcntl.flock(other, LOCK_UN)
    os.close(fd)
    waits = opened(i % 2)
    ofd(waits, F_OFD_SETLKW)
    os.close(waits)
    fd = opened(1)
    ofd(fd, F_OFD_SETLKW)
    os.close(fd)
    ofd(other, F_OFD_SETLKW)
    fcntl.fcntl(other, F_OFD_SETLK, struct.pack('hhqqi', fcntl.F_UNLCK, 0, 0, 0, 0))
"#;
    says_the_same(&[TRY, script].concat());
}

/// fcntl(2), EDEADLK: not so for locks of open file descriptions, nor for `flock`.
#[test]
fn who_would_wait_for_itself_is_told() {
    let script = r#"
import signal, struct, time
def late(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, late)
def record(fd, byte):
    fcntl.lockf(fd, LOCK_EX, 1, byte)
def ofd(fd, byte):
    fcntl.fcntl(fd, 38, struct.pack('hhqqi', fcntl.F_WRLCK, 0, byte, 1, 0))
def waits(call, fd, byte):
    signal.setitimer(signal.ITIMER_REAL, 3)
    try:
        call(fd, byte)
        return 'given'
    except TimeoutError:
        return 'waits'
    except OSError as error:
        return os.strerror(error.errno)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
for call in (record, ofd):
    r, w = os.pipe()
    fd = opened(1)
    call(fd, 1)
    pid = os.fork()
    if pid == 0:
        fd = opened(0)
        call(fd, 0)
        os.write(w, b'x')
        try:
            call(fd, 1)
        finally:
            os._exit(0)
    os.read(r, 1)
    time.sleep(1)
    print(call.__name__, waits(call, fd, 0))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print(waits(call, fd, 0))
    os.close(fd)
print('given refused')
"#;
    says_the_same(&[TRY, script].concat());
}

/// One thread waits for a lock while another one opens the file and closes it again: the process has the lock then, and
/// gives it back when it closes the file.
#[test]
fn a_lock_that_is_given_behind_a_close_is_given_back_too() {
    let script = r#"
import signal, threading, time
signal.alarm(60)
(told, tell), (go, goes) = os.pipe(), os.pipe()
fd = opened(1)
fcntl.lockf(fd, LOCK_EX)
if os.fork() == 0:
    own = opened(0)
    def wait():
        fcntl.lockf(own, LOCK_EX)
        os.write(tell, b'x')
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    os.close(opened(0))
    os.write(tell, b'c')
    thread.join()
    os.read(go, 1)
    os.close(own)
    os.write(tell, b'd')
    os.read(go, 1)
    os._exit(0)
print(os.read(told, 1), child(0, fcntl.lockf, LOCK_EX))
fcntl.lockf(fd, LOCK_UN)
print(os.read(told, 1), child(1, fcntl.lockf, LOCK_EX))
os.write(goes, b'g')
print(os.read(told, 1), child(1, fcntl.lockf, LOCK_EX))
os.write(goes, b'g')
os.wait()
"#;
    says_the_same(&[TRY, script].concat());
}

const COUNT: &str = r#"
import fcntl, os, sys
children = []
for i in range(4):
    pid = os.fork()
    if pid:
        children.append(pid)
        continue
    for _ in range(15):
        f = os.open(sys.argv[1 + i % 2] + '/count', os.O_RDWR | os.O_CREAT)
        fcntl.flock(f, fcntl.LOCK_EX)
        n = int(os.pread(f, 20, 0) or b'0')
        os.pwrite(f, b'%d' % (n + 1), 0)
        os.close(f)
    os._exit(0)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
print(open(sys.argv[1] + '/count').read())
"#;

/// Also the file itself: whoever finds that another has just made it opens that one.
#[test]
fn processes_of_two_mounts_count_together_under_flock() {
    let scene = Scene::new();
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    assert_eq!(python(COUNT, [&mounts[0].0, &mounts[1].0]), "60\n");
}
