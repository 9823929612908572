/* A branch jumps straight to a syscall instruction from elsewhere, with its number set there; and over bytes beside it. */
#include "check.h"
long direct(long number, long a, long b, long c);
long by_jump(long number, long a, long b, long c);
long loop_around(long a, long times);
__asm__(".text\n.globl direct\ndirect:\n mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
        "the_site: syscall\n after: nop\n nop\n ret\n"
        ".globl by_jump\nby_jump:\n mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n jmp the_site\n"
        /* The instruction after the call is a branch target, too: nothing here may be moved. */
        ".globl loop_around\nloop_around:\n xor %r8d, %r8d\n"
        "1: mov $39, %eax\n 2: syscall\n 3: inc %r8\n cmp %rsi, %r8\n jb 1b\n mov %r8, %rax\n ret\n"
        "jmp 2b\n jmp 3b\n");
int main(void) {
    int zero = OK(open("/dev/zero", O_RDONLY));
    char byte;
    for (int i = 0; i < 100; i++) {
        EQUAL(direct(SYS_read, zero, (long)&byte, 1), 1);
        EQUAL(by_jump(SYS_read, zero, (long)&byte, 1), 1);
        EQUAL(by_jump(SYS_close, -1, 0, 0), -EBADF);
        EQUAL(loop_around(0, 10), 10);
    }
    printf("branches to call sites\n");
    return 0;
}
