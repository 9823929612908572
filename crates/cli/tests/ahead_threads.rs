//! Processes with several threads run ahead, and are taken back with all of them
//! ([0115](../../../docs/decisions/0115-threads-run-ahead.md)).

use crate::support;

use support::guess::{check_both_ends as check, check_failure};

use rustix::process::{kill_process, Pid, Signal};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

#[test]
fn two_threads_and_what_they_count_behind_a_lock() {
    let program = r#"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int count, turn;
static void *add(void *unused) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (turn == 0) pthread_cond_wait(&changed, &lock);
        count += turn; turn = 0;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
}
static void give(int n) {
    pthread_mutex_lock(&lock);
    turn = n; pthread_cond_signal(&changed);
    while (turn) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
int main(int argc, char **argv) {
    pthread_t other; char line[64];
    CHECK(pthread_create(&other, NULL, add, NULL) == 0);
    give(1); say("start\n");
    long id = begin();
    if (id < 0) { give(2); snprintf(line, 64, "again %d\n", count); say(line); return 0; }
    for (int i = 0; i < 100; i++) give(10);
    snprintf(line, 64, "ahead %d\n", count); say(line);
    finish(id, argv[1]);
    give(1); snprintf(line, 64, "after %d\n", count); say(line);
    return 0;
}"#;
    check("lock", program, "start\nagain 3\n", "start\nahead 1001\nafter 1002\n", &["futex", "write"]);
}

#[test]
fn threads_are_born_and_end_on_a_guess() {
    let program = r#"
static int count;
static void *add(void *n) { __atomic_add_fetch(&count, (int)(long)n, __ATOMIC_SEQ_CST); return n; }
static pthread_t start(long n) { pthread_t t; CHECK(pthread_create(&t, NULL, add, (void *)n) == 0); return t; }
static volatile int go;
static void *wait_for_go(void *n) { while (!go) sched_yield(); return add(n); }
int main(int argc, char **argv) {
    char line[64]; pthread_t early;
    CHECK(pthread_create(&early, NULL, wait_for_go, (void *)5) == 0);
    say("start\n");
    long id = begin();
    if (id < 0) {
        go = 1; pthread_join(early, NULL); pthread_join(start(2), NULL);
        snprintf(line, 64, "again %d\n", count); say(line); return 0;
    }
    // One that was there ends, others come and go.
    go = 1; pthread_join(early, NULL);
    for (int i = 0; i < 10; i++) { pthread_t a = start(1), b = start(1); pthread_join(a, NULL); pthread_join(b, NULL); }
    snprintf(line, 64, "ahead %d\n", count); say(line);
    finish(id, argv[1]);
    pthread_join(start(1), NULL);
    snprintf(line, 64, "after %d\n", count); say(line);
    return 0;
}"#;
    check("born", program, "start\nagain 7\n", "start\nahead 25\nafter 26\n", &["clone3", "clone", "exit"]);
}

