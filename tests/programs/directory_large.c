/* A directory of 2,000 entries: listing while creating and deleting; getdents with a tiny buffer; telldir and seekdir. */
#include "check.h"
#include <dirent.h>
static int count(DIR *d) { int n = 0; struct dirent *e; while ((e = readdir(d))) n += e->d_name[0] == 'f'; return n; }
int main(void) {
    OK(mkdir("d", 0755));
    char path[64];
    for (int i = 0; i < 2000; i++) { sprintf(path, "d/f%04d", i); close(OK(open(path, O_CREAT | O_WRONLY, 0644))); }
    DIR *d = opendir("d");
    printf("entries %d\n", count(d));
    rewinddir(d);
    for (int i = 0; i < 1000; i++) readdir(d);
    long at = telldir(d);
    int rest = count(d);
    seekdir(d, at);
    EQUAL(count(d), rest);
    for (int i = 0; i < 2000; i += 2) { sprintf(path, "d/f%04d", i); OK(unlink(path)); }
    rewinddir(d);
    printf("after deleting half %d\n", count(d));
    int fd = OK(open("d", O_RDONLY | O_DIRECTORY));
    char buffer[64];
    long n, total = 0;
    while ((n = OK(syscall(SYS_getdents64, fd, buffer, sizeof buffer))) > 0) for (long o = 0; o < n; o += *(unsigned short *)(buffer + o + 16)) total++;
    printf("with a small buffer %ld\n", total);
    FAILS(syscall(SYS_getdents64, OK(open("d", O_RDONLY)), buffer, 8), EINVAL);
    for (int i = 1; i < 2000; i += 2) { sprintf(path, "d/f%04d", i); OK(unlink(path)); }
    OK(rmdir("d"));
    printf("readdir of a removed directory %d\n", (rewinddir(d), count(d)));
    return 0;
}
