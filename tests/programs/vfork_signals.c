/* Signals come while children are made by vfork: the memory is the child's all the same until it executes or ends. */
#include "check.h"
#include <sys/time.h>

static volatile sig_atomic_t heard;
static void on_alarm(int signal) { (void)signal; heard++; }

int main(void) {
    volatile int shared = 0;
    on_signal(SIGALRM, on_alarm, SA_RESTART);
    struct itimerval often = {.it_interval = {.tv_usec = 6000}, .it_value = {.tv_usec = 6000}};
    OK(setitimer(ITIMER_REAL, &often, NULL));
    for (int i = 1; i <= 100; i++) {
        pid_t pid = OK(vfork());
        if (pid == 0) {
            shared = i;
            if (i % 5 == 0) execl("/bin/true", "true", NULL);
            _exit(i % 7);
        }
        EQUAL(shared, i);
        EQUAL(wait_for(pid), i % 5 == 0 ? 0 : i % 7);
    }
    OK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    puts(heard > 0 ? "heard" : "not heard");
    return 0;
}