#[test]
fn a_child_that_another_thread_made_before_the_guess_is_waited_for() {
    // Who is whose child was learned by thread: the first thread waited for a child that seemed to be another's, and
    // was not told of its end.
    let program = r#"
static int to_child[2];
static volatile pid_t child;
static void *make(void *unused) {
    pid_t made = fork();
    if (made == 0) { char c; close(to_child[1]); _exit(read(to_child[0], &c, 1) == 1 ? c : 99); }
    child = made;
    for (;;) pause();
}
static int end_of_child(char code) {
    int status; CHECK(write(to_child[1], &code, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child);
    return WEXITSTATUS(status);
}
int main(int argc, char **argv) {
    pthread_t maker; char line[64];
    CHECK(pipe(to_child) == 0 && pthread_create(&maker, NULL, make, NULL) == 0);
    while (!child) sched_yield();
    say("start\n");
    long id = begin();
    if (id < 0) { snprintf(line, 64, "again %d\n", end_of_child(7)); say(line); return 0; }
    snprintf(line, 64, "ahead %d\n", end_of_child(5)); say(line);
    finish(id, argv[1]);
    return 0;
}"#;
    check("another's", program, "start\nagain 7\n", "start\nahead 5\n", &["wait4", "write", "exit_group"]);
}

#[test]
fn children_that_end_at_the_same_time_are_all_heard_of() {
    // Each time that the first thread stopped it was told of one child. Of the others it would have been told before
    // its next call, and it made none, so that the thread that waits for them waited for ever.
    let program = r#"
enum { CHILDREN = 20 };
static pid_t child[CHILDREN];
static int ends[2], sum;
static void hear(int number) { (void)number; }
static void *wait_for_all(void *unused) {
    int status;
    for (int i = 0; i < CHILDREN; i++) { EQUAL(waitpid(child[i], &status, 0), child[i]); sum += WEXITSTATUS(status); }
    return unused;
}
static int all(void) {
    pthread_t other; char c;
    signal(SIGCHLD, hear);
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < CHILDREN; i++)
        if ((child[i] = fork()) == 0) { close(ends[1]); _exit(read(ends[0], &c, 1) == 0 ? 1 : 99); }
    close(ends[1]);
    CHECK(pthread_create(&other, NULL, wait_for_all, NULL) == 0 && pthread_join(other, NULL) == 0);
    return sum;
}
int main(int argc, char **argv) {
    char line[64];
    say("start\n");
    long id = begin();
    if (id < 0) { snprintf(line, 64, "again %d\n", all()); say(line); return 0; }
    snprintf(line, 64, "ahead %d\n", all()); say(line);
    finish(id, argv[1]);
    return 0;
}"#;
    check("burst", program, "start\nagain 20\n", "start\nahead 20\n", &["wait4", "write", "exit_group"]);
}

#[test]
fn a_thread_that_is_not_the_first_guesses_and_is_taken_back_to_its_call() {
    let program = r#"
static volatile int seen;
static const char *how;
static void *work(void *unused) {
    long id = begin();
    if (id < 0) { seen += 1; say("again\n"); return NULL; }
    seen += 10; say("ahead\n");
    finish(id, how);
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t t; char line[64]; how = argv[1];
    CHECK(pthread_create(&t, NULL, work, NULL) == 0);
    CHECK(pthread_join(t, NULL) == 0);
    snprintf(line, 64, "seen %d\n", seen); say(line);
    return 0;
}"#;
    check("other", program, "again\nseen 1\n", "ahead\nseen 10\n", &[]);
}

/// One thread waits at a call that cannot be undone: the others go on.
#[test]
fn a_thread_that_waits_for_the_guess_keeps_nobody_from_going_on() {
    let program = r#"
static volatile int waits, count;
static void *mark(void *unused) { waits = 1; mknod("node", S_IFSOCK | 0600, 0); waits = 2; return NULL; }
int main(int argc, char **argv) {
    pthread_t t; char line[64];
    say("start\n");
    long id = begin();
    if (id < 0) { say("again\n"); return access("node", F_OK) == 0; }
    CHECK(pthread_create(&t, NULL, mark, NULL) == 0);
    while (!waits) sched_yield();
    for (int i = 0; i < 1000; i++) { count++; sched_yield(); }
    snprintf(line, 64, "ahead %d %d\n", count, waits); say(line);
    finish(id, argv[1]);
    CHECK(pthread_join(t, NULL) == 0);
    snprintf(line, 64, "after %d\n", waits); say(line);
    return access("node", F_OK) != 0;
}"#;
    check("waits", program, "start\nagain\n", "start\nahead 1000 1\nafter 2\n", &[]);
}

/// Its process ends on a guess: none of its threads goes on, and all of them are there again.
#[test]
fn a_process_with_threads_ends_on_a_guess() {
    let program = r#"
static volatile int steps;
static void *step(void *unused) { for (;;) { steps++; usleep(100); } }
int main(int argc, char **argv) {
    char line[64];
    say("start\n");
    int ends[2]; OK(pipe(ends));
    pid_t child = OK(fork());
    if (child == 0) {
        close(ends[1]);
        pthread_t t; CHECK(pthread_create(&t, NULL, step, NULL) == 0);
        while (steps < 3) sched_yield();
        char byte; while (read(ends[0], &byte, 1) == 1) { if (byte == 'x') exit(4); if (byte == 'y') exit(5); }
        exit(6);
    }
    long id = begin();
    if (id < 0) {
        OK(write(ends[1], "y", 1));
        snprintf(line, 64, "again %d\n", wait_for(child)); say(line); return 0;
    }
    OK(write(ends[1], "x", 1));
    snprintf(line, 64, "ahead %d\n", wait_for(child)); say(line);
    finish(id, argv[1]);
    say("after\n");
    return 0;
}"#;
    check("ends", program, "start\nagain 5\n", "start\nahead 4\nafter\n", &["exit_group", "wait4"]);
}

