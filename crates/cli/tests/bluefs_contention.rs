//! Two mounts that want the same at the same time: results are right, attempts are bounded, and nobody starves.
//!
//! `cargo xtask contention` sets `BLUEFS_CONTENTION=all` for ten times as much. Mounts need root.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::network::{Network, Shape};

use crate::bluefs_support::{speculator, succeeds, text, Mount, Scene, Server};

/// How long an exclusive lease keeps others waiting, and a machine that has other work.
const STALL_MAX: Duration = Duration::from_secs(3 + 6);

fn times() -> usize {
    let all = std::env::var_os("BLUEFS_CONTENTION").is_some_and(|value| value == "all");
    if all {
        10
    } else {
        1
    }
}

fn two_mounts(scene: &Scene) -> (Server, [Mount; 2]) {
    let server = scene.serve();
    let mounts = ["a", "b"].map(|name| Mount::new(&server.address, &scene.path(name), &[]));
    (server, mounts)
}

/// Starts a script in a directory, with further arguments.
fn python(script: &str, dir: &Path, arguments: &[String]) -> Child {
    let mut python = Command::new("python3");
    python.args(["-c", script]).args(arguments).current_dir(dir).stdout(Stdio::piped());
    python.spawn().expect("python")
}

#[track_caller]
fn said(child: Child) -> String {
    let output = child.wait_with_output().expect("a child");
    assert!(output.status.success(), "{}", output.status);
    text(&output.stdout).trim().to_owned()
}

const APPEND: &str = r#"
import os, sys, time
name, count = sys.argv[1], int(sys.argv[2])
log = os.open('log', os.O_WRONLY | os.O_APPEND)
longest = 0
for i in range(count):
    begun = time.monotonic()
    os.write(log, b'%s %d %s\n' % (name.encode(), i, b'x' * 200))
    longest = max(longest, time.monotonic() - begun)
print(int(longest * 1000))
"#;

#[test]
fn two_that_append_lose_nothing_and_nobody_starves() {
    let scene = Scene::new();
    let (_server, mounts) = two_mounts(&scene);
    fs::write(mounts[0].0.join("log"), "").expect("written");
    let count = 60 * times();
    let begun = Instant::now();
    let both = ["a", "b"].map(|name| {
        let mount = &mounts[usize::from(name == "b")];
        python(APPEND, &mount.0, &[name.to_owned(), count.to_string()])
    });
    let longest = both.map(|child| said(child).parse::<u64>().expect("a number"));
    println!("{} appends in {} ms, the longest {longest:?} ms", 2 * count, begun.elapsed().as_millis());
    let log = fs::read_to_string(mounts[1].0.join("log")).expect("read");
    for name in ["a", "b"] {
        let own: Vec<&str> = log.lines().filter(|line| line.starts_with(name)).collect();
        let all: Vec<String> = (0..count).map(|i| format!("{name} {i} {}", "x".repeat(200))).collect();
        assert_eq!(own, all);
    }
    assert_eq!(log.lines().count(), 2 * count);
    assert!(longest.iter().all(|ms| Duration::from_millis(*ms) < STALL_MAX), "{longest:?} ms");
}

const LOCK: &str = r#"
import os, sys, time
count = int(sys.argv[1])
longest = tries = 0
for i in range(count):
    begun = time.monotonic()
    while True:
        tries += 1
        try:
            lock = os.open('lock', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            time.sleep(0.003)
    longest = max(longest, time.monotonic() - begun)
    f = os.open('count', os.O_RDWR)
    n = int(os.pread(f, 20, 0))
    os.pwrite(f, b'%d' % (n + 1), 0)
    os.close(f)
    os.close(lock)
    os.unlink('lock')
    time.sleep(0.003)
print(int(longest * 1000), tries)
"#;

#[test]
fn who_makes_a_lock_file_is_alone() {
    let scene = Scene::new();
    let (_server, mounts) = two_mounts(&scene);
    fs::write(mounts[0].0.join("count"), "0").expect("written");
    let count = 10 * times();
    let begun = Instant::now();
    let all = [0, 1, 0, 1].map(|i| python(LOCK, &mounts[i].0, &[count.to_string()]));
    let told = all.map(said);
    println!("{} turns in {} ms; longest wait in ms, and tries: {told:?}", 4 * count, begun.elapsed().as_millis());
    assert_eq!(fs::read_to_string(mounts[1].0.join("count")).expect("read"), (4 * count).to_string());
    assert!(!mounts[0].0.join("lock").exists());
}

/// A clock that is wrong by some seconds, for programs that are told so.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset(void) { const char *s = getenv("CLOCK_OFFSET"); return s ? atol(s) : 0; }
int clock_gettime(clockid_t clock, struct timespec *t) {
    int r = syscall(SYS_clock_gettime, clock, t);
    if (!r && clock == CLOCK_REALTIME) t->tv_sec += offset();
    return r;
}
int gettimeofday(struct timeval *t, void *zone) {
    int r = syscall(SYS_gettimeofday, t, zone);
    if (!r && t) t->tv_sec += offset();
    return r;
}
time_t time(time_t *at) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (at) *at = t.tv_sec;
    return t.tv_sec;
}
"#;

