//! Calls with a limit of time that a signal without effect has interrupted: the kernel goes on with what it remembers
//! of them (`restart_syscall`), which is the last one of each thread only.

use crate::ahead_young::BEFORE;
use crate::support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::guess::check_both_ends as check;

#[test]
fn who_is_taken_back_polls_its_own_descriptors() {
    // The end of a child interrupts the first poll, which goes on and finds what is a guess. The second one is
    // interrupted by the rollback. Who went on with it would find that 400 is not open, and write so.
    let program = r#"
int main(int argc, char **argv) {
    int first[2], second[2];
    OK(pipe(first)); OK(pipe(second));
    struct pollfd a = {first[0], POLLIN, 0}, b = {400, POLLIN, 0};
    pid_t brief = OK(fork());
    if (brief == 0) { sleep_ms(20); _exit(0); }
    pid_t writer = OK(fork());
    if (writer == 0) {
        sleep_ms(60);
        long id = begin();
        OK(write(first[1], id < 0 ? "n" : "y", 1));
        sleep_ms(150);
        if (id >= 0) finish(id, argv[1]);
        _exit(0);
    }
    char line[64], byte;
    int found = poll(&a, 1, 3000);
    int other = b.revents;
    OK(read(first[0], &byte, 1));
    if (byte == 'y') {
        b.fd = second[0];
        found += poll(&b, 1, 300);
    }
    snprintf(line, 64, "%c: found %d, the other %x\n", byte, found, other); say(line);
    EQUAL(wait_for(brief), 0); EQUAL(wait_for(writer), 0);
    return 0;
}"#;
    let right = "y: found 1, the other 0\n";
    check("poll", program, "n: found 1, the other 0\n", right, &["poll", "restart_syscall"]);
}

#[test]
fn a_thread_sleeps_on_however_often_checkpoints_interrupt_it() {
    let program = r#"
static int slept = 7, waited = 7, polled = 7;
static long long took;
static void *sleeper(void *unused) {
    struct timespec time = {0, 400000000}, left;
    long long start = now_us();
    slept = nanosleep(&time, &left) == 0 ? 0 : errno;
    took = now_us() - start;
    return NULL;
}
static void *waiter(void *unused) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until; clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_mutex_lock(&lock);
    waited = pthread_cond_timedwait(&never, &lock, &until);
    return NULL;
}
static void *poller(void *unused) {
    struct pollfd none = {-1, 0, 0};
    polled = poll(&none, 1, 400) == 0 ? 0 : errno;
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t threads[3]; char line[64];
    void *(*what[3])(void *) = {sleeper, waiter, poller};
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, what[i], NULL) == 0);
    sleep_ms(50);
    for (int i = 0; i < 3; i++) { long id = begin(); sleep_ms(5); finish(id, "commit"); }
    long id = begin();
    if (id >= 0) { sleep_ms(50); finish(id, argv[1]); }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    const char *end = id < 0 ? "failed" : "right";
    snprintf(line, 64, "%s: %d %d %d %d\n", end, slept, waited == ETIMEDOUT, polled, took >= 400000); say(line);
    return 0;
}"#;
    check("sleep", program, "failed: 0 1 0 1\n", "right: 0 1 0 1\n", &["nanosleep", "poll", "restart_syscall"]);
}

#[test]
fn a_program_that_never_asks_is_taken_back() {
    // It is known, and begins with a permit: nothing of what it does before it sleeps is asked about.
    let (_dir, sleeper) = sleeper();
    let program = r#"
int main(int argc, char **argv) {
    int pipes[2]; long id;
    OK(pipe(pipes));
    pid_t child = OK(fork());
    if (child == 0) { run(0); _exit(1); }
    EQUAL(wait_for(child), 0);
    child = OK(fork());
    if (child == 0) {
        id = begin();
        OK(write(pipes[1], &id, sizeof id));
        if (id < 0) _exit(3);
        run(1000);
    }
    EQUAL(read(pipes[0], &id, sizeof id), sizeof id);
    if (id < 0) { EQUAL(wait_for(child), 3); say("failed\n"); return 0; }
    sleep_ms(300);
    finish(id, argv[1]);
    OK(kill(child, SIGKILL)); EQUAL(wait_for(child), 137); say("right\n");
    return 0;
}"#;
    check("sleeper", &format!("{}{program}", run_of(&sleeper)), "failed\n", "right\n", &[]);
}

#[test]
fn a_program_that_never_asks_is_killed_on_a_guess() {
    // Its agent is there, and says so by no call: whoever kills it waits for nothing.
    let (_dir, sleeper) = sleeper();
    let program = r#"
int main(int argc, char **argv) {
    pid_t child = OK(fork());
    if (child == 0) { run(0); _exit(1); }
    EQUAL(wait_for(child), 0);
    long id = begin();
    if (id < 0) { say("failed\n"); return 0; }
    child = OK(fork());
    if (child == 0) { run(1000); _exit(1); }
    // No call comes in between that would take the permit away.
    for (volatile long i = 0; i < 300000000; i++) {}
    OK(kill(child, SIGKILL));
    EQUAL(wait_for(child), 137);
    finish(id, argv[1]);
    say("right\n");
    return 0;
}"#;
    check("killer", &format!("{}{program}", run_of(&sleeper)), "failed\n", "right\n", &[]);
}

