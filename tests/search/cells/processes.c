// Processes: what they are, have and do, their ends; signals; memory; System V objects and queues of messages.
#include "cells.h"
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/sysinfo.h>
#include <sys/times.h>

enum { IO_PROCESS = 1, IO_GROUP = 2, IO_LOWEST = 2 << 13 | 7 };
struct scheduling { unsigned size, policy; unsigned long flags; int nice; unsigned priority; unsigned long times[3];
    };

// What A does to itself.
ACTION(nothing, 0, 0, (void)0);
ACTION(exit_0, 0, 0, _exit(0));
ACTION(exit_7, 0, 0, _exit(7));
ACTION(exit_reaped, REAPED, 0, _exit(0));
ACTION(exit_of_parent, B_IS_CHILD, 0, _exit(0));
ACTION(killed, 0, 0, kill(getpid(), SIGKILL));
ACTION(stopped, 0, 0, kill(getpid(), SIGSTOP));
ACTION(execute, 0, 0, execl("/bin/sleep", "sleep", "3", (char *)0));
static void closes_at_exec(void) { ck(fcntl(line[1], F_SETFD, FD_CLOEXEC)); }
ACTION(execute_closing, PIPE | SPLIT, closes_at_exec, execl("/bin/sleep", "sleep", "3", (char *)0));
ACTION(fork_child, 0, 0, if (!ck(fork())) { usleep(1000000); _exit(0); });
ACTION(group, 0, 0, ck(setpgid(0, 0)));
ACTION(session, 0, 0, ck(setsid()));
ACTION(nice_down, 0, 0, struct scheduling s = {.size = sizeof s, .nice = 5}; ck(syscall(SYS_sched_setattr, 0, &s,
    0)));
ACTION(batch, 0, 0, struct sched_param none = {0}; ck(sched_setscheduler(0, SCHED_BATCH, &none)));
ACTION(one_processor, 0, 0, cpu_set_t set; CPU_ZERO(&set); CPU_SET(0, &set); ck(sched_setaffinity(0, sizeof set,
    &set)));
