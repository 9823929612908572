/* O_SYNC and O_DSYNC: open and F_GETFL tell them; writes work; RWF_DSYNC and RWF_SYNC of pwritev2; F_SETFL ignores them. */
#include "check.h"
static void flags(const char *what, int fd) {
    int f = OK(fcntl(fd, F_GETFL));
    printf("%s: O_SYNC %d O_DSYNC %d O_APPEND %d access %d\n", what, (f & O_SYNC) == O_SYNC, !!(f & O_DSYNC), !!(f & O_APPEND), f & O_ACCMODE);
}
int main(void) {
    int sync_fd = OK(open("sync", O_RDWR | O_CREAT | O_SYNC, 0644)), dsync = OK(open("dsync", O_WRONLY | O_CREAT | O_DSYNC, 0644));
    int plain = OK(open("plain", O_WRONLY | O_CREAT | O_APPEND, 0644));
    flags("O_SYNC", sync_fd);
    flags("O_DSYNC", dsync);
    flags("plain", plain);
    OK(fcntl(plain, F_SETFL, O_SYNC));
    flags("plain after F_SETFL", plain);
    EQUAL(write(sync_fd, "one\n", 4), 4);
    EQUAL(pwrite(dsync, "two\n", 4, 4), 4);
    struct iovec v[2] = {{"three ", 6}, {"four\n", 5}};
    EQUAL(pwritev2(plain, v, 2, 0, RWF_DSYNC), 11);
    EQUAL(pwritev2(plain, v, 2, 100, RWF_SYNC), 11);
    EQUAL(pwritev2(plain, v, 2, -1, RWF_DSYNC | RWF_SYNC), 11);
    FAILS(pwritev2(plain, v, 2, 0, 0x40000000), EOPNOTSUPP);
    char text[16] = "";
    struct iovec r = {text, 4};
    EQUAL(preadv2(sync_fd, &r, 1, 0, 0), 4);
    EQUAL(preadv2(sync_fd, &r, 1, 0, RWF_DSYNC) >= 0 || errno == EOPNOTSUPP, 1);
    flags("O_SYNC at the end", sync_fd);
    pid_t pid = OK(fork());
    if (pid == 0) { EQUAL(write(sync_fd, "child\n", 6), 6); flags("in the child", sync_fd); exit(0); }
    return wait_for(pid);
}
