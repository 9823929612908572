/* wait4 with rusage, waitid of every kind with WNOWAIT, waiting for a group, pidfd_open with poll and waitid. */
#include "check.h"
#include <sys/resource.h>
#ifndef P_PIDFD
#define P_PIDFD 3
#endif
int main(void) {
    struct rusage usage;
    int status;
    pid_t pid = OK(fork());
    if (pid == 0) { for (volatile long i = 0; i < 100000000; i++) {} _exit(1); }
    EQUAL(OK(wait4(pid, &status, 0, &usage)), pid);
    printf("status %d used time %d\n", WEXITSTATUS(status), usage.ru_utime.tv_sec > 0 || usage.ru_utime.tv_usec > 0);
    siginfo_t info = {0};
    pid = OK(fork());
    if (pid == 0) _exit(2);
    OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    EQUAL(info.si_pid, pid);
    OK(waitid(P_ALL, 0, &info, WEXITED));
    printf("waitid %d code %d\n", info.si_status, info.si_code);
    FAILS(waitid(P_PID, pid, &info, WEXITED), ECHILD);
    pid = OK(fork());
    if (pid == 0) { setpgid(0, 0); _exit(3); }
    setpgid(pid, pid);
    EQUAL(OK(waitpid(-pid, &status, 0)), pid);
    printf("group %d\n", WEXITSTATUS(status));
    /* The child is there until it is told to end: how long the parent takes to look does not matter. */
    int gate[2];
    char byte = 0;
    OK(pipe(gate));
    pid = OK(fork());
    if (pid == 0) { OK(read(gate[0], &byte, 1)); _exit(4); }
    EQUAL(waitpid(pid, &status, WNOHANG), 0);
    EQUAL(write(gate[1], &byte, 1), 1);
    int fd = OK(syscall(SYS_pidfd_open, pid, 0));
    struct pollfd p = {fd, POLLIN, 0};
    EQUAL(poll(&p, 1, 5000), 1);
    OK(waitid(P_PIDFD, fd, &info, WEXITED));
    printf("pidfd %d\n", info.si_status);
    FAILS(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), ESRCH);
    FAILS(waitpid(-1, &status, 0x12340000), EINVAL);
    FAILS(kill(999999, 0), ESRCH);
    return 0;
}
