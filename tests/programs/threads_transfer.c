/* A thread has a file transferred into a socket and into a pipe, in calls of many pieces, while calls of the first
   thread make checkpoints: each byte arrives once, whatever is put back. */
#include "check.h"
#include <sys/sendfile.h>
enum { WORDS = 1 << 16, SIZE = WORDS * 4 };
static volatile int goes_on;
static uint32_t words[WORDS];
static int file, in;
/* Counters, from the first to the last, over and over. */
static void expect(int fd, int times) {
    static uint32_t found[4096];
    uint64_t at = 0;
    while (at < (uint64_t)SIZE * times) {
        ssize_t len = OK(read(fd, (char *)found + at % 4, sizeof found - at % 4));
        if (len == 0) FAIL("the end is after %llu", (unsigned long long)at);
        uint64_t word = at / 4;
        uint32_t count = (uint32_t)((at % 4 + len) / 4);
        for (uint32_t i = 0; i < count; i++, word++)
            if (found[i] != word % WORDS) FAIL("word %llu is %u", (unsigned long long)word, found[i]);
        if ((at + len) % 4) found[0] = found[count];
        at += len;
    }
    EQUAL(read(fd, found, 1), 0);
}
static ssize_t into_socket(off_t *at) { return sendfile(in, file, at, SIZE - *at); }
static ssize_t into_pipe(off_t *at) { return splice(file, at, in, NULL, SIZE - *at, 0); }
static void *sender(void *transfer) {
    int times = rounds(32);
    for (int n = 0; n < times; n++)
        for (off_t at = 0; at < SIZE;) CHECK(((ssize_t(*)(off_t *))transfer)(&at) > 0);
    OK(close(in));
    goes_on = 0;
    return NULL;
}
static void transfer(int to, int from, ssize_t (*by)(off_t *)) {
    in = to;
    goes_on = 1;
    pid_t child = OK(fork());
    if (child == 0) {
        OK(close(in));
        expect(from, rounds(32));
        _exit(0);
    }
    OK(close(from));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sender, (void *)by) == 0);
    while (goes_on) {
        make_directories_while(&goes_on, 1);
        usleep(5000);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL(wait_for(child), 0);
}
int main(void) {
    for (uint32_t i = 0; i < WORDS; i++) words[i] = i;
    file = OK(open("words", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    EQUAL(write(file, words, SIZE), SIZE);
    int pair[2], ends[2], other[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    transfer(pair[0], pair[1], into_socket);
    /* Since data was moved into it within the kernel, a pipe knows no writing without waiting (RWF_NOWAIT). */
    OK(pipe(ends));
    OK(pipe(other));
    EQUAL(write(other[1], words, 1), 1);
    EQUAL(splice(other[0], NULL, ends[1], NULL, 1, 0), 1);
    EQUAL(read(ends[0], words, 1), 1);
    transfer(ends[1], ends[0], into_pipe);
    puts("right");
    return 0;
}
