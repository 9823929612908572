/* A process stops the threads with which it shares its memory, looks at their registers and lets them go, as LeakSanitizer does: threads that compute,
 * sleep, wait for bytes and write, and the one that waits for the process. */
#include "check.h"
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#define MARK 0x5eed5eed5eedL
enum { THREADS = 4, ROUNDS = 8 };
static volatile int computed, written, is_over;
static int pipe_fds[2], file;
static pid_t tids[THREADS + 1];
static volatile int started;

/* The only way to know what is in a register while the thread is in a call. */
static long marked_read(int fd, char *byte) {
    long answer;
    __asm__ volatile("mov %[mark], %%r12\n\tsyscall" : "=a"(answer)
        : "a"(SYS_read), "D"(fd), "S"(byte), "d"(1L), [mark] "i"(MARK) : "r12", "rcx", "r11", "memory");
    return answer;
}

static void *thread(void *argument) {
    int which = (int)(intptr_t)argument;
    char byte = 'x';
    tids[which] = syscall(SYS_gettid);
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    switch (which) {
    case 0:
        while (!is_over) computed++;
        break;
    case 1:
        while (!is_over) sleep_ms(1);
        break;
    case 2:
        EQUAL(marked_read(pipe_fds[0], &byte), 1);
        EQUAL(byte, 'y');
        break;
    case 3:
        while (!is_over) EQUAL(pwrite(file, &byte, 1, written++ % 4096), 1);
        break;
    }
    return NULL;
}

static void look_at(pid_t tid, int is_reader) {
    struct user_regs_struct registers = {0}, again = {0};
    struct iovec vector = {&registers, sizeof registers};
    OK(ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &vector));
    EQUAL(vector.iov_len, sizeof registers);
    OK(ptrace(PTRACE_GETREGS, tid, 0, &again));
    CHECK(memcmp(&registers, &again, sizeof again) == 0);
    CHECK(registers.rsp != 0 && registers.rip != 0 && registers.fs_base != 0);
    EQUAL(registers.gs_base, 0);
    if (is_reader) {
        EQUAL(registers.r12, MARK);
        EQUAL(registers.rdi, pipe_fds[0]);
    }
    char state[16384];
    vector = (struct iovec){state, sizeof state};
    OK(ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &vector));
    CHECK(vector.iov_len >= 512);
    vector = (struct iovec){state, sizeof state};
    OK(ptrace(PTRACE_GETREGSET, tid, NT_FPREGSET, &vector));
    EQUAL(vector.iov_len, 512);
    vector.iov_len = 7;
    FAILS(ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &vector), EINVAL);
}

static int tracer(void *unused) {
    (void)unused;
    int status;
    for (int i = 0; i <= THREADS; i++) {
        OK(ptrace(PTRACE_ATTACH, tids[i], 0, 0));
        EQUAL(waitpid(tids[i], &status, __WALL), tids[i]);
        CHECK(WIFSTOPPED(status));
        EQUAL(WSTOPSIG(status), SIGSTOP);
        FAILS(ptrace(PTRACE_ATTACH, tids[i], 0, 0), EPERM);
    }
    int computed_then = computed, written_then = written;
    for (int i = 0; i <= THREADS; i++) look_at(tids[i], i == 2);
    for (int i = 0; i < 100; i++) sched_yield();
    EQUAL(computed_then, computed);
    EQUAL(written_then, written);
    for (int i = 0; i <= THREADS; i++) {
        OK(ptrace(PTRACE_DETACH, tids[i], 0, 0));
        FAILS(ptrace(PTRACE_DETACH, tids[i], 0, 0), ESRCH);
    }
    return 5;
}

int main(void) {
    pthread_t threads[THREADS];
    OK(pipe(pipe_fds));
    file = OK(open("file", O_RDWR | O_CREAT, 0600));
    for (intptr_t i = 0; i < THREADS; i++) EQUAL(pthread_create(&threads[i], NULL, thread, (void *)i), 0);
    tids[THREADS] = getpid();
    while (started < THREADS) sched_yield();
    /* The reader is to be in its call when it is stopped. */
    char doing[64] = "";
    while (strncmp(doing, "0 ", 2) != 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tids[2]);
        int fd = OK(open(path, O_RDONLY));
        OK(read(fd, doing, sizeof doing - 1));
        close(fd);
    }
    char *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = OK(clone(tracer, stack + (1 << 20), CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, NULL));
        int status;
        EQUAL(syscall(SYS_wait4, pid, &status, __WALL, NULL), pid);
        CHECK(WIFEXITED(status));
        EQUAL(WEXITSTATUS(status), 5);
    }
    is_over = 1;
    EQUAL(write(pipe_fds[1], "y", 1), 1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    unlink("file");
    /* Nobody stops a thread of its own process, nor one that is not there. */
    FAILS(ptrace(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
    FAILS(ptrace(PTRACE_DETACH, getpid(), 0, 0), ESRCH);
    printf("stopped and let go %d times\n", ROUNDS);
    return 0;
}
