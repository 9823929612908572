/* Timers, sealed mappings and guard regions that a wrong guess has made are not there afterwards: the next timer has
   the next number, and memory can be written. */
#include "check.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static void look(int fd) {
    char byte;
    EQUAL(pread(fd, &byte, 1, 0), 1);
}

int main(void) {
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    EQUAL(write(fd, "text", 4), 4);
    struct sigevent never = {.sigev_notify = SIGEV_NONE};
    for (int i = 0; i < 15; i++) {
        int timer = -1;
        look(fd);
        OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &never, &timer));
        EQUAL(timer, i);
        look(fd);
        OK(syscall(SYS_timer_delete, timer));
        look(fd);
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED);
        if (syscall(SYS_mseal, page, 4096, 0) == 0) FAILS(munmap(page, 4096), EPERM);
        else EQUAL(errno, ENOSYS);
        char *guarded = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        guarded[0] = 'a';
        look(fd);
        EQUAL(guarded[0], 'a');
        /* MADV_GUARD_INSTALL: not every kernel has it. */
        if (madvise(guarded, 4096, 102) < 0) EQUAL(errno, EINVAL);
        look(fd);
        /* The same of itself by a descriptor. */
        int itself = OK(syscall(SYS_pidfd_open, getpid(), 0));
        struct iovec all = {guarded, 4096};
        if (syscall(SYS_process_madvise, itself, &all, 1, 102, 0) < 0) EQUAL(errno, EINVAL);
        OK(close(itself));
        look(fd);
        OK(munmap(guarded, 4096));
        look(fd);
    }
    return 0;
}
