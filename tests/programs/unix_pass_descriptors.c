/* SCM_RIGHTS passes a pipe and a file; the receiver's copies share offset and stream; SCM_CREDENTIALS, SO_PEERCRED. */
#include "check.h"
static void send_fds(int over, int *fds, int count) {
    char byte = 'b', control[CMSG_SPACE(sizeof(int) * 8)] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    OK(sendmsg(over, &m, 0));
}
static int receive_fds(int over, int *fds, int flags) {
    char byte, control[CMSG_SPACE(sizeof(int) * 8)];
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    EQUAL(OK(recvmsg(over, &m, flags)), 1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == SCM_RIGHTS);
    int count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(c), sizeof(int) * count);
    return count;
}
int main(void) {
    int pair[2], fds[8];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(pair[0]);
        int file = OK(open("file", O_RDWR | O_CREAT, 0644)), p[2];
        OK(write(file, "0123456789", 10));
        OK(lseek(file, 3, SEEK_SET));
        OK(pipe(p));
        send_fds(pair[1], (int[]){file, p[0], p[1]}, 3);
        close(p[1]); close(file);
        char text[16] = "";
        EQUAL(OK(read(p[0], text, 4)), 4);
        printf("child read %s\n", text);
        exit(0);
    }
    close(pair[1]);
    EQUAL(receive_fds(pair[0], fds, MSG_CMSG_CLOEXEC), 3);
    EQUAL(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    char text[16] = "";
    EQUAL(OK(read(fds[0], text, 4)), 4);
    printf("descriptors %d %d %d, from the offset: %s\n", fds[0], fds[1], fds[2], text);
    fflush(stdout);
    EQUAL(write(fds[2], "ping", 4), 4);
    printf("status %d\n", wait_for(pid));
    struct ucred who;
    socklen_t size = sizeof who;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    OK(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &who, &size));
    printf("peer is me: %d uid %d\n", who.pid == getpid(), who.uid == getuid());
    int one = 1;
    OK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
    OK(write(pair[1], "c", 1));
    char byte, control[CMSG_SPACE(sizeof who)];
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    OK(recvmsg(pair[0], &m, 0));
    memcpy(&who, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof who);
    printf("sender is me: %d\n", who.pid == getpid());
    int in_flight[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, in_flight));
    send_fds(pair[0], (int[]){in_flight[0]}, 1);
    close(in_flight[0]);
    OK(write(in_flight[1], "later", 5));
    EQUAL(receive_fds(pair[1], fds, 0), 1);
    EQUAL(OK(read(fds[0], text, 5)), 5);
    printf("sent before it was received: %.5s\n", text);
    return 0;
}
