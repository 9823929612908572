/* A process is stopped in the middle of its file writes; what another process prints meanwhile does not wait for it to go on. */
#include "check.h"
enum { ROUNDS = 15, PRINT_US_MAX = 3000000 };
int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    pid_t pid = OK(fork());
    if (pid == 0) {
        char block[512];
        for (unsigned i = 0;; i++) {
            memset(block, 'a' + i % 26, sizeof block);
            int fd = OK(open("stopped", O_RDWR | O_CREAT | (i % 64 ? 0 : O_TRUNC), 0644));
            EQUAL(pwrite(fd, block, sizeof block, i % 64 * sizeof block), sizeof block);
            if (i % 10 == 0) OK(fsync(fd));
            OK(close(fd));
        }
    }
    unsigned seed = 3;
    for (int i = 0; i < ROUNDS; i++) {
        char line[32];
        usleep(rand_r(&seed) % 5000);
        OK(kill(pid, SIGSTOP));
        if (i % 2) { int status; EQUAL(OK(waitpid(pid, &status, WUNTRACED)), pid); CHECK(WIFSTOPPED(status)); }
        long long start = now_us();
        snprintf(line, sizeof line, "line %d", i);
        write_file("mine", line);
        printf("printed %d\n", i);
        CHECK(now_us() - start < PRINT_US_MAX);
        /* What the stopped process wrote last can be seen, and shown. */
        struct stat seen;
        if (stat("stopped", &seen) == 0) printf("seen %d\n", seen.st_size <= 64 * 512); else printf("seen 1\n");
        CHECK(now_us() - start < 2 * PRINT_US_MAX);
        OK(kill(pid, SIGCONT));
    }
    OK(kill(pid, SIGSTOP));
    OK(kill(pid, SIGKILL)); /* A stopped process is killed. */
    int status;
    do OK(waitpid(pid, &status, 0)); while (!WIFSIGNALED(status));
    EQUAL(WTERMSIG(status), SIGKILL);
    OK(unlink("stopped"));
    return 0;
}
