//! Epoll sets are changed on a guess, and put back ([0116](../../../docs/decisions/0116-epoll-sets-are-put-back.md)).

use crate::support;

use support::guess::check_both_ends;

const CALLS: &[&str] = &["epoll_ctl", "epoll_wait", "close"];

/// A set, and who is in it under which letter.
const SET: &str = r#"
#include <sys/epoll.h>
#include <sys/eventfd.h>
static int set;
static void put(int how, int fd, int events, char name) {
    OK(epoll_ctl(set, how, fd, &(struct epoll_event){.events = events, .data.u64 = name}));
}
/* Who is ready, in the order of the alphabet. */
static const char *ready(void) {
    static char names[32];
    struct epoll_event events[16];
    int count = OK(epoll_wait(set, events, 16, 0)), len = 0;
    for (char name = 'a'; name <= 'z'; name++)
        for (int i = 0; i < count; i++) if (events[i].data.u64 == (unsigned)name) names[len++] = name;
    names[len] = 0;
    return names;
}
static void show(const char *when) { char line[64]; snprintf(line, 64, "%s %s\n", when, ready()); say(line); }
static int full_pipe(void) { int ends[2]; OK(pipe(ends)); OK(write(ends[1], "x", 1)); return ends[0]; }
"#;

#[track_caller]
fn check(name: &str, program: &str, failed: &str, right: &str) {
    check_both_ends(name, &format!("{SET}{program}"), failed, right, CALLS);
}

#[test]
fn members_are_added_changed_and_removed() {
    let program = r#"
int main(int argc, char **argv) {
    set = OK(epoll_create1(0));
    int a = full_pipe(), b = full_pipe(), c = full_pipe();
    put(EPOLL_CTL_ADD, a, EPOLLIN, 'a'); put(EPOLL_CTL_ADD, b, EPOLLIN, 'b');
    show("start");
    long id = begin();
    if (id < 0) { show("again"); return 0; }
    put(EPOLL_CTL_DEL, a, 0, 0); put(EPOLL_CTL_MOD, b, EPOLLIN, 'x'); put(EPOLL_CTL_ADD, c, EPOLLIN, 'c');
    show("ahead");
    finish(id, argv[1]);
    show("after");
    return 0;
}"#;
    check("members", program, "start ab\nagain ab\n", "start ab\nahead cx\nafter cx\n");
}

#[test]
fn what_is_told_only_once_is_told_again_after_a_rollback() {
    let program = r#"
int main(int argc, char **argv) {
    set = OK(epoll_create1(0));
    put(EPOLL_CTL_ADD, full_pipe(), EPOLLIN | EPOLLET, 'a');
    put(EPOLL_CTL_ADD, full_pipe(), EPOLLIN | EPOLLONESHOT, 'b');
    say("start\n");
    long id = begin();
    if (id < 0) { show("again"); show("and"); return 0; }
    show("ahead"); show("and");
    finish(id, argv[1]);
    show("after");
    return 0;
}"#;
    check("edges", program, "start\nagain ab\nand \n", "start\nahead ab\nand \nafter \n");
}

/// An undo entry keeps what is closed open, so that it would stay in the set.
#[test]
fn a_member_that_is_closed_leaves_the_set_and_comes_back() {
    let program = r#"
int main(int argc, char **argv) {
    set = OK(epoll_create1(0));
    int ends[2]; OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)); OK(write(ends[1], "x", 1));
    int all[] = {full_pipe(), ends[0], OK(eventfd(1, 0))};
    for (int i = 0; i < 3; i++) put(EPOLL_CTL_ADD, all[i], EPOLLIN, 'a' + i);
    put(EPOLL_CTL_ADD, full_pipe(), EPOLLIN, 'd');
    show("start");
    long id = begin();
    if (id < 0) { show("again"); return 0; }
    for (int i = 0; i < 3; i++) OK(close(all[i]));
    show("ahead");
    finish(id, argv[1]);
    show("after");
    return 0;
}"#;
    check("closed", program, "start abcd\nagain abcd\n", "start abcd\nahead d\nafter d\n");
}

/// The kernel takes out a member with the last descriptor of its file.
#[test]
fn a_member_that_has_another_descriptor_stays() {
    let program = r#"
int main(int argc, char **argv) {
    set = OK(epoll_create1(0));
    int a = OK(eventfd(1, 0)), other = OK(dup(a));
    put(EPOLL_CTL_ADD, a, EPOLLIN, 'a');
    say("start\n");
    long id = begin();
    if (id < 0) { show("again"); return 0; }
    OK(close(a));
    show("ahead");
    // Natively this one takes it out; on a guess nobody could, so that this waits for the end of the guess.
    int gone[2]; char byte; OK(pipe(gone));
    if (OK(fork()) == 0) { OK(close(other)); OK(write(gone[1], "x", 1)); sleep_ms(50); finish(id, argv[1]); _exit(0); }
    EQUAL(read(gone[0], &byte, 1), 1);
    OK(close(other));
    show("after");
    OK(wait(NULL));
    return 0;
}"#;
    let program = format!("{SET}{program}");
    check_both_ends("stays", &program, "start\nagain a\n", "start\nahead a\nafter \n", &["epoll_ctl"]);
}

