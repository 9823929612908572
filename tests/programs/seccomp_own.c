/* A program installs a seccomp filter of its own: it works, or is refused with an error; the program survives. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
int main(void) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {4, code};
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) {
            long r = syscall(SYS_getppid);
            CHECK(r == -1 && errno == EXDEV);
        }
        int fd = OK(open("/dev/zero", O_RDONLY));
        char byte;
        EQUAL(read(fd, &byte, 1), 1);
        _exit(0);
    }
    EQUAL(wait_for(pid), 0);
    printf("survived\n");
    return 0;
}
