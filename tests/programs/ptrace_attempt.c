/* A program traces its child (as gdb and strace do): it works, or is EPERM; the program survives. */
#include "check.h"
#include <sys/ptrace.h>
int main(void) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        long r = ptrace(PTRACE_TRACEME, 0, 0, 0);
        if (r != 0) { CHECK(errno == EPERM); _exit(7); }
        raise(SIGSTOP);
        _exit(7);
    }
    int status;
    OK(waitpid(pid, &status, WUNTRACED));
    if (WIFSTOPPED(status)) {
        if (ptrace(PTRACE_CONT, pid, 0, 0) != 0) kill(pid, SIGCONT);
        EQUAL(wait_for(pid), 7);
    } else {
        EQUAL(WEXITSTATUS(status), 7);
    }
    pid = OK(fork());
    if (pid == 0) { for (;;) pause(); }
    long r = ptrace(PTRACE_ATTACH, pid, 0, 0);
    if (r == 0) { OK(waitpid(pid, &status, 0)); OK(ptrace(PTRACE_DETACH, pid, 0, 0)); }
    else CHECK(errno == EPERM);
    kill(pid, SIGKILL);
    EQUAL(wait_for(pid), 128 + SIGKILL);
    printf("survived\n");
    return 0;
}