const MAKEFILE: &str = "NAMES := a b c d e f\n\
    all: out\n\
    out: $(NAMES:=.o)\n\tcat $^ > $@.$(WHO)\n\tmv $@.$(WHO) $@\n\
    %.o: %.c\n\tcat $< $< > $@.$(WHO)\n\tmv $@.$(WHO) $@\n";

#[test]
fn make_on_two_machines_with_different_clocks_makes_it_right() {
    let scene = Scene::new();
    let (_server, mounts) = two_mounts(&scene);
    fs::write(scene.path("clock.c"), CLOCK).expect("written");
    succeeds(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([scene.path("clock.so"), scene.path("clock.c")]));
    let make = |i: usize, offset: i32| {
        let mut make = Command::new("make");
        make.args(["-j2", &format!("WHO={i}")]).current_dir(&mounts[i].0).stdout(Stdio::null());
        make.env("LD_PRELOAD", scene.path("clock.so")).env("CLOCK_OFFSET", offset.to_string()).stderr(Stdio::piped());
        make
    };
    let dir = &mounts[0].0;
    fs::write(dir.join("Makefile"), MAKEFILE).expect("written");
    for round in 0..2 * times() {
        for name in ["a", "b", "c", "d", "e", "f"] {
            fs::write(dir.join(format!("{name}.c")), format!("{name}{round}\n")).expect("written");
        }
        let both = [make(0, 1), make(1, -1)].map(|mut make| make.spawn().expect("make"));
        for child in both {
            let output = child.wait_with_output().expect("a child");
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
        let expected: String = ["a", "b", "c", "d", "e", "f"].map(|name| format!("{name}{round}\n").repeat(2)).concat();
        for (i, mount) in mounts.iter().enumerate() {
            assert_eq!(fs::read_to_string(mount.0.join("out")).expect("read"), expected, "round {round}");
            let done = make(i, 0).arg("-q").status().expect("make");
            assert!(done.success(), "round {round}: it is not up to date for {i}");
        }
    }
}

/// A list takes a while over the line (2 s if all is tried). Another client replaces a file of it each 10 ms.
#[test]
fn a_long_batch_is_carried_out_although_another_writes_all_the_time() {
    let round_trip = Duration::from_millis(if times() > 1 { 75 } else { 40 });
    let scene = Scene::new();
    let network = Network::new(Shape { round_trip, ..Shape::default() }).expect("a network");
    let far = network.far().address();
    let store = scene.path("store");
    let mut serve = network.far().command(env!("CARGO_BIN_EXE_speculator"));
    serve.arg("serve").arg(&store).args(["--listen", &format!("{far}:7164")]);
    let _server = Server::by(serve);
    let invitation = scene.path("invitation");
    fs::write(&invitation, succeeds(speculator().arg("invite").arg(&store))).expect("written");
    let address = format!("bluefs://{far}:7164");
    // The writer is on the server's machine.
    let dir = scene.path("writer");
    fs::create_dir(&dir).expect("a directory");
    let mut mount = network.far().command(env!("CARGO_BIN_EXE_speculator"));
    succeeds(mount.args(["mount", &address]).arg(&dir).arg("--invitation").arg(&invitation));
    let mount = Mount(dir);
    fs::write(mount.0.join("hot"), "old").expect("written");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut longest, mut count) = (Duration::ZERO, 0);
            while !over.load(Ordering::SeqCst) {
                let begun = Instant::now();
                fs::write(mount.0.join("new"), format!("{count}")).expect("written");
                fs::rename(mount.0.join("new"), mount.0.join("hot")).expect("renamed");
                longest = longest.max(begun.elapsed());
                count += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            (longest, count)
        });
        let lines = (0..20).map(|i| format!("mkdir {i}\nwrite {i}/file x\n")).collect::<String>();
        fs::write(scene.path("list"), "append hot !\n".to_owned() + &lines + "rename hot was\n").expect("written");
        let mut batch = network.near().command(env!("CARGO_BIN_EXE_speculator"));
        batch.args(["bluefs", "batch", &address, "--invitation"]).arg(&invitation).arg(scene.path("list"));
        let begun = Instant::now();
        let output = batch.output().expect("it starts");
        let took = begun.elapsed();
        over.store(true, Ordering::SeqCst);
        let (longest, count) = writer.join().expect("no panic");
        println!("the batch took {} ms; {count} writes, the longest {} ms", took.as_millis(), longest.as_millis());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(longest < STALL_MAX, "a write took {longest:?}");
        let was = fs::read_to_string(mount.0.join("was")).expect("read");
        assert!(was.strip_suffix('!').is_some_and(|number| number.parse::<u64>().is_ok()), "{was}");
        assert_eq!(fs::read_to_string(mount.0.join("19/file")).expect("read"), "x");
    });
}
