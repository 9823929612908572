/* A process that has just written a file types into a pseudo-terminal: whoever sits at it reads that, and it is echoed. */
/* @build -lutil */
#include "check.h"
#include <pty.h>
int main(void) {
    int master;
    pid_t pid = OK(forkpty(&master, NULL, NULL, NULL));
    if (pid == 0) {
        char line[64];
        OK(write(1, "ready\n", 6));
        ssize_t n = OK(read(0, line, sizeof line));
        _exit(n == 6 && !memcmp(line, "typed\n", 6) ? 5 : 6);
    }
    char seen[256] = "";
    for (size_t n = 0; !strstr(seen, "ready"); ) n += OK(read(master, seen + n, sizeof seen - 1 - n));
    write_file("before", "written\n");
    EQUAL(write(master, "typed\n", 6), 6);
    memset(seen, 0, sizeof seen);
    for (size_t n = 0; !strstr(seen, "typed"); ) n += OK(read(master, seen + n, sizeof seen - 1 - n));
    printf("echoed, status %d\n", wait_for(pid));
    return 0;
}
