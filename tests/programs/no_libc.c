/* A program without libc: only raw system calls, its own _start, a tiny .text. */
/* @no-libc */
static long call(long n, long a, long b, long c) { long r; __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory"); return r; }
static long length(const char *s) { long n = 0; while (s[n]) n++; return n; }
static void say(const char *s) { call(1, 1, (long)s, length(s)); }
__attribute__((used)) static void run(void) {
    long fd = call(2, (long)"file", 0102 /* O_RDWR|O_CREAT */, 0644);
    say(fd == 3 ? "opened 3\n" : "wrong descriptor\n");
    call(1, fd, (long)"raw\n", 4);
    say(call(74, fd, 0, 0) == 0 ? "fsync 0\n" : "fsync failed\n");
    say(call(74, 77, 0, 0) == -9 ? "EBADF\n" : "wrong error\n");
    long pid = call(57, 0, 0, 0);
    if (pid == 0) { say("child\n"); call(60, 5, 0, 0); }
    int status = 0;
    long r;
    __asm__ volatile("xor %%r10d, %%r10d\n syscall" : "=a"(r) : "a"(61), "D"(pid), "S"(&status), "d"(0) : "rcx", "r10", "r11", "memory");
    say(r == pid && status == 5 << 8 ? "status 5\n" : "wrong status\n");
    for (int i = 0; i < 1000; i++) if (call(8, fd, 0, 1) != 4) { say("lseek\n"); call(60, 1, 0, 0); }
    call(231, 0, 0, 0);
}
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n and $-16, %rsp\n call run\n");
