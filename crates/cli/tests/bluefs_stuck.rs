//! Whoever waits for a server that says nothing can be ended: programs in each kind of call, the client, the mount. And
//! whoever waits for a client that says nothing waits for one term; who comes back is back after a few round trips.
//!
//! `cargo xtask stuck` sets `BLUEFS_STUCK=all`: every fault with every end, and 100,000 files. Mounts need root.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::network::{Network, Shape};

use crate::bluefs_support::{send, shown, speculator, succeeds, Foreground, Line, Mount, Scene, Server};

/// In what it is over, where that is measured. Otherwise it says that nothing hangs, on a machine that has other work.
const OVER_MAX: Duration = Duration::from_secs(1);
const OVER_SOME_TIME: Duration = Duration::from_secs(6);
/// How long programs are let wait before they are ended.
const WAITS: Duration = Duration::from_millis(500);
/// How long a test waits for what is to happen.
const PATIENCE: Duration = Duration::from_secs(25);
/// What is known under leases stays known for so long.
const LEASE_MIN: Duration = Duration::from_secs(5);

/// Calls that ask. Nobody has a lease on what they ask about.
const ASKING: [&str; 9] =
    ["lookup", "getattr", "open", "read", "readdir", "getxattr", "listxattr", "readlink", "statfs"];
/// Calls that change something. What they ask about is known.
const CHANGING: [&str; 17] = [
    "create",
    "write",
    "append",
    "truncate",
    "chmod",
    "utime",
    "mkdir",
    "mkfifo",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "symlink",
    "setxattr",
    "punch",
    "ends-with-locks",
    "ends-with-stores",
];
/// One that asks how long the file is before it changes it, if that is not known.
const STORING: [&str; 1] = ["msync"];
/// Calls about locks. Of the last one another program has the lock.
const LOCKING: [&str; 6] = ["lock", "flock", "getlk", "unlock", "close-with-lock", "waiting-lock"];
/// They do not wait: each write was on the server's disk when it returned.
const NOT_WAITING: [&str; 1] = ["fsync"];

/// A program that makes one call when it is told to.
const CALL: &str = r#"
import fcntl, mmap, os, struct, sys
kind, dir, own = sys.argv[1:]
def opened(name, flags=os.O_RDWR):
    return os.open(name, flags, dir_fd=d)
if own == 'own':
    d = os.open(dir, os.O_RDONLY)
    f = opened('f')
    if kind in ('unlock', 'close-with-lock', 'ends-with-locks'):
        fcntl.lockf(f, fcntl.LOCK_EX)
        fcntl.flock(f, fcntl.LOCK_EX)
    if kind == 'waiting-lock':
        r, w = os.pipe()
        a, b = os.pipe()
        if os.fork() == 0:
            os.close(w)
            fcntl.lockf(f, fcntl.LOCK_EX)
            os.write(b, b'x')
            os.read(r, 1)
            os._exit(0)
        os.close(r)
        os.read(a, 1)
    if kind in ('msync', 'ends-with-stores'):
        m = mmap.mmap(f, 100)
    if kind == 'append':
        a = opened('f', os.O_WRONLY | os.O_APPEND)
else:
    d = os.open(dir, os.O_RDONLY)
    if kind in ('read', 'getxattr', 'listxattr'):
        f = opened(kind, os.O_RDONLY)
    elif kind in ('getattr', 'open', 'readlink'):
        f = opened(kind, os.O_PATH | os.O_NOFOLLOW)
