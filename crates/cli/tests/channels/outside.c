// What somebody outside learns without a message to him: locks, options of sockets, connections that are refused. B is
// that somebody; it runs natively beside the world.
#include "harness.h"

// B says when it is ready: only then the world begins.
static void ready_now(void) { printf("ready\n"), fflush(stdout); }

// Locks on what is no file of ours: a FIFO.
static int fifo(void) { return ck(open("fifo", O_RDWR)); }
static void until_locked(int f) {
    ready_now();
    while (!flock(f, LOCK_EX | LOCK_NB)) ck(flock(f, LOCK_UN)), ms(1);
    must(errno == EWOULDBLOCK), saw();
}
static void until_unlocked(int f) {
    ready_now();
    while (!flock(f, LOCK_EX | LOCK_NB)) ck(flock(f, LOCK_UN)), ms(1);
    while (flock(f, LOCK_EX | LOCK_NB)) ms(1);
    saw();
}
static void outside_lock_flock(int r) {
    if (r == A) fd = fifo(), dirty(), ck(flock(fd, LOCK_EX));
    if (r == B) until_locked(fifo());
}
static void outside_lock_record(int r) {
    struct flock whole = {.l_type = F_WRLCK};
    if (r == A) fd = fifo(), dirty(), ck(fcntl(fd, F_SETLK, &whole));
    if (r != B) return;
    fd = fifo(), ready_now();
    do ms(1), whole.l_type = F_WRLCK, ck(fcntl(fd, F_GETLK, &whole)); while (whole.l_type == F_UNLCK);
    saw();
}
static void outside_lock_open_file(int r) {
    struct flock whole = {.l_type = F_WRLCK};
    if (r == A) fd = fifo(), dirty(), ck(fcntl(fd, F_OFD_SETLK, &whole));
    if (r == B) outside_lock_record(B);
}
static void outside_lock_given_up(int r) {
    if (r == A) fd = fifo(), ck(flock(fd, LOCK_EX)), ms(100), dirty(), ck(flock(fd, LOCK_UN));
    if (r == B) until_unlocked(fifo());
}
static pid_t pid_of_b(void) {
    pid_t pid;
    int f = ck(open("pid", O_RDONLY));
    must(ck(read(f, &pid, sizeof pid)) == sizeof pid);
    return close(f), pid;
}
static void tell_pid(void) {
    pid_t pid = getpid();
    int f = ck(open("pid", O_WRONLY | O_CREAT, 0600));
    must(ck(write(f, &pid, sizeof pid)) == sizeof pid), close(f);
}
// And on one that belongs to B's process: the kernel shows it to everybody.
static int foreign(void) {
    char name[32];
    sprintf(name, "/proc/%d/status", pid_of_b());
    return ck(open(name, O_RDONLY));
}
static void until_foreign_unlocked(void) {
    tell_pid(), until_unlocked(foreign());
}
static void outside_lock_closed(int r) {
    if (r == A) fd = foreign(), ck(flock(fd, LOCK_EX)), ms(100), dirty(), close(fd);
    if (r == B) until_foreign_unlocked();
}
static void outside_lock_exit(int r) {
    if (r == A) fd = foreign(), ck(flock(fd, LOCK_EX)), ms(100), dirty();
    if (r == B) until_foreign_unlocked();
}
static void outside_lock_killed(int r) {
    if (r == A) fd = foreign(), ck(flock(fd, LOCK_EX)), ms(100), dirty(), raise(SIGKILL);
    if (r == B) until_foreign_unlocked();
}
static void outside_lock_program(int r) { // The lock lives on over exec, and ends with the program.
    const char *work = "sleep 0.1; echo new > data";
    if (r == A) fd = foreign(), ck(flock(fd, LOCK_EX)), ck(execl("/bin/sh", "sh", "-c", work, (char *)0));
    if (r == B) until_foreign_unlocked();
}

