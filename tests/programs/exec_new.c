/* Programs and scripts that were just made: by which name a program was asked for, with which arguments, and errors. */
#include "check.h"
#include <sys/auxv.h>
#include <sys/prctl.h>
extern char **environ;

static void copy_self(const char *to, int mode) {
    char buffer[65536];
    int from = OK(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    int made = OK(open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
    ssize_t n;
    while ((n = OK(read(from, buffer, sizeof buffer))) > 0) EQUAL(write(made, buffer, n), n);
    /* As linkers do: it moves about in what it writes. */
    EQUAL(lseek(made, 0, SEEK_SET), 0);
    EQUAL(read(made, buffer, 4), 4);
    close(from);
    close(made);
}

static void write_script(const char *path, const char *text) {
    int made = OK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755));
    EQUAL(write(made, text, strlen(text)), (ssize_t)strlen(text));
    close(made);
}

static void run(const char *path, const char *argument) {
    fflush(stdout);
    pid_t pid = OK(fork());
    if (pid == 0) {
        execve(path, (char *[]){"zero", (char *)argument, NULL}, environ);
        printf("%s: %s\n", path, strerror(errno));
        fflush(stdout);
        _exit(9);
    }
    printf("= %d\n", wait_for(pid));
}

/* What a program finds out about itself. */
static int tell(int count, char **arguments) {
    char name[16] = "", exe[4096] = "", line[64] = "";
    OK(prctl(PR_GET_NAME, name));
    int comm = OK(open("/proc/self/comm", O_RDONLY));
    line[OK(read(comm, line, sizeof line - 1))] = 0;
    close(comm);
    ssize_t len = OK(readlink("/proc/self/exe", exe, sizeof exe - 1));
    exe[len] = 0;
    printf("%s %s %s", (char *)getauxval(AT_EXECFN), name, line);
    printf("%s", strrchr(exe, '/') + 1);
    for (int i = 0; i < count; i++) printf(" [%s]", arguments[i]);
    struct stat own;
    OK(stat(exe, &own));
    printf(" %s %o %d %s\n", getenv("KEPT"), own.st_mode, (int)own.st_nlink, environ[0] ? "environment" : "none");
    for (int fd = 17; fd < 20; fd++) if (fcntl(fd, F_GETFD) >= 0) printf("open: %d\n", fd);
    return strcmp(arguments[count - 1], "of all") ? 3 : 0;
}

int main(int count, char **arguments) {
    if (getenv("KEPT")) return tell(count, arguments);
    OK(setenv("KEPT", "kept", 1));
    OK(mkdir("below", 0755));
    copy_self("below/program", 0755);
    run("below/program", "first");
    run("./below/../below//program", "again");
    OK(rename("below/program", "a-name-that-is-longer-than-fifteen"));
    run("./a-name-that-is-longer-than-fifteen", "moved");
    OK(symlink("a-name-that-is-longer-than-fifteen", "link"));
    run("link", "by a link");
    write_script("script", "#!./a-name-that-is-longer-than-fifteen  one  two \n");
    run("./script", "behind");
    write_script("nested", "#!./script inner\n");
    run("./nested", "behind");
    write_script("shell", "#!/bin/sh\necho \"$0\" \"$@\"; read c < /proc/$$/comm; echo $c; exit 4\n");
    run("./shell", "spoken to");
    run("shell", NULL);
    write_script("missing", "#!./there-is-none\n");
    run("./missing", "x");
    write_script("empty", "");
    run("./empty", "x");
    copy_self("not-executable", 0644);
    run("./not-executable", "x");
    copy_self("written", 0755);
    int writer = OK(open("written", O_WRONLY));
    run("./written", "while somebody writes");
    close(writer);
    run("./written", "and not any more");
    OK(link("written", "below/second"));
    run("below/second", "by its second name");
    run("./written", "by its first name");
    OK(rename("below/second", "below/third"));
    run("below/third", "by a second name that was moved");
    OK(rename("below/third", "below/second"));
    OK(unlink("written"));
    run("below/second", "by another name");
    OK(unlink("shell"));
    run("./shell", "gone");
    /* In place of ours: descriptors that exec closes, and those that it keeps. */
    int script = OK(open("script", O_RDONLY));
    EQUAL(dup2(script, 17), 17);
    EQUAL(dup3(script, 18, O_CLOEXEC), 18);
    close(script);
    fflush(stdout);
    execl("./a-name-that-is-longer-than-fifteen", "last", "of all", NULL);
    return 1;
}
