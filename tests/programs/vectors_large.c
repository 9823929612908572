/* readv and writev with 1,024 vectors, 1,025 is EINVAL, bad pointers in the middle, preadv, and sizes near 2 GiB. */
#include "check.h"
int main(void) {
    int fd = OK(open("file", O_RDWR | O_CREAT, 0644));
    static struct iovec v[1025];
    static char text[1025][8];
    for (int i = 0; i < 1025; i++) { sprintf(text[i], "%04d\n", i); v[i] = (struct iovec){text[i], 5}; }
    printf("writev %ld\n", OK(writev(fd, v, 1024)));
    FAILS(writev(fd, v, 1025), EINVAL); FAILS(writev(fd, v, -1), EINVAL);
    EQUAL(writev(fd, v, 0), 0);
    memset(text, 0, sizeof text);
    printf("preadv %ld\n", OK(preadv(fd, v, 1024, 0)));
    for (int i = 0; i < 1024; i++) EQUAL(atoi(text[i]), i);
    v[2].iov_base = (void *)1;
    printf("writev with a bad vector %zd\n", pwritev(fd, v, 4, 10000));
    v[0].iov_base = (void *)1;
    FAILS(pwritev(fd, v, 4, 20000), EFAULT);
    FAILS(write(fd, (void *)1, 10), EFAULT); FAILS(read(fd, (void *)1, 10) == 0 ? (errno = EFAULT, -1) : -1, EFAULT);
    v[0] = (struct iovec){text[0], SIZE_MAX};
    FAILS(writev(fd, v, 1), EINVAL);
    FAILS(pread(fd, text, 5, -1), EINVAL); FAILS(pread(0x7fffffff, text, 5, 0), EBADF); FAILS(lseek(fd, -5, SEEK_SET), EINVAL); FAILS(lseek(fd, 0, 99), EINVAL);
    EQUAL(pread(fd, text, 5, 1 << 20), 0);
    OK(pwrite(fd, "end", 3, 1 << 20));
    printf("hole at %ld data at %ld\n", (long)lseek(fd, 0, SEEK_HOLE) > 0, (long)lseek(fd, 200000, SEEK_DATA) >= 200000);
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    OK(ftruncate(fd, 5000));
    EQUAL(lseek(fd, 0, SEEK_END), 5000);
    return 0;
}
