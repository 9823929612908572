/* A thread that ends its process with a signal goes no further: no instruction of it runs behind the call. */
#include "check.h"
static volatile int *behind;
static void *kills(void *signal) {
    kill(getpid(), *(int *)signal);
    *behind = 1;
    return NULL;
}
int main(void) {
    behind = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(behind != MAP_FAILED);
    int signals[] = {SIGTERM, SIGUSR1, SIGHUP, SIGALRM}, further = 0, ended = 0;
    for (int i = 0; i < 40; i++) {
        int signal_ = signals[i % 4];
        pid_t pid = OK(fork());
        if (pid == 0) {
            signal(signal_, SIG_DFL);
            pthread_t thread;
            pthread_create(&thread, NULL, kills, &signal_);
            for (;;) pause();
        }
        ended += wait_for(pid) == 128 + signal_;
        further += *behind, *behind = 0;
    }
    printf("%d ended, %d went further\n", ended, further);
    return 0;
}
