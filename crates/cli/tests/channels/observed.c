// What the result of a call, or its error, tells of another process, of a total, or of a name in /proc.
#include "harness.h"
#include <linux/capability.h>
#include <sched.h>
#include <sys/statfs.h>
#include <sys/timerfd.h>
#include <time.h>

// A changes itself; B asks for it.
struct attributes { unsigned size, policy; unsigned long flags; int nice; unsigned priority; unsigned long times[3]; };
static void set_nice(int nice) {
    struct attributes wanted = {.size = sizeof wanted, .nice = nice};
    ck(syscall(SYS_sched_setattr, 0, &wanted, 0));
}
static void own_group(void) { dirty(), ck(setpgid(0, 0)); }
static void own_session(void) { dirty(), ck(setsid()); }
static void pgid_of(int r) {
    if (r == A) own_group();
    if (r == B) later(), must(getpgid(pid_a) == pid_a), saw();
}
static void pgid_of_leader(int r) {
    if (r == A) own_session();
    if (r == B) later(), must(getpgid(pid_a) == pid_a), saw();
}
static void sid_of(int r) {
    if (r == A) own_session();
    if (r == B) later(), must(getsid(pid_a) == pid_a), saw();
}
static void affinity_of(int r) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (r == A) CPU_SET(0, &set), dirty(), ck(sched_setaffinity(0, sizeof set, &set));
    if (r == B) later(), ck(sched_getaffinity(pid_a, sizeof set, &set)), must(CPU_COUNT(&set) == 1), saw();
}
static void scheduler_of(int r) {
    struct sched_param none = {0};
    if (r == A) dirty(), ck(sched_setscheduler(0, SCHED_BATCH, &none));
    if (r == B) later(), must(sched_getscheduler(pid_a) == SCHED_BATCH), saw();
}
static void attributes_of(int r) {
    struct attributes found;
    if (r == A) dirty(), set_nice(5);
    if (r == B) later(), ck(syscall(SYS_sched_getattr, pid_a, &found, sizeof found, 0)), must(found.nice == 5), saw();
}
static void priority_of(int r) {
    if (r == A) dirty(), set_nice(5);
    if (r == B) later(), must(getpriority(PRIO_PROCESS, pid_a) == 5), saw();
}
static void priority_of_leader(int r) {
    if (r == A) ck(setpgid(0, 0)), dirty(), set_nice(4);
    if (r == B) later(), must(getpriority(PRIO_PGRP, pid_a) == 4), saw();
}
#define IO_PROCESS 1
#define IO_GROUP 2
#define IO_LOWEST (2 << 13 | 7)
static void io_priority_of(int r) {
    if (r == A) dirty(), ck(syscall(SYS_ioprio_set, IO_PROCESS, 0, IO_LOWEST));
    if (r == B) later(), must(syscall(SYS_ioprio_get, IO_PROCESS, pid_a) == IO_LOWEST), saw();
}
static void io_priority_of_leader(int r) {
    if (r == A) ck(setpgid(0, 0)), dirty(), ck(syscall(SYS_ioprio_set, IO_PROCESS, 0, IO_LOWEST));
    if (r == B) later(), must(syscall(SYS_ioprio_get, IO_GROUP, pid_a) == IO_LOWEST), saw();
}
static int capabilities(pid_t pid) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, pid};
    struct __user_cap_data_struct data[2];
    return syscall(SYS_capget, &header, data);
}
static void robust_list_of(int r) {
    static struct { void *next; long offset; void *pending; } list;
    void *found;
    size_t length;
    list.next = &list;
    if (r == A) dirty(), ck(syscall(SYS_set_robust_list, &list, sizeof list));
    if (r == B) later(), ck(syscall(SYS_get_robust_list, pid_a, &found, &length)), must(found == &list), saw();
}
#define CLOCK_OF(pid) ((clockid_t)(~(unsigned)(pid) << 3 | 2))
static long used(clockid_t clock) {
    struct timespec time;
    ck(syscall(SYS_clock_gettime, clock, &time));
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}
static void work(int n) {
    for (long end = used(CLOCK_PROCESS_CPUTIME_ID) + n; used(CLOCK_PROCESS_CPUTIME_ID) < end;) {}
}
static void cpu_time_of(int r) {
    if (r == A) dirty(), work(150);
    if (r == B) { for (int n = 0; n < 100 && used(CLOCK_OF(pid_a)) < 100; n++) ms(20); must(used(CLOCK_OF(pid_a)) >= 100), saw(); }
}
static void cpu_time_awaited(int r) {
    struct timespec time = {0, 100000000};
    if (r == A) dirty(), work(200);
    if (r == B) must(!syscall(SYS_clock_nanosleep, CLOCK_OF(pid_a), 0, &time, 0)), saw();
}
static void cpu_timer(int r) { // A signal when A has worked.
    if (r == A) dirty(), work(200);
    if (r != B) return;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec once = {.it_value.tv_nsec = 100000000};
    sigset_t set;
    int taken;
    timer_t timer;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), block(SIGUSR1);
    ck(timer_create(CLOCK_OF(pid_a), &event, &timer)), ck(timer_settime(timer, 0, &once, 0));
    must(!sigwait(&set, &taken)), saw();
}

