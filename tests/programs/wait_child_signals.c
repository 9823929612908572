/* SIGCHLD around a wait that blocks: by default, ignored, blocked, with a handler, with a handler that is installed while the wait is under way,
 * and while another child is waited for. */
#include "check.h"
#include <ucontext.h>

static volatile sig_atomic_t told, mask_in_handler = -1;

static void on_child(int signal) { (void)signal; told++; }

static int is_pending(void) {
    sigset_t set;
    OK(sigpending(&set));
    return sigismember(&set, SIGCHLD);
}

static int is_blocked(void) {
    sigset_t set;
    OK(sigprocmask(SIG_BLOCK, NULL, &set));
    return sigismember(&set, SIGCHLD);
}

/* While the main program waits: from here on it wants to hear of children. */
static void start_to_listen(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)info;
    mask_in_handler = sigismember(&((ucontext_t *)context)->uc_sigmask, SIGCHLD) + 2 * is_blocked();
    on_signal(SIGCHLD, on_child, SA_RESTART);
}

/* While the main program waits: a child more, made and waited for in a handler. */
static void have_child(int signal) {
    (void)signal;
    pid_t pid = fork();
    if (pid == 0) _exit(is_blocked() ? 1 : 40);
    EQUAL(wait_for(pid), 40);
}

static pid_t child(int ms, int signal, int status) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        sleep_ms(ms);
        if (signal) { kill(getppid(), signal); sleep_ms(ms); }
        _exit(status);
    }
    return pid;
}

int main(void) {
    for (int i = 0; i < 20; i++) EQUAL(wait_for(child(i % 4, 0, i)), i);
    printf("default: pending %d blocked %d\n", is_pending(), is_blocked());

    struct sigaction action = {.sa_sigaction = start_to_listen, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGUSR1, &action, NULL));
    EQUAL(wait_for(child(20, SIGUSR1, 3)), 3);
    printf("installed while waiting: told %d, mask %d\n", told, mask_in_handler);
    EQUAL(wait_for(child(5, 0, 4)), 4);
    printf("with a handler: told %d\n", told);

    on_signal(SIGCHLD, SIG_DFL, 0);
    on_signal(SIGUSR2, have_child, SA_RESTART);
    EQUAL(wait_for(child(20, SIGUSR2, 5)), 5);
    printf("a child in a handler: told %d pending %d blocked %d\n", told, is_pending(), is_blocked());

    /* The end of the first must not interrupt the wait for the second. */
    pid_t first = child(10, 0, 6), second = child(60, 0, 7);
    int status;
    EQUAL(waitpid(second, &status, 0), second);
    EQUAL(waitpid(first, &status, WNOHANG), first);
    printf("two: %d\n", WEXITSTATUS(status));

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    pid_t pid = child(10, 0, 8);
    EQUAL(wait_for(pid), 8);
    siginfo_t info;
    struct timespec none = {0, 0};
    printf("blocked: pending %d\n", is_pending());
    EQUAL(sigtimedwait(&set, &info, &none), SIGCHLD);
    printf("taken: of the child %d status %d code %d\n", info.si_pid == pid, info.si_status, info.si_code);
    pid = child(10, 0, 9);
    EQUAL(wait_for(pid), 9);
    told = 0;
    on_signal(SIGCHLD, on_child, 0);
    OK(sigprocmask(SIG_UNBLOCK, &set, NULL));
    printf("unblocked with a handler: told %d\n", told);

    on_signal(SIGCHLD, SIG_IGN, 0);
    child(10, 0, 10);
    FAILS(wait(&status), ECHILD);
    printf("ignored: pending %d\n", is_pending());
    return 0;
}
