/*
 * Scenes about names and files: directories, links, mappings, locks. Included by interpreter.c; as all scenes, each answers the same whenever
 * it is played. What a scene makes stands below a directory of its own, and one of three leaves it there for the comparison.
 */
#include <dirent.h>

/* A name that no other scene of this program has. */
static const char *own_directory(const char *kind, long n)
{
    static char name[64];
    static int played;
    sprintf(name, "%s-%d-%d-%04x", kind, own, played++, (unsigned)((hash ^ n) & 0xffff));
    return name;
}

static uint64_t chance_state;

static long draw(long below)
{
    chance_state ^= chance_state << 13, chance_state ^= chance_state >> 7, chance_state ^= chance_state << 17;
    return chance_state % below;
}

/* Either what it answers, or why not. */
static void fold_answer(long got)
{
    fold(got < 0 ? 1000 + errno : got);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void fold_names(const char *directory)
{
    struct dirent **all;
    int count = scandir(directory, &all, NULL, by_name);
    fold_answer(count);
    for (int i = 0; i < count; i++) {
        fold_bytes((unsigned char *)all[i]->d_name, strlen(all[i]->d_name));
        fold(all[i]->d_type);
        free(all[i]);
    }
    if (count >= 0)
        free(all);
}

static void fold_attributes(const char *name)
{
    struct stat st;
    int got = lstat(name, &st);
    fold_answer(got);
    if (got == 0) {
        fold(st.st_mode);
        fold(st.st_nlink);
        /* What a directory takes depends on the disk. */
        if (!S_ISDIR(st.st_mode))
            fold(st.st_size);
    }
}

static void fold_contents(const char *name)
{
    unsigned char bytes[4096];
    int fd = open(name, O_RDONLY);
    fold_answer(fd < 0 ? -1 : 0);
    if (fd < 0)
        return;
    long got = read(fd, bytes, sizeof bytes);
    fold_answer(got);
    if (got > 0)
        fold_bytes(bytes, got);
    close(fd);
}

/* One of nine names on three levels, so that drawn operations meet each other. */
static const char *drawn_name(void)
{
    static const char *const names[] = {"a", "b", "c", "a/a", "a/b", "b/a", "b/b", "a/a/a", "b/a/b"};
    return names[draw(sizeof names / sizeof *names)];
}

static void write_drawn(const char *name, int flags)
{
    int fd = open(name, O_WRONLY | flags, 0644);
    fold_answer(fd < 0 ? -1 : 0);
    if (fd < 0)
        return;
    long len = draw(3000);
    unsigned char *bytes = block(len);
    fold_answer(write(fd, bytes, len));
    free(bytes);
    close(fd);
}

static void walk_step(void)
{
    char target[64];
    const char *name = drawn_name();
    switch (draw(16)) {
    case 0: case 1: case 2: fold_answer(mkdir(name, draw(2) ? 0755 : 0700)); break;
    case 3: fold_answer(rmdir(name)); break;
    case 4: case 5: write_drawn(name, O_CREAT | (draw(2) ? O_EXCL : O_TRUNC)); break;
    case 6: write_drawn(name, O_APPEND); break;
    case 7: fold_answer(unlink(name)); break;
    case 8: fold_answer(link(drawn_name(), name)); break;
    case 9: fold_answer(symlink(drawn_name(), name)); break;
    case 10: case 11: fold_answer(rename(drawn_name(), name)); break;
    case 12: fold_names(name); break;
    case 13: fold_answer(truncate(name, draw(5000))); break;
    case 14: fold_answer(chmod(name, 0700 | draw(64))); break;
    default:
        memset(target, 0, sizeof target);
        fold_answer(readlink(name, target, sizeof target - 1));
        fold_bytes((unsigned char *)target, strlen(target));
    }
    fold_attributes(name);
    fold_contents(name);
}

static void remove_below(const char *directory)
{
    struct dirent **all;
    int count = check(scandir(directory, &all, NULL, by_name), "scandir");
    for (int i = 0; i < count; i++) {
        char name[600];
        const char *entry = all[i]->d_name;
        snprintf(name, sizeof name, "%s/%s", directory, entry);
        if (!strcmp(entry, ".") || !strcmp(entry, "..")) {
        } else if (all[i]->d_type == DT_DIR) {
            remove_below(name);
        } else {
            check(unlink(name), "unlink below");
        }
        free(all[i]);
    }
    free(all);
    check(rmdir(directory), "rmdir below");
}

/* Random operations on few names, by a process and its children, one of them at a time. */
static void scene_walk(long n)
{
    char directory[64];
    strcpy(directory, own_directory("walk", n));
    check(mkdir(directory, 0755), "mkdir of a walk");
    check(chdir(directory), "chdir to a walk");
    chance_state = 0x9e3779b97f4a7c15u * (n + 1) | 1;
    for (int turn = 0; turn < 1 + n % 3; turn++) {
        pid_t pid = turn % 2 ? fork_checked() : 0;
        if (pid) {
            wait_for(pid);
            continue;
        }
        for (int step = draw(12); step >= 0; step--)
            walk_step();
        if (turn % 2)
            _exit(hash & 0x7f);
    }
    fold_names(".");
    check(chdir(".."), "chdir back");
    if (n % 3)
        remove_below(directory);
}

/* Directories one in the other, by a child; the parent finds them, moves the outermost, and looks at what it holds open. */
static void scene_directories(long n)
{
    char directory[64], name[128], here[4096];
    strcpy(directory, own_directory("dirs", n));
    pid_t pid = fork_checked();
    if (!pid) {
        check(mkdir(directory, 0755), "mkdir");
        expect(mkdir(directory, 0755), -1, "mkdir again");
        expect(errno, EEXIST, "mkdir again");
        int at = check(open(directory, O_RDONLY | O_DIRECTORY), "open a directory");
        for (int i = 0; i <= n % 3; i++) {
            check(mkdirat(at, "in", 0711), "mkdirat");
            int inner = check(openat(at, "in", O_RDONLY | O_DIRECTORY), "openat of a directory");
            int file = check(openat(inner, "file", O_CREAT | O_RDWR, 0600), "openat of a file");
            expect(write(file, "x", 1), 1, "write");
            close(file);
            close(at);
            at = inner;
        }
        _exit(0);
    }
    wait_for(pid);
    int held = check(open(directory, O_RDONLY | O_DIRECTORY), "open");
    sprintf(name, "%s.moved", directory);
    check(rename(directory, name), "rename of a directory");
    expect(access(directory, F_OK), -1, "access to what was moved");
    expect(errno, ENOENT, "access to what was moved");
    check(fchdir(held), "fchdir");
    check(getcwd(here, sizeof here) ? 0 : -1, "getcwd");
    fold_bytes((unsigned char *)strrchr(here, '/'), strlen(strrchr(here, '/')));
    fold_names(".");
    fold_names("in");
    fold_contents("in/file");
    expect(rmdir("in"), -1, "rmdir of what is not empty");
    expect(errno, ENOTEMPTY, "rmdir of what is not empty");
    check(chdir(".."), "chdir back");
    close(held);
    if (n % 3)
        remove_below(name);
}

static void scene_links(long n)
{
    char directory[64], back[64] = "";
    strcpy(directory, own_directory("links", n));
    check(mkdir(directory, 0700), "mkdir");
    check(chdir(directory), "chdir");
    int first = check(open("file", O_CREAT | O_RDWR, 0600), "open");
    write_all(first, (unsigned char *)"first", 5);
    close(first);
    pid_t pid = fork_checked();
    if (!pid) {
        check(link("file", "hard"), "link");
        check(symlink(n % 2 ? "file" : "nothing", "soft"), "symlink");
        expect(link("file", "hard"), -1, "link again");
        int fd = check(open("hard", O_WRONLY | O_APPEND), "open a link");
        write_all(fd, (unsigned char *)"second", 6);
        _exit(errno == EEXIST ? 3 : 4);
    }
    wait_for(pid);
    fold_attributes("file");
    fold_contents("file");
    fold_answer(readlink("soft", back, sizeof back - 1));
    fold_bytes((unsigned char *)back, strlen(back));
    fold_contents("soft");
    check(rename("hard", "file"), "rename to the same file");
    fold_attributes("file");
    check(unlink("file"), "unlink");
    fold_attributes("hard");
    fold_contents("hard");
    fold_names(".");
    check(chdir(".."), "chdir back");
    if (n % 3)
        remove_below(directory);
}

/* A file that two processes have mapped, in turns; what was mapped privately stays apart. */
static void scene_mapping(long n)
{
    char name[64];
    int turn[2];
    long len = 4096 * (1 + n % 3);
    char c;
    strcpy(name, own_directory("map", n));
    check(pipe(turn), "pipe");
    int fd = check(open(name, O_CREAT | O_RDWR, 0600), "open");
    check(ftruncate(fd, len), "ftruncate");
    unsigned char *shared = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *apart = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (shared == MAP_FAILED || apart == MAP_FAILED)
        wrong("mmap", 0);
    memcpy(shared, "parent", 6);
    apart[len - 1] = 7;
    pid_t pid = fork_checked();
    if (!pid) {
        expect(memcmp(shared, "parent", 6), 0, "what the parent has stored");
        memcpy(shared + len - 6, "child!", 6);
        write_all(turn[1], (unsigned char *)"x", 1);
        _exit(apart[len - 1]);
    }
    expect(read(turn[0], &c, 1), 1, "turn");
    expect(memcmp(shared + len - 6, "child!", 6), 0, "what the child has stored");
    wait_for(pid);
    expect(apart[len - 1], 7, "what is apart");
    check(msync(shared, len, n % 2 ? MS_SYNC : MS_ASYNC), "msync");
    check(munmap(shared, len), "munmap");
    check(munmap(apart, len), "munmap");
    unsigned char back[6];
    expect(pread(fd, back, 6, len - 6), 6, "pread");
    fold_bytes(back, 6);
    close(fd), close(turn[0]), close(turn[1]);
    if (n % 3)
        check(unlink(name), "unlink");
}

static int record_lock(int fd, int command, int type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 1, .l_len = 3};
    int got = fcntl(fd, command, &lock);
    return command == F_GETLK && got == 0 ? lock.l_type : got;
}

