/* A library with raw system calls is loaded, used and unloaded, 100 times, also at changing addresses and in threads. */
/* @library lib_raw.c */
/* @build -ldl */
#include "check.h"
#include <dlfcn.h>
static int zero;
static void use(void) {
    void *library = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW);
    if (!library) FAIL("%s", dlerror());
    long (*call)(long, long, long, long) = dlsym(library, "raw_call");
    char byte;
    for (int i = 0; i < 5; i++) EQUAL(call(SYS_read, zero, (long)&byte, 1), 1);
    CHECK(dlclose(library) == 0);
}
static void *thread(void *u) { for (int i = 0; i < 20; i++) use(); return NULL; }
int main(void) {
    zero = OK(open("/dev/zero", O_RDONLY));
    for (int i = 0; i < 100; i++) {
        use();
        if (i % 7 == 0) OK((long)mmap(NULL, 4096 * (i + 1), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1 ? -1 : 0);
    }
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&t[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    printf("loaded and unloaded\n");
    return 0;
}
