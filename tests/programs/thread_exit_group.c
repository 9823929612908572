/* exit_group while threads are blocked and busy; a thread killed with its process by a signal. */
#include "check.h"
static int pipe_fds[2];
static void *blocked(void *unused) { char byte; read(pipe_fds[0], &byte, 1); return NULL; }
static void *busy(void *unused) { for (;;) syscall(SYS_lseek, 0, 0, SEEK_CUR); }
static void *sleeping(void *unused) { for (;;) pause(); }
static int try(int how) {
    fflush(stdout);
    pid_t pid = OK(fork());
    if (pid == 0) {
        OK(pipe(pipe_fds));
        void *(*kinds[])(void *) = {blocked, busy, sleeping};
        for (int i = 0; i < 6; i++) { pthread_t t; CHECK(pthread_create(&t, NULL, kinds[i % 3], NULL) == 0); }
        sleep_ms(10);
        if (how == 0) _exit(33);
        if (how == 1) kill(getpid(), SIGKILL);
        if (how == 2) { pthread_t t; (void)t; raise(SIGTERM); }
        for (;;) pause();
    }
    return wait_for(pid);
}
int main(void) {
    for (int i = 0; i < 10; i++) printf("%d %d %d\n", try(0), try(1), try(2));
    return 0;
}
