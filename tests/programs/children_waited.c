/* Children that are waited for one after the other: what they wrote, how they ended, what is heard of it, and that
   their program can be written again. */
#include "check.h"
#include <sys/resource.h>
static volatile sig_atomic_t heard;
static void hear(int number) { (void)number; heard++; }
static void append(const char *text) {
    int log = OK(open("log", O_WRONLY | O_CREAT | O_APPEND, 0600));
    EQUAL(write(log, text, strlen(text)), strlen(text));
    close(log);
}
static void ends(int status) {
    int child = OK(fork());
    if (child == 0) {
        append("c");
        _exit(status);
    }
    EQUAL(wait_for(child), status);
    FAILS(waitpid(child, NULL, 0), ECHILD);
}
/* A child that has children itself; its last one ends just before it does. */
static void family(int depth) {
    int child = OK(fork());
    if (child == 0) {
        if (depth > 0) family(depth - 1);
        append("f");
        _exit(depth);
    }
    EQUAL(wait_for(child), depth);
}
static void program_again(int round) {
    int file = OK(open("program", O_WRONLY | O_CREAT | O_TRUNC, 0700)), status;
    char text[64];
    snprintf(text, sizeof text, "#!/bin/sh\nexit %d\n", round);
    EQUAL(write(file, text, strlen(text)), strlen(text));
    close(file);
    int child = OK(fork());
    if (child == 0) {
        execl("./program", "program", NULL);
        _exit(99);
    }
    struct rusage used;
    EQUAL(wait4(child, &status, 0, &used), child);
    EQUAL(WEXITSTATUS(status), round);
    /* A copy of a real program: while it runs nobody may write to it. */
    CHECK(system("cp /bin/true copy && ./copy") == 0);
    close(OK(open("copy", O_WRONLY)));
    OK(unlink("copy"));
}
static void all_at_once(void) {
    int ends_of[2], status, sum = 0;
    siginfo_t info = {0};
    OK(pipe(ends_of));
    for (int i = 0; i < 8; i++) {
        if (OK(fork()) == 0) {
            EQUAL(write(ends_of[1], "x", 1), 1);
            _exit(i);
        }
    }
    close(ends_of[1]);
    OK(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT));
    for (int i = 0; i < 8; i++) {
        OK(wait(&status));
        sum += WEXITSTATUS(status);
    }
    EQUAL(sum, 28);
    FAILS(wait(&status), ECHILD);
    char text[16];
    EQUAL(read(ends_of[0], text, 16), 8);
    EQUAL(read(ends_of[0], text, 16), 0);
    close(ends_of[0]);
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < rounds(30); i++) ends(i % 5);
    for (int i = 0; i < 4; i++) family(i);
    for (int i = 0; i < 4; i++) program_again(i);
    OK(unlink("program"));
    all_at_once();
    on_signal(SIGCHLD, hear, SA_RESTART);
    for (int i = 0; i < 10; i++) ends(i % 3);
    EQUAL(heard, 10);
    all_at_once();
    struct stat found;
    OK(stat("log", &found));
    printf("written %ld, heard %s\n", (long)found.st_size, heard > 10 ? "all" : "none of those together");
    OK(unlink("log"));
    return 0;
}
