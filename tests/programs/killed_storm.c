/* 20 times, one of four processes in a storm of file writes is killed at a random moment while the others and the parent go on. */
/* @timeout 60 */
#include "check.h"
enum { WRITERS = 4, ROUNDS = 20, KILLED_US_MAX = 8000, DEADLINE_US = 15000000 };
static void writer(int number, int go_on) {
    char name[32], line[64];
    snprintf(name, sizeof name, "storm-%d", number);
    for (int i = 0;; i++) {
        struct pollfd stop = {.fd = go_on, .events = POLLIN};
        if (poll(&stop, 1, 0) != 0) _exit(0);
        int fd = OK(open(name, O_RDWR | O_CREAT, 0644));
        int length = snprintf(line, sizeof line, "%d %d\n", number, i);
        EQUAL(pwrite(fd, line, length, i % 64 * 64), length);
        if (i % 8 == number) OK(fsync(fd));
        OK(close(fd));
        if (i % 32 == number) { char other[32]; snprintf(other, sizeof other, "moved-%d", number); OK(rename(name, other)); OK(unlink(other)); }
    }
}
int main(void) {
    unsigned seed = 7;
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int round = 0; round < ROUNDS; round++) {
        int go_on[2];
        pid_t writers[WRITERS];
        OK(pipe(go_on));
        for (int i = 0; i < WRITERS; i++)
            if ((writers[i] = OK(fork())) == 0) { close(go_on[1]); writer(i, go_on[0]); }
        close(go_on[0]);
        long long start = now_us();
        usleep(rand_r(&seed) % KILLED_US_MAX);
        int victim = rand_r(&seed) % WRITERS;
        OK(kill(writers[victim], SIGKILL));
        printf("round %d\n", round);
        EQUAL(wait_for(writers[victim]), 128 + SIGKILL);
        usleep(rand_r(&seed) % KILLED_US_MAX);
        printf("reaped %d\n", round);
        close(go_on[1]);
        for (int i = 0; i < WRITERS; i++) if (i != victim) EQUAL(wait_for(writers[i]), 0);
        CHECK(now_us() - start < DEADLINE_US);
    }
    for (int i = 0; i < WRITERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "storm-%d", i);
        unlink(name);
        snprintf(name, sizeof name, "moved-%d", i);
        unlink(name);
    }
    return 0;
}
