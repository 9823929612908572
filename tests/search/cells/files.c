// Files: their contents, names, attributes, locks, offsets; and mappings of them.
#include "cells.h"
#include <dirent.h>
#include <linux/fs.h>
#include <linux/fiemap.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

// What A does.
ACTION(write_file, 0, 0, ck(pwrite(opened("data", O_WRONLY), "new", 3, 0)));
ACTION(append_file, 0, 0, ck(write(opened("data", O_WRONLY | O_APPEND), "new", 3)));
ACTION(truncate_file, 0, 0, ck(truncate("data", 1)));
ACTION(read_file, 0, 0, ck(read(opened("other", O_RDONLY), room, 2))); // Its time of access.
ACTION(read_part, 0, 0, ck(pread(opened("other", O_RDONLY), room, 2, 0)));
ACTION(chmod_file, 0, 0, ck(chmod("data", 0640)));
ACTION(chown_file, 0, 0, ck(chown("data", -1, getgid())));
ACTION(touch_file, 0, 0, ck(utimensat(AT_FDCWD, "data", 0, 0)));
ACTION(setxattr_file, 0, 0, ck(setxattr("data", "user.cell", "x", 1, 0)));
ACTION(flag_file, 0, 0, int flags = FS_NODUMP_FL; ck(ioctl(opened("data", O_RDONLY), FS_IOC_SETFLAGS, &flags)));
ACTION(rename_file, 0, 0, ck(rename("data", "made")));
ACTION(exchange_files, 0, 0, ck(syscall(SYS_renameat2, AT_FDCWD, "data", AT_FDCWD, "other", RENAME_EXCHANGE)));
ACTION(unlink_file, 0, 0, ck(unlink("data")));
ACTION(link_file, 0, 0, ck(link("data", "made")));
ACTION(symlink_made, 0, 0, ck(symlink("data", "made")));
ACTION(symlink_changed, 0, 0, ck(unlink("link")); ck(symlink("other", "link")));
ACTION(create_file, 0, 0, opened("made", O_WRONLY | O_CREAT | O_EXCL));
ACTION(mkdir_made, 0, 0, ck(mkdir("made", 0755)));
ACTION(mknod_made, 0, 0, ck(mkfifo("made", 0600)));
ACTION(rmdir_empty, 0, 0, ck(rmdir("empty")));
ACTION(rename_folder, 0, 0, ck(rename("sub", "made")));
ACTION(create_in_folder, 0, 0, opened("sub/made", O_WRONLY | O_CREAT));
ACTION(allocate_file, 0, 0, ck(fallocate(opened("data", O_WRONLY), FALLOC_FL_KEEP_SIZE, 0, 1 << 20)));
ACTION(store_file, MAPPED, 0, memcpy(mapped, "new", 3));
ACTION(seek, FILES, 0, ck(lseek(data, 2, SEEK_SET)));
ACTION(read_shared, FILES, 0, ck(read(data, room, 2)));
ACTION(flags_of_file, FILES, 0, ck(fcntl(data, F_SETFL, O_APPEND)));
ACTION(open_file, 0, 0, opened("other", O_RDONLY));
ACTION(open_program, PROGRAM, 0, opened("program", O_WRONLY));
ACTION(execute_program, PROGRAM, 0, execl("./program", "program", "3", (char *)0));
ACTION(flock_exclusive, 0, 0, ck(flock(opened("lock", O_RDWR), LOCK_EX)));
static int locked;
static void flocks(void) { locked = opened("lock", O_RDWR), ck(flock(locked, LOCK_EX)); }
ACTION(flock_given_up, 0, flocks, ck(flock(locked, LOCK_UN)));
ACTION(flock_closed, 0, flocks, ck(close(locked)));
static void locks(int command) {
    struct flock all = {.l_type = F_WRLCK};
    locked = opened("lock", O_RDWR), ck(fcntl(locked, command, &all));
}
ACTION(lock_file, 0, 0, locks(F_SETLK));
ACTION(lock_description, 0, 0, locks(F_OFD_SETLK));
static void locks_before(void) { locks(F_SETLK); }
ACTION(lock_closed, 0, locks_before, ck(close(locked)));
ACTION(lock_given_up, 0, locks_before, struct flock none = {.l_type = F_UNLCK}; ck(fcntl(locked, F_SETLK, &none)));
static void leases(void) { locked = opened("other", O_RDONLY), ck(fcntl(locked, F_SETLEASE, F_RDLCK)); }
ACTION(lease_taken, 0, 0, leases());
ACTION(read_ahead, 0, 0, ck(readahead(opened("gone", O_RDONLY), 0, 4096)); ck(read(opened("gone", O_RDONLY), room,
    4)));
