/* Unix sockets: a stream server at a path, at an abstract name, datagrams, seqpacket, between processes. */
#include "check.h"
#include <stddef.h>
#include <sys/un.h>
static socklen_t address(struct sockaddr_un *a, const char *name, int abstract) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    strcpy(a->sun_path + abstract, name);
    return offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name) + !abstract;
}
static void echo(int type, const char *name, int abstract) {
    struct sockaddr_un a;
    socklen_t size = address(&a, name, abstract);
    int server = OK(socket(AF_UNIX, type, 0));
    OK(bind(server, (void *)&a, size));
    OK(listen(server, 5));
    for (int i = 0; i < 3; i++) if (OK(fork()) == 0) {
        int s = OK(socket(AF_UNIX, type, 0));
        OK(connect(s, (void *)&a, size));
        char text[32];
        snprintf(text, sizeof text, "client");
        OK(write(s, text, 6));
        EQUAL(read(s, text, 32), 8);
        EQUAL(read(s, text, 32), 0);
        _exit(!!memcmp(text, "client !", 8));
    }
    for (int i = 0; i < 3; i++) {
        int c = OK(accept4(server, NULL, NULL, SOCK_CLOEXEC));
        char text[32] = "";
        ssize_t n = OK(read(c, text, 30));
        memcpy(text + n, " !", 2);
        OK(write(c, text, n + 2));
        OK(shutdown(c, SHUT_WR));
        close(c);
    }
    int bad = 0, status;
    while (wait(&status) > 0) bad += status != 0;
    printf("%s: bad %d\n", name, bad);
    close(server);
}
int main(void) {
    char name[64];
    snprintf(name, sizeof name, "speculator-test-%d", getpid());
    echo(SOCK_STREAM, "stream", 0);
    echo(SOCK_SEQPACKET, "seqpacket", 0);
    int saved = dup(1);
    int null = open("/dev/null", O_WRONLY);
    fflush(stdout); dup2(null, 1);
    echo(SOCK_STREAM, name, 1);
    fflush(stdout); dup2(saved, 1);
    struct sockaddr_un a;
    socklen_t size = address(&a, "datagram", 0);
    int d = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    OK(bind(d, (void *)&a, size));
    if (OK(fork()) == 0) {
        int s = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
        OK(sendto(s, "first", 5, 0, (void *)&a, size));
        OK(sendto(s, "", 0, 0, (void *)&a, size));
        OK(sendto(s, "third one", 9, 0, (void *)&a, size));
        _exit(0);
    }
    for (int i = 0; i < 3; i++) { char t[32] = ""; ssize_t n = OK(recv(d, t, 5, MSG_TRUNC)); printf("datagram %zd %s\n", n, t); }
    wait(NULL);
    int s = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    FAILS(connect(s, (void *)&a, address(&a, "nobody", 0)), ENOENT);
    FAILS(connect(s, (void *)&a, address(&a, "stream", 0)), ECONNREFUSED);
    FAILS(bind(s, (void *)&a, address(&a, "stream", 0)), EADDRINUSE);
    return 0;
}
