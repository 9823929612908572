// channels NAME [PORT]: process A changes a file, process B learns of it through one channel only, and prints "saw".
// channels --list: the names, one per line, each with what is expected of B's print: held, free (B learns nothing), or outside (no B).
// Run it in a folder with the files that tests/channels.rs makes. A and B are forked from a parent that changes nothing; they keep
// apart by time, unless B blocks in the channel itself.
// With CHANNELS_GUESS=wrong A does what it does because of a guess that is wrong (it looks into /etc, and is told that nothing is there); once that
// is known A has done nothing, and B has nothing to learn. With CHANNELS_GUESS=right the guess is right.
#include "harness.h"

// Pipes.
#define READ_X(f) must(ck(read(f, buf, 1)) == 1)
#define READ_END(f) must(read(f, buf, 1) == 0)
static void pipe_data(int r) {
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), ck(write(p[1], "x", 1));
    if (r == B) { READ_X(p[0]); saw(); }
}
static void pipe_eof_close(int r) {
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), close(p[1]);
    if (r == B) { close(p[1]); READ_END(p[0]); saw(); }
}
static void pipe_eof_exit(int r) {
    if (r == A) dirty(); else pipe_eof_close(r);
}
static void pipe_poll_hup(int r) {
    if (r == B) { close(p[1]); must(ready(p[0], POLLIN) & POLLHUP); saw(); } else pipe_eof_close(r);
}
static void pipe_poll_hup_exit(int r) {
    if (r == A) dirty(); else pipe_poll_hup(r);
}
static void pipe_select_hup(int r) {
    if (r == B) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(p[0], &set);
        close(p[1]);
        must(ck(select(p[0] + 1, &set, 0, 0, 0)) == 1), saw();
    } else pipe_eof_close(r);
}
static void pipe_epoll_hup(int r) {
    if (r == B) {
        struct epoll_event event = {.events = EPOLLIN};
        int e = ck(epoll_create1(0));
        close(p[1]), ck(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &event));
        must(ck(epoll_wait(e, &event, 1, 5000 * slowness)) == 1), saw();
    } else pipe_eof_close(r);
}
static void pipe_poll_in(int r) {
    if (r == B) must(ready(p[0], POLLIN) & POLLIN), saw(); else pipe_data(r);
}
static void pipe_fionread(int r) {
    int n = 0;
    if (r == B) later(), ck(ioctl(p[0], FIONREAD, &n)), must(n == 1), saw(); else pipe_data(r);
}
static void pipe_room(int r) { // B waits for room that A makes.
    if (r == S) { ck(pipe(p)); must(ck(write(p[1], buf, sizeof buf)) == sizeof buf); }
    if (r == A) dirty(), ck(read(p[0], buf, sizeof buf));
    if (r == B) ck(write(p[1], "x", 1)), saw();
}
static void pipe_room_by_name(int r) { // A opens it once more to make room: a descriptor of which only its number is known.
    if (r != A) { pipe_room(r); return; }
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", p[0]);
    dirty();
    ck(read(ck(open(name, O_RDONLY)), buf, sizeof buf));
}
static void pipe_room_spliced(int r) { // A makes room by sending what is there nowhere.
    if (r != A) { pipe_room(r); return; }
    int nowhere = ck(open("/dev/null", O_WRONLY));
    dirty();
    ck(splice(p[0], 0, nowhere, 0, sizeof buf, 0));
}
static void pipe_room_to_file(int r) { // A makes room by sending what is there to a file.
    if (r != A) { pipe_room(r); return; }
    int file = ck(open("data", O_WRONLY));
    dirty();
    ck(splice(p[0], 0, file, 0, sizeof buf, 0));
}
static void pipe_room_poll(int r) {
    if (r == B) must(ready(p[1], POLLOUT) & POLLOUT), saw(); else pipe_room(r);
}
static void pipe_room_size(int r) { // A makes the pipe larger.
    if (r == A) dirty(), ck(fcntl(p[1], F_SETPIPE_SZ, 1 << 20)); else pipe_room(r);
}
static void pipe_size(int r) {
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), ck(fcntl(p[1], F_SETPIPE_SZ, 1 << 20));
    if (r == B) { later(); must(ck(fcntl(p[0], F_GETPIPE_SZ)) == 1 << 20); saw(); }
}
static void pipe_shrink(int r) { // What is in it does not fit.
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), ck(write(p[1], buf, 8192));
    if (r == B) { later(); must(fcntl(p[0], F_SETPIPE_SZ, 4096) == -1 && errno == EBUSY); saw(); }
}
static void pipe_epipe(int r) {
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), close(p[0]);
    if (r == B) { close(p[0]), later(); must(write(p[1], "x", 1) == -1 && errno == EPIPE); saw(); }
}
static void pipe_splice(int r) {
    if (r == S) ck(pipe(p)), ck(pipe(q));
    if (r == A) dirty(), ck(write(q[1], "x", 1)), ck(splice(q[0], 0, p[1], 0, 1, 0));
    if (r == B) { READ_X(p[0]); saw(); }
}
static void pipe_splice_b(int r) {
    if (r == B) { must(ck(splice(p[0], 0, q[1], 0, 1, 0)) == 1); saw(); return; }
    pipe_splice(r);
}
static void pipe_splice_out(int r) { // B's print itself is a splice: it never holds the data.
    if (r == A) dirty(), ck(write(p[1], "saw\n", 4));
    else if (r == B) must(ck(splice(p[0], 0, 1, 0, 4, 0)) == 4);
    else pipe_data(r);
}
static void pipe_tee(int r) {
    if (r == B) { must(ck(tee(p[0], q[1], 1, 0)) == 1); saw(); return; }
    pipe_splice(r);
}
static void pipe_tee_out(int r) {
    if (r == A) dirty(), ck(write(p[1], "saw\n", 4));
    else if (r == B) must(ck(tee(p[0], 1, 4, 0)) == 4);
    else pipe_data(r);
}
static void pipe_vmsplice(int r) {
    struct iovec part = {"x", 1};
    if (r == A) dirty(), ck(vmsplice(p[1], &part, 1, 0)); else pipe_data(r);
}
static void pipe_sendfile(int r) {
    if (r == A) { dirty(); ck(sendfile(p[1], ck(open("other", O_RDONLY)), 0, 1)); } else pipe_data(r);
}
static void fifo_data(int r) { // The FIFO is on the domain, made before.
    if (r == A) { int f = ck(open("fifo", O_WRONLY)); dirty(); ck(write(f, "x", 1)); }
    if (r == B) { int f = ck(open("fifo", O_RDONLY)); READ_X(f); saw(); }
}
static void fifo_eof(int r) {
    if (r == A) { int f = ck(open("fifo", O_WRONLY)); dirty(); close(f); }
    if (r == B) { int f = ck(open("fifo", O_RDONLY)); READ_END(f); saw(); }
}
static void fifo_open(int r) { // B's open returns when A opens.
    if (r == A) dirty(), ck(open("fifo", O_WRONLY));
    if (r == B) ck(open("fifo", O_RDONLY)), saw();
}
static void fifo_as_pipe(void) { p[0] = ck(open("fifo", O_RDONLY | O_NONBLOCK)), p[1] = ck(open("fifo", O_WRONLY)), ck(fcntl(p[0], F_SETFL, 0)); }
static void fifo_room(int r) {
    if (r == S) fifo_as_pipe(), must(ck(write(p[1], buf, sizeof buf)) == sizeof buf); else pipe_room(r);
}
static void fifo_fionread(int r) {
    if (r == S) fifo_as_pipe(); else pipe_fionread(r);
}
static void fifo_poll_in(int r) {
    if (r == S) fifo_as_pipe(); else pipe_poll_in(r);
}
static void fifo_size(int r) {
    if (r == S) fifo_as_pipe(); else pipe_size(r);
}
static void fifo_shrink(int r) {
    if (r == S) fifo_as_pipe(); else pipe_shrink(r);
}
static void pty_data(int r) {
    if (r == S) ck(openpty(&p[0], &p[1], 0, 0, 0));
    if (r == A) dirty(), ck(write(p[1], "x", 1));
    if (r == B) { READ_X(p[0]); saw(); }
}

