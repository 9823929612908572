/* An ordinary user's program asks not to be dumpable, and goes on: signals, children, exec, calls of all kinds. */
/* @user */
#include "check.h"
#include <sys/prctl.h>
static volatile sig_atomic_t heard;
static void on_usr1(int signal) { heard = signal; }
int main(int argc, char **argv) {
    if (argc > 1) {
        printf("after exec: %d\n", prctl(PR_GET_DUMPABLE));
        return 4;
    }
    printf("dumpable: %d\n", prctl(PR_GET_DUMPABLE));
    FAILS(prctl(PR_SET_DUMPABLE, 7), EINVAL);
    OK(prctl(PR_SET_DUMPABLE, 0));
    printf("dumpable: %d\n", prctl(PR_GET_DUMPABLE));
    on_signal(SIGUSR1, on_usr1, 0);
    OK(kill(getpid(), SIGUSR1));
    EQUAL(heard, SIGUSR1);
    write_file("file", "written without being dumpable\n");
    fputs(contents("file"), stdout);
    fflush(stdout);
    pid_t pid = OK(fork());
    if (pid == 0) _exit(prctl(PR_GET_DUMPABLE) == 0 ? 5 : 6);
    printf("child: %d\n", wait_for(pid));
    fflush(stdout);
    pid = OK(fork());
    if (pid == 0) { execl(argv[0], argv[0], "again", NULL); _exit(9); }
    printf("program: %d\n", wait_for(pid));
    OK(prctl(PR_SET_DUMPABLE, 1));
    printf("dumpable: %d\n", prctl(PR_GET_DUMPABLE));
    return 0;
}
