/* Threads of a process that runs ahead: what they have done together is kept with the guess, or has never been. A
   counter behind a mutex, a queue with a condition variable, thread-local values, threads that end and are joined,
   threads that are born, children that a thread makes, and what a thread writes for another one. */
#include "check.h"

enum { THREADS = 4, ROUNDS = 200 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static int queue[8], first, used, taken, sum;
static __thread int own;

static void *take(void *unused) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (used == 0) pthread_cond_wait(&filled, &lock);
        int value = queue[first];
        first = (first + 1) % 8;
        used--;
        sum += value;
        taken++;
        own += value;
        pthread_cond_signal(&emptied);
        pthread_mutex_unlock(&lock);
        if (value == 0) return (void *)(long)own;
    }
}

static void put(int value) {
    pthread_mutex_lock(&lock);
    while (used == 8) pthread_cond_wait(&emptied, &lock);
    queue[(first + used++) % 8] = value;
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&lock);
}

static void *write_lines(void *at) {
    FILE *pipe = at;
    for (int i = 0; i < 20; i++) { fprintf(pipe, "line %d\n", i); fflush(pipe); sched_yield(); }
    return NULL;
}

static void *make_child(void *unused) {
    pid_t pid = OK(fork());
    if (pid == 0) _exit(7);
    return (void *)(long)wait_for(pid);
}

static void work(void) {
    pthread_t threads[THREADS], writer, parent;
    void *result;
    long all = 0;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, take, NULL) == 0);
    for (int i = 1; i <= ROUNDS; i++) put(i);
    for (int i = 0; i < THREADS; i++) put(0);
    for (int i = 0; i < THREADS; i++) { CHECK(pthread_join(threads[i], &result) == 0); all += (long)result; }
    EQUAL(all, ROUNDS * (ROUNDS + 1) / 2);
    EQUAL(sum, all);
    EQUAL(taken, ROUNDS + THREADS);
    int ends[2];
    OK(pipe(ends));
    FILE *in = fdopen(ends[0], "r"), *out = fdopen(ends[1], "w");
    CHECK(pthread_create(&writer, NULL, write_lines, out) == 0);
    CHECK(pthread_create(&parent, NULL, make_child, NULL) == 0);
    char line[64];
    for (int i = 0; i < 20; i++) { CHECK(fgets(line, sizeof line, in)); EQUAL(atoi(line + 5), i); }
    CHECK(pthread_join(writer, NULL) == 0);
    CHECK(pthread_join(parent, &result) == 0);
    EQUAL((long)result, 7);
    fclose(in);
    fclose(out);
    sum = taken = 0;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < 3; i++) { work(); printf("round %d\n", i); }
    return 0;
}