ACTION(io_lowest, 0, 0, ck(syscall(SYS_ioprio_set, IO_PROCESS, 0, IO_LOWEST)));
ACTION(name_itself, 0, 0, ck(prctl(PR_SET_NAME, "new")));
ACTION(name_by_file, 0, 0, ck(write(opened("/proc/self/comm", O_WRONLY), "new", 3)));
ACTION(not_dumpable, 0, 0, ck(prctl(PR_SET_DUMPABLE, 0)));
ACTION(adopts_orphans, 0, 0, ck(prctl(PR_SET_CHILD_SUBREAPER, 1)));
ACTION(no_new_privileges, 0, 0, ck(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)));
ACTION(timer_slack, 0, 0, ck(prctl(PR_SET_TIMERSLACK, 77777)));
ACTION(limit_own, 0, 0, struct rlimit l = {77, 100}; ck(setrlimit(RLIMIT_CORE, &l)));
ACTION(umask_own, 0, 0, umask(077));
ACTION(groups_own, 0, 0, gid_t g = 77; ck(setgroups(1, &g)));
ACTION(user_own, 0, 0, ck(syscall(SYS_setresuid, 77, 77, 77)));
ACTION(lock_memory, 0, 0, ck(mlock(room, 4096)));
ACTION(map_memory, 0, 0, ck(mmap(0, 1 << 24, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0));
ACTION(personality_own, 0, 0, ck(syscall(SYS_personality, 0x0040000)));
ACTION(handler_own, 0, 0, signal(SIGUSR2, SIG_IGN));
ACTION(mask_own, 0, 0, sigset_t none; sigemptyset(&none); sigprocmask(SIG_SETMASK, &none, 0));
ACTION(pending_own, 0, 0, kill(getpid(), SIGUSR2));
ACTION(timer_own, 0, 0, timer_t t; struct sigevent e = {.sigev_notify = SIGEV_NONE}; ck(syscall(SYS_timer_create,
    CLOCK_MONOTONIC, &e, &t)));
ACTION(robust_list_own, 0, 0, static struct { void *next; long offset; void *pending; } list; list.next = &list;
       ck(syscall(SYS_set_robust_list, &list, sizeof list)));
ACTION(change_directory, 0, 0, ck(chdir("sub")));
ACTION(new_mounts, 0, 0, ck(unshare(CLONE_NEWNS)));
ACTION(new_names, 0, 0, ck(unshare(CLONE_NEWUTS)));
ACTION(duplicate, 0, 0, ck(dup2(2, 90)));
ACTION(close_one, 0, 0, ck(close(0)));
ACTION(work, 0, 0, for (long end = now() + 60; now() < end;) {});
ACTION(arguments_own, 0, 0, extern char *program_invocation_name; memcpy(program_invocation_name, "XX", 2));
ACTION(badness, 0, 0, ck(write(opened("/proc/self/oom_score_adj", O_WRONLY), "77", 2)));
ACTION(capabilities_own, 0, 0, struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
       struct __user_cap_data_struct d[2]; ck(syscall(SYS_capget, &h, d)); d[0].inheritable ^= d[0].permitted;
    ck(syscall(SYS_capset, &h, d)));
// What both have together.
ACTION(shared_directory, ONE_DIRECTORY, 0, ck(chdir("sub")));
ACTION(shared_umask, ONE_DIRECTORY, 0, umask(077));
ACTION(shared_table, ONE_TABLE, 0, ck(dup(2)));
ACTION(shared_table_close, ONE_TABLE, 0, ck(close(0)));
ACTION(shared_table_flag, ONE_TABLE, 0, ck(fcntl(0, F_SETFD, FD_CLOEXEC)));
ACTION(shared_table_open, ONE_TABLE, 0, opened("other", O_RDONLY));
ACTION(shared_table_socket, ONE_TABLE, 0, ck(socket(AF_UNIX, SOCK_STREAM, 0)));
ACTION(shared_table_event, ONE_TABLE, 0, ck(eventfd(0, 0)));
ACTION(shared_table_memory, ONE_TABLE, 0, ck(memfd_create("cell", 0)));
ACTION(shared_table_timer, ONE_TABLE, 0, ck(timerfd_create(CLOCK_MONOTONIC, 0)));
// What A does to B.
ACTION(signal_user, 0, 0, ck(kill(pid_b, SIGUSR1)));
ACTION(signal_queued, 0, 0, ck(sigqueue(pid_b, SIGUSR1, (union sigval){7})));
ACTION(signal_real_time, 0, 0, ck(kill(pid_b, SIGRTMIN)));
ACTION(signal_thread, 0, 0, ck(syscall(SYS_tgkill, pid_b, pid_b, SIGUSR1)));
ACTION(signal_by_descriptor, 0, 0, ck(syscall(SYS_pidfd_send_signal, ck(syscall(SYS_pidfd_open, pid_b, 0)), SIGUSR1,
    0L, 0)));
ACTION(signal_child_of_b, CHILD, 0, ck(kill(child_of_b, SIGKILL)));
ACTION(limit_b, 0, 0, struct rlimit l = {77, 100}; ck(prlimit(pid_b, RLIMIT_CORE, &l, 0)));
ACTION(limit_files_b, 0, 0, struct rlimit l = {3, 100}; ck(prlimit(pid_b, RLIMIT_NOFILE, &l, 0)));
ACTION(one_processor_b, 0, 0, cpu_set_t set; CPU_ZERO(&set); CPU_SET(0, &set); ck(sched_setaffinity(pid_b,
    sizeof set, &set)));
ACTION(batch_b, 0, 0, struct sched_param none = {0}; ck(sched_setscheduler(pid_b, SCHED_BATCH, &none)));
ACTION(nice_down_b, 0, 0, struct scheduling s = {.size = sizeof s, .nice = 5}; ck(syscall(SYS_sched_setattr, pid_b,
    &s, 0)));
ACTION(priority_b, 0, 0, ck(setpriority(PRIO_PROCESS, pid_b, 5)));
ACTION(io_lowest_b, 0, 0, ck(syscall(SYS_ioprio_set, IO_PROCESS, pid_b, IO_LOWEST)));
ACTION(group_b, B_IS_CHILD, 0, ck(setpgid(pid_b, pid_b)));
static volatile char place;
ACTION(memory_of_b, 0, 0, struct iovec from = {"x", 1}; struct iovec to = {(void *)&place, 1};
    ck(process_vm_writev(pid_b, &from, 1, &to, 1, 0)));
ACTION(memory_by_file, 0, 0, char name[40]; sprintf(name, "/proc/%d/mem", pid_b); ck(pwrite(opened(name, O_WRONLY),
    "x", 1, (long)&place)));
ACTION(memory_own, 0, 0, place = 'x');
// Memory and what is named by numbers.
ACTION(store, MEMORY, 0, *word = 7);
ACTION(wake, MEMORY, 0, syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0));
ACTION(wait_on_word, MEMORY, 0, struct timespec t = {1, 0}; syscall(SYS_futex, word, FUTEX_WAIT, 0, &t, 0, 0));
ACTION(write_memory_file, MEMFD, 0, ck(pwrite(memory_file, "new", 3, 0)));
ACTION(size_memory_file, MEMFD, 0, ck(ftruncate(memory_file, 100)));
ACTION(seal_memory_file, MEMFD, 0, ck(fcntl(memory_file, F_ADD_SEALS, F_SEAL_GROW)));
ACTION(map_memory_file, MEMFD, 0, char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory_file, 0);
    *at = 'n');