// Sockets.
static void unix_data(int r) {
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p)); else pipe_data(r);
}
static void unix_eof(int r) {
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p)); else pipe_eof_close(r);
}
static void unix_eof_exit(int r) {
    if (r == A) dirty(); else unix_eof(r);
}
static void unix_shutdown(int r) {
    if (r == A) dirty(), ck(shutdown(p[1], SHUT_WR)); else unix_eof(r);
}
static void unix_poll_rdhup(int r) {
    if (r == B) { close(p[1]); must(ready(p[0], POLLRDHUP) & POLLRDHUP); saw(); } else unix_shutdown(r);
}
static void unix_datagram(int r) {
    if (r == S) ck(socketpair(AF_UNIX, SOCK_DGRAM, 0, p)); else pipe_data(r);
}
static void unix_seqpacket(int r) {
    if (r == S) ck(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p)); else pipe_data(r);
}
static void unix_recvmsg(int r) {
    struct iovec part = {buf, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (r == A) dirty(), ck(sendmsg(p[1], &message, 0));
    else if (r == B) must(ck(recvmsg(p[0], &message, 0)) == 1), saw();
    else unix_data(r);
}
static void unix_room(int r) {
    if (r == S) {
        ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
        while (send(p[1], buf, 4096, MSG_DONTWAIT) > 0) {}
    }
    if (r == A) { dirty(); while (recv(p[0], buf, sizeof buf, MSG_DONTWAIT) > 0) {} }
    if (r == B) ck(write(p[1], buf, 1)), saw();
}
static void unix_room_message(int r) {
    struct iovec part = {buf, sizeof buf};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (r == A) { dirty(); while (recvmsg(p[0], &message, MSG_DONTWAIT) > 0) {} } else unix_room(r);
}
static struct sockaddr_un unix_name(const char *what) { // One that is no file.
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s-%s", what, getenv("CHANNELS_ID"));
    return name;
}
static void unix_accept(int r) { // That A connects tells.
    struct sockaddr_un name = unix_name("listener");
    if (r == S) fd = ck(socket(AF_UNIX, SOCK_STREAM, 0)), ck(bind(fd, (void *)&name, sizeof name)), ck(listen(fd, 1));
    if (r == A) dirty(), ck(connect(ck(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&name, sizeof name));
    if (r == B) ck(accept(fd, 0, 0)), saw();
}
static void unix_peek(int r) {
    if (r == B) must(ck(recv(p[0], buf, 1, MSG_PEEK)) == 1), saw(); else unix_data(r);
}
static void unix_outq(int r) { // Whether what was sent has been read.
    int n = 0;
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p)), ck(write(p[1], "x", 1));
    if (r == A) dirty(), ck(read(p[0], buf, 1));
    if (r == B) { later(), ck(ioctl(p[1], SIOCOUTQ, &n)), must(n == 0), saw(); }
}
static void unix_bound(int r) { // That it has a name already.
    struct sockaddr_un first = unix_name("first"), second = unix_name("second");
    if (r == S) fd = ck(socket(AF_UNIX, SOCK_STREAM, 0));
    if (r == A) dirty(), ck(bind(fd, (void *)&first, sizeof first));
    if (r == B) { later(); must(bind(fd, (void *)&second, sizeof second) == -1 && errno == EINVAL); saw(); }
}
static void scm_rights(int r) { // A passes the descriptor of the changed file; B reads that.
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {buf, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    if (r == A) {
        int f = ck(open("data", O_RDWR));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof f);
        memcpy(CMSG_DATA(head), &f, sizeof f);
        ck(sendmsg(p[1], &message, 0));
        ms(100), ck(pwrite(f, "new", 3, 0)); // After the message: only the file tells.
    }
    if (r == B) {
        int f;
        ck(recvmsg(p[0], &message, 0));
        memcpy(&f, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof f);
        later(), ck(pread(f, buf, 3, 0)), must(!memcmp(buf, "new", 3)), saw();
    }
}
static void tcp_listen(int type) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    fd = ck(socket(AF_INET, type, 0));
    ck(bind(fd, (void *)&name, sizeof name));
    ck(getsockname(fd, (void *)&name, &length));
    port = ntohs(name.sin_port);
    if (type == SOCK_STREAM) ck(listen(fd, 5));
}
static int tcp_connect(int type) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int f = ck(socket(AF_INET, type, 0));
    ck(connect(f, (void *)&name, sizeof name));
    return f;
}
static void tcp_data(int r) {
    if (r == S) tcp_listen(SOCK_STREAM);
    if (r == A) { int f = tcp_connect(SOCK_STREAM); dirty(); ck(write(f, "x", 1)); }
    if (r == B) { int f = ck(accept(fd, 0, 0)); READ_X(f); saw(); }
}
static void tcp_fin(int r) {
    if (r == A) { int f = tcp_connect(SOCK_STREAM); dirty(); close(f); }
    else if (r == B) { int f = ck(accept(fd, 0, 0)); READ_END(f); saw(); }
    else tcp_data(r);
}
static void tcp_fin_exit(int r) {
    if (r == A) { tcp_connect(SOCK_STREAM); dirty(); } else tcp_fin(r);
}
static void tcp_accept(int r) { // That A connects tells.
    if (r == A) { dirty(); tcp_connect(SOCK_STREAM); }
    else if (r == B) ck(accept(fd, 0, 0)), saw();
    else tcp_data(r);
}
static void udp_data(int r) {
    if (r == S) tcp_listen(SOCK_DGRAM);
    if (r == A) { int f = tcp_connect(SOCK_DGRAM); dirty(); ck(write(f, "x", 1)); }
    if (r == B) { READ_X(fd); saw(); }
}
static void tcp_bind_busy(int r) { // That A listens tells.
    if (r == S) tcp_listen(SOCK_STREAM), close(fd);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    if (r == A) { dirty(); fd = ck(socket(AF_INET, SOCK_STREAM, 0)); ck(bind(fd, (void *)&name, sizeof name)); }
    if (r == B) { later(); fd = ck(socket(AF_INET, SOCK_STREAM, 0)); must(bind(fd, (void *)&name, sizeof name) == -1); saw(); }
}
static void tcp_pair(void) { tcp_listen(SOCK_STREAM), p[1] = tcp_connect(SOCK_STREAM), p[0] = ck(accept(fd, 0, 0)); }
static void tcp_room(int r) {
    if (r == S) { tcp_pair(); for (int full = 0; full < 60;) { if (send(p[1], buf, sizeof buf, MSG_DONTWAIT) > 0) full = 0; else full++, usleep(10000); } } // The kernel makes more room by itself, a tenth of a second later.
    if (r == A) { dirty(); while (recv(p[0], buf, sizeof buf, MSG_DONTWAIT) > 0) ms(1); }
    if (r == B) ck(write(p[1], buf, 1)), saw();
}
static void tcp_peek(int r) {
    if (r == S) tcp_pair(); else unix_peek(r);
}
static void tcp_poll_in(int r) {
    if (r == S) tcp_pair(); else pipe_poll_in(r);
}
static void tcp_shutdown(int r) {
    if (r == S) tcp_pair(); else unix_poll_rdhup(r);
}
static void tcp_not_connected(int r) { // That both directions are shut down already.
    if (r == S) tcp_pair();
    if (r == A) dirty(), ck(shutdown(p[1], SHUT_WR)), ck(shutdown(p[0], SHUT_WR));
    if (r == B) { later(); must(shutdown(p[0], SHUT_WR) == -1 && errno == ENOTCONN); saw(); }
}
static void tcp_option(int r) {
    int on = 1;
    socklen_t length = sizeof on;
    if (r == S) tcp_pair();
    if (r == A) dirty(), ck(setsockopt(p[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    if (r == B) { later(), on = 0, ck(getsockopt(p[1], IPPROTO_TCP, TCP_NODELAY, &on, &length)), must(on), saw(); }
}

// Files: what they hold.
#define IS_NEW(at) must(!memcmp(at, "new", 3))
static void file_read(int r) {
    if (r == A) dirty();
    if (r == B) { later(); ck(read(ck(open("data", O_RDONLY)), buf, 3)); IS_NEW(buf); saw(); }
}
static void file_read_open(int r) { // Opened before the change.
    if (r == S) fd = ck(open("data", O_RDONLY));
    if (r == A) dirty();
    if (r == B) { later(); ck(pread(fd, buf, 3, 0)); IS_NEW(buf); saw(); }
}
static void file_mmap_private(int r) {
    if (r == A) dirty();
    if (r == B) { later(); char *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, ck(open("data", O_RDONLY)), 0); IS_NEW(at); saw(); }
}
static void file_mmap_private_before(int r) { // B mapped it before the change, and had not touched it.
    if (r == A) dirty();
    if (r == B) { char *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, ck(open("data", O_RDONLY)), 0); later(); IS_NEW(at); saw(); }
}
static void file_mmap_private_fork(int r) { // Mapped by a parent.
    static char *at;
    if (r == S) at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, ck(open("data", O_RDONLY)), 0);
    if (r == A) dirty();
    if (r == B) { later(); IS_NEW(at); saw(); }
}
static void file_mmap_private_store(int r) { // A stores through a mapping of its own.
    if (r == S) put("data", "old data", 0600);
    if (r == A) { char *at = shared(0, ck(open("data", O_RDWR))); memcpy(at, "new", 3); }
    if (r == B) { char *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, ck(open("data", O_RDONLY)), 0); later(); IS_NEW(at); saw(); }
}
static void file_mmap_shared(int r) {
    if (r == A) dirty();
    if (r == B) { char *at = mmap(0, 4096, PROT_READ, MAP_SHARED, ck(open("data", O_RDONLY)), 0); later(); IS_NEW(at); saw(); }
}
static void file_mmap_shared_after(int r) {
    if (r == A) dirty();
    if (r == B) { later(); char *at = mmap(0, 4096, PROT_READ, MAP_SHARED, ck(open("data", O_RDONLY)), 0); IS_NEW(at); saw(); }
}
static void file_store(int r) { // A stores through a mapping; B reads by a call.
    if (r == A) { char *at = shared(0, ck(open("data", O_RDWR))); memcpy(at, "new", 3); }
    if (r == B) { later(); ck(pread(ck(open("data", O_RDONLY)), buf, 3, 0)); IS_NEW(buf); saw(); }
}
static void file_store_exit(int r) { file_store(r); }
static void file_store_mmap(int r) {
    if (r == A) file_store(r); else file_mmap_shared(r);
}
static void file_store_mmap_after(int r) { // B maps it after A's store.
    if (r == A) file_store(r); else file_mmap_shared_after(r);
}
static void file_sendfile(int r) { // B's print itself.
    if (r == A) { fd = ck(open("data", O_WRONLY)); ck(pwrite(fd, "saw\n", 4, 0)); }
    if (r == B) { later(); must(ck(sendfile(1, ck(open("data", O_RDONLY)), 0, 4)) == 4); }
}
static void file_splice(int r) {
    if (r == B) { later(); must(ck(splice(ck(open("data", O_RDONLY)), 0, 1, 0, 4, 0)) == 4); } else file_sendfile(r);
}
static void file_copy_range(int r) { // To a file outside of what is ordered, then from there.
    if (r == S) fd = ck(memfd_create("copy", 0));
    if (r == A) dirty();
    if (r == B) {
        later();
        int from = ck(open("data", O_RDONLY));
        ssize_t n = copy_file_range(from, 0, fd, 0, 3, 0);
        if (n == -1 && errno == EXDEV) n = ck(sendfile(fd, from, 0, 3));
        must(n == 3), ck(pread(fd, buf, 3, 0)); IS_NEW(buf); saw();
    }
}
static void file_copied_by_a(int r) { // A copies; B reads the copy.
    if (r == A) ck(copy_file_range(ck(open("other", O_RDONLY)), 0, ck(open("data", O_WRONLY)), 0, 3, 0));
    if (r == B) { later(); ck(pread(ck(open("data", O_RDONLY)), buf, 3, 0)); must(!memcmp(buf, "oth", 3)); saw(); }
}
static void tmpfs_file(int r) { // The data goes through a file that needs no commit.
    if (r == S) fd = ck(open("/dev/shm", O_RDWR | O_TMPFILE, 0600));
    if (r == A) dirty(), ck(pwrite(fd, "new", 3, 0));
    if (r == B) { later(); ck(pread(fd, buf, 3, 0)); IS_NEW(buf); saw(); }
}
// A changes a file in memory by a name, B looks at it through a descriptor.
static const char *name_of_fd(void) {
    static char name[32];
    sprintf(name, "/proc/self/fd/%d", fd);
    return name;
}
static void wait_killed(int r);
static void in_memory(int r) {
    if (r == S) fd = ck(open("/dev/shm", O_RDWR | O_TMPFILE, 0600)), ck(write(fd, "old", 3));
    if (r == A) dirty();
    if (r == B) later();
}
static void tmpfs_emptied(int r) {
    struct stat now;
    in_memory(r);
    if (r == A) ck(open(name_of_fd(), O_WRONLY | O_TRUNC));
    if (r == B) ck(fstat(fd, &now)), must(now.st_size == 0), saw();
}
static void tmpfs_truncated(int r) {
    in_memory(r);
    if (r == A) ck(truncate(name_of_fd(), 0));
    if (r == B) must(pread(fd, buf, 3, 0) == 0), saw();
}
// What A stores there comes without a call, and in no transaction that is open: a signal to outside has waited for it.
static char *mapped_and_durable(void) {
    char *at = shared(0, ck(open("data", O_RDWR)));
    ck(kill(1, 0));
    return at;
}
static void stored_told_in_memory(int r) { // B has mapped nothing, and hears of it by a file in memory.
    in_memory(r);
    if (r == A) {
        char *at = mapped_and_durable(), *told = shared(0, fd);
        ms(300), at[0] = 'X', told[0] = 'Y';
    }
    if (r != B) return;
    for (*buf = 0; *buf != 'Y'; ms(10)) must(pread(fd, buf, 1, 0) == 1);
    saw();
}
static void stored_and_killed(int r) {
    if (r == A) mapped_and_durable()[0] = 'X', raise(SIGKILL);
    if (r == B) wait_killed(B);
}
static void stored_and_faulted(int r) {
    int ended;
    if (r == A) mapped_and_durable()[0] = 'X', *(volatile char *)0 = 1;
    if (r == B) ck(waitpid(pid_a, &ended, 0)), must(WIFSIGNALED(ended)), saw();
}
static void fifo_mode_by_descriptor(int r) {
    struct stat now;
    if (r == A) ck(fchmod(ck(open("fifo", O_RDWR)), 0640));
    if (r == B) later(), ck(stat("fifo", &now)), must((now.st_mode & 0777) == 0640), saw();
}
static void fifo_mode_seen_by_descriptor(int r) {
    struct stat now;
    if (r == A) ck(chmod("fifo", 0640));
    if (r != B) return;
    fd = ck(open("fifo", O_RDWR)), later(), ck(syscall(SYS_fstat, fd, &now)), must((now.st_mode & 0777) == 0640), saw();
}
static void exec_first_line(int r) { // A changes the script in place; its interpreter does not read it.
    if (r == S) put("script", "#!/usr/bin/printf old\\n%.0s\n", 0755);
    if (r == A) fd = ck(open("script", O_WRONLY)), ck(pwrite(fd, "saw", 3, strlen("#!/usr/bin/printf "))), close(fd);
    if (r == B) later(), ck(execl("./script", "script", (char *)0));
}
static void tmpfs_mode(int r) {
    struct stat now;
    in_memory(r);
    if (r == A) ck(chmod(name_of_fd(), 0640));
    if (r == B) ck(fstat(fd, &now)), must((now.st_mode & 0777) == 0640), saw();
}
static void links_by_descriptor(int r) {
    struct stat now;
    if (r == S) fd = ck(open(".", O_TMPFILE | O_RDWR, 0600));
    if (r == A) ck(linkat(AT_FDCWD, name_of_fd(), AT_FDCWD, "made", AT_SYMLINK_FOLLOW));
    if (r == B) { later(); ck(fstat(fd, &now)); must(now.st_nlink == 1); saw(); }
}
static void lseek_shared(int r) {
    if (r == S) fd = ck(open("other", O_RDONLY));
    if (r == A) dirty(), ck(lseek(fd, 2, SEEK_SET));
    if (r == B) { later(); must(lseek(fd, 0, SEEK_CUR) == 2); saw(); }
}
static void offset_read(int r) { // A only reads.
    if (r == A) dirty(), ck(read(fd, buf, 2)); else lseek_shared(r);
}
static void offset_spliced(int r) { // A sends what it reads nowhere.
    if (r == A) { int nowhere = ck(open("/dev/null", O_WRONLY)); dirty(), must(ck(sendfile(nowhere, fd, 0, 2)) == 2); } else lseek_shared(r);
}
static void offset_sent(int r) { // A sends what it reads to a file.
    if (r != A) { lseek_shared(r); return; }
    int to = ck(open("data", O_WRONLY));
    dirty(), must(ck(sendfile(to, fd, 0, 2)) == 2);
}
static void offset_copied(int r) {
    if (r != A) { lseek_shared(r); return; }
    int to = ck(open("data", O_WRONLY));
    dirty(), must(ck(copy_file_range(fd, 0, to, 0, 2, 0)) == 2);
}
static void offset_passed(int r) { // A passes a descriptor that it opened, and moves the offset later.
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {buf, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    if (r == A) {
        int f = ck(open("other", O_RDONLY));
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &f, sizeof f), ck(sendmsg(p[1], &message, 0));
        dirty(), ck(lseek(f, 2, SEEK_SET));
    }
    if (r == B) {
        ck(recvmsg(p[0], &message, 0)), memcpy(&fd, CMSG_DATA(header), sizeof fd);
        later(); must(lseek(fd, 0, SEEK_CUR) == 2); saw();
    }
}
static void flags_ioctl(int r) {
    int one = 1;
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), ck(ioctl(p[0], FIONBIO, &one));
    if (r == B) { later(); must(fcntl(p[0], F_GETFL) & O_NONBLOCK); saw(); }
}
static void flags_eagain(int r) { // B learns of the flag only by not waiting.
    if (r == B) { later(); must(read(p[0], buf, 1) == -1 && errno == EAGAIN); saw(); } else flags_ioctl(r);
}
static void flags_shared(int r) {
    if (r == S) fd = ck(open("other", O_RDONLY));
    if (r == A) dirty(), ck(fcntl(fd, F_SETFL, O_NONBLOCK));
    if (r == B) { later(); must(fcntl(fd, F_GETFL) & O_NONBLOCK); saw(); }
}
static void append_offset(int r) { // Where B's own byte went tells what was there.
    char name[32];
    if (r == S) fd = ck(open("/dev/shm", O_RDWR | O_TMPFILE, 0600));
    if (r == A) dirty(), ck(pwrite(fd, "new", 3, 0));
    if (r == B) {
        sprintf(name, "/proc/self/fd/%d", fd);
        int f = ck(open(name, O_WRONLY | O_APPEND));
        later(), ck(write(f, "x", 1)), must(lseek(f, 0, SEEK_CUR) == 4), saw();
    }
}

