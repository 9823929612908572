/* A shell in a pseudo-terminal: echo, ^C to the foreground group, window size, hang-up at the end. */
/* @build -lutil */
#include "check.h"
#include <pty.h>
#include <sys/ioctl.h>
static int master;
static void expect(const char *text) {
    static char all[65536];
    size_t n = 0;
    memset(all, 0, sizeof all);
    long long end = now_us() + 10000000;
    while (!strstr(all, text)) {
        struct pollfd p = {master, POLLIN, 0};
        if (now_us() > end) FAIL("not seen: %s in: %s", text, all);
        if (poll(&p, 1, 100) == 1) { ssize_t r = read(master, all + n, sizeof all - 1 - n); if (r > 0) n += r; }
    }
    printf("seen %s\n", text);
}
static void type(const char *text) { EQUAL(write(master, text, strlen(text)), strlen(text)); }
int main(void) {
    struct winsize size = {30, 100, 0, 0};
    pid_t pid = OK(forkpty(&master, NULL, NULL, &size));
    if (pid == 0) { setenv("PS1", "prompt> ", 1); execl("/bin/sh", "sh", "-i", NULL); _exit(99); }
    expect("prompt>");
    type("echo a$((20+2))b\n");
    expect("a22b");
    type("stty size\n");
    expect("30 100");
    size.ws_row = 40;
    OK(ioctl(master, TIOCSWINSZ, &size));
    type("stty size\n");
    expect("40 100");
    type("sleep 100\n");
    sleep_ms(300);
    type("\003");
    expect("prompt>");
    type("echo status $?\n");
    expect("status 130");
    type("tty | cut -c1-9; test -t 0 && echo is-a-tty\n");
    expect("is-a-tty\r");
    type("exit 7\n");
    printf("status %d\n", wait_for(pid));
    char byte[256];
    ssize_t n;
    while ((n = read(master, byte, sizeof byte)) > 0) {}
    CHECK(n == -1 && errno == EIO);
    pid = OK(forkpty(&master, NULL, NULL, NULL));
    if (pid == 0) { write(1, "ready\n", 6); for (;;) pause(); }
    expect("ready");
    close(master);
    printf("hang-up %d\n", wait_for(pid));
    return 0;
}
