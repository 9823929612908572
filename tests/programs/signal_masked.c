/* With all signals blocked system calls go on; signals wait; sigpending, sigsuspend, sigtimedwait and sigwait take them. */
#include "check.h"
static volatile int caught;
static void handler(int s) { caught++; }
int main(void) {
    sigset_t all, old, pending;
    sigfillset(&all);
    on_signal(SIGUSR1, handler, 0);
    OK(sigprocmask(SIG_SETMASK, &all, &old));
    for (int i = 0; i < 1000; i++) { int fd = OK(open("/dev/null", O_RDWR)); OK(write(fd, "x", 1)); OK(close(fd)); }
    kill(getpid(), SIGUSR1);
    OK(sigpending(&pending));
    printf("pending %d caught %d\n", sigismember(&pending, SIGUSR1), caught);
    sigset_t now;
    OK(sigprocmask(SIG_BLOCK, NULL, &now));
    int count = 0;
    for (int s = 1; s < 65; s++) count += sigismember(&now, s) == 1;
    printf("blocked %d, KILL %d, STOP %d\n", count, sigismember(&now, SIGKILL), sigismember(&now, SIGSTOP));
    sigset_t none;
    sigemptyset(&none);
    FAILS(sigsuspend(&none), EINTR);
    printf("after sigsuspend caught %d\n", caught);
    siginfo_t info;
    FAILS(sigtimedwait(&all, &info, &(struct timespec){0, 50000000}), EAGAIN);
    pid_t pid = OK(fork());
    if (pid == 0) { sleep_ms(50); sigqueue(getppid(), SIGUSR2, (union sigval){.sival_int = 5}); _exit(1); }
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    EQUAL(sigtimedwait(&usr2, &info, &(struct timespec){5, 0}), SIGUSR2);
    printf("value %d status %d\n", info.si_value.sival_int, wait_for(pid));
    for (int i = 0; i < 5; i++) sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i});
    sigset_t real_time;
    sigemptyset(&real_time);
    sigaddset(&real_time, SIGRTMIN + 1);
    for (int i = 0; i < 5; i++) { OK(sigwaitinfo(&real_time, &info)); printf("queued %d\n", info.si_value.sival_int); }
    return 0;
}
