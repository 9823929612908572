/* A daemon by double fork and setsid writes to a file; the first child is gone at once; the daemon is reparented. */
#include "check.h"
int main(void) {
    int ready[2];
    OK(pipe(ready));
    pid_t pid = OK(fork());
    if (pid == 0) {
        CHECK(setsid() == getpid());
        pid_t first = getpid();
        if (OK(fork())) _exit(0);
        close(ready[0]);
        int fd = OK(open("daemon.log", O_WRONLY | O_CREAT | O_APPEND, 0644));
        dup2(fd, 1); dup2(fd, 2);
        close(0);
        for (int i = 0; i < 1000 && getppid() == first; i++) sleep_ms(2);
        dprintf(1, "reparented %d, session of the first %d\n", getppid() != first, getsid(0) == first);
        for (int i = 0; i < 5; i++) { dprintf(1, "line %d\n", i); fsync(1); sleep_ms(5); }
        _exit(0);
    }
    printf("first child %d\n", wait_for(pid));
    close(ready[1]);
    char byte;
    EQUAL(read(ready[0], &byte, 1), 0);
    printf("%s", contents("daemon.log"));
    return 0;
}