/* What one process has locked the other one may not, until that is open again, or its holder has ended. */
static void scene_locks(long n)
{
    char name[64];
    int locked[2];
    char c;
    int whole = n % 2;
    strcpy(name, own_directory("lock", n));
    check(pipe(locked), "pipe");
    int fd = check(open(name, O_CREAT | O_RDWR, 0600), "open");
    pid_t pid = fork_checked();
    if (!pid) {
        close(locked[0]);
        int mine = check(open(name, O_RDWR), "open");
        check(whole ? flock(mine, LOCK_EX) : record_lock(mine, F_SETLK, F_WRLCK), "lock");
        write_all(locked[1], (unsigned char *)"x", 1);
        write_all(mine, (unsigned char *)"locked", 6);
        check(n % 4 < 2 ? 0 : whole ? flock(mine, LOCK_UN) : record_lock(mine, F_SETLK, F_UNLCK), "unlock");
        _exit(0);
    }
    close(locked[1]);
    expect(read(locked[0], &c, 1), 1, "locked");
    check(whole ? flock(fd, LOCK_SH) : record_lock(fd, F_SETLKW, F_RDLCK), "lock after the child");
    unsigned char back[6];
    expect(pread(fd, back, 6, 0), 6, "what was written under the lock");
    fold_bytes(back, 6);
    wait_for(pid);
    expect(whole ? flock(fd, LOCK_EX | LOCK_NB) : record_lock(fd, F_SETLK, F_WRLCK), 0, "lock alone");
    if (!whole)
        expect(record_lock(fd, F_GETLK, F_WRLCK), F_UNLCK, "one's own lock");
    close(fd), close(locked[0]);
    if (n % 3)
        check(unlink(name), "unlink");
}
