/* Where the kernel puts things, with and without randomized addresses, in the legacy layout, with an unlimited and
   with a small stack: there is room for what a program asks for, fixed addresses are honoured, the break grows. */
#include "check.h"
#include <sys/personality.h>
#include <sys/resource.h>

static void depth(int left) {
    volatile char room[4096];
    room[0] = left;
    if (left) depth(left - 1);
    EQUAL(room[0], (char)left);
}
/* Whether a place that is free can be taken, and one that is taken cannot. */
static void fixed(const char *name, uintptr_t where, size_t size) {
    char *place = (char *)where;
    char *got = mmap(place, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    printf("  %s: %s", name, got == MAP_FAILED ? strerrorname_np(errno) : got == place ? "there" : "elsewhere");
    if (got != MAP_FAILED) {
        got[0] = 1, got[size - 1] = 1;
        got = mmap(place, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        printf(", again: %s", got == MAP_FAILED ? strerrorname_np(errno) : "there");
        CHECK(munmap(place, size) == 0);
        got = mmap(place, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf(", as a hint: %s", got == place ? "there" : "elsewhere");
        OK(munmap(got, 4096));
    }
    printf("\n");
}
static int look(void) {
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    char *begin = sbrk(0);
    size_t grown = 0;
    while (grown < 1 << 30 && sbrk(1 << 24) != (void *)-1) grown += 1 << 24;
    printf("  the break grows: %zu MiB\n", grown >> 20);
    if (grown) begin[0] = 1, begin[grown - 1] = 1;
    EQUAL(brk(begin), 0);
    CHECK(sbrk(0) == begin);
    struct rlimit limit;
    OK(getrlimit(RLIMIT_STACK, &limit));
    size_t frames = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > 4 << 20 ? 800 : 10;
    depth(frames);
    size_t room = 0, size = 1ul << 38;
    char *all[64];
    for (int i = 0; i < 64; i++) {
        all[i] = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all[i] != MAP_FAILED) room++;
    }
    printf("  mappings of 256 GiB: %zu\n", room);
    for (int i = 0; i < 64; i++) if (all[i] != MAP_FAILED) OK(munmap(all[i], size));
    fixed("the lowest", 0x10000, 1 << 16);
    fixed("below the program", 0x550000000000, 1 << 20);
    fixed("in the middle", 0x300000000000, 1 << 20);
    fixed("low", 0x7fff8000, 1 << 20);
    fixed("sanitizers' shadow", 0x100000000000, 1 << 20);
    fixed("Go's heap", 0xc000000000, 1 << 26);
    fixed("beyond", 0x7ffffffff000, 4096);
    fixed("not aligned", 0x300000000001, 4096);
    char *low = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    printf("  32 bits: %d\n", low != MAP_FAILED && (uintptr_t)low < 1ul << 31);
    pid_t child = OK(fork());
    if (child == 0) _exit(7);
    printf("  a child: %d\n", wait_for(child));
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return look();
    struct { const char *name; unsigned long persona; rlim_t stack; } cases[] = {
        {"as it is", 0, 8 << 20},
        {"not randomized", ADDR_NO_RANDOMIZE, 8 << 20},
        {"legacy", ADDR_COMPAT_LAYOUT, 8 << 20},
        {"legacy, not randomized", ADDR_COMPAT_LAYOUT | ADDR_NO_RANDOMIZE, 8 << 20},
        {"unlimited stack", 0, RLIM_INFINITY},
        {"unlimited stack, not randomized", ADDR_NO_RANDOMIZE, RLIM_INFINITY},
        {"huge stack", 0, 1ul << 40},
        {"small stack", 0, 128 << 10},
        {"readable is executable", READ_IMPLIES_EXEC, 8 << 20},
        {"3 GB", ADDR_LIMIT_3GB, 8 << 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        printf("%s\n", cases[i].name);
        fflush(stdout);
        pid_t child = OK(fork());
        if (child == 0) {
            OK(personality(cases[i].persona));
            OK(setrlimit(RLIMIT_STACK, &(struct rlimit){cases[i].stack, cases[i].stack}));
            execl("/proc/self/exe", argv[0], "look", NULL);
            _exit(9);
        }
        printf("  %d\n", wait_for(child));
        fflush(stdout);
    }
    return 0;
}