// B has a lease: who opens the file to change it waits for B, and nobody else does. It gives it up when it has seen
// what another process inside shows after a commit.
static void leased(int r, void (*change)(void)) {
    if (r == A) {
        if (!ck(fork())) {
            ck(prctl(PR_SET_PDEATHSIG, SIGKILL)), fd = fifo(), ms(200), dirty(), ck(write(fd, "x", 1));
            for (;;) pause(); // Its end would be a signal to A.
        }
        change();
    }
    if (r != B) return;
    int seen = 0, file = ck(open("other", O_RDWR));
    fd = ck(open("fifo", O_RDONLY | O_NONBLOCK)), signal(SIGIO, SIG_IGN);
    ck(fcntl(file, F_SETLEASE, F_WRLCK)), ready_now();
    for (int n = 0; n < 10000 && !(seen = read(fd, buf, 1) == 1); n++) usleep(1000);
    must(seen), ck(fcntl(file, F_SETLEASE, F_UNLCK)), saw();
}
static void open_emptied(void) { ck(open("other", O_WRONLY | O_TRUNC)); }
static void open_made(void) { ck(creat("other", 0600)); }
static void open_how(void) {
    unsigned long how[3] = {O_WRONLY | O_CREAT, 0600, 0};
    fd = ck(syscall(SYS_openat2, AT_FDCWD, "other", how, sizeof how));
    must(ck(fcntl(fd, F_GETFL)) == (O_WRONLY | 0100000));
}
static void shorten(void) {
    struct stat one;
    ck(truncate("other", 2)), ck(stat("other", &one)), must(one.st_size == 2);
}
static void outside_lease_open(int r) { leased(r, open_emptied); }
static void outside_lease_creat(int r) { leased(r, open_made); }
static void outside_lease_openat2(int r) { leased(r, open_how); }
static void outside_lease_truncate(int r) { leased(r, shorten); }

