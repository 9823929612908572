/* What glibc does from 2.41 on, and musl: the handler of a signal goes by whether the thread is at the call that can be
 * cancelled. Here by hand, with the library's own instructions: a thread that waits in `read` is cancelled, one that is
 * not at the call goes on, and a call that the handler lets go on begins again. */
#include "check.h"
#include <setjmp.h>
#include <ucontext.h>

extern char call_begin[], call_end[];
long cancellable(long nr, long a, long b, long c, long d, long e, long f);
__asm__(".text\n.globl cancellable\n.type cancellable, @function\ncancellable:\n.cfi_startproc\n"
        "sub $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
        "mov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rsi\nmov %rcx, %rdx\nmov %r8, %r10\nmov %r9, %r8\n"
        "call 1f\nadd $24, %rsp\n.cfi_adjust_cfa_offset -24\nret\n.cfi_endproc\n.size cancellable, .-cancellable\n"
        ".type inner, @function\ninner:\n1:\n.cfi_startproc\n.globl call_begin\ncall_begin:\n"
        "mov %rdi, %r11\nmov %r11, 8(%rsp)\nsyscall\n.globl call_end\ncall_end:\nret\n.cfi_endproc\n"
        ".size inner, .-inner\n");

static int fds[2], cancels;
static volatile int inside, outside, waits;
static sigjmp_buf away;
static void handler(int signal, siginfo_t *info, void *context) {
    char *at = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (at < call_begin || at >= call_end) { outside++; return; }
    inside++;
    if (cancels) siglongjmp(away, 1);
}
static void *reads(void *got) {
    char byte = 0;
    if (sigsetjmp(away, 1)) return "cancelled";
    waits = 1;
    if (cancellable(SYS_read, fds[0], (long)&byte, 1, 0, 0, 0) == 1) *(char *)got = byte;
    return "read";
}
static void *computes(void *unused) {
    waits = 1;
    while (!outside);
    return "computed";
}
static const char *signalled(void *(*what)(void *), char *got, int writes) {
    pthread_t thread;
    void *result;
    waits = 0;
    CHECK(pthread_create(&thread, NULL, what, got) == 0);
    while (!waits) sleep_ms(1);
    sleep_ms(30);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    sleep_ms(30);
    if (writes) CHECK(write(fds[1], "x", 1) == 1);
    CHECK(pthread_join(thread, &result) == 0);
    return result;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_RESTART | SA_SIGINFO};
    char got = 0;
    OK(pipe(fds));
    OK(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 3; i++) {
        cancels = 0;
        printf("%s", signalled(reads, &got, 1));
        printf(" %c\n", got);
        cancels = 1;
        printf("%s\n", signalled(reads, &got, 0));
    }
    printf("%s\n", signalled(computes, NULL, 0));
    printf("at the call %d, elsewhere %d\n", inside, outside);
    return 0;
}
