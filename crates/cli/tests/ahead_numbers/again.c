// Run in a pid namespace of its own: numbers of processes are given again soon, as on a machine that has been up for a while. Every wait hears of the
// child that was made, with the status that it ended with.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void begin_again(void) {
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
    if (fd < 0 || write(fd, "20", 2) != 2) {
        perror("ns_last_pid");
        exit(1);
    }
    close(fd);
}

// A call of each kind that is guessed: a guess makes a checkpoint, which takes a number, too.
static void guess(void) {
    char byte;
    int fd = open("/dev/null", O_RDONLY);
    if (read(fd, &byte, 1) != 0) exit(1);
    close(fd);
}

static int wait_for(pid_t child, const char *who, int round) {
    int status = 0;
    pid_t ended = waitpid(-1, &status, 0);
    if (ended != child || !WIFEXITED(status)) {
        printf("round %d, %s: child %d, ended %d, status %x, errno %d\n", round, who, child, ended, status, errno);
        return -1;
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int round = 0; round < rounds; round++) {
        if (round % 24 == 0) begin_again();
        guess();
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 3; i++) {
                pid_t grandchild = fork();
                if (grandchild == 0) _exit(i);
                if (wait_for(grandchild, "its child", round) != i) _exit(1);
                guess();
            }
            _exit(0);
        }
        if (wait_for(child, "its parent", round) != 0) return 1;
    }
    puts("all were heard of");
    return 0;
}
