/* A process with two threads ignores SIGTRAP. Signals reach the second thread in the midst of its calls: each arrives
 * with the value that was sent with it, and SIGTRAP stays ignored. A step by the tracer would give SIGTRAP its default
 * action. The program sets no action of its own afterwards, so that nothing would repair that. */
#include "check.h"
static volatile int heard, wrong, is_over;
static void hears(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if (info->si_code != SI_QUEUE || info->si_value.sival_int != 4711) wrong++;
    heard++;
}
static volatile pid_t second;
static void *works(void *nothing) {
    struct stat s;
    second = syscall(SYS_gettid);
    for (int i = 0; !is_over; i++) {
        int fd = OK(open("kept", O_RDWR | O_CREAT, 0600));
        CHECK(write(fd, "x", 1) == 1);
        close(fd), stat("/", &s);
        if (i % 16 == 0) OK(syscall(SYS_tgkill, getpid(), second, SIGTRAP));
    }
    return nothing;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = hears, .sa_flags = SA_SIGINFO | SA_RESTART};
    signal(SIGTRAP, SIG_IGN);
    OK(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, works, NULL) == 0);
    while (!second) usleep(100);
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
    info.si_pid = getpid(), info.si_value.sival_int = 4711;
    for (int i = 0; i < 300; i++) {
        OK(syscall(SYS_rt_tgsigqueueinfo, getpid(), second, SIGUSR1, &info));
        usleep(300);
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    OK(kill(getpid(), SIGTRAP));
    OK(sigaction(SIGTRAP, NULL, &action));
    printf("ignored %d, heard some %d, wrong %d\n", action.sa_handler == SIG_IGN, heard > 0, wrong);
    return 0;
}