ACTION(lock_on_shared_memory, 0, 0, ck(flock(opened("/dev/shm", O_RDONLY | O_DIRECTORY), LOCK_SH)));

// What B sees.
static void attributes(const struct stat *s) {
    say("mode %o links %ld size %ld blocks %ld gid %d ", s->st_mode, (long)s->st_nlink, (long)s->st_size,
    (long)s->st_blocks,
        s->st_gid);
}
static struct stat before;
static void stats_data(void) { ck(stat("data", &before)); }
static void stats_other(void) { ck(stat("other", &before)); }
static void stats_folder(void) { ck(stat(".", &before)); }
static void stats_sub(void) { ck(stat("sub", &before)); }
static int differ(struct timespec a, struct timespec b) { return a.tv_sec != b.tv_sec || a.tv_nsec != b.tv_nsec; }
static void times(const char *name) {
    struct stat s = {0};
    says(stat(name, &s));
    say("a %d m %d c %d ", differ(s.st_atim, before.st_atim), differ(s.st_mtim, before.st_mtim), differ(s.st_ctim,
    before.st_ctim));
}
SEE(stat_data, 0, 0, struct stat s = {0}; says(stat("data", &s)); attributes(&s));
SEE(stat_made, 0, 0, struct stat s = {0}; says(lstat("made", &s)); attributes(&s));
SEE(stat_folder, 0, 0, struct stat s = {0}; says(stat(".", &s)); attributes(&s));
SEE(stat_sub, DIRECTORY, 0, struct stat s = {0}; says(fstat(directory, &s)); attributes(&s));
SEE(times_of_data, 0, stats_data, times("data"));
SEE(times_of_other, 0, stats_other, times("other"));
SEE(times_of_folder, 0, stats_folder, times("."));
SEE(times_of_sub, 0, stats_sub, times("sub"));
SEE(statx_data, 0, stats_data, struct statx s = {0}; says(statx(AT_FDCWD, "data", 0, STATX_ALL, &s));
    say("%d %x ", s.stx_ino == before.st_ino, (unsigned)s.stx_attributes));
static int held;
static void opens_data(void) { held = opened("data", O_RDONLY); }
static void opens_other(void) { held = opened("other", O_RDONLY); }
SEE(fstat_data, 0, opens_data, struct stat s = {0}; says(fstat(held, &s)); attributes(&s));
SEE(read_data, 0, 0, memset(room, 0, 16); says(read(open("data", O_RDONLY), room, 15)); say("%s ", room));
SEE(read_opened_data, 0, opens_data, memset(room, 0, 16); says(pread(held, room, 15, 0)); say("%s ", room));
SEE(read_other, 0, 0, memset(room, 0, 16); says(read(open("other", O_RDONLY), room, 15)); say("%s ", room));
SEE(read_link, 0, 0, memset(room, 0, 99); says(readlink("link", room, 99)); say("%s ", room));
SEE(access_made, 0, 0, says(access("made", F_OK)));
SEE(access_data, 0, 0, says(access("data", F_OK)));
SEE(open_made, 0, 0, says(open("made", O_RDONLY | O_NONBLOCK) >= 0));
SEE(open_opened, 0, opens_data, char name[40]; sprintf(name, "/proc/self/fd/%d", held); memset(room, 0, 4096);
    ssize_t n = readlink(name, room, 4095); say(n < 0 ? "none" : "%s ", strrchr(room, '/')));
SEE(mkdir_made, CHANGES, 0, says(mkdir("made", 0755)));
SEE(create_made, CHANGES, 0, says(open("made", O_WRONLY | O_CREAT | O_EXCL, 0600) >= 0));
SEE(rmdir_empty, CHANGES, 0, says(rmdir("empty")));
SEE(unlink_data, CHANGES, 0, says(unlink("data")));
SEE(rename_onto_made, CHANGES, 0, says(syscall(SYS_renameat2, AT_FDCWD, "gone", AT_FDCWD, "made", RENAME_NOREPLACE)));
SEE(names, 0, 0, DIR *dir = opendir("."); unsigned sum = 0; int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir)); n++) for (char *at = e->d_name; *at; at++) sum = sum * 31 + *at;
    say("%d names ", n));
SEE(working_directory, 0, 0, memset(room, 0, 4096); long n = syscall(SYS_getcwd, room, 4096); say("%d %s ", n > 0,
    n > 0 ? strrchr(room, '/') : ""));
static void enters_sub(void) { ck(chdir("sub")); }
SEE(working_sub, 0, enters_sub, memset(room, 0, 4096); long n = syscall(SYS_getcwd, room, 4096); say("%d %s ", n > 0,
    n > 0 ? strrchr(room, '/') : ""));
