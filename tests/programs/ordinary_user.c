/* Run as an ordinary user: files, children, what is forbidden stays forbidden. */
/* @user */
#include "check.h"
int main(void) {
    CHECK(getuid() != 0 && geteuid() == getuid());
    write_file("file", "mine\n");
    FAILS(open("/etc/shadow", O_RDONLY), EACCES);
    FAILS(open("/etc/new", O_CREAT | O_WRONLY, 0644), EACCES);
    FAILS(kill(1, 0), EPERM);
    pid_t pid = OK(fork());
    if (pid == 0) { execl("/bin/sh", "sh", "-c", "cat file; exit 2", NULL); _exit(9); }
    printf("status %d\n", wait_for(pid));
    return 0;
}
