/* A handler leaves whatever system call is running by longjmp, at any moment, while calls are made without pause. */
#include "check.h"
#include <setjmp.h>
static sigjmp_buf back;
static volatile int armed;
static void handler(int s) { if (armed) { armed = 0; siglongjmp(back, 1); } }
int main(void) {
    on_signal(SIGALRM, handler, 0);
    struct itimerval timer = {{0, 200}, {0, 200}};
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    int zero = OK(open("/dev/zero", O_RDONLY));
    volatile int jumped = 0;
    long long end = now_us() + 1000000;
    while (now_us() < end) {
        if (sigsetjmp(back, 1)) { jumped++; continue; }
        armed = 1;
        for (int i = 0; i < 2000 && armed; i++) {
            char byte = 1;
            if (read(zero, &byte, 1) == 1 && byte != 0) FAIL("wrong byte");
            if (lseek(zero, 0, SEEK_CUR) != 0) FAIL("lseek");
            struct stat s;
            if (stat("/", &s) != 0 && errno != EINTR) FAIL("stat");
        }
        armed = 0;
    }
    OK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    printf("jumped often: %d\n", jumped > 100);
    return 0;
}
