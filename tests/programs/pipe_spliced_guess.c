/* What a process writes because of what it has looked up is moved on by splice and tee, and counted by FIONREAD. */
/* @never WRONG */
#include "check.h"
#include <sys/ioctl.h>
int main(void) {
    int p[2], q[2], n;
    OK(pipe(p));
    OK(pipe(q));
    for (int i = 0; i < 20; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            int is_there = access("/", F_OK) == 0;
            write(p[1], is_there ? "yes" : "WRONG", is_there ? 3 : 5);
            _exit(0);
        }
        if (i % 2) {
            struct pollfd ready = {p[0], POLLIN, 0};
            EQUAL(poll(&ready, 1, -1), 1);
            OK(ioctl(p[0], FIONREAD, &n));
            EQUAL(n, 3);
        }
        EQUAL(tee(p[0], q[1], 100, 0), 3);
        EQUAL(splice(p[0], NULL, q[1], NULL, 100, 0), 3);
        EQUAL(wait_for(pid), 0);
        char both[20];
        printf("%.*s ", (int)OK(read(q[0], both, sizeof both)), both);
    }
    printf("\n");
    return 0;
}
