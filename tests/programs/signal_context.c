/* The context of a signal in a blocked read can be read and changed: a register set there is there afterwards. */
#include "check.h"
#include <ucontext.h>
static volatile int caught;
static void handler(int s, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    CHECK(u->uc_mcontext.gregs[REG_RIP] != 0 && u->uc_mcontext.gregs[REG_RSP] != 0);
    char here;
    long distance = u->uc_mcontext.gregs[REG_RSP] - (long)&here;
    CHECK(distance > 0 && distance < 65536);
    u->uc_mcontext.gregs[REG_R15] = 0x1234567890abcdef;
    caught++;
}
int main(void) {
    int fds[2];
    OK(pipe(fds));
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGUSR1, &action, NULL));
    pid_t parent = getpid(), pid = OK(fork());
    if (pid == 0) { sleep_ms(100); kill(parent, SIGUSR1); sleep_ms(100); write(fds[1], "x", 1); _exit(0); }
    char byte;
    long value, result;
    __asm__ volatile("xor %%r15d, %%r15d\n syscall\n mov %%r15, %1" : "=a"(result), "=r"(value)
                     : "a"(SYS_read), "D"((long)fds[0]), "S"(&byte), "d"(1) : "rcx", "r11", "r15", "memory");
    printf("read %ld caught %d r15 %lx\n", result, caught, value);
    return wait_for(pid);
}
