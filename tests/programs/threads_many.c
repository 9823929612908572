/* Many threads are created and joined, and share a counter, descriptors and thread-local data. */
#include "check.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int counter;
static __thread int own;
static void *work(void *argument) {
    own = (int)(intptr_t)argument;
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
        int fd = OK(open("/dev/null", O_WRONLY | O_CLOEXEC));
        EQUAL(write(fd, "x", 1), 1);
        close(fd);
    }
    return (void *)(intptr_t)(own * 2);
}
int main(void) {
    long sum = 0;
    for (int round = 0; round < rounds(10); round++) {
        pthread_t threads[20];
        for (int i = 0; i < 20; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
        for (int i = 0; i < 20; i++) {
            void *value;
            CHECK(pthread_join(threads[i], &value) == 0);
            sum += (intptr_t)value;
        }
    }
    printf("counter %d sum %ld\n", counter, sum);
    return 0;
}
