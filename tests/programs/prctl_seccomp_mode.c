/* A program without a system-call filter hears that it has none, as its children and the programs that they execute do. */
#include "check.h"
#include <sys/prctl.h>
int main(int count, char **arguments) {
    printf("%d\n", prctl(PR_GET_SECCOMP, 0, 0, 0, 0)), fflush(stdout);
    if (count > 1) return 0;
    pid_t pid = OK(fork());
    if (pid == 0) execl("/proc/self/exe", arguments[0], "again", NULL), _exit(9);
    EQUAL(wait_for(pid), 0);
    return 0;
}
