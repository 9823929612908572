/* Handlers interrupt each other, in a blocked read, and make system calls themselves; SA_NODEFER recurses. */
#include "check.h"
static int fds[2];
static volatile int depth, deepest;
static volatile int usr1, usr2;
static void second(int s) { usr2++; char b; int f = open("/dev/zero", O_RDONLY); read(f, &b, 1); close(f); }
static void first(int s) { usr1++; raise(SIGUSR2); sleep_ms(1); raise(SIGUSR2); }
static void recursive(int s) { if (++depth > deepest) deepest = depth; if (depth < 10) raise(SIGHUP); depth--; }
int main(void) {
    OK(pipe(fds));
    on_signal(SIGUSR1, first, SA_RESTART);
    on_signal(SIGUSR2, second, SA_RESTART);
    on_signal(SIGHUP, recursive, SA_NODEFER);
    pid_t parent = getpid(), pid = OK(fork());
    if (pid == 0) {
        for (int i = 0; i < 20; i++) { kill(parent, SIGUSR1); sleep_ms(10); }
        write(fds[1], "end", 3);
        _exit(0);
    }
    char text[4] = "";
    EQUAL(read(fds[0], text, 3), 3);
    wait_for(pid);
    raise(SIGHUP);
    printf("%s usr2 twice usr1: %d, at least one: %d, deepest %d\n", text, usr2 == 2 * usr1, usr1 > 0, deepest);
    return 0;
}
