/* answers: a server for one client at a time. Each byte that it gets is a request: 100 bytes are appended to the file LOG, made durable, and one byte is
   the answer. Prints its port. Ends when its input does. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static long ck(long result, const char *what) {
    if (result < 0) perror(what), exit(1);
    return result;
}

static void serve(int client, int log) {
    char request, line[100];
    int on = 1;
    memset(line, 'x', sizeof line);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (read(client, &request, 1) == 1) {
        ck(write(log, line, sizeof line), "write");
        ck(fdatasync(log), "fdatasync");
        ck(write(client, &request, 1), "answer");
    }
    close(client);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int log = ck(open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600), argv[1]);
    int listener = ck(socket(AF_INET, SOCK_STREAM, 0), "socket");
    ck(bind(listener, (void *)&at, len), "bind");
    ck(listen(listener, 16), "listen");
    ck(getsockname(listener, (void *)&at, &len), "getsockname");
    printf("%d\n", ntohs(at.sin_port)), fflush(stdout);
    struct pollfd both[] = {{.fd = 0, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    for (;;) {
        ck(poll(both, 2, -1), "poll");
        if (both[0].revents) return 0;
        serve(ck(accept(listener, 0, 0), "accept"), log);
    }
}
