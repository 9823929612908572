//! What the kernel throws away by itself, and a rollback has to bring back
//! ([0302](../../../docs/decisions/0302-what-the-kernel-throws-away.md)).

use crate::support;

use support::guess::check_both_ends;

const SHOW: &str = r#"
#include <sys/epoll.h>
#include <sys/prctl.h>
static void show(const char *when, long value) {
    char line[64];
    snprintf(line, 64, "%s %ld\n", when, value), say(line);
}
/* The program executes itself on its guess, and says there how that ends. */
static void execute(char **argv, long id) {
    char number[32];
    snprintf(number, 32, "%ld", id);
    OK(execl(argv[0], argv[0], argv[1], number, NULL));
}
#define IF_EXECUTED if (argc > 2) { finish(atol(argv[2]), argv[1]); say("new\n"); return 0; }
"#;

#[track_caller]
fn check(name: &str, program: &str, failed: &str, right: &str, never_waits_at: &[&str]) {
    check_both_ends(name, &format!("{SHOW}{program}"), failed, right, never_waits_at);
}

/// To set a disposition that ignores a signal throws away what waits of it, also where it is blocked.
#[test]
fn signals_that_are_ignored_by_default_wait_again() {
    let program = r#"
int main(int argc, char **argv) {
    const int all[] = {SIGCHLD, SIGWINCH, SIGURG};
    sigset_t mask; siginfo_t info;
    sigemptyset(&mask);
    for (int i = 0; i < 3; i++) sigaddset(&mask, all[i]);
    OK(sigprocmask(SIG_BLOCK, &mask, NULL));
    pid_t child = OK(fork());
    if (child == 0) _exit(3);
    OK(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    OK(kill(getpid(), SIGWINCH)); OK(kill(getpid(), SIGURG));
    say("start\n");
    long id = begin();
    if (id >= 0) { OK(chdir("/")); finish(id, argv[1]); }
    for (int i = 0; i < 3; i++) {
        struct timespec soon = {10, 0};
        sigemptyset(&mask); sigaddset(&mask, all[i]);
        show("took", OK(sigtimedwait(&mask, &info, &soon)));
        if (all[i] == SIGCHLD) show("of the child", info.si_pid == child);
    }
    return 0;
}"#;
    let said = "start\ntook 17\nof the child 1\ntook 28\ntook 23\n";
    check("ignored", program, said, said, &[]);
}

/// Of a new program less is known than of the one that comes back.
#[test]
fn who_leaves_waiting_to_the_kernel_does_so_after_a_rollback() {
    let program = r#"
int main(int argc, char **argv) {
    IF_EXECUTED
    on_signal(SIGCHLD, SIG_DFL, SA_NOCLDWAIT);
    say("start\n");
    long id = begin();
    if (id >= 0) execute(argv, id);
    id = begin();
    pid_t child = OK(fork());
    if (child == 0) _exit(4);
    long waited = waitpid(child, NULL, 0);
    show("waited", waited);
    if (id >= 0) finish(id, "commit");
    return 0;
}"#;
    check("no_zombies", program, "start\nwaited -1\n", "start\nnew\n", &["execve"]);
}

/// The kernel keeps nothing of a child whose parent ignores SIGCHLD, and a rollback would not find it. So a parent that
/// has an older child waits before it ignores them, or ceases to; its own guess fails then, as nobody else ends it.
#[test]
fn an_older_child_is_waited_for_as_natively() {
    let program = r#"
static void look(const char *way, void (*before)(int), void (*meanwhile)(int)) {
    signal(SIGCHLD, before);
    pid_t child = OK(fork());
    if (child == 0) { sleep_ms(300); _exit(4); }
    long id = begin();
    if (id >= 0) { signal(SIGCHLD, meanwhile); sleep_ms(900); finish(id, way); }
    int status = 0;
    show("waited", waitpid(child, &status, 0) == child), show("status", status >> 8);
}
int main(int argc, char **argv) {
    say("start\n");
    look(argv[1], SIG_DFL, SIG_IGN), look(argv[1], SIG_IGN, SIG_DFL);
    return 0;
}"#;
    let said = "start\nwaited 1\nstatus 4\nwaited 0\nstatus 0\n";
    check("older_child", program, said, said, &[]);
}

#[test]
fn an_end_of_a_pipe_is_that_of_its_duplicates_again() {
    let program = r#"
static int was_set(int fd) { int flags = fcntl(fd, F_GETFL); return flags < 0 ? flags : !!(flags & O_NONBLOCK); }
int main(int argc, char **argv) {
    int ends[2], twins[2], set = OK(epoll_create1(0));
    struct epoll_event event = {EPOLLIN, {.u64 = 9}};
    OK(pipe(ends)); twins[0] = OK(dup(ends[0])); twins[1] = OK(dup(ends[1]));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    say("start\n");
    long id = begin();
    if (id >= 0) { OK(close(ends[0])); OK(close(ends[1])); finish(id, argv[1]); }
    for (int i = 0; i < 2; i++) {
        OK(fcntl(twins[i], F_SETFL, O_NONBLOCK | OK(fcntl(twins[i], F_GETFL))));
        show("set", was_set(ends[i]));
    }
    show("member", epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event));
    return 0;
}"#;
    let (failed, right) = ("start\nset 1\nset 1\nmember 0\n", "start\nset -1\nset -1\nmember -1\n");
    check("twins", program, failed, right, &["close"]);
}

