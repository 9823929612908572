/* What was written into a FIFO with a name is there for a reader that does not wait: read and poll find it at once. */
#include "check.h"
int main(void) {
    OK(mkfifo("fifo", 0600));
    int from = OK(open("fifo", O_RDONLY | O_NONBLOCK)), to = OK(open("fifo", O_WRONLY)), told[2], answers[2];
    OK(pipe(told)), OK(pipe(answers));
    pid_t reader = OK(fork());
    if (reader == 0) {
        char byte, text[8] = "";
        for (int i = 0; i < 3; i++) {
            if (read(told[0], &byte, 1) != 1) _exit(1);
            struct pollfd one = {.fd = from, .events = POLLIN};
            if (i == 0 && poll(&one, 1, 0) != 1) _exit(2);
            if (i == 1 && ppoll(&one, 1, &(struct timespec){0, 0}, NULL) != 1) _exit(3);
            if (read(from, text, sizeof text) != 5 || strcmp(text, "12345")) _exit(4);
            if (read(from, text, sizeof text) != -1 || errno != EAGAIN) _exit(5);
            if (write(answers[1], "x", 1) != 1) _exit(6);
        }
        _exit(0);
    }
    close(answers[1]);
    for (int i = 0; i < 3; i++) {
        /* Something that is not on the disk yet. */
        int file = OK(open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600));
        EQUAL(write(file, "new", 3), 3);
        close(file);
        EQUAL(write(to, "12345", 5), 5);
        EQUAL(write(told[1], "x", 1), 1);
        char byte;
        if (read(answers[0], &byte, 1) != 1) break;
    }
    printf("reader %d\n", wait_for(reader));
    return 0;
}
