/* Who has the other end of a pair of sockets closes it, ends, is killed, or executes something: poll, epoll and read
 * tell of it, and of what came before. */
#include "check.h"
#include <sys/epoll.h>
static int ready(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    EQUAL(poll(&one, 1, -1), 1);
    return one.revents;
}
static void ends(int way) {
    int pair[2], status, set = OK(epoll_create1(EPOLL_CLOEXEC));
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    struct epoll_event event = {.events = EPOLLRDHUP};
    OK(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event));
    int child = OK(fork());
    if (child == 0) {
        close(pair[0]);
        EQUAL(write(pair[1], "text", 4), 4);
        if (way == 0) _exit(0);
        if (way == 1) raise(SIGKILL);
        if (way == 2) { execl("/bin/sh", "sh", "-c", "exit 2", NULL); _exit(9); }
        close(pair[1]);
        sleep_ms(20);
        _exit(3);
    }
    close(pair[1]);
    EQUAL(epoll_wait(set, &event, 1, -1), 1);
    printf("%d: %x", way, event.events);
    char text[8];
    EQUAL(read(pair[0], text, 2), 2);
    EQUAL(read(pair[0], text, 8), 2);
    printf(" %x", ready(pair[0]));
    EQUAL(read(pair[0], text, 8), 0);
    FAILS(write(pair[0], "x", 1), EPIPE);
    OK(waitpid(child, &status, 0));
    printf(" %x\n", status);
    close(pair[0]);
    close(set);
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    on_signal(SIGPIPE, SIG_IGN, 0);
    for (int way = 0; way < 4; way++) ends(way);
    for (int way = 0; way < 4; way++) ends(way);
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    EQUAL(write(pair[0], "unread", 6), 6);
    close(pair[1]);
    char text[8];
    FAILS(read(pair[0], text, 8), ECONNRESET);
    EQUAL(read(pair[0], text, 8), 0);
    return 0;
}
