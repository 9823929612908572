//! Ends on a guess, and what is told of them: signals that a process's own clock sends it, waits with arguments that
//! the kernel refuses when it has waited, parents that leave waiting to the kernel
//! ([0289](../../../docs/decisions/0289-ends-as-they-are-natively.md)).

use crate::support;

use support::guess::check_both_ends;

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
