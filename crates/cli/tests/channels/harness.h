// What every case of channels.c and of the files beside it has: see there.
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sockios.h>
#include <mqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAYBE __attribute__((unused))

enum { S, A, B }; // The parent's preparation; the one who changes; the one who prints.
enum { LIVES = 0, EXITS = 1, PARENT = 2, FREE = 4, OUTSIDE = 8, WATCHED = 16 }; // WATCHED: B runs outside.

extern int port, slowness; // The port of the peer outside; all pauses are so many times as long.
extern pid_t pid_a, pid_b;
MAYBE static int p[2], q[2], fd;
MAYBE static volatile int *word;
MAYBE static char buf[1 << 16];
MAYBE static volatile sig_atomic_t handled;

#define ck(call) check((long)(call), #call)
MAYBE static long check(long result, const char *what) {
    if (result == -1) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(1);
    }
    return result;
}
MAYBE static void need(int true_, const char *what) {
    if (!true_) {
        fprintf(stderr, "not seen: %s\n", what);
        _exit(1);
    }
}
#define must(condition) need(!!(condition), #condition)
MAYBE static void saw(void) { ck(write(1, "saw\n", 4)); }
MAYBE static void ms(int n) { usleep(n * 1000 * slowness); }
MAYBE static void later(void) { ms(400); }
MAYBE static void dirty(void) {
    int f = ck(open("data", O_WRONLY));
    ck(pwrite(f, "new", 3, 0));
    ck(close(f));
}
MAYBE static void *shared(int flags, int f) {
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | flags, f, 0);
    must(at != MAP_FAILED);
    return at;
}
MAYBE static void handler(int signal) { (void)signal, handled = 1; }
MAYBE static void take(int signal) {
    struct sigaction action = {.sa_handler = handler};
    ck(sigaction(signal, &action, 0));
}
MAYBE static void block(int signal) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, signal);
    ck(sigprocmask(SIG_BLOCK, &set, 0));
}
MAYBE static int ready(int f, int events) {
    struct pollfd one = {.fd = f, .events = events};
    ck(poll(&one, 1, 5000 * slowness));
    return one.revents;
}
MAYBE static int has(const char *folder, const char *name) {
    int found = 0;
    DIR *dir = opendir(folder);
    must(dir);
    for (struct dirent *entry; (entry = readdir(dir));) found |= !strcmp(entry->d_name, name);
    closedir(dir);
    return found;
}
MAYBE static void put(const char *name, const char *text, int mode) {
    int f = ck(open(name, O_WRONLY | O_CREAT | O_TRUNC, mode));
    ck(write(f, text, strlen(text)));
    ck(close(f));
}
MAYBE static void copy_self(const char *name) {
    int from = ck(open("/proc/self/exe", O_RDONLY)), to = ck(open(name, O_WRONLY | O_CREAT, 0755));
    for (ssize_t n; (n = ck(read(from, buf, sizeof buf)));) ck(write(to, buf, n));
    ck(close(to)), close(from);
}


// A case. Each file gathers its own with CASES; the linker puts all of them side by side.
struct channel { const char *name; void (*run)(int); int flags; };
#define CASES(file) __attribute__((section("cases"), used, aligned(sizeof(void *)))) static const struct channel file##_cases[]
#define CH(name) {#name, name, LIVES}
#define EX(name) {#name, name, EXITS}
#define PA(name) {#name, name, EXITS | PARENT}
#define FR(name) {#name, name, FREE}
#define OU(name) {#name, name, OUTSIDE}
