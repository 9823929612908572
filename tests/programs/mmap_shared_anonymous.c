/* Anonymous shared memory between parent and children with a process-shared mutex and condition, memfd, /dev/shm. */
#include "check.h"
struct shared { pthread_mutex_t lock; pthread_cond_t changed; int turn, log[32]; };
int main(void) {
    struct shared *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t m; pthread_condattr_t c;
    pthread_mutexattr_init(&m); pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED); pthread_mutex_init(&s->lock, &m);
    pthread_condattr_init(&c); pthread_condattr_setpshared(&c, PTHREAD_PROCESS_SHARED); pthread_cond_init(&s->changed, &c);
    pid_t children[2];
    for (int who = 0; who < 2; who++) {
        children[who] = OK(fork());
        if (children[who]) continue;
        for (int i = 0; i < 16; i++) {
            pthread_mutex_lock(&s->lock);
            while (s->turn % 2 != who) pthread_cond_wait(&s->changed, &s->lock);
            s->log[s->turn] = who;
            s->turn++;
            pthread_cond_broadcast(&s->changed);
            pthread_mutex_unlock(&s->lock);
        }
        _exit(0);
    }
    EQUAL(wait_for(children[0]), 0); EQUAL(wait_for(children[1]), 0);
    for (int i = 0; i < 32; i++) EQUAL(s->log[i], i % 2);
    int memory = OK(memfd_create("shared", MFD_ALLOW_SEALING));
    OK(ftruncate(memory, 4096));
    int *a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0), *b = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
    a[3] = 17;
    printf("turns %d memfd %d\n", s->turn, b[3]);
    munmap(a, 4096); munmap(b, 4096);
    OK(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE));
    FAILS(write(memory, "x", 1), EPERM);
    return 0;
}
