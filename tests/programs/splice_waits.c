/* splice from an empty pipe: what is wrong is said at once, and a handler ends the wait. */
#include "check.h"
#include <sys/eventfd.h>

static volatile sig_atomic_t handled;
static void handler(int signal) { (void)signal; handled++; }
static const char *name(long result) { return result < 0 ? strerrorname_np(errno) : "done"; }

int main(void) {
    int p[2], q[2], s[2];
    OK(pipe(p)), OK(pipe(q)), OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    int file = OK(open("file", O_RDWR | O_CREAT, 0644)), appended = OK(open("file", O_WRONLY | O_APPEND));
    int readable = OK(open("file", O_RDONLY)), directory = OK(open(".", O_RDONLY)), path = OK(open("file", O_PATH));
    int zero = OK(open("/dev/zero", O_RDWR)), null = OK(open("/dev/null", O_WRONLY)), counter = OK(eventfd(0, 0));
    struct { const char *name; int fd; } to[] = {
        {"closed", 999}, {"negative", -1}, {"readable", readable}, {"appended", appended}, {"directory", directory},
        {"path", path}, {"wrong end", q[0]}, {"same pipe", p[1]}, {"eventfd", counter}, {"zero", zero},
    };
    alarm(10);
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        /* Without the wait: what the kernel would say after it is another matter. */
        printf("to %s: %s", to[i].name, name(splice(p[0], NULL, to[i].fd, NULL, 5, SPLICE_F_NONBLOCK)));
        if (strcmp(to[i].name, "zero")) printf(", %s", name(splice(p[0], NULL, to[i].fd, NULL, 5, 0)));
        printf("\n");
    }
    loff_t offset = 3, negative = -3;
    printf("offset of a pipe: %s\n", name(splice(p[0], &offset, file, NULL, 5, 0)));
    printf("bad offset: %s\n", name(splice(p[0], NULL, file, (loff_t *)8, 5, 0)));
    printf("negative offset: %s\n", name(splice(p[0], NULL, file, &negative, 5, 0)));
    printf("offset of a socket: %s\n", name(splice(p[0], NULL, s[0], &offset, 5, 0)));
    printf("offset of the other pipe: %s\n", name(splice(p[0], NULL, q[1], &offset, 5, 0)));
    printf("bad flags: %s\n", name(splice(p[0], NULL, file, NULL, 5, 0x100)));
    printf("nothing: %ld\n", (long)splice(p[0], NULL, file, NULL, 0, 0));
    printf("from a file: %s\n", name(splice(file, NULL, file, NULL, 5, 0)));
    printf("from the wrong end: %s\n", name(splice(p[1], NULL, file, NULL, 5, 0)));
    printf("tee to closed: %s\n", name(tee(p[0], 999, 5, 0)));
    printf("tee to a file: %s\n", name(tee(p[0], file, 5, 0)));
    printf("tee to the wrong end: %s\n", name(tee(p[0], q[0], 5, 0)));
    printf("tee to the same pipe: %s\n", name(tee(p[0], p[1], 5, 0)));
    alarm(0);

    struct { const char *name; int fd; } targets[] = {{"file", file}, {"pipe", q[1]}, {"socket", s[0]}, {"null", null}};
    for (int restarts = 0; restarts < 2; restarts++) {
        on_signal(SIGUSR1, handler, restarts ? SA_RESTART : 0);
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
            pid_t parent = getpid(), child = OK(fork());
            if (child == 0) {
                if (!comes_to_state(parent, 'S')) _exit(1);
                OK(kill(parent, SIGUSR1));
                if (!restarts) _exit(0);
                sleep_ms(50);
                _exit(write(p[1], "12345", 5) != 5);
            }
            long n = splice(p[0], NULL, targets[i].fd, NULL, 5, 0);
            printf("%s to %s: %s %ld\n", restarts ? "restarted" : "ended", targets[i].name, name(n), n);
            EQUAL(wait_for(child), 0);
        }
    }
    printf("handled %d\n", (int)handled);
    return 0;
}
