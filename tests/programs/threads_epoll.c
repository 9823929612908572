/* An event loop in a thread, edge-triggered, and others that add what it waits for, remove it, and close it. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
static int set;
static unsigned long sum, served[1024];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void *serve(void *unused) {
    for (;;) {
        struct epoll_event events[8];
        int count = epoll_wait(set, events, 8, -1);
        for (int i = 0; i < count; i++) {
            uint64_t value;
            if (events[i].data.u64 >> 32) return NULL;
            while (read((int)events[i].data.u64, &value, 8) == 8) {
                pthread_mutex_lock(&lock);
                sum += value; served[events[i].data.u64]++;
                pthread_cond_broadcast(&changed);
                pthread_mutex_unlock(&lock);
            }
        }
    }
}
static int add(uint64_t flags) {
    int fd = OK(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = fd | flags}));
    return fd;
}
static void *post(void *how) {
    for (uint64_t n = 1; n <= 5; n++) {
        int fd = add(0);
        pthread_mutex_lock(&lock);
        unsigned long before = served[fd];
        OK(write(fd, &n, 8));
        while (served[fd] == before) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        if (how) OK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
        OK(close(fd));
    }
    return NULL;
}
int main(void) {
    pthread_t server, posters[2];
    set = OK(epoll_create1(EPOLL_CLOEXEC));
    /* A number of its own: the server's last look at a closed one would take what says that it is over. */
    int end = add(1ULL << 32);
    CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
    for (long i = 0; i < 2; i++) CHECK(pthread_create(&posters[i], NULL, post, (void *)i) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(posters[i], NULL) == 0);
    printf("sum %lu\n", sum); fflush(stdout);
    uint64_t one = 1;
    OK(write(end, &one, 8));
    CHECK(pthread_join(server, NULL) == 0);
    printf("status %d\n", wait_for(OK(fork()) ?: (execlp("true", "true", NULL), _exit(9), 0)));
    return 0;
}
