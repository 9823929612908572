/* Who unwinds the stack in the handler of a signal finds who made the call that the signal has come to (crash reports,
 * watchdogs, profilers; redis prints one): in calls that are over, that end with EINTR, and that begin again. */
#include "check.h"
#include <execinfo.h>
#include <linux/futex.h>
#include <sys/epoll.h>

#define FRAME __attribute__((noinline, noclone))
static void *trace[64];
static volatile int depth, caught;
static int fds[2], epoll_fd;
static pid_t child;
static void handler(int signal) {
    depth = backtrace(trace, 64);
    caught++;
}

/* Each makes one call, and does something behind it, so that it is no jump. */
static FRAME long raises(void) { return raise(SIGUSR1) + 1; }
static FRAME long kills(void) { return kill(getpid(), SIGUSR1) + 1; }
static FRAME long polls(void) { struct pollfd one = {fds[0], POLLIN, 0}; return poll(&one, 1, 10000) + 1; }
static FRAME long selects(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fds[0], &set);
    return select(fds[0] + 1, &set, NULL, NULL, NULL) + 1;
}
static FRAME long sleeps(void) { struct timespec t = {10, 0}; return nanosleep(&t, NULL) + 1; }
static FRAME long pauses(void) { return pause() + 1; }
static FRAME long epolls(void) { struct epoll_event event; return epoll_wait(epoll_fd, &event, 1, 10000) + 1; }
static FRAME long reads(void) { char byte; return read(fds[0], &byte, 1) + 1; }
static FRAME long waits_for_child(void) { int status; return (waitpid(child, &status, 0) == child) + 1; }
static FRAME long futexes(void) {
    int word = 1;
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0) + 1;
}

static void is_found(const char *name, long (*makes)(void), long result) {
    int found = 0;
    for (int i = 0; i < depth; i++) found |= (char *)trace[i] > (char *)makes && (char *)trace[i] < (char *)makes + 512;
    printf("%-16s %ld caught %d, %s\n", name, result, caught, found ? "found" : "not found");
    caught = depth = 0;
}
/* Somebody sends the signal when the process has gone to sleep, and then what the call waits for, if it goes on. */
static void interrupted(const char *name, long (*makes)(void), int goes_on) {
    pid_t parent = getpid(), pid = OK(fork());
    if (pid == 0) {
        CHECK(comes_to_state(parent, 'S'));
        sleep_ms(30);
        OK(kill(parent, SIGUSR1));
        sleep_ms(30);
        if (goes_on) EQUAL(write(fds[1], "x", 1), 1);
        _exit(0);
    }
    child = pid;
    is_found(name, makes, makes());
    if (makes != waits_for_child || !goes_on) EQUAL(wait_for(pid), 0);
}
int main(void) {
    backtrace(trace, 64); /* Loads what it needs. */
    OK(pipe(fds));
    struct epoll_event event = {.events = EPOLLIN};
    epoll_fd = OK(epoll_create1(0));
    OK(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[0], &event));
    for (int restarts = 0; restarts < 2; restarts++) {
        on_signal(SIGUSR1, handler, restarts ? SA_RESTART : 0);
        is_found("raise", raises, raises());
        is_found("kill", kills, kills());
        interrupted("poll", polls, 0);
        interrupted("select", selects, 0);
        interrupted("nanosleep", sleeps, 0);
        interrupted("pause", pauses, 0);
        interrupted("epoll_wait", epolls, 0);
        interrupted("read", reads, restarts);
        interrupted("waitpid", waits_for_child, restarts);
        if (restarts) { char byte; EQUAL(read(fds[0], &byte, 1), 1); }
        if (!restarts) interrupted("futex", futexes, 0);
    }
    return 0;
}
