/* Threads open files that are there, read them and close them, while calls of the first thread make checkpoints: where
   a file stands and whether it is open is put back with them. */
#include "check.h"
enum { READERS = 4, ROUNDS = 120 };
static volatile int left = READERS;
static void *reader(void *argument) {
    const char *name = argument;
    for (int n = 0; n < ROUNDS; n++) {
        char found[8] = {0};
        int fd = OK(open(name, O_RDONLY | O_CLOEXEC));
        EQUAL(read(fd, found, sizeof found), 4);
        CHECK(strcmp(found, name) == 0);
        EQUAL(read(fd, found, sizeof found), 0);
        OK(close(fd));
    }
    __sync_fetch_and_sub(&left, 1);
    return NULL;
}
int main(void) {
    static char *names[READERS] = {"one1", "two2", "thr3", "fou4"};
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) {
        int fd = OK(open(names[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        EQUAL(write(fd, names[i], 4), 4);
        OK(close(fd));
    }
    for (int i = 0; i < READERS; i++) CHECK(pthread_create(&threads[i], NULL, reader, names[i]) == 0);
    make_directories_while(&left, 400);
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    puts("right");
    return 0;
}
