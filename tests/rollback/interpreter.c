/*
 * Runs programs of several processes that talk through pipes, sockets and files: what the generator (src/generate.rs) has drawn.
 *
 *     interpreter FILE
 *
 * FILE has programs, each of some processes, each of one operation a line. Every program runs in a directory of its own, below the working
 * directory, and ends with one line: its seed, what all its processes have seen (as a number), and how it ended. What a system call must not
 * answer is told as WRONG: natively that never happens, so that a guess that was wrong is seen if its output ever arrives.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPES_MAX 16
#define FILES_MAX 4
#define PROCESSES_MAX 16
#define WORDS_MAX 4

struct op {
    char name[12];
    long a, b, c;
};

static const char *script_file;
static char *text;
static uint64_t hash;
static int readers[PIPES_MAX], writers[PIPES_MAX], files[FILES_MAX];
static pid_t pids[PROCESSES_MAX];
static int own;
static volatile sig_atomic_t heard;

static void wrong(const char *what, long got)
{
    char line[128];
    int n = snprintf(line, sizeof line, "WRONG %s %ld errno %d\n", what, got, errno);
    write(1, line, n);
    _exit(99);
}

static void fold(uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
}

static void fold_bytes(const unsigned char *bytes, long n)
{
    for (long i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
}

static void *block(long n)
{
    unsigned char *bytes = malloc(n + 1);
    uint64_t x = hash | 1;
    for (long i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bytes[i] = x;
    }
    return bytes;
}

static long check(long got, const char *what)
{
    if (got < 0)
        wrong(what, got);
    return got;
}

static void expect(long got, long expected, const char *what)
{
    if (got != expected)
        wrong(what, got);
}

static void write_all(int fd, const unsigned char *bytes, long n)
{
    for (long at = 0; at < n;)
        at += check(write(fd, bytes + at, n - at), "write");
}

static void read_all(int fd, unsigned char *bytes, long n)
{
    for (long at = 0; at < n;) {
        long got = check(read(fd, bytes + at, n - at), "read");
        if (!got)
            wrong("end of pipe after", at);
        at += got;
    }
}

static void close_checked(int *fd, const char *what)
{
    check(close(*fd), what);
    *fd = -1;
}

static void wait_for(pid_t pid)
{
    int status = 0;
    pid_t got = waitpid(pid, &status, 0);
    if (got != pid)
        wrong("waitpid", got);
    fold(status);
}

static void on_signal(int number)
{
    (void)number;
    heard++;
}

static pid_t fork_checked(void)
{
    fflush(stdout);
    return check(fork(), "fork");
}

/* -- whole small scenes: each answers the same whenever it is played */

static void scene_self_pipe(long n)
{
    int p[2];
    unsigned char *bytes = block(n), *back = malloc(n + 1);
    check(pipe2(p, O_NONBLOCK), "pipe2");
    expect(read(p[0], back, 1), -1, "read of nothing");
    expect(errno, EAGAIN, "errno of nothing");
    write_all(p[1], bytes, n);
    for (long at = 0; at < n;)
        at += check(read(p[0], back + at, (n - at + 1) / 2 + 1), "read back");
    expect(memcmp(bytes, back, n), 0, "what came back");
    expect(read(p[0], back, 1), -1, "read of nothing more");
    check(close(p[1]), "close");
    expect(read(p[0], back, 1), 0, "end");
    check(close(p[0]), "close");
    fold_bytes(bytes, n);
    free(bytes);
    free(back);
}

static void scene_pipe_broken(long n)
{
    int p[2];
    (void)n;
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    check(pipe(p), "pipe");
    check(close(p[0]), "close");
    expect(write(p[1], "x", 1), -1, "write to nobody");
    expect(errno, EPIPE, "errno of nobody");
    check(close(p[1]), "close");
    signal(SIGPIPE, before);
}

