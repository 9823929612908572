/* What a child of vfork maps, unmaps, protects and drops, and where it moves the break, is so in its parent as well:
 * dash grows its heap in such a child, and goes on to use what it got there. */
#include "check.h"

#define PAGE 4096
/* What the child leaves to its parent. */
static char *volatile left;
static volatile int number;

enum end { BY_EXIT, BY_EXEC, BY_SIGNAL, ENDS };

static void leave(enum end end) {
    if (end == BY_EXEC) execl("/bin/true", "true", NULL);
    if (end == BY_SIGNAL) raise(SIGKILL);
    _exit(0);
}

static int is_mapped(void *at) {
    return madvise(at, PAGE, MADV_NORMAL) == 0;
}

static char *map(size_t pages) {
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

#define IN_CHILD(end, ...) do { \
        pid_t child = OK(vfork()); \
        if (child == 0) { __VA_ARGS__; leave(end); } \
        int expected = (end) == BY_SIGNAL ? 128 + SIGKILL : 0; \
        EQUAL(wait_for(child), expected); \
    } while (0)

static void the_break_moves(enum end end) {
    char *before = sbrk(0);
    IN_CHILD(end, left = sbrk(50 * PAGE), memset(left, 'a', 50 * PAGE));
    EQUAL((char *)sbrk(0) - before, 50 * PAGE);
    CHECK(left == before && left[49 * PAGE] == 'a');
    left[20] = 'b';
    /* Given back and taken again it has zeroes. */
    IN_CHILD(end, sbrk(-40 * PAGE), sbrk(30 * PAGE), left[30 * PAGE] = 'c');
    EQUAL((char *)sbrk(0) - before, 40 * PAGE);
    CHECK(left[20] == 'b' && left[9 * PAGE] == 'a' && left[10 * PAGE] == 0 && left[30 * PAGE] == 'c');
    sbrk(-40 * PAGE);
}

static void memory_is_mapped_and_unmapped(enum end end) {
    char *old = map(10);
    memset(old, 'o', 10 * PAGE);
    IN_CHILD(end, left = map(20), left[5 * PAGE] = 'n', munmap(old + 3 * PAGE, 4 * PAGE));
    CHECK(left[5 * PAGE] == 'n' && left[6 * PAGE] == 0 && old[2 * PAGE] == 'o' && old[7 * PAGE] == 'o');
    CHECK(is_mapped(old + 2 * PAGE) && !is_mapped(old + 3 * PAGE) && !is_mapped(old + 6 * PAGE));
    IN_CHILD(end, left = mremap(left, 20 * PAGE, 300 * PAGE, MREMAP_MAYMOVE), left[299 * PAGE] = 'm');
    CHECK(left[5 * PAGE] == 'n' && left[299 * PAGE] == 'm');
    OK(munmap(left, 300 * PAGE));
    OK(munmap(old, 10 * PAGE));
}

static void pages_are_dropped_and_protected(enum end end) {
    char *at = map(10);
    memset(at, 'x', 10 * PAGE);
    IN_CHILD(end, madvise(at + PAGE, 2 * PAGE, MADV_DONTNEED), at[2 * PAGE] = 'y',
             mprotect(at + 5 * PAGE, PAGE, PROT_NONE));
    CHECK(at[0] == 'x' && at[PAGE] == 0 && at[2 * PAGE] == 'y' && at[3 * PAGE] == 'x' && at[6 * PAGE] == 'x');
    int ends[2];
    OK(pipe(ends));
    FAILS(write(ends[1], at + 5 * PAGE, 1), EFAULT);
    OK(mprotect(at + 5 * PAGE, PAGE, PROT_READ));
    CHECK(at[5 * PAGE] == 'x');
    close(ends[0]), close(ends[1]);
    OK(munmap(at, 10 * PAGE));
}

static void a_file_is_mapped(enum end end) {
    int file = OK(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600));
    OK(ftruncate(file, 3 * PAGE));
    EQUAL(pwrite(file, "file", 4, PAGE), 4);
    IN_CHILD(end, left = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0), left[2 * PAGE] = 'p');
    CHECK(memcmp(left + PAGE, "file", 4) == 0 && left[2 * PAGE] == 'p' && left[0] == 0);
    OK(munmap(left, 3 * PAGE));
    close(file);
    OK(unlink("mapped"));
}

static void what_children_do_not_get_stays(enum end end) {
    char *kept = map(3), *wiped = map(3);
    memset(kept, 'k', 3 * PAGE), memset(wiped, 'w', 3 * PAGE);
    OK(madvise(kept, 3 * PAGE, MADV_DONTFORK));
    OK(madvise(wiped, 3 * PAGE, MADV_WIPEONFORK));
    IN_CHILD(end, left = map(4), left[0] = 'l');
    CHECK(left[0] == 'l' && kept[0] == 'k' && kept[2 * PAGE] == 'k' && wiped[0] == 'w' && wiped[2 * PAGE] == 'w');
    OK(munmap(left, 4 * PAGE));
    OK(munmap(kept, 3 * PAGE)), OK(munmap(wiped, 3 * PAGE));
}

static int deep(int depth) {
    volatile char room[PAGE];
    room[0] = (char)depth;
    number += room[0] != 0;
    return depth == 0 ? 0 : deep(depth - 1) + (room[0] & 1);
}

static void the_stack_grows(enum end end) {
    number = 0;
    IN_CHILD(end, deep(200));
    EQUAL(number, 200);
    number = 0;
    deep(200);
    EQUAL(number, 200);
}

/* A failed exec gives what was mapped until then, and what is mapped after it comes later. */
static void a_failed_exec_is_not_the_end(enum end end) {
    char *volatile first = NULL;
    IN_CHILD(end, first = map(3), first[0] = '1', execl("/nonexistent", "x", NULL), munmap(first, 3 * PAGE),
             left = map(5), left[4 * PAGE] = '2');
    CHECK(left[4 * PAGE] == '2');
    OK(munmap(left, 5 * PAGE));
}

int main(void) {
    void (*all[])(enum end) = {the_break_moves, memory_is_mapped_and_unmapped, pages_are_dropped_and_protected,
        a_file_is_mapped, what_children_do_not_get_stays, the_stack_grows, a_failed_exec_is_not_the_end};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (enum end end = 0; end < ENDS; end++) {
            all[i](end);
            printf("%zu %d\n", i, end);
            fflush(stdout);
        }
    return 0;
}
