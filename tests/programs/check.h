/* What the programs here share: a failed check prints one clear line and exits with status 1. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAIL(...) (fprintf(stderr, "%s:%d: ", __FILE__ + (strrchr(__FILE__, '/') ? strrchr(__FILE__, '/') - __FILE__ + 1 : 0), __LINE__), fprintf(stderr, __VA_ARGS__), fprintf(stderr, " (errno %d %s)\n", errno, strerror(errno)), _exit(1))
/* The condition holds. */
#define CHECK(condition) do { if (!(condition)) FAIL("not true: %s", #condition); } while (0)
/* The call succeeds; its value. */
#define OK(call) ({ long ok_value = (long)(call); if (ok_value < 0) FAIL("failed: %s", #call); ok_value; })
/* The call fails with this error. */
#define FAILS(call, error) do { errno = 0; long fails_value = (long)(call); if (fails_value != -1 || errno != (error)) FAIL("%s: returned %ld, expected errno %d %s", #call, fails_value, (error), strerror(error)); } while (0)
#define EQUAL(a, b) do { long long equal_a = (long long)(a), equal_b = (long long)(b); if (equal_a != equal_b) FAIL("%s is %lld, %s is %lld", #a, equal_a, #b, equal_b); } while (0)

/* How many of so many rounds are made: where each program runs under many seeds, fewer. */
static inline int rounds(int all) {
    const char *divisor = getenv("ROUNDS_DIVIDED_BY");
    return divisor ? all / atoi(divisor) : all;
}

/* Waits for a child; its exit status, or 128+n for a signal. */
static inline int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) FAIL("waitpid %d", pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Makes a directory and removes it until this is 0, at most so often: calls that may become guesses. */
static inline void make_directories_while(volatile int *left, int most) {
    for (int n = 0; *left > 0 && n < most; n++) {
        OK(mkdir("made", 0700));
        OK(rmdir("made"));
    }
}

static inline void sleep_ms(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) < 0 && errno == EINTR) {}
}

static inline long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* Installs a handler. */
static inline void on_signal(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    OK(sigaction(signal, &action, NULL));
}

/* What a file holds, as a string in a static buffer. */
static inline const char *contents(const char *path) {
    static char buffer[65536];
    int fd = OK(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = OK(read(fd, buffer, sizeof buffer - 1));
    buffer[n] = 0;
    close(fd);
    return buffer;
}

static inline void write_file(const char *path, const char *text) {
    int fd = OK(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    EQUAL(write(fd, text, strlen(text)), strlen(text));
    OK(close(fd));
}

/* Whether the state letter of a process in /proc becomes `wanted` within 5 s. */
static inline int comes_to_state(pid_t pid, char wanted) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int i = 0; i < 5000; i++) {
        FILE *file = fopen(path, "r");
        char state = 0;
        if (file) {
            fscanf(file, "%*d (%*[^)]) %c", &state);
            fclose(file);
        }
        if (state == wanted) return 1;
        usleep(1000);
    }
    return 0;
}
