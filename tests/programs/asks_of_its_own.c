/* What a process asks or sets for itself alone: locked memory, what a core dump holds, this machine's addresses, any
 * free port, connections that are refused. It locks and maps a file of its own. */
#include "check.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/file.h>

static void check_locked_memory(void) {
    for (int round = 0; round < 2; round++) {
        char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        OK(mlock(pages, 8192));
        pages[0] = 1;
        OK(munlock(pages, 4096));
        FAILS(mlock((void *)4096, 8192), ENOMEM);
        OK(munmap(pages, 8192));
    }
}

static void core_filter(const char *text, long expected) {
    char now[32];
    int fd = OK(open("/proc/self/coredump_filter", O_RDWR));
    EQUAL(OK(write(fd, text, strlen(text))), strlen(text));
    EQUAL(OK(lseek(fd, 0, SEEK_SET)), 0);
    now[OK(read(fd, now, sizeof now - 1))] = 0;
    EQUAL(strtol(now, NULL, 16), expected);
    OK(close(fd));
}

static int loopback_addresses(void) {
    struct ifaddrs *all;
    int found = 0;
    OK(getifaddrs(&all));
    for (struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET)
            found += ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
    freeifaddrs(all);
    return found;
}

static void take_any_port(int kind) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int s = OK(socket(AF_INET, kind | SOCK_CLOEXEC, 0));
    OK(bind(s, (struct sockaddr *)&address, len));
    OK(getsockname(s, (struct sockaddr *)&address, &len));
    CHECK(address.sin_port != 0);
    FAILS(bind(s, (struct sockaddr *)&address, len), EINVAL);
    OK(close(s));
}

/* Nobody listens at port 1: who waits is told at once, whoever does not finds the error, and both may try again. */
static void connect_in_vain(int kind) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(1)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | kind, 0));
    for (int round = 0; round < 2; round++) {
        if (kind == 0) {
            FAILS(connect(s, (struct sockaddr *)&address, sizeof address), ECONNREFUSED);
            continue;
        }
        int error = 0;
        socklen_t len = sizeof error;
        struct pollfd ready = {s, POLLOUT, 0};
        FAILS(connect(s, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
        EQUAL(OK(poll(&ready, 1, 5000)), 1);
        CHECK(ready.revents & POLLERR);
        OK(getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &len));
        EQUAL(error, ECONNREFUSED);
        FAILS(connect(s, (struct sockaddr *)&address, sizeof address), ECONNABORTED);
    }
    OK(close(s));
}

static void check_own_file(void) {
    char text[8] = "";
    int fd = OK(open("own", O_CREAT | O_EXCL | O_RDWR, 0600));
    OK(flock(fd, LOCK_EX | LOCK_NB));
    OK(ftruncate(fd, 10000));
    char *shared = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED);
    memcpy(shared + 4094, "mapped", 6);
    EQUAL(OK(pread(fd, text, 6, 4094)), 6);
    EQUAL(memcmp(text, "mapped", 6), 0);
    EQUAL(OK(pwrite(fd, "W", 1, 4095)), 1);
    EQUAL(shared[4095], 'W');
    pid_t child = OK(fork());
    if (child == 0) {
        shared[9999] = 'c';
        _exit(0);
    }
    EQUAL(wait_for(child), 0);
    EQUAL(shared[9999], 'c');
    OK(munmap(shared, 10000));
    OK(flock(fd, LOCK_UN));
    OK(close(fd));
    fd = OK(open("own", O_RDONLY));
    EQUAL(OK(pread(fd, text, 7, 9995)), 5);
    EQUAL(text[4], 'c');
    OK(flock(fd, LOCK_SH));
    OK(close(fd));
    OK(unlink("own"));
}

int main(void) {
    check_locked_memory();
    core_filter("0x37", 0x37);
    core_filter("0x33", 0x33);
    printf("%d\n", loopback_addresses());
    fflush(stdout);
    take_any_port(SOCK_STREAM);
    take_any_port(SOCK_DGRAM);
    connect_in_vain(0);
    connect_in_vain(SOCK_NONBLOCK);
    check_own_file();
    printf("%d\n", loopback_addresses());
    return 0;
}
