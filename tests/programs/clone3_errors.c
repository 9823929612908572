/* clone3 with bad sizes and addresses, unshare with unknown flags, setns with what is no namespace: the kernel's own errors, in its order. */
/* @root */
#include "check.h"
#include <linux/sched.h>
#include <sys/eventfd.h>

static char *page_before_nothing(void) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    OK(mprotect(pages + 4096, 4096, PROT_NONE));
    return pages;
}

static long clone3_of(const void *args, size_t size) { return syscall(SYS_clone3, args, size); }

static void clone3_looks_at_the_structure(void) {
    struct clone_args args = {.exit_signal = SIGCHLD};
    char *pages = page_before_nothing();
    FAILS(clone3_of((void *)8, sizeof args), EFAULT);
    FAILS(clone3_of(NULL, sizeof args), EFAULT);
    FAILS(clone3_of((void *)-4096L, sizeof args), EFAULT);
    FAILS(clone3_of(pages + 4096 - 64, 88), EFAULT);
    FAILS(clone3_of(&args, 0), EINVAL);
    FAILS(clone3_of(&args, 63), EINVAL);
    FAILS(clone3_of((void *)8, 63), EINVAL);
    FAILS(clone3_of((void *)8, 4097), E2BIG);
    FAILS(clone3_of((void *)8, 4096), EFAULT);
    FAILS(clone3_of((void *)8, -1), E2BIG);
    /* Fields from the future: zeroes are nothing, other values are not understood. */
    memset(pages, 0, 4096);
    memcpy(pages, &args, sizeof args);
    long pid = OK(clone3_of(pages, 4096));
    if (pid == 0) _exit(31);
    printf("with zeroes behind: %d\n", wait_for(pid));
    pid = OK(clone3_of(&args, 67));
    if (pid == 0) _exit(32);
    printf("of an odd size: %d\n", wait_for(pid));
    pages[4095] = 1;
    FAILS(clone3_of(pages, 4096), E2BIG);
    FAILS(clone3_of(pages, 4095 + 8), E2BIG);
    pages[4095] = 0;
    FAILS(clone3_of(pages + 128, 4096), EFAULT);
}

static void unshare_looks_at_the_flags(void) {
    FAILS(unshare(-1), EINVAL);
    FAILS(unshare(CLONE_NEWIPC | CLONE_PARENT), EINVAL);
    FAILS(unshare(CLONE_PARENT), EINVAL);
}

static void setns_looks_at_the_descriptor(void) {
    int null = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
    int event = OK(eventfd(0, EFD_CLOEXEC));
    int uts = OK(open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC));
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    int kinds[] = {0, CLONE_NEWIPC, CLONE_NEWUTS, -1};
    for (int i = 0; i < 4; i++) {
        FAILS(setns(-1, kinds[i]), EBADF);
        FAILS(setns(987, kinds[i]), EBADF);
        FAILS(setns(null, kinds[i]), EINVAL);
        FAILS(setns(event, kinds[i]), EINVAL);
    }
    FAILS(setns(uts, CLONE_NEWIPC), EINVAL);
    FAILS(setns(uts, -1), EINVAL);
    FAILS(setns(self, 0), EINVAL);
    FAILS(setns(self, -1), EINVAL);
    printf("a namespace of any kind: %d\n", setns(uts, 0));
    printf("of this kind: %d\n", setns(uts, CLONE_NEWUTS));
}

int main(void) {
    clone3_looks_at_the_structure();
    unshare_looks_at_the_flags();
    setns_looks_at_the_descriptor();
    return 0;
}
