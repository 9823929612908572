/* Timers are set, read, polled, shared with copies and children, and switched off. */
/* The time that is left of one is told in hundreds of seconds. */
/* @never WRONG */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void wrong(const char *what) { printf("WRONG %s (%s)\n", what, strerror(errno)); fflush(stdout); }
static void must(int is, const char *what) { if (!is) wrong(what); }
static void set(int timer, int flags, long value_ms, long interval_ms)
{
    struct timespec value = {value_ms / 1000, value_ms % 1000 * 1000000};
    struct timespec interval = {interval_ms / 1000, interval_ms % 1000 * 1000000};
    struct itimerspec to = {interval, value};
    must(timerfd_settime(timer, flags, &to, NULL) == 0, "set");
}
static uint64_t ticks(int timer)
{
    uint64_t count = 0;
    if (read(timer, &count, 8) != 8) return 0;
    return count;
}
static void show(const char *what, int timer)
{
    struct itimerspec now;
    must(timerfd_gettime(timer, &now) == 0, "get");
    printf("%s %ld %ld\n", what, (now.it_value.tv_sec + 50) / 100, (long)now.it_interval.tv_sec / 100);
    fflush(stdout);
}
static void in_child(int timer, int copy)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        show("child finds", copy);
        set(timer, 0, 700000, 0);
        _exit(7);
    }
    int status;
    must(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "wait");
    show("child has set", timer);
}
int main(void)
{
    const int clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
    for (int i = 0; i < 3; i++) {
        int timer = timerfd_create(clocks[i], TFD_NONBLOCK), waits = timerfd_create(clocks[i], 0), copy = dup(timer);
        set(timer, 0, 500000, 300000);
        show("set", timer);
        must(ticks(timer) == 0 && errno == EAGAIN, "early");
        set(waits, 0, 3, 0);
        must(ticks(waits) == 1, "once");
        show("over", waits);
        set(timer, 0, 3, 800000);
        must(poll(&(struct pollfd){copy, POLLIN}, 1, 10000) == 1, "poll");
        show("ticked", timer);
        must(ticks(copy) == 1, "copy");
        must(ticks(timer) == 0, "taken");
        in_child(timer, copy);
        uint64_t sum = 0;
        set(waits, 0, 2, 2);
        while (sum < 4) sum += ticks(waits);
        set(waits, 0, 0, 0);
        show("off", waits);
        close(timer);
        close(waits);
        show("copy", copy);
        close(copy);
    }
    int timer = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK), set_of = epoll_create1(0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    set(timer, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, (now.tv_sec + 400) * 1000, 0);
    show("moment", timer);
    must(epoll_ctl(set_of, EPOLL_CTL_ADD, timer, &(struct epoll_event){.events = EPOLLIN}) == 0, "add");
    struct epoll_event event;
    must(epoll_wait(set_of, &event, 1, 0) == 0, "none");
    set(timer, 0, 3, 3);
    for (int i = 0; i < 4; i++) must(epoll_wait(set_of, &event, 1, 10000) == 1 && ticks(timer) >= 1, "loop");
    puts("end");
    return 0;
}