// Files: names and attributes.
static struct stat st;
static void stat_size(int r) {
    if (r == A) ck(truncate("data", 100));
    if (r == B) { later(); ck(stat("data", &st)); must(st.st_size == 100); saw(); }
}
static void stat_mtime(int r) {
    if (r == A) dirty();
    if (r == B) { ck(stat("data", &st)); long was = st.st_mtim.tv_nsec; later(); ck(stat("data", &st)); must(st.st_mtim.tv_nsec != was); saw(); }
}
static void stat_stored(int r) { // A stores by a mapping. Who looks at the file's times by its name has mapped nothing.
    if (r == A) file_store(A);
    if (r == B) stat_mtime(B);
}
static void statx_stored(int r) {
    struct statx before, after;
    if (r == A) stat_stored(A);
    if (r != B) return;
    ck(statx(AT_FDCWD, "data", 0, STATX_BASIC_STATS, &before)), later();
    ck(statx(AT_FDCWD, "data", 0, STATX_BASIC_STATS, &after));
    must(before.stx_mtime.tv_nsec != after.stx_mtime.tv_nsec), saw();
}
static void seek_end(int r) {
    if (r == S) fd = ck(open("data", O_RDONLY));
    if (r == A) ck(truncate("data", 100));
    if (r == B) { later(); must(lseek(fd, 0, SEEK_END) == 100); saw(); }
}
static void stat_mode(int r) {
    if (r == A) ck(chmod("data", 0600));
    if (r == B) { later(); ck(stat("data", &st)); must((st.st_mode & 0777) == 0600); saw(); }
}
static void stat_links(int r) {
    if (r == A) ck(link("data", "second"));
    if (r == B) { later(); ck(stat("data", &st)); must(st.st_nlink == 2); saw(); }
}
static void name_readdir(int r) {
    if (r == A) put("made", "", 0600);
    if (r == B) { later(); must(has(".", "made")); saw(); }
}
static void name_open(int r) {
    if (r == A) put("made", "", 0600);
    if (r == B) { later(); ck(open("made", O_RDONLY)); saw(); }
}
static void name_mkdir(int r) {
    if (r == A) ck(mkdir("made", 0700));
    if (r == B) { later(); ck(access("made", F_OK)); saw(); }
}
static void name_eexist(int r) {
    if (r == A) put("made", "", 0600);
    if (r == B) { later(); must(mkdir("made", 0700) == -1 && errno == EEXIST); saw(); }
}
static void name_taken(int r) {
    if (r == A) ck(mkdir("made", 0700));
    if (r == B) { later(); must(open("made", O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST); saw(); }
}
static void name_directory(int r) {
    if (r == A) ck(mkdir("made", 0700));
    if (r == B) { later(); ck(open("made", O_RDONLY | O_DIRECTORY)); saw(); }
}
static void directory_mode(int r) {
    if (r == A) ck(chmod("sub", 0700));
    if (r == B) { later(); ck(stat("sub", &st)); must((st.st_mode & 0777) == 0700); saw(); }
}
static void directory_xattr(int r) {
    if (r == A) ck(setxattr("sub", "user.a", "x", 1, 0));
    if (r == B) { later(); must(setxattr("sub", "user.a", "y", 1, XATTR_CREATE) == -1 && errno == EEXIST); saw(); }
}
static void name_enoent(int r) {
    if (r == A) ck(unlink("other"));
    if (r == B) { later(); must(open("other", O_RDONLY) == -1 && errno == ENOENT); saw(); }
}
static void name_getcwd(int r) {
    if (r == S) ck(chdir("sub"));
    if (r == A) ck(rename("../sub", "../moved"));
    if (r == B) { later(); must(getcwd(buf, sizeof buf) && strstr(buf, "/moved")); saw(); }
}
static void name_proc_fd(int r) { // Where an open file is now, from /proc.
    if (r == S) fd = ck(open("data", O_RDONLY));
    if (r == A) ck(rename("data", "moved"));
    if (r == B) { char name[32]; sprintf(name, "/proc/self/fd/%d", fd); later(); ck(readlink(name, buf, 4096)); must(strstr(buf, "/moved")); saw(); }
}
static void name_readlink(int r) {
    if (r == A) ck(symlink("target", "made"));
    if (r == B) { later(); must(ck(readlink("made", buf, 100)) == 6); saw(); }
}
static void name_tmpfile(int r) {
    if (r == A) {
        char name[32];
        fd = ck(open(".", O_TMPFILE | O_RDWR, 0600)), ck(write(fd, "new", 3)), sprintf(name, "/proc/self/fd/%d", fd);
        ck(linkat(AT_FDCWD, name, AT_FDCWD, "made", AT_SYMLINK_FOLLOW));
    }
    if (r == B) { later(); ck(access("made", F_OK)); saw(); }
}
static char outside_link[64];
static void name_dangling(int r) { // O_CREAT through a dangling link on tmpfs; the test makes it.
    sprintf(outside_link, "/dev/shm/channels-%s", getenv("CHANNELS_ID"));
    if (r == A) fd = ck(open(outside_link, O_CREAT | O_WRONLY, 0600)), ck(write(fd, "new", 3));
    if (r == B) { later(); ck(access("made", F_OK)); saw(); }
}
static void xattr_(int r) {
    if (r == A) ck(setxattr("data", "user.a", "x", 1, 0));
    if (r == B) { later(); must(getxattr("data", "user.a", buf, 10) == 1); saw(); }
}
static void xattr_taken(int r) {
    if (r == A) ck(setxattr("data", "user.a", "x", 1, 0));
    if (r == B) { later(); must(setxattr("data", "user.a", "y", 1, XATTR_CREATE) == -1 && errno == EEXIST); saw(); }
}
static void inotify_(int r) {
    if (r == A) dirty();
    if (r == B) { int i = ck(inotify_init1(0)); ck(inotify_add_watch(i, "data", IN_MODIFY)); must(ck(read(i, buf, 4096)) > 0); saw(); }
}
static void inotify_name(int r) {
    if (r == A) put("made", "", 0600);
    if (r == B) { int i = ck(inotify_init1(0)); ck(inotify_add_watch(i, ".", IN_CREATE)); must(ready(i, POLLIN)); saw(); }
}
static void inotify_second(int r) { // B's watch is the second one.
    if (r == S) fd = ck(inotify_init1(0));
    if (r == A) dirty(), ck(inotify_add_watch(fd, "other", IN_MODIFY));
    if (r == B) { later(); must(ck(inotify_add_watch(fd, "lock", IN_MODIFY)) == 2); saw(); }
}
static void exec_binary(int r) {
    if (r == A) copy_self("prog");
    if (r == B) { later(); ck(execl("./prog", "prog", "--say", (char *)0)); }
}
static void exec_script(int r) {
    if (r == A) put("prog", "#!/bin/sh\necho saw\n", 0755);
    if (r == B) { later(); ck(execl("./prog", "prog", (char *)0)); }
}
static void exec_interpreter(int r) { // The script was there before: #!prog --say
    if (r == A) copy_self("prog");
    if (r == B) { later(); ck(execl("./script", "script", (char *)0)); }
}

// Locks. A takes it at once, changes, and lets go; B waits for it.
static void flock_(int r) {
    if (r == A) { int f = ck(open("lock", O_RDWR)); ck(flock(f, LOCK_EX)); ms(200), dirty(), ck(flock(f, LOCK_UN)); }
    if (r == B) { int f = ck(open("lock", O_RDWR)); ms(200), ck(flock(f, LOCK_EX)); saw(); }
}
static void flock_exit(int r) {
    if (r == A) { int f = ck(open("lock", O_RDWR)); ck(flock(f, LOCK_EX)); ms(200), dirty(); } else flock_(r);
}
static void flock_busy(int r) { // That it is taken tells.
    if (r == A) dirty(), ck(flock(ck(open("lock", O_RDWR)), LOCK_EX));
    if (r == B) { later(); must(flock(ck(open("lock", O_RDWR)), LOCK_EX | LOCK_NB) == -1); saw(); }
}
static struct flock whole(int type) { return (struct flock){.l_type = type}; }
static int lock_a(void) { int f = ck(open("lock", O_RDWR)); struct flock l = whole(F_WRLCK); ck(fcntl(f, F_SETLK, &l)); ms(200), dirty(); return f; }
static void fcntl_b(void) { int f = ck(open("lock", O_RDWR)); struct flock l = whole(F_WRLCK); ms(200), ck(fcntl(f, F_SETLKW, &l)), saw(); }
static void fcntl_unlock(int r) {
    if (r == A) { int f = lock_a(); struct flock l = whole(F_UNLCK); ck(fcntl(f, F_SETLK, &l)); }
    if (r == B) fcntl_b();
}
static void fcntl_close(int r) {
    if (r == A) close(lock_a());
    if (r == B) fcntl_b();
}
static void fcntl_exit(int r) {
    if (r == A) lock_a();
    if (r == B) fcntl_b();
}
static void fcntl_getlk(int r) {
    struct flock l = whole(F_WRLCK);
    if (r == A) dirty(), ck(fcntl(ck(open("lock", O_RDWR)), F_SETLK, &l));
    if (r == B) { later(); ck(fcntl(ck(open("lock", O_RDWR)), F_GETLK, &l)); must(l.l_type == F_WRLCK); saw(); }
}
static void ofd_close(int r) {
    struct flock l = whole(F_WRLCK);
    if (r == A) { int f = ck(open("lock", O_RDWR)); ck(fcntl(f, F_OFD_SETLK, &l)); ms(200), dirty(), close(f); }
    if (r == B) { int f = ck(open("lock", O_RDWR)); ms(200), ck(fcntl(f, F_OFD_SETLKW, &l)), saw(); }
}

// Signals and events.
static void eventfd_(int r) {
    if (r == S) fd = ck(eventfd(0, 0));
    if (r == A) dirty(), ck(eventfd_write(fd, 1));
    if (r == B) { must(ck(read(fd, buf, 8)) == 8); saw(); }
}
static void eventfd_poll(int r) {
    if (r == B) must(ready(fd, POLLIN) & POLLIN), saw(); else eventfd_(r);
}
static void eventfd_room(int r) { // B waits until A has taken the counter.
    if (r == S) fd = ck(eventfd(0, 0)), ck(eventfd_write(fd, -2));
    if (r == A) dirty(), ck(read(fd, buf, 8));
    if (r == B) ck(eventfd_write(fd, 1)), saw();
}
static void timerfd_by_a(int r) { // A arms a timer that both have.
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    if (r == S) fd = ck(timerfd_create(CLOCK_MONOTONIC, 0));
    if (r == A) dirty(), ck(timerfd_settime(fd, 0, &soon, 0));
    if (r == B) { must(ck(read(fd, buf, 8)) == 8); saw(); }
}
static const struct itimerspec LONG = {.it_value.tv_sec = 100};
static void timerfd_gettime_(int r) {
    struct itimerspec left;
    if (r == S) fd = ck(timerfd_create(CLOCK_MONOTONIC, 0));
    if (r == A) dirty(), ck(timerfd_settime(fd, 0, &LONG, 0));
    if (r == B) { later(), ck(timerfd_gettime(fd, &left)), must(left.it_value.tv_sec), saw(); }
}
static void timerfd_settime_(int r) {
    struct itimerspec left;
    if (r == B) { later(), ck(timerfd_settime(fd, 0, &LONG, &left)), must(left.it_value.tv_sec), saw(); } else timerfd_gettime_(r);
}
static void timerfd_taken(int r) { // It had expired, and A took that.
    struct itimerspec soon = {.it_value.tv_nsec = 1};
    struct pollfd one = {.events = POLLIN};
    if (r == S) fd = ck(timerfd_create(CLOCK_MONOTONIC, 0)), ck(timerfd_settime(fd, 0, &soon, 0)), ms(1);
    if (r == A) dirty(), must(ck(read(fd, buf, 8)) == 8);
    if (r == B) { later(), one.fd = fd, must(ck(poll(&one, 1, 0)) == 0), saw(); }
}
static int epoll_add(int events) {
    struct epoll_event event = {.events = events};
    return epoll_ctl(fd, EPOLL_CTL_ADD, p[0], &event);
}
static void epoll_added(int r) {
    if (r == S) ck(pipe(p)), fd = ck(epoll_create1(0));
    if (r == A) dirty(), ck(epoll_add(EPOLLIN));
    if (r == B) { later(); must(epoll_add(EPOLLIN) == -1 && errno == EEXIST); saw(); }
}
static void epoll_waits(int r) {
    struct epoll_event event;
    if (r == S) ck(pipe(p)), ck(write(p[1], "x", 1)), fd = ck(epoll_create1(0));
    if (r == A) dirty(), ck(epoll_add(EPOLLIN));
    if (r == B) must(ck(epoll_wait(fd, &event, 1, 5000 * slowness)) == 1), saw();
}
static void epoll_oneshot(int r) { // A takes the one event that there is.
    struct epoll_event event;
    if (r == S) ck(pipe(p)), ck(write(p[1], "x", 1)), fd = ck(epoll_create1(0)), ck(epoll_add(EPOLLIN | EPOLLONESHOT));
    if (r == A) dirty(), must(ck(epoll_wait(fd, &event, 1, 0)) == 1);
    if (r == B) { later(); must(ck(epoll_wait(fd, &event, 1, 0)) == 0); saw(); }
}
static void signalfd_(int r) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    if (r == S) block(SIGUSR1);
    if (r == A) dirty(), ck(kill(pid_b, SIGUSR1));
    if (r == B) { fd = ck(signalfd(-1, &set, 0)); must(ck(read(fd, buf, sizeof(struct signalfd_siginfo))) > 0); saw(); }
}
static void signalfd_poll(int r) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    if (r == B) must(ready(ck(signalfd(-1, &set, 0)), POLLIN) & POLLIN), saw(); else signalfd_(r);
}
static void mask_of_signalfd(int r) { // A adds the signal that B has sent itself.
    sigset_t set;
    sigemptyset(&set);
    if (r == S) block(SIGUSR1), fd = ck(signalfd(-1, &set, 0));
    sigaddset(&set, SIGUSR1);
    if (r == A) dirty(), ck(signalfd(fd, &set, 0));
    if (r == B) raise(SIGUSR1), must(ready(fd, POLLIN) & POLLIN), saw();
}
static void mask_of_signalfd_read(int r) { // Nobody is woken by that, but whoever looks again finds it.
    if (r != B) mask_of_signalfd(r);
    if (r == S) ck(fcntl(fd, F_SETFL, O_NONBLOCK));
    if (r == B) {
        raise(SIGUSR1);
        while (read(fd, buf, sizeof(struct signalfd_siginfo)) < 0) must(errno == EAGAIN), ms(10);
        saw();
    }
}
static void signal_handler(int r) {
    sigset_t none;
    sigemptyset(&none);
    if (r == S) block(SIGUSR1), take(SIGUSR1);
    if (r == A) dirty(), ck(kill(pid_b, SIGUSR1));
    if (r == B) { sigsuspend(&none); must(handled); saw(); }
}
static void signal_in_handler(int r) { // B computes until the signal comes, without a call.
    if (r == S) take(SIGUSR1);
    if (r == A) dirty(), ck(kill(pid_b, SIGUSR1));
    if (r == B) { while (!handled) {} saw(); }
}
static void signal_sigwait(int r) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    if (r == B) { must(ck(sigwaitinfo(&set, 0)) == SIGUSR1); saw(); } else signal_handler(r);
}
static void signal_pending(int r) {
    sigset_t set;
    if (r == B) { later(); ck(sigpending(&set)); must(sigismember(&set, SIGUSR1)); saw(); } else signal_handler(r);
}
static void signal_queue(int r) {
    if (r == A) dirty(), ck(sigqueue(pid_b, SIGUSR1, (union sigval){1})); else signal_handler(r);
}
static void signal_default(int r) { // A's signal ends a child of B that changed nothing.
    if (r == S) {
        pid_b = ck(fork());
        if (!pid_b) { ck(prctl(PR_SET_PDEATHSIG, SIGKILL)); pause(); _exit(0); }
    }
    if (r == A) dirty(), ck(kill(pid_b, SIGTERM));
    if (r == B) { int status; ck(waitpid(pid_b, &status, 0)); must(WIFSIGNALED(status)); saw(); }
}
static int status;
static void wait_status(int r) {
    if (r == A) dirty(), _exit(7);
    if (r == B) { ck(waitpid(pid_a, &status, 0)); must(WEXITSTATUS(status) == 7); saw(); }
}
static void wait_waitid(int r) {
    siginfo_t info;
    if (r == A) dirty(), _exit(7);
    if (r == B) { ck(waitid(P_PID, pid_a, &info, WEXITED)); must(info.si_status == 7); saw(); }
}
static void wait_nowait(int r) {
    siginfo_t info;
    if (r == A) dirty(), _exit(7);
    if (r == B) { ck(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT)); must(info.si_status == 7); saw(); }
}
static void wait_sigchld(int r) {
    sigset_t none;
    sigemptyset(&none);
    if (r == S) block(SIGCHLD), take(SIGCHLD);
    if (r == A) dirty();
    if (r == B) { sigsuspend(&none); must(handled); saw(); }
}
static void wait_killed(int r) { // By itself, so that nobody else knows.
    if (r == A) dirty(), raise(SIGKILL);
    if (r == B) { ck(waitpid(pid_a, &status, 0)); must(WTERMSIG(status) == SIGKILL); saw(); }
}
static void wait_killed_by_b(int r) { // The end of a dirty child that B itself killed, while it was computing.
    if (r == A) { dirty(); for (;;) {} }
    if (r == B) { later(); ck(kill(pid_a, SIGKILL)); ck(waitpid(pid_a, &status, 0)); must(WTERMSIG(status) == SIGKILL); saw(); }
}
static void wait_stopped(int r) {
    if (r == A) dirty(), raise(SIGSTOP);
    if (r == B) { ck(waitpid(pid_a, &status, WUNTRACED)); must(WIFSTOPPED(status)); saw(); kill(pid_a, SIGKILL); }
}
static void wait_pidfd(int r) {
    if (r == A) dirty();
    if (r == B) { fd = ck(syscall(SYS_pidfd_open, pid_a, 0)); must(ready(fd, POLLIN) & POLLIN); saw(); }
}
static void gone_kill(int r) {
    if (r == S) signal(SIGCHLD, SIG_IGN);
    if (r == A) dirty();
    if (r == B) { later(); must(kill(pid_a, 0) == -1 && errno == ESRCH); saw(); }
}
static void gone_proc(int r) {
    if (r == S) signal(SIGCHLD, SIG_IGN);
    if (r == A) dirty();
    if (r == B) { sprintf(buf, "/proc/%d", pid_a); later(); must(access(buf, F_OK) == -1); saw(); }
}
static void gone_proc_dir(int r) {
    char name[16];
    if (r == S) signal(SIGCHLD, SIG_IGN);
    if (r == A) dirty();
    if (r == B) { sprintf(name, "%d", pid_a); later(); must(!has("/proc", name)); saw(); }
}
static void proc_comm(int r) {
    if (r == A) dirty(), ck(prctl(PR_SET_NAME, "new"));
    if (r == B) { char name[32]; sprintf(name, "/proc/%d/comm", pid_a); later(); ck(read(ck(open(name, O_RDONLY)), buf, 9)); IS_NEW(buf); saw(); }
}
static void priority(int r) { // Both are about their parent.
    if (r == A) dirty(), ck(setpriority(PRIO_PROCESS, getppid(), 5));
    if (r == B) { later(); must(getpriority(PRIO_PROCESS, getppid()) == 5); saw(); }
}
static void limit(int r) {
    struct rlimit first = {1, 1000}, second = {2, 1000}, was;
    if (r == S) ck(setrlimit(RLIMIT_CORE, &second));
    if (r == A) dirty(), ck(prlimit(getppid(), RLIMIT_CORE, &first, 0));
    if (r == B) { later(), ck(prlimit(getppid(), RLIMIT_CORE, &second, &was)), must(was.rlim_cur == 1), saw(); }
}
static void fork_writes(int r) { // A's child has done nothing itself.
    if (r != A) { pipe_data(r); return; }
    dirty();
    if (!ck(fork())) ck(write(p[1], "x", 1)), _exit(0);
}

