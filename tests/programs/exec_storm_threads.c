/* Eight threads call exec at the same moment, 40 times: one of them wins, the others are gone, and the descriptors are right. */
/* @timeout 60 */
#include "check.h"
enum { THREADS = 8, ROUNDS = 40 };
static pthread_barrier_t together;
static char **own;
static void *racing(void *argument) {
    char number[16];
    snprintf(number, sizeof number, "%ld", (long)argument);
    char *words[] = {own[0], "won", number, NULL};
    pthread_barrier_wait(&together);
    execv("/proc/self/exe", words);
    FAIL("exec");
}
int main(int count, char **arguments) {
    own = arguments;
    if (count == 3) {
        FAILS(fcntl(20, F_GETFD), EBADF); /* It was close-on-exec. */
        OK(fcntl(21, F_GETFD));
        EQUAL(getpid(), gettid());
        EQUAL(write(21, arguments[2], 1), 1);
        return 10 + atoi(arguments[2]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int fds[2];
        OK(pipe(fds));
        pid_t pid = OK(fork());
        if (pid == 0) {
            pthread_t thread;
            OK(dup3(fds[1], 20, O_CLOEXEC));
            OK(dup2(fds[1], 21));
            close(fds[0]); close(fds[1]);
            pthread_barrier_init(&together, NULL, THREADS);
            for (long i = 1; i < THREADS; i++) if (pthread_create(&thread, NULL, racing, (void *)i)) FAIL("pthread_create");
            racing((void *)0);
        }
        close(fds[1]);
        char winners[THREADS + 1];
        EQUAL(read(fds[0], winners, sizeof winners), 1);
        EQUAL(wait_for(pid), 10 + winners[0] - '0');
        EQUAL(read(fds[0], winners + 1, sizeof winners - 1), 0);
        close(fds[0]);
    }
    printf("%d rounds\n", ROUNDS);
    return 0;
}
