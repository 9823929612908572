/* siginfo of kill, sigqueue, a child's end, a fault, a timer, tgkill; blocked and inspected masks inside the handler. */
#include "check.h"
#include <setjmp.h>
static siginfo_t last;
static sigset_t in_handler;
static sigjmp_buf back;
static void handler(int signal, siginfo_t *info, void *context) {
    last = *info;
    pthread_sigmask(SIG_BLOCK, NULL, &in_handler);
    if (signal == SIGSEGV || signal == SIGFPE || signal == SIGILL || signal == SIGTRAP) siglongjmp(back, 1);
}
static void install(int signal) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGHUP);
    OK(sigaction(signal, &action, NULL));
}
static void show(const char *what, int signal) {
    EQUAL(last.si_signo, signal);
    CHECK(sigismember(&in_handler, SIGHUP) && sigismember(&in_handler, signal));
    printf("%s: code %d\n", what, last.si_code);
}
int main(void) {
    int all[] = {SIGUSR1, SIGCHLD, SIGSEGV, SIGFPE, SIGILL, SIGALRM, SIGTRAP, SIGRTMIN};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) install(all[i]);
    kill(getpid(), SIGUSR1); show("kill", SIGUSR1);
    EQUAL(last.si_pid, getpid()); EQUAL(last.si_uid, getuid());
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1); show("tgkill", SIGUSR1);
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 4711}); show("sigqueue", SIGRTMIN);
    EQUAL(last.si_value.sival_int, 4711);
    pid_t pid = OK(fork());
    if (pid == 0) _exit(3);
    while (last.si_signo != SIGCHLD) sleep_ms(1);
    show("child", SIGCHLD); EQUAL(last.si_pid, pid); EQUAL(last.si_status, 3);
    wait_for(pid);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(back, 1)) *(volatile char *)(page + 100) = 1;
    show("protected page", SIGSEGV); CHECK(last.si_addr == page + 100);
    munmap(page, 4096);
    if (!sigsetjmp(back, 1)) *(volatile char *)(page + 200) = 1;
    show("unmapped page", SIGSEGV); CHECK(last.si_addr == page + 200);
    volatile int zero = 0, one = 1;
    if (!sigsetjmp(back, 1)) zero = one / zero;
    show("division", SIGFPE);
    if (!sigsetjmp(back, 1)) __asm__ volatile("ud2");
    show("ud2", SIGILL);
    if (!sigsetjmp(back, 1)) __asm__ volatile("int3");
    show("int3", SIGTRAP);
    struct itimerval timer = {{0, 0}, {0, 1000}};
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    while (last.si_signo != SIGALRM) sleep_ms(1);
    show("timer", SIGALRM);
    return 0;
}
