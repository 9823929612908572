// What ends, and who learns of that: sockets with a name that are closed, streams and terminals whose other end is
// gone, processes whose first thread has ended, children of vfork; errors; signals of the kernel, delivered or
// taken; the state of a connection.
#include "harness.h"
#include <pthread.h>
#include <sched.h>

// Pieces of what A and B do.
static struct sockaddr_in loopback(void) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
}
static int tcp_to_port(void) { // A socket that is connected to the port.
    struct sockaddr_in name = loopback();
    int f = ck(socket(AF_INET, SOCK_STREAM, 0));
    ck(connect(f, (void *)&name, sizeof name));
    return f;
}
static int bound(int type) { // One that is bound to a port of its own.
    port = 0;
    struct sockaddr_in name = loopback();
    socklen_t length = sizeof name;
    int f = ck(socket(AF_INET, type, 0));
    ck(bind(f, (void *)&name, sizeof name)), ck(getsockname(f, (void *)&name, &length));
    port = ntohs(name.sin_port);
    return f;
}
static void tcp_couple(void) {
    fd = bound(SOCK_STREAM), ck(listen(fd, 5)), p[1] = tcp_to_port(), p[0] = ck(accept(fd, 0, 0)), close(fd);
}
static struct sockaddr_un hidden_name(void) { // One that is no file.
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ending-%s", getenv("CHANNELS_ID"));
    return name;
}
static void reset(int f) { // It ends with a reset instead of an end-of-file.
    struct linger now = {1, 0};
    ck(setsockopt(f, SOL_SOCKET, SO_LINGER, &now, sizeof now)), close(f);
}
static void read_x(int f) { must(ck(read(f, buf, 1)) == 1); }
static void until_refused(int domain, const void *name, socklen_t length) { // Until nobody listens there any more.
    for (;; ms(20)) {
        int f = ck(socket(domain, SOCK_STREAM, 0)), result = connect(f, name, length);
        if (result == -1) must(errno == ECONNREFUSED || errno == ECONNRESET);
        if (result == -1 && errno == ECONNREFUSED) break;
        close(f);
    }
    saw();
}