ACTION(semaphore_up, SEMAPHORE, 0, struct sembuf up = {0, 1, 0}; ck(semop(semaphore, &up, 1)));
static void takes_with_undo(void) { struct sembuf down = {0, -1, SEM_UNDO}; ck(semop(semaphore, &down, 1)); }
ACTION(semaphore_undone, SEMAPHORE, takes_with_undo, _exit(0));
ACTION(semaphore_undone_killed, SEMAPHORE, takes_with_undo, kill(getpid(), SIGKILL));
ACTION(segment_attached, SEGMENT, 0, ck((long)shmat(segment, 0, 0)));
static void *attached;
static void attaches(void) { attached = shmat(segment, 0, 0); }
ACTION(segment_detached, SEGMENT, attaches, ck(shmdt(attached)));
ACTION(segment_left, SEGMENT, attaches, _exit(0));
ACTION(segment_executed, SEGMENT, attaches, execl("/bin/sleep", "sleep", "3", (char *)0));
ACTION(message_sent, MESSAGES, 0, struct { long type; char text; } m = {1, 'x'}; ck(msgsnd(messages, &m, 1, 0)));
ACTION(queue_sent, QUEUE, 0, ck(mq_send(queue, "x", 1, 0)));
ACTION(queue_asked, QUEUE, 0, struct sigevent e = {.sigev_notify = SIGEV_NONE}; ck(mq_notify(queue, &e)));
static void asks_queue(void) {
    struct sigevent e = {.sigev_notify = SIGEV_NONE};
    ck(mq_notify(queue, &e));
}
ACTION(queue_left, QUEUE, asks_queue, _exit(0));

// What B sees of A.
SEE(wait_now, 0, 0, int status = 0; pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED); say("%d %x ",
    pid > 0 ? 1 : pid, status));
SEE(wait_id_now, 0, 0, siginfo_t i = {0}; says(waitid(P_ALL, 0, &i, WEXITED | WSTOPPED | WNOHANG | WNOWAIT));
    say("%d %d ", i.si_code, i.si_status));
SEE(wait_for, EARLY, 0, siginfo_t i = {0}; while (left() && !waitid(P_ALL, 0, &i, WEXITED | WSTOPPED | WNOHANG |
    WNOWAIT) && !i.si_code) usleep(5000); say("%d ", i.si_code));
