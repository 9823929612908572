/* waits COUNT: COUNT times `stat` of a file that is there, and no other call but the end. No C library: its start looks at names, too.
   The status is 0 if each was found. */
#include <asm/unistd.h>
#include <fcntl.h>
#include <sys/stat.h>

static long call(long number, long a, long b, long c, long d) {
    register long d10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d10) : "rcx", "r11", "memory");
    return result;
}

__attribute__((used)) static void run(const long *stack) {
    const char *digits = stack[0] > 1 ? ((char **)(stack + 1))[1] : "0";
    long count = 0, found = 0;
    for (; *digits; digits++) count = count * 10 + (*digits - '0');
    for (long n = 0; n < count; n++) {
        struct stat about;
        if (call(__NR_newfstatat, AT_FDCWD, (long)"/etc/passwd", (long)&about, 0) == 0) found++;
    }
    call(__NR_exit_group, found != count, 0, 0, 0);
    for (;;) {}
}

__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-16, %rsp\n call run\n hlt\n");
