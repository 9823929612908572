/* Threads fork and exec at the same time: each child has one thread, no deadlock, no lost descriptor. */
#include "check.h"
static void *forking(void *argument) {
    for (int i = 0; i < rounds(30); i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { if ((i & 1) == 0) _exit(i); execl("/bin/sh", "sh", "-c", "exit 77", NULL); _exit(1); }
        int status;
        EQUAL(OK(waitpid(pid, &status, 0)), pid);
        EQUAL(WEXITSTATUS(status), i & 1 ? 77 : i);
    }
    return NULL;
}
static volatile int stop;
static void *opening(void *u) { while (!stop) { int fd = OK(open("/dev/null", O_RDONLY | O_CLOEXEC)); close(fd); } return NULL; }
int main(void) {
    pthread_t t[4], o;
    CHECK(pthread_create(&o, NULL, opening, NULL) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&t[i], NULL, forking, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    stop = 1;
    pthread_join(o, NULL);
    printf("next descriptor %d\n", open("/dev/null", O_RDONLY));
    return 0;
}
