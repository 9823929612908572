/* What is written to a file comes from pages of a file that a FUSE server inside serves, which itself writes to a disk and waits before it answers. */
#include "check.h"
#include <linux/fuse.h>
#include <mqueue.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#define LEN (40 * 4096)

static unsigned char byte_at(long at) { return at * 13 + at / 4096; }

static void answer(int device, uint64_t unique, const void *body, size_t len) {
    struct fuse_out_header header = {.len = sizeof header + len, .unique = unique};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)body, len}};
    OK(writev(device, parts, 2));
}
/* The root of the file system is a file. */
static struct fuse_attr attributes(void) { return (struct fuse_attr){.ino = 1, .size = LEN, .blocks = LEN / 512, .mode = S_IFREG | 0644, .nlink = 1, .blksize = 4096}; }

/* Before it answers a read it depends on a change, and waits for whatever that takes. */
static void wait_for_change(void) {
    static int log = -1;
    if (log < 0) log = OK(open("log", O_WRONLY | O_CREAT | O_APPEND, 0644));
    EQUAL(write(log, "read\n", 5), 5);
    mq_unlink("/no-such-queue-of-served-page-write");
}
static void serve(int device) {
    static char request[1 << 17], data[1 << 17];
    for (;;) {
        ssize_t n = read(device, request, sizeof request);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) _exit(0);
        struct fuse_in_header *in = (void *)request;
        struct fuse_read_in *read_in = (void *)(in + 1);
        if (in->opcode == FUSE_INIT) {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = 1 << 16, .max_readahead = 4096};
            answer(device, in->unique, &out, sizeof out);
        } else if (in->opcode == FUSE_GETATTR) {
            struct fuse_attr_out out = {.attr = attributes()};
            answer(device, in->unique, &out, sizeof out);
        } else if (in->opcode == FUSE_OPEN) {
            struct fuse_open_out out = {.fh = 1};
            answer(device, in->unique, &out, sizeof out);
        } else if (in->opcode == FUSE_READ) {
            wait_for_change();
            long left = LEN - (long)read_in->offset, len = left < (long)read_in->size ? left : (long)read_in->size;
            for (long i = 0; i < len; i++) data[i] = byte_at(read_in->offset + i);
            answer(device, in->unique, data, len);
        } else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_BATCH_FORGET && in->opcode != FUSE_INTERRUPT) {
            int error = in->opcode == FUSE_FLUSH || in->opcode == FUSE_RELEASE ? 0 : -ENOSYS;
            struct fuse_out_header header = {.len = sizeof header, .unique = in->unique, .error = error};
            OK(write(device, &header, sizeof header));
        }
    }
}
static void check_file(int fd, long offset, long from, long len) {
    static unsigned char got[LEN];
    EQUAL(pread(fd, got, len, offset), len);
    for (long i = 0; i < len; i++) if (got[i] != byte_at(from + i)) FAIL("byte %ld is another one", i);
}

int main(void) {
    char options[64];
    write_file("point", "");
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return printf("cannot serve: %s\n", strerrorname_np(errno)), 0;
    snprintf(options, sizeof options, "fd=%d,rootmode=100644,user_id=0,group_id=0", device);
    if (mount("served", "point", "fuse", 0, options) < 0) return printf("cannot mount: %s\n", strerrorname_np(errno)), 0;
    pid_t server = OK(fork());
    if (!server) prctl(PR_SET_PDEATHSIG, SIGKILL), serve(device);
    close(device);
    int served = OK(open("point", O_RDONLY)), out = OK(open("copy", O_RDWR | O_CREAT, 0644));
    struct stat known;
    OK(fstat(served, &known)); /* From here on the kernel knows how long it is. */
    EQUAL(known.st_size, LEN);
    char *at = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE, served, 0);
    CHECK(at != MAP_FAILED);
    EQUAL(write(out, at, 5 * 4096), 5 * 4096);
    check_file(out, 0, 0, 5 * 4096);
    EQUAL(pwrite(out, at + 5 * 4096, 100, 7), 100);
    check_file(out, 7, 5 * 4096, 100);
    struct iovec parts[3] = {{at + 6 * 4096, 10}, {NULL, 0}, {at + 7 * 4096, 20000}};
    EQUAL(lseek(out, 0, SEEK_SET), 0);
    EQUAL(writev(out, parts, 3), 20010);
    check_file(out, 0, 6 * 4096, 10);
    check_file(out, 10, 7 * 4096, 20000);
    EQUAL(lseek(out, 0, SEEK_CUR), 20010);
    EQUAL(pwritev(out, parts, 3, 100), 20010);
    parts[0].iov_base = at + 20 * 4096;
    EQUAL(pwritev2(out, parts, 1, 0, RWF_DSYNC), 10);
    check_file(out, 0, 20 * 4096, 10);
    int appends = OK(open("copy", O_WRONLY | O_APPEND));
    long end = lseek(out, 0, SEEK_END);
    EQUAL(write(appends, at + 21 * 4096, 18 * 4096), 18 * 4096);
    check_file(out, end, 21 * 4096, 18 * 4096);
    EQUAL(write(out, at, 0), 0);
    void *volatile nowhere = (void *)8;
    FAILS(write(out, nowhere, 10), EFAULT);
    FAILS(pwrite(out, at, 10, -1), EINVAL);
    FAILS(write(served, at, 10), EBADF);
    off_t offset = 39 * 4096;
    EQUAL(syscall(SYS_sendfile, out, served, &offset, 5000), 4096);
    EQUAL(offset, LEN);
    puts("written");
    munmap(at, LEN), close(served);
    OK(umount2("point", MNT_DETACH));
    OK(kill(server, SIGKILL));
    wait_for(server);
    return 0;
}
