/* A static position-independent binary. */
/* @build -static-pie */
#include "check.h"
int main(void) {
    write_file("file", "static pie\n");
    printf("%s", contents("file"));
    pid_t pid = OK(fork());
    if (pid == 0) _exit(17);
    printf("child %d\n", wait_for(pid));
    return 0;
}
