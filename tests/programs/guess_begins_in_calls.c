/* One thread in each call that waits, or that a signal would end with a part, while another process makes first
   guesses: each time all threads are stopped, so that they ask from then on. Each call returns what it returns without
   that, and waits as long. (Natively nobody guesses.) */
#include "check.h"
#include <pty.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/un.h>
#include <termios.h>
enum { SPECULATE = 0x5bed, BEGIN = 1, COMMIT = 2, MUCH = 1 << 20, PART = 4096, WAIT_MS = 300, LATE_MS = 1200 };

static char *much(void) {
    void *room = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(room != MAP_FAILED);
    return room;
}

/* Reads slowly until the end comes. */
static void *drain(void *descriptor) {
    char part[PART];
    long all = 0, n;
    while ((n = read((int)(long)descriptor, part, sizeof part)) > 0) {
        all += n;
        if (all % (16 * PART) == 0) sleep_ms(5);
    }
    return NULL;
}
/* Writes slowly, and leaves the descriptor open. */
static void *feed(void *descriptor) {
    char part[100] = {0};
    for (int n = 0; n < 1000; n++) {
        EQUAL(write((int)(long)descriptor, part, sizeof part), sizeof part);
        if (n % 20 == 0) sleep_ms(5);
    }
    return NULL;
}
static void beside(void *(*body)(void *), int descriptor) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, (void *)(long)descriptor) == 0);
    CHECK(pthread_detach(thread) == 0);
}
static int other_end(int type, void *(*body)(void *)) {
    int pair[2];
    OK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair));
    beside(body, pair[0]);
    return pair[1];
}
static int slow_pipe(void) {
    int ends[2];
    OK(pipe2(ends, O_CLOEXEC));
    beside(drain, ends[0]);
    return ends[1];
}
static int limited(int socket, int option) {
    struct timeval limit = {0, WAIT_MS * 1000};
    OK(setsockopt(socket, SOL_SOCKET, option, &limit, sizeof limit));
    return socket;
}
static int listener(void) {
    int socket_ = OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    OK(bind(socket_, (struct sockaddr *)&address, sizeof(sa_family_t)));
    OK(listen(socket_, 1));
    return socket_;
}
static int pair_end(void) {
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    return pair[0];
}
static void waited(long long since) {
    long long ms = (now_us() - since) / 1000;
    if (ms < WAIT_MS - 5 || ms > WAIT_MS + LATE_MS) FAIL("waited %lld ms in the place of %d", ms, WAIT_MS);
}

