/* Unknown system-call numbers are ENOSYS: negative, too large, unassigned (335 is uretprobe since Linux 6.11), with bits above 32; x32 numbers survive. */
#include "check.h"
static long raw(long n, long a) { long r; __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a) : "rcx", "r11", "memory"); return r; }
int main(void) {
    long numbers[] = {-1, -2, 600, 999, 340, 400, 100000, 1L << 40 | 600, INT32_MAX};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) printf("%lx: %ld\n", numbers[i], raw(numbers[i], -1));
    long r = raw(0x40000000 | SYS_close, -1);
    CHECK(r == -ENOSYS || r == -EBADF);
    r = raw(0x40000000 | 512, -1);
    CHECK(r < 0);
    printf("high bits are ignored by the kernel: %ld\n", raw(1L << 40 | SYS_close, -1));
    return 0;
}
