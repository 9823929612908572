//! What a rollback puts back, or what waits because none could
//! ([0290](../../../docs/decisions/0290-what-a-rollback-needs-and-what-it-cannot-undo.md)).

use crate::support;

use support::guess::{check_both_ends, check_compiled};

/// Somebody ends the guess while its maker may be waiting for that.
const OTHERS: &str = r#"
#include <netinet/in.h>
#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#define ENDED_BY_ANOTHER(id, how) if (OK(fork()) == 0) { sleep_ms(100); finish(id, how); _exit(0); }
static void show(const char *when, long value) {
    char line[64];
    snprintf(line, 64, "%s %ld\n", when, value), say(line);
}
/* A socket of datagrams that is bound, and one that leads to it. */
static void datagrams(int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    ends[0] = OK(socket(AF_INET, SOCK_DGRAM, 0)), ends[1] = OK(socket(AF_INET, SOCK_DGRAM, 0));
    OK(bind(ends[0], (void *)&at, len)); OK(getsockname(ends[0], (void *)&at, &len));
    OK(connect(ends[1], (void *)&at, len));
}
"#;

#[track_caller]
fn check(name: &str, program: &str, failed: &str, right: &str, never_waits_at: &[&str]) {
    check_both_ends(name, &format!("{OTHERS}{program}"), failed, right, never_waits_at);
}

/// The process itself opens what it has closed, and must not meet the limit that it has set.
#[test]
fn a_descriptor_above_a_new_limit_comes_back() {
    let program = r#"
int main(int argc, char **argv) {
    int ends[2]; char byte; struct rlimit limit;
    OK(pipe(ends)); OK(write(ends[1], "x", 1)); OK(dup2(ends[0], 100)); OK(close(ends[0]));
    OK(getrlimit(RLIMIT_NOFILE, &limit)); limit.rlim_cur = 200; OK(setrlimit(RLIMIT_NOFILE, &limit));
    say("start\n");
    long id = begin();
    if (id >= 0) {
        OK(close(100)); limit.rlim_cur = 50; OK(setrlimit(RLIMIT_NOFILE, &limit));
        finish(id, argv[1]);
    }
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    show("limit", limit.rlim_cur); show("read", read(100, &byte, 1));
    return 0;
}"#;
    check("above", program, "start\nlimit 200\nread 1\n", "start\nlimit 50\nread -1\n", &["close", "setrlimit"]);
}

#[test]
fn a_descriptor_comes_back_where_all_are_open() {
    let program = r#"
int main(int argc, char **argv) {
    int ends[2]; char byte; struct rlimit limit = {64, 64};
    OK(pipe(ends)); OK(write(ends[1], "x", 1)); OK(setrlimit(RLIMIT_NOFILE, &limit));
    say("start\n");
    long id = begin();
    if (id >= 0) {
        OK(close(ends[0])); while (open("/dev/null", O_RDONLY) >= 0) {}
        finish(id, argv[1]);
    }
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    show("limit", limit.rlim_max); show("read", read(ends[0], &byte, 1)); show("dup", dup(1) >= 0);
    return 0;
}"#;
    let (failed, right) = ("start\nlimit 64\nread 1\ndup 1\n", "start\nlimit 64\nread 0\ndup 0\n");
    check("full", program, failed, right, &["close"]);
}

/// What is held is written where the program's own open file wrote to when it was asked for. `make` has its output
/// appended, whatever was written there before.
#[test]
fn what_is_held_is_written_as_it_was_asked_for() {
    let program = r#"
int main(int argc, char **argv) {
    char bytes[32] = {0};
    int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600)); OK(write(fd, "0123456789", 10));
    OK(lseek(fd, 3, SEEK_SET));
    say("start\n");
    long id = begin();
    if (id >= 0) {
        EQUAL(pwrite(fd, "ab", 2, 0), 2); EQUAL(write(fd, "c", 1), 1);
        OK(fcntl(fd, F_SETFL, O_APPEND)); EQUAL(write(fd, "de", 2), 2);
        OK(fcntl(fd, F_SETFL, 0)); EQUAL(pwrite(fd, "f", 1, 8), 1); EQUAL(write(fd, "g", 1), 1);
        OK(fcntl(fd, F_SETFL, O_APPEND)); EQUAL(pwrite(fd, "h", 1, 0), 1);
        OK(fcntl(fd, F_SETFL, 0));
        finish(id, argv[1]);
    }
    OK(pread(fd, bytes, 31, 0)); say(bytes); show(" position", OK(lseek(fd, 0, SEEK_CUR)));
    return 0;
}"#;
    let (failed, right) = ("start\n0123456789 position 3\n", "start\nab2c4567f9degh position 13\n");
    check("flags", program, failed, right, &["fcntl"]);
}

