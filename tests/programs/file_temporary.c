/* O_TMPFILE and linkat, an unlinked file that lives on, memfd, O_EXCL, hard links, a file open over rename. */
#include "check.h"
int main(void) {
    int fd = OK(open(".", O_TMPFILE | O_RDWR, 0640));
    OK(write(fd, "temporary\n", 10));
    OK(fsync(fd));
    char path[64];
    sprintf(path, "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    printf("%s", contents("linked"));
    FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW), EEXIST);
    int gone = OK(open("gone", O_RDWR | O_CREAT | O_EXCL, 0600));
    FAILS(open("gone", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    OK(unlink("gone"));
    OK(write(gone, "lives on", 8));
    char text[16] = "";
    EQUAL(OK(pread(gone, text, 8, 0)), 8);
    struct stat s;
    OK(fstat(gone, &s));
    printf("%s with %d links\n", text, (int)s.st_nlink);
    int old = OK(open("old", O_RDWR | O_CREAT, 0644));
    write_file("new", "new one\n");
    OK(rename("new", "old"));
    OK(write(old, "to the old one", 14));
    printf("%s", contents("old"));
    OK(link("old", "other_name"));
    return 0;
}