SEE(use_of_children, 0, 0, struct rusage u = {0}; says(getrusage(RUSAGE_CHILDREN, &u)); say("%d ", u.ru_minflt > 0));
SEE(kill_0, 0, 0, says(kill(pid_a, 0)));
SEE(kill_group, 0, 0, says(kill(-pid_a, 0)));
SEE(kill_thread, 0, 0, says(syscall(SYS_tgkill, pid_a, pid_a, 0)));
SEE(group_of, 0, 0, pid_t g = getpgid(pid_a); say(g == pid_a ? "own " : g < 0 ? "error %d " : "other ", errno));
SEE(session_of, 0, 0, pid_t g = getsid(pid_a); say(g == pid_a ? "own " : g < 0 ? "error %d " : "other ", errno));
SEE(parent, B_IS_CHILD, 0, say("%d ", getppid() == pid_a));
SEE(priority_of, 0, 0, errno = 0; int n = getpriority(PRIO_PROCESS, pid_a); say("%d %d ", n, errno));
SEE(priority_of_group, 0, 0, errno = 0; int n = getpriority(PRIO_PGRP, pid_a); say("%d %d ", n, errno));
SEE(processors_of, 0, 0, cpu_set_t set; CPU_ZERO(&set); says(syscall(SYS_sched_getaffinity, pid_a, sizeof set,
    &set)); say("%d ", CPU_COUNT(&set)));
SEE(policy_of, 0, 0, says(sched_getscheduler(pid_a)));
SEE(parameters_of, 0, 0, struct sched_param p = {0}; says(sched_getparam(pid_a, &p)));
SEE(scheduling_of, 0, 0, struct scheduling s = {0}; says(syscall(SYS_sched_getattr, pid_a, &s, sizeof s, 0));
    say("%d %d ", s.policy, s.nice));
SEE(interval_of, 0, 0, struct timespec t = {0}; says(sched_rr_get_interval(pid_a, &t)));
SEE(io_priority_of, 0, 0, says(syscall(SYS_ioprio_get, IO_PROCESS, pid_a)));
SEE(io_priority_of_group, 0, 0, says(syscall(SYS_ioprio_get, IO_GROUP, pid_a)));
SEE(limits_of, 0, 0, struct rlimit l = {0}; says(prlimit(pid_a, RLIMIT_CORE, 0, &l)); say("%ld ", (long)l.rlim_cur));
static void capabilities_of(int pid) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, pid};
    struct __user_cap_data_struct d[2] = {0};
    says(syscall(SYS_capget, &h, d)), say("%x %x ", d[0].effective, d[0].inheritable);
}
SEE(capabilities_of_a, 0, 0, capabilities_of(pid_a));
SEE(robust_list_of, 0, 0, void *at = 0; size_t n = 0; says(syscall(SYS_get_robust_list, pid_a, &at, &n)); say("%lx ",
    (long)at & 0xfff));
#define CLOCK_OF(pid) ((clockid_t)(~(unsigned)(pid) << 3 | 2))
static struct timespec used_before;
static void asks_for_use(void) { syscall(SYS_clock_gettime, CLOCK_OF(pid_a), &used_before); }
SEE(cpu_time_of, 0, asks_for_use, struct timespec t = {0}; says(syscall(SYS_clock_gettime, CLOCK_OF(pid_a), &t));
    say("%d ", (t.tv_sec - used_before.tv_sec) * 1000 + (t.tv_nsec - used_before.tv_nsec) / 1000000 > 30));
SEE(descriptor_of, 0, 0, say("%d ", syscall(SYS_pidfd_open, pid_a, 0) >= 0); say("%d ", errno));
static int process;
static void opens_process(void) { process = ck(syscall(SYS_pidfd_open, pid_a, 0)); }
SEE(poll_descriptor, 0, opens_process, struct pollfd one = {.fd = process, .events = POLLIN}; says(poll(&one, 1, 0)));
SEE(await_descriptor, EARLY, opens_process, struct pollfd one = {.fd = process, .events = POLLIN}; says(poll(&one, 1,
    left())));
SEE(kill_descriptor, 0, opens_process, says(syscall(SYS_pidfd_send_signal, process, 0, 0L, 0)));
SEE(file_of, 0, opens_process, say("%d ", syscall(SYS_pidfd_getfd, process, 90, 0) >= 0); say("%d ", errno));
SEE(memory_of, 0, 0, char c = 0; struct iovec to = {&c, 1}; struct iovec from = {(void *)&place, 1};
    says(process_vm_readv(pid_a, &to, 1, &from, 1, 0)); say("%d ", c));
