/* SIGALRM every 100 us for a second, and for as long as it takes, during system calls of every kind: none fails, none is lost or done twice. */
#include "check.h"
static volatile long ticks;
static void tick(int s) { ticks++; }
int main(void) {
    on_signal(SIGALRM, tick, SA_RESTART);
    OK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 100}, {0, 100}}, NULL));
    int fds[2];
    OK(pipe(fds));
    int file = OK(open("file", O_RDWR | O_CREAT, 0644));
    long rounds = 0;
    long long end = now_us() + 1000000;
    while (now_us() < end || rounds <= 5 || ticks <= 100) {
        char buffer[64] = "0123456789";
        EQUAL(write(fds[1], buffer, 10), 10);
        EQUAL(read(fds[0], buffer, 64), 10);
        EQUAL(write(file, buffer, 10), 10);
        EQUAL(lseek(file, 0, SEEK_CUR), (rounds + 1) * 10);
        int fd = OK(open("/dev/null", O_RDONLY));
        EQUAL(fd, file + 1);
        OK(close(fd));
        rounds++;
    }
    OK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    struct stat s;
    OK(fstat(file, &s));
    EQUAL(s.st_size, rounds * 10);
    OK(unlink("file"));
    puts("worked, interrupted");
    return 0;
}
