/* Who closes a leased file has no lease any more: nobody waits for it to be broken, and no signal comes. */
#include "check.h"
int main(void) {
    write_file("leased", "text\n");
    for (int i = 0; i < 20; i++) {
        int fd = OK(open("leased", O_RDONLY | O_CLOEXEC));
        OK(fcntl(fd, F_SETLEASE, F_RDLCK));
        EQUAL(fcntl(fd, F_GETLEASE), F_RDLCK);
        OK(close(fd));
        int writer = OK(open("leased", O_WRONLY | O_NONBLOCK | O_CLOEXEC));
        OK(close(writer));
    }
    printf("never broken\n");
    return 0;
}