// Wait until A has done what is not about the change; it makes the change a moment later.
#define AWAIT(condition) do { for (int n_ = 0; n_ < 100 && !(condition); n_++) ms(10); must(condition); } while (0)

// A ends; B asks for it in vain.
static int gone_is(int r) {
    if (r == S) signal(SIGCHLD, SIG_IGN);
    if (r == A) dirty();
    if (r == B) later(), errno = 0;
    return r == B;
}
#define GONE(name, call) static void gone_##name(int r) { if (gone_is(r)) must((call) == -1 && errno == ESRCH), saw(); }
GONE(getpgid, getpgid(pid_a))
GONE(getsid, getsid(pid_a))
GONE(getaffinity, syscall(SYS_sched_getaffinity, pid_a, 1024, buf))
GONE(setaffinity, syscall(SYS_sched_setaffinity, pid_a, 1024, buf))
GONE(getscheduler, sched_getscheduler(pid_a))
GONE(getparam, sched_getparam(pid_a, (struct sched_param *)buf))
GONE(getattr, syscall(SYS_sched_getattr, pid_a, buf, sizeof(struct attributes), 0))
GONE(interval, sched_rr_get_interval(pid_a, (struct timespec *)buf))
GONE(getpriority, getpriority(PRIO_PROCESS, pid_a))
GONE(setpriority, setpriority(PRIO_PROCESS, pid_a, 1))
GONE(ioprio, syscall(SYS_ioprio_get, IO_PROCESS, pid_a))
GONE(capget, capabilities(pid_a))
GONE(robust, syscall(SYS_get_robust_list, pid_a, buf, buf + 8))
GONE(pidfd, syscall(SYS_pidfd_open, pid_a, 0))
GONE(prlimit, prlimit(pid_a, RLIMIT_CORE, 0, (struct rlimit *)buf))
GONE(tkill, syscall(SYS_tkill, pid_a, 0))
GONE(tgkill, syscall(SYS_tgkill, pid_a, pid_a, 0))
GONE(migrate, syscall(SYS_migrate_pages, pid_a, 0L, 0L, 0L))
#define GONE_CLOCK(name, call) static void gone_##name(int r) { if (gone_is(r)) must((call) == -1 && errno == EINVAL), saw(); }
GONE_CLOCK(clock, syscall(SYS_clock_gettime, CLOCK_OF(pid_a), buf))
GONE_CLOCK(clock_resolution, syscall(SYS_clock_getres, CLOCK_OF(pid_a), buf))
GONE_CLOCK(clock_timer, syscall(SYS_timer_create, CLOCK_OF(pid_a), 0L, buf))
static void gone_pidfd_signal(int r) {
    if (r == B) fd = ck(syscall(SYS_pidfd_open, pid_a, 0));
    if (gone_is(r)) must(syscall(SYS_pidfd_send_signal, fd, 0, 0L, 0) == -1 && errno == ESRCH), saw();
}
static void leads_group(int r) {
    if (r == A) ck(setpgid(0, 0)), ms(200);
    if (r == B) AWAIT(getpgid(pid_a) == pid_a);
}
static void gone_group(int r) {
    leads_group(r);
    if (gone_is(r)) must(kill(-pid_a, 0) == -1 && errno == ESRCH), saw();
}
static void gone_group_joined(int r) { // Nobody can join it any more.
    leads_group(r);
    if (gone_is(r)) must(setpgid(0, pid_a) == -1 && errno == EPERM), saw();
}
static void gone_group_priority(int r) {
    leads_group(r);
    if (gone_is(r)) must(getpriority(PRIO_PGRP, pid_a) == -1 && errno == ESRCH), saw();
}
static void gone_wait(int r) { // There is nobody left to wait for.
    if (r == S) signal(SIGCHLD, SIG_IGN);
    if (r == A) dirty();
    if (r == B) must(waitpid(-1, 0, 0) == -1 && errno == ECHILD), saw();
}
static void watch_parent(void) {
    for (pid_t parent = getppid(); getppid() == parent;) ms(10);
}
static void await_watcher(void) { // Who holds the other end of `q`: it has printed before B goes on.
    close(q[1]), must(read(q[0], buf, 1) == 0);
}
static void gone_parent(int r) { // The usual watchdog. Its parent changes nothing, and ends when A says so.
    if (r == S) {
        ck(pipe(p)), ck(pipe(q));
        if (!ck(fork())) {
            pid_t child = ck(fork());
            if (!child) { close(p[0]), close(p[1]), watch_parent(), saw(), _exit(0); }
            close(p[1]), close(q[1]);
            if (read(p[0], buf, 1) != 1) kill(child, SIGKILL);
            _exit(0);
        }
    }
    if (r == A) close(q[1]), dirty(), ck(write(p[1], "x", 1));
    if (r == B) await_watcher();
}
static void gone_parent_itself(int r) {
    if (r == S) ck(pipe(q));
    if (r == A) {
        if (!ck(fork())) watch_parent(), saw(), _exit(0);
        ms(100), dirty();
    }
    if (r == B) await_watcher();
}
static void gone_parent_asked_once(int r) { // It was never asked before; its parent was there when it was born.
    if (r == S) ck(pipe(q));
    if (r == A) {
        pid_t parent = getpid();
        if (!ck(fork())) ms(300), must(getppid() != parent), saw(), _exit(0);
        dirty();
    }
    if (r == B) await_watcher();
}

