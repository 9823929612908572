/* SIGSTOP and SIGCONT: waitpid with WUNTRACED and WCONTINUED tells; a stopped process does nothing. */
#include "check.h"
int main(void) {
    int fds[2], status;
    OK(pipe(fds));
    pid_t pid = OK(fork());
    if (pid == 0) { char byte; for (;;) { read(fds[0], &byte, 1); if (byte == 'q') _exit(6); } }
    for (int i = 0; i < 5; i++) {
        OK(kill(pid, SIGSTOP));
        EQUAL(OK(waitpid(pid, &status, WUNTRACED)), pid);
        printf("stopped %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status));
        EQUAL(waitpid(pid, &status, WNOHANG | WUNTRACED), 0);
        OK(kill(pid, SIGCONT));
        EQUAL(OK(waitpid(pid, &status, WCONTINUED)), pid);
        printf("continued %d\n", WIFCONTINUED(status));
    }
    write(fds[1], "q", 1);
    printf("status %d\n", wait_for(pid));
    siginfo_t info;
    pid = OK(fork());
    if (pid == 0) { raise(SIGTSTP); _exit(4); }
    OK(waitid(P_PID, pid, &info, WSTOPPED));
    printf("waitid: code %d status %d\n", info.si_code == CLD_STOPPED, info.si_status);
    OK(kill(pid, SIGCONT));
    printf("status %d\n", wait_for(pid));
    return 0;
}
