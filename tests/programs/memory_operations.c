/* brk, mmap, mprotect, mremap, madvise, mlock, process_vm_readv of a child, mincore; 200 mappings come and go. */
#include "check.h"
int main(void) {
    char *old = sbrk(0);
    CHECK(sbrk(100000) == old);
    memset(old, 1, 100000);
    CHECK(sbrk(-100000) == old + 100000);
    for (int i = 0; i < 200; i++) {
        char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        p[0] = 1; p[65535] = 2;
        OK(mprotect(p + 4096, 4096, PROT_NONE));
        OK(munmap(p, 65536));
    }
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(p, "kept");
    p = mremap(p, 8192, 1 << 20, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED && !strcmp(p, "kept"));
    OK(madvise(p, 4096, MADV_DONTNEED));
    EQUAL(p[0], 0);
    FAILS(madvise(p, 4096, 9999), EINVAL);
    FAILS(munmap(p + 1, 4096), EINVAL);
    strcpy(p, "before");
    pid_t pid = OK(fork());
    if (pid == 0) { strcpy(p, "child's"); raise(SIGSTOP); _exit(0); }
    int status;
    OK(waitpid(pid, &status, WUNTRACED));
    char text[16] = "";
    struct iovec local = {text, 8}, remote = {p, 8};
    EQUAL(OK(process_vm_readv(pid, &local, 1, &remote, 1, 0)), 8);
    kill(pid, SIGCONT);
    wait_for(pid);
    printf("mine %s, the child's %s\n", p, text);
    return 0;
}
