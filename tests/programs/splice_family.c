/* splice, tee, vmsplice, sendfile and copy_file_range between files, pipes and sockets. */
#include "check.h"
int main(void) {
    write_file("source", "the quick brown fox jumps over the lazy dog\n");
    int in = OK(open("source", O_RDONLY)), out = OK(open("copy", O_RDWR | O_CREAT, 0644)), p[2], q[2], pair[2];
    OK(pipe(p)); OK(pipe(q)); OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    loff_t offset = 4;
    EQUAL(OK(splice(in, &offset, p[1], NULL, 5, 0)), 5);
    printf("offset %ld file at %ld\n", (long)offset, (long)lseek(in, 0, SEEK_CUR));
    EQUAL(OK(tee(p[0], q[1], 100, 0)), 5);
    EQUAL(OK(splice(p[0], NULL, out, NULL, 100, 0)), 5);
    char t[64] = "";
    EQUAL(OK(read(q[0], t, 64)), 5);
    printf("tee %s, out %s\n", t, contents("copy"));
    struct iovec v = {"vmspliced", 9};
    EQUAL(OK(vmsplice(p[1], &v, 1, 0)), 9);
    EQUAL(OK(splice(p[0], NULL, out, NULL, 9, SPLICE_F_MOVE)), 9);
    off_t from = 10;
    EQUAL(OK(syscall(SYS_sendfile, out, in, &from, 10)), 10);
    EQUAL(OK(syscall(SYS_sendfile, pair[0], in, NULL, 1000)), 44);
    EQUAL(OK(read(pair[1], t, 64)), 44);
    printf("socket got %.9s, from %ld\n", t, (long)from);
    offset = 0;
    loff_t to = 30;
    EQUAL(OK(copy_file_range(in, &offset, out, &to, 9, 0)), 9);
    printf("copy: size %ld\n", (long)lseek(out, 0, SEEK_END));
    FAILS(splice(in, NULL, out, NULL, 5, 0), EINVAL);
    FAILS(tee(in, p[1], 5, 0), EINVAL);
    FAILS(copy_file_range(in, NULL, p[1], NULL, 5, 0), EINVAL);
    close(p[1]);
    EQUAL(splice(p[0], NULL, out, NULL, 5, 0), 0);
    close(q[0]);
    signal(SIGPIPE, SIG_IGN);
    offset = 0;
    FAILS(splice(in, &offset, q[1], NULL, 5, 0), EPIPE);
    return 0;
}