static void scene_child_through_pipes(long n)
{
    int to[2], from[2];
    check(pipe(to), "pipe");
    check(pipe(from), "pipe");
    pid_t pid = fork_checked();
    if (!pid) {
        unsigned char c;
        long total = 0;
        close(to[1]);
        close(from[0]);
        while (check(read(to[0], &c, 1), "read in child") == 1)
            total += c;
        check(write(from[1], &total, sizeof total), "answer");
        _exit(total & 0x3f);
    }
    close(to[0]);
    close(from[1]);
    n = n % 40 + 1;
    unsigned char *bytes = block(n);
    write_all(to[1], bytes, n);
    free(bytes);
    check(close(to[1]), "close");
    long total = 0;
    read_all(from[0], (unsigned char *)&total, sizeof total);
    fold(total);
    expect(read(from[0], &total, 1), 0, "end of answer");
    close(from[0]);
    wait_for(pid);
}

static void scene_signal_child(long n)
{
    int p[2];
    char c;
    const int signals[] = {SIGKILL, SIGTERM, SIGUSR1, SIGINT};
    check(pipe(p), "pipe");
    pid_t pid = fork_checked();
    if (!pid) {
        check(write(p[1], "r", 1), "ready");
        for (;;)
            pause();
    }
    expect(read(p[0], &c, 1), 1, "ready");
    check(kill(pid, signals[n % 4]), "kill");
    wait_for(pid);
    close(p[0]);
    close(p[1]);
}

static void scene_raise(long n)
{
    const int signals[] = {SIGTERM, SIGUSR2, SIGKILL, SIGALRM};
    pid_t pid = fork_checked();
    if (!pid) {
        raise(signals[n % 4]);
        _exit(1);
    }
    wait_for(pid);
}

static void scene_sigchld(long n)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    check(sigaction(SIGCHLD, &action, &before), "sigaction");
    heard = 0;
    pid_t pid = fork_checked();
    if (!pid)
        _exit(n & 0x3f);
    wait_for(pid);
    fold(heard);
    if (heard != 1)
        wrong("SIGCHLD", heard);
    check(sigaction(SIGCHLD, &before, NULL), "sigaction");
}

static void scene_sigwait(long n)
{
    sigset_t set, before;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    check(sigprocmask(SIG_BLOCK, &set, &before), "sigprocmask");
    pid_t pid = fork_checked();
    if (!pid)
        _exit(n & 0x3f);
    expect(sigwaitinfo(&set, &info), SIGCHLD, "sigwaitinfo");
    expect(info.si_pid, pid, "si_pid");
    expect(info.si_status, n & 0x3f, "si_status");
    wait_for(pid);
    check(sigprocmask(SIG_SETMASK, &before, NULL), "sigprocmask");
}

static void scene_waitid(long n)
{
    siginfo_t info;
    pid_t pid = fork_checked();
    if (!pid)
        _exit(n & 0x3f);
    memset(&info, 0, sizeof info);
    expect(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0, "waitid");
    expect(info.si_pid, pid, "waitid si_pid");
    expect(info.si_status, n & 0x3f, "waitid si_status");
    expect(info.si_code, CLD_EXITED, "waitid si_code");
    int status;
    pid_t got;
    while (!(got = check(waitpid(-1, &status, WNOHANG), "waitpid")))
        sched_yield();
    expect(got, pid, "waitpid");
    fold(status);
    expect(waitpid(pid, &status, 0), -1, "waitpid of none");
    expect(errno, ECHILD, "errno of none");
}

static void scene_many_children(long n)
{
    long sum = 0;
    int count = n % 4 + 2;
    for (int i = 0; i < count; i++)
        if (!fork_checked())
            _exit((n + i) & 0x3f);
    for (int i = 0; i < count; i++) {
        int status = 0;
        check(wait(&status), "wait");
        sum += status;
    }
    expect(wait(NULL), -1, "wait for none");
    fold(sum);
}

