/* glibc registers a restartable sequence: cpu ids stay sane over many calls, migrations, forks; two cannot be registered. */
#include "check.h"
static void migrate(int rounds) {
    cpu_set_t all, one;
    OK(sched_getaffinity(0, sizeof all, &all));
    int zero = OK(open("/dev/zero", O_RDONLY));
    for (int i = 0; i < rounds; i++) for (int cpu = 0; cpu < 8; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one); CPU_SET(cpu, &one);
        OK(sched_setaffinity(0, sizeof one, &one));
        EQUAL(sched_getcpu(), cpu);
        char byte;
        EQUAL(read(zero, &byte, 1), 1);
        EQUAL(sched_getcpu(), cpu);
    }
    OK(sched_setaffinity(0, sizeof all, &all));
    close(zero);
}
static void *thread(void *u) { migrate(50); return NULL; }
int main(void) {
    migrate(100);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&t[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    pid_t pid = OK(fork());
    if (pid == 0) { migrate(50); _exit(0); }
    EQUAL(wait_for(pid), 0);
    char area[64] __attribute__((aligned(32))) = {0};
    long r = syscall(SYS_rseq, area, 32, 0, 0x53053053);
    CHECK(r == -1 && (errno == EINVAL || errno == EBUSY || errno == EPERM));
    printf("on the right cpu throughout\n");
    return 0;
}
