/* A receiver's limit of time (SO_RCVTIMEO): ignored signals do not make it longer, a handler ends the wait, and what
   comes in time is received. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
enum { WAIT_MS = 600 };

static int is_as_long(long long begin) {
    long long ms = (now_us() - begin) / 1000;
    return ms >= WAIT_MS - 50;
}
static void limit(int fd, int ms) {
    struct timeval time = {ms / 1000, ms % 1000 * 1000};
    OK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
}
static void heard(int signal) { (void)signal; }

int main(void) {
    signal(SIGUSR1, SIG_IGN);
    pid_t parent = getpid(), sender = OK(fork());
    if (sender == 0) {
        while (getppid() == parent) kill(parent, SIGUSR1), usleep(100000);
        _exit(0);
    }
    int pair[2], datagrams[2], listener = OK(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)), OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
    OK(bind(listener, (struct sockaddr *)&address, sizeof address)), OK(listen(listener, 5));
    limit(pair[0], WAIT_MS), limit(datagrams[0], WAIT_MS), limit(listener, WAIT_MS);
    char bytes[16];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr messages = {.msg_hdr = message};
    for (int how = 0; how < 7; how++) {
        long long begin = now_us();
        switch (how) {
        case 0: FAILS(read(pair[0], bytes, sizeof bytes), EAGAIN); break;
        case 1: FAILS(recv(pair[0], bytes, sizeof bytes, 0), EAGAIN); break;
        case 2: FAILS(recvmsg(pair[0], &message, 0), EAGAIN); break;
        case 3: FAILS(recvmmsg(datagrams[0], &messages, 1, 0, NULL), EAGAIN); break;
        case 4: FAILS(readv(datagrams[0], &part, 1), EAGAIN); break;
        case 5: FAILS(accept(listener, NULL, NULL), EAGAIN); break;
        case 6: FAILS(recvfrom(datagrams[0], bytes, sizeof bytes, 0, NULL, NULL), EAGAIN); break;
        }
        printf("%d: %d\n", how, is_as_long(begin));
    }
    /* What comes while signals do. */
    limit(pair[0], 60000), limit(datagrams[0], 60000), limit(listener, 60000);
    for (int how = 0; how < 3; how++) {
        pid_t child = OK(fork());
        if (child == 0) {
            sleep_ms(150);
            if (how == 2) {
                socklen_t len = sizeof address;
                OK(getsockname(listener, (struct sockaddr *)&address, &len));
                OK(connect(OK(socket(AF_INET, SOCK_STREAM, 0)), (struct sockaddr *)&address, len));
                _exit(0);
            }
            _exit(write(how ? datagrams[1] : pair[1], "12345", 5) != 5);
        }
        int from = how ? datagrams[0] : pair[0];
        long n = how == 2 ? accept(listener, NULL, NULL) >= 0 : recv(from, bytes, sizeof bytes, 0);
        printf("received %ld\n", n);
        EQUAL(wait_for(child), 0);
    }
    OK(kill(sender, SIGKILL));
    EQUAL(wait_for(sender), 128 + SIGKILL);
    /* A handler ends it, also with SA_RESTART (signal(7)). */
    for (int restarts = 0; restarts < 2; restarts++) {
        on_signal(SIGUSR1, heard, restarts ? SA_RESTART : 0);
        pid_t child = OK(fork());
        if (child == 0) {
            if (!comes_to_state(parent, 'S')) _exit(1);
            _exit(kill(parent, SIGUSR1) != 0);
        }
        FAILS(read(pair[0], bytes, sizeof bytes), EINTR);
        EQUAL(wait_for(child), 0);
    }
    puts("handlers end it");
    return 0;
}