/// A program that sleeps as many seconds as it has arguments, and asks about nothing.
fn sleeper() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (text, sleeper) = (dir.path().join("sleeper.c"), dir.path().join("sleeper"));
    std::fs::write(&text, "#include <unistd.h>\nint main(int count, char **words) { sleep(count - 1); }").unwrap();
    let compiled = Command::new("cc").args(["-O1", "-static"]).arg(&text).arg("-o").arg(&sleeper).status();
    assert!(compiled.unwrap().success());
    (dir, sleeper)
}

/// How C programs execute it; the first one to do so makes it known.
fn run_of(sleeper: &Path) -> String {
    let program = r#"
static void run(int times) {
    char *words[1002] = {"sleeper"};
    for (int i = 1; i <= times; i++) words[i] = "x";
    execv("SLEEPER", words);
}"#;
    program.replace("SLEEPER", sleeper.to_str().unwrap())
}

#[test]
fn who_waits_for_a_child_hears_that_a_signal_has_ended_it() {
    // Nobody else does anything meanwhile: there is no other occasion to look at the parent's wait again.
    let program = r#"
int main(int argc, char **argv) {
    long id = begin();
    if (id < 0) { say("failed\n"); return 0; }
    pid_t child = OK(fork());
    if (child == 0) {
        for (volatile long i = 0; i < 300000000; i++) {}
        *(volatile int *)0 = 1;
    }
    EQUAL(wait_for(child), 128 + SIGSEGV);
    finish(id, argv[1]);
    say("right\n");
    return 0;
}"#;
    check("fault", program, "failed\n", "right\n", &[]);
}

/// The guess of a script in Python fails before a minute is over.
#[track_caller]
fn says_that_it_failed(script: &str) {
    let scene = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_speculator"), "run", "--", support::python().as_str(), "-c"])
        .arg(script)
        .current_dir(scene.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "failed\n", "{output:?}");
}

/// A guess that everything inside waits for fails, also where who waits handles signals all the time: it waits on, and
/// what it asks meanwhile is no progress (decision 0131).
#[test]
fn who_handles_signals_while_it_waits_for_a_guess_waits_on() {
    let script = format!(
        "{BEFORE}
import signal, socket
heard = []
signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
signal.setitimer(signal.ITIMER_REAL, .005, .005)
guess = begin()
if guess >= 0:
    socket.socket(socket.AF_UNIX).bind('name')
    print('never', flush=True)
signal.setitimer(signal.ITIMER_REAL, 0)
print('failed', flush=True)
"
    );
    says_that_it_failed(&script);
}

/// The same where somebody above who waits looks around all the time, as `git submodule` does.
#[test]
fn who_looks_around_above_a_child_that_waits_for_a_guess_goes_on_without_it() {
    let script = format!(
        "{BEFORE}
import select, socket
guess = begin()
if guess >= 0:
    ends = os.pipe()
    if os.fork() == 0:
        socket.socket(socket.AF_UNIX).bind('name')
        print('never', flush=True)
        os._exit(0)
    os.close(ends[1])
    while True:
        readable, _, _ = select.select([ends[0]], [], [], .05)
        if readable: break
    print('never', flush=True)
print('failed', flush=True)
"
    );
    says_that_it_failed(&script);
}

/// The same where somebody else waits for a signal all the time, as `wait` of a shell does.
#[test]
fn who_waits_for_a_signal_beside_one_who_waits_for_a_guess_goes_on_without_it() {
    let script = format!(
        "{BEFORE}
import signal, socket
guess = begin()
if guess >= 0:
    if os.fork() == 0:
        signal.pause()
        os._exit(0)
    socket.socket(socket.AF_UNIX).bind('name')
    print('never', flush=True)
print('failed', flush=True)
"
    );
    says_that_it_failed(&script);
}

/// A signal comes while a call is kept for a guess, where without us it would wait in the call: it is interrupted, and
/// does not begin again to wait for something that never comes (decision 0247).
#[test]
fn whoever_is_kept_in_a_call_that_waits_is_interrupted_by_a_signal() {
    let scene = support::Scene::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/interrupted_waits.c");
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(scene.path("program")).arg(source).status();
    assert!(compiled.unwrap().success());
    let said = |command: &mut Command, place: &str| {
        std::fs::create_dir(scene.path(place)).unwrap();
        let output = command.current_dir(scene.path(place)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let native = said(&mut Command::new(scene.path("program")), "outside");
    assert!(native.contains("poll: -1 interrupted soon 1 late 0\n"), "{native}");
    // Guesses take longer than the signal.
    for inject in ["all:0%:120", "all:50%:120"] {
        let mut inside = Command::new(env!("CARGO_BIN_EXE_speculator"));
        inside.args(["run", "--inject", inject, "--seed=1", "--"]).arg(scene.path("program"));
        assert_eq!(said(&mut inside, inject), native, "{inject}");
    }
}
