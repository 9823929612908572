/* MAP_FIXED over an address where something of ours may be: it may be refused, the program survives. */
#include "check.h"
int main(void) {
    for (uintptr_t base = 0x600000000000; base < 0x600000000000 + 64 * 4096; base += 4096) {
        char *p = mmap((void *)base, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED) continue;
        p[0] = 1;
        munmap(p, 4096);
    }
    munmap((void *)0x600000000000, 1 << 20);
    mprotect((void *)0x600000000000, 1 << 20, PROT_NONE);
    madvise((void *)0x600000000000, 1 << 20, MADV_DONTNEED);
    char *low = mmap((void *)0x10000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (low != MAP_FAILED) low[0] = 1;
    int fd = OK(open("/dev/zero", O_RDONLY));
    char byte;
    EQUAL(read(fd, &byte, 1), 1);
    printf("survived\n");
    return 0;
}
