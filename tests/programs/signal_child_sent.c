/* SIGCHLD that a process sends itself is heard at once, as any signal is, beside what the kernel says of children. */
#include "check.h"
static volatile int heard, sent, told;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)context;
    heard++;
    if (info->si_code > 0) told++;
    else if (info->si_pid == getpid()) sent++;
}
static void handle(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGCHLD, &action, NULL));
}
/* Calls at which a guess may be made, or be found to be wrong. */
static void do_something(void) { OK(close(OK(dup(1)))); }
int main(void) {
    handle();
    for (int i = 1; i <= 5; i++) {
        OK(raise(SIGCHLD)); EQUAL(sent, 3 * i - 2); do_something();
        OK(kill(getpid(), SIGCHLD)); EQUAL(sent, 3 * i - 1); do_something();
        OK(sigqueue(getpid(), SIGCHLD, (union sigval){.sival_int = i})); EQUAL(sent, 3 * i); do_something();
    }
    EQUAL(heard, 15);
    sigset_t set, before, waiting;
    sigemptyset(&set); sigaddset(&set, SIGCHLD);
    OK(sigprocmask(SIG_BLOCK, &set, &before));
    OK(raise(SIGCHLD)); do_something();
    OK(sigpending(&waiting));
    EQUAL(sigismember(&waiting, SIGCHLD), 1); EQUAL(sent, 15);
    OK(sigprocmask(SIG_SETMASK, &before, NULL));
    EQUAL(sent, 16); EQUAL(told, 0);
    pid_t child = OK(fork());
    if (child == 0) {
        heard = sent = 0;
        OK(raise(SIGCHLD)); do_something();
        _exit(sent == 1 && heard == 1 ? 7 : 1);
    }
    EQUAL(wait_for(child), 7);
    while (told == 0) sleep_ms(1);
    OK(raise(SIGCHLD));
    EQUAL(sent, 17);
    signal(SIGCHLD, SIG_IGN); OK(raise(SIGCHLD)); do_something();
    signal(SIGCHLD, SIG_DFL); OK(raise(SIGCHLD)); do_something();
    handle(); do_something();
    printf("sent %d, told %s\n", sent, told == 1 ? "once" : "otherwise");
    return 0;
}
