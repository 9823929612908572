/* exec with 1,000 arguments and a 500 KB environment; one that is too big is E2BIG; argv[0] absent or empty. */
#include "check.h"
int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "again")) {
        const char *big = getenv("BIG4");
        printf("arguments %d last %s, variable %zu\n", count, arguments[count - 1], big ? strlen(big) : 0);
        return 0;
    }
    static char *args[1003], *environment[7], texts[1000][8];
    args[0] = arguments[0]; args[1] = "again";
    for (int i = 0; i < 1000; i++) { sprintf(texts[i], "a%d", i); args[i + 2] = texts[i]; }
    for (int i = 0; i < 5; i++) { environment[i] = malloc(100010); memset(environment[i], 'x', 100006); memcpy(environment[i], "BIG0=", 5); environment[i][3] = '0' + i; environment[i][100006] = 0; }
    pid_t pid = OK(fork());
    if (pid == 0) { execve("/proc/self/exe", args, environment); FAIL("exec"); }
    EQUAL(wait_for(pid), 0);
    char *huge = malloc(200000);
    memset(huge, 'y', 199999); huge[199999] = 0;
    FAILS(execve("/bin/true", (char *[]){"true", huge, NULL}, NULL), E2BIG);
    static char *many[100000];
    for (int i = 0; i < 99999; i++) many[i] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    FAILS(execve("/bin/true", many, NULL), E2BIG);
    pid = OK(fork());
    if (pid == 0) { execve("/bin/true", (char *[]){NULL}, NULL); _exit(9); }
    printf("no arguments at all %d\n", wait_for(pid));
    return 0;
}
