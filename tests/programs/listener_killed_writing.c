/* A process with a listening socket is killed while its last thread, or its first one, is inside a long write. Its end
   is told to whoever waits for it, and the name is free then. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { SIZE = 64 << 20, ROUNDS = 8 };

static char *content;
static int file;

static void *write_always(void *none) {
    for (;;)
        OK(pwrite(file, content, SIZE, 0));
    return none;
}

static void serve(int ready, int in_thread) {
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int listener = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(listener, (struct sockaddr *)&name, sizeof name));
    OK(listen(listener, 1));
    pthread_t thread;
    if (in_thread)
        EQUAL(pthread_create(&thread, NULL, write_always, NULL), 0);
    OK(write(ready, "r", 1));
    if (in_thread)
        pthread_exit(NULL);
    write_always(NULL);
}

int main(void) {
    content = calloc(1, SIZE);
    CHECK(content != NULL);
    file = OK(open("written", O_WRONLY | O_CREAT, 0600));
    for (int round = 0; round < ROUNDS; round++) {
        int ready[2], status;
        char byte;
        OK(pipe(ready));
        int child = OK(fork());
        if (child == 0)
            serve(ready[1], round % 2);
        EQUAL(OK(read(ready[0], &byte, 1)), 1);
        usleep(5000 + 3000 * round);
        OK(kill(child, SIGKILL));
        EQUAL(OK(waitpid(child, &status, 0)), child);
        printf("signal %d\n", WTERMSIG(status));
        close(ready[0]);
        close(ready[1]);
        OK(unlink("socket"));
    }
    OK(unlink("written"));
    return 0;
}