// Memory.
static void memory_b(void) { later(); must(*word == 1); saw(); }
static void memory_anonymous(int r) {
    if (r == S) word = shared(MAP_ANONYMOUS, -1);
    if (r == A) dirty(), *word = 1;
    if (r == B) memory_b();
}
static void memory_spin(int r) { // B only looks at memory until it sees it.
    if (r == B) { while (!*word) {} saw(); } else memory_anonymous(r);
}
static void memory_memfd(int r) {
    if (r == S) fd = ck(memfd_create("m", 0)), ck(ftruncate(fd, 4096));
    else word = shared(0, fd);
    if (r == A) dirty(), *word = 1;
    if (r == B) memory_b();
}
static void memory_memfd_read(int r) { // B reads it by a call.
    if (r == B) { later(); ck(pread(fd, buf, 1, 0)); must(buf[0] == 1); saw(); } else memory_memfd(r);
}
static void memory_unmapped(int r) { // A's mapping is gone when B reads.
    if (r == S) fd = ck(memfd_create("m", 0)), ck(ftruncate(fd, 4096));
    if (r == A) { int *at = shared(0, fd); dirty(), *at = 1, ck(munmap(at, 4096)); }
    if (r == B) { later(); ck(pread(fd, buf, 1, 0)); must(buf[0] == 1); saw(); }
}
static void memfd_data(int r) {
    if (r == S) fd = ck(memfd_create("m", MFD_ALLOW_SEALING));
    if (r == A) dirty(), ck(pwrite(fd, "new", 3, 0));
    if (r == B) { later(); ck(pread(fd, buf, 3, 0)); IS_NEW(buf); saw(); }
}
static void memfd_size(int r) {
    if (r == A) dirty(), ck(ftruncate(fd, 100));
    else if (r == B) { later(), ck(fstat(fd, &st)), must(st.st_size == 100), saw(); }
    else memfd_data(r);
}
static void memfd_sealed(int r) {
    if (r == A) dirty(), ck(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    else if (r == B) { later(); must(pwrite(fd, "x", 1, 0) == -1 && errno == EPERM); saw(); }
    else memfd_data(r);
}
static void memfd_sealed_twice(int r) {
    if (r == A) dirty(), ck(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
    else if (r == B) { later(); must(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == -1 && errno == EPERM); saw(); }
    else memfd_data(r);
}
static void memory_sysv(int r) {
    if (r == S) {
        int id = ck(shmget(IPC_PRIVATE, 4096, 0600));
        word = shmat(id, 0, 0);
        must(word != (void *)-1), ck(shmctl(id, IPC_RMID, 0));
    }
    if (r == A) dirty(), *word = 1;
    if (r == B) memory_b();
}
static void sysv_open(int r) {
    if (r == A) dirty(), ck(shmget(getppid(), 4096, 0600 | IPC_CREAT));
    if (r == B) { later(); ck(shmctl(ck(shmget(getppid(), 4096, 0)), IPC_RMID, 0)); saw(); }
}
static void memory_futex(int r) { // The word does not change: only the wake tells.
    if (r == S) word = shared(MAP_ANONYMOUS, -1);
    if (r == A) dirty(), ck(syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0));
    if (r == B) ck(syscall(SYS_futex, word, FUTEX_WAIT, 0, 0, 0, 0)), saw();
}
static void futex_waiter(int r) { // Somebody was woken: A, which waits.
    if (r == S) word = shared(MAP_ANONYMOUS, -1);
    if (r == A) dirty(), ck(syscall(SYS_futex, word, FUTEX_WAIT, 0, 0, 0, 0));
    if (r == B) { later(); must(ck(syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0)) == 1); saw(); }
}
static void memory_vm_readv(int r) { // B reads A's private memory.
    static volatile char secret;
    char got = 0;
    struct iovec to = {&got, 1}, from = {(void *)&secret, 1};
    if (r == A) dirty(), secret = 1;
    if (r == B) { later(); ck(process_vm_readv(pid_a, &to, 1, &from, 1, 0)); must(got == 1); saw(); }
}
static void message_sysv(int r) {
    struct { long type; char text; } m = {1, 'x'};
    if (r == S) fd = ck(msgget(IPC_PRIVATE, 0600));
    if (r == A) dirty(), ck(msgsnd(fd, &m, 1, 0));
    if (r == B) { ck(msgrcv(fd, &m, 1, 0, 0)), saw(), msgctl(fd, IPC_RMID, 0); }
}
static void semaphore_sysv(int r) {
    struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
    if (r == S) fd = ck(semget(IPC_PRIVATE, 1, 0600));
    if (r == A) dirty(), ck(semop(fd, &up, 1));
    if (r == B) ck(semop(fd, &down, 1)), saw(), semctl(fd, 0, IPC_RMID);
}
static void message_posix(int r) {
    struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 1};
    char name[32];
    if (r == S) { sprintf(name, "/ch-%d", getpid()); fd = ck(mq_open(name, O_CREAT | O_RDWR, 0600, &attr)); ck(mq_unlink(name)); }
    if (r == A) dirty(), ck(mq_send(fd, "x", 1, 0));
    if (r == B) must(ck(mq_receive(fd, buf, 1, 0)) == 1), saw();
}

