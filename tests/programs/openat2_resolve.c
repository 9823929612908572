/* openat2 with every RESOLVE flag, and its errors. */
#include "check.h"
#include <linux/openat2.h>
static long open2(const char *path, uint64_t flags, uint64_t resolve) {
    struct open_how how = {.flags = flags, .resolve = resolve};
    long r = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    printf("%s %llx: %s\n", path, (unsigned long long)resolve, r < 0 ? strerrorname_np(errno) : "opened");
    if (r >= 0) close(r);
    return r;
}
int main(void) {
    OK(mkdir("d", 0755)); write_file("d/f", "x"); symlink("f", "d/link"); symlink("/etc/passwd", "d/absolute");
    open2("d/f", O_RDONLY, 0); open2("d/link", O_RDONLY, RESOLVE_NO_SYMLINKS); open2("d/f", O_RDONLY, RESOLVE_BENEATH); open2("../x", O_RDONLY, RESOLVE_BENEATH);
    open2("/etc/passwd", O_RDONLY, RESOLVE_BENEATH); open2("d/absolute", O_RDONLY, RESOLVE_IN_ROOT); open2("/proc/self/exe", O_RDONLY, RESOLVE_NO_MAGICLINKS);
    open2("/proc/self/status", O_RDONLY, RESOLVE_NO_XDEV); open2("d/f", O_RDONLY, 1 << 30);
    open2("d/f", 1ULL << 40, 0);
    struct open_how how = {.flags = O_RDONLY};
    FAILS(syscall(SYS_openat2, AT_FDCWD, "d/f", &how, 4), EINVAL);
    char big[sizeof how + 8] = {0};
    memcpy(big, &how, sizeof how);
    OK(syscall(SYS_openat2, AT_FDCWD, "d/f", big, sizeof big));
    big[sizeof how] = 1;
    FAILS(syscall(SYS_openat2, AT_FDCWD, "d/f", big, sizeof big), E2BIG);
    return 0;
}
