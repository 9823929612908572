/* Opening a file of which another process has a lease waits until that one gives it up; before it does, it waits for a change of its own. */
#include "check.h"
#include <mqueue.h>

static volatile sig_atomic_t broken;
static void handler(int signal) { (void)signal; broken = 1; }

static void hold_lease(int ready, int fd) {
    struct stat stat;
    on_signal(SIGIO, handler, 0);
    if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
        printf("no lease: %s\n", strerrorname_np(errno)), fflush(stdout);
        EQUAL(write(ready, "n", 1), 1);
        _exit(0);
    }
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGIO);
    OK(sigprocmask(SIG_BLOCK, &set, &old));
    EQUAL(write(ready, "y", 1), 1);
    while (!broken) sigsuspend(&old);
    write_file("log", "asked\n");
    mq_unlink("/no-such-queue-of-lease-open");
    OK(fstat(fd, &stat));
    printf("given up while the file has %ld bytes\n", (long)stat.st_size), fflush(stdout);
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    _exit(0);
}

int main(void) {
    int flags[] = {O_WRONLY | O_TRUNC, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND};
    for (int i = 0; i < 3; i++) {
        int ready[2];
        char answer;
        write_file("leased", "contents");
        OK(pipe(ready));
        pid_t holder = OK(fork());
        if (!holder) { /* A lease is for the only one who has it open. */
            hold_lease(ready[1], OK(open("leased", O_RDWR)));
        }
        EQUAL(read(ready[0], &answer, 1), 1);
        if (answer == 'y') {
            FAILS(open("leased", flags[i] | O_NONBLOCK, 0644), EAGAIN);
            int fd = OK(open("leased", flags[i], 0644));
            printf("opened, %ld bytes, flags %o\n", (long)lseek(fd, 0, SEEK_END), (int)OK(fcntl(fd, F_GETFL)) & (O_NONBLOCK | O_APPEND | O_ACCMODE));
            fflush(stdout);
            close(fd);
        }
        EQUAL(wait_for(holder), 0);
    }
    return 0;
}
