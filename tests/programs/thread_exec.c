/* A thread that is not the leader calls exec, while others are busy: the process goes on with its pid. */
#include "check.h"
static char **saved;
static void *spin(void *unused) {
    for (;;) { char byte; int fd = open("/dev/zero", O_RDONLY); read(fd, &byte, 1); close(fd); }
}
static void *run(void *unused) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    sleep_ms(20);
    execl("/proc/self/exe", saved[0], "after", pid, NULL);
    FAIL("exec");
}
int main(int count, char **arguments) {
    if (count == 3) {
        EQUAL(atoi(arguments[2]), getpid());
        EQUAL(getpid(), syscall(SYS_gettid));
        printf("same pid after exec\n");
        return 5;
    }
    saved = arguments;
    for (int round = 0; round < 5; round++) {
        pid_t child = OK(fork());
        if (child == 0) {
            pthread_t threads[3];
            for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, spin, NULL) == 0);
            CHECK(pthread_create(&threads[2], NULL, run, NULL) == 0);
            pause();
            for (;;) pause();
        }
        printf("status %d\n", wait_for(child));
        fflush(stdout);
    }
    return 0;
}
