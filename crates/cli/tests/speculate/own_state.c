/* own_state WHAT: a guess is made and fails, or commits; what a process has of its own, beside memory and descriptors, is as it should be.
   kept: a timer that was set before the guess and changed in it. new: one that was set in it. exec: one that was set by the program before this one.
   usage: what a child used that ended on a guess. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "speculate.h"

static void set(int which, long seconds) {
    struct itimerval timer = {{0, 0}, {seconds, 0}};
    setitimer(which, &timer, NULL);
}

/* Hundreds of seconds that are left. */
static long left(int which) {
    struct itimerval timer;
    getitimer(which, &timer);
    return (timer.it_value.tv_sec + 50) / 100;
}

static void usage(void) {
    long guess = speculate_begin();
    if (guess <= 0) exit(1);
    pid_t child = fork();
    if (child == 0) {
        struct rusage own = {0};
        while (own.ru_utime.tv_sec * 1000000 + own.ru_utime.tv_usec < 80000) getrusage(RUSAGE_SELF, &own);
        _exit(3);
    }
    struct rusage used;
    int status;
    if (wait4(child, &status, 0, &used) != child) exit(1);
    speculate_commit(guess);
    long us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    printf("%d %d %d\n", WEXITSTATUS(status), us >= 60000 && us < 30000000, used.ru_maxrss > 100);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    const char *what = arguments[1];
    if (strcmp(what, "usage") == 0) return usage(), 0;
    if (strcmp(what, "exec") == 0) {
        set(ITIMER_REAL, 1000);
        execl(arguments[0], arguments[0], "executed", NULL);
        return 1;
    }
    if (strcmp(what, "kept") == 0) set(ITIMER_REAL, 1000);
    long guess = speculate_begin();
    if (guess > 0) {
        set(ITIMER_REAL, 500);
        set(ITIMER_PROF, 500);
        speculate_fail(guess);
        return 1;
    }
    printf("%ld %ld\n", left(ITIMER_REAL), left(ITIMER_PROF));
    return 0;
}
