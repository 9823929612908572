/* Children with threads, event counters, timers, epoll sets and shared mappings end and are waited for one after the
   other, some by a descriptor: what they left is there, and nothing else of them is. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#define LEN 4096
static int counter, table;
/* Waits until its process ends. */
static void *wait_for_ever(void *unused) {
    struct epoll_event event;
    int set = OK(epoll_create1(EPOLL_CLOEXEC)), own = OK(eventfd(0, EFD_CLOEXEC));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, own, &(struct epoll_event){.events = EPOLLIN | EPOLLET}));
    for (;;) epoll_wait(set, &event, 1, -1);
}
static void *count(void *by) {
    uint64_t value = (uintptr_t)by;
    EQUAL(write(counter, &value, 8), 8);
    return NULL;
}
static void begin_and_end(int number) {
    pthread_t waiter, counting;
    CHECK(pthread_create(&waiter, NULL, wait_for_ever, NULL) == 0);
    CHECK(pthread_create(&counting, NULL, count, (void *)(uintptr_t)(number + 1)) == 0);
    int timer = OK(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    OK(timerfd_settime(timer, 0, &(struct itimerspec){.it_value.tv_sec = 100}, NULL));
    if (number % 3 == 0) close(timer);
    char *mapped = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, table, 0);
    CHECK(mapped != MAP_FAILED);
    __atomic_fetch_add(&mapped[number], number + 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(counting, NULL) == 0);
    _exit(number);
}
/* As by fork; `process`: a descriptor of the child. */
static int bear(int *process) { return syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, process, NULL, NULL); }
int main(void) {
    int children = rounds(20), sum = 0;
    char zeros[LEN] = {0}, *mapped;
    counter = OK(eventfd(0, EFD_NONBLOCK));
    table = OK(open("table", O_RDWR | O_CREAT, 0600));
    EQUAL(write(table, zeros, LEN), LEN);
    for (int i = 0; i < children; i++) {
        int process, child = OK(bear(&process));
        if (child == 0) begin_and_end(i);
        if (i % 2) {
            EQUAL(wait_for(child), i);
        } else {
            siginfo_t info = {0};
            OK(waitid(P_PIDFD, process, &info, WEXITED));
            EQUAL(info.si_pid, child);
            EQUAL(info.si_status, i);
        }
        close(process);
        FAILS(waitpid(child, NULL, 0), ECHILD);
        sum += i + 1;
    }
    uint64_t value;
    EQUAL(read(counter, &value, 8), 8);
    EQUAL(value, sum);
    mapped = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, table, 0);
    CHECK(mapped != MAP_FAILED);
    for (int i = 0; i < children; i++) EQUAL(mapped[i], i + 1);
    munmap(mapped, LEN);
    close(table);
    OK(unlink("table"));
    puts("done");
}
