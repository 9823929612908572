/* Resource limits: few descriptors, little address space, a small stack, file size; each hits where it would natively. */
#include "check.h"
#include <sys/resource.h>
static int child(int which) {
    fflush(stdout);
    pid_t pid = OK(fork());
    if (pid) return wait_for(pid);
    struct rlimit l;
    if (which == 0) {
        l = (struct rlimit){8, 8};
        OK(setrlimit(RLIMIT_NOFILE, &l));
        int last = -1, fd;
        while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
        CHECK(errno == EMFILE);
        printf("last descriptor %d\n", last);
        int p[2];
        FAILS(pipe(p), EMFILE);
        FAILS(dup(0), EMFILE);
        close(7);
        pid_t inner = OK(fork());
        if (inner == 0) { execl("/bin/sh", "sh", "-c", "exit 3", NULL); _exit(9); }
        EQUAL(wait_for(inner), 3);
    } else if (which == 1) {
        l = (struct rlimit){1L << 30, 1L << 30};
        OK(setrlimit(RLIMIT_AS, &l));
        CHECK(mmap(NULL, 2L << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
        CHECK(malloc(10 << 20) != NULL);
        pid_t inner = OK(fork());
        if (inner == 0) { execl("/bin/true", "true", NULL); _exit(9); }
        EQUAL(wait_for(inner), 0);
    } else if (which == 2) {
        l = (struct rlimit){256 << 10, 256 << 10};
        OK(setrlimit(RLIMIT_STACK, &l));
        execl("/bin/sh", "sh", "-c", "ulimit -s; ls / > /dev/null", NULL);
    } else if (which == 3) {
        l = (struct rlimit){1000, 1000};
        OK(setrlimit(RLIMIT_FSIZE, &l));
        signal(SIGXFSZ, SIG_IGN);
        int fd = OK(open("limited", O_WRONLY | O_CREAT, 0644));
        char text[900] = {0};
        ssize_t first = write(fd, text, 900), second = write(fd, text, 900);
        printf("file size: %zd %zd\n", first, second);
        FAILS(write(fd, text, 1), EFBIG);
    } else {
        l = (struct rlimit){1, 2};
        OK(setrlimit(RLIMIT_CPU, &l));
        for (;;) {}
    }
    exit(0);
}
int main(void) {
    for (int i = 0; i < 5; i++) printf("%d: %d\n", i, child(i));
    return 0;
}
