/* Threads open, read, seek, write, watch and close files of their own, and replace descriptors that others read,
   while calls of the first thread make checkpoints. What they do to files needs no question on a permit. */
#include "check.h"
#include <sys/epoll.h>
enum { READERS = 3, ROUNDS = 40, LEN = 4000 };
static int shared, rounds_left = READERS;
static uint8_t pattern(unsigned at) { return (uint8_t)(at * 7 + at / 251); }
static void *use_files(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument, sum = 0;
    char name[32];
    snprintf(name, sizeof name, "own-%u", number);
    int own = OK(open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    int set = OK(epoll_create1(EPOLL_CLOEXEC));
    for (unsigned n = 0; n < ROUNDS; n++) {
        struct epoll_event event = {.events = EPOLLIN};
        struct stat found;
        uint8_t part[16];
        int fd = OK(open("pattern", O_RDONLY | O_CLOEXEC));
        int flags = OK(fcntl(fd, F_GETFL));
        EQUAL(OK(fcntl(fd, F_SETFL, flags | O_NONBLOCK)), 0);
        EQUAL(OK(fcntl(fd, F_GETFL)), flags | O_NONBLOCK);
        FAILS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), EPERM);
        unsigned at = (number * 97 + n * 31) % (LEN - 2 * sizeof part);
        EQUAL(OK(lseek(fd, at, SEEK_SET)), at);
        for (unsigned half = 0; half < 2; half++) {
            EQUAL(OK(read(fd, part, sizeof part)), (ssize_t)sizeof part);
            for (unsigned i = 0; i < sizeof part; i++) EQUAL(part[i], pattern(at + half * sizeof part + i));
        }
        EQUAL(OK(fstat(fd, &found)), 0);
        EQUAL(found.st_size, LEN);
        EQUAL(OK(write(own, part, sizeof part)), (ssize_t)sizeof part);
        /* Another thread replaces this one with a second description of the same file. */
        EQUAL(OK(pread(shared, part, sizeof part, at)), (ssize_t)sizeof part);
        for (unsigned i = 0; i < sizeof part; i++) sum += part[i] == pattern(at + i);
        EQUAL(OK(close(fd)), 0);
    }
    EQUAL(sum, ROUNDS * 16u);
    EQUAL(OK(lseek(own, 0, SEEK_CUR)), ROUNDS * 16);
    EQUAL(OK(close(own)), 0);
    EQUAL(OK(close(set)), 0);
    __atomic_sub_fetch(&rounds_left, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static void *replace(void *unused) {
    while (__atomic_load_n(&rounds_left, __ATOMIC_SEQ_CST) > 0) {
        int fd = OK(open("pattern", O_RDONLY | O_CLOEXEC));
        EQUAL(OK(dup2(fd, shared)), shared);
        EQUAL(OK(close(fd)), 0);
        usleep(500);
    }
    return unused;
}
int main(void) {
    pthread_t threads[READERS + 1];
    uint8_t bytes[LEN];
    setvbuf(stdout, NULL, _IONBF, 0);
    for (unsigned i = 0; i < LEN; i++) bytes[i] = pattern(i);
    int fd = OK(open("pattern", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    EQUAL(OK(write(fd, bytes, LEN)), LEN);
    EQUAL(OK(close(fd)), 0);
    shared = OK(open("pattern", O_RDONLY));
    for (uintptr_t i = 0; i < READERS; i++) CHECK(pthread_create(&threads[i], NULL, use_files, (void *)i) == 0);
    CHECK(pthread_create(&threads[READERS], NULL, replace, NULL) == 0);
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "made-%d", i);
        EQUAL(OK(mkdir(name, 0700)), 0);
        usleep(1500);
        EQUAL(OK(rmdir(name)), 0);
        printf("made %d\n", i);
    }
    for (int i = 0; i <= READERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < READERS; i++) {
        char name[32];
        struct stat found;
        snprintf(name, sizeof name, "own-%d", i);
        EQUAL(OK(stat(name, &found)), 0);
        printf("%s %ld\n", name, (long)found.st_size);
        EQUAL(OK(unlink(name)), 0);
    }
    EQUAL(OK(unlink("pattern")), 0);
    EQUAL(OK(open("/dev/null", O_RDONLY)), shared + 1);
    return 0;
}
