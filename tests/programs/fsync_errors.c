/* Every spelling of "make it durable" fails as it must: bad descriptors, pipes, sockets, directories, read-only ones. */
#include "check.h"
#define TRY(call) do { errno = 0; long r = (call); printf("%-44s %ld %s\n", #call, r, r < 0 ? strerrorname_np(errno) : ""); } while (0)
int main(void) {
    int file = OK(open("file", O_RDWR | O_CREAT, 0644)), ro = OK(open("file", O_RDONLY)), dir = OK(open(".", O_RDONLY)), path = OK(open("file", O_PATH));
    int fds[2], sock = OK(socket(AF_UNIX, SOCK_STREAM, 0)), null = OK(open("/dev/null", O_RDWR));
    OK(pipe(fds));
    int all[] = {file, ro, dir, path, fds[0], fds[1], sock, null, -1, 999};
    const char *names[] = {"file", "read-only", "directory", "O_PATH", "pipe in", "pipe out", "socket", "/dev/null", "-1", "999"};
    OK(write(file, "text", 4));
    for (int i = 0; i < 10; i++) {
        int fd = all[i];
        printf("== %s\n", names[i]);
        TRY(fsync(fd));
        TRY(fdatasync(fd));
        TRY(syncfs(fd));
        TRY(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
        TRY(sync_file_range(fd, 0, 4, 7));
        TRY(sync_file_range(fd, -1, 4, 7));
        TRY(sync_file_range(fd, 0, 4, 0x100));
    }
    sync();
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    TRY(msync(map, 4096, MS_SYNC));
    TRY(msync(map, 4096, MS_ASYNC));
    TRY(msync(map, 4096, MS_SYNC | MS_ASYNC));
    TRY(msync(map + 1, 4096, MS_SYNC));
    TRY(msync(map, 4096, 0x40));
    TRY(msync(map, 1, MS_SYNC | MS_INVALIDATE));
    OK(munmap(map, 4096));
    TRY(msync(map, 4096, MS_SYNC));
    return 0;
}
