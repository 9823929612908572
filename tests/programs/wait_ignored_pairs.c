/* Signals that are ignored, several at once, just as what is waited for comes: calls with a limit of time say what
   came, and nothing else. */
#include "check.h"
#include <sys/epoll.h>
enum { ROUNDS = 200 };

static int sockets[2], set;

static long waits(int how) {
    char bytes[16];
    struct epoll_event event;
    if (how == 0) return recv(sockets[0], bytes, sizeof bytes, 0);
    int ready = epoll_wait(set, &event, 1, 60000);
    return ready == 1 ? recv(sockets[0], bytes, sizeof bytes, MSG_DONTWAIT) : -1;
}

int main(void) {
    signal(SIGUSR1, SIG_IGN);
    struct timeval time = {60, 0};
    struct epoll_event in = {.events = EPOLLIN};
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets));
    OK(setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    set = OK(epoll_create1(0)), OK(epoll_ctl(set, EPOLL_CTL_ADD, sockets[0], &in));
    pid_t parent = getpid();
    for (int how = 0; how < 2; how++) {
        int wrong = 0;
        for (int i = 0; i < ROUNDS; i++) {
            pid_t child = OK(fork());
            if (child == 0) {
                usleep(2000), kill(parent, SIGUSR1), usleep(i * 3);
                if (i & 1) kill(parent, SIGUSR1);
                if (write(sockets[1], "12345", 5) != 5) _exit(1);
                kill(parent, SIGUSR1);
                _exit(0);
            }
            wrong += waits(how) != 5;
            EQUAL(wait_for(child), 0);
        }
        printf("%d: %d wrong\n", how, wrong);
    }
    return 0;
}