calls = {
    'lookup': lambda: os.stat('lookup', dir_fd=d),
    'getattr': lambda: os.fstat(f),
    'open': lambda: os.open('/proc/self/fd/%d' % f, os.O_RDONLY),
    'read': lambda: os.pread(f, 10, 0),
    'readdir': lambda: os.listdir(d),
    'getxattr': lambda: os.getxattr(f, 'user.x'),
    'listxattr': lambda: os.listxattr(f),
    'readlink': lambda: os.readlink('', dir_fd=f),
    'statfs': lambda: os.statvfs(d),
    'create': lambda: opened('new', os.O_RDWR | os.O_CREAT),
    'write': lambda: os.pwrite(f, b'y', 0),
    'append': lambda: os.write(a, b'y'),
    'truncate': lambda: os.ftruncate(f, 1),
    'chmod': lambda: os.fchmod(f, 0o600),
    'utime': lambda: os.utime(f, (1, 1)),
    'mkdir': lambda: os.mkdir('new', dir_fd=d),
    'mkfifo': lambda: os.mkfifo('new', dir_fd=d),
    'unlink': lambda: os.unlink('f', dir_fd=d),
    'rmdir': lambda: os.rmdir('d', dir_fd=d),
    'rename': lambda: os.rename('f', 'new', src_dir_fd=d, dst_dir_fd=d),
    'link': lambda: os.link('f', 'new', src_dir_fd=d, dst_dir_fd=d),
    'symlink': lambda: os.symlink('f', 'new', dir_fd=d),
    'setxattr': lambda: os.setxattr(f, 'user.x', b'y'),
    'punch': lambda: punch(),
    'ends-with-locks': lambda: os.fchmod(f, 0o600),
    'msync': lambda: (m.__setitem__(0, 1), m.flush()),
    'ends-with-stores': lambda: (m.__setitem__(0, 1), os.fchmod(f, 0o600)),
    'lock': lambda: fcntl.lockf(f, fcntl.LOCK_EX),
    'flock': lambda: fcntl.flock(f, fcntl.LOCK_EX),
    'getlk': lambda: fcntl.fcntl(f, fcntl.F_GETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 10, 0)),
    'unlock': lambda: fcntl.lockf(f, fcntl.LOCK_UN),
    'close-with-lock': lambda: os.close(f),
    'waiting-lock': lambda: fcntl.lockf(f, fcntl.LOCK_EX),
    'fsync': lambda: os.fsync(f),
}
def punch():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    long = ctypes.c_long
    if libc.fallocate(f, 3, long(0), long(10)) < 0:
        raise OSError(ctypes.get_errno(), 'fallocate')
os.write(1, b'ready\n')
os.read(0, 1)
if own == 'own':
    os.listdir(d)
    for name in ('f', 'd', 'new'):
        try:
            os.stat(name, dir_fd=d)
        except FileNotFoundError:
            pass
    if kind in ('msync', 'ends-with-stores'):
        m[0]
os.write(1, b'ready\n')
os.read(0, 1)
try:
    calls[kind]()
except OSError as error:
    os._exit(error.errno or 255)
os._exit(0)
"#;

/// A program that waits.
struct Waiter {
    kind: &'static str,
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    tell: std::process::ChildStdin,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // It does not outlive a test that has failed.
        let _ = self.child.kill();
    }
}

impl Waiter {
    fn new(kind: &'static str, mount: &Path) -> Waiter {
        let mut python = Command::new("python3");
        python.args(["-c", CALL, kind]);
        match ASKING.contains(&kind) {
            true => python.arg(mount.join("asked")).arg("others"),
            false => python.arg(mount.join(kind)).arg("own"),
        };
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = python.spawn().expect("python");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let tell = child.stdin.take().expect("piped");
        Waiter { kind, child, said, tell }
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "{}", self.kind);
    }

    fn go(&mut self) {
        self.tell.write_all(b"x").expect("told");
    }
}

/// What becomes of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It is stopped: its machine takes connections and answers nothing.
    Stopped,
    /// Nothing arrives any more, and nobody says so.
    Cut,
    /// It is gone, and connections are refused.
    Gone,
}

/// What is to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The programs are killed.
    Programs,
    /// The client is killed, and the directory unmounted.
    Client,
    /// The client is told to end.
    ClientEnds,
    /// The client is stopped, and the mount taken away by force.
    ClientStops,
    /// umount(8), which says that the mount is in use; lazily, it does not.
    Unmount,
}

