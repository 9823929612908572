/* What was written into a FIFO with a name is found by a reader that was told of it by another way and does not wait:
   by select, epoll, FIONREAD, splice. The writer has changed a file before, so that what it writes is held. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>

static int reader, told[2], more[2];

static int selected(void) {
    struct timeval none = {0, 0};
    fd_set set;
    FD_ZERO(&set); FD_SET(reader, &set);
    return OK(select(reader + 1, &set, NULL, NULL, &none));
}
static int selected_with_mask(void) {
    struct timespec none = {0, 0};
    fd_set set;
    FD_ZERO(&set); FD_SET(reader, &set);
    return OK(pselect(reader + 1, &set, NULL, NULL, &none, NULL));
}
static int watched(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int set = OK(epoll_create1(0));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, reader, &event));
    int n = OK(epoll_wait(set, &event, 1, 0));
    close(set);
    return n;
}
static int counted(void) {
    int n = 0;
    OK(ioctl(reader, FIONREAD, &n));
    return n;
}
static int spliced(void) {
    int ends[2];
    OK(pipe(ends));
    int n = splice(reader, NULL, ends[1], NULL, 1, SPLICE_F_NONBLOCK);
    close(ends[0]), close(ends[1]);
    return n;
}

static void writes(const char *name) {
    char go;
    int fifo = OK(open(name, O_WRONLY));
    for (int i = 0; i < 5; i++) {
        EQUAL(read(more[0], &go, 1), 1);
        write_file("changed", "by the writer");
        EQUAL(write(fifo, "x", 1), 1);
        EQUAL(write(told[1], "t", 1), 1);
    }
    _exit(0);
}

int main(void) {
    int (*const ways[])(void) = {selected, selected_with_mask, watched, counted, spliced};
    const char *const names[] = {"select", "pselect", "epoll_wait", "FIONREAD", "splice"};
    char byte;
    OK(mkfifo("fifo", 0600));
    OK(pipe(told)), OK(pipe(more));
    pid_t writer = OK(fork());
    if (!writer) writes("fifo");
    reader = OK(open("fifo", O_RDONLY));
    OK(fcntl(reader, F_SETFL, O_NONBLOCK));
    for (int i = 0; i < 5; i++) {
        EQUAL(write(more[1], "m", 1), 1);
        EQUAL(read(told[0], &byte, 1), 1);
        printf("%s: %d\n", names[i], ways[i]());
        if (ways[i] != spliced) EQUAL(read(reader, &byte, 1), 1);
    }
    EQUAL(wait_for(writer), 0);
    return 0;
}
