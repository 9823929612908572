/* growth processes N MS | guesses N MS | objects N MS [fail] | pages N MS [fail]: makes calls for MS milliseconds (a
   byte through a pipe of the caller's own counts as two) inside one guess, beside N processes that do the same, with
   N open guesses, with N objects that the guess has changed, or with N pages that were stored to; prints how many
   calls were made in a second. With `fail` the guess is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "speculate.h"

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* Makes calls until this moment. How many. */
static long calls(double until) {
    int ends[2];
    char byte = 'x';
    long made = 0;
    if (pipe(ends) != 0) fail("pipe");
    do {
        for (int i = 0; i < 100; i++, made += 2) {
            if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) fail("pipe");
        }
    } while (now() < until);
    return made;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    long n = atol(words[2]), total = 0;
    double lasts = atol(words[3]) / 1e3;
    int is_wrong = count > 4;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    /* Root may have more. */
    if ((rlim_t)n + 100 > files.rlim_max) files.rlim_cur = files.rlim_max = n + 100;
    setrlimit(RLIMIT_NOFILE, &files);
    long *guesses = calloc(n + 1, sizeof *guesses), made = 1;
    guesses[0] = speculate_begin();
    if (guesses[0] <= 0) return is_wrong ? 0 : 3;
    double start = 0, took = 0;
    if (!strcmp(words[1], "processes")) {
        int counts[2];
        if (pipe(counts) != 0) fail("pipe");
        start = now();
        for (long i = 1; i < n; i++) {
            pid_t pid = fork();
            if (pid < 0) fail("fork");
            if (pid == 0) {
                long made = calls(start + lasts);
                if (write(counts[1], &made, sizeof made) != sizeof made) fail("a count");
                _exit(0);
            }
        }
        total = calls(start + lasts);
        for (long i = 1; i < n; i++) {
            long made;
            if (read(counts[0], &made, sizeof made) != sizeof made) fail("a count");
            total += made;
        }
        took = now() - start;
        while (wait(NULL) > 0) {}
    } else {
        if (!strcmp(words[1], "guesses")) {
            for (; made < n; made++) {
                guesses[made] = speculate_begin();
                if (guesses[made] <= 0) return 3;
            }
        } else if (!strcmp(words[1], "objects")) {
            for (long i = 0; i < n; i++) {
                unsigned long one = 1;
                int fd = eventfd(0, 0);
                if (fd < 0 || write(fd, &one, sizeof one) != sizeof one) fail("an object");
            }
        } else {
            char *pages = mmap(NULL, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (pages == MAP_FAILED) fail("mmap");
            for (long i = 0; i < n; i++) pages[i * 4096] = 1;
        }
        start = now();
        total = calls(start + lasts);
        took = now() - start;
    }
    if (is_wrong) {
        speculate_fail(guesses[0]);
        fail("a guess that failed went on");
    }
    printf("%.0f\n", (double)total / took);
    fflush(stdout);
    while (made-- > 0) speculate_commit(guesses[made]);
    return 0;
}