// B learns nothing: nothing may be held.
static void free_time(int r) {
    if (r == A) dirty();
    if (r == B) later(), saw();
}
static void free_other_file(int r) {
    if (r == A) dirty();
    if (r == B) { later(); ck(read(ck(open("other", O_RDONLY)), buf, 3)); saw(); }
}
static void free_file_read_too(int r) { // A and B read the same file, each through a descriptor of its own.
    if (r == A) { dirty(); ck(read(ck(open("other", O_RDONLY)), buf, 3)); }
    if (r == B) { fd = ck(open("other", O_RDONLY)), later(); ck(read(fd, buf, 3)); must(lseek(fd, 0, SEEK_CUR) == 3); saw(); }
}
static void free_private_mapping(int r) {
    if (r == A) dirty();
    if (r == B) { char *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, ck(open("other", O_RDONLY)), 0); later(); must(*at == 'o'); saw(); }
}
static void free_pipe_before(int r) { // A writes to the pipe first.
    if (r == S) ck(pipe(p));
    if (r == A) ck(write(p[1], "x", 1)), ms(100), dirty();
    if (r == B) { READ_X(p[0]); later(); saw(); }
}
static void free_eof_before(int r) {
    if (r == S) ck(pipe(p));
    if (r == A) close(p[1]), ms(100), dirty();
    if (r == B) { close(p[1]); READ_END(p[0]); later(); saw(); }
}
static void free_wait_clean(int r) {
    if (r == A) _exit(7);
    if (r == B) { ck(waitpid(pid_a, &status, 0)); saw(); }
}
static void free_timer(int r) {
    struct itimerspec soon = {.it_value.tv_nsec = 400000000};
    if (r == A) dirty();
    if (r == B) { fd = ck(timerfd_create(CLOCK_MONOTONIC, 0)); ck(timerfd_settime(fd, 0, &soon, 0)); ck(read(fd, buf, 8)); saw(); }
}
static void free_umask(int r) {
    if (r == A) dirty(), umask(0);
    if (r == B) later(), umask(0), saw();
}

