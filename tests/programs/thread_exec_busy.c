/* A thread that is not the leader calls exec, while the leader makes calls all the time: first in vain, then the new
 * program has the leader's id, and nothing tells that the leader is gone. */
#include "check.h"
static char **saved;
static void spin(void) {
    for (;;) { char byte; int fd = OK(open("/dev/zero", O_RDONLY)); OK(read(fd, &byte, 1)); OK(close(fd)); }
}
static void *run(void *unused) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    sleep_ms(5);
    for (int i = 0; i < 3; i++) FAILS(execl("/nowhere/at/all", saved[0], NULL), ENOENT);
    execl("/proc/self/exe", saved[0], "after", pid, NULL);
    FAIL("exec");
}
int main(int count, char **arguments) {
    if (count == 3) {
        EQUAL(atoi(arguments[2]), getpid());
        EQUAL(getpid(), syscall(SYS_gettid));
        return 5;
    }
    saved = arguments;
    for (int round = 0; round < 4; round++) {
        pid_t child = OK(fork());
        if (child == 0) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
            spin();
        }
        printf("status %d\n", wait_for(child));
        fflush(stdout);
    }
    return 0;
}