SEE(compare_files, 0, 0, says(syscall(SYS_kcmp, getpid(), pid_a, KCMP_FILE, 2, 90)));
SEE(compare_directories, 0, 0, says(syscall(SYS_kcmp, getpid(), pid_a, KCMP_FS, 0, 0) >= 0));
// B's own, which A changed.
SEE(own_limit, OUTSIDE, 0, struct rlimit l = {0}; says(syscall(SYS_getrlimit, RLIMIT_CORE, &l)); say("%ld ",
    (long)l.rlim_cur));
SEE(own_limit_by_prlimit, OUTSIDE, 0, struct rlimit l = {0}; says(prlimit(0, RLIMIT_CORE, 0, &l)); say("%ld ",
    (long)l.rlim_cur));
SEE(own_limit_met, OUTSIDE, 0, say("%d ", dup(2) >= 0); say("%d ", errno));
SEE(own_limit_met_by_pipe, 0, 0, int ends[2]; says(pipe(ends)));
SEE(own_limit_met_by_socket, 0, 0, say("%d ", socket(AF_UNIX, SOCK_STREAM, 0) >= 0); say("%d ", errno));
SEE(own_limit_met_by_event, 0, 0, say("%d ", eventfd(0, 0) >= 0); say("%d ", errno));
SEE(own_processors, OUTSIDE, 0, cpu_set_t set; CPU_ZERO(&set); says(syscall(SYS_sched_getaffinity, 0, sizeof set, &set));
    say("%d ", CPU_COUNT(&set)));
SEE(own_policy, OUTSIDE, 0, says(sched_getscheduler(0)));
SEE(own_priority, OUTSIDE, 0, errno = 0; says(getpriority(PRIO_PROCESS, 0)));
SEE(own_io_priority, OUTSIDE, 0, says(syscall(SYS_ioprio_get, IO_PROCESS, 0)));
SEE(own_group, 0, 0, say("%d ", getpgrp() == getpid()));
SEE(own_group_by_number, 0, 0, say("%d ", getpgid(0) == getpid()));
SEE(own_memory, OUTSIDE, 0, say("%d ", place));
SEE(own_umask, 0, 0, mode_t m = umask(022); say("%o ", m));
SEE(own_directory, 0, 0, memset(room, 0, 4096); long n = syscall(SYS_getcwd, room, 4096); say("%d %s ", n > 0,
    n > 0 ? strrchr(room, '/') : ""));
SEE(own_table_next, 0, 0, says(dup(2)));
SEE(own_table_next_event, 0, 0, says(eventfd(0, 0)));
SEE(own_table_next_socket, 0, 0, says(socket(AF_UNIX, SOCK_STREAM, 0)));
SEE(own_table_next_epoll, 0, 0, says(epoll_create1(0)));
SEE(own_table_next_memory, 0, 0, says(memfd_create("cell", 0)));
SEE(own_table_next_timer, 0, 0, says(timerfd_create(CLOCK_MONOTONIC, 0)));
SEE(own_table_next_pipe, 0, 0, int ends[2] = {0}; says(pipe(ends)); say("%d ", ends[0]));
SEE(own_table_next_pair, 0, 0, int ends[2] = {0}; says(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)); say("%d ",
    ends[0]));
SEE(own_table_next_file, 0, 0, says(open("/dev/null", O_RDONLY)));
SEE(own_table_next_inotify, 0, 0, says(inotify_init1(0)));
SEE(own_table_first, 0, 0, says(fcntl(0, F_GETFD)));
SEE(own_table_first_polled, 0, 0, struct pollfd one = {.fd = 0, .events = POLLIN}; says(poll(&one, 1, 0)); say("%x ",
    one.revents));
