/* pthread_cancel of threads in a blocked read, in a sleep, in a wait for a condition; clean-up handlers run. */
#include "check.h"
static int fds[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int cleaned;
static void clean(void *unused) { __sync_fetch_and_add(&cleaned, 1); }
static void unlock(void *unused) { pthread_mutex_unlock(&lock); clean(NULL); }
static void *in_read(void *u) { char b; pthread_cleanup_push(clean, NULL); read(fds[0], &b, 1); pthread_cleanup_pop(0); return NULL; }
static void *in_sleep(void *u) { pthread_cleanup_push(clean, NULL); sleep(100); pthread_cleanup_pop(0); return NULL; }
static void *in_wait(void *u) {
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(unlock, NULL);
    for (;;) pthread_cond_wait(&never, &lock);
    pthread_cleanup_pop(0);
    return NULL;
}
int main(void) {
    OK(pipe(fds));
    void *(*kinds[])(void *) = {in_read, in_sleep, in_wait};
    for (int i = 0; i < 60; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, kinds[i % 3], NULL) == 0);
        if (i % 2) sleep_ms(2);
        CHECK(pthread_cancel(thread) == 0);
        void *result;
        CHECK(pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    printf("cancelled 60, clean-up at least for the late ones: %d\n", cleaned >= 30);
    return 0;
}
