// A parent hears of each child exactly once, before it has waited for it, while it has a handler for SIGCHLD; and never
// of one that ended while it had none. Each scene is a process that takes its handler away behind the wait: who goes on
// from a wrong guess of that wait has none any more, and is to hear of the same child when that is taken back.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t told;

static void on_child(int signal) {
    (void)signal;
    told++;
}

static void handle(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &action, NULL);
}

static pid_t child(int status) {
    pid_t pid = fork();
    if (pid < 0) exit(90);
    if (pid == 0) _exit(status);
    return pid;
}

static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) != pid) {
        if (errno != EINTR) exit(91);
    }
    return WEXITSTATUS(status);
}

// Calls at which a guess may be made, or be found to be wrong.
static void do_something(void) {
    int fd = dup(1);
    if (fd < 0) exit(92);
    close(fd);
}

static int handler_around_the_wait(int n) {
    handle(on_child);
    int status = wait_for(child(n));
    int heard = told;
    handle(SIG_DFL);
    do_something();
    return status == n && heard == 1 && told == 1;
}

static int one_after_the_other(int n) {
    handle(on_child);
    for (int i = 1; i <= 3; i++) {
        wait_for(child(n));
        if (told != i) return 0;
        do_something();
    }
    handle(SIG_DFL);
    return told == 3;
}

static int no_handler_at_the_end(int n) {
    siginfo_t info;
    handle(SIG_DFL);
    pid_t pid = child(n);
    while (waitid(P_PID, pid, &info, WEXITED | WNOWAIT) != 0) {
        if (errno != EINTR) exit(93);
    }
    handle(on_child);
    do_something();
    wait_for(pid);
    do_something();
    return told == 0;
}

static int blocked_until_the_wait_is_over(int n) {
    sigset_t set, before, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    handle(on_child);
    sigprocmask(SIG_BLOCK, &set, &before);
    wait_for(child(n));
    sigpending(&pending);
    int is_pending = sigismember(&pending, SIGCHLD), heard = told;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return is_pending == 1 && heard == 0 && told == 1;
}

int main(void) {
    int (*scenes[])(int) = {handler_around_the_wait, one_after_the_other, no_handler_at_the_end,
                            blocked_until_the_wait_is_over};
    for (int n = 0; n < 12; n++) {
        pid_t pid = fork();
        if (pid < 0) return 94;
        if (pid == 0) {
            do_something();
            int is_right = scenes[n % 4](n);
            if (!is_right) printf("scene %d: told %d\n", n % 4, (int)told);
            fflush(stdout);
            _exit(is_right ? 0 : 1);
        }
        printf("%d: %d\n", n, wait_for(pid));
        fflush(stdout);
    }
    return 0;
}
