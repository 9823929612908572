/* Signals that are ignored neither cut a transfer short nor make a sender's limit of time (SO_SNDTIMEO) longer. A
   handler does cut it. */
#include "check.h"
enum { SIZE = 1 << 20, WAIT_MS = 400 };
static char bytes[SIZE], got[1 << 16];
static pid_t signals_every(int period_us, int signal) {
    pid_t parent = getpid(), child = OK(fork());
    if (child) return child;
    while (getppid() == parent) kill(parent, signal), usleep(period_us);
    _exit(0);
}
static void end(pid_t child) {
    OK(kill(child, SIGKILL));
    EQUAL(wait_for(child), 128 + SIGKILL);
}
static char byte_at(long at) { return (char)(at * 31 + at / 4096); }
/* Reads all that comes, slowly, and says whether it is what was sent. */
static pid_t slow_reader(const int *ends) {
    pid_t child = OK(fork());
    if (child) return child;
    close(ends[1]);
    long at = 0, n;
    while ((n = read(ends[0], got, sizeof got)) > 0) {
        for (long i = 0; i < n; i++)
            if (got[i] != byte_at(at + i)) _exit(1);
        at += n, usleep(1000);
    }
    _exit(at == SIZE ? 0 : 2);
}
static void fill(int fd) {
    while (send(fd, bytes, 4096, MSG_DONTWAIT) > 0) {}
}
static void heard(int signal) { (void)signal; }

int main(void) {
    for (long at = 0; at < SIZE; at++) bytes[at] = byte_at(at);
    signal(SIGUSR1, SIG_IGN);
    pid_t often = signals_every(2000, SIGUSR1);
    struct iovec parts[3] = {{bytes, 100000}, {bytes + 100000, 7}, {bytes + 100007, SIZE - 100007}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    for (int how = 0; how < 6; how++) {
        int ends[2];
        if (how < 2) OK(pipe(ends)); else OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        pid_t reader = slow_reader(ends);
        close(ends[0]);
        long n = 0;
        switch (how) {
        case 0: case 2: n = write(ends[1], bytes, SIZE); break;
        case 1: case 3: n = writev(ends[1], parts, 3); break;
        case 4: n = send(ends[1], bytes, SIZE, MSG_NOSIGNAL); break;
        case 5: n = sendmsg(ends[1], &message, 0); break;
        }
        close(ends[1]);
        int status = wait_for(reader);
        printf("sent %ld, reader %d\n", n, status);
    }
    for (int how = 0; how < 2; how++) {
        int ends[2];
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        pid_t writer = OK(fork());
        if (writer == 0) {
            close(ends[0]);
            for (int at = 0; at < SIZE; at += SIZE / 64)
                if (usleep(2000) || write(ends[1], bytes + at, SIZE / 64) != SIZE / 64) _exit(1);
            _exit(0);
        }
        static char all[SIZE];
        struct iovec into[2] = {{all, 5000}, {all + 5000, SIZE - 5000}};
        struct msghdr whole = {.msg_iov = into, .msg_iovlen = 2};
        memset(all, 0, SIZE);
        long n = how ? recvmsg(ends[0], &whole, MSG_WAITALL) : recv(ends[0], all, SIZE, MSG_WAITALL);
        printf("received %ld, %s\n", n, memcmp(all, bytes, SIZE) ? "other bytes" : "the same");
        EQUAL(wait_for(writer), 0);
        close(ends[0]), close(ends[1]);
    }
    end(often);

    pid_t sender = signals_every(100000, SIGUSR1);
    int pair[2], datagrams[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)), OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
    fill(pair[0]), fill(datagrams[0]);
    struct timeval limit = {0, WAIT_MS * 1000};
    OK(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    OK(setsockopt(datagrams[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    for (int how = 0; how < 6; how++) {
        long long begin = now_us();
        switch (how) {
        case 0: FAILS(write(pair[0], bytes, 10), EAGAIN); break;
        case 1: FAILS(writev(pair[0], parts, 2), EAGAIN); break;
        case 2: FAILS(send(pair[0], bytes, 10, 0), EAGAIN); break;
        case 3: FAILS(sendmsg(pair[0], &message, 0), EAGAIN); break;
        case 4: FAILS(write(datagrams[0], bytes, 4096), EAGAIN); break;
        case 5: FAILS(send(datagrams[0], bytes, 4096, 0), EAGAIN); break;
        }
        printf("%d: %d\n", how, now_us() - begin >= (WAIT_MS - 50) * 1000);
    }
    /* What gets room in time is sent. */
    limit.tv_sec = 60;
    OK(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    pid_t reader = OK(fork());
    if (reader == 0) {
        sleep_ms(250);
        while (recv(pair[1], got, sizeof got, MSG_DONTWAIT) > 0) {}
        _exit(0);
    }
    EQUAL(send(pair[0], bytes, 10000, 0), 10000);
    EQUAL(wait_for(reader), 0);
    end(sender);

    on_signal(SIGUSR1, heard, SA_RESTART);
    for (int how = 0; how < 2; how++) {
        int ends[2];
        if (how) OK(pipe(ends)); else OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        pid_t parent = getpid(), child = OK(fork());
        if (child == 0) _exit(!comes_to_state(parent, 'S') || kill(parent, SIGUSR1));
        long n = write(ends[1], bytes, SIZE);
        printf("a handler: %d\n", n > 0 && n < SIZE);
        EQUAL(wait_for(child), 0);
    }
    return 0;
}
