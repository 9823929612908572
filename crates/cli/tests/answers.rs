//! Answers to whoever waits outside: what they wait for, and what they need not wait for.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use support::{can_mount, places, skipped, Scene};

/// What is not in a JSON object.
const NONE: serde_json::Value = serde_json::Value::Null;
/// Requests of one client.
const ROUNDS: u64 = 20;

/// Runs a program of Python inside, with `dir` the volume if `options` mount it.
fn python(scene: &Scene, options: &str, program: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.arg("run").args(options.split_whitespace()).arg("--stats=json:stats");
    command.args(["--", "/usr/bin/python3", "-I", "-c", program]).current_dir(scene.path(""));
    command
}

/// A request is a byte, and so is its answer. Returns the answers.
fn ask(mut server: Command) -> Vec<u8> {
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut requests, mut answers) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut got = Vec::new();
    for round in 0..ROUNDS {
        requests.write_all(&[round as u8]).unwrap();
        let mut answer = [0];
        answers.read_exact(&mut answer).unwrap();
        got.push(answer[0]);
    }
    drop(requests);
    assert!(server.wait().unwrap().success());
    got
}

const APPENDS_AND_ANSWERS: &str = "\
import os
log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
while request := os.read(0, 1):
    os.write(log, request * 100)
    os.fdatasync(log)
    os.write(1, request)
";

/// Where fsync is a wait for the disk, an answer after it is not one more.
#[test]
fn a_server_that_answers_after_its_fsync_waits_once() {
    let scene = Scene::new();
    let server = python(&scene, "", APPENDS_AND_ANSWERS);
    assert_eq!(ask(server), (0..ROUNDS as u8).collect::<Vec<u8>>());
    let stats = scene.stats();
    if stats["commits"].as_object().unwrap().is_empty() {
        return skipped("the folder for temporary files is on no file system that can commit");
    }
    // The first answer is held; from then on it is known that answers follow, then that the flush follows its write.
    // The end of input is an answer of its own.
    let count = |name: &str| stats[name].as_u64().unwrap();
    assert!(count("fsyncs_committed") + count("writes_flushed") >= ROUNDS - 1, "{stats}");
    assert!(count("writes_flushed") >= ROUNDS - 5 && count("fsyncs_elided") == count("writes_flushed"), "{stats}");
    assert!(stats["output_hold_us"]["count"].as_u64().unwrap() <= 3, "{stats}");
    assert_eq!(std::fs::read(scene.path("log")).unwrap().len() as u64, ROUNDS * 100);
}

/// A flush of the file that a server appends to commits what it has done, as long as it has done nothing else.
#[test]
fn a_server_with_one_file_flushes_that_file_only() {
    for (besides, is_alone) in [
        ("pass", true),
        ("os.write(other, request)", false),
        ("os.truncate('other', request[0])", false),
        ("os.stat('other')", true),
        ("os.rename('other', 'one'); os.rename('one', 'other')", false),
        ("os.chmod('log', 0o600 + request[0] % 2)", false),
        ("os.posix_fallocate(log, 0, 4096)", false),
        ("other = os.open('other', os.O_WRONLY); os.write(other, request)", false),
    ] {
        let scene = Scene::new();
        let program = APPENDS_AND_ANSWERS
            .replace("import os\n", "import os\nother = os.open('other', os.O_WRONLY | os.O_CREAT, 0o600)\n")
            .replace("    os.fdatasync", &format!("    {besides}\n    os.fdatasync"));
        assert_eq!(ask(python(&scene, "", &program)), (0..ROUNDS as u8).collect::<Vec<u8>>());
        let stats = scene.stats();
        if stats["commits"].as_object().unwrap().is_empty() {
            return skipped("the folder for temporary files is on no file system that can commit");
        }
        let of_log = stats["commits_of_log"].as_u64().unwrap() + stats["writes_flushed"].as_u64().unwrap();
        match is_alone {
            // All but those at the beginning: the second one makes it the log, from the next but one on.
            true => assert!(of_log >= ROUNDS - 5, "{besides}: {stats}"),
            false => assert!(of_log == 0, "{besides}: {stats}"),
        }
    }
}

