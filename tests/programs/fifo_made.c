/* A FIFO that was just made: its attributes and names, who waits for the other end, who has both, signals and ends of
 * processes in between, and another one under the same name. */
#include "check.h"
static void show(const char *name) {
    struct stat found;
    OK(lstat(name, &found));
    printf("%s %o %ld %ld\n", name, found.st_mode, (long)found.st_nlink, (long)found.st_size);
}
static void caught(int number) { (void)number; }
int main(void) {
    umask(022);
    setvbuf(stdout, NULL, _IONBF, 0);
    OK(mkfifo("a", 0666));
    FAILS(mkfifo("a", 0666), EEXIST);
    OK(mknod("b", S_IFIFO | 0600, 0));
    OK(rename("b", "c"));
    show("a"); show("c");
    OK(unlink("c"));
    FAILS(open("c", O_RDONLY), ENOENT);
    for (int round = 0; round < 3; round++) {
        /* Whoever comes first waits for the other. */
        if (OK(fork()) == 0) {
            if (round == 1) sleep_ms(20);
            int fd = OK(open("a", O_WRONLY));
            EQUAL(write(fd, "text", 4), 4);
            if (round == 2) { close(fd); sleep_ms(20); }
            _exit(round);
        }
        int fd = OK(open("a", O_RDONLY)), status;
        char text[8];
        EQUAL(read(fd, text, 8), 4);
        EQUAL(read(fd, text, 8), 0);
        OK(wait(&status));
        EQUAL(WEXITSTATUS(status), round);
        close(fd);
    }
    /* A signal ends the wait for the other end. */
    struct sigaction action = {.sa_handler = caught};
    OK(sigaction(SIGALRM, &action, NULL));
    struct itimerval soon = {.it_value = {.tv_usec = 30000}, .it_interval = {.tv_usec = 30000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    FAILS(open("a", O_RDONLY), EINTR);
    soon = (struct itimerval){0};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    /* What is in it goes with its last user. */
    int both = OK(open("a", O_RDWR | O_NONBLOCK));
    EQUAL(write(both, "lost", 4), 4);
    close(both);
    both = OK(open("a", O_RDWR | O_NONBLOCK));
    char text[8];
    FAILS(read(both, text, 8), EAGAIN);
    EQUAL(write(both, "kept", 4), 4);
    int child = OK(fork());
    if (child == 0) {
        char text[8];
        EQUAL(read(both, text, 2), 2);
        printf("%.2s\n", text);
        raise(SIGKILL);
    }
    int status;
    OK(waitpid(child, &status, 0));
    EQUAL(WTERMSIG(status), SIGKILL);
    OK(unlink("a"));
    OK(mkfifo("a", 0600));
    EQUAL(read(both, text, 8), 2);
    printf("%.2s\n", text);
    show("a");
    int other = OK(open("a", O_RDWR | O_NONBLOCK));
    FAILS(read(other, text, 8), EAGAIN);
    return 0;
}
