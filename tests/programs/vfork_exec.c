/* vfork suspends its parent, shares its memory, and ends at exec or exit. */
#include "check.h"
int main(void) {
    volatile int shared = 0;
    pid_t pid = OK(vfork());
    if (pid == 0) { shared = 42; _exit(3); }
    printf("shared %d status %d\n", shared, wait_for(pid));
    for (int i = 0; i < 50; i++) {
        pid = OK(vfork());
        if (pid == 0) { shared = i; execl("/bin/sh", "sh", "-c", "exit $1", "x", i % 2 ? "5" : "6", NULL); _exit(99); }
        EQUAL(shared, i);
        EQUAL(wait_for(pid), i % 2 ? 5 : 6);
    }
    pid = OK(vfork());
    if (pid == 0) { execl("/nonexistent", "x", NULL); shared = errno; _exit(127); }
    printf("exec failed: errno %d status %d\n", shared, wait_for(pid));
    return 0;
}