static void scene_files(long n)
{
    char name[32], other[32];
    struct stat st;
    unsigned char *bytes = block(n), *back = malloc(n + 1);
    snprintf(name, sizeof name, "scene-%d", own);
    snprintf(other, sizeof other, "moved-%d", own);
    int fd = check(open(name, O_RDWR | O_CREAT | O_TRUNC, 0640), "open");
    write_all(fd, bytes, n);
    check(fstat(fd, &st), "fstat");
    expect(st.st_size, n, "size");
    expect(lseek(fd, n / 2, SEEK_SET), n / 2, "lseek");
    expect(read(fd, back, n), n - n / 2, "read of the rest");
    expect(memcmp(back, bytes + n / 2, n - n / 2), 0, "the rest");
    check(ftruncate(fd, n / 3), "ftruncate");
    check(rename(name, other), "rename");
    expect(access(name, F_OK), -1, "the old name");
    check(stat(other, &st), "stat");
    expect(st.st_size, n / 3, "size after");
    check(mkdir(name, 0700), "mkdir");
    check(rmdir(name), "rmdir");
    check(unlink(other), "unlink");
    expect(pread(fd, back, n, 0), n / 3, "pread");
    fold_bytes(back, n / 3);
    check(close(fd), "close");
    free(bytes);
    free(back);
}

/* A parent and its child read on where the other one has stopped. */
static void scene_shared_position(long n)
{
    char name[32];
    unsigned char c[8];
    snprintf(name, sizeof name, "shared-%d", own);
    n += 16;
    unsigned char *bytes = block(n);
    int fd = check(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), "open");
    write_all(fd, bytes, n);
    expect(lseek(fd, 0, SEEK_SET), 0, "lseek");
    expect(read(fd, c, 4), 4, "read before");
    pid_t pid = fork_checked();
    if (!pid) {
        expect(read(fd, c, 4), 4, "read in child");
        expect(memcmp(c, bytes + 4, 4), 0, "read in child, bytes");
        _exit(c[0] & 0x3f);
    }
    wait_for(pid);
    expect(read(fd, c, 4), 4, "read after");
    expect(memcmp(c, bytes + 8, 4), 0, "read after, bytes");
    check(close(fd), "close");
    check(unlink(name), "unlink");
    free(bytes);
}

static void scene_append(long n)
{
    char name[32];
    unsigned char back[256];
    snprintf(name, sizeof name, "append-%d", own);
    int fd = check(open(name, O_RDWR | O_CREAT | O_APPEND, 0600), "open");
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork_checked();
        if (!pid) {
            unsigned char c = n + i;
            check(write(fd, &c, 1), "append");
            _exit(0);
        }
        wait_for(pid);
    }
    expect(pread(fd, back, sizeof back, 0), 3, "all that was appended");
    fold_bytes(back, 3);
    check(close(fd), "close");
    check(unlink(name), "unlink");
}

static void scene_dup(long n)
{
    int p[2];
    char c = 0;
    check(pipe(p), "pipe");
    expect(dup2(p[1], 60), 60, "dup2");
    check(close(p[1]), "close");
    int copy = check(fcntl(60, F_DUPFD_CLOEXEC, 70), "F_DUPFD");
    expect(fcntl(copy, F_GETFD), FD_CLOEXEC, "F_GETFD");
    check(write(copy, "y", 1), "write");
    check(close(60), "close");
    expect(read(p[0], &c, 1), 1, "read");
    check(close(copy), "close");
    expect(read(p[0], &c, 1), 0, "end");
    check(close(p[0]), "close");
    expect(close(60), -1, "close of nothing");
    fold(c + n);
}

static void scene_fifo(long n)
{
    char name[32];
    unsigned char c = 0;
    snprintf(name, sizeof name, "fifo-%d", own);
    check(mkfifo(name, 0600), "mkfifo");
    pid_t pid = fork_checked();
    if (!pid) {
        int fd = check(open(name, O_WRONLY), "open fifo to write");
        unsigned char out = n;
        check(write(fd, &out, 1), "write fifo");
        _exit(0);
    }
    int fd = check(open(name, O_RDONLY), "open fifo to read");
    expect(read(fd, &c, 1), 1, "read fifo");
    expect(read(fd, &c, 1), 0, "end of fifo");
    fold(c);
    check(close(fd), "close");
    wait_for(pid);
    check(unlink(name), "unlink");
}

