/* A static binary: files, threads, children, signals. */
/* @build -static */
#include "check.h"
static void *thread(void *argument) { return argument; }
static volatile int caught;
static void handler(int s) { caught++; }
int main(void) {
    write_file("file", "static\n");
    printf("%s", contents("file"));
    pthread_t t;
    void *value;
    CHECK(pthread_create(&t, NULL, thread, "joined") == 0);
    pthread_join(t, &value);
    on_signal(SIGUSR1, handler, 0);
    raise(SIGUSR1);
    pid_t pid = OK(fork());
    if (pid == 0) { execl("/bin/sh", "sh", "-c", "echo from sh; exit 3", NULL); _exit(9); }
    int status = wait_for(pid);
    printf("%s, caught %d, child %d\n", (char *)value, caught, status);
    int fd = OK(open("file", O_RDWR));
    printf("fsync %d\n", fsync(fd));
    return 0;
}
