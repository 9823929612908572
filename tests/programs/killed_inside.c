/* Processes are killed at any moment while they make calls and write: the parent and the others are not disturbed. */
#include "check.h"
int main(void) {
    int fds[2];
    OK(pipe(fds));
    int killed = 0;
    unsigned seed = 1;
    for (int i = 0; i < 100; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) for (;;) {
            int fd = open("scratch", O_RDWR | O_CREAT, 0644);
            write(fd, "12345678", 8); fsync(fd); lseek(fd, 0, SEEK_SET);
            char t[8];
            read(fd, t, 8); close(fd);
            struct stat s;
            stat("scratch", &s);
        }
        usleep(rand_r(&seed) % 3000);
        kill(pid, SIGKILL);
        killed += wait_for(pid) == 128 + SIGKILL;
        EQUAL(write(fds[1], "x", 1), 1);
    }
    char text[200];
    EQUAL(read(fds[0], text, 200), 100);
    OK(unlink("scratch"));
    printf("killed %d\n", killed);
    return 0;
}