static void scene_sockets(long n)
{
    int s[2];
    long value = n, back = 0;
    check(socketpair(AF_UNIX, n & 1 ? SOCK_STREAM : SOCK_SEQPACKET, 0, s), "socketpair");
    pid_t pid = fork_checked();
    if (!pid) {
        close(s[0]);
        expect(recv(s[1], &value, sizeof value, MSG_WAITALL), sizeof value, "recv");
        value *= 3;
        expect(send(s[1], &value, sizeof value, 0), sizeof value, "send");
        _exit(0);
    }
    close(s[1]);
    expect(send(s[0], &value, sizeof value, 0), sizeof value, "send");
    expect(recv(s[0], &back, sizeof back, MSG_WAITALL), sizeof back, "recv");
    fold(back);
    wait_for(pid);
    expect(recv(s[0], &back, sizeof back, 0), 0, "end of socket");
    close(s[0]);
}

static void scene_eventfd(long n)
{
    uint64_t value = 0;
    int fd = check(eventfd(0, 0), "eventfd");
    pid_t pid = fork_checked();
    if (!pid) {
        value = n + 1;
        expect(write(fd, &value, 8), 8, "write eventfd");
        _exit(0);
    }
    expect(read(fd, &value, 8), 8, "read eventfd");
    fold(value);
    wait_for(pid);
    close(fd);
}

static void scene_shared_memory(long n)
{
    long *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        wrong("mmap", -1);
    pid_t pid = fork_checked();
    if (!pid) {
        *shared = n * 7;
        _exit(0);
    }
    wait_for(pid);
    fold(*shared);
    check(munmap(shared, 4096), "munmap");
}

static void scene_spawn(long n)
{
    extern char **environ;
    char code[32];
    pid_t pid;
    snprintf(code, sizeof code, "exit %ld", n & 0x3f);
    char *words[] = {"sh", "-c", code, NULL};
    if (n & 1) {
        expect(posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ), 0, "posix_spawn");
    } else {
        pid = check(vfork(), "vfork");
        if (!pid) {
            execv("/bin/sh", words);
            _exit(98);
        }
    }
    wait_for(pid);
}

static void scene_shell_pipeline(long n)
{
    char command[128], line[64] = "";
    snprintf(command, sizeof command, "(echo %ld; exit 3) | cat | { read x; echo got $x; }; exit %ld", n, n & 7);
    fflush(NULL);
    FILE *pipe = popen(command, "r");
    if (!pipe)
        wrong("popen", 0);
    if (!fgets(line, sizeof line, pipe))
        wrong("line of a pipeline", 0);
    fold_bytes((unsigned char *)line, strlen(line));
    fold(pclose(pipe));
}

/* The grandchild outlives its parent, and speaks when that is gone. */
static void scene_orphan(long n)
{
    int p[2], gate[2];
    unsigned char c = 0;
    check(pipe(p), "pipe");
    check(pipe(gate), "pipe");
    pid_t pid = fork_checked();
    if (!pid) {
        if (!fork_checked()) {
            close(gate[1]);
            close(p[0]);
            expect(read(gate[0], &c, 1), 0, "gate");
            c = n;
            check(write(p[1], &c, 1), "orphan");
            _exit(0);
        }
        _exit(7);
    }
    close(p[1]);
    close(gate[0]);
    wait_for(pid);
    check(close(gate[1]), "close");
    expect(read(p[0], &c, 1), 1, "orphan's word");
    expect(read(p[0], &c + 0, 1), 0, "orphan's end");
    fold(c);
    close(p[0]);
}