/// A set that was made on a guess, under the number of one that was closed.
#[test]
fn another_set_under_the_same_number_is_not_taken_for_the_first() {
    let program = r#"
int main(int argc, char **argv) {
    set = OK(epoll_create1(0));
    int a = full_pipe(), b = full_pipe(), first = set;
    put(EPOLL_CTL_ADD, a, EPOLLIN, 'a');
    say("start\n");
    long id = begin();
    if (id < 0) { show("again"); return 0; }
    OK(close(set));
    EQUAL(set = OK(epoll_create1(0)), first);
    put(EPOLL_CTL_ADD, b, EPOLLIN, 'b');
    show("ahead");
    finish(id, argv[1]);
    show("after");
    return 0;
}"#;
    check("another", program, "start\nagain a\n", "start\nahead b\nafter b\n");
}

/// As event loops of runtimes do: one thread waits, another one adds what it waits for and wakes it.
#[test]
fn a_thread_waits_in_a_set_that_another_one_changes() {
    let program = r#"
static int wake;
static volatile int seen;
static void *loop(void *unused) {
    struct epoll_event event; uint64_t value;
    for (;;) {
        if (epoll_wait(set, &event, 1, -1) != 1) continue;
        if (read(event.data.fd, &value, 8) == 8) __atomic_add_fetch(&seen, (int)value, __ATOMIC_SEQ_CST);
    }
}
static void post(int fd) {
    uint64_t one = 1; int before = seen;
    OK(write(fd, &one, 8));
    while (seen == before) sched_yield();
}
static int added(void) {
    int fd = OK(eventfd(0, EFD_NONBLOCK));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN | EPOLLET, .data.fd = fd}));
    return fd;
}
int main(int argc, char **argv) {
    pthread_t t; char line[64];
    set = OK(epoll_create1(0)); wake = added();
    CHECK(pthread_create(&t, NULL, loop, NULL) == 0);
    post(wake); say("start\n");
    long id = begin();
    if (id < 0) { post(wake); post(added()); snprintf(line, 64, "again %d\n", seen); say(line); return 0; }
    for (int i = 0; i < 20; i++) { int fd = added(); post(fd); post(wake); OK(close(fd)); }
    snprintf(line, 64, "ahead %d\n", seen); say(line);
    finish(id, argv[1]);
    post(wake); snprintf(line, 64, "after %d\n", seen); say(line);
    return 0;
}"#;
    check("loop", program, "start\nagain 3\n", "start\nahead 41\nafter 42\n");
}

/// One that has told its only event waits for nothing, not even for a hang-up.
#[test]
fn what_had_told_its_only_event_stays_silent() {
    let program = r#"
int main(int argc, char **argv) {
    set = OK(epoll_create1(0));
    int ends[2]; OK(pipe(ends)); OK(write(ends[1], "x", 1));
    put(EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLONESHOT, 'a');
    show("start");
    long id = begin();
    if (id < 0) { OK(close(ends[1])); show("again"); return 0; }
    show("ahead");
    finish(id, argv[1]);
    OK(close(ends[1])); show("after");
    return 0;
}"#;
    check("silent", program, "start a\nagain \n", "start a\nahead \nafter \n");
}

/// The kernel does not change a member that is woken alone, so that it could not be told to look again.
#[test]
fn edges_of_who_is_woken_alone_wait() {
    let program = r#"
int main(int argc, char **argv) {
    // Somebody who has not got the set ends the guess.
    int told[2]; long id; OK(pipe(told));
    if (OK(fork()) == 0) {
        EQUAL(read(told[0], &id, sizeof id), sizeof id);
        sleep_ms(50); if (id >= 0) finish(id, argv[1]);
        _exit(0);
    }
    set = OK(epoll_create1(0));
    put(EPOLL_CTL_ADD, full_pipe(), EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 'a');
    say("start\n");
    id = begin();
    OK(write(told[1], &id, sizeof id));
    show(id < 0 ? "again" : "ahead");
    OK(wait(NULL));
    return 0;
}"#;
    check_both_ends("alone", &format!("{SET}{program}"), "start\nagain a\n", "start\nahead a\n", &["epoll_ctl"]);
}
