/* dup2 over every descriptor from 3 to 300, then over high ones; each still works; the limit is the limit. */
#include "check.h"
#include <sys/resource.h>
int main(void) {
    int fd = OK(open("file", O_RDWR | O_CREAT, 0644));
    OK(write(fd, "content", 7));
    for (int i = 3; i < 300; i++) EQUAL(dup2(fd, i), i);
    for (int i = 3; i < 300; i++) { char t[8] = ""; EQUAL(pread(i, t, 7, 0), 7); CHECK(!strcmp(t, "content")); }
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    int survived = 0;
    /* The highest numbers may be ours: either the dup works, or it is refused. */
    for (int i = limit.rlim_cur - 1; i > (int)limit.rlim_cur - 40; i--) {
        int r = dup2(fd, i);
        if (r == i) { char t[8] = ""; EQUAL(pread(i, t, 7, 0), 7); OK(close(i)); }
        survived++;
    }
    FAILS(dup2(fd, limit.rlim_cur), EBADF);
    FAILS(dup2(299 + 50, 5), EBADF);
    FAILS(dup3(fd, fd, 0), EINVAL);
    EQUAL(dup2(fd, fd), fd);
    int other = OK(fcntl(fd, F_DUPFD, 250));
    printf("survived %d, F_DUPFD %d, cloexec %ld\n", survived, other, OK(fcntl(OK(fcntl(fd, F_DUPFD_CLOEXEC, 5)), F_GETFD)));
    return 0;
}
