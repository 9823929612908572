/* A process that has memory mapped shared, which may change at any time, closes listening sockets after it has written. MariaDB
   does that when it ends. Each close comes back, and the name is free then. */
#include "check.h"
#include <arpa/inet.h>
#include <sys/un.h>

static char *memory;

static void dirty(void) {
    int file = OK(open("changed", O_WRONLY | O_CREAT | O_APPEND, 0600));
    EQUAL(OK(write(file, "x", 1)), 1);
    close(file);
    memory[0]++;
}

static void closed(const char *what, const void *name, socklen_t length, int family) {
    int listener = OK(socket(family, SOCK_STREAM, 0));
    OK(bind(listener, name, length));
    OK(listen(listener, 1));
    dirty();
    OK(close(listener));
    int client = OK(socket(family, SOCK_STREAM, 0));
    errno = 0;
    int result = connect(client, name, length);
    printf("%s: closed, connect %d, errno %d\n", what, result, errno);
    close(client);
}

int main(void) {
    int file = OK(open("mapped", O_RDWR | O_CREAT, 0600));
    OK(ftruncate(file, 4096));
    memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(memory != MAP_FAILED);
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "socket"};
    closed("Unix", &path, sizeof path, AF_UNIX);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof any;
    int chosen = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(chosen, (struct sockaddr *)&any, length));
    OK(getsockname(chosen, (struct sockaddr *)&any, &length));
    close(chosen);
    closed("TCP", &any, length, AF_INET);
    return 0;
}
