// What cells are made of.
#include "cells.h"
#include <mqueue.h>
#include <stdarg.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

int line[2], full[2], fifo[2], wire[2], wirefull[2], dgram[2], tcp[2], tcpfull[2], udp[2], terminal[2];
int listener, listener_port, unix_listener, loose, data, directory, counter, counterfull, timer, epoll, inotify;
int memory_file, semaphore, segment, messages, queue, child_of_b;
struct sockaddr_un unix_name;
socklen_t unix_name_length;
volatile int *word;
char *mapped, room[1 << 16];
pid_t pid_a, pid_b;
long see_at;

static char seen[3000];
const char *what_was_seen(void) { return seen; }
void say(const char *format, ...) {
    size_t length = strlen(seen);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(seen + length, sizeof seen - length, format, arguments);
    va_end(arguments);
}
void says(long result) {
    if (result == -1) say("error %d ", errno); else say("%ld ", result);
}
long check(long result, const char *what) {
    if (result == -1) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(1);
    }
    return result;
}
long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}
void until(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, 0)) {}
}
int left(void) {
    long ms = see_at - now();
    return ms > 0 ? ms : 0;
}
int opened(const char *name, int flags) { return ck(open(name, flags, 0600)); }
void put(const char *name, const char *text) {
    int f = ck(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    ck(write(f, text, strlen(text))), close(f);
}
void name_of_a(char *name, const char *rest) { sprintf(name, "/proc/%d/%s", pid_a, rest); }
static int begins_with_one_of(const char *text, const char *const *wanted) {
    for (; *wanted; wanted++)
        if (!strncmp(text, *wanted, strlen(*wanted))) return 1;
    return 0;
}
void show(const char *name, const char *const *wanted) {
    static char text[1 << 18];
    int f = open(name, O_RDONLY);
    if (f < 0) { says(f); return; }
    size_t length = 0;
    for (ssize_t n; (n = read(f, text + length, sizeof text - 1 - length)) > 0;) length += n;
    close(f), text[length] = 0;
    uint32_t hash = 2166136261u;
    for (char *at = text, *end; *at; at = end) {
        end = strchr(at, '\n');
        if (end) *end++ = 0; else end = at + strlen(at);
        if (!wanted) for (; *at; at++) hash = (hash ^ (unsigned char)*at) * 16777619u;
        else if (begins_with_one_of(at, wanted)) say("%s; ", at);
    }
    if (!wanted) say("%zu bytes, hash %08x ", length, hash);
}

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
}
static int bound(int type, int *port) {
    struct sockaddr_in name = loopback(0);
    socklen_t length = sizeof name;
    int f = ck(socket(AF_INET, type, 0));
    ck(bind(f, (void *)&name, sizeof name)), ck(getsockname(f, (void *)&name, &length));
    *port = ntohs(name.sin_port);
    return f;
}
static int connected(int type, int port) {
    struct sockaddr_in name = loopback(port);
    int f = ck(socket(AF_INET, type, 0));
    ck(connect(f, (void *)&name, sizeof name));
    return f;
}
int tcp_to(int port) { return connected(SOCK_STREAM, port); }
static void tcp_pair(int *ends) {
    int port, f = bound(SOCK_STREAM, &port);
    ck(listen(f, 5)), ends[1] = tcp_to(port), ends[0] = ck(accept(f, 0, 0)), close(f);
}
static void fill(int f) { // As much as goes in; the kernel makes more room for TCP a moment later.
    for (int refused = 0; refused < 3;)
        if (send(f, room, sizeof room, MSG_DONTWAIT) < 0) refused++, usleep(5000); else refused = 0;
}
static void *map(int f, int flags) {
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | flags, f, 0);
    ck(at == MAP_FAILED ? -1 : 0);
    return at;
}