// System V objects: what barriers return.
static void await_taken(void) { AWAIT(!semctl(fd, 0, GETVAL)); }
static void semaphore_undone(int r) {
    struct sembuf take = {0, -1, SEM_UNDO}, wait = {0, -1, 0};
    if (r == S) fd = ck(semget(IPC_PRIVATE, 1, 0600)), ck(semctl(fd, 0, SETVAL, 1));
    if (r == A) ck(semop(fd, &take, 1)), ms(200), dirty();
    if (r == B) await_taken(), ck(semop(fd, &wait, 1)), saw(), semctl(fd, 0, IPC_RMID);
}
static void semaphore_value(int r) {
    struct sembuf take = {0, -1, SEM_UNDO};
    if (r == S) fd = ck(semget(IPC_PRIVATE, 1, 0600)), ck(semctl(fd, 0, SETVAL, 1));
    if (r == A) ck(semop(fd, &take, 1)), ms(200), dirty();
    if (r == B) await_taken(), later(), must(semctl(fd, 0, GETVAL) == 1), saw(), semctl(fd, 0, IPC_RMID);
}
static void semaphore_tried(int r) {
    struct sembuf take = {0, -1, SEM_UNDO}, try = {0, -1, IPC_NOWAIT};
    if (r == S) fd = ck(semget(IPC_PRIVATE, 1, 0600)), ck(semctl(fd, 0, SETVAL, 1));
    if (r == A) ck(semop(fd, &take, 1)), ms(200), dirty();
    if (r == B) await_taken(), later(), ck(semop(fd, &try, 1)), saw(), semctl(fd, 0, IPC_RMID);
}
static int attached(void) {
    struct shmid_ds segment;
    ck(shmctl(fd, IPC_STAT, &segment));
    return segment.shm_nattch;
}
static void segment_attached(int r) {
    if (r == S) fd = ck(shmget(IPC_PRIVATE, 4096, 0600));
    if (r == A) { dirty(); ck(shmat(fd, 0, 0)); }
    if (r == B) later(), must(attached() == 1), saw(), shmctl(fd, IPC_RMID, 0);
}
static void segment_detached(int r) {
    if (r == S) fd = ck(shmget(IPC_PRIVATE, 4096, 0600));
    if (r == A) { void *at = shmat(fd, 0, 0); ms(200), dirty(), ck(shmdt(at)); }
    if (r == B) { AWAIT(attached()); later(), must(!attached()), saw(), shmctl(fd, IPC_RMID, 0); }
}
static void segment_left(int r) {
    if (r == S) fd = ck(shmget(IPC_PRIVATE, 4096, 0600));
    if (r == A) ck(shmat(fd, 0, 0)), ms(200), dirty();
    if (r == B) { AWAIT(attached()); later(), must(!attached()), saw(), shmctl(fd, IPC_RMID, 0); }
}
static void segment_destroyed(int r) { // By the end of the last one that has it.
    if (r == S) fd = ck(shmget(IPC_PRIVATE, 4096, 0600));
    if (r == A) ck(shmat(fd, 0, 0)), ck(shmctl(fd, IPC_RMID, 0)), dirty();
    if (r == B) { struct shmid_ds segment; later(), must(shmctl(fd, IPC_STAT, &segment) == -1 && errno == EINVAL), saw(); }
}

