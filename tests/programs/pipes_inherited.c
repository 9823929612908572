/* Threads that make pipes while another one starts programs, as Go does: a child has the pipes that others were just
 * making, and its own thread knows nothing of these. Exec, close_range, or the child's end closes them there. Whoever
 * reads from such a pipe hears of its end when all have closed it. */
#include "check.h"

enum { PIPE_THREADS = 2 };

static volatile int is_over;

/* Makes a pipe, and reads until its end. */
static void *make_pipes(void *unused) {
    (void)unused;
    while (!is_over) {
        int ends[2];
        char byte;
        OK(pipe2(ends, O_CLOEXEC));
        OK(write(ends[1], "x", 1));
        OK(close(ends[1]));
        EQUAL(read(ends[0], &byte, 1), 1);
        EQUAL(read(ends[0], &byte, 1), 0);
        OK(close(ends[0]));
    }
    return NULL;
}

/* All of these run in their parent's memory, or in a copy. */
static int execute(void *unused) {
    static char *arguments[] = {"true", NULL}, *environment[] = {NULL};
    (void)unused;
    execve("/bin/true", arguments, environment);
    _exit(1);
}

static int close_and_execute(void *unused) {
    syscall(SYS_close_range, 3, ~0U, 0);
    return execute(unused);
}

static int end(void *unused) {
    (void)unused;
    _exit(0);
}

static int status_of(pid_t pid) {
    return wait_for((pid_t)OK(pid));
}

int main(void) {
    static int (*const children[])(void *) = {execute, close_and_execute, end};
    static char stack[1 << 16] __attribute__((aligned(16)));
    pthread_t threads[PIPE_THREADS];
    int failed = 0;
    for (int i = 0; i < PIPE_THREADS; i++) {
        EQUAL(pthread_create(&threads[i], NULL, make_pipes, NULL), 0);
    }
    for (int round = 0; round < rounds(150); round++) {
        int (*child)(void *) = children[round % 3];
        failed += status_of(clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL)) != 0;
        pid_t pid = fork();
        if (pid == 0) {
            child(NULL);
        }
        failed += status_of(pid) != 0;
    }
    is_over = 1;
    for (int i = 0; i < PIPE_THREADS; i++) {
        EQUAL(pthread_join(threads[i], NULL), 0);
    }
    printf("%d programs failed\n", failed);
    return 0;
}
