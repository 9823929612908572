// Pages that pass from hand to hand: what a pipe or a socket holds is what was there when it was sent; and memory that is shared in other ways.
#include "harness.h"

// The parent sends "other" before anybody changes anything. What A stores there later is no part of it: B learns nothing.
static int other(void) { return ck(open("other", O_RDWR)); }
static void changes(int f) { dirty(), ck(pwrite(f, "X", 1, 0)); }
static void is_as_sent(int f) {
    later();
    must(ck(read(f, buf, 5)) == 5);
    must(!memcmp(buf, "other", 5));
    saw();
}
static void connect_tcp(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    int listener = ck(socket(AF_INET, SOCK_STREAM, 0));
    ck(bind(listener, (void *)&name, len)), ck(listen(listener, 1)), ck(getsockname(listener, (void *)&name, &len));
    p[1] = ck(socket(AF_INET, SOCK_STREAM, 0));
    ck(connect(p[1], (void *)&name, len));
    p[0] = ck(accept(listener, 0, 0)), close(listener);
}

static void page_spliced(int r) {
    if (r == S) fd = other(), ck(pipe(p)), must(ck(splice(fd, 0, p[1], 0, 5, 0)) == 5);
    if (r == A) changes(fd);
    if (r == B) is_as_sent(p[0]);
}
static void page_spliced_by_name(int r) { // A opens it anew.
    if (r == A) changes(other()); else page_spliced(r);
}
static void page_spliced_offset(int r) {
    loff_t at = 0;
    if (r == S) fd = other(), ck(pipe(p)), must(ck(splice(fd, &at, p[1], 0, 5, 0)) == 5 && at == 5);
    else page_spliced(r);
}
static void page_teed(int r) {
    if (r == S) page_spliced(S), ck(pipe(q)), must(ck(tee(p[0], q[1], 5, 0)) == 5);
    if (r == A) changes(fd);
    if (r == B) is_as_sent(q[0]);
}
static void page_spliced_on(int r) { // From pipe to pipe.
    if (r == S) page_spliced(S), ck(pipe(q)), must(ck(splice(p[0], 0, q[1], 0, 5, 0)) == 5); else page_teed(r);
}
static void page_spliced_to_socket(int r) {
    if (r == S) page_spliced(S), ck(socketpair(AF_UNIX, SOCK_STREAM, 0, q)), must(ck(splice(p[0], 0, q[1], 0, 5, 0)) == 5);
    else page_teed(r);
}
static void page_sent_to_pipe(int r) {
    if (r == S) fd = other(), ck(pipe(p)), must(ck(sendfile(p[1], fd, 0, 5)) == 5); else page_spliced(r);
}
static void page_sent_to_unix(int r) {
    if (r == S) fd = other(), ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p)), must(ck(sendfile(p[1], fd, 0, 5)) == 5);
    else page_spliced(r);
}
static void page_sent_to_tcp(int r) {
    if (r == S) fd = other(), connect_tcp(), must(ck(sendfile(p[1], fd, 0, 5)) == 5); else page_spliced(r);
}
static void page_sent_to_fifo(int r) {
    if (r == S) {
        fd = other(), p[0] = ck(open("fifo", O_RDONLY | O_NONBLOCK)), p[1] = ck(open("fifo", O_WRONLY));
        must(ck(sendfile(p[1], fd, 0, 5)) == 5);
    } else page_spliced(r);
}
static void page_of_memory(int r) { // Of a file that is on no disk.
    if (r == S) {
        fd = ck(memfd_create("memory", 0)), ck(pwrite(fd, "other", 5, 0)), ck(pipe(p));
        must(ck(splice(fd, 0, p[1], 0, 5, 0)) == 5);
    } else page_spliced(r);
}
static void page_emptied(int r) { // A makes the file shorter: the kernel clears the rest of the page.
    if (r == A) dirty(), ck(ftruncate(fd, 1)), ck(ftruncate(fd, 5)); else page_spliced(r);
}
static void page_stored(int r) { // A stores without a call.
    if (r == A) { dirty(); char *at = shared(0, fd); *at = 'X'; } else page_spliced(r);
}
static void page_of_a(int r) { // A stores in memory that it has sent.
    static char page[4096] __attribute__((aligned(4096)));
    struct iovec part = {page, 5};
    if (r == S) ck(pipe(p));
    if (r == A) { memcpy(page, "other", 5); must(ck(vmsplice(p[1], &part, 1, 0)) == 5); dirty(); page[0] = 'X'; }
    if (r == B) is_as_sent(p[0]);
}
static void page_given(int r) {
    static char page[4096] __attribute__((aligned(4096)));
    struct iovec part = {page, 4096};
    if (r == A) { memcpy(page, "other", 5); must(ck(vmsplice(p[1], &part, 1, SPLICE_F_GIFT)) == 4096); dirty(); page[0] = 'X'; }
    else page_of_a(r);
}

// What was sent does depend on what was done before.
static void sent_after(int r) {
    if (r == S) ck(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    if (r == A) { int f = other(); changes(f); ck(sendfile(p[1], f, 0, 1)); }
    if (r == B) { must(ck(read(p[0], buf, 1)) == 1); saw(); }
}
static void spliced_after(int r) { // B sends on what A wrote: the offset that they share tells as well.
    if (r == S) fd = other(), ck(pipe(p));
    if (r == A) changes(fd);
    if (r == B) { later(); must(ck(splice(fd, 0, p[1], 0, 1, 0)) == 1); must(ck(read(p[0], buf, 1)) == 1 && *buf == 'X'); saw(); }
}
static void vmspliced_to_memory(int r) { // The other direction: B takes what A wrote.
    struct iovec part = {buf, 1};
    if (r == S) ck(pipe(p));
    if (r == A) dirty(), ck(write(p[1], "x", 1));
    if (r == B) { must(ck(vmsplice(p[0], &part, 1, 0)) == 1); saw(); }
}

CASES(transfers) = {
    FR(page_spliced), FR(page_spliced_by_name), FR(page_spliced_offset), FR(page_teed), FR(page_spliced_on), FR(page_spliced_to_socket),
    FR(page_sent_to_pipe), FR(page_sent_to_unix), FR(page_sent_to_tcp), FR(page_sent_to_fifo), FR(page_of_memory), FR(page_emptied),
    FR(page_stored), FR(page_of_a), FR(page_given), CH(sent_after), CH(spliced_after), CH(vmspliced_to_memory),
};
