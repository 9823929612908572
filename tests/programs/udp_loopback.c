/* UDP over loopback: echo, boundaries, sendmmsg and recvmmsg, refused port, truncation, connected and not. */
#include "check.h"
#include <arpa/inet.h>
static int bound(struct sockaddr_in *a) {
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    OK(bind(s, (void *)a, sizeof *a));
    socklen_t size = sizeof *a;
    OK(getsockname(s, (void *)a, &size));
    return s;
}
int main(void) {
    struct sockaddr_in a, b, from;
    int server = bound(&a);
    pid_t pid = OK(fork());
    if (pid == 0) {
        for (int i = 0; i < 100; i++) {
            char t[2000];
            socklen_t size = sizeof from;
            ssize_t n = OK(recvfrom(server, t, sizeof t, 0, (void *)&from, &size));
            OK(sendto(server, t, n, 0, (void *)&from, size));
        }
        _exit(0);
    }
    int s = bound(&b);
    OK(connect(s, (void *)&a, sizeof a));
    for (int i = 0; i < 100; i++) { char t[2000] = {i}; OK(send(s, t, i * 10, 0)); EQUAL(OK(recv(s, t, sizeof t, 0)), i * 10); }
    printf("echoed, status %d\n", wait_for(pid));
    int other = bound(&from);
    char texts[3][8] = {"one", "three", "seven"};
    struct mmsghdr m[3] = {0};
    struct iovec v[3];
    for (int i = 0; i < 3; i++) { v[i] = (struct iovec){texts[i], strlen(texts[i])}; m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from}; }
    EQUAL(OK(sendmmsg(server, m, 3, 0)), 3);
    char in[3][4] = {0};
    for (int i = 0; i < 3; i++) { v[i] = (struct iovec){in[i], 3}; m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1}; }
    EQUAL(OK(recvmmsg(other, m, 3, MSG_WAITFORONE, NULL)), 3);
    for (int i = 0; i < 3; i++) printf("%s %u truncated %d\n", in[i], m[i].msg_len, !!(m[i].msg_hdr.msg_flags & MSG_TRUNC));
    close(server);
    OK(send(s, "x", 1, 0));
    char t[4];
    FAILS(recv(s, t, 4, 0), ECONNREFUSED);
    return 0;
}
