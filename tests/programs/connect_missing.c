/* connect to a path where nothing is, in all states of the socket and spellings of the address; each time something was written before. */
#include "check.h"
#include <stddef.h>
#include <sys/un.h>

static struct sockaddr_un name(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strncpy(at.sun_path, path, sizeof at.sun_path);
    return at;
}

static void dirty(void) {
    int f = OK(open("changed", O_WRONLY | O_CREAT | O_APPEND, 0600));
    EQUAL(OK(write(f, "x", 1)), 1);
    close(f);
}

/* Tries it, and says what came of it. */
static void try(const char *what, int s, const void *at, socklen_t len) {
    dirty();
    errno = 0;
    int result = connect(s, at, len);
    printf("%s: %d, errno %d\n", what, result, errno);
}

int main(void) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    struct sockaddr_un nobody = name("nobody");
    OK(mkdir("folder", 0755));
    OK(symlink("nowhere", "dangling"));
    OK(symlink("loop", "loop"));
    for (int i = 0; i < 3; i++) {
        int s = OK(socket(AF_UNIX, types[i], 0));
        printf("type %d\n", types[i]);
        try("nobody", s, &nobody, sizeof nobody);
        try("in a folder that is not there", s, &(struct sockaddr_un){AF_UNIX, "missing/nobody"}, sizeof nobody);
        try("in a file", s, &(struct sockaddr_un){AF_UNIX, "changed/nobody"}, sizeof nobody);
        try("a file", s, &(struct sockaddr_un){AF_UNIX, "changed"}, sizeof nobody);
        try("a folder", s, &(struct sockaddr_un){AF_UNIX, "folder"}, sizeof nobody);
        try("dangling", s, &(struct sockaddr_un){AF_UNIX, "dangling"}, sizeof nobody);
        try("loop", s, &(struct sockaddr_un){AF_UNIX, "loop"}, sizeof nobody);
        try("no path", s, &nobody, offsetof(struct sockaddr_un, sun_path));
        try("too long", s, &nobody, sizeof nobody + 1);
        try("negative", s, &nobody, (socklen_t)-1);
        /* The path ends with the address. */
        try("cut off", s, &nobody, offsetof(struct sockaddr_un, sun_path) + 3);
        OK(mkdir("nob", 0755));
        try("cut off to what is there", s, &nobody, offsetof(struct sockaddr_un, sun_path) + 3);
        OK(rmdir("nob"));
        char whole[sizeof nobody];
        memset(whole, 'n', sizeof whole);
        memcpy(whole, &nobody.sun_family, sizeof nobody.sun_family);
        try("108 characters and no end", s, whole, sizeof whole);
        try("not readable", s, (void *)8, sizeof nobody);
        int on = 1;
        OK(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
        try("with credentials", s, &nobody, sizeof nobody);
        struct sockaddr_un own;
        socklen_t len = sizeof own;
        OK(getsockname(s, (void *)&own, &len));
        printf("it has a name of %d bytes\n", (int)len);
        close(s);
        try("closed", s, &nobody, sizeof nobody);
    }
    int tcp = OK(socket(AF_INET, SOCK_STREAM, 0)), file = OK(open("changed", O_RDONLY));
    try("a socket of another family", tcp, &nobody, sizeof nobody);
    try("no socket", file, &nobody, sizeof nobody);
    try("no descriptor", -1, &nobody, sizeof nobody);
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    try("connected already", pair[0], &nobody, sizeof nobody);
    EQUAL(OK(write(pair[0], "x", 1)), 1);
    char byte;
    EQUAL(OK(read(pair[1], &byte, 1)), 1);
    /* It comes to be there: then it is found. */
    int listener = OK(socket(AF_UNIX, SOCK_STREAM, 0)), client = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    try("not yet", client, &nobody, sizeof nobody);
    OK(bind(listener, (void *)&nobody, sizeof nobody));
    try("nobody listens", client, &nobody, sizeof nobody);
    OK(listen(listener, 1));
    try("there", client, &nobody, sizeof nobody);
    return 0;
}
