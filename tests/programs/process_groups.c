/* Process groups and sessions: signals to a group reach all of it, errors of setpgid and setsid. */
#include "check.h"
int main(void) {
    pid_t pids[3];
    int fds[2];
    OK(pipe(fds));
    for (int i = 0; i < 3; i++) {
        pids[i] = OK(fork());
        if (pids[i] == 0) { setpgid(0, i ? pids[0] : 0); write(fds[1], "r", 1); for (;;) pause(); }
        setpgid(pids[i], pids[0]);
    }
    char byte;
    for (int i = 0; i < 3; i++) EQUAL(read(fds[0], &byte, 1), 1);
    for (int i = 0; i < 3; i++) EQUAL(getpgid(pids[i]), pids[0]);
    OK(kill(-pids[0], SIGTERM));
    for (int i = 0; i < 3; i++) printf("%d\n", wait_for(pids[i]));
    FAILS(killpg(pids[0], 0), ESRCH);
    pid_t pid = OK(fork());
    if (pid == 0) {
        EQUAL(setsid(), getpid());
        FAILS(setsid(), EPERM);
        FAILS(setpgid(0, 0), EPERM);
        EQUAL(getsid(0), getpid());
        CHECK(open("/dev/tty", O_RDWR) == -1 && errno == ENXIO);
        _exit(0);
    }
    printf("session %d\n", wait_for(pid));
    return 0;
}