static void set_up_PIPE(void) { ck(pipe(line)); }
static void set_up_FULL(void) {
    int ends[2];
    ck(pipe(ends)), full[0] = ends[1], full[1] = ends[0], ck(fcntl(full[0], F_SETFL, O_NONBLOCK));
    while (write(full[0], room, 4096) > 0) {}
}
static void set_up_FIFO(void) {
    fifo[0] = opened("fifo", O_RDONLY | O_NONBLOCK), fifo[1] = opened("fifo", O_WRONLY);
}
static void set_up_UNIX(void) { ck(socketpair(AF_UNIX, SOCK_STREAM, 0, wire)); }
static void set_up_UNIXFULL(void) {
    ck(socketpair(AF_UNIX, SOCK_STREAM, 0, wirefull));
    while (send(wirefull[0], room, 4096, MSG_DONTWAIT) > 0) {}
}
static void set_up_DGRAM(void) { ck(socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram)); }
static void set_up_TCP(void) { tcp_pair(tcp); }
static void set_up_TCPFULL(void) { tcp_pair(tcpfull), fill(tcpfull[0]); }
static void set_up_UDP(void) {
    int port;
    udp[0] = bound(SOCK_DGRAM, &port), udp[1] = connected(SOCK_DGRAM, port);
}
static void set_up_LISTENER(void) { listener = bound(SOCK_STREAM, &listener_port), ck(listen(listener, 5)); }
static void set_up_UNIXLISTENER(void) { // Its name is no file.
    unix_name.sun_family = AF_UNIX;
    static int count;
    int length = sprintf(unix_name.sun_path + 1, "search-cell-%d-%d", getpid(), count++);
    unix_name_length = offsetof(struct sockaddr_un, sun_path) + 1 + length;
    unix_listener = ck(socket(AF_UNIX, SOCK_STREAM, 0));
    ck(bind(unix_listener, (void *)&unix_name, unix_name_length)), ck(listen(unix_listener, 5));
}
static void set_up_PENDING(void) { // Somebody waits to be accepted.
    set_up_LISTENER(), tcp_to(listener_port);
}
static void set_up_SOCKET(void) { loose = ck(socket(AF_INET, SOCK_DGRAM, 0)); } // Without a name.
static void set_up_PTY(void) { ck(openpty(&terminal[0], &terminal[1], 0, 0, 0)); }
static void set_up_FILES(void) { data = opened("other", O_RDWR); } // One offset for both.
static void set_up_DIRECTORY(void) { directory = opened("sub", O_RDONLY | O_DIRECTORY); }
static void set_up_PROGRAM(void) {} // main.c copies it.
static void set_up_COUNTER(void) {
    counter = ck(eventfd(0, EFD_NONBLOCK)), counterfull = ck(eventfd(0, EFD_NONBLOCK));
    ck(eventfd_write(counterfull, -2));
}
static void set_up_TIMER(void) { timer = ck(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)); }
static void set_up_EPOLL(void) { // Watches nothing; `line` is readable.
    epoll = ck(epoll_create1(0)), ck(pipe(line)), ck(write(line[1], "x", 1));
}
static void set_up_INOTIFY(void) { inotify = ck(inotify_init1(IN_NONBLOCK)); }
static void set_up_MEMFD(void) { memory_file = ck(memfd_create("cell", MFD_ALLOW_SEALING)), ck(ftruncate(memory_file,
    4096)); }
static void set_up_MEMORY(void) { word = map(-1, MAP_ANONYMOUS); }
static void set_up_MAPPED(void) { mapped = map(opened("other", O_RDWR), 0); }
static void set_up_SEMAPHORE(void) {
    semaphore = ck(semget(IPC_PRIVATE, 1, 0600)), ck(semctl(semaphore, 0, SETVAL, 1));
}
static void set_up_SEGMENT(void) { segment = ck(shmget(IPC_PRIVATE, 4096, 0600)); }
static void set_up_MESSAGES(void) { messages = ck(msgget(IPC_PRIVATE, 0600)); }
static void set_up_QUEUE(void) {
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 1};
    char name[32];
    sprintf(name, "/cell-%d", getpid());
    queue = ck(mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &attributes)), ck(mq_unlink(name));
}
static void set_up_CHILD(void) { // Of whoever makes the other one: it only waits.
    child_of_b = ck(fork());
    if (!child_of_b) {
        ck(prctl(PR_SET_PDEATHSIG, SIGKILL));
        for (;;) pause();
    }
}

static void (*const SET_UPS[])(void) = {
#define SET_UP(name) set_up_##name,
    RESOURCES(SET_UP)
};
void set_up(uint64_t needs) {
    if (needs & EPOLL) needs &= ~PIPE;
    if (needs & PENDING) needs &= ~LISTENER;
    for (int i = 0; i < RESOURCES_MAX; i++)
        if (needs >> i & 1) SET_UPS[i]();
}
void split(int is_a) {
    int *const ends[] = {line, full, fifo, wire, wirefull, dgram, tcp, tcpfull, udp, terminal};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i][1]) close(ends[i][!is_a]);
    // A listener belongs to A.
    if (!is_a && listener) close(listener);
    if (!is_a && unix_listener) close(unix_listener);
}
void clear_up(void) { // What outlives all processes.
    if (semaphore) semctl(semaphore, 0, IPC_RMID);
    if (segment) shmctl(segment, IPC_RMID, 0);
    if (messages) msgctl(messages, IPC_RMID, 0);
}