// Sockets that have a name and no peer.
static void ends_listener(int r) {
    if (r == S) fd = bound(SOCK_STREAM), ck(listen(fd, 100));
    if (r == A) dirty(), close(fd);
    struct sockaddr_in name = loopback();
    if (r == B) close(fd), until_refused(AF_INET, &name, sizeof name);
}
static void ends_listener_dup2(int r) {
    if (r == A) dirty(), ck(dup2(2, fd)); else ends_listener(r);
}
static void ends_listener_range(int r) {
    if (r == A) dirty(), ck(syscall(SYS_close_range, fd, fd, 0)); else ends_listener(r);
}
static void ends_listener_exec(int r) {
    if (r == A) ck(fcntl(fd, F_SETFD, FD_CLOEXEC)), dirty(), ck(execl("/bin/sleep", "sleep", "1", (char *)0)); else ends_listener(r);
}
static void ends_listener_exit(int r) {
    if (r == A) dirty(); else ends_listener(r);
}
static void ends_listener_killed(int r) {
    if (r == A) dirty(), raise(SIGKILL); else ends_listener(r);
}
static void ends_unix_listener(int r) {
    struct sockaddr_un name = hidden_name();
    if (r == S) fd = ck(socket(AF_UNIX, SOCK_STREAM, 0)), ck(bind(fd, (void *)&name, sizeof name)), ck(listen(fd, 100));
    if (r == A) dirty(), close(fd);
    if (r == B) close(fd), until_refused(AF_UNIX, &name, sizeof name);
}
static void ends_unix_listener_exit(int r) {
    if (r == A) dirty(); else ends_unix_listener(r);
}
static void until_bound(int type) { // Until the port is free again.
    close(fd), fd = ck(socket(AF_INET, type, 0));
    struct sockaddr_in name = loopback();
    while (bind(fd, (void *)&name, sizeof name) == -1) ms(20);
    saw();
}
static void ends_port(int r) {
    if (r == B) until_bound(SOCK_STREAM); else ends_listener(r);
}
static void ends_port_udp(int r) {
    if (r == S) fd = bound(SOCK_DGRAM);
    if (r == A) dirty(), close(fd);
    if (r == B) until_bound(SOCK_DGRAM);
}
static void ends_udp_refused(int r) { // What is sent there comes back.
    if (r != B) { ends_port_udp(r); return; }
    struct sockaddr_in name = loopback();
    close(fd), fd = ck(socket(AF_INET, SOCK_DGRAM, 0)), ck(connect(fd, (void *)&name, sizeof name));
    while (send(fd, "x", 1, 0) == 1) ms(20);
    must(errno == ECONNREFUSED), saw();
}
static void ends_full_backlog(int r) { // B's connection waits for room.
    struct sockaddr_un name = hidden_name();
    if (r == S) {
        fd = ck(socket(AF_UNIX, SOCK_STREAM, 0)), ck(bind(fd, (void *)&name, sizeof name)), ck(listen(fd, 0));
        ck(connect(ck(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&name, sizeof name));
    }
    if (r == A) dirty(), ck(accept(fd, 0, 0));
    if (r == B) ck(connect(ck(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&name, sizeof name)), saw();
}

// Errors.
static void ends_unix_reset(int r) { // A goes with something unread.
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p)), ck(write(p[0], "x", 1));
    if (r == A) dirty(), close(p[1]);
    if (r == B) close(p[1]), later(), must(read(p[0], buf, 1) == -1 && errno == ECONNRESET), saw();
}
static void ends_unix_reset_readv(int r) {
    struct iovec part = {buf, 1};
    if (r == B) close(p[1]), later(), must(readv(p[0], &part, 1) == -1 && errno == ECONNRESET), saw(); else ends_unix_reset(r);
}
static void ends_unix_write(int r) {
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p)); else if (r == A) ends_unix_reset(r);
    if (r == B) close(p[1]), later(), must(write(p[0], "x", 1) == -1 && errno == EPIPE), saw();
}
static void ends_tcp_reset(int r) {
    if (r == S) tcp_couple();
    if (r == A) close(p[0]), dirty(), reset(p[1]);
    if (r == B) close(p[1]), must(read(p[0], buf, 1) == -1 && errno == ECONNRESET), saw();
}
static void ends_tcp_reset_write(int r) {
    if (r == B) close(p[1]), later(), must(write(p[0], "x", 1) == -1 && (errno == ECONNRESET || errno == EPIPE)), saw();
    else ends_tcp_reset(r);
}
static void ends_pipe_blocked(int r) { // B blocks SIGPIPE, which is not ignored.
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), close(p[0]);
    if (r == B) { close(p[0]), later(), signal(SIGPIPE, SIG_DFL), block(SIGPIPE); must(write(p[1], "x", 1) == -1 && errno == EPIPE); saw(); }
}
static void ends_pipe_writev(int r) {
    struct iovec part = {"x", 1};
    if (r == B) { close(p[0]), later(); must(writev(p[1], &part, 1) == -1 && errno == EPIPE); saw(); } else ends_pipe_blocked(r);
}
static void saw_it(int signal) { (void)signal, saw(), _exit(0); }
static void ends_pipe_handler(int r) {
    if (r == B) { close(p[0]), later(), signal(SIGPIPE, saw_it); (void)!write(p[1], "x", 1); } else ends_pipe_blocked(r);
}
static void ends_pipe_range(int r) { // One call closes it, with what else stands in a range. B waits already.
    if (r == S) ck(pipe(p));
    if (r == A) ms(300), dirty(), ck(syscall(SYS_close_range, p[1], p[1], 0));
    if (r == B) close(p[1]), must(ready(p[0], POLLIN) & POLLHUP), saw();
}
static void ends_pipe_exec(int r) {
    if (r != A) { ends_pipe_range(r); return; }
    ck(fcntl(p[1], F_SETFD, FD_CLOEXEC)), ms(300), dirty(), ck(execl("/bin/sleep", "sleep", "2", (char *)0));
}
static void ends_splice(int r) {
    if (r == B) {
        ck(pipe(q)), ck(write(q[1], "x", 1)), close(p[0]), later();
        must(splice(q[0], 0, p[1], 0, 1, 0) == -1 && errno == EPIPE), saw();
    } else ends_pipe_blocked(r);
}

