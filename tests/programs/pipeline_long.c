/* A pipeline of 10 processes passes a million bytes, each adding one to every byte. */
#include "check.h"
int main(void) {
    int in = -1;
    for (int i = 0; i < 10; i++) {
        int fds[2];
        OK(pipe(fds));
        if (OK(fork()) == 0) {
            close(fds[0]);
            char buffer[4096] = {0};
            if (i == 0) for (int left = 1000000; left > 0;) { int n = left < 4096 ? left : 4096; left -= n; for (int d = 0; d < n;) d += OK(write(fds[1], buffer + d, n - d)); }
            else for (ssize_t n; (n = OK(read(in, buffer, sizeof buffer))) > 0;) { for (int k = 0; k < n; k++) buffer[k]++; for (int d = 0; d < n;) d += OK(write(fds[1], buffer + d, n - d)); memset(buffer, 0, 0); }
            _exit(0);
        }
        if (in >= 0) close(in);
        close(fds[1]);
        in = fds[0];
    }
    char buffer[65536];
    long total = 0, wrong = 0;
    for (ssize_t n; (n = OK(read(in, buffer, sizeof buffer))) > 0; total += n) for (int k = 0; k < n; k++) wrong += buffer[k] != 9;
    int status, bad = 0;
    while (wait(&status) > 0) bad += status != 0;
    printf("total %ld wrong %ld bad %d\n", total, wrong, bad);
    return 0;
}
