/* A storm of SIGCHLD: 300 short children, reaped in the handler while the main program reads and writes. */
#include "check.h"
static volatile int reaped;
static void reap(int s) { int e = errno; while (waitpid(-1, NULL, WNOHANG) > 0) reaped++; errno = e; }
int main(void) {
    on_signal(SIGCHLD, reap, SA_RESTART | SA_NOCLDSTOP);
    int fds[2];
    OK(pipe(fds));
    long sum = 0;
    for (int i = 0; i < 300; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { write(fds[1], &i, sizeof i); _exit(0); }
        int got;
        EQUAL(read(fds[0], &got, sizeof got), sizeof got);
        sum += got;
    }
    long long end = now_us() + 10000000;
    while (reaped < 300 && now_us() < end) sleep_ms(5);
    printf("sum %ld reaped %d\n", sum, reaped);
    return 0;
}
