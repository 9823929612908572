/* inotify tells what a child did in a directory, in order. */
#include "check.h"
#include <sys/inotify.h>
int main(void) {
    OK(mkdir("watched", 0755));
    int fd = OK(inotify_init1(IN_NONBLOCK));
    OK(inotify_add_watch(fd, "watched", IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO));
    pid_t pid = OK(fork());
    if (pid == 0) { write_file("watched/a", "x"); OK(rename("watched/a", "watched/b")); OK(unlink("watched/b")); OK(mkdir("watched/d", 0755)); _exit(0); }
    wait_for(pid);
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t n = OK(read(fd, buffer, sizeof buffer));
    for (char *p = buffer; p < buffer + n;) {
        struct inotify_event *e = (void *)p;
        printf("%s %x\n", e->len ? e->name : "", e->mask);
        p += sizeof *e + e->len;
    }
    FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
    return 0;
}
