/* A process with threads dumps core: the status says so, and the file is there, where the kernel would put it in the current directory. */
/* @ignore core* */
#include "check.h"
#include <glob.h>
#include <sys/resource.h>
static void *waiting(void *unused) { (void)unused; for (;;) pause(); return NULL; }
static void dies(int signal) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    OK(setrlimit(RLIMIT_CORE, &all));
    pid_t pid = OK(fork());
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, waiting, NULL);
        write_file("before", "written before the end");
        if (signal == SIGSEGV) *(volatile int *)8 = 1;
        else raise(signal);
        _exit(1);
    }
    int status;
    EQUAL(OK(waitpid(pid, &status, 0)), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    printf("signal %d, core %d\n", WTERMSIG(status), !!WCOREDUMP(status));
    CHECK(strcmp(contents("before"), "written before the end") == 0);
    glob_t found;
    if (glob("core*", 0, NULL, &found) != 0) { printf("no core file\n"); return; }
    char magic[4];
    int fd = OK(open(found.gl_pathv[0], O_RDONLY));
    EQUAL(read(fd, magic, 4), 4);
    CHECK(memcmp(magic, "\177ELF", 4) == 0);
    close(fd);
    printf("core files %zu\n", found.gl_pathc);
    for (size_t i = 0; i < found.gl_pathc; i++) OK(unlink(found.gl_pathv[i]));
}
int main(void) {
    /* Whoever started it may ignore them: a shell does, for what runs in the background. */
    int signals[] = {SIGSEGV, SIGQUIT, SIGABRT};
    for (int i = 0; i < 3; i++) signal(signals[i], SIG_DFL);
    OK(setrlimit(RLIMIT_CORE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    dies(SIGSEGV);
    dies(SIGQUIT);
    dies(SIGABRT);
    OK(unlink("before"));
    return 0;
}
