/* Parent and child read from the same standard input; what one took the other does not get; then end of file. */
/* @stdin abcdefghijklmnopqrstuvwxyz */
#include "check.h"
int main(void) {
    char text[32] = "";
    EQUAL(OK(read(0, text, 5)), 5);
    printf("parent %s\n", text);
    fflush(stdout);
    pid_t pid = OK(fork());
    if (pid == 0) { char t[32] = ""; OK(read(0, t, 7)); printf("child %s\n", t); fflush(stdout); execlp("head", "head", "-c", "3", NULL); _exit(9); }
    wait_for(pid);
    memset(text, 0, sizeof text);
    /* head may have read more than it printed: only that the rest is in order is said. */
    ssize_t n = read(0, text, 31);
    printf("\nrest ends the alphabet: %d\n", n <= 0 || text[n - 1] == 'z');
    EQUAL(read(0, text, 1), 0);
    return 0;
}