static void scene_poll(long n)
{
    int p[2], q[2];
    char c;
    check(pipe(p), "pipe");
    check(pipe(q), "pipe");
    pid_t pid = fork_checked();
    if (!pid) {
        check(write(n & 1 ? p[1] : q[1], "z", 1), "write");
        _exit(0);
    }
    struct pollfd set[2] = {{.fd = p[0], .events = POLLIN}, {.fd = q[0], .events = POLLIN}};
    expect(poll(set, 2, -1), 1, "poll");
    expect(set[0].revents, n & 1 ? POLLIN : 0, "revents");
    expect(read(n & 1 ? p[0] : q[0], &c, 1), 1, "read");
    expect(poll(set, 2, 0), 0, "poll of nothing");
    wait_for(pid);
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
}

static void *thread_main(void *argument)
{
    int *p = argument;
    check(write(p[1], "thread", 6), "write in thread");
    return argument;
}

static void scene_thread(long n)
{
    int p[2];
    pthread_t thread;
    unsigned char back[6];
    check(pipe(p), "pipe");
    expect(pthread_create(&thread, NULL, thread_main, p), 0, "pthread_create");
    read_all(p[0], back, 6);
    expect(pthread_join(thread, NULL), 0, "pthread_join");
    close(p[0]);
    close(p[1]);
    fold_bytes(back, 6);
    fold(n);
}

static void scene_vectors(long n)
{
    int p[2];
    char a[4], b[4];
    struct iovec out[2] = {{"ab", 2}, {"cdef", 4}}, in[2] = {{a, 3}, {b, 3}};
    check(pipe(p), "pipe");
    expect(writev(p[1], out, 2), 6, "writev");
    expect(readv(p[0], in, 2), 6, "readv");
    expect(memcmp(a, "abc", 3) | memcmp(b, "def", 3), 0, "vectors");
    int q[2];
    check(pipe(q), "pipe");
    expect(write(p[1], "splice", 6), 6, "write");
    expect(splice(p[0], NULL, q[1], NULL, 4, 0), 4, "splice");
    expect(read(q[0], a, 4), 4, "read spliced");
    expect(read(p[0], b, 4), 2, "read the rest");
    fold_bytes((unsigned char *)a, 4);
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
    fold(n);
}

static void scene_descriptors(long n)
{
    long open = 0;
    (void)n;
    for (int fd = 0; fd < 128; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    fold(open);
}

/* Reads to the end; how much it was. */
static long fold_all(int from)
{
    unsigned char back[4096];
    long total = 0, got;
    while ((got = check(read(from, back, sizeof back), "read")) > 0) {
        fold_bytes(back, got);
        total += got;
    }
    return total;
}

static void scene_full_pipe(long n)
{
    int p[2];
    check(pipe(p), "pipe");
    pid_t pid = fork_checked();
    if (!pid) {
        close(p[0]);
        unsigned char *bytes = block(70000 + n);
        write_all(p[1], bytes, 70000 + n);
        _exit(0);
    }
    check(close(p[1]), "close");
    expect(fold_all(p[0]), 70000 + n, "bytes through a full pipe");
    close(p[0]);
    wait_for(pid);
}

/* Rounds of question and answer, looked for in every way before they are received. */
static void scene_echo(long n)
{
    const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    int s[2], waiting = 0;
    long value = n, back;
    check(socketpair(AF_UNIX, kinds[n % 3], 0, s), "socketpair");
    pid_t pid = fork_checked();
    if (!pid) {
        close(s[0]);
        for (int round = 0; round < 4; round++) {
            expect(read(s[1], &value, sizeof value), sizeof value, "question");
            value = value * 5 + round;
            expect(write(s[1], &value, sizeof value), sizeof value, "answer");
        }
        _exit(value & 0x3f);
    }
    for (int round = 0; round < 4; round++) {
        struct iovec out = {&value, sizeof value}, in = {&back, sizeof back};
        struct msghdr question = {.msg_iov = &out, .msg_iovlen = 1}, answer = {.msg_iov = &in, .msg_iovlen = 1};
        struct pollfd set = {.fd = s[0], .events = POLLIN};
        expect(sendmsg(s[0], &question, 0), sizeof value, "sendmsg");
        expect(poll(&set, 1, -1), 1, "poll of a socket");
        check(ioctl(s[0], FIONREAD, &waiting), "FIONREAD");
        expect(waiting, sizeof back, "what waits");
        expect(recv(s[0], &back, sizeof back, MSG_PEEK), sizeof back, "peek");
        expect(back, value * 5 + round, "what was seen");
        back = 0;
        expect(recvmsg(s[0], &answer, 0), sizeof back, "recvmsg");
        expect(back, value * 5 + round, "what was received");
        value = back;
    }
    expect(recv(s[0], &back, sizeof back, MSG_DONTWAIT), -1, "nothing more");
    fold(value);
    close(s[1]);
    wait_for(pid);
    close(s[0]);
}

/* More than fits: the writer waits for room, and leaves before the last of it was read. */
static void scene_full_socket(long n)
{
    int s[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, s), "socketpair");
    pid_t pid = fork_checked();
    if (!pid) {
        close(s[0]);
        unsigned char *bytes = block(300000 + n);
        write_all(s[1], bytes, 300000 + n);
        _exit(0);
    }
    check(close(s[1]), "close");
    expect(fold_all(s[0]), 300000 + n, "bytes through a full socket");
    close(s[0]);
    wait_for(pid);
}

