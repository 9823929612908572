/* The workloads of the crash disk (002, 4.2 and relatives): appends numbered blocks to files and tells the number of each,
 * once it is written, to whoever watches. What a block holds follows from its number, so that a reader can tell a block
 * from garbage.
 *
 *   crash-workload KIND DIR [--count N] [--size BYTES] [--sync none|fsync|osync] [--pause-us N] [--to stdout|udp:PORT|tcp:PORT]
 *
 *   writer    one process, one file
 *   pipeline  A appends to `a`, tells B; B appends to `b`, tells C; C prints
 *   tcp       a client asks a server over loopback, which appends to `server` and answers; the client appends to `client`, prints
 *   threads   four threads take turns to append to their own files; a fifth prints
 *   files     makes each block a file of its own: written under another name, then renamed
 *   sendfile  a process writes number after number into one place of a file; another one sends that place with sendfile(2)
 *   splice    the same with splice(2), through a pipe of its own
 *   core      a process ends with a core that holds a block; its parent, which changes nothing, tells the number
 *   early     like writer, but tells a number between the write and the fsync: what must be found out
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum synchrony { SYNC_NONE, SYNC_FSYNC, SYNC_OPEN };

static const char *kind, *dir;
static uint32_t count = 200;
static size_t size = 1000;
static useconds_t pause_us;
static enum synchrony synchrony = SYNC_NONE;
static int out = STDOUT_FILENO;
static int early;

static void fail(const char *what) {
    fprintf(stderr, "crash-workload %s: %s: %s\n", kind, what, strerror(errno));
    exit(1);
}

/* xorshift64*, as in src/workload/blocks.rs */
static void fill_block(unsigned char *block, uint64_t number) {
    uint64_t state = (number + 1) * 0x9E3779B97F4A7C15ull;
    memcpy(block, "SPECBLK\n", 8);
    memcpy(block + 8, &number, 8);
    for (size_t at = 16; at < size; at++) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        block[at] = (unsigned char)((state * 0x2545F4914F6CDD1Dull) >> 56);
    }
}

static void write_all(int fd, const void *from, size_t len) {
    const char *at = from;
    while (len > 0) {
        ssize_t done = write(fd, at, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            fail("write");
        at += done;
        len -= (size_t)done;
    }
}

/* False at end of file. */
static int read_all(int fd, void *to, size_t len) {
    char *at = to;
    while (len > 0) {
        ssize_t done = read(fd, at, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            fail("read");
        if (done == 0)
            return 0;
        at += done;
        len -= (size_t)done;
    }
    return 1;
}

static int open_in_dir(const char *name, int extra) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | extra | (synchrony == SYNC_OPEN ? O_SYNC : 0);
    int fd = open(path, flags, 0644);
    if (fd < 0)
        fail(path);
    return fd;
}

/* A new file's name is only as durable as its directory. */
static void sync_dir(void) {
    if (synchrony == SYNC_NONE)
        return;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        fail(dir);
    close(fd);
}

static int open_log(const char *name) {
    int fd = open_in_dir(name, O_APPEND);
    sync_dir();
    return fd;
}

static void tell(uint64_t number) {
    char line[32];
    int len = snprintf(line, sizeof line, "%llu\n", (unsigned long long)number);
    write_all(out, line, (size_t)len);
}

static void append_block(int fd, uint64_t number) {
    unsigned char *block = malloc(size);
    if (!block)
        fail("malloc");
    fill_block(block, number);
    write_all(fd, block, size);
    free(block);
    if (early)
        tell(number);
    if (synchrony == SYNC_FSYNC && fsync(fd) < 0)
        fail("fsync");
}

static void take_a_break(void) {
    if (pause_us)
        usleep(pause_us);
}

static struct sockaddr_in loopback(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int connect_to(int type, uint16_t port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    return fd;
}

static void run_writer(void) {
    int fd = open_log("blocks");
    for (uint32_t n = 0; n < count; n++) {
        append_block(fd, n);
        if (!early)
            tell(n);
        take_a_break();
    }
}

static void run_early(void) {
    early = 1;
    run_writer();
}

static void run_files(void) {
    for (uint32_t n = 0; n < count; n++) {
        char from[4096], to[4096];
        snprintf(from, sizeof from, "%s/new", dir);
        snprintf(to, sizeof to, "%s/%u.done", dir, n);
        int fd = open_in_dir("new", O_EXCL);
        append_block(fd, n);
        close(fd);
        if (rename(from, to) < 0)
            fail("rename");
        sync_dir();
        tell(n);
        take_a_break();
    }
}

/* Appends what comes in to `name` and passes it on; to `out` when there is no next. */
static void run_stage(const char *name, int from, int to) {
    int fd = name ? open_log(name) : -1;
    uint64_t n;
    while (read_all(from, &n, sizeof n)) {
        if (fd >= 0)
            append_block(fd, n);
        if (to >= 0)
            write_all(to, &n, sizeof n);
        else
            tell(n);
    }
}

static void wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "crash-workload %s: a child failed: %d\n", kind, status);
        exit(1);
    }
}