/// The one that is put back first is opened anew.
#[test]
fn duplicates_that_were_closed_together_share_their_end_again() {
    let program = r#"
int main(int argc, char **argv) {
    int ends[2], twin;
    OK(pipe(ends)); twin = OK(dup(ends[0]));
    say("start\n");
    long id = begin();
    if (id >= 0) { OK(close(ends[0])); OK(close(twin)); finish(id, argv[1]); }
    fcntl(twin, F_SETFL, O_NONBLOCK);
    int flags = fcntl(ends[0], F_GETFL);
    show("set", flags < 0 ? flags : !!(flags & O_NONBLOCK));
    return 0;
}"#;
    check("together", program, "start\nset 1\n", "start\nset -1\n", &["close"]);
}

/// A set forgets what is closed after it, also by exec.
#[test]
fn a_set_that_was_closed_first_has_its_members_again() {
    let program = |closes: &str| {
        format!(
            r#"
int main(int argc, char **argv) {{
    IF_EXECUTED
    int ends[2], set = OK(epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event event = {{EPOLLIN, {{.u64 = 9}}}}, told = {{0}};
    signal(SIGPIPE, SIG_IGN);
    OK(pipe2(ends, O_CLOEXEC)); OK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    say("start\n");
    long id = begin();
    if (id >= 0) {{ {closes} finish(id, argv[1]); }}
    write(ends[1], "x", 1);
    show("ready", epoll_wait(set, &told, 1, 0)); show("which", told.data.u64);
    return 0;
}}"#
        )
    };
    let failed = "start\nready 1\nwhich 9\n";
    let gone = "start\nready -1\nwhich 0\n";
    check("set_first", &program("OK(close(set)); OK(close(ends[0]));"), failed, gone, &["close"]);
    check("set_last", &program("OK(close(ends[0])); OK(close(set));"), failed, gone, &["close"]);
    check("set_range", &program("OK(close_range(set < ends[0] ? set : ends[0], 20, 0));"), failed, gone, &[]);
    check("set_exec", &program("execute(argv, id);"), failed, "start\nnew\n", &["execve"]);
}

/// A new program's end is told by SIGCHLD, and nobody can say otherwise again.
#[test]
fn who_ends_without_a_signal_does_so_after_a_rollback() {
    let program = r#"
int main(int argc, char **argv) {
    IF_EXECUTED
    say("start\n");
    pid_t child = OK(syscall(SYS_clone, 0, 0, 0, 0, 0));
    if (child == 0) {
        long id = begin();
        if (id >= 0) execute(argv, id);
        _exit(5);
    }
    int status = 0;
    pid_t waited = waitpid(child, &status, __WCLONE);
    show("waited", waited == child); show("status", status >> 8);
    return 0;
}"#;
    let said = "start\nwaited 1\nstatus 5\n";
    check("no_signal", program, said, said, &[]);
}

#[test]
fn what_is_registered_for_barriers_is_so_after_a_rollback() {
    let program = r#"
#include <linux/membarrier.h>
int main(int argc, char **argv) {
    IF_EXECUTED
    int is_told = syscall(SYS_membarrier, 1 << 9, 0, 0) >= 0;
    OK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
    say("start\n");
    long id = begin();
    if (id >= 0) execute(argv, id);
    // Before Linux 6.3 nobody can ask what is registered.
    show("barrier", is_told ? syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) : 0);
    return 0;
}"#;
    check("barriers", program, "start\nbarrier 0\n", "start\nnew\n", &["execve"]);
}

/// Entries that only those inside see have places of their own: who seeks to behind one of them goes on there.
#[test]
fn who_seeks_in_a_directory_misses_nothing() {
    let program = r#"
#include <dirent.h>
int main(int argc, char **argv) {
    char name[16]; long places[16]; int count = 0, left = 0;
    OK(mkdir("dir", 0700)); write_file("dir/a", ""); write_file("dir/b", "");
    say("start\n");
    long id = begin();
    for (int i = 0; i < 4; i++) { snprintf(name, 16, "dir/new%d", i); write_file(name, ""); }
    DIR *dir = opendir("dir");
    CHECK(dir);
    while (readdir(dir)) places[count++] = telldir(dir);
    seekdir(dir, places[count - 3]);
    while (readdir(dir)) left++;
    show("all", count); show("left", left);
    if (id >= 0) finish(id, argv[1]);
    return 0;
}"#;
    let said = "start\nall 8\nleft 2\n";
    check("seeks", program, said, said, &["openat", "getdents64"]);
}
