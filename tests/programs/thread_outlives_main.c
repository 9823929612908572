/* The main thread ends before another one, which then ends the process. */
#include "check.h"
static void *later(void *unused) {
    sleep_ms(50);
    printf("the other thread ends the process\n");
    exit(9);
}
int main(void) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, later, NULL) == 0);
        pthread_exit(NULL);
    }
    printf("status %d\n", wait_for(pid));
    return 0;
}
