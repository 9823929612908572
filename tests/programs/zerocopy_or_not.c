/* A program that sends without copying where it can does without where it cannot: what arrives is the same. */
#include "check.h"
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define LENGTH 40000

/* Until the kernel says that it has let go of so many messages. */
static void await_let_go(int s, unsigned count) {
    for (unsigned done = 0; done < count;) {
        char control[256];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(s, &message, MSG_ERRQUEUE) < 0) continue;
        struct sock_extended_err *notice = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
        EQUAL(notice->ee_origin, SO_EE_ORIGIN_ZEROCOPY);
        done = notice->ee_data + 1;
    }
}

int main(void) {
    static char out[LENGTH], in[LENGTH];
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    int on = 1, off = 0, listener = OK(socket(AF_INET, SOCK_STREAM, 0)), s = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(listener, (void *)&name, sizeof name)), OK(listen(listener, 1));
    OK(getsockname(listener, (void *)&name, &length)), OK(connect(s, (void *)&name, sizeof name));
    int peer = OK(accept(listener, NULL, NULL));
    FAILS(setsockopt(-1, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), EBADF);
    FAILS(setsockopt(OK(open("/dev/null", O_RDONLY)), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), ENOTSOCK);
    OK(setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &off, sizeof off));
    int can = !setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
    if (!can) EQUAL(errno, EOPNOTSUPP);
    memset(out, 'z', sizeof out);
    EQUAL(send(s, out, sizeof out, MSG_ZEROCOPY), LENGTH);
    EQUAL(recv(peer, in, sizeof in, MSG_WAITALL), LENGTH);
    if (can) await_let_go(s, 1);
    EQUAL(memcmp(in, out, sizeof in), 0);
    printf("all arrived\n");
    return 0;
}
