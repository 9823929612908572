/* Where parents and children may run: whatever is done to bring them together, they never see it. */
#include "check.h"
#include <spawn.h>

extern char **environ;
static cpu_set_t usual;

static int is_usual(pid_t pid) {
    cpu_set_t now;
    OK(sched_getaffinity(pid, sizeof now, &now));
    return CPU_EQUAL(&usual, &now);
}

/* What the child says of itself and of its parent, which waits. */
static int look(void) { return is_usual(0) + 2 * is_usual(getppid()); }

static int forked(void) {
    pid_t pid = OK(fork());
    if (pid == 0) _exit(look());
    return wait_for(pid);
}

static int vforked(void) {
    pid_t pid = OK(vfork());
    if (pid == 0) _exit(look());
    return wait_for(pid);
}

static int spawned(const char *program) {
    char *arguments[] = {"children_affinity", "look", NULL};
    pid_t pid;
    EQUAL(posix_spawn(&pid, program, NULL, NULL, arguments, environ), 0);
    return wait_for(pid);
}

static int forked_in_child(void) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        int seen = 3;
        for (int i = 0; i < 5; i++) seen &= forked();
        _exit(seen);
    }
    return wait_for(pid);
}

static volatile sig_atomic_t seen_in_handler = -1;
static void in_handler(int signal) { (void)signal; seen_in_handler = is_usual(0); }

static int interrupted(void) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        sleep_ms(2);
        kill(getppid(), SIGUSR1);
        sleep_ms(2);
        _exit(look());
    }
    return wait_for(pid) & (seen_in_handler == 1 ? 3 : 0);
}

static void check(const char *how, int seen) {
    if (seen != 3) { printf("%s: child %d parent %d\n", how, seen & 1, seen >> 1); fflush(stdout); }
    CHECK(is_usual(0));
}

int main(int count, char **arguments) {
    OK(sched_getaffinity(0, sizeof usual, &usual));
    if (count > 1) {
        int all = (int)sysconf(_SC_NPROCESSORS_ONLN);
        return (CPU_COUNT(&usual) >= all || all > CPU_SETSIZE) + 2 * is_usual(getppid());
    }
    on_signal(SIGUSR1, in_handler, SA_RESTART);
    for (int i = 0; i < 40; i++) {
        check("fork", forked());
        check("vfork", vforked());
        check("posix_spawn", spawned(arguments[0]));
        check("interrupted", interrupted());
    }
    check("grandchild", forked_in_child());

    /* A parent that confined itself stays so, and so are its children. */
    cpu_set_t first;
    CPU_ZERO(&first);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &usual)) { CPU_SET(core, &first); break; }
    OK(sched_setaffinity(0, sizeof first, &first));
    usual = first;
    for (int i = 0; i < 20; i++) { check("fork, confined", forked()); check("vfork, confined", vforked()); }
    printf("done\n");
    return 0;
}