// Totals of a file system.
#define MUCH (256 << 20)
static long free_now(const char *place, int f) {
    struct statfs system;
    ck(f < 0 ? statfs(place, &system) : fstatfs(f, &system));
    return system.f_bfree / ((1 << 20) / system.f_bsize);
}
static void take_room(const char *name) {
    int f = ck(open(name, O_WRONLY));
    ck(fallocate(f, 0, 0, MUCH));
}
static void await_less(const char *place, int f) {
    long before = free_now(place, f);
    for (int n = 0; n < 100 && free_now(place, f) > before - MUCH / 2 / (1 << 20); n++) ms(20);
    must(free_now(place, f) <= before - MUCH / 2 / (1 << 20)), saw();
}
static void totals_by_name(int r) {
    if (r == A) take_room("other");
    if (r == B) await_less("data", -1);
}
static void totals_by_descriptor(int r) {
    if (r == B) fd = ck(open("data", O_RDONLY));
    if (r == A) take_room("other");
    if (r == B) await_less(0, fd);
}

// An open directory: its links and times are those of the names in it.
static void directory_links(int r) {
    struct stat one;
    if (r == S) fd = ck(open("sub", O_RDONLY | O_DIRECTORY));
    if (r == A) ck(mkdir("sub/made", 0700));
    if (r == B) later(), ck(syscall(SYS_fstat, fd, &one)), must(one.st_nlink == 3), saw();
}
static void directory_links_own(int r) { // B has opened it itself, and never used it.
    struct stat one;
    if (r == A) ck(mkdir("sub/made", 0700));
    if (r == B) fd = ck(open("sub", O_RDONLY | O_DIRECTORY)), later(), ck(syscall(SYS_fstat, fd, &one)), must(one.st_nlink == 3), saw();
}
static void directory_time(int r) {
    struct stat before, after;
    if (r == A) put("sub/made", "", 0600);
    if (r != B) return;
    fd = ck(open("sub", O_RDONLY | O_DIRECTORY)), ck(syscall(SYS_fstat, fd, &before)), later(), ck(syscall(SYS_fstat, fd, &after));
    must(before.st_mtim.tv_sec != after.st_mtim.tv_sec || before.st_mtim.tv_nsec != after.st_mtim.tv_nsec), saw();
}
static void directory_removed(int r) {
    struct stat one;
    if (r == S) fd = ck(open("sub", O_RDONLY | O_DIRECTORY));
    if (r == A) ck(rmdir("sub"));
    if (r == B) later(), ck(syscall(SYS_fstat, fd, &one)), must(one.st_nlink == 0), saw();
}
static void directory_by_path_only(int r) {
    struct stat one;
    if (r == A) ck(mkdir("sub/made", 0700));
    if (r == B) fd = ck(open("sub", O_PATH)), later(), ck(syscall(SYS_fstat, fd, &one)), must(one.st_nlink == 3), saw();
}

