/* Whoever watches a program hears of one exec what natively is heard: nobody else opens or reads the file. */
#include "check.h"
#include <sys/inotify.h>

static void copy(const char *from, const char *to) {
    static char bytes[1 << 20];
    int in = OK(open(from, O_RDONLY | O_CLOEXEC)), out = OK(open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755));
    ssize_t n;
    while ((n = OK(read(in, bytes, sizeof bytes))) > 0) EQUAL(write(out, bytes, n), n);
    OK(close(in)); OK(close(out));
}

static void tell_events(int fd) {
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        for (char *p = buffer; p < buffer + n;) {
            struct inotify_event *event = (void *)p;
            printf("event %x\n", event->mask);
            p += sizeof *event + event->len;
        }
    EQUAL(errno, EAGAIN);
}

int main(void) {
    copy("/bin/true", "program");
    int fd = OK(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    OK(inotify_add_watch(fd, "program", IN_OPEN | IN_ACCESS | IN_CLOSE));
    for (int i = 0; i < 2; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { execl("./program", "program", NULL); _exit(9); }
        printf("status %d\n", wait_for(pid));
        tell_events(fd);
    }
    return 0;
}