/* Whether a transfer is whole. */
typedef int Transfer(char *room);
static int writes(char *room) { return write(slow_pipe(), room, MUCH) == MUCH; }
static int writes_vector(char *room) {
    struct iovec parts[2] = {{room, MUCH / 2}, {room + MUCH / 2, MUCH / 2}};
    return writev(slow_pipe(), parts, 2) == MUCH;
}
static int writes_to_socket(char *room) { return write(other_end(SOCK_STREAM, drain), room, MUCH) == MUCH; }
static int sends(char *room) { return send(other_end(SOCK_STREAM, drain), room, MUCH, 0) == MUCH; }
static int sends_message(char *room) {
    struct iovec parts[2] = {{room, MUCH / 2}, {room + MUCH / 2, MUCH / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(other_end(SOCK_STREAM, drain), &message, 0) == MUCH;
}
static void sends_within(char *room) {
    int end = limited(pair_end(), SO_SNDTIMEO);
    long long since = now_us();
    long sent = send(end, room, MUCH, 0);
    CHECK(sent > 0 && sent < MUCH);
    waited(since);
}
static int sends_file(char *room) {
    int file = OK(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    EQUAL(write(file, room, MUCH), MUCH);
    off_t from = 0;
    long sent = sendfile(other_end(SOCK_STREAM, drain), file, &from, MUCH);
    EQUAL(from, sent);
    return sent == MUCH;
}
static int receives_all(char *room) { return recv(other_end(SOCK_STREAM, feed), room, 50000, MSG_WAITALL) == 50000; }
static int receives_message(char *room) {
    char control[64];
    struct iovec parts[2] = {{room, 25000}, {room + 25000, 25000}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    message.msg_control = control, message.msg_controllen = sizeof control;
    long got = recvmsg(other_end(SOCK_STREAM, feed), &message, MSG_WAITALL);
    EQUAL(message.msg_controllen, 0);
    return got == 50000;
}
/* The descriptor comes with the second half, and ends the call. */
static void *passes(void *descriptor) {
    char part[5000] = {0}, control[CMSG_SPACE(sizeof(int))] = {0};
    EQUAL(write((int)(long)descriptor, part, sizeof part), sizeof part);
    sleep_ms(WAIT_MS);
    struct iovec one = {part, sizeof part};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    message.msg_control = control, message.msg_controllen = sizeof control;
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    *passed = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    *(int *)CMSG_DATA(passed) = (int)(long)descriptor;
    EQUAL(sendmsg((int)(long)descriptor, &message, 0), sizeof part);
    EQUAL(write((int)(long)descriptor, part, sizeof part), sizeof part);
    return NULL;
}
static int receives_descriptor(char *room) {
    char control[64];
    struct iovec one = {room, MUCH};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    message.msg_control = control, message.msg_controllen = sizeof control;
    if (recvmsg(other_end(SOCK_STREAM, passes), &message, MSG_WAITALL) != 10000) return 0;
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    CHECK(passed != NULL && passed->cmsg_type == SCM_RIGHTS);
    OK(fcntl(*(int *)CMSG_DATA(passed), F_GETFD));
    return 1;
}
static void receives_within(char *room) {
    int end = limited(pair_end(), SO_RCVTIMEO);
    long long since = now_us();
    FAILS(recv(end, room, 1, 0), EAGAIN);
    waited(since);
}
static void accepts_within(char *room) {
    int end = limited(listener(), SO_RCVTIMEO);
    long long since = now_us();
    FAILS(accept(end, NULL, NULL), EAGAIN);
    waited(since);
    (void)room;
}
static int writes_to_terminal(char *room) {
    int master, slave;
    OK(openpty(&master, &slave, NULL, NULL, NULL));
    struct termios modes;
    OK(tcgetattr(slave, &modes));
    cfmakeraw(&modes);
    OK(tcsetattr(slave, TCSANOW, &modes));
    beside(drain, master);
    return write(slave, room, 60000) == 60000;
}
static void takes_chance(char *room) {
    for (int n = 0; n < 60; n++) EQUAL(getrandom(room, MUCH, 0), MUCH);
}
static void reads_endless(char *room) {
    int zeroes = OK(open("/dev/zero", O_RDONLY | O_CLOEXEC)), chance = OK(open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    for (int n = 0; n < 60; n++) {
        EQUAL(read(zeroes, room, MUCH), MUCH);
        EQUAL(read(chance, room, MUCH), MUCH);
    }
}
static void watches(char *room) {
    struct epoll_event event;
    int set = OK(epoll_create1(EPOLL_CLOEXEC));
    long long since = now_us();
    EQUAL(epoll_wait(set, &event, 1, WAIT_MS), 0);
    waited(since);
    (void)room;
}
static void polls(char *room) {
    long long since = now_us();
    EQUAL(poll(NULL, 0, WAIT_MS), 0);
    waited(since);
    (void)room;
}
static void sleeps(char *room) {
    struct timespec time = {0, WAIT_MS * 1000000};
    long long since = now_us();
    EQUAL(nanosleep(&time, NULL), 0);
    waited(since);
    (void)room;
}
static void waits_for_semaphore(char *room) {
    struct timespec limit = {0, WAIT_MS * 1000000};
    struct sembuf down = {0, -1, 0};
    int set = OK(semget(IPC_PRIVATE, 1, 0600));
    long long since = now_us();
    FAILS(semtimedop(set, &down, 1, &limit), EAGAIN);
    waited(since);
    OK(semctl(set, 0, IPC_RMID));
    (void)room;
}
static void waits_for_signal(char *room) {
    struct timespec limit = {0, WAIT_MS * 1000000};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    long long since = now_us();
    FAILS(sigtimedwait(&one, NULL, &limit), EAGAIN);
    waited(since);
    (void)room;
}

static Transfer *const TRANSFERS[] = {
    writes, writes_vector, writes_to_socket, sends, sends_message, sends_file, receives_all, receives_message,
    receives_descriptor, writes_to_terminal,
};
static void (*const CALLS[])(char *) = {
    sends_within, receives_within, accepts_within, takes_chance, reads_endless, watches, polls, sleeps,
    waits_for_semaphore, waits_for_signal,
};
enum { HALF = sizeof TRANSFERS / sizeof TRANSFERS[0], ALL = HALF + sizeof CALLS / sizeof CALLS[0] };
static void *make(void *argument) {
    long n = (long)argument;
    char *room = much();
    if (n >= HALF) CALLS[n - HALF](room);
    else if (!TRANSFERS[n](room)) FAIL("transfer %ld ends with a part", n);
    return NULL;
}

int main(void) {
    pid_t guesser = OK(fork());
    while (guesser == 0) {
        /* So long that after each of them nobody is asked any more. */
        sleep_ms(25);
        long guess = syscall(SPECULATE, BEGIN);
        if (guess > 0) OK(syscall(SPECULATE, COMMIT, guess));
        if (getppid() == 1) _exit(0);
    }
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &one, NULL));
    pthread_t threads[ALL];
    for (long n = 0; n < ALL; n++) CHECK(pthread_create(&threads[n], NULL, make, (void *)n) == 0);
    for (int n = 0; n < ALL; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    OK(kill(guesser, SIGKILL));
    EQUAL(wait_for(guesser), 128 + SIGKILL);
    puts("all");
    return 0;
}
