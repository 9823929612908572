/* open_by_handle_at: opens, empties, and fails as the kernel does. */
#include "check.h"

int main(void) {
    struct { struct file_handle handle; unsigned char bytes[128]; } found = {.handle.handle_bytes = 128};
    int mount, folder = OK(open(".", O_RDONLY | O_DIRECTORY));
    write_file("file", "contents");
    if (name_to_handle_at(AT_FDCWD, "file", &found.handle, &mount, 0) < 0) return printf("no handle: %s\n", strerrorname_np(errno)), 0;
    int reads = open_by_handle_at(folder, &found.handle, O_RDONLY);
    if (reads < 0) return printf("may not: %s\n", strerrorname_np(errno)), 0;
    char text[16] = "";
    EQUAL(read(reads, text, sizeof text), 8);
    printf("%s\n", text);
    int empties = OK(open_by_handle_at(folder, &found.handle, O_WRONLY | O_TRUNC | O_APPEND));
    printf("%zu bytes, flags %o\n", strlen(contents("file")), (int)OK(fcntl(empties, F_GETFL)) & (O_APPEND | O_ACCMODE | O_TRUNC));
    EQUAL(write(empties, "more", 4), 4);
    printf("%s\n", contents("file"));
    EQUAL(read(reads, text, sizeof text), 0);
    FAILS(open_by_handle_at(-1, &found.handle, O_RDONLY | O_TRUNC), EBADF);
    FAILS(open_by_handle_at(folder, NULL, O_WRONLY | O_TRUNC), EFAULT);
    OK(unlink("file")), close(reads), close(empties);
    FAILS(open_by_handle_at(folder, &found.handle, O_WRONLY | O_TRUNC), ESTALE);
    return 0;
}
