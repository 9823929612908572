/* /proc/self/maps can be parsed; every mapping of the program's own is in it; maps do not overlap. */
#include "check.h"
int main(void) {
    char *own = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[8192];
    unsigned long last = 0, start, end;
    int found_own = 0, found_stack = 0, found_main = 0, here = 0;
    while (fgets(line, sizeof line, maps)) {
        char permissions[5] = "";
        CHECK(sscanf(line, "%lx-%lx %4s", &start, &end, permissions) == 3);
        CHECK(start >= last && end > start);
        last = end;
        if ((unsigned long)own >= start && (unsigned long)own < end) found_own = !strcmp(permissions, "rw-p");
        if ((unsigned long)&line >= start && (unsigned long)&line < end) found_stack = 1;
        if ((unsigned long)main >= start && (unsigned long)main < end) { found_main = 1; here = strstr(line, "proc_maps") != NULL; }
    }
    printf("own %d stack %d main %d named %d\n", found_own, found_stack, found_main, here);
    char exe[4096];
    ssize_t n = OK(readlink("/proc/self/exe", exe, sizeof exe - 1));
    exe[n] = 0;
    printf("exe %s\n", strrchr(exe, '/') + 1);
    printf("comm %s", contents("/proc/self/comm"));
    printf("cmdline ends %s\n", strrchr(contents("/proc/self/cmdline"), '/') + 1);
    CHECK(strstr(contents("/proc/self/status"), "Name:\tproc_maps"));
    CHECK(strstr(contents("/proc/self/status"), "Threads:\t1\n"));
    return 0;
}
