/* 1,000 short children, some at once; each is waited for once, and pids are positive and distinct among the living. */
#include "check.h"
int main(void) {
    long sum = 0;
    for (int i = 0; i < 100; i++) {
        pid_t pids[10];
        for (int j = 0; j < 10; j++) if ((pids[j] = OK(fork())) == 0) _exit((i + j) % 200);
        for (int j = 0; j < 10; j++) { for (int k = 0; k < j; k++) CHECK(pids[j] != pids[k]); sum += wait_for(pids[j]); }
    }
    FAILS(wait(NULL), ECHILD);
    printf("sum %ld\n", sum);
    return 0;
}