// Terminals.
static void ends_terminal(int r) { // Whoever has the other side of it reads an error.
    if (r == S) ck(openpty(&p[0], &p[1], 0, 0, 0));
    if (r == A) close(p[0]), dirty(), close(p[1]);
    if (r == B) { close(p[1]), later(); must(read(p[0], buf, 1) == -1 && errno == EIO); saw(); }
}
static void ends_terminal_poll(int r) {
    if (r == B) { close(p[1]), must(ready(p[0], POLLIN) & POLLHUP), saw(); } else ends_terminal(r);
}
static void ends_terminal_exit(int r) {
    if (r == A) close(p[0]), dirty(); else ends_terminal(r);
}
static void ends_master(int r) { // Hung up: there is nothing to read any more.
    if (r == A) close(p[1]), dirty(), close(p[0]);
    else if (r == B) { close(p[0]), later(); must(read(p[1], buf, 1) <= 0); saw(); }
    else ends_terminal(r);
}
static void ends_master_write(int r) {
    if (r == B) { close(p[0]), later(); must(write(p[1], "x", 1) == -1 && errno == EIO); saw(); } else ends_master(r);
}
static void ends_master_poll(int r) {
    if (r == B) { close(p[0]), must(ready(p[1], POLLIN) & POLLHUP), saw(); } else ends_master(r);
}

// A child that B makes by vfork goes on with a program of its own, or ends: that lets B go on, which has changed
// nothing itself.
static void vfork_and(void child(void)) {
    pid_t pid = ck(vfork());
    if (!pid) dirty(), child(), _exit(0);
    saw();
}
static void child_execs(void) { execl("/bin/sleep", "sleep", "0.3", (char *)0); }
static void child_ends(void) {}
static void child_is_killed(void) { kill(getpid(), SIGKILL); }
static void ends_vfork_exec(int r) {
    if (r == B) vfork_and(child_execs);
}
static void ends_vfork_exit(int r) {
    if (r == B) vfork_and(child_ends);
}
static void ends_vfork_killed(int r) {
    if (r == B) vfork_and(child_is_killed);
}

