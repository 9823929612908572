/* treecost COMMAND…: what a command and everything that it starts cost, the supervisor included. One line on stderr:
 * wall and processor seconds, page faults, voluntary and involuntary switches. Processor time and counts say more than
 * wall time on a machine that is shared. */
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec * 1e-6; }

int main(int count, char **arguments) {
    if (count < 2) return 2;
    /* Whoever is left behind becomes ours, and is counted. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    double start = now_s();
    pid_t command = fork();
    if (command == 0) {
        execvp(arguments[1], arguments + 1);
        perror(arguments[1]);
        _exit(127);
    }
    int status, result = 1;
    for (pid_t ended; (ended = waitpid(-1, &status, 0)) > 0;)
        if (ended == command) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    fprintf(stderr, "wall %.3f processor %.3f (user %.3f system %.3f) faults %ld switches %ld %ld\n", now_s() - start,
            seconds(used.ru_utime) + seconds(used.ru_stime), seconds(used.ru_utime), seconds(used.ru_stime),
            used.ru_minflt, used.ru_nvcsw, used.ru_nivcsw);
    return result;
}
