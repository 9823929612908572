// Signals that a handler takes: what one costs from its cause until the program goes on. `signals OPERATION COUNT`.
//   kill            the process sends it to itself
//   timer           a timer ends while the program computes
//   timer_in_calls  a timer ends while the program makes one call after the other
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t heard;
static timer_t timer;

static void hears(int signal) { (void)signal, heard++; }
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}
static void arm(void) {
    struct itimerspec soon = {.it_value.tv_nsec = 20000};
    if (timer_settime(timer, 0, &soon, 0)) exit(1);
}
static void one(const char *operation) {
    uint64_t before = heard;
    if (!strcmp(operation, "kill")) {
        kill(getpid(), SIGUSR1);
        return;
    }
    arm();
    if (!strcmp(operation, "timer"))
        while (heard == before) {}
    else
        while (heard == before) syscall(SYS_getppid);
}
int main(int argc, char **argv) {
    if (argc != 3) return 2;
    struct sigaction action = {.sa_handler = hears, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    if (sigaction(SIGUSR1, &action, 0) || timer_create(CLOCK_MONOTONIC, &event, &timer)) return 1;
    uint64_t count = strtoull(argv[2], 0, 10);
    for (uint64_t i = 0; i < count / 10; i++) one(argv[1]);
    uint64_t begun = now(), first = heard;
    for (uint64_t i = 0; i < count; i++) one(argv[1]);
    uint64_t ended = now();
    if (heard - first != count) return 1;
    printf("ns %.1f\n", (double)(ended - begun) / count);
    return 0;
}
