/* busy_neighbours [CHILDREN]: two children, or so many, write to pipes of their own without pause, and then tell their
   parent, all in one guess where there are guesses. On one processor each of them is often in the last steps of a call
   when another one has to be let through. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SYS_SPECULATE 0x5bed

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void write_and_read(double until) {
    int ends[2];
    char byte = 'x';
    if (pipe(ends) != 0) exit(1);
    do {
        for (int i = 0; i < 100; i++) {
            if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) exit(1);
        }
    } while (now() < until);
}

int main(int count, char **words) {
    int told[2], sum = 0, children = count > 1 ? atoi(words[1]) : 2;
    if (pipe(told) != 0) return 1;
    long guess = syscall(SYS_SPECULATE, 1, 0);
    double until = now() + 0.3;
    for (int child = 1; child <= children; child++) {
        if (fork() == 0) {
            write_and_read(until);
            return write(told[1], &child, sizeof child) != sizeof child;
        }
    }
    write_and_read(until);
    for (int child = 1; child <= children; child++) {
        int number;
        if (read(told[0], &number, sizeof number) != sizeof number) return 1;
        sum += number;
    }
    while (wait(NULL) > 0) {}
    if (guess > 0) syscall(SYS_SPECULATE, 2, guess);
    printf("children %d\n", sum);
    return 0;
}