const FAULTS: [Fault; 3] = [Fault::Stopped, Fault::Cut, Fault::Gone];
const ENDS: [End; 5] = [End::Programs, End::Client, End::ClientEnds, End::ClientStops, End::Unmount];

/// How long something took.
type Row = (&'static str, Duration);

fn is_all() -> bool {
    std::env::var_os("BLUEFS_STUCK").is_some_and(|value| value == "all")
}

fn over_max() -> Duration {
    if is_all() {
        OVER_MAX
    } else {
        OVER_SOME_TIME
    }
}

/// The status, and how long after `begun`.
#[track_caller]
fn ended(child: &mut Child, begun: Instant) -> (ExitStatus, Duration) {
    loop {
        match child.try_wait().expect("a child") {
            Some(status) => return (status, begun.elapsed()),
            None if begun.elapsed() > PATIENCE => panic!("{} hangs", child.id()),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn umount(options: &[&str], dir: &Path) -> (bool, Duration) {
    let begun = Instant::now();
    let mut child = Command::new("umount").args(options).arg(dir).stderr(Stdio::null()).spawn().expect("umount");
    let (status, took) = ended(&mut child, begun);
    (status.success(), took)
}

/// Numbers of inodes come ahead once the first one was asked for: from then on a mount's groups are its own.
fn take_numbers(mount: &Path) {
    let first = mount.join("first");
    fs::create_dir(&first).expect("a directory");
    fs::remove_dir(&first).expect("removed");
    std::thread::sleep(WAITS);
}

/// Lets programs wait in every kind of call, and ends them: how long each took, and the rest.
fn rows(fault: Fault, end: End) -> Vec<Row> {
    let scene = Scene::new();
    // Nobody gets leases on what another has changed.
    let options = ["--plain", "--listen", "127.0.0.1:0", "--lease-pause", "3600000"];
    let mut server = Server::with(&scene.path("store"), &options);
    let another = Mount::new(&server.address, &scene.path("another"), &[]);
    take_numbers(&another.0);
    let asked = another.0.join("asked");
    fs::create_dir(&asked).expect("a directory");
    ASKING.iter().filter(|kind| **kind != "readlink").for_each(|kind| {
        fs::write(asked.join(kind), "x").expect("written");
    });
    std::os::unix::fs::symlink("x", asked.join("readlink")).expect("a link");
    let line = Line::new(&server.address);
    let mut client = Foreground::new(&line.address, &scene.path("mount"));
    let dir = client.mount.0.clone();

    take_numbers(&dir);
    for own in CHANGING.into_iter().chain(STORING).chain(LOCKING).chain(NOT_WAITING).map(|kind| dir.join(kind)) {
        fs::create_dir(&own).expect("a directory");
        fs::create_dir(own.join("d")).expect("a directory");
        fs::write(own.join("f"), [b'x'; 100]).expect("written");
    }
    let kinds = ASKING.into_iter().chain(CHANGING).chain(STORING).chain(LOCKING).chain(NOT_WAITING);
    let mut waiters: Vec<Waiter> = kinds.map(|kind| Waiter::new(kind, &dir)).collect();
    waiters.iter_mut().for_each(Waiter::wait_until_ready);
    let begun = Instant::now();
    waiters.iter_mut().for_each(Waiter::go);
    waiters.iter_mut().for_each(Waiter::wait_until_ready);
    assert!(begun.elapsed() < LEASE_MIN, "too slow for leases");
    let changes = || shown(&dir).expect("it is shown")["changes"].as_u64().expect("a number");
    let before = changes();
    let (waiting, calling): (Vec<_>, Vec<_>) = waiters.iter_mut().partition(|one| one.kind == "waiting-lock");
    waiting.into_iter().for_each(Waiter::go);
    std::thread::sleep(WAITS);
    match fault {
        Fault::Stopped => send(&server.child, Signal::STOP),
        Fault::Cut => line.hold(true),
        Fault::Gone => {
            server.child.kill().expect("killed");
            server.child.wait().expect("ended");
            line.cut();
        }
    }
    calling.into_iter().for_each(Waiter::go);
    std::thread::sleep(WAITS);
    // Without a connection nothing is known: then what they change is asked about first.
    let sent = if fault == Fault::Gone { 0 } else { CHANGING.len() as u64 };
    let sent_now = changes() - before;
    assert!(sent_now >= sent, "not each change is on its way: {sent_now} of {sent}");
    let over_already: Vec<(&str, ExitStatus)> = waiters
        .iter_mut()
        .filter_map(|one| one.child.try_wait().expect("a child").map(|status| (one.kind, status)))
        .collect();
    let kinds: Vec<&str> = over_already.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, NOT_WAITING, "{fault:?}: all others wait: {over_already:?}");
    let rows = over(end, &mut client, &mut waiters);
    line.hold(false);
    if fault == Fault::Stopped {
        send(&server.child, Signal::CONT);
    }
    rows
}

/// Ends all that waits.
fn over(end: End, client: &mut Foreground, waiters: &mut [Waiter]) -> Vec<Row> {
    let (dir, mut rows) = (client.mount.0.clone(), Vec::new());
    let begun = Instant::now();
    let kill = |waiters: &[Waiter]| {
        for one in waiters.iter().filter(|one| !NOT_WAITING.contains(&one.kind)) {
            send(&one.child, Signal::KILL);
        }
    };
    match end {
        End::Programs => kill(waiters),
        End::Client => client.signal(Signal::KILL),
        End::ClientEnds => client.signal(Signal::TERM),
        End::ClientStops => {
            client.signal(Signal::STOP);
            let (done, took) = umount(&["-f", "-l"], &dir);
            assert!(done, "umount -f -l");
            rows.push(("umount -f -l", took));
        }
        End::Unmount => {
            let (done, took) = umount(&[], &dir);
            assert!(!done, "programs use it");
            rows.push(("umount, in use", took));
            let (done, took) = umount(&["-l"], &dir);
            assert!(done && !client.mount.is_there());
            rows.push(("umount -l", took));
            kill(waiters);
        }
    }
    let begun = if end == End::Unmount { Instant::now() } else { begun };
    rows.extend(waiters.iter_mut().map(|one| (one.kind, ended(&mut one.child, begun).1)));
    match end {
        End::Programs => {
            // Who had the lock that another one waited for ends by itself.
            let begun = Instant::now();
            while !umount(&[], &dir).0 {
                assert!(begun.elapsed() < over_max(), "somebody uses it");
            }
            rows.push(("umount", begun.elapsed()));
        }
        End::Client => {
            let (done, took) = umount(&["-l"], &dir);
            assert!(done);
            rows.push(("umount -l", took));
        }
        // It says goodbye to a server that does not hear it, for a second. After another end it goes when the mount is
        // gone, which may be in use in other namespaces of mounts.
        End::ClientEnds => {
            let (_, took) = ended(&mut client.child, Instant::now());
            rows.push(("the client", took.saturating_sub(OVER_MAX)));
        }
        End::ClientStops => client.signal(Signal::CONT),
        End::Unmount => {}
    }
    assert!(!client.mount.is_there());
    rows
}

#[test]
fn whoever_waits_for_a_server_that_says_nothing_can_be_ended() {
    let all = FAULTS.into_iter().flat_map(|fault| ENDS.map(|end| (fault, end)));
    let sample = [(Fault::Stopped, End::Programs), (Fault::Cut, End::ClientEnds), (Fault::Gone, End::Unmount)];
    let cases: Vec<_> = if is_all() { all.collect() } else { sample.to_vec() };
    let mut late = Vec::new();
    for (fault, end) in cases {
        let mut rows = rows(fault, end);
        rows.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        let shown = rows.iter().map(|(what, took)| format!("{what} {}", took.as_millis()));
        println!("server {fault:?}, {end:?}, ms: {}", shown.collect::<Vec<_>>().join(", "));
        late.extend(rows.into_iter().filter(|(_, took)| *took > over_max()).map(|row| (fault, end, row)));
    }
    assert!(late.is_empty(), "not over in time: {late:?}");
}

/// More of them than threads that read requests: somebody is always there for who ends, and for who asks what is known.
#[test]
fn many_that_wait_are_in_nobodys_way() {
    let scene = Scene::new();
    let server =
        Server::with(&scene.path("store"), &["--plain", "--listen", "127.0.0.1:0", "--lease-pause", "3600000"]);
    let another = Mount::new(&server.address, &scene.path("another"), &[]);
    take_numbers(&another.0);
    fs::create_dir(another.0.join("asked")).expect("a directory");
    fs::write(another.0.join("asked/f"), "x").expect("written");
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    take_numbers(&mount.0);
    fs::create_dir(mount.0.join("own")).expect("a directory");
    fs::write(mount.0.join("own/known"), "known").expect("written");
    let own = fs::File::open(mount.0.join("own/known")).expect("open");
    let read = |file: &fs::File| {
        let mut bytes = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).expect("read");
        bytes
    };
    assert_eq!(read(&own), *b"known");
    // Each has its own: whoever shares an open file waits for its offset, which no signal ends.
    let asked: Vec<fs::File> = (0..40).map(|_| fs::File::open(mount.0.join("asked/f")).expect("open")).collect();
    send(&server.child, Signal::STOP);
    let cat = |file| Command::new("cat").stdin(file).stdout(Stdio::null()).spawn().expect("cat");
    let mut cats: Vec<Child> = asked.into_iter().map(cat).collect();
    std::thread::sleep(WAITS);
    assert!(cats.iter_mut().all(|cat| cat.try_wait().expect("a child").is_none()), "they wait");
    let (tell, told) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || tell.send((0..100).map(|_| read(&own)).all(|bytes| bytes == *b"known")));
    assert_eq!(told.recv_timeout(over_max()), Ok(true), "what is known is said");
    reading.join().expect("no panic").expect("somebody listens");
    for cat in &mut cats {
        let begun = Instant::now();
        cat.kill().expect("sent");
        let (_, took) = ended(cat, begun);
        assert!(took < over_max(), "{took:?}");
    }
    assert!(umount(&["-l"], &mount.0).1 < over_max());
    send(&server.child, Signal::CONT);
}

/// It looks at all that is mounted, also where it does not work.
#[test]
fn a_try_does_not_wait_for_the_server_of_a_mount() {
    let scene = Scene::new();
    let server =
        Server::with(&scene.path("store"), &["--plain", "--listen", "127.0.0.1:0", "--lease-pause", "3600000"]);
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    send(&server.child, Signal::STOP);
    let mut looks = Command::new("stat").arg(&mount.0).stdout(Stdio::null()).spawn().expect("stat");
    let begun = Instant::now();
    let mut tries =
        speculator().args(["try", "--yes", "--", "true"]).current_dir(scene.dir.path()).spawn().expect("try");
    let (status, took) = ended(&mut tries, begun);
    assert!(status.success(), "{status}");
    assert!(took < PATIENCE, "{took:?}");
    assert!(looks.try_wait().expect("a child").is_none(), "who asks for what the server has waits");
    looks.kill().expect("sent");
    looks.wait().expect("a child");
    assert!(umount(&["-l"], &mount.0).1 < over_max());
    send(&server.child, Signal::CONT);
}

/// A client that has leases and whose line is cut: who writes waits for a term at most.
#[test]
fn a_client_whose_line_is_cut_is_waited_for_no_longer_than_a_term() {
    const TERM: Duration = Duration::from_millis(3_500);
    let scene = Scene::new();
    let server = Server::with(&scene.path("store"), &["--plain", "--listen", "127.0.0.1:0", "--lease-term", "3500"]);
    let line = Line::new(&server.address);
    let holder = Mount::new(&line.address, &scene.path("holder"), &[]);
    let writer = Mount::new(&server.address, &scene.path("writer"), &[]);
    fs::write(holder.0.join("file"), "old").expect("written");
    assert_eq!(fs::read(holder.0.join("file")).expect("read"), b"old");
    line.hold(true);
    let begun = Instant::now();
    fs::write(writer.0.join("file"), "new").expect("written");
    let took = begun.elapsed();
    println!("a writer waits {} ms for a term of {} ms", took.as_millis(), TERM.as_millis());
    assert!(took > TERM / 4, "{took:?}: the holder had a lease");
    // Emptying and writing the file wait for the same lease.
    assert!(took < TERM + over_max(), "{took:?}");
    line.hold(false);
    assert_eq!(fs::read(holder.0.join("file")).expect("read"), b"new");
}

/// Who has many files in its caches is back after a few round trips.
#[test]
fn a_client_with_many_files_is_back_after_five_round_trips() {
    const DIR_FILES: u32 = 2_000;
    let (dirs, round_trip) = if is_all() { (50, Duration::from_secs(1)) } else { (1, Duration::from_millis(500)) };
    let scene = Scene::new();
    let network = Network::new(Shape { round_trip, ..Shape::default() }).expect("a network");
    let (far, near) = (network.far().address(), network.near());
    // The files come over no line.
    let (store, list) = (scene.path("store"), scene.path("list"));
    let server = Server::start(&store, "127.0.0.1:0");
    for dir in 0..dirs {
        let files = (0..DIR_FILES).map(|i| format!("write {dir}/{i} x\n"));
        fs::write(&list, format!("mkdir {dir}\n") + &files.collect::<String>()).expect("written");
        succeeds(speculator().args(["bluefs", "batch", "--plain", &server.address]).arg(&list));
    }
    drop(server);
    let mut serve = network.far().command(env!("CARGO_BIN_EXE_speculator"));
    serve.arg("serve").arg(&store).args(["--listen", "127.0.0.1:7164"]);
    let _server = Server::by(serve);
    let line = network.far().run(move || {
        let listener = TcpListener::bind((far, 7165)).expect("a port");
        Line::between(listener, "127.0.0.1:7164".to_owned())
    });
    let line = line.join().expect("no panic").expect("the other host");
    let invitation = scene.path("invitation");
    fs::write(&invitation, succeeds(speculator().arg("invite").arg(&store))).expect("written");
    let options = ["--invitation", invitation.to_str().expect("text")];
    let client =
        Foreground::by(near.command(env!("CARGO_BIN_EXE_speculator")), &options, &line.address, &scene.path("mount"));
    let dir = client.mount.0.clone();
    for i in 0..dirs {
        let entries = fs::read_dir(dir.join(format!("{i}"))).expect("a directory");
        let count = entries.map(|entry| entry.expect("an entry").metadata().expect("there").len()).sum::<u64>();
        assert_eq!(count, u64::from(DIR_FILES), "one byte each");
    }
    let file = dir.join("0/7");
    // What is known of it may be older than a lease lasts.
    fs::metadata(&file).expect("there");
    let begun = Instant::now();
    line.cut();
    line.count_flights(round_trip);
    // It is sent on the old connection, and once more on the new one.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
    let (took, flights) = (begun.elapsed(), line.flights());
    let files = dirs * DIR_FILES;
    println!("{files} files: back after {:.2} round trips", took.as_secs_f64() / round_trip.as_secs_f64());
    // One more is TCP's; and the end of the old connection has come over the line, too.
    assert!(flights <= 3, "{flights} times the client has sent something and waited for an answer");
}
