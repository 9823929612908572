// What the search for holes (`cargo xtask search`) has found.
#include "harness.h"
#include <sched.h>

// A's child has the same directory and umask, or the same table of descriptors. It does nothing itself, and looks at
// them. B only waits for it.
static void learns(int flags, void change(void), int is_changed(void)) {
    if (!ck(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0))) later(), must(is_changed()), saw(), _exit(0);
    ms(100), dirty(), change();
}
static void await_print(int r) {
    if (r == S) ck(pipe(q));
    if (r == B) close(q[1]), must(read(q[0], buf, 1) == 0);
}
static void sets_umask(void) { umask(077); }
static int has_umask(void) { return umask(0) == 077; }
static void shares_umask(int r) {
    if (r == A) learns(CLONE_FS, sets_umask, has_umask);
    await_print(r);
}
static void shares_umask_executed(int r) { // The child has a new program.
    if (r == A) {
        pid_t child = ck(syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0));
        if (!child) ck(execl("/proc/self/exe", "channels", "--umask", (char *)0));
        ms(300), dirty(), sets_umask();
    }
    await_print(r);
}
static void enters_sub(void) { ck(chdir("sub")); }
static int is_in_sub(void) { return getcwd(buf, sizeof buf) && strstr(buf, "/sub"); }
static void shares_directory(int r) {
    if (r == A) learns(CLONE_FS, enters_sub, is_in_sub);
    await_print(r);
}
static int next_free;
static void opens_one(void) { ck(dup(2)); }
static int has_one_more(void) { return epoll_create1(0) == next_free + 1; }
static void shares_table(int r) {
    if (r == A) next_free = ck(dup(2)), close(next_free), learns(CLONE_FILES, opens_one, has_one_more);
    await_print(r);
}

// A puts its child into a group of its own.
static void group_given(int r) {
    if (r == A) {
        pid_t child = ck(fork());
        if (!child) later(), must(getpgrp() == getpid()), saw(), _exit(0);
        ms(100), dirty(), ck(setpgid(child, child));
    }
    await_print(r);
}

static void lease_met(int r) { // A has a lease, and B would have to wait until it gives it up.
    if (r == A) {
        int f = ck(open("other", O_RDONLY));
        signal(SIGIO, SIG_IGN), dirty(), ck(fcntl(f, F_SETLEASE, F_RDLCK));
    }
    if (r == B) later(), must(open("other", O_WRONLY | O_NONBLOCK) == -1 && errno == EAGAIN), saw();
}

// A has a lease and gives it up after its change: B's call has waited for that.
static void lease_awaited(int r, const char *name, int kind, void call(void)) {
    if (r == A) {
        int f = ck(open(name, O_RDONLY));
        signal(SIGIO, SIG_IGN), ck(fcntl(f, F_SETLEASE, kind));
        ms(700), dirty(), ck(fcntl(f, F_SETLEASE, F_UNLCK));
    }
    if (r == B) later(), call(), saw();
}
static void writes_other(void) { ck(open("other", O_WRONLY)); }
static void empties_other(void) { ck(open("other", O_WRONLY | O_TRUNC)); }
static void creates_other(void) { ck(creat("other", 0600)); }
static void opens_other_how(void) {
    unsigned long how[3] = {O_WRONLY | O_CREAT, 0600, 0};
    ck(syscall(SYS_openat2, AT_FDCWD, "other", how, sizeof how));
}
static void truncates_other(void) { ck(truncate("other", 1)); }
static void says_in_program(void) { ck(execl("program", "channels", "--say", (char *)0)); }
static void lease_awaited_open(int r) { lease_awaited(r, "other", F_RDLCK, writes_other); }
static void lease_awaited_emptied(int r) { lease_awaited(r, "other", F_RDLCK, empties_other); }
static void lease_awaited_creat(int r) { lease_awaited(r, "other", F_RDLCK, creates_other); }
static void lease_awaited_openat2(int r) { lease_awaited(r, "other", F_RDLCK, opens_other_how); }
static void lease_awaited_truncate(int r) { lease_awaited(r, "other", F_RDLCK, truncates_other); }
static void lease_awaited_exec(int r) {
    if (r == S) copy_self("program");
    lease_awaited(r, "program", F_WRLCK, says_in_program);
}

CASES(searched) = {CH(shares_umask), CH(shares_umask_executed), CH(shares_directory), CH(shares_table), CH(group_given),
    CH(lease_met), CH(lease_awaited_open), CH(lease_awaited_emptied), CH(lease_awaited_creat),
    CH(lease_awaited_openat2), CH(lease_awaited_truncate), CH(lease_awaited_exec),
};
