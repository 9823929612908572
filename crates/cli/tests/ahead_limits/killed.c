/* A child that guesses and then waits to be killed. Says what its parent reads from the pipe of which the child had the only end, and what ended it. */
#include <stdio.h>
#include <sys/wait.h>
#include "speculate.h"

int main(void) {
    int ends[2], status = 0;
    char byte;
    if (pipe(ends) != 0) return 2;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        if (speculate_begin() <= 0) return 1;
        for (;;) pause();
    }
    close(ends[1]);
    long got = read(ends[0], &byte, 1);
    waitpid(child, &status, 0);
    printf("%ld %d\n", got, WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    return 0;
}
