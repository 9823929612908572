/* aheadcalls OPERATION COUNT GUESS: nanoseconds for each of COUNT operations, of the fastest of ten parts, after a
 * warm-up; all of them in one open guess if GUESS is 1. In MEMORY there is a file in memory. One line: `ns 123.4`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPECULATE 0x5bed
#define BEGIN 1
#define COMMIT 2

static int file, made, memory, to[2], from[2];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void op_stat(void) {
    struct stat about;
    if (stat("small", &about) != 0) fail("stat");
}

static void op_fstat(void) {
    struct stat about;
    if (fstat(file, &about) != 0) fail("fstat");
}

static void op_missing(void) {
    struct stat about;
    if (stat("missing", &about) == 0) fail("missing");
}

static void op_pread(void) {
    char byte;
    if (pread(file, &byte, 1, 0) != 1) fail("pread");
}

static void op_lseek(void) { if (lseek(file, 0, SEEK_CUR) < 0) fail("lseek"); }

static void op_read(void) {
    char byte;
    if (read(file, &byte, 1) < 0) fail("read");
}

static void op_open_read_close(void) {
    char bytes[64];
    int fd = open("small", O_RDONLY);
    if (fd < 0 || read(fd, bytes, sizeof bytes) != 6 || close(fd) != 0) fail("open-read-close");
}

static void op_readdir(void) {
    DIR *dir = opendir(".");
    if (!dir) fail("opendir");
    while (readdir(dir)) {}
    closedir(dir);
}

static void op_pwrite_new(void) { if (pwrite(made, "8 bytes!", 8, 0) != 8) fail("pwrite"); }
static void op_pwrite_memory(void) { if (pwrite(memory, "8 bytes!", 8, 0) != 8) fail("pwrite"); }

static void op_write_memory(void) { if (write(memory, "8 bytes!", 8) != 8 || lseek(memory, 0, SEEK_SET) != 0) fail("write"); }

static void op_fork_exec_wait(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)0);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("fork-exec-wait");
}

/* There and back. */
static void op_ping_pong(void) {
    char byte = 'x';
    if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) fail("ping-pong");
}

/* Both ends on one core: on two, where the scheduler puts them makes a tenfold difference between runs of the same. */
static void stay(void) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    if (sched_setaffinity(0, sizeof here, &here) != 0) fail("sched_setaffinity");
}

static void begin_pong(void) {
    if (fork() != 0) {
        close(to[0]), close(from[1]);
        return;
    }
    close(to[1]), close(from[0]);
    char byte;
    while (read(to[0], &byte, 1) == 1 && write(from[1], &byte, 1) == 1) {}
    _exit(0);
}

static void begin_pipe(void) {
    if (pipe(to) != 0 || pipe(from) != 0) fail("pipe");
    begin_pong();
}

static void begin_socket(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
    to[1] = ends[0], from[0] = dup(ends[0]);
    to[0] = ends[1], from[1] = dup(ends[1]);
    begin_pong();
}

static void nothing(void) {}

static const struct { const char *name; void (*run)(void); void (*begin)(void); } OPERATIONS[] = {
    {"stat", op_stat, nothing}, {"fstat", op_fstat, nothing}, {"missing", op_missing, nothing},
    {"pread", op_pread, nothing}, {"lseek", op_lseek, nothing}, {"read", op_read, nothing},
    {"open_read_close", op_open_read_close, nothing}, {"readdir", op_readdir, nothing},
    {"pwrite_new", op_pwrite_new, nothing}, {"pwrite_memory", op_pwrite_memory, nothing},
    {"write_memory", op_write_memory, nothing},
    {"pipe", op_ping_pong, begin_pipe}, {"socket", op_ping_pong, begin_socket},
    {"fork_exec_wait", op_fork_exec_wait, nothing},
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
    if (count != 4) return 2;
    char name[4096];
    long operations = atol(arguments[2]), guess = 0;
    snprintf(name, sizeof name, "%s/older", getenv("MEMORY") ? getenv("MEMORY") : ".");
    file = open("small", O_RDWR | O_CREAT | O_TRUNC, 0644);
    memory = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || memory < 0 || write(file, "small\n", 6) != 6 || write(memory, "older\n", 6) != 6) fail("set-up");
    unlink("made");
    if (strcmp(arguments[1], "pipe") == 0 || strcmp(arguments[1], "socket") == 0) stay();
    if (arguments[3][0] == '1' && (guess = syscall(SPECULATE, BEGIN, 0)) <= 0) fail("begin");
    for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
        if (strcmp(OPERATIONS[i].name, arguments[1]) != 0) continue;
        /* While something is held, whatever looks at files asks: only who needs it makes a file. */
        if (OPERATIONS[i].run == op_pwrite_new) {
            made = open("made", O_RDWR | O_CREAT | O_EXCL, 0644);
            if (made < 0) fail("made");
        }
        OPERATIONS[i].begin();
        measure(OPERATIONS[i].run, operations / 10 + 1);
        double fastest = 1e18;
        for (int part = 0; part < 10; part++) {
            double ns = measure(OPERATIONS[i].run, operations / 10);
            if (ns < fastest) fastest = ns;
        }
        if (guess > 0) syscall(SPECULATE, COMMIT, guess);
        printf("ns %.2f\n", fastest);
        return 0;
    }
    return 2;
}
