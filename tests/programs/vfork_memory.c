/* What a child of vfork or posix_spawn writes before exec, before its end or before a signal ends it, is its parent's,
 * and the parent does not go on before. */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>

extern char **environ;
static int shared = 1;

static void a_child_writes_everywhere(int *heap, char *mapped) {
    volatile int on_stack = 1;
    pid_t pid = OK(vfork());
    if (pid == 0) {
        shared = 2;
        on_stack = 3;
        heap[20000] = 4;
        mapped[5 * 4096] = 5;
        execl("/nonexistent", "x", NULL);
        shared += errno;
        _exit(7);
    }
    printf("%d %d %d %d status %d\n", shared, on_stack, heap[20000], mapped[5 * 4096], wait_for(pid));
}

static void a_program_keeps_its_memory_to_itself(void) {
    pid_t pid = OK(vfork());
    if (pid == 0) {
        shared = 9;
        execl("/bin/sh", "sh", "-c", "exit 5", NULL);
        _exit(1);
    }
    printf("after exec %d status %d\n", shared, wait_for(pid));
}

static void a_signal_ends_a_child(void) {
    int status;
    pid_t pid = OK(vfork());
    if (pid == 0) {
        shared = 11;
        raise(SIGKILL);
    }
    EQUAL(waitpid(pid, &status, 0), pid);
    printf("killed by %d, %d\n", WTERMSIG(status), shared);
}

static void spawning_tells_what_failed(void) {
    char *words[] = {"sh", "-c", "exit 3", NULL};
    pid_t pid;
    EQUAL(posix_spawnp(&pid, "no-such-program-anywhere", NULL, NULL, words, environ), ENOENT);
    EQUAL(posix_spawn(&pid, "/etc/passwd", NULL, NULL, words, environ), EACCES);
    EQUAL(posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ), 0);
    printf("spawned, status %d\n", wait_for(pid));
}

static void a_parent_waits_for_its_child(void) {
    int ends[2];
    char text[3] = "";
    OK(pipe(ends));
    pid_t pid = OK(vfork());
    if (pid == 0) {
        usleep(20000);
        OK((int)write(ends[1], "a", 1));
        _exit(0);
    }
    OK((int)write(ends[1], "b", 1));
    OK((int)read(ends[0], text, 2));
    printf("%s status %d\n", text, wait_for(pid));
}

int main(void) {
    int *heap = calloc(100000, sizeof *heap);
    char *mapped = mmap(NULL, 10 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    a_child_writes_everywhere(heap, mapped);
    a_program_keeps_its_memory_to_itself();
    spawning_tells_what_failed();
    a_parent_waits_for_its_child();
    a_signal_ends_a_child();
    return 0;
}