// Names that lead through /proc.
static void proc_name(char *name, const char *rest) { sprintf(name, "/proc/%d/%s", pid_a, rest); }
static int leads_to(const char *name, const char *end) {
    char text[4096];
    ssize_t n = readlink(name, text, sizeof text - 1), m = strlen(end);
    return n >= m && !memcmp(text + n - m, end, m);
}
static void move_away(void) { dirty(), ck(chdir("sub")); }
static void proc_cwd(int r) {
    char name[64];
    if (r == A) move_away();
    if (r == B) proc_name(name, "cwd"), later(), must(leads_to(name, "/sub")), saw();
}
static void proc_cwd_through(int r) {
    char name[64];
    if (r == A) move_away();
    if (r == B) proc_name(name, "cwd/data"), later(), must(access(name, F_OK) == -1), saw();
}
static void proc_cwd_stat(int r) {
    char name[64];
    struct stat one, two;
    if (r == A) move_away();
    if (r == B) proc_name(name, "cwd"), later(), ck(stat(name, &one)), ck(stat("sub", &two)), must(one.st_ino == two.st_ino), saw();
}
static void proc_cwd_opened(int r) {
    char name[64];
    if (r == A) move_away();
    if (r == B) proc_name(name, "cwd/data"), later(), must(open(name, O_RDONLY) == -1 && errno == ENOENT), saw();
}
static void proc_cwd_relative(int r) {
    char name[64];
    if (r == A) move_away();
    if (r == B) proc_name(name, ""), ck(chdir(name)), later(), must(leads_to("cwd", "/sub")), saw();
}
static void proc_cwd_entered(int r) { // By descriptor, and then by a child of B.
    char name[64];
    if (r == A) move_away();
    if (r != B) return;
    proc_name(name, ""), ck(fchdir(ck(open(name, O_RDONLY | O_DIRECTORY))));
    if (!ck(fork())) later(), must(leads_to("cwd", "/sub")), saw(), _exit(0);
    wait(0);
}
static void proc_cwd_at(int r) {
    char name[64], text[4096];
    if (r == A) move_away();
    if (r != B) return;
    proc_name(name, ""), fd = ck(open(name, O_PATH | O_DIRECTORY)), later();
    ssize_t n = ck(readlinkat(fd, "cwd", text, sizeof text));
    must(!memcmp(text + n - 4, "/sub", 4)), saw();
}
static void proc_cwd_linked(int r) { // Through a link that does not say so.
    char name[160], link[128];
    snprintf(link, sizeof link, "/dev/shm/%.100s-p", getenv("CHANNELS_ID"));
    if (r == S) unlink(link), ck(symlink("/proc", link));
    if (r == A) move_away();
    if (r == B) { snprintf(name, sizeof name, "%s/%d/cwd", link, pid_a), later(); int seen = leads_to(name, "/sub"); unlink(link), must(seen), saw(); }
}
static void proc_fd(int r) {
    char name[64];
    if (r == A) dirty(), ck(dup2(ck(open("other", O_RDONLY)), 99));
    if (r == B) proc_name(name, "fd/99"), later(), must(leads_to(name, "/other")), saw();
}
static void proc_fd_access(int r) {
    char name[64];
    if (r == A) dirty(), ck(dup2(ck(open("other", O_RDONLY)), 99));
    if (r == B) proc_name(name, "fd/99"), later(), ck(access(name, F_OK)), saw();
}
static void proc_fd_opened(int r) {
    char name[64];
    if (r == A) dirty(), ck(dup2(ck(open("other", O_RDONLY)), 99));
    if (r == B) proc_name(name, "fd/99"), later(), ck(open(name, O_RDONLY)), saw();
}
static void proc_exe(int r) {
    char name[64];
    if (r == A) dirty(), ck(execl("/bin/sleep", "sleep", "1", (char *)0));
    if (r == B) proc_name(name, "exe"), later(), must(leads_to(name, "/sleep")), saw();
}

