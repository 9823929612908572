/* Pipes: a non-blocking one takes what fits, atomically up to PIPE_BUF; O_DIRECT packets; FIONREAD; size; end of file. */
#include "check.h"
#include <limits.h>
#include <sys/ioctl.h>
int main(void) {
    int p[2], n;
    OK(pipe2(p, O_NONBLOCK));
    char *big = calloc(1, 1 << 20);
    printf("size %ld\n", OK(fcntl(p[1], F_GETPIPE_SZ)));
    printf("first write %zd\n", write(p[1], big, 1 << 20));
    FAILS(write(p[1], big, 1), EAGAIN);
    EQUAL(read(p[0], big, 1000), 1000);
    FAILS(write(p[1], big, PIPE_BUF), EAGAIN);
    EQUAL(read(p[0], big, 9000), 9000);
    printf("then %zd\n", write(p[1], big, 20000));
    OK(ioctl(p[0], FIONREAD, &n));
    printf("queued %d\n", n);
    printf("grown %ld\n", OK(fcntl(p[1], F_SETPIPE_SZ, 1 << 20)));
    printf("then %zd\n", write(p[1], big, 1 << 20));
    struct pollfd q[2] = {{p[0], POLLIN, 0}, {p[1], POLLOUT, 0}};
    OK(poll(q, 2, 0));
    printf("poll %d %d\n", q[0].revents, q[1].revents);
    close(p[1]);
    long total = 0;
    ssize_t r;
    while ((r = read(p[0], big, 100000)) > 0) total += r;
    OK(poll(q, 1, 0));
    printf("drained %ld end %zd poll %d\n", total, r, q[0].revents);
    OK(pipe2(p, O_DIRECT));
    OK(write(p[1], "abc", 3)); OK(write(p[1], "defgh", 5));
    r = read(p[0], big, 100);
    printf("packets %zd", r);
    r = read(p[0], big, 2);
    printf(" %zd\n", r);
    OK(pipe(p));
    pid_t pid = OK(fork());
    if (pid == 0) { close(p[0]); for (int i = 0; i < 100; i++) OK(write(p[1], big, 10007)); _exit(0); }
    close(p[1]);
    for (total = 0; (r = OK(read(p[0], big, 1 << 20))) > 0;) total += r;
    printf("blocking writer: %ld status %d\n", total, wait_for(pid));
    EQUAL(read(p[0], big, 1), 0);
    EQUAL(write(p[0], "x", 1), -1);
    return 0;
}
