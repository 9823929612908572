//! Timers and timer descriptors are set and read on a guess, and put back
//! ([0112](../../../docs/decisions/0112-timer-descriptors.md)).

use crate::support;

use support::guess::check_both_ends;

const CALLS: &[&str] = &["timerfd_settime", "timerfd_gettime", "read"];

/// Hundreds of seconds are far away, and what is left of them is told rounded.
const TIMER: &str = r#"
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <poll.h>
static int timer;
static void set(int flags, long value_ms, long interval_ms) {
    struct itimerspec to = {{interval_ms / 1000, interval_ms % 1000 * 1000000},
                            {value_ms / 1000, value_ms % 1000 * 1000000}};
    OK(timerfd_settime(timer, flags, &to, NULL));
}
/* What is left, the interval, and what was not read. */
static void show(const char *when) {
    struct itimerspec now; uint64_t ticks = 0; char line[99];
    OK(timerfd_gettime(timer, &now));
    int ready = OK(poll(&(struct pollfd){timer, POLLIN}, 1, 0));
    if (ready) EQUAL(read(timer, &ticks, 8), 8); else FAILS(read(timer, &ticks, 8), EAGAIN);
    long left = (now.it_value.tv_sec + 50) / 100, interval = now.it_interval.tv_sec / 100;
    snprintf(line, 99, "%s %ld %ld %lu\n", when, left, interval, (unsigned long)ticks);
    say(line);
}
"#;

#[track_caller]
fn check(name: &str, program: &str, failed: &str, right: &str) {
    check_both_ends(name, &format!("{TIMER}{program}"), failed, right, CALLS);
}

#[test]
fn a_timer_is_set_and_switched_off() {
    let program = r#"
int main(int argc, char **argv) {
    timer = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    set(0, 500000, 900000); say("start\n");
    long id = begin();
    if (id < 0) { show("again"); return 0; }
    show("guess"); set(0, 1, 700000); sleep_ms(20); show("short"); set(0, 0, 0); show("off");
    finish(id, argv[1]);
    show("after");
    return 0;
}"#;
    let right = "start\nguess 5 9 0\nshort 7 7 1\noff 0 0 0\nafter 0 0 0\n";
    check("set", program, "start\nagain 5 9 0\n", right);
}

#[test]
fn what_was_not_read_is_read_again() {
    let program = r#"
int main(int argc, char **argv) {
    timer = OK(timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK));
    set(0, 1, 300000); sleep_ms(20); say("start\n");
    long id = begin();
    if (id < 0) { show("again"); show("and"); return 0; }
    show("ahead"); show("and");
    finish(id, argv[1]);
    show("after");
    return 0;
}"#;
    let (failed, right) = ("start\nagain 3 3 1\nand 3 3 0\n", "start\nahead 3 3 1\nand 3 3 0\nafter 3 3 0\n");
    check("unread", program, failed, right);
}

/// Time passes also for those who are taken back.
#[test]
fn what_was_due_during_the_guess_has_come() {
    let program = r#"
int main(int argc, char **argv) {
    uint64_t ticks;
    timer = OK(timerfd_create(CLOCK_REALTIME, 0));
    set(0, 150, 0); say("start\n");
    long id = begin();
    if (id < 0) { EQUAL(read(timer, &ticks, 8), 8); EQUAL(ticks, 1); say("again\n"); return 0; }
    set(0, 0, 0); sleep_ms(300); set(0, 20, 0);
    EQUAL(read(timer, &ticks, 8), 8); EQUAL(ticks, 1); say("ahead\n");
    finish(id, argv[1]);
    return 0;
}"#;
    check("due", program, "start\nagain\n", "start\nahead\n");
}

