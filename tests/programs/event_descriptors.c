/* eventfd, timerfd, signalfd and epoll, level and edge triggered, between parent and child. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
int main(void) {
    int event = OK(eventfd(0, EFD_NONBLOCK)), timer = OK(timerfd_create(CLOCK_MONOTONIC, 0)), poll_fd = OK(epoll_create1(EPOLL_CLOEXEC));
    uint64_t value;
    FAILS(read(event, &value, 8), EAGAIN);
    FAILS(read(event, &value, 4), EINVAL);
    sigset_t set;
    sigemptyset(&set); sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = OK(signalfd(-1, &set, SFD_NONBLOCK));
    int all[] = {event, timer, signals};
    for (int i = 0; i < 3; i++) OK(epoll_ctl(poll_fd, EPOLL_CTL_ADD, all[i], &(struct epoll_event){.events = EPOLLIN | (i == 0 ? EPOLLET : 0), .data.fd = all[i]}));
    FAILS(epoll_ctl(poll_fd, EPOLL_CTL_ADD, event, &(struct epoll_event){0}), EEXIST);
    struct epoll_event e[4];
    EQUAL(epoll_wait(poll_fd, e, 4, 0), 0);
    pid_t pid = OK(fork());
    if (pid == 0) { sleep_ms(20); value = 5; OK(write(event, &value, 8)); value = 6; OK(write(event, &value, 8)); _exit(0); }
    EQUAL(epoll_wait(poll_fd, e, 4, 5000), 1);
    EQUAL(e[0].data.fd, event);
    wait_for(pid);
    OK(read(event, &value, 8));
    printf("event %lu\n", (unsigned long)value);
    struct itimerspec t = {{0, 0}, {0, 10000000}};
    OK(timerfd_settime(timer, 0, &t, NULL));
    int n = epoll_wait(poll_fd, e, 4, 5000);
    while (n == 1 && e[0].data.fd == event) n = epoll_wait(poll_fd, e, 4, 5000);
    EQUAL(n, 1); EQUAL(e[0].data.fd, timer);
    EQUAL(epoll_wait(poll_fd, e, 4, 0), 1);
    EQUAL(read(timer, &value, 8), 8);
    printf("timer %lu\n", (unsigned long)value);
    kill(getpid(), SIGUSR1);
    EQUAL(epoll_wait(poll_fd, e, 4, 5000), 1);
    struct signalfd_siginfo info;
    EQUAL(read(signals, &info, sizeof info), sizeof info);
    printf("signal %d\n", info.ssi_signo == SIGUSR1 && info.ssi_pid == (unsigned)getpid());
    OK(epoll_ctl(poll_fd, EPOLL_CTL_DEL, timer, NULL));
    FAILS(epoll_ctl(poll_fd, EPOLL_CTL_DEL, timer, NULL), ENOENT);
    int file = OK(open("f", O_CREAT | O_RDWR, 0644));
    FAILS(epoll_ctl(poll_fd, EPOLL_CTL_ADD, file, &(struct epoll_event){0}), EPERM);
    int semaphore = OK(eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK));
    for (int i = 0; i < 3; i++) { OK(read(semaphore, &value, 8)); EQUAL(value, 1); }
    FAILS(read(semaphore, &value, 8), EAGAIN);
    return 0;
}
