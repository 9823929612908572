/* Waits for children of its own group. Its leader is of an outer namespace, so that the group's number is 0 here. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    for (int code = 0; code < 3; code++) {
        pid_t child = fork();
        if (child == 0) _exit(code);
        int status = -1;
        pid_t waited = waitpid(0, &status, 0);
        printf("%d %d %d\n", waited == child, status, getpgrp());
    }
    return 0;
}
