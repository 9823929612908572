/* microbench OPERATION COUNT [BATCH]: nanoseconds for each of COUNT operations, after a warm-up. One line: `ns 123.4`.
 * With BATCH: those of the fastest BATCH operations in a row, which a busy machine disturbs least. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int zero, file;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void op_getppid(void) { syscall(SYS_getppid); }
static void op_fcntl(void) { if (fcntl(file, F_GETFL) < 0) fail("fcntl"); }
static void op_lseek(void) { if (lseek(file, 0, SEEK_CUR) < 0) fail("lseek"); }

static void op_read(void) {
    char byte;
    if (read(zero, &byte, 1) != 1) fail("read");
}

static void op_open_read_close(void) {
    char bytes[64];
    int fd = open("small", O_RDONLY);
    if (fd < 0 || read(fd, bytes, sizeof bytes) != 6 || close(fd) != 0) fail("open-read-close");
}

static void op_open_close(void) {
    int fd = open("small", O_RDONLY);
    if (fd < 0 || close(fd) != 0) fail("open-close");
}

static void op_fstat(void) {
    struct stat about;
    if (fstat(file, &about) != 0) fail("fstat");
}

static void op_stat(void) {
    struct stat about;
    if (stat("small", &about) != 0) fail("stat");
}

/* No call at all: about 5 microseconds of arithmetic. */
static void op_compute(void) {
    static volatile unsigned long state = 1;
    unsigned long x = state;
    for (int i = 0; i < 5000; i++) x = x * 6364136223846793005UL + 1442695040888963407UL;
    state = x;
}

static void op_pwrite(void) { if (pwrite(file, "8 bytes!", 8, 0) != 8) fail("pwrite"); }

static void reap(pid_t pid) {
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) fail("child");
}

static void op_fork_exec(void) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    reap(pid);
}

static void op_vfork_exec(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    reap(pid);
}

static void op_spawn(void) {
    static char *arguments[] = {"true", NULL};
    pid_t pid;
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, NULL) != 0) fail("posix_spawn");
    reap(pid);
}

static const struct { const char *name; void (*run)(void); } OPERATIONS[] = {
    {"getppid", op_getppid}, {"fcntl", op_fcntl}, {"lseek", op_lseek}, {"read", op_read}, {"pwrite", op_pwrite},
    {"open_read_close", op_open_read_close}, {"open_close", op_open_close}, {"fstat", op_fstat}, {"stat", op_stat}, {"compute", op_compute},
    {"fork_exec", op_fork_exec}, {"vfork_exec", op_vfork_exec}, {"posix_spawn", op_spawn},
};

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double measure(void (*run)(void), long operations) {
    double start = now_ns();
    for (long n = 0; n < operations; n++) run();
    return (now_ns() - start) / operations;
}

int main(int count, char **arguments) {
    if (count != 3 && count != 4) return 2;
    long operations = atol(arguments[2]), batch = count == 4 ? atol(arguments[3]) : operations;
    zero = open("/dev/zero", O_RDONLY);
    file = open("small", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (zero < 0 || file < 0 || write(file, "small\n", 6) != 6) fail("set-up");
    for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
        if (strcmp(OPERATIONS[i].name, arguments[1]) != 0) continue;
        for (long n = 0; n < operations / 10 + 10; n++) OPERATIONS[i].run();
        double fastest = measure(OPERATIONS[i].run, batch);
        for (long n = batch; n + batch <= operations; n += batch) {
            double ns = measure(OPERATIONS[i].run, batch);
            if (ns < fastest) fastest = ns;
        }
        printf("ns %.2f\n", fastest);
        return 0;
    }
    return 2;
}
