/* chdir, fchdir, openat, getcwd, mkdirat, renameat2, faccessat, readlinkat; a directory that is gone; umask; chroot's kin. */
#include "check.h"
int main(void) {
    OK(mkdir("a", 0755)); OK(mkdir("a/b", 0700));
    int here = OK(open(".", O_RDONLY | O_DIRECTORY)), a = OK(open("a", O_PATH));
    OK(chdir("a/b")); write_file("in_b", "b\n"); OK(fchdir(here)); write_file("here", "here\n");
    OK(fchdir(a)); write_file("in_a", "a\n");
    char path[4096];
    CHECK(getcwd(path, sizeof path));
    printf("in %s\n", strrchr(path, '/'));
    OK(fchdir(here));
    OK(mkdirat(a, "c", 0711)); OK(symlinkat("../here", a, "link")); OK(linkat(a, "in_a", here, "hard", 0)); OK(renameat(a, "b", here, "moved"));
    ssize_t n = OK(readlinkat(a, "link", path, sizeof path));
    printf("link %.*s, %s", (int)n, path, contents("a/link"));
    OK(syscall(SYS_renameat2, here, "hard", a, "in_a", 2 /* exchange */));
    FAILS(syscall(SYS_renameat2, here, "hard", here, "here", 1 /* no replace */), EEXIST);
    FAILS(openat(a, "missing", O_RDONLY), ENOENT); FAILS(openat(a, "in_a/x", O_RDONLY), ENOTDIR); FAILS(openat(77, "x", O_RDONLY), EBADF);
    FAILS(mkdir("a", 0755), EEXIST); FAILS(rmdir("a"), ENOTEMPTY); FAILS(rmdir("here"), ENOTDIR); FAILS(unlink("a"), EISDIR); FAILS(rename("a", "a/c/d"), EINVAL);
    OK(mkdir("gone", 0755)); OK(chdir("gone")); OK(rmdir("../gone"));
    CHECK(syscall(SYS_getcwd, path, sizeof path) == -1 && errno == ENOENT);
    FAILS(open("x", O_CREAT | O_WRONLY, 0644), ENOENT);
    OK(fchdir(here));
    umask(077); write_file("masked", ""); OK(mkdir("masked_dir", 0777)); umask(022);
    OK(fchmodat(AT_FDCWD, "here", 0604, 0)); OK(utimensat(AT_FDCWD, "here", (struct timespec[]){{1000, 0}, {2000, 5}}, 0));
    struct stat s;
    OK(stat("here", &s));
    printf("mode %o mtime %ld.%09ld links %d\n", s.st_mode & 07777, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, (int)s.st_nlink);
    OK(truncate("here", 3)); OK(mknod("fifo", S_IFIFO | 0600, 0));
    FAILS(access("missing", F_OK), ENOENT);
    return 0;
}