// A file that is executed cannot be written, and the other way round.
static int own_copy(void) { // In memory, and open for reading only.
    char name[32];
    int f = ck(memfd_create("copy", 0)), from = ck(open("/bin/sleep", O_RDONLY));
    for (ssize_t n; (n = ck(read(from, buf, sizeof buf)));) ck(write(f, buf, n));
    sprintf(name, "/proc/self/fd/%d", f);
    int copy = ck(open(name, O_RDONLY));
    close(from), close(f);
    return copy;
}
static void busy_program(int r) {
    char name[32], *arguments[] = {"sleep", "1", 0};
    if (r == S) fd = own_copy();
    if (r == A) dirty(), fexecve(fd, arguments, environ);
    if (r == B) sprintf(name, "/proc/self/fd/%d", fd), later(), must(open(name, O_WRONLY) == -1 && errno == ETXTBSY), saw();
}
static void busy_file(int r) {
    char name[32], *arguments[] = {"sleep", "0", 0};
    sprintf(name, "/proc/self/fd/%d", fd);
    if (r == S) fd = own_copy();
    if (r == A) dirty(), ck(open(name, O_WRONLY));
    if (r == B) later(), fexecve(fd, arguments, environ), must(errno == ETXTBSY), saw();
}

// Other errors, and leases.
static void fifo_unread(int r) {
    if (r == S) p[0] = ck(open("fifo", O_RDONLY | O_NONBLOCK));
    if (r == A) dirty(), close(p[0]);
    if (r == B) close(p[0]), later(), must(open("fifo", O_WRONLY | O_NONBLOCK) == -1 && errno == ENXIO), saw();
}
static void lease_refused(int r) { // A has it open.
    if (r == A) dirty(), ck(open("other", O_RDONLY));
    if (r == B) fd = ck(open("other", O_RDONLY)), later(), must(fcntl(fd, F_SETLEASE, F_WRLCK) == -1 && errno == EAGAIN), saw();
}