/// So it is if its flags change behind the guess.
#[test]
fn what_was_written_before_does_not_append() {
    let program = r#"
int main(int argc, char **argv) {
    char bytes[32] = {0};
    int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600)); OK(write(fd, "0123456789", 10));
    say("start\n");
    long id = begin();
    if (id >= 0) {
        EQUAL(pwrite(fd, "ab", 2, 0), 2);
        OK(fcntl(fd, F_SETFL, O_NONBLOCK));
        ENDED_BY_ANOTHER(id, argv[1]);
        OK(fcntl(fd, F_SETFL, O_APPEND)); OK(wait(NULL));
    }
    OK(pread(fd, bytes, 31, 0)); say(bytes); say("\n");
    return 0;
}"#;
    check("before", program, "start\n0123456789\n", "start\nab23456789\n", &["pwrite64"]);
}

/// Others who have the open file may have been told of its flags, or have gone by them.
#[test]
fn flags_that_are_taken_back_were_seen_by_nobody() {
    let program = |ends: &str| {
        format!(
            r#"{OTHERS}
int main(int argc, char **argv) {{
    int ends[2]; char byte;
    {ends};
    say("start\n");
    pid_t other = OK(fork());
    if (other == 0) {{
        sleep_ms(50);
        int flags = OK(fcntl(ends[0], F_GETFL));
        show("flag", !!(flags & O_NONBLOCK)); show("got", recv(ends[0], &byte, 1, 0));
        _exit(0);
    }}
    long id = begin();
    if (id >= 0) {{
        ENDED_BY_ANOTHER(id, argv[1]);
        OK(fcntl(ends[0], F_SETFL, O_NONBLOCK));
        pause();
    }}
    OK(send(ends[1], "x", 1, 0));
    wait_for(other);
    return 0;
}}"#
        )
    };
    let pair = "OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends))";
    for (name, ends) in [("pair", pair), ("datagrams", "datagrams(ends)")] {
        let source = format!("{}{}", support::guess::C, program(ends));
        check_compiled(name, &source, "fail", "start\nflag 0\ngot 1\n", &[]);
    }
}

#[test]
fn nobody_appends_because_of_a_wrong_guess() {
    let program = r#"
int main(int argc, char **argv) {
    char bytes[32] = {0};
    int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600)); OK(write(fd, "0123456789", 10));
    say("start\n");
    pid_t other = OK(fork());
    if (other == 0) { sleep_ms(50); EQUAL(pwrite(fd, "ab", 2, 0), 2); _exit(0); }
    long id = begin();
    if (id >= 0) {
        ENDED_BY_ANOTHER(id, argv[1]);
        OK(fcntl(fd, F_SETFL, O_APPEND));
        pause();
    }
    EQUAL(wait_for(other), 0);
    OK(pread(fd, bytes, 31, 0)); say(bytes); say("\n");
    return 0;
}"#;
    let source = format!("{}{OTHERS}{program}", support::guess::C);
    check_compiled("appends", &source, "fail", "start\nab23456789\n", &[]);
}

/// The kernel tells only once what has gone wrong at a socket.
#[test]
fn an_error_of_a_socket_is_told_after_a_rollback() {
    let program = r#"
int main(int argc, char **argv) {
    int ends[2], error; socklen_t len = sizeof error;
    datagrams(ends); OK(close(ends[0])); OK(send(ends[1], "x", 1, 0));
    struct pollfd fd = {ends[1], 0, 0}; EQUAL(poll(&fd, 1, 10000), 1);
    say("start\n");
    long id = begin();
    if (id >= 0) ENDED_BY_ANOTHER(id, argv[1]);
    OK(getsockopt(ends[1], SOL_SOCKET, SO_ERROR, &error, &len));
    show("error", error);
    return 0;
}"#;
    check("error", program, "start\nerror 111\n", "start\nerror 111\n", &[]);
    let none = program.replace("OK(send(", "if (0) OK(send(").replace("EQUAL(poll(&fd, 1, 10000), 1)", "");
    check("no_error", &none, "start\nerror 0\n", "start\nerror 0\n", &["getsockopt"]);
}

