//! Ends on a guess, and what is told of them: signals that a process's own clock sends it, waits with arguments that
//! the kernel refuses when it has waited, parents that leave waiting to the kernel
//! ([0289](../../../docs/decisions/0289-ends-as-they-are-natively.md)).

use crate::support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use support::guess::check_both_ends;
use support::is_root;

/// What a program looks at, once without its guess and once inside it, is the same whichever way the guess ends.
/// `look` says it; `before` is done before the guess.
#[track_caller]
fn check(name: &str, program: &str, said: &str) {
    const MAIN: &str = r#"
int main(int argc, char **argv) {
    before();
    long id = begin();
    look();
    if (id >= 0) { finish(id, argv[1]); say("kept\n"); }
    return 0;
}"#;
    check_both_ends(name, &format!("{SAYS}{program}{MAIN}"), said, &format!("{said}kept\n"), &[]);
}

const SAYS: &str = r#"
static void says(const char *format, ...) {
    char line[200]; va_list all;
    va_start(all, format); vsnprintf(line, sizeof line, format, all); va_end(all);
    say(line);
}
/* What a call has returned, or its error. */
#define RESULT(call) ({ errno = 0; long result = (call); result < 0 ? -errno : result; })
"#;

#[test]
fn a_process_is_ended_by_its_own_timer() {
    let program = r#"
static void before(void) {}
static void look(void) {
    pid_t child = OK(fork());
    if (child == 0) {
        timer_t timer; struct itimerspec soon = {{0, 0}, {0, 50000000}};
        OK(timer_create(CLOCK_REALTIME, NULL, &timer)); OK(timer_settime(timer, 0, &soon, NULL));
        while (1) pause();
    }
    says("ended by %d\n", wait_for(child) - 128);
}"#;
    check("timer", program, "ended by 14\n");
}

#[test]
fn a_process_is_ended_by_its_limit_of_cpu_time() {
    let program = r#"
#include <sys/resource.h>
static void before(void) {}
static void look(void) {
    pid_t child = OK(fork());
    if (child == 0) {
        struct rlimit limit;
        OK(getrlimit(RLIMIT_CPU, &limit)); limit.rlim_cur = 1; OK(setrlimit(RLIMIT_CPU, &limit));
        for (volatile long i = 0;; i++) {}
    }
    says("ended by %d\n", wait_for(child) - 128);
}"#;
    check("cpu_time", program, "ended by 24\n");
}

/// The child was waited for all the same.
#[test]
fn a_wait_that_cannot_write_has_waited() {
    let program = r#"
static char *page;
static void before(void) {
    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
}
static void try(const char *what, int nr, void *at, void *usage) {
    pid_t child = OK(fork());
    if (child == 0) _exit(7);
    long first = nr == SYS_wait4 ? RESULT(syscall(nr, child, at, 0, usage))
                                 : RESULT(syscall(nr, P_PID, child, at, WEXITED, usage));
    says("%s %ld %ld\n", what, first, RESULT(waitpid(child, NULL, 0)));
}
static void look(void) {
    try("status", SYS_wait4, (void *)8, NULL);
    try("read-only", SYS_wait4, page, NULL);
    try("usage", SYS_wait4, NULL, (void *)8);
    try("info", SYS_waitid, (void *)8, NULL);
    try("usage of info", SYS_waitid, NULL, page);
    says("none %ld\n", RESULT(syscall(SYS_waitid, P_ALL, 0, page, WEXITED, NULL)));
}"#;
    let said = "status -14 -10\nread-only -14 -10\nusage -14 -10\ninfo -14 -10\nusage of info -14 -10\nnone -14\n";
    check("refused", program, said);
}

#[test]
fn a_wait_without_a_child_says_so_in_memory() {
    let program = r#"
static int gate[2], fd; static pid_t child;
static void before(void) {
    char byte;
    OK(pipe(gate));
    child = OK(fork());
    if (child == 0) _exit(read(gate[0], &byte, 1) != 1);
    fd = OK(syscall(SYS_pidfd_open, child, O_NONBLOCK));
}
static void show(const char *what, long result, siginfo_t *info) {
    const unsigned char *bytes = (void *)info;
    int is_rest_kept = 1;
    for (unsigned i = 28; i < sizeof *info; i++) is_rest_kept &= bytes[i] == 0xee;
    says("%s %ld: signal %d code %d child %d %d\n", what, result, info->si_signo, info->si_code,
         info->si_pid == child ? 1 : info->si_pid, is_rest_kept);
}
static void look(void) {
    siginfo_t info;
#define TRY(what, kind, id, flags) ({ \
        memset(&info, 0xee, sizeof info); \
        long result = RESULT(syscall(SYS_waitid, kind, id, &info, flags, NULL)); \
        show(what, result, &info); })
    TRY("lives", P_PID, child, WEXITED | WNOHANG);
    TRY("does not block", 3, fd, WEXITED);
    TRY("does not hang", 3, fd, WEXITED | WNOHANG);
    EQUAL(write(gate[1], "x", 1), 1);
    TRY("looked at", P_PID, child, WEXITED | WNOWAIT);
    TRY("ended", 3, fd, WEXITED);
    TRY("none", P_ALL, 0, WEXITED);
}"#;
    let said = "lives 0: signal 0 code 0 child 0 1\ndoes not block -11: signal 0 code 0 child 0 1\n\
        does not hang 0: signal 0 code 0 child 0 1\nlooked at 0: signal 17 code 1 child 1 1\n\
        ended 0: signal 17 code 1 child 1 1\nnone -10: signal 0 code 0 child 0 1\n";
    check("no_child", program, said);
}

