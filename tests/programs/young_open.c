/* What is opened or made, used by parent and children, and closed again: positions that they share, what is in a pipe,
 * its end-of-file, and flags. */
#include "check.h"
static int shared_position(int rounds) {
    char text[16] = {0};
    int file = OK(open("letters", O_RDWR | O_CREAT | O_TRUNC, 0600));
    EQUAL(write(file, "abcdefghijklmnop", 16), 16);
    int other = OK(open("letters", O_RDONLY));
    for (int i = 0; i < rounds; i++) {
        int child = OK(fork());
        if (child == 0) {
            EQUAL(read(other, text, 2), 2);
            EQUAL(text[0], 'a' + 3 * i);
            close(other);
            _exit(7);
        }
        EQUAL(wait_for(child), 7);
        EQUAL(read(other, text, 1), 1);
        EQUAL(text[0], 'c' + 3 * i);
    }
    int position = OK(lseek(other, 0, SEEK_CUR));
    close(other);
    close(file);
    OK(unlink("letters"));
    return position;
}
/* What a substitution of a shell does: a child writes and ends, its parent reads up to the end. */
static int substitution(const char *said) {
    int ends[2], length = 0, got;
    char text[64];
    OK(pipe2(ends, O_CLOEXEC));
    int child = OK(fork());
    if (child == 0) {
        OK(dup2(ends[1], 7));
        close(ends[0]);
        close(ends[1]);
        EQUAL(write(7, said, 3), 3);
        EQUAL(write(7, said + 3, strlen(said + 3)), strlen(said + 3));
        _exit(0);
    }
    close(ends[1]);
    while ((got = OK(read(ends[0], text + length, 5))) > 0) length += got;
    EQUAL(memcmp(text, said, length), 0);
    close(ends[0]);
    EQUAL(wait_for(child), 0);
    return length;
}
/* A pipe's end that is opened once more by way of /proc, and one that somebody else has. */
static void by_proc(void) {
    int ends[2], kept[2];
    char path[64], text[8];
    OK(pipe(ends));
    OK(pipe(kept));
    int child = OK(fork());
    if (child == 0) {
        close(kept[1]);
        EQUAL(read(kept[0], text, 1), 1);
        EQUAL(read(ends[0], text, 8), 3);
        EQUAL(memcmp(text, "one", 3), 0);
        _exit(3);
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", child, ends[1]);
    close(ends[0]);
    close(ends[1]);
    int again = OK(open(path, O_WRONLY));
    EQUAL(write(again, "one", 3), 3);
    EQUAL(write(kept[1], "x", 1), 1);
    EQUAL(wait_for(child), 3);
    on_signal(SIGPIPE, SIG_IGN, 0);
    FAILS(write(again, "two", 3), EPIPE);
    close(again);
    close(kept[0]);
    close(kept[1]);
    OK(pipe2(ends, O_NONBLOCK));
    FAILS(read(ends[0], text, 1), EAGAIN);
    OK(fcntl(ends[0], F_SETFL, 0));
    EQUAL(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
    EQUAL(fcntl(ends[1], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    close(ends[1]);
    EQUAL(read(ends[0], text, 1), 0);
    close(ends[0]);
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < 5; i++) printf("position %d\n", shared_position(i));
    for (int i = 0; i < 5; i++) printf("said %d\n", substitution("what was said" + i));
    by_proc();
    puts("opened by /proc");
    return 0;
}
