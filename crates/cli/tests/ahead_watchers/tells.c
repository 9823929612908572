// tells DIR TARGET: tells of what it has found, on TARGET (stdout, udp:PORT, tcp:PORT) and in a file in DIR; every other time a child does it.
// What it looks for is there: it says WRONG only where a guess said otherwise, or, to show that this is noticed, where MISSING is set.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ck(call) check((long)(call), #call)
static long check(long result, const char *what) {
    if (result == -1) fprintf(stderr, "%s: %s\n", what, strerror(errno)), exit(1);
    return result;
}

static const char *where = "told";
static int outside;

static void tell(const char *line, size_t length) {
    int file = ck(open(where, O_WRONLY | O_APPEND));
    ck(write(file, line, length));
    ck(close(file));
    ck(write(outside, line, length));
}

static int to_peer(const char *target) {
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    peer.sin_port = htons(atoi(strchr(target, ':') + 1));
    int s = ck(socket(AF_INET, *target == 'u' ? SOCK_DGRAM : SOCK_STREAM, 0));
    ck(connect(s, (void *)&peer, sizeof peer));
    return s;
}

int main(int argc, char **argv) {
    const char *looked_for = getenv("MISSING") ? "/missing" : "/etc/passwd";
    if (argc != 3) return 2;
    outside = strcmp(argv[2], "stdout") ? to_peer(argv[2]) : 1;
    ck(chdir(argv[1]));
    ck(close(ck(open(where, O_WRONLY | O_CREAT, 0600))));
    for (int i = 0; i < 40; i++) {
        char line[32];
        int length = sprintf(line, "%s %d\n", access(looked_for, F_OK) ? "WRONG" : "right", i);
        if (i % 2) {
            tell(line, length);
            continue;
        }
        // Through a pipe, so that only what the child has read makes it depend on the guess.
        int p[2], child;
        ck(pipe(p));
        if (!(child = ck(fork()))) {
            close(p[1]);
            tell(line, ck(read(p[0], line, sizeof line)));
            _exit(0);
        }
        close(p[0]);
        ck(write(p[1], line, length));
        close(p[1]);
        ck(waitpid(child, 0, 0));
    }
    sync();
    return 0;
}