static pid_t fork_or_fail(void) {
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    return child;
}

static void run_pipeline(void) {
    int ab[2], bc[2];
    if (pipe(ab) < 0 || pipe(bc) < 0)
        fail("pipe");
    pid_t b = fork_or_fail();
    if (b == 0) {
        close(ab[1]);
        close(bc[0]);
        run_stage("b", ab[0], bc[1]);
        exit(0);
    }
    pid_t c = fork_or_fail();
    if (c == 0) {
        close(ab[0]);
        close(ab[1]);
        close(bc[1]);
        run_stage(NULL, bc[0], -1);
        exit(0);
    }
    close(ab[0]);
    close(bc[0]);
    close(bc[1]);
    int fd = open_log("a");
    for (uint64_t n = 0; n < count; n++) {
        append_block(fd, n);
        write_all(ab[1], &n, sizeof n);
        take_a_break();
    }
    close(ab[1]);
    wait_for(b);
    wait_for(c);
}

static void serve(int listener) {
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0)
        fail("accept");
    int one = 1;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    run_stage("server", peer, peer);
}

static void run_tcp(void) {
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) < 0)
        fail("listen");
    pid_t server = fork_or_fail();
    if (server == 0) {
        serve(listener);
        exit(0);
    }
    close(listener);
    int fd = open_log("client");
    int peer = connect_to(SOCK_STREAM, ntohs(address.sin_port));
    int one = 1;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (uint64_t n = 0; n < count; n++) {
        uint64_t answer;
        write_all(peer, &n, sizeof n);
        if (!read_all(peer, &answer, sizeof answer) || answer != n)
            fail("answer");
        append_block(fd, n);
        tell(n);
        take_a_break();
    }
    close(peer);
    wait_for(server);
}

/* Twice in a line, so that one that was read while it was written is known for what it is. */
#define RECORD_LEN 14
#define BURST 50

static void write_records(int fd) {
    char record[RECORD_LEN + 1];
    for (unsigned n = 1; n < 1000000; n++) {
        snprintf(record, sizeof record, "%06u %06u\n", n, n);
        if (pwrite(fd, record, RECORD_LEN, 0) != RECORD_LEN)
            fail("pwrite");
        if (n % BURST == 0)
            usleep(500);
    }
}

static void send_record(int fd, int through[2]) {
    off_t at = 0;
    loff_t from = 0;
    if (!through) {
        if (sendfile(out, fd, &at, RECORD_LEN) != RECORD_LEN)
            fail("sendfile");
    } else if (splice(fd, &from, through[1], NULL, RECORD_LEN, 0) != RECORD_LEN ||
               splice(through[0], NULL, out, NULL, RECORD_LEN, 0) != RECORD_LEN)
        fail("splice");
}