SEE(getxattr_data, 0, 0, says(getxattr("data", "user.cell", room, 10)));
SEE(listxattr_data, 0, 0, says(listxattr("data", room, 100)));
SEE(create_xattr, CHANGES, 0, says(setxattr("data", "user.cell", "y", 1, XATTR_CREATE)));
SEE(flags_of_data, 0, opens_data, int flags = 0; says(ioctl(held, FS_IOC_GETFLAGS, &flags)); say("%x ", flags &
    FS_NODUMP_FL));
SEE(extents_of_data, 0, opens_data, struct fiemap map = {.fm_length = ~0ull, .fm_extent_count = 0};
    says(ioctl(held, FS_IOC_FIEMAP, &map)); say("%u ", map.fm_mapped_extents));
SEE(end_of_data, 0, opens_data, says(lseek(held, 0, SEEK_END)));
SEE(hole_in_data, 0, opens_data, says(lseek(held, 0, SEEK_HOLE)));
SEE(offset, FILES, 0, says(lseek(data, 0, SEEK_CUR)));
SEE(read_at_offset, FILES, 0, memset(room, 0, 16); says(read(data, room, 15)); say("%s ", room));
SEE(flags_of_other, FILES, 0, says(fcntl(data, F_GETFL)));
SEE(map_data, 0, opens_data, char *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, held, 0); say("%.3s ", at));
static char *looked_at;
static void maps_other(void) { looked_at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, opened("other", O_RDONLY), 0); }
SEE(look_at_other, 0, maps_other, say("%.5s ", looked_at));
static void maps_other_shared(void) { looked_at = mmap(0, 4096, PROT_READ, MAP_SHARED, opened("other", O_RDONLY), 0);
    }
SEE(look_at_shared, 0, maps_other_shared, say("%.5s ", looked_at));
SEE(cached_pages, 0, 0, unsigned char is = 0; char *at = mmap(0, 4096, PROT_READ, MAP_SHARED, opened("gone",
    O_RDONLY), 0);
    says(mincore(at, 4096, &is)); say("%d ", is & 1));
SEE(dirty_pages, 0, opens_data, struct { uint64_t start; uint64_t length; } range = {0, 0}; uint64_t found[5] = {0};
    says(syscall(451, held, &range, found, 0)); say("%d ", found[1] != 0));
SEE(flock_now, 0, 0, says(flock(opened("lock", O_RDWR), LOCK_EX | LOCK_NB)));
SEE(lock_now, 0, 0, struct flock all = {.l_type = F_WRLCK}; says(fcntl(opened("lock", O_RDWR), F_SETLK, &all)));
SEE(lock_asked, 0, 0, struct flock all = {.l_type = F_WRLCK}; says(fcntl(opened("lock", O_RDWR), F_GETLK, &all));
    say("%d ", all.l_type));
SEE(description_asked, 0, 0, struct flock all = {.l_type = F_WRLCK}; says(fcntl(opened("lock", O_RDWR), F_OFD_GETLK,
    &all)); say("%d ", all.l_type));
SEE(lease_now, 0, opens_other, says(fcntl(held, F_SETLEASE, F_WRLCK)));
SEE(lease_of, 0, opens_other, says(fcntl(held, F_GETLEASE)));
SEE(open_leased, 0, 0, says(open("other", O_WRONLY | O_NONBLOCK) >= 0); say("%d ", errno));
SEE(locks_listed, 0, 0, struct stat s; ck(stat("lock", &s)); char want[40]; FILE *f = fopen("/proc/locks", "r");
    int n = 0;
    sprintf(want, ":%ld ", (long)s.st_ino); while (f && fgets(room, 300, f)) n += !!strstr(room, want); say("%d ",
    n));
SEE(write_program, PROGRAM, 0, int f = open("program", O_WRONLY); say(f < 0 ? "error %d " : "open ", errno));
SEE(run_program, PROGRAM, 0, pid_t pid = ck(fork()); int status = 0;
    if (!pid) { execl("./program", "program", "0", (char *)0); _exit(errno); } ck(waitpid(pid, &status, 0));
    say("%d ", WEXITSTATUS(status)));
SEE(free_blocks, 0, 0, struct statfs s; says(statfs(".", &s)); say("%d ", s.f_files > 0));
SEE(handle_of_made, 0, 0, struct { struct file_handle head; char rest[128]; } found = {.head.handle_bytes = 128};
    int mount;
    says(name_to_handle_at(AT_FDCWD, "made", &found.head, &mount, 0)));
SEE(changed_name, 0, 0, says(syscall(SYS_openat, AT_FDCWD, "sub/made", O_RDONLY) >= 0));
SEE(chdir_sub, 0, 0, says(chdir("sub")));
