/* The first thread ends, and the others go on: threads are made, messages sent, descriptors used as before. */
#include "check.h"
static void *adds(void *sum) { __atomic_add_fetch((int *)sum, 1, __ATOMIC_SEQ_CST); return NULL; }
static void *second(void *unused) {
    (void)unused;
    char state = 0;
    while (state != 'Z') {
        char stat[512] = "";
        int fd = OK(open("/proc/self/stat", O_RDONLY));
        CHECK(read(fd, stat, sizeof stat - 1) > 0);
        state = strrchr(stat, ')')[2];
        close(fd), sched_yield();
    }
    int sum = 0, pair[2];
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        EQUAL(pthread_create(&thread, NULL, adds, &sum), 0);
        EQUAL(pthread_join(thread, NULL), 0);
    }
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    char text[8] = "";
    struct iovec part = {"message", 7};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    EQUAL(OK(sendmsg(pair[0], &message, 0)), 7);
    EQUAL(OK(read(pair[1], text, 7)), 7);
    write_file("file", "written after the first thread");
    pid_t pid = OK(fork());
    if (pid == 0) _exit(strcmp(contents("file"), "written after the first thread") ? 1 : 7);
    printf("%d threads, %s, child %d\n", sum, text, wait_for(pid));
    exit(0);
}
int main(void) {
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, second, NULL), 0);
    pthread_exit(NULL);
}
