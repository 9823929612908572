/* Identity: uid, gid, groups, session, capabilities read; dropping to an ordinary user; what is then forbidden. */
/* @root */
#include "check.h"
#include <grp.h>
int main(void) {
    write_file("private", "root only\n");
    OK(chmod("private", 0600));
    OK(mkdir("open", 0777)); OK(chmod("open", 0777));
    pid_t pid = OK(fork());
    if (pid == 0) {
        OK(setgroups(0, NULL)); OK(setresgid(65534, 65534, 65534)); OK(setresuid(65534, 65534, 65534));
        FAILS(open("private", O_RDONLY), EACCES);
        FAILS(setuid(0), EPERM);
        write_file("open/mine", "nobody's\n");
        FAILS(chown("open/mine", 0, 0), EPERM);
        FAILS(kill(getppid(), 0), EPERM);
        int fd = OK(open("open/mine", O_RDWR));
        OK(fsync(fd));
        pid_t inner = OK(fork());
        if (inner == 0) { execlp("id", "id", "-u", NULL); _exit(9); }
        _exit(wait_for(inner));
    }
    printf("status %d\n", wait_for(pid));
    OK(chown("private", 12, 34));
    return 0;
}
