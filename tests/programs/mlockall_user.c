/* mlockall by an ordinary user's process: what it has mapped itself is counted, and locked. */
#include "check.h"
#include <sys/resource.h>
enum { MIB = 1 << 20 };
static long locked_kib(void) {
    char line[200];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
    if (status) fclose(status);
    return kib;
}
static void limit(long bytes) {
    struct rlimit limit = {bytes, bytes};
    OK(setrlimit(RLIMIT_MEMLOCK, &limit));
}
int main(void) {
    limit(8L * MIB);
    if (geteuid() == 0) OK(setresuid(65534, 65534, 65534));
    char *some = mmap(0, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(some != MAP_FAILED);
    OK(mlockall(MCL_CURRENT));
    printf("locked %d\n", locked_kib() > 2 * 1024 && locked_kib() < 8 * 1024);
    OK(munlockall());
    printf("nothing is locked: %ld\n", locked_kib());
    OK(mlockall(MCL_FUTURE));
    printf("nothing is locked yet: %ld\n", locked_kib());
    char *more = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(more != MAP_FAILED);
    printf("what comes is locked: %d\n", locked_kib() >= 1024);
    OK(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
    printf("all is: %d\n", locked_kib() > 3 * 1024);
    OK(mlockall(MCL_CURRENT));
    long before = locked_kib();
    more = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(more != MAP_FAILED);
    printf("what comes is not: %d\n", locked_kib() == before);
    int is_locked = MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED;
    FAILS(mmap(0, 50L * MIB, PROT_READ, is_locked, -1, 0) == MAP_FAILED ? -1 : 0, EAGAIN);
    CHECK(mmap(0, 50L * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    FAILS(mlockall(MCL_CURRENT), ENOMEM);
    FAILS(mlockall(8 | MCL_CURRENT), EINVAL);
    FAILS(mlockall(MCL_ONFAULT), EINVAL);
    FAILS(mlockall(0), EINVAL);
    OK(munlockall());
    limit(0);
    FAILS(mlockall(MCL_CURRENT), EPERM);
    return 0;
}
