/* Orphans go to the nearest subreaper, which can wait for them. */
#include "check.h"
#include <sys/prctl.h>
int main(void) {
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    int fds[2];
    OK(pipe(fds));
    pid_t child = OK(fork());
    if (child == 0) {
        pid_t parent = getpid(), grandchild = OK(fork());
        if (grandchild == 0) { for (int i = 0; i < 1000 && getppid() == parent; i++) sleep_ms(2); _exit(29); }
        write(fds[1], &grandchild, sizeof grandchild);
        _exit(3);
    }
    pid_t grandchild;
    EQUAL(read(fds[0], &grandchild, sizeof grandchild), sizeof grandchild);
    int first = wait_for(child);
    printf("child %d orphan %d\n", first, wait_for(grandchild));
    FAILS(wait(NULL), ECHILD);
    return 0;
}
