/* Threads use files, directories, pipes, sockets and counters of their own in an order drawn by chance, while calls of
   the first thread make checkpoints: each of them finds what it has left. */
#include "check.h"
#include <dirent.h>
#include <sys/eventfd.h>
enum { WORKERS = 4, ROUNDS = 60, LEN = 600 };
static volatile int left = WORKERS;
typedef struct {
    unsigned number, state, version, appended, log_len;
    int log, kept;
    char name[16], other[16], dir[16];
} Worker;
static unsigned draw(Worker *worker, unsigned below) {
    worker->state = worker->state * 1664525u + 1013904223u;
    return (worker->state >> 10) % below;
}
static uint8_t pattern(Worker *worker, unsigned at) {
    return (uint8_t)(worker->number * 31 + worker->version * 7 + at);
}
static void fill(Worker *worker, uint8_t *part, unsigned at, unsigned len) {
    for (unsigned i = 0; i < len; i++) part[i] = pattern(worker, at + i);
}
static void compare(Worker *worker, const uint8_t *part, unsigned at, unsigned len) {
    for (unsigned i = 0; i < len; i++) EQUAL(part[i], pattern(worker, at + i));
}
static void write_anew(Worker *worker) {
    uint8_t all[LEN];
    worker->version++;
    fill(worker, all, 0, LEN);
    int fd = OK(open(worker->name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    EQUAL(write(fd, all, LEN / 2), LEN / 2);
    EQUAL(write(fd, all + LEN / 2, LEN / 2), LEN / 2);
    if (draw(worker, 4) == 0) OK(fsync(fd));
    OK(close(fd));
}
static void read_parts(Worker *worker) {
    uint8_t part[50];
    int fd = OK(open(worker->name, O_RDONLY | O_CLOEXEC));
    unsigned at = draw(worker, LEN - 2 * sizeof part);
    EQUAL(lseek(fd, at, SEEK_SET), at);
    EQUAL(read(fd, part, sizeof part), sizeof part);
    compare(worker, part, at, sizeof part);
    int again = OK(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    OK(close(fd));
    EQUAL(read(again, part, sizeof part), sizeof part);
    compare(worker, part, at + sizeof part, sizeof part);
    EQUAL(lseek(again, 0, SEEK_CUR), at + 2 * sizeof part);
    EQUAL(pread(again, part, sizeof part, LEN - 10), 10);
    OK(close(again));
}
static void use_channel(Worker *worker, int is_socket) {
    int fds[2];
    uint8_t sent[40], found[80];
    fill(worker, sent, 3, sizeof sent);
    if (is_socket) OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    else OK(pipe2(fds, O_CLOEXEC));
    EQUAL(write(fds[1], sent, sizeof sent), sizeof sent);
    EQUAL(read(fds[0], found, 15), 15);
    int moved = OK(dup(fds[0]));
    OK(close(fds[0]));
    EQUAL(read(moved, found + 15, sizeof found - 15), sizeof sent - 15);
    CHECK(memcmp(sent, found, sizeof sent) == 0);
    OK(close(fds[1]));
    EQUAL(read(moved, found, 1), 0);
    OK(close(moved));
}
static void use_directory(Worker *worker) {
    char inner[40], second[40];
    unsigned count = 0;
    snprintf(inner, sizeof inner, "%s/one", worker->dir);
    snprintf(second, sizeof second, "%s/two", worker->dir);
    OK(mkdir(worker->dir, 0700));
    OK(close(OK(open(inner, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600))));
    OK(link(inner, second));
    DIR *dir = opendir(worker->dir);
    CHECK(dir != NULL);
    while (readdir(dir)) count++;
    EQUAL(count, 4);
    OK(closedir(dir));
    struct stat found;
    OK(stat(second, &found));
    EQUAL(found.st_nlink, 2);
    OK(unlink(inner));
    FAILS(rmdir(worker->dir), ENOTEMPTY);
    OK(unlink(second));
    OK(rmdir(worker->dir));
    FAILS(stat(worker->dir, &found), ENOENT);
}
static void move(Worker *worker) {
    struct stat found;
    OK(rename(worker->name, worker->other));
    FAILS(open(worker->name, O_RDONLY | O_CLOEXEC), ENOENT);
    OK(stat(worker->other, &found));
    EQUAL(found.st_size, LEN);
    OK(rename(worker->other, worker->name));
    OK(stat(worker->name, &found));
    EQUAL(found.st_size, LEN);
}
static void append(Worker *worker) {
    struct stat found;
    uint8_t part[20];
    fill(worker, part, 0, sizeof part);
    EQUAL(write(worker->log, part, sizeof part), sizeof part);
    worker->log_len += sizeof part;
    OK(fstat(worker->log, &found));
    EQUAL(found.st_size, worker->log_len);
    uint8_t again[sizeof part];
    EQUAL(pread(worker->log, again, sizeof again, worker->log_len - sizeof again), sizeof again);
    CHECK(memcmp(part, again, sizeof again) == 0);
    if (worker->log_len > 400) {
        OK(ftruncate(worker->log, worker->log_len = 7));
        OK(fstat(worker->log, &found));
        EQUAL(found.st_size, 7);
    }
}
static void map(Worker *worker) {
    int fd = OK(open(worker->name, O_RDONLY | O_CLOEXEC));
    uint8_t *mapped = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED);
    OK(close(fd));
    compare(worker, mapped, 0, LEN);
    OK(munmap(mapped, LEN));
}
static void count(Worker *worker) {
    uint64_t value = 1 + draw(worker, 9), found = 0;
    int fd = OK(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    EQUAL(write(fd, &value, sizeof value), sizeof value);
    EQUAL(read(fd, &found, sizeof found), sizeof found);
    EQUAL(found, value);
    FAILS(read(fd, &found, sizeof found), EAGAIN);
    OK(close(fd));
}
/* One number is replaced again and again. */
static void replace(Worker *worker) {
    uint8_t part[30];
    int fd = OK(open(worker->name, O_RDONLY | O_CLOEXEC));
    EQUAL(lseek(fd, 5, SEEK_SET), 5);
    EQUAL(dup3(fd, worker->kept, O_CLOEXEC), worker->kept);
    OK(close(fd));
    EQUAL(read(worker->kept, part, sizeof part), sizeof part);
    compare(worker, part, 5, sizeof part);
    EQUAL(lseek(worker->kept, 0, SEEK_CUR), 5 + sizeof part);
}
static void *work(void *argument) {
    Worker *worker = argument;
    for (int round = 0; round < rounds(ROUNDS * 2); round++) {
        switch (draw(worker, 12)) {
        case 0: write_anew(worker); break;
        case 1: use_channel(worker, 0); break;
        case 2: use_channel(worker, 1); break;
        case 3: use_directory(worker); break;
        case 4: move(worker); break;
        case 5: append(worker); break;
        case 6: map(worker); break;
        case 7: count(worker); break;
        case 8: replace(worker); break;
        default: read_parts(worker);
        }
    }
    __sync_fetch_and_sub(&left, 1);
    return NULL;
}
int main(void) {
    static Worker workers[WORKERS];
    pthread_t threads[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        Worker *worker = &workers[i];
        char log[16];
        worker->number = worker->state = i + 1;
        snprintf(worker->name, sizeof worker->name, "file-%u", i);
        snprintf(worker->other, sizeof worker->other, "other-%u", i);
        snprintf(worker->dir, sizeof worker->dir, "dir-%u", i);
        snprintf(log, sizeof log, "log-%u", i);
        worker->log = OK(open(log, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
        worker->kept = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
        write_anew(worker);
    }
    for (unsigned i = 0; i < WORKERS; i++) CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    make_directories_while(&left, 400);
    for (unsigned i = 0; i < WORKERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    puts("right");
    return 0;
}