/* One child hands tokens to the other. */
static void scene_counters(long n)
{
    uint64_t value, sum = 0;
    int tokens = check(eventfd(n % 3, EFD_SEMAPHORE), "eventfd"), total = check(eventfd(0, 0), "eventfd");
    pid_t giver = fork_checked();
    if (!giver) {
        for (value = 1; value <= 3; value++)
            expect(write(tokens, &value, 8), 8, "give");
        _exit(0);
    }
    pid_t taker = fork_checked();
    if (!taker) {
        for (int i = 0; i < 6 + n % 3; i++) {
            expect(read(tokens, &value, 8), 8, "take");
            sum += value;
        }
        expect(write(total, &sum, 8), 8, "total");
        _exit(0);
    }
    struct pollfd set = {.fd = total, .events = POLLIN};
    expect(poll(&set, 1, -1), 1, "poll of a counter");
    expect(read(total, &value, 8), 8, "read total");
    expect(value, 6 + n % 3, "tokens");
    fold(value);
    wait_for(giver);
    wait_for(taker);
    close(tokens);
    close(total);
}

#include "objects.h"

/* The generator knows how many there are, and that those of objects.h come last. */
static void (*const scenes[])(long) = {
    scene_self_pipe, scene_pipe_broken, scene_child_through_pipes, scene_signal_child, scene_raise, scene_sigchld, scene_sigwait,
    scene_waitid, scene_many_children, scene_files, scene_shared_position, scene_append, scene_dup, scene_fifo, scene_sockets,
    scene_eventfd, scene_shared_memory, scene_spawn, scene_shell_pipeline, scene_orphan, scene_poll, scene_thread, scene_vectors,
    scene_descriptors, scene_full_pipe, scene_echo, scene_full_socket, scene_counters, scene_walk, scene_walk,
    scene_directories, scene_links, scene_mapping, scene_locks,
};

/* In a process of its own: the scene is about all children. */
static void play(long scene, long n)
{
    void (*play)(long) = scenes[scene % (long)(sizeof scenes / sizeof *scenes)];
    if (play != scene_sigchld && play != scene_sigwait && play != scene_waitid && play != scene_many_children) {
        play(n);
        return;
    }
    pid_t pid = fork_checked();
    if (!pid) {
        play(n);
        _exit(hash & 0x7f);
    }
    wait_for(pid);
}

