/* Output to stdout and stderr by write, writev, pwrite's ESPIPE, sendfile and splice to stdout, after file changes. */
#include "check.h"
int main(void) {
    write_file("data", "from the file\n");
    int fd = OK(open("data", O_RDWR));
    for (int i = 0; i < 50; i++) {
        char line[64];
        int n = sprintf(line, "line %d\n", i);
        EQUAL(pwrite(fd, line, n, 100 + i * 10), n);
        if (i % 5 == 0) OK(fsync(fd));
        EQUAL(write(i % 3 ? 1 : 2, line, n), n);
    }
    struct iovec v[2] = {{"vector ", 7}, {"output\n", 7}};
    EQUAL(writev(1, v, 2), 14);
    FAILS(pwrite(1, "x", 1, 0), ESPIPE);
    off_t offset = 0;
    EQUAL(syscall(SYS_sendfile, 1, fd, &offset, 14), 14);
    int p[2];
    OK(pipe(p));
    EQUAL(write(p[1], "spliced\n", 8), 8);
    EQUAL(splice(p[0], NULL, 1, NULL, 8, 0), 8);
    if (OK(fork()) == 0) { write(1, "from a child\n", 13); _exit(0); }
    wait(NULL);
    dprintf(1, "at the end\n");
    return 3 - 3;
}
