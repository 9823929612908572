/* A tree of processes, 40 deep and then 2 wide and 6 deep; the statuses add up at the root. */
#include "check.h"
static int deep(int left) {
    if (left == 0) return 1;
    pid_t pid = OK(fork());
    if (pid == 0) _exit(deep(left - 1));
    return wait_for(pid) + 1;
}
static int wide(int left) {
    if (left == 0) return 1;
    pid_t pids[2];
    int sum = 0;
    for (int i = 0; i < 2; i++) if ((pids[i] = OK(fork())) == 0) _exit(wide(left - 1));
    for (int i = 0; i < 2; i++) sum += wait_for(pids[i]);
    return sum;
}
int main(void) {
    printf("deep %d wide %d\n", deep(40), wide(6));
    return 0;
}
