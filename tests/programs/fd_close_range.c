/* Every descriptor from 3 on is closed, by close_range, by a loop to the limit, by /proc/self/fd; all goes on. */
#include "check.h"
#include <dirent.h>
#include <sys/resource.h>
static void works(const char *what) {
    int fd = OK(open("/dev/null", O_RDWR));
    OK(write(fd, "x", 1));
    pid_t pid = OK(fork());
    if (pid == 0) { execl("/bin/sh", "sh", "-c", "exit 12", NULL); _exit(99); }
    printf("%s: next descriptor %d, child %d\n", what, fd, wait_for(pid));
    OK(close(fd));
}
int main(void) {
    for (int i = 0; i < 20; i++) OK(dup(0));
    long r = syscall(SYS_close_range, 3, ~0U, 0);
    if (r < 0 && errno != ENOSYS) FAIL("close_range");
    works("close_range");
    for (int i = 0; i < 20; i++) OK(dup(0));
    OK(syscall(SYS_close_range, 5, 9, 0));
    FAILS(fcntl(7, F_GETFD), EBADF);
    OK(fcntl(10, F_GETFD));
    OK(syscall(SYS_close_range, 3, 100, 4 /* CLOSE_RANGE_CLOEXEC */));
    EQUAL(fcntl(10, F_GETFD), FD_CLOEXEC);
    FAILS(syscall(SYS_close_range, 9, 5, 0), EINVAL);
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    for (int fd = 3; fd < (int)limit.rlim_cur; fd++) close(fd);
    works("close loop");
    closefrom(3);
    works("closefrom");
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int numbers[100], count = 0;
    while ((entry = readdir(directory))) if (entry->d_name[0] != '.' && atoi(entry->d_name) > 2) numbers[count++] = atoi(entry->d_name);
    closedir(directory);
    for (int i = 0; i < count; i++) close(numbers[i]);
    works("/proc/self/fd");
    return 0;
}