SEE(own_table_first_closed, 0, 0, says(close(0)));
// Signals.
static void takes_signals(int ms) {
    sigset_t all;
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    siginfo_t info = {0};
    sigfillset(&all);
    int n = sigtimedwait(&all, &info, &t);
    say("%d %d %d ", n, n < 0 ? errno : 0, info.si_pid == pid_a);
}
SEE(take_signal, OUTSIDE, 0, takes_signals(0));
SEE(await_signal, OUTSIDE | EARLY, 0, takes_signals(left()));
SEE(pending_signals, OUTSIDE, 0, sigset_t set; ck(sigpending(&set)); say("%d %d %d ", sigismember(&set, SIGUSR1),
    sigismember(&set, SIGCHLD), sigismember(&set, SIGRTMIN)));
static volatile sig_atomic_t handled;
static void handler(int n) { handled = n; }
static void unblock(int how) {
    sigset_t set;
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGCHLD), sigaddset(&set, SIGRTMIN);
    sigaction(SIGUSR1, &action, 0), sigaction(SIGCHLD, &action, 0), sigaction(SIGRTMIN, &action, 0), sigprocmask(how,
    &set, 0);
}
SEE(handler, OUTSIDE, 0, unblock(SIG_UNBLOCK); say("%d ", handled));
SEE(handler_early, OUTSIDE | EARLY, 0, unblock(SIG_UNBLOCK); while (left() && !handled) usleep(2000); say("%d ", handled));
SEE(handler_spinning, OUTSIDE | EARLY, 0, unblock(SIG_UNBLOCK); while (left() && !handled) {} say("%d ", handled));
static int signals;
static void makes_signalfd(void) {
    sigset_t all;
    sigfillset(&all), signals = ck(signalfd(-1, &all, SFD_NONBLOCK));
}
SEE(read_signals, OUTSIDE, makes_signalfd, struct signalfd_siginfo i = {0}; says(read(signals, &i, sizeof i)); say("%d ",
    i.ssi_signo));
SEE(poll_signals, OUTSIDE, makes_signalfd, struct pollfd one = {.fd = signals, .events = POLLIN}; says(poll(&one, 1, 0)));
// Files in /proc.
static const char *const STAT[] = {"Name", "Umask", "State", "Uid", "Gid", "FDSize", "Groups", "Threads", "SigP",
    "SigB", "SigI", "SigC", "Shd", "Cap",
                                   "NoNewPrivs", "Cpus_allowed:", "VmLck", "VmSize", 0};
#define PROC(name, rest, wanted) SEE(proc_##name, 0, 0, char name_[64]; name_of_a(name_, rest); show(name_, wanted))
PROC(status, "status", STAT);
PROC(comm, "comm", 0);
PROC(cmdline, "cmdline", 0);
PROC(limits, "limits", 0);
PROC(mounts, "mountinfo", 0);
PROC(timers, "timers", 0);
PROC(badness, "oom_score_adj", 0);
PROC(slack, "timerslack_ns", 0);
PROC(personality, "personality", 0);
PROC(children, "task", 0);
PROC(cgroup, "cgroup", 0);
PROC(file_info, "fdinfo/90", 0);
SEE(proc_state, 0, 0, char name[64]; name_of_a(name, "stat"); memset(room, 0, 1000); int f = open(name, O_RDONLY);
    if (f < 0) { says(f); return; } ck(read(f, room, 999)); char *at = strrchr(room, ')'); int group = 0;
    int session = 0;
    if (at) sscanf(at + 4, "%*d %d %d", &group, &session); say("%c %d %d ", at ? at[2] : '?', group == pid_a,
    session == pid_a));
SEE(proc_files, 0, 0, char name[64]; name_of_a(name, "fd"); DIR *dir = opendir(name); int n = 0; while (dir &&
    readdir(dir)) n++; say("%d ", n));
SEE(proc_listed, 0, 0, DIR *dir = opendir("/proc"); char name[16]; int found = 0; sprintf(name, "%d", pid_a);
    for (struct dirent *e; dir && (e = readdir(dir));) found |= !strcmp(e->d_name, name); say("%d ", found));
