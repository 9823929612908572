/* Signals that carry a value, a thousand of them, to a process that is busy with calls that change something: each comes once, in its order, with
 * its value and its sender. Then the same number from kill(): it says that a process sent it, and which. */
#include "check.h"
static volatile long next, wrong, plain;
static pid_t sender;
static void take(int s, siginfo_t *info, void *context) {
    if (info->si_code == SI_USER && info->si_pid == sender) { plain++; return; }
    if (info->si_code != SI_QUEUE || info->si_pid != sender || info->si_value.sival_int != next) wrong++;
    next++;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = take, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGRTMIN, &action, NULL));
    sigset_t blocked, before;
    sigemptyset(&blocked), sigaddset(&blocked, SIGRTMIN);
    OK(sigprocmask(SIG_BLOCK, &blocked, &before));
    pid_t pid = OK(fork());
    if (pid == 0) {
        for (int i = 0; i < 1000; i++) {
            while (sigqueue(getppid(), SIGRTMIN, (union sigval){.sival_int = i}) == -1) usleep(100);
            if (i % 50 == 0) usleep(300);
        }
        for (int i = 0; i < 20; i++) OK(kill(getppid(), SIGRTMIN));
        _exit(0);
    }
    sender = pid;
    OK(sigprocmask(SIG_SETMASK, &before, NULL));
    int file = OK(open("file", O_RDWR | O_CREAT, 0644));
    long rounds = 0;
    long long end = now_us() + 20000000;
    while ((next < 1000 || plain < 20) && now_us() < end) {
        EQUAL(pwrite(file, "0123456789", 10, rounds % 100 * 10), 10);
        OK(rename("file", rounds % 2 ? "file" : "file"));
        int fd = OK(open("made", O_CREAT | O_WRONLY, 0644));
        OK(close(fd));
        OK(unlink("made"));
        rounds++;
    }
    printf("status %d, values %ld, wrong %ld, plain %ld\n", wait_for(pid), next, wrong, plain);
    OK(unlink("file"));
    return 0;
}