#[test]
fn a_moment_of_the_clock_stays_one() {
    let program = r#"
static void flags(void) {
    char text[512], line[99], path[64]; snprintf(path, 64, "/proc/self/fdinfo/%d", timer);
    int fd = OK(open(path, O_RDONLY)); text[OK(read(fd, text, 511))] = 0; OK(close(fd));
    snprintf(line, 99, "%.17s\n", strstr(text, "settime flags:")); say(line);
}
int main(int argc, char **argv) {
    struct timespec now;
    timer = OK(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    clock_gettime(CLOCK_REALTIME, &now);
    set(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, (now.tv_sec + 400) * 1000, 0); say("start\n");
    long id = begin();
    if (id < 0) { flags(); show("again"); return 0; }
    set(0, 600000, 0); show("ahead");
    finish(id, argv[1]);
    show("after");
    return 0;
}"#;
    let failed = "start\nsettime flags: 03\nagain 4 0 0\n";
    check("moment", program, failed, "start\nahead 6 0 0\nafter 6 0 0\n");
}

/// Whoever has it by another descriptor, or by birth, has the same timer.
#[test]
fn copies_and_children_share_a_timer() {
    let program = r#"
int main(int argc, char **argv) {
    uint64_t ticks; timer = OK(timerfd_create(CLOCK_MONOTONIC, 0));
    int copy = OK(dup(timer)), started[2]; char byte; OK(pipe(started));
    set(0, 500000, 0); say("start\n");
    long id = begin();
    struct itimerspec now; OK(timerfd_gettime(copy, &now)); CHECK(now.it_value.tv_sec > 400);
    if (id < 0) { say("again\n"); return 0; }
    if (OK(fork()) == 0) { OK(write(started[1], "x", 1)); EQUAL(read(copy, &ticks, 8), 8); say("child\n"); _exit(0); }
    EQUAL(read(started[0], &byte, 1), 1);
    set(0, 30, 0); OK(wait(NULL)); say("ahead\n");
    finish(id, argv[1]);
    return 0;
}"#;
    check("shared", program, "start\nagain\n", "start\nchild\nahead\n");
}

/// As event loops do.
#[test]
fn a_timer_in_an_epoll_set_ticks_on_a_guess() {
    let program = r#"
int main(int argc, char **argv) {
    struct epoll_event event; uint64_t ticks, sum = 0;
    int set_of = OK(epoll_create1(0));
    timer = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    OK(epoll_ctl(set_of, EPOLL_CTL_ADD, timer, &(struct epoll_event){.events = EPOLLIN}));
    set(0, 500000, 0); say("start\n");
    long id = begin();
    if (id < 0) { EQUAL(epoll_wait(set_of, &event, 1, 0), 0); show("again"); return 0; }
    set(0, 5, 5);
    for (int i = 0; i < 5; i++, sum += ticks) {
        EQUAL(epoll_wait(set_of, &event, 1, 5000), 1);
        EQUAL(read(timer, &ticks, 8), 8);
    }
    CHECK(sum >= 5); OK(close(timer));
    EQUAL(epoll_wait(set_of, &event, 1, 20), 0); say("ahead\n");
    finish(id, argv[1]);
    return 0;
}"#;
    check("loop", program, "start\nagain 5 0 0\n", "start\nahead\n");
}

/// Of a timer that was set on a guess nothing comes once that has failed: the handler is not there any more.
#[test]
fn an_interval_timer_of_a_wrong_guess_ends_nobody() {
    let program = r#"
#include <sys/time.h>
static void set_real(long interval_us) {
    struct itimerval to = {.it_interval = {.tv_usec = interval_us}, .it_value = {.tv_usec = interval_us}};
    OK(setitimer(ITIMER_REAL, &to, NULL));
}
static void heard(int signal) { (void)signal; }
int main(int argc, char **argv) {
    for (int i = 0; i < 30; i++) {
        long id = begin();
        if (id < 0) continue;
        signal(SIGALRM, heard);
        set_real(300);
        for (volatile int spin = 0; spin < 2000000; spin++) {}
        finish(id, argv[1]);
        set_real(0);
        signal(SIGALRM, SIG_DFL);
    }
    say("end\n");
    return 0;
}"#;
    check_both_ends("interval", program, "end\n", "end\n", &["setitimer", "rt_sigaction"]);
}

/// As `timeout` does it: its process is taken back with all that it has.
#[test]
fn a_process_that_a_guess_has_made_sets_timers_of_its_own() {
    let program = r#"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
int main(int argc, char **argv) {
    long id = begin();
    if (id < 0) { say("again\n"); return 0; }
    if (OK(fork()) == 0) {
        struct sigevent never = {.sigev_notify = SIGEV_NONE};
        struct itimerspec far = {.it_value = {500, 0}};
        timer_t timer;
        OK(timer_create(CLOCK_REALTIME, &never, &timer));
        OK(timer_settime(timer, 0, &far, NULL));
        OK(timer_delete(timer));
        _exit(7);
    }
    int status = 0;
    OK(wait(&status));
    EQUAL(WEXITSTATUS(status), 7);
    finish(id, argv[1]);
    say("after\n");
    return 0;
}"#;
    let calls = ["timer_create", "timer_settime", "timer_delete"];
    check_both_ends("own", program, "again\n", "after\n", &calls);
}
