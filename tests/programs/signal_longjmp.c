/* A handler leaves a blocked read by longjmp, many times; descriptors and later calls are sound. */
#include "check.h"
#include <setjmp.h>
static sigjmp_buf back;
static void handler(int s) { siglongjmp(back, 1); }
int main(void) {
    int fds[2];
    OK(pipe(fds));
    on_signal(SIGALRM, handler, SA_RESTART);
    volatile int jumped = 0;
    for (volatile int i = 0; i < 200; i++) {
        if (sigsetjmp(back, 1)) { jumped++; continue; }
        struct itimerval timer = {{0, 0}, {0, 500}};
        OK(setitimer(ITIMER_REAL, &timer, NULL));
        char byte;
        read(fds[0], &byte, 1);
        FAIL("the read returned");
    }
    EQUAL(write(fds[1], "ok", 2), 2);
    char text[3] = "";
    EQUAL(read(fds[0], text, 2), 2);
    int fd = OK(open("/dev/null", O_RDONLY));
    printf("jumped %d, then %s, next descriptor %d\n", jumped, text, fd);
    return 0;
}
