/* Threads open and close files, pipes and sockets without pause, so that numbers change their meaning: every byte is where it belongs. */
/* @timeout 60 */
#include "check.h"
enum { THREADS = 6, ROUNDS = 400 };
static void file_round(long number, int round) {
    char name[32], text[32], found[32] = {0};
    snprintf(name, sizeof name, "reuse-%ld-%d", number, round % 3);
    int length = snprintf(text, sizeof text, "%ld:%d", number, round);
    int fd = OK(open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    EQUAL(write(fd, text, length), length);
    if (round % 5 == 0) OK(fsync(fd));
    OK(close(fd));
    fd = OK(open(name, O_RDONLY | O_CLOEXEC));
    EQUAL(read(fd, found, sizeof found), length);
    CHECK(strcmp(text, found) == 0);
    OK(close(fd));
}
static void channel_round(long number, int round, int socket) {
    int fds[2];
    char text[32], found[32] = {0};
    int length = snprintf(text, sizeof text, "channel %ld:%d", number, round);
    if (socket) OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds)); else OK(pipe2(fds, O_CLOEXEC));
    EQUAL(write(fds[1], text, length), length);
    EQUAL(read(fds[0], found, sizeof found), length);
    CHECK(strcmp(text, found) == 0);
    OK(close(fds[1]));
    EQUAL(read(fds[0], found, 1), 0);
    OK(close(fds[0]));
}
static void *worker(void *argument) {
    long number = (long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        switch ((round + number) % 3) {
        case 0: file_round(number, round); break;
        case 1: channel_round(number, round, 0); break;
        default: channel_round(number, round, 1);
        }
    }
    return NULL;
}
/* One thread closes and replaces a number by dup2 while the others write to it: each byte arrives in one of the two files. */
static int target, ends[2];
static volatile int done;
static void *swapper(void *unused) {
    (void)unused;
    for (int i = 0; !done; i++) OK(dup2(ends[i % 2], target));
    return NULL;
}
static void swapped(void) {
    pthread_t thread;
    ends[0] = OK(open("left", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644));
    ends[1] = OK(open("right", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644));
    target = OK(dup(ends[0]));
    pthread_create(&thread, NULL, swapper, NULL);
    for (int i = 0; i < 5000; i++) EQUAL(write(target, "x", 1), 1);
    done = 1;
    pthread_join(thread, NULL);
    struct stat left, right;
    OK(fstat(ends[0], &left)); OK(fstat(ends[1], &right));
    EQUAL(left.st_size + right.st_size, 5000);
    OK(unlink("left")); OK(unlink("right"));
}
int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) if (pthread_create(&threads[i], NULL, worker, (void *)i)) FAIL("pthread_create");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    swapped();
    printf("right\n");
    return 0;
}
