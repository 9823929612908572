/* flock, fcntl and open-file-description locks between parent and child: conflicts, waiting, release at exit. */
#include "check.h"
static struct flock lock(int type) { return (struct flock){.l_type = type, .l_whence = SEEK_SET}; }
int main(void) {
    int fd = OK(open("file", O_RDWR | O_CREAT, 0644)), go[2], ready[2];
    OK(pipe(go)); OK(pipe(ready));
    struct flock l = lock(F_WRLCK);
    OK(flock(fd, LOCK_EX));
    OK(fcntl(fd, F_SETLK, &l));
    pid_t pid = OK(fork());
    if (pid == 0) {
        int own = OK(open("file", O_RDWR));
        FAILS(flock(own, LOCK_EX | LOCK_NB), EWOULDBLOCK);
        struct flock m = lock(F_WRLCK);
        CHECK(fcntl(own, F_SETLK, &m) == -1 && (errno == EAGAIN || errno == EACCES));
        OK(fcntl(own, F_GETLK, &m));
        CHECK(m.l_pid == getppid());
        m = lock(F_RDLCK);
        CHECK(fcntl(own, F_OFD_SETLK, &m) == -1 && errno == EAGAIN);
        write(ready[1], "r", 1);
        m = lock(F_WRLCK);
        OK(fcntl(own, F_SETLKW, &m));
        OK(flock(own, LOCK_EX));
        _exit(5);
    }
    char byte;
    EQUAL(read(ready[0], &byte, 1), 1);
    sleep_ms(30);
    l = lock(F_UNLCK);
    OK(fcntl(fd, F_SETLK, &l));
    OK(flock(fd, LOCK_UN));
    printf("waited and got both: %d\n", wait_for(pid));
    OK(flock(fd, LOCK_EX | LOCK_NB));
    l = lock(F_WRLCK);
    OK(fcntl(fd, F_OFD_SETLK, &l));
    int second = OK(open("file", O_RDWR));
    CHECK(fcntl(second, F_OFD_SETLK, &l) == -1 && errno == EAGAIN);
    close(fd);
    OK(fcntl(second, F_OFD_SETLK, &l));
    printf("released by the last close\n");
    return 0;
}
