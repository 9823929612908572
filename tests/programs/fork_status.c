/* Children of fork end with every kind of status, and wait tells each. */
#include "check.h"
int main(void) {
    for (int status = 0; status < 256; status += 51) {
        pid_t pid = OK(fork());
        if (pid == 0) _exit(status);
        printf("exit %d -> %d\n", status, wait_for(pid));
    }
    int signals[] = {SIGTERM, SIGKILL, SIGUSR1, SIGPIPE};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { signal(signals[i], SIG_DFL), kill(getpid(), signals[i]); for (;;) pause(); }
        printf("signal %d -> %d\n", signals[i], wait_for(pid));
    }
    FAILS(wait(NULL), ECHILD);
    pid_t pid = OK(fork());
    if (pid == 0) { if (getppid() <= 0) _exit(9); printf("buffered in child\n"); exit(7); }
    printf("child %d\n", wait_for(pid));
    return 0;
}