// The peer is outside: the test itself. It may see the end only after a commit.
static void outside_close(int r) {
    if (r == A) { int f = tcp_connect(SOCK_STREAM); dirty(); close(f); }
}
static void outside_shutdown(int r) {
    if (r == A) { int f = tcp_connect(SOCK_STREAM); dirty(); shutdown(f, SHUT_WR); }
}
static void outside_reset(int r) {
    struct linger now = {1, 0};
    if (r == A) { int f = tcp_connect(SOCK_STREAM); dirty(); ck(setsockopt(f, SOL_SOCKET, SO_LINGER, &now, sizeof now)); close(f); }
}
static void outside_exit(int r) {
    if (r == A) { tcp_connect(SOCK_STREAM); dirty(); }
}
static void outside_killed(int r) {
    if (r == A) { tcp_connect(SOCK_STREAM); dirty(); raise(SIGKILL); }
}
static void outside_killed_used(int r) { // By another process, after the connection was used, with a thread more.
    if (r == A) {
        int f = tcp_connect(SOCK_STREAM);
        ck(write(f, "", 0));
        pid_a = ck(fork());
        if (!pid_a) { dirty(); for (;;) pause(); }
        close(f), ms(200), ck(kill(pid_a, SIGKILL)), ck(waitpid(pid_a, &status, 0));
    }
}
static void outside_terminated(int r) {
    if (r == A) { tcp_connect(SOCK_STREAM); dirty(); raise(SIGTERM); }
}
static void outside_exec_killed(int r) {
    if (r == A) { tcp_connect(SOCK_STREAM); dirty(); ck(execl("/bin/sh", "sh", "-c", "kill -9 $$", (char *)0)); }
}
static void outside_fifo_open(int r) { // That the FIFO is opened tells, too: B's peer waits for that, and then for the end.
    if (r == A) { dirty(); ck(open("fifo", O_WRONLY)); }
}
static void outside_fifo_end(int r) {
    if (r == A) { ck(open("fifo", O_WRONLY)); dirty(); }
}
static void outside_fifo_reused(int r) { // At its number there was a file before.
    if (r != A) return;
    dirty();
    int f = ck(open("other", O_RDONLY));
    READ_X(f), ck(close(f));
    must(open("fifo", O_WRONLY) == f);
    dirty();
}
static void outside_fifo_exec(int r) {
    if (r == A) { ck(open("fifo", O_WRONLY | O_CLOEXEC)); dirty(); ck(execl("/bin/sleep", "sleep", "1", (char *)0)); }
}
static void outside_fifo_killed(int r) {
    if (r == A) { ck(write(ck(open("fifo", O_WRONLY)), "", 0)); dirty(); raise(SIGKILL); }
}
static void outside_dup2(int r) {
    if (r == A) { int f = tcp_connect(SOCK_STREAM); dirty(); ck(dup2(2, f)); }
}
static void outside_cloexec(int r) {
    if (r == A) { int f = tcp_connect(SOCK_STREAM); ck(fcntl(f, F_SETFD, FD_CLOEXEC)); dirty(); ck(execl("/bin/sleep", "sleep", "1", (char *)0)); }
}
static void outside_exec_input(int r) { // The standard input is closed by exec.
    if (r != A) return;
    int f = tcp_connect(SOCK_STREAM);
    ck(dup2(f, 0)), ck(close(f)), ck(fcntl(0, F_SETFD, FD_CLOEXEC)), dirty();
    ck(execl("/bin/sleep", "sleep", "1", (char *)0));
}
static int received(int does_connect(int)) { // A has it from a child, which has ended.
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {buf, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    message.msg_control = control, message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int f;
    ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    if (!ck(fork())) {
        f = does_connect(SOCK_STREAM);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &f, sizeof f), ck(sendmsg(p[1], &message, 0)), _exit(0);
    }
    ck(recvmsg(p[0], &message, 0)), memcpy(&f, CMSG_DATA(header), sizeof f), ck(wait(0));
    return f;
}
static void outside_received_exit(int r) { if (r == A) received(tcp_connect), dirty(); }
static void outside_received_killed(int r) { if (r == A) received(tcp_connect), dirty(), raise(SIGKILL); }
static void outside_received_close(int r) {
    if (r == A) { int f = received(tcp_connect); dirty(), ck(close(f)); }
}
static void outside_received_range(int r) {
    if (r == A) { int f = received(tcp_connect); dirty(), ck(syscall(SYS_close_range, f, f, 0)); }
}
static void outside_connect(int r) {
    if (r == A) { dirty(); tcp_connect(SOCK_STREAM); }
}