/// Whose a child was is told with its end, by the signal and by the wait. Whoever runs ahead is of the user who runs
/// the world.
#[test]
fn an_end_tells_of_the_user() {
    const PROGRAM: &str = r#"
#include "check.h"
static volatile int told;
static void on_child(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)context;
    told = info->si_uid + 1;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
    int gate[2]; char byte; siginfo_t info = {0};
    OK(sigaction(SIGCHLD, &action, NULL));
    OK(pipe(gate));
    pid_t child = OK(fork());
    if (child == 0) _exit(read(gate[0], &byte, 1) != 1);
    long id = syscall(0x5bed, 1, 0, 0);
    EQUAL(write(gate[1], "x", 1), 1);
    OK(waitid(P_PID, child, &info, WEXITED));
    while (!told) sleep_ms(1);
    dprintf(1, "%d %d\n", info.si_uid, told - 1);
    if (id >= 0) { OK(syscall(0x5bed, 2, id, 0)); dprintf(1, "kept\n"); }
    return 0;
}"#;
    const USER: &str = "1234";
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("user.c"), dir.path().join("user"));
    fs::write(&source, PROGRAM).unwrap();
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
    let compiled = Command::new("cc").args(["-O1", "-I", headers, "-o"]).arg(&program).arg(&source).status();
    assert!(compiled.unwrap().success());
    let speculator = dir.path().join("speculator");
    fs::copy(env!("CARGO_BIN_EXE_speculator"), &speculator).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "100"]);
    let user = match is_root() {
        true => {
            command.args(["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"]);
            USER.to_owned()
        }
        false => fs::metadata(&program).unwrap().uid().to_string(),
    };
    let output = command.arg(&speculator).args(["run", "--"]).arg(&program).current_dir("/").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{user} {user}\nkept\n"), "{errors}");
}

/// `timeout` signals its child, and then its own group, which it leads, and lets all of it go on.
#[test]
fn a_group_is_signalled_by_who_leads_it() {
    let program = r#"
static pid_t sleeper(int ignores) {
    pid_t child = OK(fork());
    if (child == 0) { signal(SIGTERM, ignores ? SIG_IGN : SIG_DFL); for (;;) pause(); }
    return child;
}
static pid_t children[4];
static void before(void) {
    OK(setpgid(0, 0));
    children[0] = sleeper(0); children[1] = sleeper(1); sleep_ms(100);
}
static void look(void) {
    children[2] = sleeper(0); children[3] = sleeper(1); sleep_ms(100);
    signal(SIGTERM, SIG_IGN); signal(SIGCONT, SIG_IGN);
    says("one %ld\n", RESULT(kill(children[0], SIGTERM)));
    says("all %ld\n", RESULT(kill(0, SIGTERM)));
    says("one goes on %ld\n", RESULT(kill(children[0], SIGCONT)));
    says("all go on %ld\n", RESULT(kill(0, SIGCONT)));
    for (int i = 0; i < 4; i++) {
        long lives = RESULT(waitpid(children[i], NULL, i % 2 ? WNOHANG : 0)) == 0;
        says("lives %ld\n", lives);
        if (lives) { OK(kill(children[i], SIGKILL)); says("killed %d\n", wait_for(children[i]) - 128); }
    }
    says("nobody %ld\n", RESULT(kill(0, SIGTERM)));
    signal(SIGTERM, SIG_DFL); signal(SIGCONT, SIG_DFL);
}"#;
    let ends = "lives 0\nlives 1\nkilled 9\n";
    let said = format!("one 0\nall 0\none goes on 0\nall go on 0\n{ends}{ends}nobody 0\n");
    check("own_group", program, &said);
}

/// A child whose parent ignores its end is there no more when it has ended, and nobody hears its status.
#[test]
fn who_is_not_waited_for_is_gone() {
    let program = r#"
static int gate[2]; static pid_t child;
static void before(void) {
    signal(SIGCHLD, SIG_IGN);
    OK(pipe(gate));
    child = OK(fork());
    char byte;
    if (child == 0) _exit(read(gate[0], &byte, 1) == 1 ? 3 : 4);
}
static void look(void) {
    says("lives %ld\n", RESULT(waitpid(child, NULL, WNOHANG)));
    EQUAL(write(gate[1], "x", 1), 1);
    for (int i = 0; i < 5000 && kill(child, 0) == 0; i++) sleep_ms(1);
    says("gone %ld %ld\n", RESULT(kill(child, 0)), RESULT(waitpid(child, NULL, 0)));
    pid_t own = OK(fork());
    if (own == 0) _exit(5);
    says("own %ld\n", RESULT(waitpid(-1, NULL, 0)));
    signal(SIGCHLD, SIG_DFL);
    says("later %ld\n", RESULT(waitpid(-1, NULL, 0)));
    signal(SIGCHLD, SIG_IGN);
}"#;
    check("ignored", program, "lives 0\ngone -3 -10\nown -10\nlater -10\n");
}

