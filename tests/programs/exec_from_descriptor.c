/* execveat with AT_EMPTY_PATH of a memfd, fexecve, execveat relative to a directory, of a deleted file. */
#include "check.h"
extern char **environ;
static int copy_of(const char *path, int to) {
    char buffer[65536];
    int from = OK(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n;
    while ((n = OK(read(from, buffer, sizeof buffer))) > 0) EQUAL(write(to, buffer, n), n);
    close(from);
    return to;
}
static int run(int directory, const char *path, int flags) {
    pid_t pid = OK(fork());
    if (pid == 0) { syscall(SYS_execveat, directory, path, (char *[]){"echo", "executed", (char *)(*path ? path : "by descriptor"), NULL}, environ, flags); _exit(errno); }
    return wait_for(pid);
}
int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int memory = OK(memfd_create("program", 0));
    copy_of("/bin/echo", memory);
    printf("memfd %d\n", run(memory, "", AT_EMPTY_PATH));
    int bin = OK(open("/bin", O_PATH));
    printf("relative %d\n", run(bin, "echo", 0));
    int made = OK(open("copy", O_WRONLY | O_CREAT, 0755));
    copy_of("/bin/echo", made);
    close(made);
    int fd = OK(open("copy", O_PATH | O_CLOEXEC));
    OK(unlink("copy"));
    printf("deleted %d\n", run(fd, "", AT_EMPTY_PATH));
    pid_t pid = OK(fork());
    if (pid == 0) { fexecve(OK(open("/bin/echo", O_RDONLY)), (char *[]){"echo", "fexecve", NULL}, environ); _exit(9); }
    printf("fexecve %d\n", wait_for(pid));
    printf("empty path without the flag %d\n", run(memory, "", 0) == ENOENT);
    return 0;
}
