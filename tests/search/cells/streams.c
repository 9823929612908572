// Pipes, sockets, terminals, and what can be waited for.
#include "cells.h"
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/unix_diag.h>

// What A does.
#define WRITES(name, needs, end) ACTION(write_##name, needs, 0, ck(write(end, "x", 1)))
WRITES(pipe, PIPE, line[1]);
WRITES(fifo, FIFO, fifo[1]);
WRITES(unix, UNIX, wire[1]);
WRITES(datagram, DGRAM, dgram[1]);
WRITES(tcp, TCP, tcp[1]);
WRITES(udp, UDP, udp[1]);
WRITES(terminal, PTY, terminal[1]);
WRITES(master, PTY, terminal[0]);
#define CLOSES(name, needs, end) ACTION(close_##name, (needs) | SPLIT, 0, ck(close(end)))
CLOSES(pipe, PIPE, line[1]);
CLOSES(reader, FULL, full[1]);
CLOSES(fifo, FIFO, fifo[1]);
CLOSES(unix, UNIX, wire[1]);
CLOSES(datagram, DGRAM, dgram[1]);
CLOSES(tcp, TCP, tcp[1]);
CLOSES(terminal, PTY, terminal[1]);
CLOSES(listener, LISTENER, listener);
CLOSES(unix_listener, UNIXLISTENER, unix_listener);
static void gets_something(void) { ck(write(wire[0], "x", 1)); }
ACTION(close_unread, UNIX, gets_something, ck(close(wire[0])); ck(close(wire[1])));
ACTION(drain_pipe, FULL, 0, ck(read(full[1], room, sizeof room)));
ACTION(drain_unix, UNIXFULL, 0, while (recv(wirefull[1], room, sizeof room, MSG_DONTWAIT) > 0) {});
ACTION(drain_tcp, TCPFULL, 0, while (recv(tcpfull[1], room, sizeof room, MSG_DONTWAIT) > 0) usleep(1000));
ACTION(drain_by_splice, FULL, 0, ck(splice(full[1], 0, opened("/dev/null", O_WRONLY), 0, sizeof room, 0)));
ACTION(shutdown_unix, UNIX, 0, ck(shutdown(wire[1], SHUT_WR)));
ACTION(shutdown_tcp, TCP, 0, ck(shutdown(tcp[1], SHUT_WR)));
ACTION(shutdown_reader, UNIX, 0, ck(shutdown(wire[1], SHUT_RD)));
static void lingers_not(void) {
    struct linger none = {1, 0};
    ck(setsockopt(tcp[1], SOL_SOCKET, SO_LINGER, &none, sizeof none));
}
ACTION(reset_tcp, TCP | SPLIT, lingers_not, ck(close(tcp[1])));
ACTION(nonblocking_pipe, PIPE, 0, ck(fcntl(line[0], F_SETFL, O_NONBLOCK)));
ACTION(size_of_pipe, PIPE, 0, ck(fcntl(line[1], F_SETPIPE_SZ, 1 << 20)));
ACTION(splice_to_pipe, PIPE, 0, ck(splice(opened("other", O_RDONLY), 0, line[1], 0, 1, 0)));
ACTION(sendfile_to_pipe, PIPE, 0, ck(syscall(SYS_sendfile, line[1], opened("other", O_RDONLY), 0L, 1L)));
ACTION(vmsplice_to_pipe, PIPE, 0, struct iovec part = {"x", 1}; ck(vmsplice(line[1], &part, 1, 0)));
ACTION(owner_of_socket, UNIX, 0, ck(fcntl(wire[0], F_SETOWN, getpid())));
ACTION(signal_of_socket, UNIX, 0, ck(fcntl(wire[0], F_SETSIG, SIGRTMIN)));
ACTION(option_tcp, TCP, 0, int on = 1; ck(setsockopt(tcp[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)));
ACTION(option_buffer, UNIX, 0, int n = 65536; ck(setsockopt(wire[0], SOL_SOCKET, SO_SNDBUF, &n, sizeof n)));
ACTION(option_timeout, UNIX, 0, struct timeval t = {0, 1000}; ck(setsockopt(wire[0], SOL_SOCKET, SO_RCVTIMEO, &t,
    sizeof t)));
ACTION(connect_tcp, LISTENER, 0, tcp_to(listener_port));
ACTION(connect_unix, UNIXLISTENER, 0,
       ck(connect(ck(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&unix_name, unix_name_length)));
ACTION(accept_tcp, PENDING, 0, ck(accept(listener, 0, 0)));
ACTION(bind_shared, SOCKET, 0, struct sockaddr_in any = {.sin_family = AF_INET}; ck(bind(loose, (void *)&any,
    sizeof any)));
static void sends_to_udp(void) {
    struct sockaddr_in to;
    socklen_t length = sizeof to;
    ck(getsockname(udp[0], (void *)&to, &length)), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck(sendto(loose, "x", 1, 0, (void *)&to, length));
}
ACTION(send_unbound, SOCKET | UDP, 0, sends_to_udp()); // It gets a port by that.
ACTION(name_unix, 0, 0, struct sockaddr_un name = {AF_UNIX, "bound"};
       ck(bind(ck(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&name, sizeof name)));
static void passes(int f) {
    char control[CMSG_SPACE(sizeof f)] = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
    .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof f);
    memcpy(CMSG_DATA(head), &f, sizeof f), ck(sendmsg(wire[1], &message, 0));
}
ACTION(pass_descriptor, UNIX, 0, passes(0));
ACTION(modes_of_terminal, PTY, 0, struct termios t; ck(tcgetattr(terminal[1], &t)); t.c_lflag ^= ECHO;
       ck(tcsetattr(terminal[1], TCSANOW, &t)));
ACTION(size_of_terminal, PTY, 0, struct winsize s = {7, 7, 7, 7}; ck(ioctl(terminal[1], TIOCSWINSZ, &s)));
ACTION(exclusive_terminal, PTY, 0, ck(ioctl(terminal[1], TIOCEXCL)));
ACTION(flow_of_terminal, PTY, 0, ck(tcflow(terminal[1], TCOOFF)));
ACTION(packet_mode, PTY, 0, int on = 1; ck(ioctl(terminal[0], TIOCPKT, &on)));
ACTION(write_counter, COUNTER, 0, ck(eventfd_write(counter, 1)));
ACTION(read_counter, COUNTER, 0, ck(read(counterfull, room, 8)));
ACTION(set_timer, TIMER, 0, struct itimerspec soon = {.it_value.tv_nsec = 1000000}; ck(timerfd_settime(timer, 0,
    &soon, 0)));
ACTION(set_long_timer, TIMER, 0, struct itimerspec far = {.it_value.tv_sec = 100}; ck(timerfd_settime(timer, 0, &far,
    0)));
static void adds(void) {
    struct epoll_event event = {.events = EPOLLIN};
    ck(epoll_ctl(epoll, EPOLL_CTL_ADD, line[0], &event));
}
ACTION(epoll_add, EPOLL, 0, adds());
ACTION(epoll_remove, EPOLL, adds, ck(epoll_ctl(epoll, EPOLL_CTL_DEL, line[0], 0)));
static void adds_once(void) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    ck(epoll_ctl(epoll, EPOLL_CTL_ADD, line[0], &event));
}
ACTION(epoll_take, EPOLL, adds_once, struct epoll_event event; ck(epoll_wait(epoll, &event, 1, 0)));
ACTION(inotify_add, INOTIFY, 0, ck(inotify_add_watch(inotify, "other", IN_MODIFY)));
static void watches(void) { ck(inotify_add_watch(inotify, "other", IN_MODIFY)); }
ACTION(inotify_remove, INOTIFY, watches, ck(inotify_rm_watch(inotify, 1)));

// What B sees.
static void takes(int f) {
    ssize_t n = read(f, room, 16);
    says(n);
    if (n > 0 && n < 16) say("%.*s", (int)n, room);
}
static void takes_now(int f) {
    int flags = fcntl(f, F_GETFL);
    fcntl(f, F_SETFL, flags | O_NONBLOCK), takes(f), fcntl(f, F_SETFL, flags);
}
static void is_ready(int f) {
    struct pollfd one = {.fd = f, .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP};
    says(poll(&one, 1, 0)), say("%x ", one.revents);
}
static void counts(int f, unsigned long request) {
    int n = -1;
    says(ioctl(f, request, &n)), say("%d ", n);
}
#define STREAM(name, needs, end)                                                                                      \
    SEE(read_##name, needs, 0, takes_now(end));                                                                       \
    SEE(poll_##name, needs, 0, is_ready(end));                                                                        \
    SEE(count_##name, needs, 0, counts(end, FIONREAD))
STREAM(pipe, PIPE, line[0]);
STREAM(fifo, FIFO, fifo[0]);
STREAM(unix, UNIX, wire[0]);
STREAM(datagram, DGRAM, dgram[0]);
STREAM(tcp, TCP, tcp[0]);
STREAM(udp, UDP, udp[0]);
STREAM(master, PTY, terminal[0]);
STREAM(terminal, PTY, terminal[1]);
SEE(select_pipe, PIPE, 0, fd_set set; struct timeval none = {0, 0}; FD_ZERO(&set); FD_SET(line[0], &set);
    says(select(line[0] + 1, &set, 0, 0, &none)));
static void waits_for(int f, int events) {
    struct pollfd one = {.fd = f, .events = events};
    says(poll(&one, 1, left())), say("%x ", one.revents);
}
SEE(await_pipe, PIPE | EARLY, 0, waits_for(line[0], POLLIN));
SEE(await_room, FULL | EARLY, 0, waits_for(full[0], POLLOUT));
SEE(await_tcp, TCP | EARLY, 0, waits_for(tcp[0], POLLIN | POLLRDHUP));
SEE(await_unix, UNIX | EARLY, 0, waits_for(wire[0], POLLIN | POLLRDHUP));
#define ROOM(name, needs, end)                                                                                        \
    SEE(room_##name, needs, 0, says(send(end, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL)));                                 \
    SEE(poll_room_##name, needs, 0, is_ready(end));                                                                   \
    SEE(queued_##name, needs, 0, counts(end, SIOCOUTQ))
SEE(room_pipe, FULL, 0, says(write(full[0], "x", 1)));
SEE(poll_room_pipe, FULL, 0, is_ready(full[0]));
ROOM(unix, UNIXFULL, wirefull[0]);
ROOM(tcp, TCPFULL, tcpfull[0]);
SEE(write_unix_back, UNIX, 0, says(send(wire[0], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL)));
SEE(write_tcp_back, TCP, 0, says(send(tcp[0], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL)));
SEE(write_datagram_back, DGRAM, 0, says(send(dgram[0], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL)));
SEE(peek_unix, UNIX, 0, says(recv(wire[0], room, 1, MSG_PEEK | MSG_DONTWAIT)));
SEE(peek_tcp, TCP, 0, says(recv(tcp[0], room, 1, MSG_PEEK | MSG_DONTWAIT)));
SEE(recvmmsg_udp, UDP, 0, struct iovec part = {room, 4}; struct mmsghdr one = {.msg_hdr = {.msg_iov = &part,
    .msg_iovlen = 1}};
    says(recvmmsg(udp[0], &one, 1, MSG_DONTWAIT, 0)));
SEE(receive_control, UNIX, 0, struct iovec part = {room, 4}; char control[200];
    struct msghdr one = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    says(recvmsg(wire[0], &one, MSG_DONTWAIT)); say("%zu ", one.msg_controllen));
SEE(tee_pipe, PIPE, 0, int to[2]; ck(pipe(to)); says(tee(line[0], to[1], 4, SPLICE_F_NONBLOCK)));
SEE(splice_pipe, PIPE, 0, int to[2]; ck(pipe(to)); says(splice(line[0], 0, to[1], 0, 4, SPLICE_F_NONBLOCK)));
SEE(flags_of_pipe, PIPE, 0, says(fcntl(line[0], F_GETFL)));
SEE(capacity_of_pipe, PIPE, 0, says(fcntl(line[0], F_GETPIPE_SZ)));
SEE(shrink_pipe, PIPE, 0, says(fcntl(line[0], F_SETPIPE_SZ, 4096)));
SEE(time_of_pipe, PIPE, 0, struct stat s; says(fstat(line[0], &s)); say("%ld ", (long)s.st_size));
SEE(owner_of, UNIX, 0, pid_t owner = fcntl(wire[0], F_GETOWN); say(owner == pid_a ? "A " : "%d ", owner));
SEE(signal_of, UNIX, 0, says(fcntl(wire[0], F_GETSIG)));
static void option(int f, int level, int name) {
    char value[300] = {0};
    socklen_t length = sizeof value;
    says(getsockopt(f, level, name, value, &length)), say("%d %d ", (int)length, *(int *)value);
}
SEE(error_of_tcp, TCP, 0, option(tcp[0], SOL_SOCKET, SO_ERROR));
SEE(state_of_tcp, TCP, 0, option(tcp[0], IPPROTO_TCP, TCP_INFO));
SEE(nodelay_of_tcp, TCP, 0, option(tcp[0], IPPROTO_TCP, TCP_NODELAY));
SEE(buffer_of_unix, UNIX, 0, option(wire[0], SOL_SOCKET, SO_SNDBUF));
SEE(memory_of_unix, UNIX, 0, option(wire[0], SOL_SOCKET, SO_MEMINFO));
SEE(pending_of_listener, LISTENER, 0, option(listener, IPPROTO_TCP, TCP_INFO));
SEE(peer_of_tcp, TCP, 0, char name[100]; socklen_t length = sizeof name; says(getpeername(tcp[0], (void *)name,
    &length)));
SEE(name_of_loose, SOCKET, 0, struct sockaddr_in name; socklen_t length = sizeof name;
    says(getsockname(loose, (void *)&name, &length)); say("port %d ", name.sin_port != 0));
SEE(peer_of_loose, SOCKET, 0, char name[100]; socklen_t length = sizeof name; says(getpeername(loose, (void *)name,
    &length)));
static void accepts(int f) {
    int flags = fcntl(f, F_GETFL);
    fcntl(f, F_SETFL, flags | O_NONBLOCK);
    int one = accept(f, 0, 0);
    say(one < 0 ? "error %d " : "accepted ", errno);
}
SEE(accept_listener, LISTENER, 0, accepts(listener));
SEE(accept_unix, UNIXLISTENER, 0, accepts(unix_listener));
SEE(poll_listener, LISTENER, 0, is_ready(listener));
SEE(poll_unix_listener, UNIXLISTENER, 0, is_ready(unix_listener));
SEE(connect_to_tcp, LISTENER, 0, struct sockaddr_in to = {.sin_family = AF_INET,
    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons(listener_port); int f = ck(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    says(connect(f, (void *)&to, sizeof to)); is_ready(f));
SEE(connect_to_unix, UNIXLISTENER, 0, says(connect(ck(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&unix_name,
    unix_name_length)));
SEE(bind_to_port, LISTENER, 0, struct sockaddr_in at = {.sin_family = AF_INET,
    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons(listener_port); says(bind(ck(socket(AF_INET, SOCK_STREAM, 0)), (void *)&at, sizeof at)));
SEE(modes_of, PTY, 0, struct termios t = {0}; says(tcgetattr(terminal[1], &t)); say("%x ", t.c_lflag));
SEE(size_of, PTY, 0, struct winsize s = {0}; says(ioctl(terminal[0], TIOCGWINSZ, &s)); say("%d ", s.ws_row));
SEE(exclusive_of, PTY, 0, int n = 0; says(ioctl(terminal[1], TIOCGEXCL, &n)); say("%d ", n));
SEE(packet_mode_of, PTY, 0, int n = 0; says(ioctl(terminal[0], TIOCGPKT, &n)); say("%d ", n));
SEE(read_counter, COUNTER, 0, says(read(counter, room, 8)));
SEE(poll_counter, COUNTER, 0, is_ready(counter));
SEE(write_counter, COUNTER, 0, says(eventfd_write(counterfull, 1)));
SEE(read_timer, TIMER, 0, says(read(timer, room, 8)));
SEE(poll_timer, TIMER, 0, is_ready(timer));
SEE(time_of_timer, TIMER, 0, struct itimerspec t; says(timerfd_gettime(timer, &t)); say("%d ",
    t.it_value.tv_sec != 0));
SEE(epoll_wait, EPOLL, 0, struct epoll_event event; says(epoll_wait(epoll, &event, 1, 0)));
SEE(epoll_poll, EPOLL, 0, is_ready(epoll));
SEE(epoll_add, EPOLL, 0, struct epoll_event event = {.events = EPOLLIN}; says(epoll_ctl(epoll, EPOLL_CTL_ADD,
    line[0], &event)));
SEE(inotify_add, INOTIFY, 0, says(inotify_add_watch(inotify, "lock", IN_MODIFY)));
SEE(inotify_read, INOTIFY, 0, says(read(inotify, room, 4096)));
static int sees_folder;
static void watches_folder(void) {
    sees_folder = ck(inotify_init1(IN_NONBLOCK));
    ck(inotify_add_watch(sees_folder, ".", IN_ALL_EVENTS)), ck(inotify_add_watch(sees_folder, "other",
    IN_ALL_EVENTS));
    ck(inotify_add_watch(sees_folder, "sub", IN_ALL_EVENTS));
}
SEE(events_of_folder, 0, watches_folder, ssize_t n = read(sees_folder, room, 4096); say("%zd ", n);
    for (ssize_t at = 0; at < n;) { struct inotify_event *e = (void *)(room + at);
        if (!e->len || strcmp(e->name, "dirt")) say("%d %x %s, ", e->wd, e->mask, e->len ? e->name : "");
        at += sizeof *e + e->len; });
SEE(unix_sockets, UNIXLISTENER | UNIX, 0, // The kernel's own list of them.
    struct { struct nlmsghdr head; struct unix_diag_req request; } ask = {
        {sizeof ask, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0}, {.sdiag_family = AF_UNIX, .udiag_states = -1}};
    struct stat s; ck(fstat(wire[0], &s)); ask.request.udiag_ino = s.st_ino,
    ask.request.udiag_show = UDIAG_SHOW_RQLEN;
    ask.request.udiag_cookie[0] = ask.request.udiag_cookie[1] = -1;
    int f = ck(socket(AF_NETLINK, SOCK_DGRAM | SOCK_NONBLOCK, NETLINK_SOCK_DIAG)); ck(send(f, &ask, sizeof ask, 0));
    struct { struct nlmsghdr head; struct unix_diag_msg unix_; struct nlattr attr; unsigned words[40]; }
    *got = (void *)room;
    says(recv(f, room, sizeof room, 0) > 0); say("%d: %u ", got->head.nlmsg_type, got->words[0]));
