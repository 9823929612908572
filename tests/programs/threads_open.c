/* Threads open, use and close descriptors while calls of another one make checkpoints. A checkpoint's list of
   descriptors was made before the other threads stood still: what one of them opened in between was closed by a
   rollback, and its next call with it said EBADF. */
#include "check.h"
#include <sys/eventfd.h>
enum { OPENERS = 3, ROUNDS = 60 };
static void *open_and_close(void *sum) {
    for (uint64_t n = 1; n <= ROUNDS; n++) {
        uint64_t value = 0;
        int fd = OK(eventfd(0, EFD_CLOEXEC)), copy = OK(fcntl(fd, F_DUPFD_CLOEXEC, 100));
        sched_yield();
        OK(write(fd, &n, 8));
        OK(close(fd));
        OK(read(copy, &value, 8));
        OK(close(copy));
        *(unsigned long *)sum += value;
    }
    return NULL;
}
int main(void) {
    pthread_t openers[OPENERS];
    unsigned long sums[OPENERS] = {0};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < OPENERS; i++) CHECK(pthread_create(&openers[i], NULL, open_and_close, &sums[i]) == 0);
    for (int i = 0; i < 10; i++) {
        struct stat found;
        OK(stat("/", &found));
        FAILS(stat("nothing", &found), ENOENT);
        printf("looked %d\n", i);
        usleep(2000);
    }
    for (int i = 0; i < OPENERS; i++) CHECK(pthread_join(openers[i], NULL) == 0);
    for (int i = 0; i < OPENERS; i++) printf("%lu\n", sums[i]);
    EQUAL(OK(open("/dev/null", O_RDONLY)), 3);
    return 0;
}
