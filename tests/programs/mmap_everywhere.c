/* A program that maps all that the kernel gives it: each address can be unmapped, mapped again at its place,
   protected and moved, and threads, children and calls go on. */
#include "check.h"

enum { CHUNKS_MAX = 4096 };
static char *at[CHUNKS_MAX];
static size_t sizes[CHUNKS_MAX];

static void *thread(void *unused) {
    (void)unused;
    char byte;
    int zero = OK(open("/dev/zero", O_RDONLY));
    EQUAL(read(zero, &byte, 1), 1);
    OK(close(zero));
    return NULL;
}

/* The second page of a chunk: in all the ways in which it can be changed. */
static void use(char *chunk) {
    char *page = chunk + 4096;
    OK(munmap(page, 4096));
    CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    *page = 1;
    OK(mprotect(page, 4096, PROT_READ));
    OK(madvise(page, 4096, MADV_DONTNEED));
    EQUAL(*page, 0);
    OK(munmap(page, 4096));
    CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
    *page = 2;
    CHECK(mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, chunk) == chunk);
    EQUAL(*chunk, 2);
    CHECK(mmap(page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
}

static void give_back(size_t i) {
    EQUAL(*at[i], 2);
    OK(munmap(at[i], sizes[i]));
}

int main(void) {
    pthread_t other;
    size_t count = 0, total = 0;
    for (size_t size = 1ul << 40; size >= 1 << 22; size >>= 1) {
        while (count < CHUNKS_MAX) {
            char *chunk = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (chunk == MAP_FAILED) break;
            use(chunk);
            at[count] = chunk, sizes[count++] = size, total += size;
        }
        EQUAL(errno, ENOMEM);
    }
    printf("nearly all: %d\n", total > 126ul << 40);
    pid_t child = OK(fork());
    if (child == 0) {
        for (size_t i = 0; i < count; i++) give_back(i);
        _exit(pthread_create(&other, NULL, thread, NULL) || pthread_join(other, NULL));
    }
    EQUAL(wait_for(child), 0);
    for (size_t i = 0; i < count; i += 2) give_back(i);
    for (int i = 0; i < 20; i++) {
        EQUAL(pthread_create(&other, NULL, thread, NULL), 0);
        EQUAL(pthread_join(other, NULL), 0);
    }
    for (size_t i = 1; i < count; i += 2) give_back(i);
    thread(NULL);
    puts("done");
    return 0;
}