// Signals that the kernel sends.
static void orphan(void (*hears)(void)) { // A's child hears that A ends, and tells.
    ck(pipe(q));
    pid_t pid = ck(fork());
    if (!pid) {
        ck(prctl(PR_SET_PDEATHSIG, SIGUSR1)), handled = 0, block(SIGUSR1);
        ck(write(q[1], "x", 1)), hears(), ck(write(p[1], "x", 1)), _exit(0);
    }
    read_x(q[0]), dirty(), ms(100);
}
static void hears_by_handler(void) {
    sigset_t none;
    sigemptyset(&none), take(SIGUSR1);
    while (!handled) sigsuspend(&none);
}
static void hears_by_wait(void) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), must(ck(sigwaitinfo(&set, 0)) == SIGUSR1);
}
static void takes_by_descriptor(int signal, void (*after)(void)) {
    sigset_t set;
    struct signalfd_siginfo taken;
    sigemptyset(&set), sigaddset(&set, signal), block(signal);
    int f = ck(signalfd(-1, &set, 0));
    after(), must(ck(read(f, &taken, sizeof taken)) == sizeof taken && taken.ssi_signo == (unsigned)signal);
}
static void nothing_more(void) {}
static void hears_by_read(void) { takes_by_descriptor(SIGUSR1, nothing_more); }
static void ends_parent(int r) {
    if (r == S) ck(pipe(p));
    if (r == A) orphan(hears_by_handler);
    if (r == B) read_x(p[0]), saw();
}
static void ends_parent_waited(int r) {
    if (r == A) orphan(hears_by_wait); else ends_parent(r);
}
static void ends_parent_read(int r) {
    if (r == A) orphan(hears_by_read); else ends_parent(r);
}
static void asks_for_signal(int signal) {
    ck(fcntl(p[0], F_SETOWN, getpid())), ck(fcntl(p[0], F_SETSIG, signal)), ck(fcntl(p[0], F_SETFL, O_ASYNC | O_NONBLOCK));
}
static void ready_handler(int r) { // Something comes, and a signal says so.
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), ms(100), ck(write(p[1], "x", 1));
    if (r == B) { signal(SIGRTMIN, saw_it), asks_for_signal(SIGRTMIN); for (;;) pause(); }
}
static void ready_waited(int r) {
    if (r != B) { ready_handler(r); return; }
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGRTMIN), block(SIGRTMIN), asks_for_signal(SIGRTMIN);
    must(ck(sigwaitinfo(&set, 0)) == SIGRTMIN), saw();
}
static void asks_for_minimum(void) { asks_for_signal(SIGRTMIN); }
static void ready_read(int r) {
    if (r == B) takes_by_descriptor(SIGRTMIN, asks_for_minimum), saw(); else ready_handler(r);
}
static void ready_timed(int r) { // Looked for again and again.
    if (r != B) { ready_handler(r); return; }
    sigset_t set;
    struct timespec now = {0, 0};
    sigemptyset(&set), sigaddset(&set, SIGRTMIN), block(SIGRTMIN), asks_for_signal(SIGRTMIN);
    while (sigtimedwait(&set, 0, &now) != SIGRTMIN) ms(10);
    saw();
}
static void ready_pending(int r) {
    if (r != B) { ready_handler(r); return; }
    sigset_t set;
    sigemptyset(&set), block(SIGRTMIN), asks_for_signal(SIGRTMIN);
    while (!sigismember(&set, SIGRTMIN)) ms(10), ck(sigpending(&set));
    saw();
}
static void asks_for_changes(void) {
    int f = ck(open(".", O_RDONLY));
    ck(fcntl(f, F_SETSIG, SIGRTMIN)), ck(fcntl(f, F_NOTIFY, DN_MODIFY | DN_CREATE));
}
static void notified_handler(int r) { // A file in a directory changes, and a signal says so.
    if (r == A) ms(100), dirty();
    if (r == B) { signal(SIGRTMIN, saw_it), asks_for_changes(); for (;;) pause(); }
}
static void notified_waited(int r) {
    if (r != B) { notified_handler(r); return; }
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGRTMIN), block(SIGRTMIN), asks_for_changes();
    must(ck(sigwaitinfo(&set, 0)) == SIGRTMIN), saw();
}
static void notified_read(int r) {
    if (r == B) takes_by_descriptor(SIGRTMIN, asks_for_changes), saw(); else notified_handler(r);
}
static void signal_in_namespace(int r) { // By a number that is B's outside of the sender's namespace.
    if (r == B) ms(1500);
    if (r != A) return;
    char last[16];
    snprintf(last, sizeof last, "%d", pid_b - 1);
    ck(unshare(CLONE_NEWPID));
    if (!ck(fork())) {
        put("/proc/sys/kernel/ns_last_pid", last, 0);
        pid_t receiver = ck(fork());
        if (!receiver) hears_by_handler(), saw(), _exit(0);
        must(receiver == pid_b), ms(300), dirty(), ck(kill(receiver, SIGUSR1)), wait(0), _exit(0);
    }
    wait(0);
}
static void ends_child_waited(int r) { // A is B's child.
    if (r == S) block(SIGCHLD);
    if (r == A) dirty(), raise(SIGKILL);
    if (r == B) {
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGCHLD), must(ck(sigwaitinfo(&set, 0)) == SIGCHLD), saw();
    }
}
static void ends_child_read(int r) {
    if (r == B) takes_by_descriptor(SIGCHLD, nothing_more), saw(); else ends_child_waited(r);
}

// The state of a connection.
static void ends_peer_name(int r) {
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    if (r == B) close(p[1]), later(), must(getpeername(p[0], (void *)&name, &length) == -1 && errno == ENOTCONN), saw();
    else ends_tcp_reset(r);
}
static void ends_tcp_info(int r) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    if (r == A) close(p[0]), dirty(), close(p[1]);
    else if (r == B) close(p[1]), later(), ck(getsockopt(p[0], IPPROTO_TCP, TCP_INFO, &info, &length)), must(info.tcpi_state == TCP_CLOSE_WAIT), saw();
    else ends_tcp_reset(r);
}
static void ends_tcp_error(int r) {
    int error = 0;
    socklen_t length = sizeof error;
    if (r == B) close(p[1]), later(), ck(getsockopt(p[0], SOL_SOCKET, SO_ERROR, &error, &length)), must(error == ECONNRESET), saw();
    else ends_tcp_reset(r);
}

