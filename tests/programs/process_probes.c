// `kill` with signal 0, which says whether a process is there: a child that runs, one that has ended and was not waited
// for, one that was, a grandchild, and a number that nobody has. Then grandchildren for which a child has waited that
// ends at once, or goes on for a moment.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int probe(pid_t pid) { return kill(pid, 0) ? errno : 0; }

// How many of many probes find a grandchild for which the child has waited.
static int found_after_wait(int goes_on_us) {
    int told[2], found = 0;
    if (pipe(told)) return -1;
    pid_t child = fork();
    if (child == 0) {
        pid_t own = fork();
        if (own == 0) _exit(0);
        waitpid(own, 0, 0);
        write(told[1], &own, sizeof own);
        usleep(goes_on_us);
        _exit(0);
    }
    pid_t grandchild;
    if (read(told[0], &grandchild, sizeof grandchild) != sizeof grandchild) return -1;
    for (int i = 0; i < 20; i++) {
        if (i == 10) waitpid(child, 0, 0);
        found += probe(grandchild) != ESRCH;
        usleep(300);
    }
    return found;
}

int main(void) {
    int go[2], told[2];
    if (pipe(go) || pipe(told)) return 1;
    pid_t child = fork();
    if (child == 0) {
        pid_t own = fork();
        char byte;
        if (own == 0) _exit(read(go[0], &byte, 1) != 1);
        write(told[1], &own, sizeof own);
        int status;
        waitpid(own, &status, 0);
        _exit(status ? 1 : 3);
    }
    pid_t grandchild;
    if (read(told[0], &grandchild, sizeof grandchild) != sizeof grandchild) return 1;
    printf("there: %d %d %d %d\n", probe(getpid()), probe(getppid()), probe(child), probe(grandchild));
    write(go[1], "x", 1);
    siginfo_t info = {0};
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    printf("ended with %d: %d, ", info.si_status, probe(child));
    waitpid(child, 0, 0);
    printf("waited for: %d %d, ", probe(child), probe(grandchild));
    printf("nobody: %d\n", probe(4194300));
    printf("found after a wait: %d %d\n", found_after_wait(0), found_after_wait(1500));
    return 0;
}
