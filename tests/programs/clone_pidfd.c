/* A child is made with a descriptor of itself (CLONE_PIDFD), in the memory of its parent, which waits for it by that
 * descriptor: as Go starts programs. And a child whose end no signal tells. */
#define _GNU_SOURCE
#include "check.h"
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

static int number = -1;
static volatile int shared, told;
static char stack[1 << 16] __attribute__((aligned(16)));

static void tell(int signal) {
    (void)signal;
    told++;
}

static int is_open(int fd) {
    return fd >= 0 && fcntl(fd, F_GETFD) >= 0;
}

/* The child finds the number, and has no descriptor of it. */
static int look(void *status) {
    shared = 10 + (number >= 0) + 2 * is_open(number);
    _exit((int)(long)status);
}

static int execute(void *unused) {
    (void)unused;
    shared = 20 + (number >= 0);
    execl("/bin/sh", "sh", "-c", "exit 5", NULL);
    _exit(1);
}

static int execute_nothing(void *unused) {
    (void)unused;
    execl("/nonexistent", "x", NULL);
    shared = errno;
    _exit(6);
}

static int born(int (*child)(void *), long argument, int flags) {
    number = -1;
    shared = 0;
    return OK(clone(child, stack + sizeof stack, flags, (void *)argument, &number));
}

/* clone3 calls nobody: the child begins in the middle of this. */
static int born_by_clone3(int (*child)(void *), long argument, int flags, int signal) {
    struct clone_args args = {
        .flags = flags, .pidfd = (long)&number, .exit_signal = signal, .stack = (long)stack, .stack_size = sizeof stack,
    };
    long result = SYS_clone3;
    number = -1;
    shared = 0;
    register int (*call)(void *) __asm__("r12") = child;
    register long given __asm__("r13") = argument;
    __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n mov %%r13, %%rdi\n call *%%r12\n hlt\n 1:"
                     : "+a"(result)
                     : "D"(&args), "S"(sizeof args), "r"(call), "r"(given)
                     : "rcx", "r11", "memory");
    return (int)result;
}

static void wait_by_descriptor(const char *what, pid_t pid, int options) {
    siginfo_t info = {0};
    int is_descriptor = is_open(number);
    int result = waitid(P_PIDFD, number, &info, WEXITED | options);
    int error = result < 0 ? errno : 0;
    printf("%s: %d, child wrote %d; error %d status %d own %d\n", what, is_descriptor, shared, error, info.si_status,
           info.si_pid == pid);
    EQUAL(waitid(P_PIDFD, number, &info, WEXITED | WNOHANG | __WALL), -1);
    printf("again: %d\n", errno == ECHILD);
    OK(close(number));
}

static void children_tell_by_a_signal(void) {
    int flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;
    wait_by_descriptor("ends", born(look, 7, flags | SIGCHLD), 0);
    wait_by_descriptor("executes", born(execute, 0, flags | SIGCHLD), 0);
    wait_by_descriptor("cannot execute", born(execute_nothing, 0, flags | SIGCHLD), 0);
    wait_by_descriptor("clone3", born_by_clone3(look, 8, flags, SIGCHLD), 0);
    wait_by_descriptor("clone3 executes", born_by_clone3(execute, 0, flags, SIGCHLD), 0);
    wait_by_descriptor("in other memory", born(look, 9, CLONE_PIDFD | SIGCHLD), 0);
    printf("told %d\n", told);
}

static void a_child_tells_by_no_signal(void) {
    int status = 0;
    told = 0;
    pid_t pid = born(look, 3, CLONE_VM | CLONE_VFORK | CLONE_PIDFD);
    EQUAL(waitpid(pid, &status, 0), -1);
    printf("no usual child: %d\n", errno == ECHILD);
    wait_by_descriptor("by __WCLONE", pid, __WCLONE);
    pid = born_by_clone3(look, 4, CLONE_VM | CLONE_VFORK | CLONE_PIDFD, 0);
    wait_by_descriptor("by __WALL", pid, __WALL);
    pid = born(look, 5, 0);
    EQUAL(waitpid(-1, &status, __WCLONE), pid);
    printf("in other memory: %d\n", WEXITSTATUS(status));
    printf("told %d\n", told);
    /* A new program tells as usual. */
    pid = born(execute, 0, CLONE_VM | CLONE_VFORK | CLONE_PIDFD);
    wait_by_descriptor("executes", pid, 0);
    printf("told %d\n", told);
    pid = born(look, 6, CLONE_VM | CLONE_VFORK | SIGCHLD);
    EQUAL(waitpid(pid, &status, __WCLONE), -1);
    printf("no child of clone: %d\n", errno == ECHILD);
    printf("status %d\n", wait_for(pid));
}

/* As Go asks whether there are descriptors of processes. */
static void a_process_asks_whether_it_is_there(void) {
    siginfo_t info;
    int own = OK(syscall(SYS_pidfd_open, getpid(), 0));
    EQUAL(waitid(P_PIDFD, own, &info, WEXITED), -1);
    printf("not its own child: %d\n", errno == ECHILD);
    printf("is there: %ld\n", syscall(SYS_pidfd_send_signal, own, 0, NULL, 0));
    OK(close(own));
}

int main(void) {
    struct sigaction action = {.sa_handler = tell, .sa_flags = SA_RESTART};
    OK(sigaction(SIGCHLD, &action, NULL));
    a_process_asks_whether_it_is_there();
    children_tell_by_a_signal();
    a_child_tells_by_no_signal();
    return 0;
}