// The first thread has ended, and another one goes on: the process's number leads to no memory and no descriptors
// any more.
static void (*then_does)(void);
static void *second(void *unused) {
    char stat[64];
    snprintf(stat, sizeof stat, "/proc/%d/stat", getpid());
    do { // Until the first one is gone.
        int f = ck(open(stat, O_RDONLY));
        ck(read(f, buf, 512)), close(f), sched_yield();
    } while (!strstr(buf, ") Z "));
    then_does(), ms(800), _exit(0);
    return unused;
}
static void outlive(void (*does)(void)) {
    pthread_t thread;
    then_does = does;
    must(pthread_create(&thread, 0, second, 0) == 0), pthread_exit(0);
}
static void sends_message(void) {
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int f = tcp_to_port();
    dirty(), must(sendmsg(f, &message, 0) == 1);
}
static void sends_messages(void) {
    struct iovec part = {"x", 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    int f = tcp_to_port();
    dirty(), must(sendmmsg(f, &message, 1, 0) == 1);
}
static void writes(void) { int f = tcp_to_port(); dirty(), must(write(f, "x", 1) == 1); }
static void closes(void) { int f = tcp_to_port(); dirty(), close(f); }
static void outside_second_sendmsg(int r) { if (r == A) outlive(sends_message); }
static void outside_second_sendmmsg(int r) { if (r == A) outlive(sends_messages); }
static void outside_second_write(int r) { if (r == A) outlive(writes); }
static void outside_second_close(int r) { if (r == A) outlive(closes); }
static void *binds_and_ends(void *nothing) {
    int was = port;
    close(bound(SOCK_DGRAM)), port = was;
    return nothing;
}
static void after_a_second(void) { // The process's first socket with a name was another thread's, which has ended.
    pthread_t thread;
    must(pthread_create(&thread, 0, binds_and_ends, 0) == 0), must(pthread_join(thread, 0) == 0);
    tcp_to_port(), dirty();
}
static void outside_after_second_exit(int r) { if (r == A) after_a_second(); }
static void outside_after_second_killed(int r) { if (r == A) after_a_second(), raise(SIGKILL); }
static void passes_message(void) {
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    dirty(), must(sendmsg(p[1], &message, 0) == 1);
}
static void second_sendmsg(int r) {
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    if (r == A) outlive(passes_message);
    if (r == B) read_x(p[0]), saw();
}

CASES(endings) = {
    CH(ends_listener), CH(ends_listener_dup2), CH(ends_listener_range), CH(ends_listener_exec),
    EX(ends_listener_exit), EX(ends_listener_killed),
    CH(ends_unix_listener), EX(ends_unix_listener_exit), CH(ends_port), CH(ends_port_udp), CH(ends_udp_refused),
    CH(ends_full_backlog),
    CH(ends_unix_reset), CH(ends_unix_reset_readv), CH(ends_unix_write), CH(ends_tcp_reset),
    CH(ends_tcp_reset_write), CH(ends_pipe_blocked),
    CH(ends_pipe_range), CH(ends_pipe_exec),
    CH(ends_pipe_writev), CH(ends_pipe_handler), CH(ends_splice), CH(ends_terminal), CH(ends_terminal_poll),
    EX(ends_terminal_exit), CH(ends_master),
    CH(ends_master_write), CH(ends_master_poll), CH(ends_vfork_exec), CH(ends_vfork_exit), CH(ends_vfork_killed),
    EX(ends_parent), EX(ends_parent_waited), EX(ends_parent_read),
    CH(ready_handler), CH(ready_waited), CH(ready_read), CH(ready_timed), CH(ready_pending), PA(ends_child_waited),
    CH(notified_handler), CH(notified_waited), CH(notified_read), CH(signal_in_namespace),
    PA(ends_child_read),
    CH(ends_peer_name), CH(ends_tcp_info),
    CH(ends_tcp_error), OU(outside_second_sendmsg), OU(outside_second_sendmmsg), OU(outside_second_write),
    OU(outside_second_close), CH(second_sendmsg),
    {"outside_after_second_exit", outside_after_second_exit, OUTSIDE | EXITS},
    {"outside_after_second_killed", outside_after_second_killed, OUTSIDE | EXITS},
};
