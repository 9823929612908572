/* Signals that are ignored do not make a wait longer: were it to begin again with each of them, it would never end. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
enum { WAIT_MS = 600 };
static int is_as_long(long long begin) {
    long long ms = (now_us() - begin) / 1000;
    return ms >= WAIT_MS - 50;
}
int main(void) {
    signal(SIGUSR1, SIG_IGN);
    pid_t parent = getpid(), sender = OK(fork());
    if (sender == 0) {
        while (getppid() == parent) kill(parent, SIGUSR1), usleep(100000);
        _exit(0);
    }
    struct timespec time = {0, WAIT_MS * 1000000L};
    int set = OK(epoll_create1(0));
    struct epoll_event event;
    long long begin = now_us();
    EQUAL(epoll_wait(set, &event, 1, WAIT_MS), 0);
    printf("epoll_wait %d\n", is_as_long(begin));
    begin = now_us();
    EQUAL(epoll_pwait2(set, &event, 1, &time, NULL), 0);
    printf("epoll_pwait2 %d\n", is_as_long(begin));
    sigset_t signals;
    sigemptyset(&signals), sigaddset(&signals, SIGUSR2);
    OK(sigprocmask(SIG_BLOCK, &signals, NULL));
    begin = now_us();
    FAILS(sigtimedwait(&signals, NULL, &time), EAGAIN);
    printf("sigtimedwait %d\n", is_as_long(begin));
    int id = OK(semget(IPC_PRIVATE, 1, 0600));
    struct sembuf take = {0, -1, 0};
    begin = now_us();
    FAILS(semtimedop(id, &take, 1, &time), EAGAIN);
    printf("semtimedop %d\n", is_as_long(begin));
    OK(semctl(id, 0, IPC_RMID));
    OK(kill(sender, SIGKILL));
    EQUAL(wait_for(sender), 128 + SIGKILL);
    return 0;
}
