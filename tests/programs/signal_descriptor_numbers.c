/* Signals meet a thread at any moment of calls that are made by name: no descriptor is left that the program has not
   opened, the next one has the lowest number, and what other programs inherit is what they inherit anyway. */
#include "check.h"
#include <dirent.h>

static volatile sig_atomic_t heard;
static void handler(int signal) { (void)signal; heard++; }

/* The open descriptors, as one line; the one that lists them is the lowest that is free. */
static void list(char *line, size_t size) {
    int number[64], count = 0, len = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) FAIL("opendir");
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && count < 64) number[count++] = atoi(entry->d_name);
    closedir(dir);
    for (int fd = 0; fd < 1024; fd++)
        for (int i = 0; i < count; i++)
            if (number[i] == fd) len += snprintf(line + len, size - (size_t)len, "%d ", fd);
}

static void every_us(int us) {
    struct itimerval timer = {{0, us}, {0, us}};
    OK(setitimer(ITIMER_REAL, &timer, NULL));
}

static void once(int i) {
    struct stat stat;
    OK(truncate("f", i & 1));
    OK(lstat("f", &stat));
    EQUAL(access("f", R_OK), 0);
    int fd = OK(open("f", O_RDONLY | O_CLOEXEC));
    OK(close(fd));
}

static void *beside(void *none) {
    for (int i = 0; i < rounds(2000); i++) once(i);
    return none;
}

/* Under a storm of signals, with a thread beside this one or not. */
static void storm(int us, int has_company) {
    pthread_t thread;
    every_us(us);
    if (has_company) CHECK(pthread_create(&thread, NULL, beside, NULL) == 0);
    beside(NULL);
    if (has_company) CHECK(pthread_join(thread, NULL) == 0);
    every_us(0);
}

int main(void) {
    char before[1024] = "", after[1024] = "";
    sigset_t traps;
    write_file("f", "contents\n");
    on_signal(SIGALRM, handler, SA_RESTART);
    list(before, sizeof before);
    int lowest = OK(open("f", O_RDONLY));
    OK(close(lowest));
    /* Each step of a call is met some time, whatever it costs here. */
    storm(200, 0), storm(330, 0), storm(470, 0), storm(1000, 0);
    /* Where a step of a tracer would take a signal that waits. */
    sigemptyset(&traps), sigaddset(&traps, SIGTRAP);
    OK(sigprocmask(SIG_BLOCK, &traps, NULL));
    OK(raise(SIGTRAP));
    storm(330, 0);
    OK(sigpending(&traps));
    CHECK(sigismember(&traps, SIGTRAP));
    on_signal(SIGTRAP, SIG_IGN, 0);
    storm(470, 0);
    list(after, sizeof after);
    if (strcmp(before, after)) FAIL("open before: %s, after: %s", before, after);
    storm(410, 1);
    list(after, sizeof after);
    if (strcmp(before, after)) FAIL("open before: %s, after threads: %s", before, after);
    EQUAL(open("f", O_RDONLY), lowest);
    OK(close(lowest));
    /* With a lease somewhere the file is opened for the call: nothing is left that keeps it open for writing. */
    int leased = OK(open("leased", O_CREAT | O_RDONLY | O_CLOEXEC, 0644));
    int has_lease = fcntl(leased, F_SETLEASE, F_RDLCK) == 0;
    storm(300, 0);
    if (has_lease) OK(fcntl(leased, F_SETLEASE, F_UNLCK));
    OK(close(leased));
    list(after, sizeof after);
    if (strcmp(before, after)) FAIL("open before: %s, after a lease: %s", before, after);
    printf("nothing is left\n");
    return 0;
}
