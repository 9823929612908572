/* A blocked SIGTRAP waits: while calls are made, children are born and signals are heard, until it is taken or heard
   itself. */
#include "check.h"

static volatile sig_atomic_t heard, others;
static int from_queue, value;
static void on_trap(int signal, siginfo_t *info, void *unused) {
    (void)signal, (void)unused;
    heard++, from_queue = info->si_code == SI_QUEUE, value = info->si_value.sival_int;
}
static void on_other(int signal) { (void)signal; others++; }
static int waits(void) {
    sigset_t pending;
    OK(sigpending(&pending));
    return sigismember(&pending, SIGTRAP);
}
static void be_busy(void) {
    struct stat status;
    for (int i = 0; i < 20; i++) {
        FAILS(stat("nothing", &status), ENOENT);
        int p[2];
        char byte;
        OK(pipe(p));
        EQUAL(write(p[1], "x", 1), 1);
        EQUAL(read(p[0], &byte, 1), 1);
        OK(close(p[0])), OK(close(p[1]));
        if (i % 5 == 0) {
            pid_t child = OK(fork());
            if (child == 0) _exit(waits());
            EQUAL(wait_for(child), 0);
            OK(raise(SIGUSR1));
        }
        CHECK(waits());
    }
}

int main(void) {
    sigset_t traps;
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGTRAP, &action, NULL));
    on_signal(SIGUSR1, on_other, SA_RESTART);
    sigemptyset(&traps), sigaddset(&traps, SIGTRAP);
    OK(sigprocmask(SIG_BLOCK, &traps, NULL));

    OK(raise(SIGTRAP));
    be_busy();
    /* A child's end may be told on the way out of a call. */
    for (int i = 0; i < 60; i++) {
        pid_t child = OK(fork());
        if (child == 0) _exit(0);
        EQUAL(wait_for(child), 0);
    }
    siginfo_t info;
    struct timespec none = {0};
    EQUAL(sigtimedwait(&traps, &info, &none), SIGTRAP);
    printf("taken: code %d, own %d\n", info.si_code, info.si_pid == getpid());
    FAILS(sigtimedwait(&traps, &info, &none), EAGAIN);

    OK(sigqueue(getpid(), SIGTRAP, (union sigval){.sival_int = 42}));
    be_busy();
    EQUAL(heard, 0);
    OK(sigprocmask(SIG_UNBLOCK, &traps, NULL));
    printf("heard %d, queued %d, value %d, others %d\n", (int)heard, from_queue, value, (int)others);
    return 0;
}