// Nothing of others is told: B prints at once though A has changed something.
static void free_parent(int r) {
    if (r == A) dirty();
    if (r == B) later(), ck(getppid()), ck(getppid()), saw();
}
static void free_own_ids(int r) {
    if (r == A) dirty();
    if (r == B) later(), ck(getpgid(0)), ck(getpgid(getpid())), ck(getsid(0)), ck(getsid(getpid())), saw();
}
static void free_own_scheduling(int r) {
    struct attributes found;
    if (r == A) dirty();
    if (r != B) return;
    later();
    ck(syscall(SYS_sched_getaffinity, 0, 1024, buf)), ck(syscall(SYS_sched_getaffinity, getpid(), 1024, buf));
    ck(sched_getscheduler(0)), ck(syscall(SYS_sched_getattr, getpid(), &found, sizeof found, 0));
    getpriority(PRIO_PROCESS, 0), getpriority(PRIO_PROCESS, getpid()), ck(syscall(SYS_ioprio_get, IO_PROCESS, 0)), saw();
}
static void free_own_rights(int r) {
    if (r == A) dirty();
    if (r == B) later(), ck(capabilities(0)), ck(capabilities(getpid())), saw();
}
static void free_own_clocks(int r) {
    if (r == A) dirty();
    if (r == B) later(), used(CLOCK_MONOTONIC), used(CLOCK_PROCESS_CPUTIME_ID), used(CLOCK_OF(getpid())), used(CLOCK_OF(0)), saw();
}
static void free_own_proc(int r) {
    char name[64];
    if (r == A) dirty();
    if (r == B) sprintf(name, "/proc/%d/exe", getpid()), later(), must(leads_to(name, "/channels") && leads_to("/proc/self/exe", "/channels") && leads_to("/proc/self/fd/0", "null")), saw();
}
static void free_open_directory(int r) {
    struct stat one;
    if (r == A) dirty();
    if (r == B) fd = ck(open("sub", O_RDONLY | O_DIRECTORY)), later(), ck(syscall(SYS_fstat, fd, &one)), saw();
}
static void free_own_mistakes(int r) {
    if (r == A) dirty();
    if (r == B) later(), must(open("missing", O_RDONLY) == -1 && read(-1, buf, 1) == -1 && lseek(0, 0, 77) == -1), saw();
}

static void group_led(int r) { // Before A leads a group there is none with its number.
    if (r == A) dirty(), ck(setpgid(0, 0));
    if (r == B) later(), must(kill(-pid_a, 0) == 0), saw();
}
static void session_led(int r) {
    if (r == A) dirty(), ck(setsid());
    if (r == B) later(), must(kill(-pid_a, 0) == 0), saw();
}

CASES(observed) = {
    CH(group_led), CH(session_led),
    CH(pgid_of), CH(pgid_of_leader), CH(sid_of), CH(affinity_of), CH(scheduler_of), CH(attributes_of), CH(priority_of),
    CH(priority_of_leader), CH(io_priority_of), CH(io_priority_of_leader), CH(robust_list_of), CH(cpu_time_of),
    CH(cpu_time_awaited), CH(cpu_timer),
    EX(gone_getpgid), EX(gone_getsid), EX(gone_getaffinity), EX(gone_setaffinity), EX(gone_getscheduler),
    EX(gone_getparam), EX(gone_getattr), EX(gone_interval),
    EX(gone_getpriority), EX(gone_setpriority), EX(gone_ioprio), EX(gone_capget), EX(gone_robust), EX(gone_pidfd),
    EX(gone_prlimit), EX(gone_tkill), EX(gone_tgkill), EX(gone_migrate),
    EX(gone_clock), EX(gone_clock_resolution), EX(gone_clock_timer), EX(gone_pidfd_signal), EX(gone_group),
    EX(gone_group_joined), EX(gone_group_priority), PA(gone_wait),
    CH(gone_parent), EX(gone_parent_itself), EX(gone_parent_asked_once), EX(semaphore_undone), EX(semaphore_value),
    EX(semaphore_tried), CH(segment_attached), CH(segment_detached),
    EX(segment_left), EX(segment_destroyed), CH(totals_by_name), CH(totals_by_descriptor), CH(directory_links),
    CH(directory_links_own), CH(directory_time), CH(directory_removed), CH(directory_by_path_only),
    CH(proc_cwd), CH(proc_cwd_through), CH(proc_cwd_stat), CH(proc_cwd_opened), CH(proc_cwd_relative),
    CH(proc_cwd_entered), CH(proc_cwd_at), CH(proc_cwd_linked), CH(proc_fd),
    CH(proc_fd_access), CH(proc_fd_opened), CH(proc_exe), CH(busy_program), CH(busy_file), CH(fifo_unread),
    CH(lease_refused),
    FR(free_parent), FR(free_own_ids), FR(free_own_scheduling), FR(free_own_rights), FR(free_own_clocks),
    FR(free_own_proc), FR(free_open_directory), FR(free_own_mistakes),
};
