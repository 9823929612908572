/* abort without a core dump. */
/* @status 134 */
#include "check.h"
#include <sys/resource.h>
int main(void) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    int status;
    pid_t pid = OK(fork());
    if (pid == 0) abort();
    OK(waitpid(pid, &status, 0));
    printf("child: signal %d core %d\n", WTERMSIG(status), WCOREDUMP(status));
    fflush(stdout);
    abort();
}
