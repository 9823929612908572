/* exec fails with ENOENT, EACCES, ENOEXEC, ENOTDIR, EFAULT, ELOOP, ENAMETOOLONG, EISDIR's EACCES; the program goes on. */
#include "check.h"
static void try(const char *what, const char *path) {
    char *args[] = {"x", NULL};
    errno = 0;
    execve(path, args, NULL);
    printf("%s: %s\n", what, strerrorname_np(errno));
}
int main(void) {
    write_file("plain", "not a program"); write_file("garbage", "\x7f""ELFgarbage that is no program at all......................"); write_file("script", "#!/nonexistent\n");
    chmod("garbage", 0755); chmod("script", 0755);
    write_file("empty", ""); chmod("empty", 0755);
    write_file("text", "echo text\n"); chmod("text", 0755);
    symlink("loop", "loop");
    char name[5000];
    memset(name, 'n', 4999); name[4999] = 0;
    try("missing", "./missing"); try("plain", "./plain"); try("garbage", "./garbage"); try("script", "./script"); try("empty", "./empty");
    try("text", "./text"); try("directory", "."); try("under a file", "./plain/x"); try("loop", "./loop"); try("long", name); try("bad pointer", (void *)1); try("no name", "");
    FAILS(execveat(-1, "x", (char *[]){"x", NULL}, NULL, 0), EBADF);
    FAILS(execveat(AT_FDCWD, "loop", (char *[]){"x", NULL}, NULL, AT_SYMLINK_NOFOLLOW), ELOOP);
    pid_t pid = OK(fork());
    if (pid == 0) { execlp("./text", "text", NULL); _exit(9); }
    printf("execlp of a text %d\n", wait_for(pid));
    int fd = OK(open("busy", O_WRONLY | O_CREAT, 0755));
    FAILS(execve("./busy", (char *[]){"x", NULL}, NULL), ETXTBSY);
    close(fd);
    printf("still here\n");
    return 0;
}
