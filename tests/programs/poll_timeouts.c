/* poll, ppoll, select, pselect and epoll_wait time out neither early nor very late, and wake for a child's write. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/select.h>
static int fds[2];
static int try(int how, int ms) {
    struct pollfd p = {fds[0], POLLIN, 0};
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    struct timeval v = {ms / 1000, ms % 1000 * 1000};
    fd_set set;
    FD_ZERO(&set); FD_SET(fds[0], &set);
    struct epoll_event e = {.events = EPOLLIN};
    int ep, r;
    switch (how) {
    case 0: return poll(&p, 1, ms);
    case 1: return ppoll(&p, 1, &t, NULL);
    case 2: return select(fds[0] + 1, &set, NULL, NULL, &v);
    case 3: return pselect(fds[0] + 1, &set, NULL, NULL, &t, NULL);
    default: ep = OK(epoll_create1(0)); OK(epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &e)); r = epoll_wait(ep, &e, 1, ms); close(ep); return r;
    }
}
int main(void) {
    OK(pipe(fds));
    for (int how = 0; how < 5; how++) {
        long long start = now_us();
        EQUAL(try(how, 60), 0);
        long long took = now_us() - start;
        CHECK(took >= 59000 && took < 5000000);
        pid_t pid = OK(fork());
        if (pid == 0) { sleep_ms(30); write(fds[1], "x", 1); _exit(0); }
        EQUAL(try(how, 10000), 1);
        CHECK(now_us() - start < 8000000);
        char byte;
        EQUAL(read(fds[0], &byte, 1), 1);
        wait_for(pid);
        EQUAL(try(how, 0), 0);
    }
    struct pollfd bad[2] = {{999, POLLIN, 0}, {-1, POLLIN, 0}};
    EQUAL(poll(bad, 2, 1000), 1);
    EQUAL(bad[0].revents, POLLNVAL);
    close(fds[1]);
    struct pollfd p = {fds[0], POLLIN, 0};
    EQUAL(poll(&p, 1, 1000), 1);
    printf("hang-up %d\n", p.revents == POLLHUP);
    return 0;
}
