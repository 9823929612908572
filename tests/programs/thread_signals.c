/* Signals to one thread of many: pthread_kill reaches that one, process signals reach one that does not block them. */
#include "check.h"
static volatile sig_atomic_t handled_by[4];
static __thread int self = -1;
static volatile int stop, ready;
static void handler(int s) { if (self >= 0) handled_by[self]++; }
static void *worker(void *argument) {
    self = (int)(intptr_t)argument;
    int fds[2];
    OK(pipe2(fds, O_NONBLOCK));
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (!stop) { char b; if (self % 2) read(fds[0], &b, 1); else { struct pollfd p = {fds[0], POLLIN, 0}; poll(&p, 1, 5); } }
    return NULL;
}
int main(void) {
    on_signal(SIGUSR1, handler, SA_RESTART);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&t[i], NULL, worker, (void *)(intptr_t)i) == 0);
    while (ready < 4) sleep_ms(1);
    sleep_ms(50);
    for (int i = 0; i < 4; i++) for (int j = 0; j <= i; j++) {
        int before = handled_by[i];
        CHECK(pthread_kill(t[i], SIGUSR1) == 0);
        long long end = now_us() + 5000000;
        while (handled_by[i] == before && now_us() < end) sleep_ms(1);
    }
    printf("%d %d %d %d\n", handled_by[0], handled_by[1], handled_by[2], handled_by[3]);
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    return 0;
}
