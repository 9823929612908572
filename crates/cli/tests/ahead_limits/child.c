/* A guess, and a child that depends on it. When there is a file `go` the guess is right. Says which signal ended the child. */
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include "speculate.h"

int main(void) {
    long guess = speculate_begin();
    if (guess <= 0) {
        puts("WRONG");
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    struct timespec interval = {0, 20 * 1000 * 1000};
    while (access("go", F_OK) != 0) nanosleep(&interval, NULL);
    if (speculate_commit(guess) != 0) return 2;
    int status = 0;
    waitpid(child, &status, 0);
    printf("%d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    return 0;
}