/// So it is where the parent says that by a flag, until it says otherwise.
#[test]
fn who_wants_no_zombies_has_none() {
    let program = r#"
static void before(void) {}
static void set(int flags) { on_signal(SIGCHLD, SIG_DFL, flags); }
static void child(const char *what) {
    int status = 0;
    pid_t child = OK(fork());
    if (child == 0) _exit(5);
    long result = RESULT(waitpid(child, &status, 0));
    says("%s %d %d\n", what, result == child ? 1 : (int)result, status >> 8);
}
static void look(void) {
    child("kept");
    set(SA_NOCLDWAIT); child("not kept");
    pid_t heir = OK(fork());
    if (heir == 0) { child("of an heir"); _exit(0); }
    says("heir %ld\n", RESULT(waitpid(-1, NULL, 0)));
    set(0); child("kept again");
}"#;
    let said = "kept 1 5\nnot kept -10 0\nof an heir -10 0\nheir -10\nkept again 1 5\n";
    check("no_zombies", program, said);
}

/// What waits already does not wait twice. The receiver, which makes no call meanwhile, blocks it for a second; where a
/// sender was slower than that, nothing is looked at.
#[test]
fn a_blocked_signal_is_heard_once() {
    let program = r#"
static int word[2]; static volatile int heard;
static void hear(int signal) { (void)signal; heard++; }
static void spin_until(long long end) { while (now_us() < end) {} }
int main(int argc, char **argv) {
    sigset_t mask; char byte, line[20]; long long end;
    OK(pipe(word));
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &mask, NULL));
    pid_t child = OK(fork());
    if (child == 0) {
        on_signal(SIGUSR1, hear, SA_RESTART);
        end = now_us() + 1000000;
        EQUAL(write(word[1], &end, 8), 8);
        spin_until(end);
        OK(sigprocmask(SIG_UNBLOCK, &mask, NULL));
        while (!heard) {}
        spin_until(now_us() + 200000);
        EQUAL(write(word[1], &(char){'0' + heard}, 1), 1);
        while (1) pause();
    }
    say("start\n");
    EQUAL(read(word[0], &end, 8), 8);
    long id = begin();
    for (int i = 0; i < (id < 0 ? 1 : 3); i++) OK(kill(child, SIGUSR1));
    int is_slow = now_us() > end;
    EQUAL(read(word[0], &byte, 1), 1);
    snprintf(line, sizeof line, "heard %c\n", is_slow ? '1' : byte); say(line);
    if (id >= 0) { finish(id, argv[1]); say("kept\n"); }
    OK(kill(child, SIGKILL)); wait_for(child);
    return 0;
}"#;
    check_both_ends("once", program, "start\nheard 1\n", "start\nheard 1\nkept\n", &["kill"]);
}

/// Whoever waits for a process that leaves a core is told so, and finds the core, when the guess is resolved on which
/// the process ended.
#[test]
fn who_leaves_a_core_has_left_it() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '@', '/']) {
        return;
    }
    let program = r#"
#include <dirent.h>
#include <sys/resource.h>
static int has_core(void) {
    DIR *dir = opendir("."); struct dirent *entry; int found = 0;
    while ((entry = readdir(dir))) found |= strncmp(entry->d_name, "core", 4) == 0;
    closedir(dir);
    return found;
}
int main(int argc, char **argv) {
    int gate[2], status; char byte, line[99];
    OK(pipe(gate));
    pid_t child = OK(fork());
    if (child == 0) {
        struct rlimit limit;
        OK(getrlimit(RLIMIT_CORE, &limit)); limit.rlim_cur = limit.rlim_max; OK(setrlimit(RLIMIT_CORE, &limit));
        EQUAL(read(gate[0], &byte, 1), 1);
        abort();
    }
    pid_t guesser = OK(fork());
    if (guesser == 0) {
        long id = begin();
        EQUAL(write(gate[1], "x", 1), 1);
        sleep_ms(500);
        if (id >= 0) finish(id, argv[1]);
        _exit(0);
    }
    EQUAL(OK(waitpid(child, &status, 0)), child);
    int is_there = has_core();
    wait_for(guesser);
    snprintf(line, sizeof line, "ended by %d, core %d %d\n", WTERMSIG(status), WCOREDUMP(status) != 0, is_there);
    say(line);
    return 0;
}"#;
    check_both_ends("cores", program, "ended by 6, core 1 1\n", "ended by 6, core 1 1\n", &[]);
}