// Options of sockets.
#define GROUP "239.255.71.3"
static int is_member(void) { // Of a group of receivers, as the machine's list says: its address as a number.
    char line[256], wanted[16];
    int found = 0;
    FILE *list = fopen("/proc/net/igmp", "r");
    must(list), sprintf(wanted, "%08X", (unsigned)inet_addr(GROUP));
    while (fgets(line, sizeof line, list)) found |= !!strstr(line, wanted);
    fclose(list);
    return found;
}
static void join(int f, int option) {
    struct ip_mreq group = {.imr_multiaddr.s_addr = inet_addr(GROUP), .imr_interface.s_addr = htonl(INADDR_LOOPBACK)};
    ck(setsockopt(f, IPPROTO_IP, option, &group, sizeof group));
}
static void outside_group_joined(int r) {
    if (r == A) fd = ck(socket(AF_INET, SOCK_DGRAM, 0)), dirty(), join(fd, IP_ADD_MEMBERSHIP);
    if (r == B) { for (ready_now(); !is_member();) ms(1); saw(); }
}
static void outside_group_left(int r) {
    if (r == A) {
        fd = ck(socket(AF_INET, SOCK_DGRAM, 0)), join(fd, IP_ADD_MEMBERSHIP);
        ms(200), dirty(), join(fd, IP_DROP_MEMBERSHIP);
    }
    if (r == B) { for (ready_now(); !is_member();) ms(1); while (is_member()) ms(1); saw(); }
}
static struct sockaddr_in told_port(void) { // The port that B has chosen.
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int f = ck(open("port", O_RDONLY));
    must(ck(read(f, &name.sin_port, 2)) == 2), close(f);
    return name;
}
static int choose_port(int type) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    int f = ck(socket(AF_INET, type, 0)), file = ck(open("port", O_WRONLY | O_CREAT, 0600));
    ck(bind(f, (void *)&name, length)), ck(getsockname(f, (void *)&name, &length));
    must(ck(write(file, &name.sin_port, 2)) == 2), close(file);
    return f;
}
static void bind_shared(int f) {
    struct sockaddr_in name = told_port();
    ck(bind(f, (void *)&name, sizeof name));
}
static const int on = 1;
static void outside_port_shared(int r) { // Both have to agree to it.
    if (r == A) {
        fd = ck(socket(AF_INET, SOCK_DGRAM, 0)), bind_shared(fd);
        ms(100), dirty(), ck(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    }
    if (r != B) return;
    close(choose_port(SOCK_DGRAM)), ready_now();
    struct sockaddr_in name = told_port();
    for (int taken = 0;; ms(1)) {
        int f = ck(socket(AF_INET, SOCK_DGRAM, 0));
        ck(setsockopt(f, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
        int result = bind(f, (void *)&name, sizeof name);
        taken |= result == -1, close(f);
        if (taken && !result) break;
    }
    saw();
}
static int take_connection(int listener) {
    ck(listen(listener, 5)), ready_now();
    return ck(accept(listener, 0, 0));
}
static int connect_told(int type) {
    struct sockaddr_in name = told_port();
    int f = ck(socket(AF_INET, type, 0));
    ck(connect(f, (void *)&name, sizeof name));
    return f;
}
static void outside_corked(int r) { // What waits for more is sent when that is taken back; by itself after 200 ms.
    int no = 0;
    if (r == A) {
        fd = connect_told(SOCK_STREAM), ck(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
        ck(write(fd, "x", 1)), dirty(), ck(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &no, sizeof no));
    }
    if (r == B) must(ck(read(take_connection(choose_port(SOCK_STREAM)), buf, 1)) == 1), saw();
}
static void outside_corked_datagram(int r) {
    int no = 0;
    if (r == A) {
        fd = connect_told(SOCK_DGRAM), ck(setsockopt(fd, IPPROTO_UDP, 1, &on, sizeof on)), ck(write(fd, "x", 1));
        dirty(), ck(setsockopt(fd, IPPROTO_UDP, 1, &no, sizeof no));
    }
    if (r == B) fd = choose_port(SOCK_DGRAM), ready_now(), must(ck(read(fd, buf, 1)) == 1), saw();
}

// Who connects is refused once nobody listens any more.
static void listen_told(void) {
    struct sockaddr_in name = told_port();
    fd = ck(socket(AF_INET, SOCK_STREAM, 0)), ck(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    ck(bind(fd, (void *)&name, sizeof name)), ck(listen(fd, 1000)), ms(100);
}
static void until_refused(void) {
    close(choose_port(SOCK_STREAM)), ready_now();
    struct sockaddr_in name = told_port();
    for (int listened = 0;; ms(2)) {
        int f = ck(socket(AF_INET, SOCK_STREAM, 0)), result = connect(f, (void *)&name, sizeof name);
        close(f), listened |= !result;
        if (result && listened) break;
    }
    saw();
}
static void outside_refused(int r) {
    if (r == A) listen_told(), dirty(), close(fd);
    if (r == B) until_refused();
}
static void outside_refused_exit(int r) {
    if (r == A) listen_told(), dirty();
    if (r == B) until_refused();
}
static void outside_refused_killed(int r) {
    if (r == A) listen_told(), dirty(), raise(SIGKILL);
    if (r == B) until_refused();
}

// Memory that is sent without being copied: what is stored there before it has left is no part of it.
#define MSG_ZEROCOPY_ 0x4000000
static void fill(int f) { // Until neither side takes more: what is sent then waits here.
    memset(buf, 'f', sizeof buf);
    for (int idle = 0; idle < 20;) if (send(f, buf, sizeof buf, MSG_DONTWAIT) <= 0) idle++, ms(10); else idle = 0;
}
static void page_not_copied(int r) {
    static char page[4096] __attribute__((aligned(4096)));
    if (r == S) {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof name;
        int listener = ck(socket(AF_INET, SOCK_STREAM, 0)), room = 4096, more = 1 << 20;
        ck(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room));
        ck(bind(listener, (void *)&name, length)), ck(listen(listener, 1));
        ck(getsockname(listener, (void *)&name, &length));
        p[1] = ck(socket(AF_INET, SOCK_STREAM, 0)), ck(setsockopt(p[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room));
        ck(connect(p[1], (void *)&name, sizeof name)), p[0] = ck(accept(listener, 0, 0)), close(listener);
        fill(p[1]), ck(setsockopt(p[1], SOL_SOCKET, SO_SNDBUF, &more, sizeof more));
        setsockopt(p[1], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on); // Or not.
    }
    if (r == A) {
        memset(page, 'o', sizeof page), must(ck(send(p[1], page, sizeof page, MSG_ZEROCOPY_)) == sizeof page);
        dirty(), memset(page, 'X', sizeof page);
    }
    if (r != B) return;
    later();
    for (int left = sizeof page; left;) {
        ssize_t n = ck(read(p[0], buf, sizeof buf));
        must(n > 0);
        for (ssize_t at = 0; at < n; at++) must(buf[at] != 'X'), left -= buf[at] == 'o';
    }
    saw();
}

// Two readers of one pipe: what one of them passes on to outside may be what came in after the other took something.
static int full_fifo(void) {
    int f = ck(open("fifo", O_WRONLY)), flags = ck(fcntl(f, F_GETFL));
    ck(fcntl(f, F_SETFL, flags | O_NONBLOCK));
    memset(buf, 'f', sizeof buf);
    while (write(f, buf, 4096) > 0) {}
    return ck(fcntl(f, F_SETFL, flags)), f;
}
static void outside_spliced_by_two(int r) {
    if (r == S) ck(pipe(p)), ck(write(p[1], "a", 1));
    if (r == A) {
        fd = full_fifo();
        if (!ck(fork())) must(ck(splice(p[0], 0, fd, 0, 1, 0)) == 1), ms(900), _exit(0); // It waits for room.
        ms(100), must(ck(read(p[0], buf, 1)) == 1), dirty(), ck(write(p[1], "x", 1));
    }
    if (r != B) return;
    fd = ck(open("fifo", O_RDONLY | O_NONBLOCK)), ready_now(), ms(500);
    for (*buf = 'f'; *buf == 'f'; ) if (read(fd, buf, 1) <= 0) ms(1);
    must(*buf == 'x'), saw();
}

// Signals that the kernel sends to the owner of an open file: A has made B the owner of a pipe inside.
static void signalled_by(int how) {
    pid_t pid = pid_of_b();
    struct f_owner_ex owner = {F_OWNER_PID, pid};
    ck(how == 2 ? socketpair(AF_UNIX, SOCK_STREAM, 0, p) : pipe(p)); // Only sockets know the request.
    if (how == 0) ck(fcntl(p[0], F_SETOWN, pid));
    if (how == 1) ck(fcntl(p[0], F_SETOWN_EX, &owner));
    if (how == 2) ck(ioctl(p[0], FIOSETOWN, &pid));
    ck(fcntl(p[0], F_SETFL, O_ASYNC)), dirty(), ck(write(p[1], "x", 1));
}
static void until_signalled(void) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGIO), ck(sigprocmask(SIG_BLOCK, &set, 0));
    tell_pid(), ready_now();
    must(sigwaitinfo(&set, 0) == SIGIO), saw();
}
static void outside_owner(int r) {
    if (r == A) signalled_by(0);
    if (r == B) until_signalled();
}
static void outside_owner_structure(int r) {
    if (r == A) signalled_by(1);
    if (r == B) until_signalled();
}
static void outside_owner_request(int r) {
    if (r == A) signalled_by(2);
    if (r == B) until_signalled();
}
// A counter that A has taken out of B.
static void outside_counter(int r) {
    enum { NUMBER = 50, PIDFD_OPEN = 434, PIDFD_GETFD = 438 };
    unsigned long one = 1;
    if (r == A) {
        int b = ck(syscall(PIDFD_OPEN, pid_of_b(), 0));
        fd = ck(syscall(PIDFD_GETFD, b, NUMBER, 0));
        dirty(), ck(write(fd, &one, sizeof one));
    }
    if (r != B) return;
    ck(dup2(ck(eventfd(0, 0)), NUMBER)), tell_pid(), ready_now();
    must(ck(read(NUMBER, &one, sizeof one)) == sizeof one), saw();
}

// The working directory stays over an exec.
static void proc_relative_after_exec(int r) {
    char name[32];
    if (r == A) dirty(), ck(chdir("sub"));
    if (r != B) return;
    sprintf(name, "%d/cwd", pid_a), ck(chdir("/proc"));
    ck(execl("/proc/self/exe", "channels", "--look", name, (char *)0));
}

#define WA(name) {#name, name, OUTSIDE | EXITS | WATCHED}
#define WL(name) {#name, name, OUTSIDE | WATCHED}
CASES(outside) = {
    WL(outside_lock_flock), WL(outside_lock_record), WL(outside_lock_open_file), WL(outside_lock_given_up),
    WL(outside_lock_closed), WA(outside_lock_exit), WA(outside_lock_killed), WA(outside_lock_program),
    WA(outside_lease_open), WA(outside_lease_creat), WA(outside_lease_openat2), WA(outside_lease_truncate),
    WL(outside_group_joined), WL(outside_group_left), WL(outside_port_shared),
    WL(outside_corked), WL(outside_corked_datagram), WL(outside_refused), WA(outside_refused_exit),
    WA(outside_refused_killed), WL(outside_spliced_by_two), WL(outside_owner),
    WL(outside_owner_structure), WL(outside_owner_request), WL(outside_counter),
    FR(page_not_copied), CH(proc_relative_after_exec),
};
