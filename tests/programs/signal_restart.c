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
/* A child that sends the signal again and again: a first one may come before the call that it is to end, where a busy
   machine takes longer to get there. */
static pid_t nagging(void) {
    pid_t parent = getpid(), pid = OK(fork());
    if (pid == 0) {
        for (int i = 0; i < 400; i++) { sleep_ms(50); kill(parent, SIGUSR1); }
        _exit(0);
    }
    return pid;
}
/* However often it was heard, it counts once. */
static void end_nagging(pid_t pid, int before) {
    OK(kill(pid, SIGKILL));
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
    CHECK(caught > before);
    caught = before + 1;
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
    int before = caught;
    pid_t child = nagging();
    struct timespec t = {20, 0}, left;
    CHECK(nanosleep(&t, &left) == -1 && errno == EINTR && left.tv_sec >= 3);
    end_nagging(child, before);
    child = nagging();
    struct pollfd p = {fds[0], POLLIN, 0};
    FAILS(poll(&p, 1, 20000), EINTR);
    end_nagging(child, before + 1);
    child = nagging();
    FAILS(pause(), EINTR);
    end_nagging(child, before + 2);
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
