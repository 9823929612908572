/* Mistakes that sanitizers find, one for each argument; without one, a program that makes none. */
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int counter, is_done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t handled;

static void *count(void *step) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&lock);
        counter += *(int *)step;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *race(void *unused) {
    (void)unused;
    counter = 1;
    __atomic_store_n(&is_done, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void *wait_for_ever(void *unused) {
    (void)unused;
    __atomic_store_n(&is_done, 1, __ATOMIC_SEQ_CST);
    for (;;) pause();
}

static void handler(int signal) { (void)signal; handled++; }

static void clean(void) {
    pthread_t threads[3];
    int step = 1, status;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, count, &step);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    char *bytes = malloc(100000);
    memset(bytes, 1, 100000);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    FILE *file = fopen("bytes", "w");
    fwrite(bytes, 1, 100000, file);
    fclose(file);
    unlink("bytes");
    if (fork() == 0) _exit(3);
    wait(&status);
    printf("counted %d, child %d, byte %d, handled %d\n", counter, WEXITSTATUS(status), bytes[5], (int)handled);
    free(bytes);
}

/* Found though a thread waits in a call, and another one in the allocator's lock's way. */
static void leak(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    while (!__atomic_load_n(&is_done, __ATOMIC_SEQ_CST)) sched_yield();
    char *volatile lost = malloc(77);
    lost[0] = 1;
    lost = NULL;
}

__attribute__((noinline)) static void overflow(int at) {
    volatile int *volatile array = malloc(4 * sizeof(int));
    array[at] = at;
    free((void *)array);
}

__attribute__((noinline)) static void use_after_free(void) {
    volatile int *volatile array = malloc(4 * sizeof(int));
    free((void *)array);
    array[1] = 1;
}

__attribute__((noinline)) static void stack_overflow(int at) {
    volatile char array[8];
    array[at] = 1;
}

__attribute__((noinline)) static int uninitialized(void) {
    int *volatile word = malloc(sizeof(int));
    int value = *word;
    free(word);
    return value;
}

static void data_race(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, race, NULL);
    while (!__atomic_load_n(&is_done, __ATOMIC_RELAXED)) sched_yield();
    counter = 2;
    pthread_join(thread, NULL);
}

int main(int count, char **arguments) {
    const char *mistake = count > 1 ? arguments[1] : "";
    printf("begin %s\n", mistake);
    clean();
    is_done = 0;
    if (strcmp(mistake, "leak") == 0) leak();
    if (strcmp(mistake, "overflow") == 0) overflow(count + 2);
    if (strcmp(mistake, "use-after-free") == 0) use_after_free();
    if (strcmp(mistake, "stack-overflow") == 0) stack_overflow(count + 6);
    if (strcmp(mistake, "null") == 0) *(volatile int *)(uintptr_t)(count - 2) = 1;
    if (strcmp(mistake, "race") == 0) data_race();
    if (strcmp(mistake, "uninitialized") == 0 && uninitialized() == 5) printf("five\n");
    if (strcmp(mistake, "integer") == 0) { volatile int most = 0x7fffffff; most += count; printf("%d\n", most); }
    if (strcmp(mistake, "shift") == 0) { volatile int by = 30 + count; printf("%d\n", 3 << by); }
    printf("end\n");
    return 0;
}