CASES(channels) = {
    CH(pipe_data), CH(pipe_eof_close), EX(pipe_eof_exit), CH(pipe_poll_hup), EX(pipe_poll_hup_exit),
    CH(pipe_select_hup),
    CH(pipe_epoll_hup), CH(pipe_poll_in), CH(pipe_fionread), CH(pipe_room), CH(pipe_room_by_name),
    CH(pipe_room_spliced), CH(pipe_room_poll), CH(pipe_room_size), CH(pipe_size), CH(pipe_shrink), CH(pipe_epipe),
    CH(pipe_splice), CH(pipe_splice_b),
    CH(pipe_splice_out), CH(pipe_tee), CH(pipe_tee_out), CH(pipe_vmsplice), CH(pipe_sendfile), CH(fifo_data),
    CH(fifo_eof),
    CH(fifo_open), CH(fifo_room), CH(fifo_fionread), CH(fifo_poll_in), CH(fifo_size), CH(fifo_shrink), CH(pty_data),
    CH(unix_data), CH(unix_eof), EX(unix_eof_exit), CH(unix_shutdown), CH(unix_poll_rdhup),
    CH(unix_datagram), CH(unix_seqpacket), CH(unix_recvmsg), CH(unix_room), CH(unix_accept), CH(unix_peek),
    CH(unix_outq), CH(unix_bound), CH(scm_rights), CH(tcp_data), CH(tcp_fin),
    EX(tcp_fin_exit), CH(tcp_accept), CH(udp_data), CH(tcp_bind_busy), CH(tcp_room), CH(tcp_peek), CH(tcp_poll_in), CH(tcp_shutdown), CH(tcp_not_connected), CH(tcp_option), CH(file_read), CH(file_read_open), CH(file_mmap_private),
    CH(file_mmap_private_before), CH(file_mmap_private_fork), CH(file_mmap_private_store), CH(file_mmap_shared),
    CH(file_mmap_shared_after), CH(file_store), EX(file_store_exit),
    CH(file_store_mmap), CH(file_store_mmap_after), CH(file_sendfile), CH(file_splice), CH(file_copy_range),
    CH(file_copied_by_a), CH(tmpfs_file),
    CH(pipe_room_to_file), CH(unix_room_message),
    CH(tmpfs_emptied), CH(tmpfs_truncated), CH(tmpfs_mode),
    CH(fifo_mode_by_descriptor), CH(fifo_mode_seen_by_descriptor), CH(exec_first_line), CH(stored_told_in_memory),
    PA(stored_and_killed), PA(stored_and_faulted), CH(links_by_descriptor), CH(offset_sent), CH(offset_copied),
    CH(lseek_shared), CH(offset_read), CH(offset_spliced), CH(offset_passed), CH(flags_shared), CH(flags_ioctl),
    CH(flags_eagain), CH(append_offset), CH(stat_size), CH(stat_mtime),
    CH(stat_stored), CH(statx_stored), CH(seek_end), CH(stat_mode), CH(stat_links),
    CH(name_readdir), CH(name_open), CH(name_mkdir), CH(name_eexist), CH(name_taken), CH(name_directory),
    CH(directory_mode), CH(directory_xattr), CH(name_enoent), CH(name_getcwd), CH(name_proc_fd),
    CH(name_readlink), CH(name_tmpfile), CH(name_dangling), CH(xattr_), CH(xattr_taken), CH(inotify_),
    CH(inotify_name), CH(inotify_second), CH(exec_binary),
    CH(exec_script), CH(exec_interpreter), CH(flock_), EX(flock_exit), CH(flock_busy), CH(fcntl_unlock),
    CH(fcntl_close),
    EX(fcntl_exit), CH(fcntl_getlk), CH(ofd_close), CH(eventfd_), CH(eventfd_poll), CH(eventfd_room), CH(timerfd_by_a),
    CH(timerfd_gettime_), CH(timerfd_settime_), CH(timerfd_taken), CH(epoll_added), CH(epoll_waits), CH(epoll_oneshot),
    CH(signalfd_), CH(signalfd_poll), CH(mask_of_signalfd), CH(mask_of_signalfd_read),
    CH(signal_handler), CH(signal_in_handler), CH(signal_sigwait), CH(signal_pending), CH(signal_queue),
    {"signal_default", signal_default, PARENT},
    PA(wait_status), PA(wait_waitid), PA(wait_nowait), PA(wait_sigchld), PA(wait_killed), PA(wait_killed_by_b), PA(wait_stopped),
    PA(wait_pidfd), EX(gone_kill), EX(gone_proc), EX(gone_proc_dir), CH(proc_comm), CH(priority), CH(limit), CH(fork_writes), CH(memory_anonymous), CH(memory_spin),
    CH(memory_memfd), CH(memory_memfd_read), CH(memory_unmapped), CH(memfd_data), CH(memfd_size), CH(memfd_sealed),
    CH(memfd_sealed_twice), CH(memory_sysv), CH(sysv_open), CH(memory_futex), CH(futex_waiter), CH(memory_vm_readv),
    CH(message_sysv),
    CH(semaphore_sysv), CH(message_posix), FR(free_time), FR(free_other_file), FR(free_pipe_before),
    FR(free_eof_before),
    {"free_wait_clean", free_wait_clean, FREE | PARENT}, FR(free_timer), FR(free_umask), FR(free_file_read_too), FR(free_private_mapping), OU(outside_close),
    OU(outside_shutdown), OU(outside_reset), {"outside_exit", outside_exit, OUTSIDE | EXITS}, {"outside_killed", outside_killed, OUTSIDE | EXITS},
    {"outside_killed_used", outside_killed_used, OUTSIDE | EXITS}, {"outside_terminated", outside_terminated, OUTSIDE | EXITS},
    {"outside_fifo_open", outside_fifo_open, OUTSIDE | EXITS}, {"outside_fifo_end", outside_fifo_end, OUTSIDE | EXITS},
    {"outside_fifo_reused", outside_fifo_reused, OUTSIDE | EXITS},
    {"outside_fifo_exec", outside_fifo_exec, OUTSIDE | EXITS}, {"outside_fifo_killed", outside_fifo_killed, OUTSIDE | EXITS},
    {"outside_exec_killed", outside_exec_killed, OUTSIDE | EXITS}, OU(outside_dup2), OU(outside_cloexec),
    OU(outside_exec_input), {"outside_received_exit", outside_received_exit, OUTSIDE | EXITS},
    {"outside_received_killed", outside_received_killed, OUTSIDE | EXITS},
    OU(outside_received_close), OU(outside_received_range), OU(outside_connect),
};

