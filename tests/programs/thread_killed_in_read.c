/* One thread is blocked in a read of a pipe when a signal that kills, sent to it alone, ends its process; the pipe's others see that. */
#include "check.h"
static int never[2];
static volatile pid_t reader_tid;
static void *blocked(void *unused) { (void)unused; char c; reader_tid = gettid(); read(never[0], &c, 1); return NULL; }
static void *busy(void *unused) { (void)unused; for (;;) { close(open("scratch", O_RDWR | O_CREAT, 0644)); } return NULL; }
static void round_of(int signal, int direct) {
    int told[2];
    OK(pipe(told));
    OK(pipe(never));
    pid_t pid = OK(fork());
    if (pid == 0) {
        pthread_t threads[3];
        close(told[0]);
        pthread_create(&threads[0], NULL, blocked, NULL);
        pthread_create(&threads[1], NULL, busy, NULL);
        pthread_create(&threads[2], NULL, busy, NULL);
        while (reader_tid == 0) usleep(100);
        usleep(3000);
        pid_t tid = reader_tid;
        EQUAL(write(told[1], &tid, sizeof tid), sizeof tid);
        for (;;) pause();
    }
    close(told[1]);
    pid_t tid;
    EQUAL(read(told[0], &tid, sizeof tid), sizeof tid);
    OK(direct ? syscall(SYS_tgkill, pid, tid, signal) : kill(pid, signal));
    EQUAL(wait_for(pid), 128 + signal);
    char c;
    EQUAL(read(told[0], &c, 1), 0); /* The last writer is gone. */
    close(never[0]);
    on_signal(SIGPIPE, SIG_IGN, 0);
    FAILS(write(never[1], "x", 1), EPIPE); /* No reader is left behind either. */
    close(never[1]);
    close(told[0]);
}
int main(void) {
    for (int i = 0; i < 10; i++) { round_of(SIGKILL, 1); round_of(SIGTERM, 1); round_of(SIGKILL, 0); }
    OK(unlink("scratch"));
    printf("killed\n");
    return 0;
}
