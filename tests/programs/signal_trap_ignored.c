/* SIGTRAP is ignored, and stays so, whatever other signals come at whatever moment; one that is blocked stays pending. */
#include "check.h"
static volatile int heard;
static void hears(int signal) { (void)signal; heard++; }
int main(void) {
    signal(SIGTRAP, SIG_IGN);
    on_signal(SIGUSR1, hears, SA_RESTART);
    pid_t sender = OK(fork());
    if (sender == 0) {
        for (int i = 0; i < rounds(400); i++) kill(getppid(), SIGUSR1), usleep(500);
        _exit(0);
    }
    int status;
    do {
        struct stat s;
        stat("/", &s);
        int fd = OK(open("kept", O_RDWR | O_CREAT, 0600));
        CHECK(write(fd, "x", 1) == 1);
        close(fd);
        OK(kill(getpid(), SIGTRAP));
    } while (waitpid(sender, &status, WNOHANG) == 0);
    struct sigaction action;
    OK(sigaction(SIGTRAP, NULL, &action));
    printf("ignored %d, heard some %d\n", action.sa_handler == SIG_IGN, heard > 0);
    OK(unlink("kept"));
    sigset_t traps, pending;
    sigemptyset(&traps), sigaddset(&traps, SIGTRAP);
    signal(SIGTRAP, SIG_DFL);
    OK(sigprocmask(SIG_BLOCK, &traps, NULL));
    OK(kill(getpid(), SIGTRAP));
    sender = OK(fork());
    if (sender == 0) {
        for (int i = 0; i < rounds(200); i++) kill(getppid(), SIGUSR1), usleep(500);
        _exit(0);
    }
    do {
        int fd = OK(open("kept", O_RDWR | O_CREAT, 0600));
        CHECK(write(fd, "x", 1) == 1);
        close(fd);
    } while (waitpid(sender, &status, WNOHANG) == 0);
    OK(sigpending(&pending));
    printf("pending %d\n", sigismember(&pending, SIGTRAP));
    OK(unlink("kept"));
    return 0;
}
