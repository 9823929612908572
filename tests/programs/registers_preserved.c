/* Raw system calls preserve every general register but rax, rcx and r11, and all of xmm, ymm, flags and red zone. */
#include "check.h"
#include <cpuid.h>
#include <immintrin.h>
static char buffer[64];
struct state { uint64_t r[16]; uint64_t flags; };
static void once(long number, long a, long b, long c, struct state *s, int set_flags) {
    __asm__ volatile(
        "push %%rbp\n push %%rbx\n push %%r12\n push %%r13\n push %%r14\n push %%r15\n push %4\n"
        "cmp $0, %5\n je 1f\n std\n stc\n jmp 2f\n 1: clc\n 2:\n"
        "lea -256(%%rsp), %%rsp\n"
        "movq $0x5a5a5a5a, -8(%%rsp)\n movq $0x6b6b6b6b, -64(%%rsp)\n movq $0x7c7c7c7c, -128(%%rsp)\n"
        "mov $0x1111, %%ebx\n mov $0x2222, %%ebp\n mov $0x3333, %%r12d\n mov $0x4444, %%r13d\n mov $0x5555, %%r14d\n mov $0x6666, %%r15d\n"
        "mov $0x7777, %%r8d\n mov $0x8888, %%r9d\n mov $0x9999, %%r10d\n"
        "syscall\n"
        "pushfq\n pop %%rcx\n cld\n"
        "mov 256(%%rsp), %%r11\n"
        "mov %%rax, 0(%%r11)\n mov %%rbx, 8(%%r11)\n mov %%rdi, 16(%%r11)\n mov %%rsi, 24(%%r11)\n mov %%rdx, 32(%%r11)\n mov %%rbp, 40(%%r11)\n"
        "mov %%r8, 48(%%r11)\n mov %%r9, 56(%%r11)\n mov %%r10, 64(%%r11)\n mov %%r12, 72(%%r11)\n mov %%r13, 80(%%r11)\n mov %%r14, 88(%%r11)\n mov %%r15, 96(%%r11)\n mov %%rcx, 128(%%r11)\n"
        "mov -64(%%rsp), %%rcx\n mov %%rcx, 104(%%r11)\n mov -128(%%rsp), %%rcx\n mov %%rcx, 112(%%r11)\n"
        "add $256, %%rsp\n pop %%rcx\n pop %%r15\n pop %%r14\n pop %%r13\n pop %%r12\n pop %%rbx\n pop %%rbp\n"
        : "+a"(number), "+D"(a), "+S"(b), "+d"(c)
        : "r"(s), "r"((long)set_flags) : "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
}
static void check_one(const char *what, long number, long a, long b, long c) {
    for (int round = 0; round < 3; round++) {
        struct state s = {0};
        once(number, a, b, c, &s, round % 2);
        long expected[] = {0, 0x1111, a, b, c, 0x2222, 0x7777, 0x8888, 0x9999, 0x3333, 0x4444, 0x5555, 0x6666, 0x6b6b6b6b, 0x7c7c7c7c};
        for (int i = 1; i < 15; i++) if ((long)s.r[i] != expected[i]) FAIL("%s round %d: register %d is %lx, was %lx", what, round, i, (long)s.r[i], expected[i]);
        CHECK(!!(s.flags & 0x400) == round % 2);
        CHECK(!!(s.flags & 1) == round % 2);
    }
    printf("%s: general registers, flags, red zone\n", what);
}
__attribute__((target("avx"))) static void vectors(const char *what, long number, long a, long b, long c) {
    char before[16 * 32], after[16 * 32];
    for (int i = 0; i < 512; i++) before[i] = i * 37 + 5;
#define LOAD(n) "vmovdqu " #n "*32(%1), %%ymm" #n "\n"
#define SAVE(n) "vmovdqu %%ymm" #n ", " #n "*32(%2)\n"
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
    __asm__ volatile(ALL(LOAD) "syscall\n" ALL(SAVE) "vzeroupper\n" : "+a"(number) : "r"(before), "r"(after), "D"(a), "S"(b), "d"(c)
        : "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    if (memcmp(before, after, 512)) FAIL("%s: a vector register changed", what);
}
int main(void) {
    int zero = OK(open("/dev/zero", O_RDONLY)), null = OK(open("/dev/null", O_WRONLY)), file = OK(open("file", O_RDWR | O_CREAT, 0644));
    struct { const char *name; long number, a, b, c; } calls[] = {
        {"getppid", SYS_getppid, 1, 2, 3}, {"read", SYS_read, zero, (long)buffer, 8}, {"write", SYS_write, null, (long)buffer, 8},
        {"write to a file", SYS_write, file, (long)buffer, 8}, {"lseek", SYS_lseek, zero, 0, 1}, {"fsync", SYS_fsync, file, 7, 8}, {"fcntl", SYS_fcntl, zero, 3, 0}, {"bad number", 9999, 1, 2, 3}, {"stat", SYS_stat, (long)"/", (long)malloc(256), 3}};
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) check_one(calls[i].name, calls[i].number, calls[i].a, calls[i].b, calls[i].c);
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_AVX))
        for (int round = 0; round < 3; round++) for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) vectors(calls[i].name, calls[i].number, calls[i].a, calls[i].b, calls[i].c);
    printf("vector registers\n");
    return 0;
}
