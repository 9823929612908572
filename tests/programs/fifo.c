/* FIFOs between children: open waits for the other side, many writers, ENXIO, non-blocking, end of file. */
#include "check.h"
int main(void) {
    OK(mkfifo("fifo", 0644));
    FAILS(open("fifo", O_WRONLY | O_NONBLOCK), ENXIO);
    for (int i = 0; i < 3; i++) if (OK(fork()) == 0) {
        int fd = OK(open("fifo", O_WRONLY));
        for (int j = 0; j < 100; j++) { char line[8] = {'0' + i, 0}; EQUAL(write(fd, line, 8), 8); }
        _exit(0);
    }
    int fd = OK(open("fifo", O_RDONLY)), count[3] = {0};
    char line[8];
    ssize_t n;
    /* A writer may not have opened yet when another has closed: read on until all have ended. */
    for (int left = 300; left;) if ((n = OK(read(fd, line, 8))) == 8) { count[line[0] - '0']++; left--; } else sleep_ms(1);
    while (wait(NULL) > 0) {}
    EQUAL(read(fd, line, 8), 0);
    printf("%d %d %d\n", count[0], count[1], count[2]);
    int reader = OK(open("fifo", O_RDONLY | O_NONBLOCK)), writer = OK(open("fifo", O_WRONLY | O_NONBLOCK));
    FAILS(read(reader, line, 1), EAGAIN);
    EQUAL(write(writer, "x", 1), 1);
    EQUAL(read(reader, line, 8), 1);
    int both = OK(open("fifo", O_RDWR));
    close(writer);
    FAILS(read(reader, line, 1), EAGAIN);
    close(both);
    EQUAL(read(reader, line, 1), 0);
    return 0;
}
