/* System calls on a stack of 1 KiB with a guard below, on an unaligned stack, with rsp at the end of a page. */
#include "check.h"
static int zero;
static long on_stack(char *top, long number, long a, long b, long c) {
    long result;
    __asm__ volatile("mov %%rsp, %%r12\n mov %1, %%rsp\n syscall\n mov %%r12, %%rsp\n" : "=a"(result) : "r"(top), "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "r12", "memory");
    return result;
}
int main(void) {
    zero = OK(open("/dev/zero", O_RDONLY));
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(mprotect(pages, 4096, PROT_NONE));
    OK(mprotect(pages + 8192, 4096, PROT_NONE));
    char *bottom = pages + 4096, byte;
    struct stat s;
    for (int round = 0; round < 3; round++) {
        EQUAL(on_stack(bottom + 1024, SYS_read, zero, (long)&byte, 1), 1);
        EQUAL(on_stack(bottom + 128, SYS_lseek, zero, 0, 1), 0);
        EQUAL(on_stack(bottom + 1021, SYS_read, zero, (long)&byte, 1), 1);
        EQUAL(on_stack(bottom + 4096, SYS_stat, (long)"/", (long)&s, 0), 0);
        EQUAL(on_stack(bottom + 517, SYS_fcntl, zero, F_GETFD, 0), 0);
        /* The stack pointer need not even point to memory. */
        EQUAL(on_stack(bottom, SYS_read, zero, (long)&byte, 1), 1);
        EQUAL(on_stack((char *)8, SYS_read, zero, (long)&byte, 1), 1);
    }
    printf("tiny, unaligned and absent stacks\n");
    return 0;
}
