// A cell is two processes: A changes a file and then acts; B observes, and tells what it saw. The actions and the
// observations stand in the files beside this one, each in one line of a table; main.c plays them.
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// What a cell has to have before A acts. Of a pair of ends, 0 is B's and 1 is A's.
#define RESOURCES(each)                                                                                               \
    each(PIPE) each(FULL) each(FIFO) each(UNIX) each(UNIXFULL) each(DGRAM) each(TCP) each(TCPFULL) each(UDP)          \
    each(LISTENER) each(UNIXLISTENER) each(PENDING) each(SOCKET) each(PTY) each(FILES) each(DIRECTORY)               \
    each(PROGRAM) each(COUNTER) each(TIMER) each(EPOLL) each(INOTIFY) each(MEMFD) each(MEMORY) each(MAPPED)           \
    each(SEMAPHORE) each(SEGMENT) each(MESSAGES) each(QUEUE) each(CHILD)
enum {
#define NUMBER(name) name##_NUMBER,
    RESOURCES(NUMBER)
#undef NUMBER
    RESOURCES_MAX,
};
#define BIT(name) static const uint64_t name __attribute__((unused)) = 1ull << name##_NUMBER;
RESOURCES(BIT)
#undef BIT
// How the two are related; what is not said: B is the parent of A, each has what it inherited, and all ends are open in
// both.
#define OUTSIDE (1ull << 55)      // An observation: B may also be somebody outside, though they share no resources.
#define SPLIT (1ull << 56)        // Each has its own ends only.
#define B_IS_CHILD (1ull << 57)   // A is the parent.
#define ONE_TABLE (1ull << 58)    // They share their table of descriptors.
#define ONE_DIRECTORY (1ull << 59) // They share working directory and umask.
#define EARLY (1ull << 60)        // B begins to observe before A acts, and waits until `see_at` at most.
#define CHANGES (1ull << 62)      // B may change files or names itself.
#define REAPED (1ull << 61)       // Nobody has to wait for children.

struct action {
    const char *name;
    uint64_t needs;
    void (*prepare)(void); // Before A changes anything, or 0.
    void (*act)(void);
};
struct observation {
    const char *name;
    uint64_t needs;
    void (*prepare)(void); // Before A acts, or 0.
    void (*see)(void);
};
#define ACTION(name, needs, prepare, ...)                                                                             \
    static void act_##name(void) { __VA_ARGS__; }                                                                     \
    static const struct action action_##name = {#name, needs, prepare, act_##name};                                   \
    static const struct action *const at_action_##name __attribute__((section("actions"), used)) = &action_##name
#define SEE(name, needs, prepare, ...)                                                                                \
    static void see_##name(void) { __VA_ARGS__; }                                                                     \
    static const struct observation observation_##name = {#name, needs, prepare, see_##name};                         \
    static const struct observation *const at_observation_##name __attribute__((section("observations"), used)) =     \
        &observation_##name

extern int line[2], full[2], fifo[2], wire[2], wirefull[2], dgram[2], tcp[2], tcpfull[2], udp[2], terminal[2];
extern int listener, listener_port, unix_listener, loose, data, directory, counter, counterfull, timer, epoll, inotify;
extern int memory_file, semaphore, segment, messages, queue, child_of_b;
extern struct sockaddr_un unix_name;
extern socklen_t unix_name_length;
extern volatile int *word;
extern char *mapped;
extern pid_t pid_a, pid_b;
extern long see_at; // When B observes, in ms of the monotonic clock.
extern char room[1 << 16];

void say(const char *format, ...) __attribute__((format(printf, 1, 2))); // Adds to what B saw.
void says(long result); // Adds the result of a call: the number, or the error.
long check(long result, const char *what);
#define ck(call) check((long)(call), #call)
long now(void);
void until(long ms);
int left(void); // Milliseconds until `see_at`.
void show(const char *name, const char *const *wanted); // Adds a file's lines that begin so, or a hash of all of it.
void name_of_a(char *name, const char *rest);           // "/proc/A/rest"
int opened(const char *name, int flags);
void put(const char *name, const char *text);
int tcp_to(int port);
void set_up(uint64_t needs);
void split(int is_a);
void clear_up(void);
const char *what_was_seen(void);
// Where B is outside (outside.c).
enum { ENDS = 1000 }; // Descriptors from here on are those that A inherits.
uint64_t inherited(uint64_t needs); // Which of these resources A inherits; it makes the others itself.
int may_be_outside(uint64_t needs); // An observation.
int needs_kin(uint64_t needs);      // A and B have to be related.
void set_up_outside(uint64_t needs);
void leave_ends(void);
void take_ends(void);
void close_ends_of_others(void);
void close_all_ends(void);
