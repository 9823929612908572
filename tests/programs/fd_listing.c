/* /proc/self/fd and /proc/PID/fd of a child show the program's own descriptors and no others. */
#include "check.h"
#include <dirent.h>
static void list(const char *path) {
    DIR *directory = opendir(path);
    CHECK(directory);
    struct dirent *entry;
    int seen[1024] = {0};
    while ((entry = readdir(directory))) if (entry->d_name[0] != '.') seen[atoi(entry->d_name) & 1023] = 1;
    printf("%s:", strstr(path, "self") ? path : "of the child");
    for (int i = 0; i < 1024; i++) if (seen[i] && i != dirfd(directory)) printf(" %d", i);
    printf("\n");
    closedir(directory);
}
int main(void) {
    list("/proc/self/fd");
    OK(open("/dev/null", O_RDONLY));
    int fds[2];
    OK(pipe(fds));
    list("/proc/self/fd");
    list("/proc/self/fdinfo");
    pid_t pid = OK(fork());
    if (pid == 0) { close(3); pause(); }
    sleep_ms(50);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    list(path);
    kill(pid, SIGKILL);
    wait_for(pid);
    fflush(stdout);
    execlp("python3", "python3", "-c", "import os; print('after exec:', sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])", NULL);
    execlp("true", "true", NULL);
}
