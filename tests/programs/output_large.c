/* 8 MB of output in odd pieces, between file changes, arrive complete and in order. */
#include "check.h"
int main(void) {
    int fd = OK(open("state", O_RDWR | O_CREAT, 0644));
    static char buffer[70000];
    unsigned long next = 0;
    for (int round = 0; round < 230; round++) {
        int size = 1 + (round * 7919) % 69000, at = 0;
        while (at + 12 < size) at += sprintf(buffer + at, "%lu\n", next++);
        OK(pwrite(fd, &round, 4, 0));
        if (round % 20 == 0) OK(fdatasync(fd));
        for (int done = 0; done < at;) done += OK(write(1, buffer + done, at - done));
    }
    return 0;
}
