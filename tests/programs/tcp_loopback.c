/* TCP over loopback in one process tree: echo of 4 MiB, half close, reset, refused, SO_LINGER, non-blocking connect. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
static struct sockaddr_in at;
static int listening(void) {
    int s = OK(socket(AF_INET, SOCK_STREAM, 0));
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    OK(bind(s, (void *)&at, sizeof at));
    OK(listen(s, 8));
    socklen_t size = sizeof at;
    OK(getsockname(s, (void *)&at, &size));
    return s;
}
static int connected(void) { int s = OK(socket(AF_INET, SOCK_STREAM, 0)); OK(connect(s, (void *)&at, sizeof at)); return s; }
enum { TOTAL = 4 << 20 };
int main(void) {
    int server = listening();
    pid_t pid = OK(fork());
    if (pid == 0) {
        int c = OK(accept(server, NULL, NULL));
        char buffer[65536];
        ssize_t n;
        while ((n = OK(read(c, buffer, sizeof buffer))) > 0)
            for (ssize_t done = 0; done < n;) done += OK(send(c, buffer + done, n - done, MSG_NOSIGNAL));
        _exit(0);
    }
    int s = connected();
    pid_t writer = OK(fork());
    if (writer == 0) {
        char buffer[10000];
        for (long i = 0, n; i < TOTAL; i += n) {
            n = TOTAL - i < (long)sizeof buffer ? TOTAL - i : (long)sizeof buffer;
            for (long j = 0; j < n; j++) buffer[j] = (i + j) * 7;
            for (long done = 0; done < n;) done += OK(write(s, buffer + done, n - done));
        }
        OK(shutdown(s, SHUT_WR));
        _exit(0);
    }
    long got = 0;
    char buffer[30000];
    ssize_t n;
    while ((n = OK(read(s, buffer, sizeof buffer))) > 0) for (ssize_t i = 0; i < n; i++, got++) if (buffer[i] != (char)(got * 7)) FAIL("byte %ld", got);
    printf("echoed %ld, writer %d, server %d\n", got, wait_for(writer), wait_for(pid));
    s = connected();
    int c = OK(accept(server, NULL, NULL));
    OK(setsockopt(c, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)));
    OK(close(c));
    FAILS(read(s, buffer, 1), ECONNRESET);
    close(s);
    s = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    int r = connect(s, (void *)&at, sizeof at);
    CHECK(r == 0 || errno == EINPROGRESS);
    struct pollfd p = {s, POLLOUT, 0};
    EQUAL(poll(&p, 1, 5000), 1);
    int error = 1, one = 1;
    socklen_t size = sizeof error;
    OK(getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &size));
    OK(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    FAILS(read(s, buffer, 1), EAGAIN);
    printf("non-blocking connect: error %d\n", error);
    close(server);
    s = OK(socket(AF_INET, SOCK_STREAM, 0));
    FAILS(connect(s, (void *)&at, sizeof at), ECONNREFUSED);
    FAILS(send(OK(socket(AF_INET, SOCK_STREAM, 0)), "x", 1, MSG_NOSIGNAL), EPIPE);
    return 0;
}
