/* open with O_CREAT where files were made before: what is there already, links, FIFOs, directories, names that cannot be read, and signals in between; and the
 * calls that make other names. */
#include "check.h"

static const int kinds[] = {0, O_TRUNC, O_APPEND, O_TRUNC | O_APPEND};
static const char *volatile nothing;
static char *page; /* Two pages; behind them none that can be read. */

static int make(const char *name, int flags) { return open(name, O_WRONLY | O_CREAT | flags, 0644); }

/* The name, so that its end (with or without its zero) is the end of what can be read, or the end of the first page. */
static char *at_end(char *end, const char *name, int with_zero) { return memcpy(end - strlen(name) - with_zero, name, strlen(name) + with_zero); }

static void show(const char *what, int fd) {
    struct stat s;
    if (fd < 0) { printf("%s: errno %d\n", what, errno); return; }
    EQUAL(write(fd, "+", 1), 1);
    OK(fsync(fd));
    OK(fstat(fd, &s));
    printf("%s: size %ld links %d flags %o\n", what, (long)s.st_size, (int)s.st_nlink, (int)OK(fcntl(fd, F_GETFL)));
    OK(close(fd));
}

static void every_name(int flags) {
    char long_name[5000];
    memset(long_name, 'x', sizeof long_name - 1); long_name[sizeof long_name - 1] = 0;
    write_file("old", "old"); OK(symlink("old", "link")); OK(symlink("target", "dangling")); OK(mkfifo("fifo", 0600)); OK(mkdir("dir", 0755));
    show("new", make("new", flags)); show("new again", make("new 2", flags));
    show("old", make("old", flags)); show("new after old", make("new 3", flags)); show("new once more", make("dir/new", flags));
    show("link", make("link", flags)); show("new 4", make("new 4", flags)); show("new 5", make("new 5", flags));
    show("dangling", make("dangling", flags)); show("target", open("target", O_WRONLY)); show("new 6", make("new 6", flags)); show("new 7", make("new 7", flags));
    int fifo = OK(open("fifo", O_RDWR | O_CREAT | flags, 0600)); EQUAL(write(fifo, "x", 1), 1); OK(close(fifo));
    show("new 8", make("new 8", flags)); show("new 9", make("new 9", flags));
    show("directory", make("dir", flags)); show("in a file", make("old/x", flags)); show("nowhere", make("no/x", flags)); show("slash", make("new 10/", flags));
    show("empty", make("", flags)); show("long", make(long_name, flags)); show("long component", make(long_name + 4000, flags)); show("dot", make(".", flags));
    show("null", make(nothing, flags)); show("nobody", make((char *)8, flags)); show("kernel", make((char *)-4096, flags));
    show("cut off", make(at_end(page + 8192, "cut off", 0), flags)); show("to the end", make(at_end(page + 8192, "to the end", 1), flags));
    at_end(page + 4096, "across ", 0); strcpy(page + 4096, "pages"); show("across pages", make(page + 4096 - 7, flags));
    show("exclusive", make("exclusive", flags | O_EXCL)); show("exclusive again", make("exclusive", flags | O_EXCL)); show("exclusive link", make("dangling", flags | O_EXCL));
    show("exclusive null", make(nothing, flags | O_EXCL)); show("no follow", make("link", flags | O_NOFOLLOW));
    show("synchronous", make("synchronous", flags | O_SYNC)); show("creat", creat("new", 0600));
    fflush(stdout);
    OK(system("rm -r -- *") == 0 ? 0 : -1);
}

static void other_names(void) {
    OK(symlink("nowhere", "dangling")); OK(mkdir("dir", 0755));
    FAILS(mkdir("dangling", 0755), EEXIST); FAILS(mkdir("dir", 0755), EEXIST); FAILS(mkdir(nothing, 0755), EFAULT); FAILS(mkdir("no/dir", 0755), ENOENT); FAILS(mkdir("/", 0755), EEXIST);
    FAILS(mkdir("/proc/self", 0755), EEXIST); FAILS(mkdir("", 0755), ENOENT); OK(mkdir("dir/with slash/", 0755)); FAILS(mkdirat(77, "x", 0755), EBADF);
    FAILS(symlink("x", "dir"), EEXIST); FAILS(symlink("x", at_end(page + 8192, "cut off", 0)), EFAULT); FAILS(symlink(nothing, "x"), EFAULT);
    FAILS(mknod("dangling", S_IFREG | 0600, 0), EEXIST); OK(mknod("dir/regular", S_IFREG | 0600, 0)); FAILS(mknod(nothing, S_IFREG, 0), EFAULT);
    fflush(stdout);
    OK(system("ls -R; rm -r -- *") == 0 ? 0 : -1);
}

static volatile sig_atomic_t signals;
static void count(int signal) { (void)signal; signals++; }

/* New and old names by turns, with signals all the time; a FIFO whose other end opens late. */
static void with_signals(void) {
    on_signal(SIGALRM, count, SA_RESTART);
    OK(mkfifo("fifo", 0600));
    OK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 300}, {0, 300}}, NULL));
    for (int i = 0; i < 400; i++) {
        char name[32];
        snprintf(name, sizeof name, "file %d", i % 3 ? i : i / 2);
        int fd = OK(make(name, i % 2 ? O_TRUNC : O_APPEND));
        EQUAL(write(fd, name, strlen(name)), strlen(name));
        OK(close(fd));
    }
    pid_t child = OK(fork());
    if (child == 0) {
        sleep_ms(50);
        int reader = OK(open("fifo", O_RDONLY));
        char byte;
        EQUAL(read(reader, &byte, 1), 1);
        _exit(byte);
    }
    int writer = OK(make("fifo", O_TRUNC));
    EQUAL(write(writer, "\7", 1), 1);
    OK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    EQUAL(wait_for(child), 7);
    printf("signals came: %d\n", signals > 0);
}

int main(void) {
    page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    OK(mprotect(page + 8192, 4096, PROT_NONE));
    OK(mkdir("work", 0755)); OK(chdir("work"));
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) every_name(kinds[i]);
    other_names();
    with_signals();
    return 0;
}
