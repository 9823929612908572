/* Two processes splice and sendfile a file into one small pipe. Each call waits for room, which the other process may
 * take first. Everything that a call says it has transferred arrives. */
#include "check.h"
#include <sys/sendfile.h>

#define SIZE (256 * 1024)
static char bytes[SIZE], got[16384];

static long into_pipe(int out, int in, int turn) {
    loff_t at = 0;
    off_t same = 0;
    while (at < SIZE) {
        long n = turn ? splice(in, &at, out, NULL, 16384, 0) : sendfile(out, in, (same = at, &same), 16384);
        if (n <= 0) FAIL("%s says %ld", turn ? "splice" : "sendfile", n);
        if (!turn) at = same;
    }
    return at;
}

int main(void) {
    int p[2];
    int in = OK(open("big", O_RDWR | O_CREAT, 0644));
    for (int i = 0; i < SIZE; i++) bytes[i] = 1 + i / 4096 % 100;
    EQUAL(write(in, bytes, SIZE), SIZE);
    OK(pipe(p));
    OK(fcntl(p[1], F_SETPIPE_SZ, 8192));
    for (int turn = 0; turn < 2; turn++) {
        if (OK(fork()) == 0) {
            close(p[0]);
            _exit(into_pipe(p[1], in, turn) == SIZE ? 0 : 1);
        }
    }
    close(p[1]);
    long sum = 0, of[128] = {0}, n;
    while ((n = OK(read(p[0], got, sizeof got))) > 0)
        for (long i = 0; i < n; i++, sum++) of[(unsigned char)got[i] % 128]++;
    printf("arrived %ld\n", sum);
    for (int turn = 0; turn < 2; turn++) {
        int status;
        OK(wait(&status));
        printf("status %d\n", status);
    }
    for (int i = 1; i <= 64; i++) EQUAL(of[i], 2 * 4096);
    return 0;
}
