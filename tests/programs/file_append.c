/* O_APPEND: four processes append lines through their own and through shared descriptors; none is lost. */
#include "check.h"
int main(void) {
    int shared = OK(open("log", O_WRONLY | O_CREAT | O_APPEND, 0644));
    for (int i = 0; i < 4; i++) if (OK(fork()) == 0) {
        int own = OK(open("log", O_WRONLY | O_APPEND));
        for (int j = 0; j < rounds(500); j++) {
            char line[32];
            int n = sprintf(line, "%d %03d\n", i, j);
            EQUAL(write(j % 2 ? own : shared, line, n), n);
        }
        _exit(0);
    }
    while (wait(NULL) > 0) {}
    FILE *f = fopen("log", "r");
    int who, number, next[4] = {0}, lines = 0;
    while (fscanf(f, "%d %d", &who, &number) == 2) { EQUAL(number, next[who]); next[who]++; lines++; }
    printf("lines %d\n", lines);
    EQUAL(pwrite(shared, "at the end despite pwrite\n", 26, 0), 26);
    printf("size %ld\n", (long)lseek(shared, 0, SEEK_END));
    OK(unlink("log"));
    return 0;
}
