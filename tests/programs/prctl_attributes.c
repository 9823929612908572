/* prctl: name, no_new_privs, dumpable, death signal, subreaper, timer slack. */
#include "check.h"
#include <sys/prctl.h>
int main(void) {
    char name[17] = "";
    OK(prctl(PR_SET_NAME, "a long name that is cut"));
    OK(prctl(PR_GET_NAME, name));
    printf("name %s, comm %s", name, contents("/proc/self/comm"));
    pid_t pid = OK(fork());
    if (pid == 0) {
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        EQUAL(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
        OK(prctl(PR_SET_DUMPABLE, 0));
        EQUAL(prctl(PR_GET_DUMPABLE), 0);
        int fd = OK(open("/dev/null", O_RDWR));
        OK(write(fd, "x", 1));
        pid_t grandchild = OK(fork());
        if (grandchild == 0) { execl("/bin/true", "true", NULL); _exit(1); }
        _exit(wait_for(grandchild));
    }
    printf("undumpable child %d\n", wait_for(pid));
    OK(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    int signal = 0;
    OK(prctl(PR_GET_PDEATHSIG, &signal));
    printf("death signal %d\n", signal == SIGUSR1);
    FAILS(prctl(PR_SET_DUMPABLE, 99), EINVAL);
    FAILS(prctl(12345), EINVAL);
    return 0;
}