extern const struct channel __start_cases[], __stop_cases[];

int port, slowness = 1;
pid_t pid_a, pid_b;
static const char *guess;

static void start_a(const struct channel *channel) {
    pid_a = ck(fork());
    if (pid_a) return;
    if (guess) ck(prctl(PR_SET_PDEATHSIG, SIGKILL));
    ms(150);
    if (guess && has("/etc", "passwd") != !strcmp(guess, "right")) for (;;) pause();
    channel->run(A);
    if (!(channel->flags & EXITS)) ms(800);
    _exit(0);
}
static void start_b(const struct channel *channel) {
    pid_b = ck(fork());
    if (pid_b) return;
    if (guess) ck(prctl(PR_SET_PDEATHSIG, SIGKILL));
    ms(50), channel->run(B), _exit(0);
}
static void end(void) { // There are no statistics while a process of the world goes on.
    while (wait(0) > 0 || errno == EINTR) {}
    _exit(0);
}
static void play(const struct channel *channel) {
    signal(SIGPIPE, SIG_IGN);
    channel->run(S);
    if (guess && !strcmp(guess, "wrong")) alarm(2 * slowness); // B may wait for ever, A does; they end with their parent.
    if (channel->flags & PARENT) {
        start_a(channel), channel->run(B);
        end();
    }
    if (channel->flags & OUTSIDE) {
        start_a(channel), ms(700), dirty(); // What this changes takes another commit, at the end at the latest.
        end();
    }
    if (!strncmp(channel->name, "signal", 6)) start_b(channel), start_a(channel); // A has to know B;
    else start_a(channel), start_b(channel); // or B, A.
    for (int f = 3; f < 20; f++) close(f);
    waitpid(pid_b, &status, 0);
    if (guess) _exit(0);
    put("late", "", 0600); // Takes another commit: two, if what A did was committed before B went on.
    end();
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--say")) return saw(), 0;
    if (!strcmp(name, "--look")) {
        later(), ck(readlink(argv[2], buf, sizeof buf - 1));
        return must(strstr(buf, "/sub")), saw(), 0;
    }
    if (argc > 2) port = atoi(argv[2]);
    guess = getenv("CHANNELS_GUESS");
    if (getenv("CHANNELS_SLOWNESS")) slowness = atoi(getenv("CHANNELS_SLOWNESS"));
    if (!strcmp(name, "--umask")) return ms(600), must(umask(0) == 077), saw(), 0;
    for (const struct channel *one = __start_cases; one < __stop_cases; one++) {
        int flags = one->flags;
        const char *kind = flags & FREE ? "free" : flags & WATCHED ? "watched" : flags & OUTSIDE ? "outside" : "held";
        if (!strcmp(name, "--list")) printf("%s %s\n", one->name, kind);
        else if (!strcmp(name, "--watch") && !strcmp(argv[2], one->name)) return one->run(B), 0;
        else if (!strcmp(name, one->name)) play(one);
    }
    return strcmp(name, "--list") ? 2 : 0;
}
