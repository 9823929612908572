/* A vfork child writes to a file, renames it, and then execs a program that reads it; or exits; the parent sees all of it. */
#include "check.h"
static char *const CAT[] = {"cat", "made", NULL};
int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (volatile int round = 0; round < 30; round++) {
        volatile int reached = 0;
        pid_t pid = vfork();
        if (pid == 0) {
            int fd = open("making", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
            char text[] = "round 00\n";
            text[6] += round / 10;
            text[7] += round % 10;
            if (write(fd, text, 9) != 9 || fsync(fd) != 0 || close(fd) != 0 || rename("making", "made") != 0) _exit(1);
            reached = 1;
            if (round % 3 == 2) _exit(5);
            execv("/bin/cat", CAT);
            _exit(2);
        }
        OK(pid);
        EQUAL(reached, 1); /* Memory is shared, and the parent was suspended. */
        EQUAL(wait_for(pid), round % 3 == 2 ? 5 : 0);
        printf("parent: %s", contents("made"));
    }
    OK(unlink("made"));
    return 0;
}