static void link_of_a(const char *rest) {
    char name[64], text[4096] = {0};
    name_of_a(name, rest);
    ssize_t n = readlink(name, text, sizeof text - 1);
    char *last = strrchr(text, '/');
    say(n < 0 ? "error %d " : "", errno), say("%s ", last ? last : n > 0 ? text : "");
}
SEE(proc_exe, 0, 0, link_of_a("exe"));
SEE(proc_cwd, 0, 0, link_of_a("cwd"));
SEE(proc_fd_90, 0, 0, link_of_a("fd/90"));
SEE(proc_mount_space, 0, 0, struct stat a = {0}; struct stat b; char name[64]; name_of_a(name, "ns/mnt");
    says(stat(name, &a)); ck(stat("/proc/self/ns/mnt", &b)); say("%d ", a.st_ino == b.st_ino));
SEE(proc_names_space, 0, 0, struct stat a = {0}; struct stat b; char name[64]; name_of_a(name, "ns/uts");
    says(stat(name, &a)); ck(stat("/proc/self/ns/uts", &b)); say("%d ", a.st_ino == b.st_ino));
SEE(proc_cwd_through, 0, 0, char name[64]; name_of_a(name, "cwd/data"); says(access(name, F_OK)));
SEE(proc_owner, 0, 0, struct stat s = {0}; char name[64]; name_of_a(name, ""); says(stat(name, &s)); say("%d ",
    s.st_uid));
static int proc_file;
static void opens_status(void) { char name[64]; name_of_a(name, "comm"), proc_file = opened(name, O_RDONLY); }
SEE(proc_opened, 0, opens_status, memset(room, 0, 100); says(pread(proc_file, room, 99, 0)); say("%s ", room));
// Memory and what is named by numbers.
SEE(load, MEMORY, 0, say("%d ", *word));
SEE(wait_on_word, MEMORY | EARLY, 0, int ms = left(); struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    says(syscall(SYS_futex, word, FUTEX_WAIT, 0, &t, 0, 0)));
SEE(wake_word, MEMORY, 0, says(syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0)));
SEE(read_memory_file, MEMFD, 0, memset(room, 0, 8); says(pread(memory_file, room, 3, 0)); say("%s ", room));
SEE(size_of_memory_file, MEMFD, 0, struct stat s = {0}; says(fstat(memory_file, &s)); say("%ld ", (long)s.st_size));
SEE(seals_of_memory_file, MEMFD, 0, says(fcntl(memory_file, F_GET_SEALS)));
SEE(data_of_memory_file, MEMFD, 0, says(lseek(memory_file, 0, SEEK_DATA)));
SEE(semaphore_value, SEMAPHORE, 0, says(semctl(semaphore, 0, GETVAL)));
SEE(semaphore_user, SEMAPHORE, 0, say("%d ", semctl(semaphore, 0, GETPID) == pid_a));
SEE(semaphore_tried, SEMAPHORE, 0, struct sembuf down = {0, -1, IPC_NOWAIT}; says(semop(semaphore, &down, 1)));
SEE(segment_users, SEGMENT, 0, struct shmid_ds s = {0}; says(shmctl(segment, IPC_STAT, &s)); say("%ld ",
    (long)s.shm_nattch));
SEE(messages_waiting, MESSAGES, 0, struct msqid_ds s = {0}; says(msgctl(messages, IPC_STAT, &s)); say("%ld ",
    (long)s.msg_qnum));
SEE(message_taken, MESSAGES, 0, struct { long type; char text; } m; says(msgrcv(messages, &m, 1, 0, IPC_NOWAIT)));
SEE(queue_length, QUEUE, 0, struct mq_attr a = {0}; says(mq_getattr(queue, &a)); say("%ld ", a.mq_curmsgs));
SEE(queue_taken, QUEUE, 0, says(mq_receive(queue, room, 1, 0)));
SEE(queue_polled, QUEUE, 0, struct pollfd one = {.fd = queue, .events = POLLIN | POLLOUT}; says(poll(&one, 1, 0));
    say("%x ", one.revents));
SEE(queue_asked, QUEUE, 0, struct sigevent e = {.sigev_notify = SIGEV_NONE}; says(mq_notify(queue, &e)));
SEE(queue_read_as_file, QUEUE, 0, says(pread(queue, room, 60, 0)); say("%.20s ", room));
// Nothing at all.
SEE(nothing, 0, 0, say("nothing"));
