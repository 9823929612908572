/* Dispositions: ignored and default ones over fork and exec; SIG_IGN of SIGCHLD reaps; SIGPIPE ignored is EPIPE. */
#include "check.h"
int main(int count, char **arguments) {
    struct sigaction action;
    if (count > 1) {
        for (int s = 1; s < 32; s++) { sigaction(s, NULL, &action); if (action.sa_handler == SIG_IGN) printf("ignored after exec: %d\n", s); }
        sigset_t mask; sigprocmask(SIG_BLOCK, NULL, &mask);
        for (int s = 1; s < 65; s++) if (sigismember(&mask, s) == 1) printf("blocked after exec: %d\n", s);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    int fds[2];
    OK(pipe(fds));
    close(fds[0]);
    FAILS(write(fds[1], "x", 1), EPIPE);
    signal(SIGPIPE, SIG_DFL);
    pid_t pid = OK(fork());
    if (pid == 0) { write(fds[1], "x", 1); _exit(0); }
    printf("SIGPIPE: %d\n", wait_for(pid));
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    close(pair[0]);
    FAILS(send(pair[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    signal(SIGCHLD, SIG_IGN);
    pid = OK(fork());
    if (pid == 0) _exit(1);
    FAILS(waitpid(pid, NULL, 0), ECHILD);
    signal(SIGHUP, SIG_IGN);
    on_signal(SIGUSR1, (void (*)(int))main, 0);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR2); sigaddset(&mask, SIGRTMIN);
    OK(sigprocmask(SIG_SETMASK, &mask, NULL));
    fflush(stdout);
    execl("/proc/self/exe", arguments[0], "after", NULL);
    FAIL("exec");
}
