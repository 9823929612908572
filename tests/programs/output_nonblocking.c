/* Standard output made non-blocking: nothing is lost when EAGAIN is handled with poll. */
#include "check.h"
int main(void) {
    OK(fcntl(1, F_SETFL, OK(fcntl(1, F_GETFL)) | O_NONBLOCK));
    for (int i = 0; i < 100000; i++) {
        char line[32];
        int n = sprintf(line, "%d\n", i);
        for (int done = 0; done < n;) {
            ssize_t r = write(1, line + done, n - done);
            if (r >= 0) { done += r; continue; }
            CHECK(errno == EAGAIN);
            struct pollfd p = {1, POLLOUT, 0};
            OK(poll(&p, 1, -1));
        }
    }
    return 0;
}
