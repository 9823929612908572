/* rollback PROCESSES OBJECTS ROUNDS: a chain of PROCESSES children, connected by pipes. In each round a guess is made, passed on from child to
   child and back, and fails. Each child also writes to OBJECTS pipes of its own. The status is 0 if every round was taken back. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "speculate.h"

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void make_pipe(int ends[2]) {
    if (pipe(ends) != 0) fail("pipe");
}

static void child(int in, int out, int objects) {
    int (*own)[2] = calloc(objects + 1, sizeof *own);
    for (int i = 0; i < objects; i++) make_pipe(own[i]);
    char byte;
    while (read(in, &byte, 1) == 1) {
        for (int i = 0; i < objects; i++) {
            if (write(own[i][1], &byte, 1) != 1) fail("write to an object");
        }
        if (write(out, &byte, 1) != 1) fail("pass on");
    }
    _exit(0);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    int processes = atoi(arguments[1]), objects = atoi(arguments[2]), rounds = atoi(arguments[3]);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int first[2], in[2], out[2];
    make_pipe(first);
    in[0] = first[0];
    for (int i = 0; i < processes; i++) {
        make_pipe(out);
        pid_t pid = fork();
        if (pid < 0) fail("fork");
        if (pid == 0) {
            close(first[1]);
            close(out[0]);
            child(in[0], out[1], objects);
        }
        close(in[0]);
        close(out[1]);
        in[0] = out[0];
    }
    volatile int failed = 0;
    for (volatile int round = 0; round < rounds; round++) {
        long guess = speculate_begin();
        if (guess <= 0) {
            failed++;
            continue;
        }
        char byte = 'x';
        if (write(first[1], &byte, 1) != 1 || read(in[0], &byte, 1) != 1) fail("chain");
        speculate_fail(guess);
        fail("a guess that failed went on");
    }
    close(first[1]);
    while (wait(NULL) > 0) {}
    /* What a rollback takes back, it does not take back here: a round that fails is counted after it. */
    return failed == rounds ? 0 : 1;
}
