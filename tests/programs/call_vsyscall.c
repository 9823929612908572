/* The vsyscall page's time, gettimeofday and getcpu, where the kernel has one; and the vDSO's clock. */
#include "check.h"
#include <setjmp.h>
static sigjmp_buf back;
static void fault(int s) { siglongjmp(back, 1); }
int main(void) {
    on_signal(SIGSEGV, fault, 0);
    if (!sigsetjmp(back, 1)) {
        time_t (*vsyscall_time)(time_t *) = (void *)0xffffffffff600400;
        time_t a = vsyscall_time(NULL), b = time(NULL);
        CHECK(b - a <= 1 && a - b <= 1);
    }
    struct timespec t, u;
    for (int i = 0; i < 1000; i++) {
        OK(clock_gettime(CLOCK_MONOTONIC, &t));
        OK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &u));
        CHECK(u.tv_sec > t.tv_sec || (u.tv_sec == t.tv_sec && u.tv_nsec >= t.tv_nsec));
    }
    unsigned cpu, node;
    OK(getcpu(&cpu, &node));
    unsigned char r[32] = {0};
    EQUAL(syscall(SYS_getrandom, r, 32, 0), 32);
    int nonzero = 0;
    for (int i = 0; i < 32; i++) nonzero += r[i] != 0;
    printf("time, cpu, random %d\n", nonzero > 10);
    return 0;
}
