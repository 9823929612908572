/* What sendfile, splice and vmsplice transfer, and what they leave behind: offsets, counts, short transfers and errors. */
#include "check.h"
#include <sys/ioctl.h>
#include <sys/sendfile.h>

#define SIZE (300 * 1000)
static char bytes[SIZE], got[SIZE];

static int queued(int fd) { int n = -1; OK(ioctl(fd, FIONREAD, &n)); return n; }
static long at(int fd) { return lseek(fd, 0, SEEK_CUR); }
static void show(const char *what, long result) { printf("%s: %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : ""); }
static void *drain(void *from) {
    long sum = 0, n;
    while ((n = read(*(int *)from, got, sizeof got)) > 0)
        for (long i = 0; i < n; i++, sum++) if (got[i] != bytes[sum % SIZE]) FAIL("byte %ld is another one", sum);
    return (void *)sum;
}

int main(void) {
    int p[2], s[2];
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < SIZE; i++) bytes[i] = i * 7 + i / 251;
    int in = OK(open("big", O_RDWR | O_CREAT, 0644));
    EQUAL(write(in, bytes, SIZE), SIZE);

    /* A pipe takes what it has room for, and the call does not wait for more. */
    OK(pipe(p));
    OK(lseek(in, 0, SEEK_SET));
    show("sendfile to a pipe", sendfile(p[1], in, NULL, SIZE));
    printf("queued %d, file at %ld\n", queued(p[0]), at(in));
    show("splice to a full pipe, not waiting", splice(in, NULL, p[1], NULL, 10, SPLICE_F_NONBLOCK));
    OK(fcntl(p[1], F_SETFL, O_NONBLOCK));
    show("sendfile to a full pipe, not waiting", sendfile(p[1], in, NULL, 10));
    printf("queued %d, file at %ld\n", queued(p[0]), at(in));
    EQUAL(read(p[0], got, 8192), 8192);
    show("splice into two free pages", splice(in, NULL, p[1], NULL, SIZE, 0));
    printf("queued %d, file at %ld\n", queued(p[0]), at(in));
    while (read(p[0], got, sizeof got) == sizeof got) {}
    loff_t offset = SIZE - 100;
    show("splice at the end", splice(in, &offset, p[1], NULL, 5000, 0));
    printf("queued %d, offset %ld, file at %ld\n", queued(p[0]), (long)offset, at(in));
    show("splice behind the end", splice(in, &offset, p[1], NULL, 5000, 0));
    show("sendfile behind the end", sendfile(p[1], in, &offset, 5000));
    printf("offset %ld\n", (long)offset);

    /* A socket takes all of it. */
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    pthread_t reader;
    offset = 0;
    OK(-pthread_create(&reader, NULL, drain, &s[1]));
    show("sendfile to a socket", sendfile(s[0], in, &offset, SIZE + 10));
    printf("offset %ld\n", (long)offset);
    OK(shutdown(s[0], SHUT_WR));
    void *sum;
    pthread_join(reader, &sum);
    printf("arrived %ld\n", (long)sum);
    show("sendfile after shutdown", sendfile(s[0], in, (offset = 0, &offset), 10));
    printf("offset %ld\n", (long)offset);
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
    long n = sendfile(s[0], in, (offset = 0, &offset), SIZE);
    CHECK(n > 0 && n < SIZE && n == offset);
    show("sendfile to a full socket", sendfile(s[0], in, &offset, SIZE));

    /* Errors. */
    int reads = OK(open("big", O_RDONLY)), writes = OK(open("big", O_WRONLY)), folder = OK(open(".", O_RDONLY)), null = OK(open("/dev/null", O_WRONLY));
    OK(pipe(p));
    show("to a descriptor that reads", sendfile(reads, in, NULL, 10));
    show("to the end that reads", sendfile(p[0], in, NULL, 10));
    show("from a descriptor that writes", sendfile(p[1], writes, NULL, 10));
    show("from a directory", sendfile(p[1], folder, NULL, 10));
    show("from nothing", sendfile(p[1], -1, NULL, 10));
    show("to nothing", sendfile(-1, in, NULL, 10));
    show("nothing", sendfile(p[1], in, NULL, 0));
    show("before the beginning", sendfile(p[1], in, (offset = -1, &offset), 10));
    show("a bad address of an offset", syscall(SYS_sendfile, p[1], in, 8, 10));
    show("splice without a pipe", splice(in, NULL, null, NULL, 10, 0));
    show("splice with an offset of the pipe", splice(in, NULL, p[1], &offset, 10, 0));
    show("splice with unknown flags", splice(in, NULL, p[1], NULL, 10, 1 << 20));
    show("splice to the end that reads", splice(in, NULL, p[0], NULL, 10, 0));
    show("sendfile to /dev/null", sendfile(null, in, (offset = 7, &offset), 10));
    printf("offset %ld\n", (long)offset);

    /* Memory. */
    struct iovec parts[3] = {{bytes, 10}, {NULL, 0}, {bytes + 10, 90}}, bad = {(void *)8, 10}, much = {bytes, SIZE};
    show("vmsplice", vmsplice(p[1], parts, 3, 0));
    EQUAL(read(p[0], got, SIZE), 100);
    CHECK(!memcmp(got, bytes, 100));
    show("vmsplice of nothing", vmsplice(p[1], parts, 0, 0));
    show("vmsplice of a bad address", vmsplice(p[1], &bad, 1, 0));
    show("vmsplice of too many parts", vmsplice(p[1], parts, 1025, 0));
    show("vmsplice to a file", vmsplice(in, parts, 1, 0));
    show("vmsplice of unknown flags", vmsplice(p[1], parts, 1, 1 << 20));
    n = OK(vmsplice(p[1], &much, 1, 0));
    CHECK(n > 0 && n <= 65536 && n == queued(p[0]));
    show("vmsplice to a full pipe, not waiting", vmsplice(p[1], &much, 1, SPLICE_F_NONBLOCK));
    close(p[0]);
    show("sendfile to a pipe that nobody reads", sendfile(p[1], in, (offset = 0, &offset), 10));
    show("splice to a pipe that nobody reads", splice(in, &offset, p[1], NULL, 10, 0));
    show("vmsplice to a pipe that nobody reads", vmsplice(p[1], parts, 1, 0));
    printf("offset %ld\n", (long)offset);
    return 0;
}