/* -- operations */

static char *find_process(int program, int process)
{
    char *at = text;
    for (int i = 0; i <= program; i++) {
        at = strstr(i ? at + 1 : at, "program ");
        if (!at)
            return NULL;
    }
    for (int i = 0; i <= process; i++)
        at = strstr(at + 1, "\nprocess");
    return strchr(at + 1, '\n') + 1;
}

static void exec_self(int program, int process, int next)
{
    char where[64], state[1024], sum[32];
    int n = 0;
    snprintf(where, sizeof where, "%d %d %d", program, process, next);
    snprintf(sum, sizeof sum, "%llu", (unsigned long long)hash);
    for (int i = 0; i < PIPES_MAX; i++)
        n += snprintf(state + n, sizeof state - n, "%d %d ", readers[i], writers[i]);
    for (int i = 0; i < FILES_MAX; i++)
        n += snprintf(state + n, sizeof state - n, "%d ", files[i]);
    for (int i = 0; i < PROCESSES_MAX; i++)
        n += snprintf(state + n, sizeof state - n, "%d ", pids[i]);
    execl("/proc/self/exe", "interpreter", script_file, where, sum, state, NULL);
    wrong("exec", -1);
}

static void file_name(char *name, long slot)
{
    sprintf(name, "file-%d-%ld", own, slot);
}

static int run_process(int program, int process, int first);

static void one(const struct op *op, int program, int process, int next)
{
    const char *what = op->name;
    long i = op->a;
    char name[32];
    if (!strcmp(what, "pipe")) {
        int p[2];
        check(pipe(p), what);
        readers[i] = p[0], writers[i] = p[1];
    } else if (!strcmp(what, "pair")) {
        int s[2];
        check(socketpair(AF_UNIX, SOCK_STREAM, 0, s), what);
        readers[i] = s[0], writers[i] = s[1];
    } else if (!strcmp(what, "write")) {
        unsigned char *bytes = block(op->b);
        write_all(writers[i], bytes, op->b);
        fold(op->b);
        free(bytes);
    } else if (!strcmp(what, "read")) {
        unsigned char *bytes = malloc(op->b + 1);
        read_all(readers[i], bytes, op->b);
        fold_bytes(bytes, op->b);
        free(bytes);
    } else if (!strcmp(what, "end")) {
        char c;
        expect(read(readers[i], &c, 1), 0, "end of pipe");
    } else if (!strcmp(what, "closer")) {
        close_checked(&readers[i], what);
    } else if (!strcmp(what, "closew")) {
        close_checked(&writers[i], what);
    } else if (!strcmp(what, "dupr")) {
        int fd = check(dup(readers[i]), what);
        close_checked(&readers[i], what);
        readers[i] = fd;
    } else if (!strcmp(what, "dupw")) {
        int fd = check(fcntl(writers[i], F_DUPFD, 90), what);
        close_checked(&writers[i], what);
        writers[i] = fd;
    } else if (!strcmp(what, "poll")) {
        struct pollfd set = {.fd = readers[i], .events = POLLIN};
        expect(poll(&set, 1, -1), 1, what);
    } else if (!strcmp(what, "fork")) {
        pid_t pid = fork_checked();
        if (!pid) {
            own = i;
            fold(i);
            _exit(run_process(program, i, 0));
        }
        pids[i] = pid;
    } else if (!strcmp(what, "exec")) {
        exec_self(program, process, next);
    } else if (!strcmp(what, "wait")) {
        wait_for(pids[i]);
    } else if (!strcmp(what, "scene")) {
        play(i, op->b);
    } else if (!strcmp(what, "open")) {
        file_name(name, i);
        files[i] = check(open(name, O_RDWR | O_CREAT, 0600), what);
    } else if (!strcmp(what, "fwrite")) {
        unsigned char *bytes = block(op->b);
        write_all(files[i], bytes, op->b);
        free(bytes);
    } else if (!strcmp(what, "fread")) {
        unsigned char *bytes = malloc(op->b + 1);
        long got = check(read(files[i], bytes, op->b), what);
        fold(got);
        fold_bytes(bytes, got);
        free(bytes);
    } else if (!strcmp(what, "fseek")) {
        fold(check(lseek(files[i], op->b, op->c), what));
    } else if (!strcmp(what, "ftrunc")) {
        check(ftruncate(files[i], op->b), what);
    } else if (!strcmp(what, "fclose")) {
        close_checked(&files[i], what);
    } else if (!strcmp(what, "fstat")) {
        struct stat st;
        file_name(name, i);
        check(stat(name, &st), what);
        fold(st.st_size);
    } else if (!strcmp(what, "funlink")) {
        file_name(name, i);
        check(unlink(name), what);
    } else if (!strcmp(what, "say")) {
        char line[64];
        int n = snprintf(line, sizeof line, "  said %ld %016llx\n", i, (unsigned long long)hash);
        write_all(1, (unsigned char *)line, n);
    } else {
        wrong("operation", 0);
    }
}

