/* Two processes share their table of descriptors but not their memory (CLONE_FILES without CLONE_VM): each sees what the other does to it. */
#include "check.h"
static int raw_clone(unsigned long flags) { return OK(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0)); }
static void step(int fd) { EQUAL(write(fd, "s", 1), 1); }
static void await(int fd) { char c; EQUAL(read(fd, &c, 1), 1); }
int main(void) {
    int there[2], back[2], data[2];
    OK(pipe2(there, 0)); OK(pipe2(back, 0)); OK(pipe2(data, 0));
    int number = 50;
    write_file("a", "file a");
    write_file("b", "file b");
    pid_t pid = raw_clone(CLONE_FILES);
    if (pid == 0) {
        char text[16] = {0};
        for (int i = 0; i < 50; i++) {
            int fd = OK(open("a", O_RDWR));
            OK(dup2(fd, number)); OK(close(fd));
            step(there[1]); await(back[0]);
            /* The parent has put a pipe under the same number. */
            EQUAL(write(number, "piped", 5), 5);
            step(there[1]); await(back[0]);
            /* And closed it. */
            FAILS(write(number, "x", 1), EBADF);
            fd = OK(open("b", O_RDONLY));
            OK(dup2(fd, number)); OK(close(fd));
            EQUAL(read(number, text, 4), 4);
            step(there[1]); await(back[0]);
            FAILS(fcntl(number, F_GETFD), EBADF);
        }
        _exit(3);
    }
    char text[16] = {0};
    for (int i = 0; i < 50; i++) {
        await(there[0]);
        EQUAL(read(number, text, 6), 6);
        CHECK(memcmp(text, "file a", 6) == 0);
        OK(dup2(data[1], number));
        step(back[1]); await(there[0]);
        EQUAL(read(data[0], text, 16), 5);
        OK(close(number));
        step(back[1]); await(there[0]);
        EQUAL(read(number, text, 6), 2); /* The offset is shared too. */
        CHECK(memcmp(text, " b", 2) == 0);
        OK(close(number));
        step(back[1]);
    }
    EQUAL(wait_for(pid), 3);
    /* After exec the table is its own. */
    OK(dup2(data[1], number));
    pid = raw_clone(CLONE_FILES);
    if (pid == 0) { execl("/bin/bash", "bash", "-c", "exec 50>&-; exit 4", NULL); _exit(1); }
    EQUAL(wait_for(pid), 4);
    EQUAL(write(number, "x", 1), 1);
    OK(unlink("a")); OK(unlink("b"));
    printf("shared\n");
    return 0;
}
