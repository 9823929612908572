/* A program is executed that a listener inside has to allow first: nobody else waits for the listener. */
/* @root */
#include "check.h"
#include <sys/fanotify.h>

/* Has a child of its own allow whatever it is asked, and counts; ends when the pipe does. The birth of a child needs a supervisor that does not wait. */
static void listen_until(int events, int end) {
    struct pollfd polls[] = {{events, POLLIN, 0}, {end, POLLIN, 0}};
    int asked = 0;
    while (OK(poll(polls, 2, -1)) && !polls[1].revents) {
        struct fanotify_event_metadata event;
        EQUAL(read(events, &event, sizeof event), sizeof event);
        struct fanotify_response response = {event.fd, FAN_ALLOW};
        pid_t pid = OK(fork());
        if (pid == 0) _exit(write(events, &response, sizeof response) == sizeof response ? 0 : 1);
        EQUAL(wait_for(pid), 0);
        OK(close(event.fd));
        asked++;
    }
    _exit(asked > 0 ? 0 : 1);
}

int main(void) {
    int in = OK(open("/bin/true", O_RDONLY | O_CLOEXEC)), out = OK(open("program", O_WRONLY | O_CREAT | O_CLOEXEC, 0755));
    static char bytes[1 << 20];
    ssize_t n;
    while ((n = OK(read(in, bytes, sizeof bytes))) > 0) EQUAL(write(out, bytes, n), n);
    OK(close(out));
    int events = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
    if (events < 0 || fanotify_mark(events, FAN_MARK_ADD, FAN_OPEN_PERM | FAN_ACCESS_PERM, AT_FDCWD, "program") < 0) {
        printf("this kernel asks nobody: %d\n", errno);
        return 0;
    }
    int end[2];
    OK(pipe2(end, O_CLOEXEC));
    pid_t listener = OK(fork());
    if (listener == 0) { close(end[1]); listen_until(events, end[0]); }
    OK(close(events)); OK(close(end[0]));
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { execl("./program", "program", NULL); _exit(9); }
        printf("executed: %d\n", wait_for(pid));
    }
    OK(close(end[1]));
    printf("the listener was asked: %d\n", wait_for(listener));
    return 0;
}
