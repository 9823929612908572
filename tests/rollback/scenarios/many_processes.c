/* 3 levels of 3 children; each sends its sum to its parent through a pipe, and ends with it. */
/* @never WRONG */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int node(int depth, int out)
{
    int p[2], sum = 1, status = 0;
    if (depth) {
        if (pipe(p)) puts("WRONG pipe");
        for (int i = 0; i < 3; i++) {
            pid_t pid = fork();
            if (pid < 0) puts("WRONG fork");
            if (!pid) { close(p[0]); _exit(node(depth - 1, p[1])); }
        }
        close(p[1]);
        for (int value; read(p[0], &value, sizeof value) == sizeof value;) sum += value;
        close(p[0]);
        for (int i = 0, s; i < 3; i++) { if (wait(&s) < 0) puts("WRONG wait"); status += WEXITSTATUS(s); }
        if (depth > 1 && status != 3 * ((sum - 1) / 3 & 0x7f)) puts("WRONG status");
    }
    if (write(out, &sum, sizeof sum) != sizeof sum) puts("WRONG write");
    return sum & 0x7f;
}
int main(void)
{
    int p[2], sum;
    if (pipe(p)) return 9;
    node(3, p[1]);
    if (read(p[0], &sum, sizeof sum) != sizeof sum || sum != 40) puts("WRONG sum");
    printf("sum %d\n", sum);
    return 0;
}
