/* A process is stopped and continued while it is in a blocked call and while it makes calls without pause. */
#include "check.h"
int main(void) {
    int fds[2], status;
    OK(pipe(fds));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(fds[1]);
        int count = 0; char b;
        while (read(fds[0], &b, 1) == 1) count++;
        _exit(count);
    }
    for (int i = 0; i < 50; i++) {
        OK(kill(pid, SIGSTOP));
        if (i % 3 == 0) OK(waitpid(pid, &status, WUNTRACED));
        EQUAL(write(fds[1], "x", 1), 1);
        OK(kill(pid, SIGCONT));
    }
    close(fds[1]);
    printf("bytes %d\n", wait_for(pid));
    return 0;
}