/// The threads that it ends were born since the checkpoint: what is executed runs ahead, and is taken back.
#[test]
fn a_process_with_threads_executes_a_program_on_a_guess() {
    let program = r#"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static volatile int ready;
static void *wait_for_lock(void *unused) { ready++; pthread_mutex_lock(&lock); return NULL; }
static void *wait_for_bytes(void *unused) { char byte; ready++; return (void *)read(ends[0], &byte, 1); }
static void *turn(void *unused) { ready++; for (;;) sched_yield(); }
static void start(void *(*what)(void *)) {
    pthread_t t; int before = ready;
    CHECK(pthread_create(&t, NULL, what, NULL) == 0);
    while (ready == before) sched_yield();
}
int main(int argc, char **argv) {
    char guess[32];
    if (argc > 2) { say("executed\n"); finish(atol(argv[2]), argv[1]); say("after\n"); return 0; }
    say("start\n");
    long id = begin();
    if (id < 0) { say("again\n"); return 0; }
    OK(pipe2(ends, O_CLOEXEC));
    pthread_mutex_lock(&lock);
    start(wait_for_lock); start(wait_for_bytes); start(turn);
    snprintf(guess, sizeof guess, "%ld", id);
    execl("/proc/self/exe", "again", argv[1], guess, NULL);
    return 1;
}"#;
    check("execs", program, "start\nagain\n", "start\nexecuted\nafter\n", &["execve"]);
}

/// A thread that the checkpoint has could not come back: the call waits, and nobody ends the guess but us.
#[test]
fn a_thread_that_a_rollback_needs_is_not_ended_by_exec() {
    let program = r#"
static void *sleep_for_ever(void *unused) { for (;;) pause(); }
int main(int argc, char **argv) {
    pthread_t t;
    if (argc > 2) { say("executed\n"); return 0; }
    CHECK(pthread_create(&t, NULL, sleep_for_ever, NULL) == 0);
    say("start\n");
    long id = begin();
    if (id < 0) { say("again\n"); return 0; }
    if (OK(fork()) == 0) { sleep_ms(100); finish(id, "fail"); _exit(0); }
    execl("/proc/self/exe", "again", argv[1], "x", NULL);
    return 1;
}"#;
    check("needed", program, "start\nagain\n", "start\nagain\n", &[]);
}

/// A process one thread of which waits for a guess comes to no end, though another one looks around all the time; nor
/// does who polls for that end. Nobody ends the guess but us.
#[test]
fn a_thread_that_looks_around_keeps_no_guess_open() {
    let program = r#"
import threading
guess = begin()
if guess < 0: show('again'); sys.exit()
r, w = os.pipe()
if os.fork() == 0:
    def look_around():
        while True: time.sleep(0.001)
    threading.Thread(target=look_around, daemon=True).start()
    libc.mlock(ctypes.create_string_buffer(4096), 4096)
    os._exit(0)
os.close(w)
poll = select.poll()
poll.register(r, select.POLLIN)
poll.poll()
show('over')
"#;
    check_failure(program, "again\n", &[]);
}

/// A thread that executes gets the id of the first one, of which nobody who waits for it to stop is told.
#[test]
fn a_thread_executes_while_the_others_guess() {
    check_threads_exec("thread_exec", &["--inject", "all:0%:3"]);
}