/// The log changes with what is flushed: also a file that was the log is flushed when something else is.
#[test]
fn another_file_becomes_the_log() {
    let scene = Scene::new();
    let another = "    if request[0] == 10:
        time.sleep(0.1)
        log = os.open('log2', os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(log";
    let program = APPENDS_AND_ANSWERS.replace("    os.write(log", another);
    let server = python(&scene, "", &program.replace("import os", "import os, time"));
    assert_eq!(ask(server), (0..ROUNDS as u8).collect::<Vec<u8>>());
    let stats = scene.stats();
    if stats["commits"].as_object().unwrap().is_empty() {
        return skipped("the folder for temporary files is on no file system that can commit");
    }
    let of_log = stats["commits_of_log"].as_u64().unwrap() + stats["writes_flushed"].as_u64().unwrap();
    // All but those at the beginning, and the two at which the log changes.
    assert!((ROUNDS - 8..=ROUNDS - 4).contains(&of_log), "{stats}");
}

/// Between its flush and its answer the server waits until a process with which it shares memory has done something.
const APPENDS_AND_ANSWERS_AFTER: &str = "\
import mmap, os, sys
log = os.open('log', os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
os.write(log, b'x')
shared = mmap.mmap(-1, 4096)
if os.fork() == 0:
    os.close(0); os.close(1)
    while shared[0] != 1:
        if shared[0] == 2:
            DO
            shared[0] = 0
    os._exit(0)
while request := os.read(0, 1):
    os.write(log, request * 100)
    os.fdatasync(log)
    shared[0] = 2
    while shared[0]: pass
    os.write(1, request)
shared[0] = 1
os.wait()
";

/// What a write has flushed is waited for by nobody, with shared memory or without. Other changes are, and a log that
/// somebody sees without a call is not written so.
#[test]
fn what_a_write_has_flushed_is_waited_for_by_nobody() {
    for (does, is_flushed, is_held) in [
        ("pass", true, false),
        ("os.stat('..')", true, false),
        ("os.stat('log')", true, false),
        ("os.pread(log, 1, 0)", true, false),
        ("open('other', 'w').close()", true, true),
        ("seen = seen if 'seen' in globals() else mmap.mmap(log, 1, prot=mmap.PROT_READ)", false, true),
        ("seen = seen if 'seen' in globals() else mmap.mmap(log, 1, mmap.MAP_PRIVATE)", false, true),
    ] {
        let scene = Scene::new();
        let program = APPENDS_AND_ANSWERS_AFTER.replace("DO", does);
        assert_eq!(ask(python(&scene, "--commit-interval 60000", &program)), (0..ROUNDS as u8).collect::<Vec<u8>>());
        let stats = scene.stats();
        if stats["commits"].as_object().unwrap().is_empty() {
            return skipped("the folder for temporary files is on no file system that can commit");
        }
        let count = |name: &str| stats[name].as_u64().unwrap();
        let (flushed, committed) = (count("writes_flushed"), stats["commits"]["output"].as_u64().unwrap_or(0));
        assert!(if is_flushed { flushed >= ROUNDS - 6 } else { flushed < 3 }, "{does}: {stats}");
        // Who looks at a log's times waits for a commit, but soon there is nothing to wait for.
        let few = if does == "os.stat('log')" { 10 } else { 6 };
        assert!(if is_held { committed >= ROUNDS - 6 } else { committed <= few }, "{does}: {stats}");
    }
}

/// A write flushes its log as its program would, which says with `fdatasync` that it needs no times: they are left to
/// the next commit, and who looks at them waits for that.
#[test]
fn who_looks_at_the_times_of_a_log_waits_for_them() {
    const LOOKS: u64 = 4;
    let begin = "import ctypes, os\nlibc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(256)\n";
    for (look, is_shown) in [
        ("os.stat('log')", true),
        ("os.lstat('log')", true),
        ("os.stat(log)", true),
        ("libc.syscall(5, log, buffer)", true),
        ("libc.statx(log, b'', 0x1000, 0x7ff, buffer)", true),
        ("os.stat(f'/proc/self/fd/{log}')", true),
        ("os.lseek(log, 0, os.SEEK_END)", false),
        ("os.stat('..')", false),
    ] {
        let scene = Scene::new();
        let program = APPENDS_AND_ANSWERS
            .replace("import os\n", begin)
            .replace("    os.write(1", &format!("    if request[0] >= {}: {look}\n    os.write(1", ROUNDS - LOOKS));
        let server = python(&scene, "--commit-interval 60000", &program);
        assert_eq!(ask(server), (0..ROUNDS as u8).collect::<Vec<u8>>());
        let stats = scene.stats();
        if stats["commits"].as_object().unwrap().is_empty() {
            return skipped("the folder for temporary files is on no file system that can commit");
        }
        assert!(stats["writes_flushed"].as_u64().unwrap() >= ROUNDS - 5, "{look}: {stats}");
        let held = stats["output_hold_us"]["count"].as_u64().unwrap();
        assert_eq!(held >= LOOKS, is_shown, "{look}: {stats}");
    }
}

/// Two processes that share memory with the server wake each other all the time, as PostgreSQL's do: by a signal that
/// is read from a descriptor.
const APPENDS_AND_ANSWERS_AMONG_SIGNALS: &str = "\
import ctypes, mmap, os, signal
libc = ctypes.CDLL(None)
shared = mmap.mmap(-1, 4096)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
if os.fork() == 0:
    os.close(0); os.close(1)
    signals = libc.signalfd(-1, (1 << (signal.SIGUSR1 - 1)).to_bytes(128, 'little'), 0)
    reader = os.getpid()
    if os.fork() == 0:
        try:
            while not shared[0]: os.kill(reader, signal.SIGUSR1)
            os.kill(reader, signal.SIGUSR1)
        finally: os._exit(0)
    while not shared[0]: os.read(signals, 128)
    os._exit(0)
log = os.open('log', os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
while request := os.read(0, 1):
    os.write(log, request * 100)
    os.fdatasync(log)
    os.write(1, request)
shared[0] = 1
os.wait()
";

/// All requests are answered, and nearly each write flushes its log itself: hardly any answer waits for a commit.
#[track_caller]
fn are_flushed_by_writes(scene: &Scene, server: Command) {
    assert_eq!(ask(server), (0..ROUNDS as u8).collect::<Vec<u8>>());
    let stats = scene.stats();
    if stats["commits"].as_object().unwrap().is_empty() {
        return skipped("the folder for temporary files is on no file system that can commit");
    }
    assert!(stats["writes_flushed"].as_u64().unwrap() >= ROUNDS - 6, "{stats}");
    assert!(stats["commits"]["output"].as_u64().unwrap_or(0) <= 6, "{stats}");
}

/// Who reads a signal learns of its sender, and of nothing that is just being flushed.
#[test]
fn a_signal_that_is_read_tells_of_its_sender() {
    let scene = Scene::new();
    let server = python(&scene, "--commit-interval 60000", APPENDS_AND_ANSWERS_AMONG_SIGNALS);
    are_flushed_by_writes(&scene, server);
}

/// From the ninth request on, each is answered by a process of its own, which shares memory with the others.
const APPENDS_AND_ANSWERS_BY_CHILDREN: &str = "\
import mmap, os
shared = mmap.mmap(-1, 4096)
log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
while request := os.read(0, 1):
    if request[0] >= 8:
        if os.fork():
            os.wait()
            continue
        os.close(log)
        log = os.open('log', os.O_WRONLY | os.O_APPEND)
    os.write(log, request * 100)
    os.fdatasync(log)
    os.write(1, request)
    if request[0] >= 8:
        os._exit(0)
";

/// A new backend of PostgreSQL made everybody wait for a commit at its first transaction.
#[test]
fn a_new_server_flushes_with_its_first_write_as_others_do() {
    let scene = Scene::new();
    let server = python(&scene, "--commit-interval 60000", APPENDS_AND_ANSWERS_BY_CHILDREN);
    are_flushed_by_writes(&scene, server);
    assert_eq!(std::fs::read(scene.path("log")).unwrap().len() as u64, ROUNDS * 100);
}

/// A server for each client. They share memory, so that each answer depends on whatever any of them has written.
const SERVERS: &str = "\
import mmap, os, socket, sys
count = int(sys.argv[1])
shared = mmap.mmap(-1, 4096)
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(count)
print(listener.getsockname()[1], flush=True)
is_server = False
for i in range(count):
    is_server = is_server or os.fork() == 0
if is_server:
    log = os.open('dir/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    client = listener.accept()[0]
    while request := client.recv(1):
        if request == b'w':
            os.write(log, request * 100)
            os.fdatasync(log)
        client.send(request)
else:
    for i in range(count): os.wait()
";

/// PostgreSQL with several clients outside made ten transactions a second: an answer that was taken after its
/// commit had let everything go, and before the commit was published, waited for another one.
#[test]
fn an_answer_waits_for_no_other_commit_than_its_own() {
    const CLIENTS: usize = 8;
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let mut world = python(&scene, "--volume image:dir", SERVERS);
    let mut world = world.arg(CLIENTS.to_string()).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(world.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let port: u16 = port.trim().parse().unwrap();
    let connect = |_| {
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(places::PATIENCE)).unwrap();
        client
    };
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
    let ask = |client: &mut TcpStream, what: u8| client.write_all(&[what]).unwrap();
    for round in 0..1000 {
        let hear = |client: &mut TcpStream, what: u8| {
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap_or_else(|error| panic!("no answer in round {round}: {error}"));
            assert_eq!(answer, [what]);
        };
        // One of them writes. Nothing is written until all have their answers.
        ask(&mut clients[0], b'w');
        let (writer, readers) = clients.split_first_mut().unwrap();
        readers.iter_mut().for_each(|reader| ask(reader, b'r'));
        for again in [true, false] {
            for reader in &mut *readers {
                hear(reader, b'r');
                if again {
                    ask(reader, b'r');
                }
            }
        }
        hear(writer, b'w');
    }
    drop(clients);
    assert!(world.wait().unwrap().success());
}

/// The log has its size beforehand, and another process commits names all the time.
const OVERWRITES_AND_ANSWERS: &str = "\
import os
log = os.open('log', os.O_RDWR | os.O_CREAT, 0o600)
os.pwrite(log, bytes(100 * 256), 0)
os.fsync(log)
os.close(os.open('0', os.O_CREAT))
if os.fork() == 0:
    names = 0
    while not os.path.exists('end'):
        os.rename(str(names), str(names + 1))
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        names += 1
    os._exit(0)
at = 0
while request := os.read(0, 1):
    os.pwrite(log, request * 100, at)
    os.fdatasync(log)
    os.write(1, request)
    at += 100
os.close(os.open('end', os.O_CREAT))
os.wait()
";

/// What leaves a file's size as it is is written also while a commit is under way.
#[test]
fn a_write_within_its_log_waits_for_no_commit() {
    let scene = Scene::new();
    ask(python(&scene, "", OVERWRITES_AND_ANSWERS));
    let stats = scene.stats();
    if stats["commits"].as_object().unwrap().is_empty() {
        return skipped("the folder for temporary files is on no file system that can commit");
    }
    assert!(stats["writes_flushed"].as_u64().unwrap() > 0, "{stats}");
    assert_eq!(stats["waits"]["pwrite64"], NONE, "{stats}");
}

/// A program that shows nothing in between keeps its fsyncs: they are of one file each, a commit is of the file system.
#[test]
fn a_program_that_only_writes_keeps_its_fsyncs() {
    let scene = Scene::new();
    let program = "\
import os
for i in range(20):
    log = os.open(f'log{i}', os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(log, b'x' * 100)
    os.fsync(log)
";
    assert!(python(&scene, "", program).status().unwrap().success());
    assert_eq!(scene.stats()["fsyncs_committed"], 0);
}

/// C libraries ask for the socket of a name service with each user that they look up.
#[test]
fn a_socket_that_is_not_there_costs_no_commit() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let program = "\
import os, socket
log = os.open('dir/log', os.O_WRONLY | os.O_CREAT, 0o600)
for i in range(30):
    os.write(log, b'x')
    s = socket.socket(socket.AF_UNIX)
    try: s.connect('dir/nobody')
    except FileNotFoundError: s.close()
    else: raise SystemExit(1)
";
    assert!(python(&scene, "--volume image:dir", program).status().unwrap().success());
    let stats = scene.stats();
    assert_eq!((&stats["barriers"]["connect"], &stats["waits"]["connect"]), (&NONE, &NONE), "{stats}");
}
