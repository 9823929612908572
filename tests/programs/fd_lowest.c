/* Every call that makes a descriptor returns the lowest free number. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
int main(void) {
    int f[2];
    EQUAL(open("/dev/null", O_RDONLY), 3);
    EQUAL(dup(0), 4);
    OK(pipe(f)); EQUAL(f[0], 5); EQUAL(f[1], 6);
    EQUAL(eventfd(0, 0), 7);
    EQUAL(epoll_create1(0), 8);
    EQUAL(timerfd_create(CLOCK_MONOTONIC, 0), 9);
    EQUAL(inotify_init1(0), 10);
    OK(close(4));
    EQUAL(socket(AF_UNIX, SOCK_STREAM, 0), 4);
    OK(close(3)); OK(close(5));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, f)); EQUAL(f[0], 3); EQUAL(f[1], 5);
    EQUAL(memfd_create("m", 0), 11);
    sigset_t set; sigemptyset(&set);
    EQUAL(signalfd(-1, &set, 0), 12);
    EQUAL(fcntl(0, F_DUPFD, 20), 20);
    EQUAL(openat(AT_FDCWD, ".", O_DIRECTORY), 13);
    EQUAL(open(".", O_TMPFILE | O_RDWR, 0600), 14);
    EQUAL(open("/dev/zero", O_RDWR), 15);
    OK(close(7));
    EQUAL(fork() ? 7 : open("/dev/null", O_RDONLY), 7);
    wait(NULL);
    printf("all lowest\n");
    return 0;
}
