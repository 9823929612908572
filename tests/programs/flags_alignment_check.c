/* System calls with flags that programs seldom set (AC: an access that is not aligned is SIGBUS; NT). The kernel makes
   the call without them, and gives them back. Only raw calls in between: libc reads what is not aligned. */
#include "check.h"
#define NT 0x4000L
#define AC 0x40000L
/* Makes a call with these flags. What was set behind it goes to `after`. */
static long call(long flags, long number, long a, long b, long c, long *after) {
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = flags;
    __asm__ volatile("sub $128, %%rsp\n pushfq\n pushfq\n or %2, (%%rsp)\n popfq\n syscall\n"
                     "pushfq\n pop %%r9\n popfq\n add $128, %%rsp\n mov %%r9, %1\n"
        : "=a"(result), "=r"(r8)
        : "r"(r8), "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
        : "rcx", "r9", "r11", "memory", "cc");
    *after = r8 & (NT | AC);
    return result;
}
static void check_all(const char *what, long flags) {
    struct { const char *name; long number, a, b, c; } calls[] = {
        {"getpid", SYS_getpid, 0, 0, 0},
        {"open", SYS_openat, AT_FDCWD, (long)"?file" + 1, O_RDWR | O_CREAT},
        {"write", SYS_write, 3, (long)"three" + 1, 3},
        {"stat", SYS_stat, (long)"??file" + 2, (long)malloc(256), 0},
        {"rename", SYS_rename, (long)"?file" + 1, (long)"?other" + 1, 0},
        {"fsync", SYS_fsync, 3, 0, 0},
        {"close", SYS_close, 3, 0, 0},
        {"unlink", SYS_unlink, (long)"?other" + 1, 0, 0},
        {"bad number", 9999, 0, 0, 0},
    };
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (int round = 0; round < 3; round++) {
            long after, result = call(flags, calls[i].number, calls[i].a, calls[i].b, calls[i].c, &after);
            printf("%s %s: %ld, flags %s\n", what, calls[i].name, calls[i].number == SYS_getpid ? result > 0 : result,
                after == flags ? "kept" : "changed");
            fflush(stdout);
            if (calls[i].number != SYS_getpid && calls[i].number != SYS_stat) break;
        }
    }
    long after, pid = call(flags, SYS_fork, 0, 0, 0, &after);
    if (pid == 0) _exit(after == flags ? 7 : 8);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    printf("%s fork: the child has %d, flags %s\n", what, WEXITSTATUS(status), after == flags ? "kept" : "changed");
}
int main(void) {
    setbuf(stdout, NULL);
    check_all("none", 0);
    check_all("AC", AC);
    check_all("NT", NT);
    check_all("both", NT | AC);
    return 0;
}