/// A checkpoint is a child, which has zeroes there.
#[test]
fn memory_that_is_wiped_in_children_is_not_lost() {
    let program = r#"
int main(int argc, char **argv) {
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED); memset(at, 'x', 8192); OK(madvise(at, 8192, MADV_WIPEONFORK));
    say("start\n");
    long id = begin();
    if (id >= 0) { at[0] = 'y'; finish(id, argv[1]); }
    // No guess was made.
    show("first", at[0]); show("last", at[8191]);
    return 0;
}"#;
    check("wiped", program, "start\nfirst 120\nlast 120\n", "start\nfirst 120\nlast 120\n", &[]);
}

#[test]
fn what_was_said_of_memory_is_taken_back() {
    let program = r#"
int main(int argc, char **argv) {
    char *all[2];
    for (int i = 0; i < 2; i++) {
        all[i] = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(all[i] != MAP_FAILED); memset(all[i], 'x', 8192);
        OK(mprotect(all[i] + 4096, 4096, PROT_NONE));
    }
    say("start\n");
    long id = begin();
    if (id >= 0) {
        OK(madvise(all[0], 4096, MADV_DONTFORK)); OK(madvise(all[1], 4096, MADV_WIPEONFORK));
        finish(id, argv[1]);
    }
    for (int i = 0; i < 2; i++) {
        pid_t child = OK(fork());
        if (child == 0) _exit(all[i][0]);
        show("child", wait_for(child));
    }
    return 0;
}"#;
    // SIGSEGV, and zeroes.
    let (failed, right) = ("start\nchild 120\nchild 120\n", "start\nchild 139\nchild 0\n");
    check("said", program, failed, right, &["madvise"]);
}

/// Each unit would have to be taken out by a call.
#[test]
fn who_puts_much_into_a_semaphore_waits() {
    let program = r#"
int main(int argc, char **argv) {
    uint64_t value = 1ULL << 40;
    int all = OK(eventfd(1, 0)), one = OK(eventfd(1, EFD_SEMAPHORE));
    say("start\n");
    long id = begin();
    if (id >= 0) {
        OK(write(all, &value, 8));
        ENDED_BY_ANOTHER(id, argv[1]);
        OK(write(one, &value, 8)); OK(wait(NULL));
    }
    int counters[] = {all, one};
    for (int i = 0; i < 2; i++) { EQUAL(read(counters[i], &value, 8), 8); show("value", value); }
    return 0;
}"#;
    check("semaphore", program, "start\nvalue 1\nvalue 1\n", "start\nvalue 1099511627777\nvalue 1\n", &[]);
}

#[test]
fn a_thread_that_takes_descriptors_of_its_own_waits() {
    let program = r#"
static int ends[2];
static void *waits(void *unused) { char byte; OK(read(ends[0], &byte, 1)); return NULL; }
int main(int argc, char **argv) {
    pthread_t thread;
    OK(pipe(ends)); EQUAL(pthread_create(&thread, NULL, waits, NULL), 0);
    say("start\n");
    long id = begin();
    if (id >= 0) {
        ENDED_BY_ANOTHER(id, argv[1]);
        OK(syscall(SYS_close_range, 1000, ~0U, 2));
        say("own\n");
    }
    OK(write(ends[1], "x", 1)); EQUAL(pthread_join(thread, NULL), 0);
    say("end\n");
    return 0;
}"#;
    check("table", program, "start\nend\n", "start\nown\nend\n", &[]);
}

/// With a program's memory goes what the kernel clears there when its first thread ends.
#[test]
fn a_program_that_comes_back_has_its_thread_cleared_where_it_was() {
    let program = r#"
#include <sys/prctl.h>
int main(int argc, char **argv) {
    int *before, *now; char number[32];
    if (argc > 2) { say("new\n"); finish(atol(argv[2]), argv[1]); say("after\n"); return 0; }
    OK(prctl(PR_GET_TID_ADDRESS, &before));
    say("start\n");
    long id = begin();
    if (id >= 0) { snprintf(number, 32, "%ld", id); OK(execl(argv[0], argv[0], argv[1], number, NULL)); }
    OK(prctl(PR_GET_TID_ADDRESS, &now)); show("same", before == now);
    return 0;
}"#;
    check("cleared", program, "start\nsame 1\n", "start\nnew\nafter\n", &["execve"]);
}