static void run_race(int through[2]) {
    char path[4096];
    snprintf(path, sizeof path, "%s/record", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || pwrite(fd, "000000 000000\n", RECORD_LEN, 0) != RECORD_LEN || fsync(fd) < 0)
        fail(path);
    pid_t writer = fork_or_fail();
    if (writer == 0) {
        write_records(fd);
        exit(0);
    }
    for (uint32_t n = 0; n < count; n++) {
        send_record(fd, through);
        take_a_break();
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
}

static void run_sendfile(void) { run_race(NULL); }

static void run_splice(void) {
    int through[2];
    if (pipe(through) < 0)
        fail("pipe");
    run_race(through);
}

/* As in src/workload.rs: so many fit on the disk. */
#define CORES_MAX 30

static void leave_core(uint64_t number) {
    char path[4096];
    /* Its own memory only, so that all cores have room (core(5)). */
    int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (filter < 0 || write(filter, "1", 1) != 1 || close(filter) < 0)
        fail("coredump_filter");
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    unsigned char *block = malloc(size);
    snprintf(path, sizeof path, "%s/%llu", dir, (unsigned long long)number);
    if (!block || chdir(path) < 0 || setrlimit(RLIMIT_CORE, &all) < 0)
        fail(path);
    fill_block(block, number);
    abort();
}

static void run_core(void) {
    uint64_t cores = count < CORES_MAX ? count : CORES_MAX;
    for (uint64_t n = 0; n < cores; n++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%llu", dir, (unsigned long long)n);
        if (mkdir(path, 0755) < 0)
            fail(path);
    }
    sync();
    for (uint64_t n = 0; n < cores; n++) {
        int status;
        pid_t child = fork_or_fail();
        if (child == 0)
            leave_core(n);
        if (waitpid(child, &status, 0) < 0 || !WIFSIGNALED(status) || !WCOREDUMP(status))
            fail("there is no core");
        tell(n);
        take_a_break();
    }
}

#define THREADS 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t next_number, told;

static void *append_in_turn(void *name) {
    int fd = open_log(name);
    for (int more = 1; more;) {
        pthread_mutex_lock(&lock);
        more = next_number < count;
        if (more) {
            append_block(fd, next_number);
            next_number++;
            pthread_cond_signal(&changed);
        }
        pthread_mutex_unlock(&lock);
        take_a_break();
    }
    return NULL;
}

static void *print_in_order(void *unused) {
    while (told < count) {
        pthread_mutex_lock(&lock);
        while (told == next_number)
            pthread_cond_wait(&changed, &lock);
        uint64_t upto = next_number;
        pthread_mutex_unlock(&lock);
        while (told < upto)
            tell(told++);
    }
    return unused;
}

static void run_threads(void) {
    static char names[THREADS][16];
    pthread_t threads[THREADS + 1];
    for (int i = 0; i < THREADS; i++) {
        snprintf(names[i], sizeof names[i], "thread-%d", i);
        if (pthread_create(&threads[i], NULL, append_in_turn, names[i]) != 0)
            fail("pthread_create");
    }
    if (pthread_create(&threads[THREADS], NULL, print_in_order, NULL) != 0)
        fail("pthread_create");
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void set_option(const char *name, const char *value) {
    if (strcmp(name, "--count") == 0)
        count = (uint32_t)strtoul(value, NULL, 10);
    else if (strcmp(name, "--size") == 0 && strtoul(value, NULL, 10) >= 16)
        size = strtoul(value, NULL, 10);
    else if (strcmp(name, "--pause-us") == 0)
        pause_us = (useconds_t)strtoul(value, NULL, 10);
    else if (strcmp(name, "--sync") == 0)
        synchrony = strcmp(value, "fsync") == 0 ? SYNC_FSYNC : strcmp(value, "osync") == 0 ? SYNC_OPEN : SYNC_NONE;
    else if (strcmp(name, "--to") == 0 && strncmp(value, "udp:", 4) == 0)
        out = connect_to(SOCK_DGRAM, (uint16_t)atoi(value + 4));
    else if (strcmp(name, "--to") == 0 && strncmp(value, "tcp:", 4) == 0)
        out = connect_to(SOCK_STREAM, (uint16_t)atoi(value + 4));
    else if (strcmp(name, "--to") != 0 || strcmp(value, "stdout") != 0) {
        fprintf(stderr, "crash-workload: %s %s?\n", name, value);
        exit(2);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *kind;
        void (*run)(void);
    } kinds[] = {{"writer", run_writer}, {"pipeline", run_pipeline}, {"tcp", run_tcp}, {"threads", run_threads}, {"files", run_files}, {"sendfile", run_sendfile}, {"splice", run_splice}, {"core", run_core}, {"early", run_early}};
    if (argc < 3 || argc % 2 == 0) {
        fprintf(stderr, "usage: crash-workload KIND DIR [--OPTION VALUE]...\n");
        return 2;
    }
    kind = argv[1];
    dir = argv[2];
    for (int i = 3; i + 1 < argc; i += 2)
        set_option(argv[i], argv[i + 1]);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i].kind) == 0) {
            kinds[i].run();
            return 0;
        }
    fprintf(stderr, "crash-workload: no workload %s\n", kind);
    return 2;
}
