/* Thousands of children that are killed before they can do anything, and of threads that end so, because their process
   does: nothing is left of any of them. */
#include "check.h"
static void *wait_forever(void *nothing) {
    for (;;) pause();
    return nothing;
}
static void killed(void) {
    pid_t pid = OK(fork());
    if (pid == 0) for (;;) pause();
    OK(kill(pid, SIGKILL));
    EQUAL(wait_for(pid), 128 + SIGKILL);
}
static void with_a_thread(void) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        pthread_t thread;
        _exit(pthread_create(&thread, NULL, wait_forever, NULL) == 0 ? 5 : 6);
    }
    EQUAL(wait_for(pid), 5);
}
int main(void) {
    for (int i = rounds(4500); i > 0; i--) {
        killed();
        with_a_thread();
    }
    FAILS(wait(NULL), ECHILD);
    printf("all are gone\n");
    return 0;
}
