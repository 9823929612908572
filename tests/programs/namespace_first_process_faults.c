/* @root */
/* A fault ends the first process of a namespace of processes as it ends any other, and everybody there with it. */
#include "check.h"
static int first(void *unused) {
    (void)unused;
    signal(SIGSEGV, SIG_DFL);
    if (fork() == 0) for (;;) pause();
    *(volatile int *)8 = 1;
    _exit(3);
}
int main(void) {
    static char stack[1 << 16];
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(clone(first, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, NULL));
        printf("%d\n", wait_for(pid));
    }
    return 0;
}
