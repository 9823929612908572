/* A handler with SA_RESTART lets a blocked read go on; one without makes it EINTR; sleeping calls are always EINTR. */
#include "check.h"
#include <linux/futex.h>
static volatile int caught;
static void handler(int signal) { caught++; }
static int fds[2];
static void later(int ms, int and_write) {
    pid_t parent = getpid();
    if (fork() == 0) {
        sleep_ms(ms);
        kill(parent, SIGUSR1);
        if (and_write) { sleep_ms(ms); write(fds[1], "w", 1); }
        _exit(0);
    }
}
static void try(int flags, const char *what) {
    char byte = 0;
    on_signal(SIGUSR1, handler, flags);
    caught = 0;
    later(50, 1);
    errno = 0;
    ssize_t n = read(fds[0], &byte, 1);
    printf("%s: read %zd errno %d caught %d\n", what, n, n < 0 ? errno : 0, caught);
    if (n < 0) read(fds[0], &byte, 1);
    while (wait(NULL) > 0) {}
    later(50, 0);
    struct timespec t = {5, 0}, left;
    CHECK(nanosleep(&t, &left) == -1 && errno == EINTR && left.tv_sec >= 3);
    later(50, 0);
    struct pollfd p = {fds[0], POLLIN, 0};
    FAILS(poll(&p, 1, 5000), EINTR);
    later(50, 0);
    FAILS(pause(), EINTR);
    later(50, 0);
    int word = 0;
    long r = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &(struct timespec){0, 300000000}, NULL, 0);
    printf("%s: futex %ld %s, caught %d\n", what, r, errno == EINTR || errno == ETIMEDOUT ? "ended" : "?", caught);
    while (wait(NULL) > 0) {}
}
int main(void) {
    OK(pipe(fds));
    try(SA_RESTART, "SA_RESTART");
    try(0, "plain");
    on_signal(SIGUSR1, handler, SA_RESTART);
    later(50, 0);
    int status;
    printf("wait with restart: %s\n", wait(&status) > 0 ? "child" : strerror(errno));
    return 0;
}
