/* A handler ends sendfile, splice and vmsplice: with what was transferred, with EINTR, or not at all with SA_RESTART. An ignored signal does not. */
#include "check.h"
#include <sys/sendfile.h>

#define SIZE (4 << 20)
static char bytes[SIZE], got[1 << 16];
static volatile sig_atomic_t handled;
static void handler(int signal) { (void)signal; handled++; }

/* A child sends `signal` once the parent sleeps in its call, and then, if it is given both ends, reads all that comes. */
static pid_t after_sleep(int signal, const int *ends) {
    pid_t parent = getpid(), child = OK(fork());
    if (child) return child;
    if (!comes_to_state(parent, 'S')) _exit(1);
    OK(kill(parent, signal));
    if (ends) {
        close(ends[1]);
        sleep_ms(50);
        if (!comes_to_state(parent, 'S')) _exit(2);
        while (read(ends[0], got, sizeof got) > 0) {}
    }
    _exit(0);
}
static void fill(int fd) {
    OK(fcntl(fd, F_SETFL, O_NONBLOCK));
    while (write(fd, bytes, 4096) > 0) {}
    OK(fcntl(fd, F_SETFL, 0));
}

int main(void) {
    int in = OK(open("big", O_RDWR | O_CREAT, 0644)), s[2], p[2];
    EQUAL(write(in, bytes, SIZE), SIZE);
    loff_t offset = 0;

    on_signal(SIGUSR1, handler, SA_RESTART);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    pid_t child = after_sleep(SIGUSR1, NULL);
    long n = sendfile(s[0], in, &offset, SIZE);
    CHECK(n > 0 && n < SIZE && n == offset && handled == 1);
    EQUAL(wait_for(child), 0);
    puts("a part was sent");

    OK(pipe(p));
    fill(p[1]);
    on_signal(SIGUSR1, handler, 0);
    struct iovec part = {bytes, 10};
    for (int i = 0; i < 3; i++) {
        child = after_sleep(SIGUSR1, NULL);
        offset = 5;
        n = i == 0 ? sendfile(p[1], in, &offset, 10) : i == 1 ? splice(in, &offset, p[1], NULL, 10, 0) : vmsplice(p[1], &part, 1, 0);
        printf("call %d: %s, offset %ld\n", i, n < 0 ? strerrorname_np(errno) : "done", (long)offset);
        EQUAL(wait_for(child), 0);
    }
    on_signal(SIGUSR1, handler, SA_RESTART);
    for (int ignored = 0; ignored < 2; ignored++) {
        OK(pipe(p));
        fill(p[1]);
        if (ignored) signal(SIGUSR1, SIG_IGN);
        child = after_sleep(SIGUSR1, p);
        close(p[0]);
        offset = 0;
        n = sendfile(p[1], in, &offset, 10);
        printf("%s: %ld\n", ignored ? "ignored" : "restarted", n);
        close(p[1]);
        EQUAL(wait_for(child), 0);
    }
    printf("handled %d\n", (int)handled);

    /* A socket that takes megabytes, and a signal that does nothing. */
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    child = after_sleep(SIGUSR1, (int[]){s[1], s[0]});
    close(s[1]);
    offset = 0;
    n = sendfile(s[0], in, &offset, SIZE);
    printf("with an ignored signal: %ld\n", n);
    close(s[0]);
    EQUAL(wait_for(child), 0);
    return 0;
}
