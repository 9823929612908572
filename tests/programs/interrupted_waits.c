/* A signal whose handler has no SA_RESTART interrupts whoever waits, in whatever call, once. It comes a while after the
   call began; where it does not interrupt that, a later signal does, and the program says so. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>

enum { SOON_MS = 60, LATE_MS = 3000 };

static volatile int soon, late;
static void on_soon(int signal) { soon++; }
static void on_late(int signal) { late++; }

static timer_t timer;

static void arm(long first_ms, long late_ms) {
    struct itimerval value = {.it_value = {first_ms / 1000, first_ms % 1000 * 1000}};
    OK(setitimer(ITIMER_REAL, &value, NULL));
    struct itimerspec then = {.it_value = {late_ms / 1000, late_ms % 1000 * 1000000}};
    OK(timer_settime(timer, 0, &then, NULL));
}

static int fds[2], full[2], pair[2], epoll, event, queue, semaphore, locked, listening;

static long waits(int way) {
    char byte = 0;
    struct timespec long_time = {10, 0};
    struct pollfd polled = {fds[0], POLLIN, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fds[0], &set);
    struct epoll_event ready;
    sigset_t none;
    sigemptyset(&none);
    struct { long type; char text[8]; } message;
    struct sembuf down = {0, -1, 0};
    uint64_t value;
    switch (way) {
    case 0: return read(fds[0], &byte, 1);
    case 1: return poll(&polled, 1, 10000);
    case 2: return select(fds[0] + 1, &set, NULL, NULL, NULL);
    case 3: return epoll_wait(epoll, &ready, 1, 10000);
    case 4: return recv(pair[0], &byte, 1, 0);
    case 5: return read(event, &value, sizeof value);
    case 6: return write(full[1], &byte, 1);
    case 7: return nanosleep(&long_time, NULL);
    case 8: return pause();
    case 9: return sigsuspend(&none);
    case 10: return msgrcv(queue, &message, sizeof message.text, 0, 0);
    case 11: return semop(semaphore, &down, 1);
    case 12: return flock(locked, LOCK_EX);
    case 13: return wait(NULL);
    case 14: return waitpid(-1, NULL, __WALL);
    case 15: return accept(listening, NULL, NULL);
    case 16: return ppoll(&polled, 1, &long_time, &none);
    default: return clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL) ? -1 : 0;
    }
}

static const char *names[] = {
    "read", "poll", "select", "epoll_wait", "recv", "eventfd", "write", "nanosleep", "pause", "sigsuspend", "msgrcv",
    "semop", "flock", "wait", "waitpid", "accept", "ppoll", "clock_nanosleep",
};

int main(void) {
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    OK(timer_create(CLOCK_MONOTONIC, &how, &timer));
    on_signal(SIGALRM, on_soon, 0);
    on_signal(SIGUSR2, on_late, 0);
    OK(pipe(fds));
    OK(pipe(full));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    event = eventfd(0, 0);
    epoll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN};
    OK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &wanted));
    queue = msgget(IPC_PRIVATE, 0600);
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    listening = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un { sa_family_t family; char path[108]; } name = {AF_UNIX, "listening"};
    OK(bind(listening, (struct sockaddr *)&name, sizeof name));
    OK(listen(listening, 1));
    int other = open("locked", O_CREAT | O_RDWR, 0600);
    OK(flock(other, LOCK_EX));
    locked = open("locked", O_RDWR);
    char bytes[4096] = {0};
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    while (write(full[1], bytes, sizeof bytes) > 0) {}
    fcntl(full[1], F_SETFL, 0);
    for (unsigned way = 0; way < sizeof names / sizeof *names; way++) {
        /* A child that lives as long as this way lasts; some that are over already. */
        for (int i = 0; i < 2; i++) {
            pid_t over = fork();
            if (over == 0) _exit(0);
            OK(waitpid(over, NULL, 0));
        }
        pid_t child = fork();
        if (child == 0) {
            for (;;) pause();
        }
        soon = late = 0;
        arm(SOON_MS, LATE_MS);
        errno = 0;
        long said = waits(way);
        int error = errno;
        const char *how_it_ended = error == EINTR ? "interrupted" : strerror(error);
        printf("%s: %ld %s soon %d late %d\n", names[way], said, how_it_ended, soon, late);
        arm(0, 0);
        OK(kill(child, SIGKILL));
        int status = -1;
        pid_t waited;
        while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
        CHECK(waited == child && WTERMSIG(status) == SIGKILL);
    }
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphore, 0, IPC_RMID);
    return 0;
}
