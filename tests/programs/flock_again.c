/* flock of a file that is there: taken and given up again and again, by other open files, by the end of who has it, by
 * a child that shares it, by who waits for it; what is written under it is found by whoever gets it next. */
#include "check.h"
#include <sys/file.h>
static int add(int fd) {
    char text[16] = {0};
    EQUAL(pread(fd, text, sizeof text, 0) >= 0, 1);
    int number = atoi(text) + 1;
    int length = snprintf(text, sizeof text, "%d", number);
    EQUAL(pwrite(fd, text, length, 0), length);
    return number;
}
int main(void) {
    int fd = OK(open("file", O_RDWR | O_CREAT, 0644));
    EQUAL(write(fd, "0", 1), 1);
    OK(close(fd));
    for (int i = 0; i < 4; i++) {
        fd = OK(open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0644));
        OK(flock(fd, LOCK_EX | LOCK_NB));
        printf("%d\n", add(fd));
        if (i % 2) OK(flock(fd, LOCK_UN));
        OK(close(fd));
    }
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            fd = OK(open("file", O_RDWR | O_CLOEXEC));
            OK(flock(fd, LOCK_EX));
            add(fd);
            _exit(i);
        }
        printf("child %d\n", wait_for(pid));
    }
    fd = OK(open("file", O_RDWR | O_CLOEXEC));
    OK(flock(fd, LOCK_EX));
    pid_t shares = OK(fork());
    if (shares == 0) {
        int own = OK(open("file", O_RDWR | O_CLOEXEC));
        FAILS(flock(own, LOCK_SH | LOCK_NB), EWOULDBLOCK);
        add(fd);
        OK(flock(fd, LOCK_UN));
        _exit(7);
    }
    printf("shares %d\n", wait_for(shares));
    OK(flock(fd, LOCK_EX | LOCK_NB));
    pid_t waits = OK(fork());
    if (waits == 0) {
        OK(close(fd));
        int own = OK(open("file", O_RDWR | O_CLOEXEC));
        OK(flock(own, LOCK_EX));
        _exit(add(own));
    }
    add(fd);
    sleep_ms(20);
    OK(close(fd));
    printf("waits %d\n", wait_for(waits));
    return 0;
}
