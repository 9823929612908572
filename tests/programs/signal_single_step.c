/* A program that steps itself through its instructions (the trap flag) comes over its system calls. */
#include "check.h"
#include <ucontext.h>
static volatile long steps;
static volatile sig_atomic_t is_over;
static void on_step(int signal, siginfo_t *info, void *context) {
    (void)signal;
    ucontext_t *at = context;
    steps++;
    if (info->si_code != TRAP_TRACE) _exit(3);
    if (is_over) at->uc_mcontext.gregs[REG_EFL] &= ~0x100L;
}
static long getppid_by_hand(void) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
    return result;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGTRAP, &action, NULL));
    int pipe_ends[2];
    OK(pipe(pipe_ends));
    pid_t parent = getppid();
    long by_hand, written, read_back;
    char byte = 'x', back = 0;
    __asm__ volatile("sub $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
    by_hand = getppid_by_hand();
    written = write(pipe_ends[1], &byte, 1);
    read_back = read(pipe_ends[0], &back, 1);
    is_over = 1;
    CHECK(steps > 10);
    printf("parent %d, written %ld, read %ld: %c\n", by_hand == parent, written, read_back, back);
    return 0;
}
