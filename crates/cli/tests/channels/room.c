// What somebody outside learns because there is less than before: A takes something out of what both have, or its end
// gives back what A took. B is that somebody, and runs natively beside the world.
#include "harness.h"

static void ready_now(void) { printf("ready\n"), fflush(stdout); }
static void until_ready(int f) {
    struct pollfd one = {f, POLLOUT, 0};
    must(ck(poll(&one, 1, -1)) == 1 && one.revents & POLLOUT), saw();
}
static void fill(int f) { // Until it takes no more, which A may do late.
    ck(fcntl(f, F_SETFL, ck(fcntl(f, F_GETFL)) | O_NONBLOCK));
    for (int idle = 0; idle < 10;) if (write(f, buf, 4096) <= 0) must(errno == EAGAIN), idle++, ms(5); else idle = 0;
}

// A pipe with a name.
static void fill_fifo(void) { fd = ck(open("fifo", O_RDWR)), fill(fd), ready_now(), until_ready(fd); }
static void room_fifo(int r) {
    if (r == A) fd = ck(open("fifo", O_RDONLY)), dirty(), must(ck(read(fd, buf, sizeof buf)) > 0);
    if (r == B) fill_fifo();
}
static void room_fifo_splice(int r) {
    int none = ck(open("/dev/null", O_WRONLY));
    if (r == A) fd = ck(open("fifo", O_RDONLY)), dirty(), must(ck(splice(fd, 0, none, 0, sizeof buf, 0)) > 0);
    if (r == B) fill_fifo();
}
static void room_fifo_vmsplice(int r) { // From a pipe into memory.
    struct iovec all = {buf, sizeof buf};
    if (r == A) fd = ck(open("fifo", O_RDONLY)), dirty(), must(ck(vmsplice(fd, &all, 1, 0)) > 0);
    if (r == B) fill_fifo();
}

// A connection: B fills it before A takes anything.
static struct sockaddr_un common_name(void) { // No name in a file system: to make one there is a change.
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct stat folder;
    return ck(stat(".", &folder)), sprintf(name.sun_path + 1, "room-%lu", folder.st_ino), name;
}
static int listen_unix(void) {
    struct sockaddr_un name = common_name();
    int f = ck(socket(AF_UNIX, SOCK_STREAM, 0));
    return ck(bind(f, (void *)&name, sizeof name)), ck(listen(f, 0)), f;
}
static int connect_unix(int flags) {
    struct sockaddr_un name = common_name();
    int f = ck(socket(AF_UNIX, SOCK_STREAM | flags, 0));
    return connect(f, (void *)&name, sizeof name) ? close(f), -1 : f;
}
static void take_all(int f) { while (recv(f, buf, sizeof buf, MSG_DONTWAIT) > 0) ms(1); }
static void fill_and_wait(int listener) { ready_now(), fd = ck(accept(listener, 0, 0)), fill(fd), until_ready(fd); }
static void room_unix(int r) {
    if (r == A) fd = ck(connect_unix(0)), ms(200), dirty(), take_all(fd);
    if (r == B) fill_and_wait(listen_unix());
}
static int listen_tcp(void) { // Port in "port".
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    int f = ck(socket(AF_INET, SOCK_STREAM, 0)), file = ck(open("port", O_WRONLY | O_CREAT, 0600));
    ck(bind(f, (void *)&name, length)), ck(listen(f, 1)), ck(getsockname(f, (void *)&name, &length));
    return ck(write(file, &name.sin_port, 2)), close(file), f;
}
static void room_tcp(int r) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (r == A) {
        int file = ck(open("port", O_RDONLY));
        must(ck(read(file, &name.sin_port, 2)) == 2), close(file);
        fd = ck(socket(AF_INET, SOCK_STREAM, 0)), ck(connect(fd, (void *)&name, sizeof name));
        ms(300), dirty(), take_all(fd);
    }
    if (r == B) fill_and_wait(listen_tcp());
}
static void room_datagrams(int r) {
    struct sockaddr_un name = common_name();
    if (r == A) {
        fd = ck(socket(AF_UNIX, SOCK_DGRAM, 0)), ck(bind(fd, (void *)&name, sizeof name)), ms(300);
        dirty(), must(ck(recv(fd, buf, 1, 0)) == 1);
    }
    if (r != B) return;
    fd = ck(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)), ready_now();
    while (connect(fd, (void *)&name, sizeof name)) ms(1);
    while (write(fd, "x", 1) == 1) {}
    must(errno == EAGAIN), until_ready(fd);
}
static void room_backlog(int r) { // Who wants to connect waits for room in the queue.
    if (r == A) fd = listen_unix(), ms(300), dirty(), ck(accept(fd, 0, 0));
    if (r != B) return;
    ready_now();
    while (connect_unix(SOCK_NONBLOCK) == -1) must(errno == ECONNREFUSED), ms(1);
    while (connect_unix(SOCK_NONBLOCK) != -1) {}
    while (connect_unix(SOCK_NONBLOCK) == -1) must(errno == EAGAIN), ms(1);
    saw();
}

// Semaphores that the end of a process gives back.
static void take_told(void) {
    struct sembuf down = {0, -1, SEM_UNDO};
    int file = ck(open("semaphore", O_RDONLY)), id;
    must(ck(read(file, &id, sizeof id)) == sizeof id), ck(semop(id, &down, 1)), ms(100), dirty();
}
static void until_given_back(void) {
    int file = ck(open("semaphore", O_WRONLY | O_CREAT, 0600)), id = ck(semget(IPC_PRIVATE, 1, 0600));
    ck(semctl(id, 0, SETVAL, 1)), must(ck(write(file, &id, sizeof id)) == sizeof id), ready_now();
    while (semctl(id, 0, GETVAL)) ms(1);
    while (!semctl(id, 0, GETVAL)) ms(1);
    ck(semctl(id, 0, IPC_RMID)), saw();
}
static void room_semaphore_exit(int r) {
    if (r == A) take_told();
    if (r == B) until_given_back();
}
static void room_semaphore_killed(int r) {
    if (r == A) take_told(), raise(SIGKILL);
    if (r == B) until_given_back();
}
static void room_semaphore_program(int r) { // What is given back lives on over exec.
    if (r == A) take_told(), ck(execl("/bin/sh", "sh", "-c", "echo new > data", (char *)0));
    if (r == B) until_given_back();
}

#define WA(name) {#name, name, OUTSIDE | EXITS | WATCHED}
#define WL(name) {#name, name, OUTSIDE | WATCHED}
CASES(room) = {
    WL(room_fifo), WL(room_fifo_splice), WL(room_fifo_vmsplice), WL(room_unix), WL(room_tcp), WL(room_datagrams),
    WL(room_backlog), WA(room_semaphore_exit), WA(room_semaphore_killed), WA(room_semaphore_program),
};