/// What is done to the first thread, which has stopped to ask something, must not be done to the new program, which has
/// its id: that ran without the agent, and ended by SIGSEGV.
#[test]
fn a_thread_executes_while_the_first_one_asks() {
    // Seldom a guess: the `exec` waits for a moment without one.
    check_threads_exec("thread_exec_busy", &["--inject", "close:0%:1"]);
    check_threads_exec("thread_exec_busy", &["--interpose=stops"]);
}

/// A program of `tests/programs` in which threads execute programs ends inside as natively.
fn check_threads_exec(name: &str, options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(name).display().to_string();
    let source = format!("{}/../../tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    assert!(Command::new("cc").args(["-O1", "-pthread", "-o", &program, &source]).status().unwrap().success());
    let run = |words: &[&str]| -> Output {
        let mut limited = Command::new("timeout");
        limited.args(["--signal=KILL", "300"]).args(words).arg(&program).stdin(Stdio::null()).output().unwrap()
    };
    let expected = run(&[]);
    assert!(expected.status.success());
    // It may take many seconds: others guess all the time, and who executes waits for a moment without a guess.
    for seed in 1..=3 {
        let seed = seed.to_string();
        let words = [&[env!("CARGO_BIN_EXE_speculator"), "run"], options, &["--seed", &seed, "--"]].concat();
        let inside = run(&words);
        assert_eq!((inside.status.code(), inside.stdout), (Some(0), expected.stdout.clone()), "seed {seed}");
    }
}

/// Who waits for a semaphore in shared memory is woken by somebody inside only: it keeps no guess open.
#[test]
fn who_waits_for_a_semaphore_keeps_no_guess_open() {
    let program = r#"
import multiprocessing
guess = begin()
if guess < 0: show('again'); sys.exit()
semaphore = multiprocessing.Semaphore(0)
if os.fork() == 0:
    semaphore.acquire()
    os._exit(0)
libc.mlock(ctypes.create_string_buffer(4096), 4096)
show('over')
"#;
    check_failure(program, "again\n", &[]);
}

/// While one thread makes files, whose descriptors the supervisor gives it, another one is given numbers by the kernel:
/// each is of the file that was opened. (`go build` found that its files had changed.)
#[test]
fn two_threads_never_get_the_same_number() {
    let program = r#"
enum { FILES = 400 };
static volatile int done;
static ino_t other;
static void *open_and_close(void *unused) {
    struct stat found;
    while (!done) {
        int fd = OK(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
        OK(fstat(fd, &found));
        EQUAL(found.st_ino, other);
        OK(close(fd));
    }
    return unused;
}
int main(int argc, char **argv) {
    pthread_t thread; struct stat found; char name[32]; ino_t last = 0;
    OK(stat("/etc/passwd", &found));
    other = found.st_ino;
    long id = begin();
    CHECK(pthread_create(&thread, NULL, open_and_close, NULL) == 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "new-%d", i);
        int fd = OK(open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
        EQUAL(write(fd, name, strlen(name)), (ssize_t)strlen(name));
        OK(fstat(fd, &found));
        CHECK(found.st_ino != other && found.st_ino != last && found.st_size == (off_t)strlen(name));
        last = found.st_ino;
        OK(close(fd));
    }
    done = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    say(id < 0 ? "again\n" : "ahead\n");
    if (id >= 0) finish(id, argv[1]);
    return 0;
}"#;
    check("numbers", program, "again\n", "ahead\n", &["openat", "ftruncate"]);
}

/// A process with several threads, which stop once more before they end (`mq_notify`), is killed from outside, and the
/// supervisor hears of that only when it takes the process back. What it knew of the threads' stops was lost: the
/// process stood for ever, and the rollback waited for it.
#[test]
fn threads_on_their_way_to_their_end_are_not_forgotten_by_a_rollback() {
    const PROGRAM: &str = r#"
#include "check.h"
#include <pthread.h>
static void *wait_long(void *unused) { for (;;) sleep(1000); return unused; }
int main(void) {
    int pipes[2]; long id; pthread_t thread; char text[40];
    OK(pipe(pipes));
    pid_t victim = OK(fork());
    if (victim == 0) {
        close(pipes[0]);
        syscall(SYS_mq_notify, -1, 0);
        for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, wait_long, NULL);
        id = syscall(0x5bed, 1, 0, 0);
        OK(write(pipes[1], &id, sizeof id));
        wait_long(NULL);
    }
    close(pipes[1]);
    sprintf(text, "%d %d\n", getpid(), victim);
    OK(write(1, text, strlen(text)));
    if (read(pipes[0], &id, sizeof id) == sizeof id && OK(fork()) == 0) {
        sleep_ms(1000);
        syscall(0x5bed, 3, id, 0);
        _exit(0);
    }
    sprintf(text, "%d\n", wait_for(victim));
    OK(write(1, text, strlen(text)));
    return 0;
}"#;
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("killed.c"), dir.path().join("killed"));
    std::fs::write(&source, PROGRAM).unwrap();
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-I", headers]).arg(&source).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success());

    let mut run = Command::new("timeout");
    run.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_speculator"), "run", "--"]).arg(&program);
    let mut run = run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let pids: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let [first, victim] = pids[..] else { panic!("{line:?}") };
    // The one that will say that the guess was wrong sleeps.
    let sleeps = |pid: &i32| *pid != victim && read(*pid, "syscall").starts_with("230 ");
    let last = until(|| children(first).into_iter().find(sleeps));
    let status = read(victim, "status");
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap().trim().parse().unwrap();
    signal(tracer, Signal::STOP);
    signal(victim, Signal::KILL);
    until(|| (state(last) == 't' && state(victim) != 'S').then_some(()));
    signal(tracer, Signal::CONT);

    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(run.wait().unwrap().success(), "it does not end");
    assert_eq!(rest, "137\n");
}

