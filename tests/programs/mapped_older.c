/* A file that was there, mapped shared to be written: by a process and its children, by mappings of their own, by a
 * child that ends at once; what they store is in the file for whoever reads it afterwards. */
#include "check.h"
static volatile int *map(int fd) {
    volatile int *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    return at;
}
int main(void) {
    int fd = OK(open("file", O_RDWR | O_CREAT, 0644)), number;
    OK(ftruncate(fd, 4096));
    OK(close(fd));
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { map(OK(open("file", O_RDWR)))[i] = i + 10; _exit(i); }
        printf("child %d\n", wait_for(pid));
    }
    fd = OK(open("file", O_RDWR));
    volatile int *mine = map(fd);
    mine[3] = 13;
    pid_t pid = OK(fork());
    if (pid == 0) {
        mine[4] = mine[3] + 1;
        volatile int *own = map(OK(open("file", O_RDWR)));
        own[5] = own[4] + 1;
        _exit(mine[5]);
    }
    printf("heir %d\n", wait_for(pid));
    OK(munmap((void *)mine, 4096));
    for (int i = 0; i < 6; i++) { EQUAL(pread(fd, &number, 4, 4 * i), 4); printf("%d ", number); }
    printf("\n");
    return 0;
}
