// Pages that pass from hand to hand: what a pipe or a socket holds is what was there when it was sent; and memory
// that is shared in other ways.
#include "harness.h"

// The parent sends "other" before anybody changes anything. What A stores there later is no part of it: B learns
// nothing.
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

// Memory that is shared in other ways.
static void zero_store(int r) {
    if (r == S) word = shared(0, ck(open("/dev/zero", O_RDWR)));
    if (r == A) dirty(), *word = 1;
    if (r == B) { while (!*word) ms(1); saw(); }
}
static void zero_fork(int r) { // The one who prints is a child that was born later.
    if (r != B) { zero_store(r); return; }
    later();
    pid_t child = ck(fork());
    if (!child) ck(prctl(PR_SET_PDEATHSIG, SIGKILL)), zero_store(B), _exit(0);
    ck(waitpid(child, 0, 0));
}
static void zero_futex(int r) {
    if (r == A) dirty(), *word = 1, ck(syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0));
    else if (r == B) { while (!*word) syscall(SYS_futex, word, FUTEX_WAIT, 0, 0, 0, 0); saw(); }
    else zero_store(r);
}
static const volatile char *looked_at;
static void look_at(const char *name) { // A descriptor that only reads.
    int f = ck(open(name, O_RDONLY));
    looked_at = mmap(0, 4096, PROT_READ, MAP_SHARED, f, 0);
    must(looked_at != MAP_FAILED);
    ck(close(f));
}
static void watched_fork(int r) { // The parent has mapped the file; its children only have the mapping.
    if (r == S) look_at("data");
    if (r == A) dirty();
    if (r == B) { while (*looked_at != 'n') ms(1); saw(); }
}
static void watched_grandchild(int r) {
    if (r != B) { watched_fork(r); return; }
    pid_t child = ck(fork());
    if (!child) ck(prctl(PR_SET_PDEATHSIG, SIGKILL)), watched_fork(B), _exit(0);
    ck(waitpid(child, 0, 0));
}
static void watched_memory(int r) {
    if (r == S) {
        char name[32];
        fd = ck(memfd_create("memory", 0)), ck(pwrite(fd, "old", 3, 0));
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd), look_at(name);
    }
    if (r == A) dirty(), ck(pwrite(fd, "new", 3, 0));
    if (r == B) watched_fork(r);
}

// A core is a change that no call makes.
static void leave_core(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    char pattern[16] = "";
    int f = ck(open("/proc/sys/kernel/core_pattern", O_RDONLY));
    ck(read(f, pattern, sizeof pattern - 1)), close(f);
    if (strncmp(pattern, "core", 4)) dirty(), put("sub/core", "", 0600), _exit(0); // Cores are no files here.
    ck(chdir("sub")), ck(setrlimit(RLIMIT_CORE, &all));
    abort();
}
static int has_core(void) {
    int found = 0;
    DIR *dir = opendir("sub");
    must(dir);
    for (struct dirent *entry; (entry = readdir(dir));) found |= !strncmp(entry->d_name, "core", 4);
    closedir(dir);
    return found;
}
static void core_named(int r) {
    if (r == A) leave_core();
    if (r == B) { while (!has_core()) ms(1); saw(); }
}
static void core_waited(int r) { // B is the parent: that there is one is all that it learns.
    int status;
    if (r == A) leave_core();
    if (r == B) ck(waitpid(pid_a, &status, 0)), saw();
}
static void core_of_grandchild(int r) { // A waits for who leaves it, and tells B.
    if (r == S) ck(pipe(p));
    if (r == A) {
        pid_t child = ck(fork());
        if (!child) leave_core();
        ck(waitpid(child, 0, 0)), ck(write(p[1], "x", 1));
    }
    if (r == B) { must(ck(read(p[0], buf, 1)) == 1); saw(); }
}

static void handle_emptied(int r) { // A empties the file without a name.
    static struct { struct file_handle handle; unsigned char bytes[128]; } found = {.handle.handle_bytes = 128};
    struct stat stat;
    int mount;
    if (r == A) {
        int handle = name_to_handle_at(AT_FDCWD, "data", &found.handle, &mount, 0);
        int f = handle ? -1 : open_by_handle_at(ck(open(".", O_RDONLY)), &found.handle, O_WRONLY | O_TRUNC);
        if (f < 0) ck(truncate("data", 0)); // Only root may.
    }
    if (r == B) { do ms(1), ck(fstat(fd, &stat)); while (stat.st_size); saw(); }
    if (r == S) fd = ck(open("data", O_RDONLY));
}

CASES(transfers) = {
    FR(page_spliced), FR(page_spliced_by_name), FR(page_spliced_offset), FR(page_teed), FR(page_spliced_on),
    FR(page_spliced_to_socket),
    FR(page_sent_to_pipe), FR(page_sent_to_unix), FR(page_sent_to_tcp), FR(page_sent_to_fifo), FR(page_of_memory),
    FR(page_emptied),
    FR(page_stored), FR(page_of_a), FR(page_given), CH(sent_after), CH(spliced_after), CH(vmspliced_to_memory),
    CH(zero_store), CH(zero_fork), CH(zero_futex),
    CH(watched_fork), CH(watched_grandchild), CH(watched_memory), EX(core_named), PA(core_waited),
    CH(core_of_grandchild), CH(handle_emptied),
};
