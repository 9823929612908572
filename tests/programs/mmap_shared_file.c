/* A file mapped shared by parent and children: what one writes the other reads, and the file has it in the end. */
#include "check.h"
int main(void) {
    int fd = OK(open("mapped", O_RDWR | O_CREAT, 0644));
    OK(ftruncate(fd, 65536));
    volatile int *map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    close(fd);
    for (int i = 0; i < 8; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { map[i * 1024] = 100 + i; __sync_fetch_and_add((int *)&map[8 * 1024], 1); if (i % 2) msync((void *)map, 65536, MS_SYNC); _exit(0); }
    }
    while (wait(NULL) > 0) {}
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += map[i * 1024];
    printf("sum %d count %d\n", sum, map[8 * 1024]);
    fd = OK(open("mapped", O_RDWR));
    int value;
    EQUAL(pread(fd, &value, 4, 4096), 4);
    printf("read %d\n", value);
    value = 5555;
    EQUAL(pwrite(fd, &value, 4, 8192), 4);
    printf("through the map %d\n", map[2048]);
    char *private = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    private[0] = 'p';
    printf("private leaves the file alone: %d\n", map[0] == 100);
    void *moved = mremap((void *)map, 65536, 131072, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    printf("moved %d\n", ((int *)moved)[1024]);
    OK(munmap(moved, 131072));
    return 0;
}
