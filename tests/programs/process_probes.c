// `kill` with signal 0, which says whether a process is there: a child that runs, one that has ended and was not waited
// for, one that was, a grandchild, and a number that nobody has.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int probe(pid_t pid) { return kill(pid, 0) ? errno : 0; }

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
    return 0;
}
