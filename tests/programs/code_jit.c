/* System calls in code that is written at run time, run, changed, run again, in RWX and in W^X memory; and unmapped. */
#include "check.h"
static const unsigned char CODE[] = {0xb8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3, 0x90, 0x90, 0x90, 0x90};
static long run(void *code, long a, long b, long c) {
    long result;
    __asm__ volatile("call *%1" : "=a"(result) : "r"(code), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
static void put(unsigned char *at, int number) { memcpy(at, CODE, sizeof CODE); memcpy(at + 1, &number, 4); }
int main(void) {
    int zero = OK(open("/dev/zero", O_RDONLY));
    char byte;
    unsigned char *rwx = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(rwx != MAP_FAILED);
    for (int i = 0; i < 200; i++) {
        unsigned char *at = rwx + (i % 16) * 64;
        put(at, SYS_read);
        EQUAL(run(at, zero, (long)&byte, 1), 1);
        EQUAL(memcmp(at + 7, CODE + 7, 4) != 0 && at[5] == 0x0f, 0);
        put(at, SYS_lseek);
        EQUAL(run(at, zero, 0, 1), 0);
        put(at, SYS_getpid);
        EQUAL(run(at, 0, 0, 0), getpid());
    }
    for (int i = 0; i < 20; i++) {
        unsigned char *wx = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        put(wx + 100, SYS_read);
        OK(mprotect(wx, 4096, PROT_READ | PROT_EXEC));
        for (int j = 0; j < 5; j++) EQUAL(run(wx + 100, zero, (long)&byte, 1), 1);
        OK(mprotect(wx, 4096, PROT_READ | PROT_WRITE));
        put(wx + 100, SYS_lseek);
        OK(mprotect(wx, 4096, PROT_READ | PROT_EXEC));
        EQUAL(run(wx + 100, zero, 0, 1), 0);
        OK(munmap(wx, 4096));
    }
    /* The last instruction of a page, with nothing mapped after it. */
    unsigned char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(munmap(edge + 4096, 4096));
    put(edge + 4096 - 8 - 4, SYS_read);
    memmove(edge + 4096 - 8, CODE, 8);
    int number = SYS_read;
    memcpy(edge + 4096 - 7, &number, 4);
    for (int j = 0; j < 5; j++) EQUAL(run(edge + 4096 - 8, zero, (long)&byte, 1), 1);
    printf("code made at run time\n");
    return 0;
}
