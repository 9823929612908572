/* The process itself is killed by a signal: the shell sees 128+n. */
/* @status 143 */
#include "check.h"
int main(void) {
    printf("about to be terminated\n");
    fflush(stdout);
    kill(getpid(), SIGTERM);
    for (;;) pause();
}