/// A thread that makes pipes is often kept from its processor where it has made one and not told of it yet. A child
/// that another thread makes has that pipe and executes a program before it is told of: whoever reads from the pipe
/// hears of its end all the same (decision 0232). Without the wait for that thread most runs stand still.
#[test]
fn a_child_waits_until_its_pipe_is_told_of() {
    let program = r#"
static volatile int made[2], is_over;
static void *make_pipes(void *count) {
    cpu_set_t first; CPU_ZERO(&first); CPU_SET(0, &first);
    OK(sched_setaffinity(0, sizeof first, &first));
    while (!is_over) {
        int ends[2]; char byte;
        OK(pipe2(ends, O_CLOEXEC)); OK(close(ends[1])); EQUAL(read(ends[0], &byte, 1), 0); OK(close(ends[0]));
        *(volatile int *)count = 1;
    }
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t makers[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&makers[i], NULL, make_pipes, (void *)&made[i]) == 0);
    while (!made[0] || !made[1]) sleep_ms(1);
    long id = begin();
    if (id < 0) { say("again\n"); return 0; }
    for (int i = 0; i < 400; i++) {
        pid_t child = OK(fork());
        if (child == 0) { execl("/bin/true", "true", NULL); _exit(1); }
        EQUAL(wait_for(child), 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++) pthread_join(makers[i], NULL);
    say("ahead\n"); finish(id, argv[1]);
    return 0;
}"#;
    // Outside of the world: it takes the processor away for 4 ms, and gives it back for a moment.
    let takes_processor = "
import os, time
os.sched_setaffinity(0, {0}); os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
end = time.monotonic() + 100
while os.getppid() != 1 and time.monotonic() < end:
    until = time.monotonic() + 0.004
    while time.monotonic() < until: pass
    time.sleep(0.0003)
";
    let mut other = Command::new("python3").args(["-c", takes_processor]).spawn().unwrap();
    let checked = std::panic::catch_unwind(|| check("untold", program, "again\n", "ahead\n", &["execve", "close"]));
    other.kill().unwrap();
    other.wait().unwrap();
    checked.unwrap();
}

fn read(pid: i32, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

fn state(pid: i32) -> char {
    let stat = read(pid, "stat");
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('X')
}

fn children(pid: i32) -> Vec<i32> {
    read(pid, &format!("task/{pid}/children")).split_whitespace().map(|child| child.parse().unwrap()).collect()
}

#[track_caller]
fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Look again until there is one, for as long as one that is to come may take.
#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it never comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}
