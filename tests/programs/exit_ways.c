/* atexit and destructors run at exit and not at _exit; quick_exit; return from main; a thread calls exit. */
/* @status 42 */
#include "check.h"
static void at_end(void) { write(1, "atexit\n", 7); }
static void quick(void) { write(1, "quick\n", 6); }
__attribute__((destructor)) static void destructor(void) { write(1, "destructor\n", 11); }
static void *thread(void *u) { exit(42); }
int main(void) {
    atexit(at_end);
    at_quick_exit(quick);
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) { if (i == 0) exit(1); if (i == 1) _exit(2); quick_exit(3); }
        dprintf(1, "%d\n", wait_for(pid));
    }
    pthread_t t;
    CHECK(pthread_create(&t, NULL, thread, NULL) == 0);
    for (;;) pause();
}