static int run_process(int program, int process, int first)
{
    char *at = find_process(program, process);
    for (int n = 0;; n++) {
        struct op op = {"", 0, 0, 0};
        if (sscanf(at, "%11s %ld %ld %ld", op.name, &op.a, &op.b, &op.c) < 1)
            wrong("script", n);
        if (!strcmp(op.name, "exit"))
            return (op.a ^ hash) & 0x7f;
        if (n >= first)
            one(&op, program, process, n + 1);
        at = strchr(at, '\n') + 1;
    }
}

static void load(void)
{
    FILE *file = fopen(script_file, "r");
    if (!file)
        wrong("script", 0);
    fseek(file, 0, SEEK_END);
    long len = ftell(file);
    rewind(file);
    text = calloc(1, len + 2);
    if (fread(text, 1, len, file) != (size_t)len)
        wrong("length of the script", len);
    fclose(file);
}

/* The end of a process; the first one says what it has seen. */
static void finish(int program, int process, int code)
{
    if (!process) {
        printf("  %d: %016llx\n", program, (unsigned long long)hash);
        fflush(stdout);
    }
    _exit(code);
}

static void resume(char **words)
{
    int program, process, next, at = 0, used;
    sscanf(words[2], "%d %d %d", &program, &process, &next);
    own = process;
    hash = strtoull(words[3], NULL, 10);
    for (int i = 0; i < 2 * PIPES_MAX + FILES_MAX + PROCESSES_MAX; i++) {
        int value;
        sscanf(words[4] + at, "%d %n", &value, &used);
        at += used;
        if (i < 2 * PIPES_MAX)
            (i % 2 ? writers : readers)[i / 2] = value;
        else if (i < 2 * PIPES_MAX + FILES_MAX)
            files[i - 2 * PIPES_MAX] = value;
        else
            pids[i - 2 * PIPES_MAX - FILES_MAX] = value;
    }
    finish(program, process, run_process(program, process, next));
}

int main(int count, char **words)
{
    script_file = words[1];
    setvbuf(stdout, NULL, _IOFBF, 65536);
    load();
    if (count > 2)
        resume(words);
    char *at = strstr(text, "program ");
    for (int program = 0; at; program++, at = strstr(at + 1, "program ")) {
        unsigned long long seed = strtoull(at + strlen("program "), NULL, 10);
        char directory[32];
        sprintf(directory, "p%d", program);
        check(mkdir(directory, 0700), "mkdir");
        check(chdir(directory), "chdir");
        pid_t pid = fork_checked();
        if (!pid) {
            hash = seed;
            finish(program, 0, run_process(program, 0, 0));
        }
        int status = 0;
        expect(waitpid(pid, &status, 0), pid, "waitpid of a program");
        printf("%llu: status %d\n", seed, status);
        fflush(stdout);
        check(chdir(".."), "chdir");
    }
    return 0;
}
