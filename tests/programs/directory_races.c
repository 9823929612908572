/* Four processes rename, link and unlink in one directory; every operation ends with an allowed result; none is left. */
#include "check.h"
#include <dirent.h>
int main(void) {
    OK(mkdir("d", 0755));
    for (int who = 0; who < 4; who++) if (OK(fork()) == 0) {
        char a[32], b[32];
        unsigned seed = who;
        for (int i = 0; i < rounds(500); i++) {
            sprintf(a, "d/%d", rand_r(&seed) % 5); sprintf(b, "d/%d", rand_r(&seed) % 5);
            int r = 0, fd;
            switch (rand_r(&seed) % 4) {
            case 0: fd = open(a, O_CREAT | O_EXCL | O_WRONLY, 0644); if (fd >= 0) { write(fd, "x", 1); close(fd); } else r = -1; break;
            case 1: r = rename(a, b); break;
            case 2: r = link(a, b); break;
            default: r = unlink(a);
            }
            if (r < 0 && errno != ENOENT && errno != EEXIST) FAIL("operation");
        }
        _exit(0);
    }
    int status, bad = 0;
    while (wait(&status) > 0) bad += status != 0;
    DIR *d = opendir("d");
    struct dirent *e;
    char path[300];
    while ((e = readdir(d))) if (e->d_name[0] != '.') { snprintf(path, sizeof path, "d/%s", e->d_name); OK(unlink(path)); }
    OK(rmdir("d"));
    printf("bad %d\n", bad);
    return 0;
}
