/* Extended attributes of files, links and descriptors. */
#include "check.h"
#include <sys/xattr.h>
int main(void) {
    write_file("file", "x");
    char value[64] = "", list[256];
    if (setxattr("file", "user.one", "first", 5, 0) < 0 && errno == EOPNOTSUPP) { printf("not supported\n"); return 0; }
    int fd = OK(open("file", O_RDONLY));
    OK(fsetxattr(fd, "user.two", "second", 6, XATTR_CREATE));
    FAILS(fsetxattr(fd, "user.two", "x", 1, XATTR_CREATE), EEXIST);
    FAILS(setxattr("file", "user.three", "x", 1, XATTR_REPLACE), ENODATA);
    EQUAL(getxattr("file", "user.two", value, 64), 6);
    FAILS(getxattr("file", "user.two", value, 2), ERANGE);
    printf("%s, list %zd\n", value, listxattr("file", list, 256));
    OK(removexattr("file", "user.one"));
    FAILS(getxattr("file", "user.one", value, 64), ENODATA);
    return 0;
}
