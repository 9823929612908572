/* A deep and wide tree of processes, all printing to one pipe between their file changes: the lines of each are whole and in its order. */
/* @unsorted */
/* @timeout 60 */
#include "check.h"
enum { DEPTH = 6, LINES = 12 };
static void say(const char *path, int number) {
    char line[64], name[64];
    snprintf(name, sizeof name, "own-%s", path);
    int fd = OK(open(name, O_WRONLY | O_CREAT | O_APPEND, 0644));
    int length = snprintf(line, sizeof line, "%s %d\n", path, number);
    EQUAL(write(fd, line, length), length);
    OK(close(fd));
    EQUAL(write(1, line, length), length);
}
static int node(const char *path) {
    pid_t children[2] = {0, 0};
    for (int i = 0; i < LINES; i++) {
        say(path, i);
        if (i % 4 == 2 && i < 8 && strlen(path) < DEPTH) {
            pid_t pid = OK(fork());
            if (pid == 0) {
                char below[16];
                snprintf(below, sizeof below, "%s%c", path, i < 4 ? 'l' : 'r');
                _exit(node(below));
            }
            children[i < 4 ? 0 : 1] = pid;
        }
    }
    for (int i = 0; i < 2; i++) if (children[i]) EQUAL(wait_for(children[i]), 0);
    return 0;
}
int main(void) { return node("t"); }
