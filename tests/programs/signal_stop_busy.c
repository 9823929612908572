/* A child is stopped at any moment while it makes calls: it stops each time, its parent is told, and it goes on. */
#include "check.h"
int main(void) {
    pid_t pid = OK(fork());
    if (pid == 0) for (;;) { struct stat s; stat("/", &s); close(OK(open("/dev/null", O_RDONLY))); }
    unsigned seed = 1;
    int status, stops = 0;
    for (int i = 0; i < 30; i++) {
        usleep(rand_r(&seed) % 3000);
        OK(kill(pid, SIGSTOP));
        EQUAL(waitpid(pid, &status, WUNTRACED), pid);
        stops += WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
        OK(kill(pid, SIGCONT));
        EQUAL(waitpid(pid, &status, WCONTINUED), pid);
        CHECK(WIFCONTINUED(status));
    }
    OK(kill(pid, SIGKILL));
    printf("stopped %d times, status %d\n", stops, wait_for(pid));
    return 0;
}
