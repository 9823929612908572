/* getcwd and the links of /proc to the working directory and to an open file, all the time for argv[1] ms (default
   200), while another process may make, remove and list names there: all say the same each time. */
#include "check.h"

static void same_link(const char *of, const char *first) {
    char now[4096];
    long len = OK(readlink(of, now, sizeof now - 1));
    now[len] = 0;
    if (strcmp(now, first)) FAIL("%s is %s, and was %s", of, now, first);
}

static void link_of(const char *of, char *path, size_t size) {
    path[OK(readlink(of, path, size - 1))] = 0;
}

int main(int argc, char **argv) {
    long ms = argc > 1 ? atol(argv[1]) : rounds(200);
    char first[4096], now[4096], file[4096], fd_path[64];
    CHECK(getcwd(first, sizeof first));
    int fd = OK(open(argc > 2 ? argv[2] : "/proc/self/exe", O_RDONLY));
    snprintf(fd_path, sizeof fd_path, "/proc/self/fd/%d", fd);
    link_of(fd_path, file, sizeof file);
    long long calls = 0;
    for (long long end = now_us() + ms * 1000; now_us() < end; calls++) {
        if (!getcwd(now, sizeof now)) FAIL("getcwd, call %lld", calls);
        CHECK(!strcmp(now, first));
        if (calls % 16) continue;
        same_link("/proc/self/cwd", first);
        same_link(fd_path, file);
    }
    CHECK(calls > 0);
    return 0;
}
