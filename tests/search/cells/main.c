// Plays cells. `cells list` names the actions and observations. `cells gate DIR LIST SLOWNESS [COMMAND …]` plays those
// that LIST names, one line each: the action (or two, joined by +, one after the other), the observation, and whether A
// acts (2: in another thread than the one that has changed the file). It tells of each what B saw, and
// whether that left early: before anything could be committed. For that, no flush that COMMAND or a process in it
// begins is made until the gate is opened: a filter stops its system call. Without COMMAND all are played natively.
#include "cells.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/sendfile.h>

enum { CELLS_MAX = 300, FIRST = 100, ANNOUNCE = FIRST - 1 }; // Numbers of the pipes through which cells tell.
enum { OPENS_AFTER = 700 }; // Milliseconds from what A does until flushes may end.

struct cell {
    const struct action *action, *second;
    const struct observation *observation;
    int acts, is_outside; // Where B is.
};
static struct cell cells[CELLS_MAX];
static int cells_len, slowness = 1;

extern const struct action *const __start_actions[], *const __stop_actions[];
extern const struct observation *const __start_observations[], *const __stop_observations[];

static void end(const char *problem) {
    fprintf(stderr, "cells: %s\n", problem);
    exit(2);
}
static const struct action *action_called(const char *name) {
    for (const struct action *const *at = __start_actions; at < __stop_actions; at++)
        if (!strcmp((*at)->name, name)) return *at;
    end("no such action");
    return 0;
}
static const struct observation *observation_called(const char *name) {
    for (const struct observation *const *at = __start_observations; at < __stop_observations; at++)
        if (!strcmp((*at)->name, name)) return *at;
    end("no such observation");
    return 0;
}
static void read_list(const char *name) {
    static const char outside[] = "outside:";
    char action[128], text[64];
    FILE *list = fopen(name, "r");
    if (!list) end("no list");
    for (int acts; fscanf(list, "%127s %63s %d", action, text, &acts) == 3;) {
        if (cells_len == CELLS_MAX) end("too many cells");
        char *second = strchr(action, '+');
        if (second) *second++ = 0;
        int is_outside = !strncmp(text, outside, sizeof outside - 1);
        const char *observation = text + (is_outside ? sizeof outside - 1 : 0);
        cells[cells_len++] = (struct cell){action_called(action), second ? action_called(second) : 0,
            observation_called(observation), acts, is_outside};
    }
    fclose(list);
}
static uint64_t needs_of(const struct cell *cell) {
    return cell->action->needs | (cell->second ? cell->second->needs : 0) | cell->observation->needs;
}

// Inside: all cells side by side, each a process that forks another one. They are told by `start` when A acts, and
// keep apart by time: nothing else may lead from A to B.
static int ready[2], start[2];

static long wait_for_start(void) {
    long at;
    ck(write(ready[1], "x", 1));
    if (ck(read(start[0], &at, sizeof at)) != sizeof at) _exit(1);
    close(ready[0]), close(ready[1]), close(start[0]), close(start[1]);
    return at;
}
static void dirty(void) {
    int f = opened("dirt", O_WRONLY);
    ck(pwrite(f, "new", 3, 0)), ck(close(f));
}
static long end_of(long act_at) { return 2 * see_at - act_at + 500 * slowness; }
static void *act(void *of) {
    const struct cell *cell = of;
    cell->action->act();
    if (cell->second) cell->second->act();
    return 0;
}
static void play_a(const struct cell *cell) {
    pid_t other = needs_of(cell) & B_IS_CHILD ? pid_b : 0;
    pthread_t thread;
    if (needs_of(cell) & SPLIT) split(1);
    if (cell->action->prepare) cell->action->prepare();
    if (cell->second && cell->second->prepare) cell->second->prepare();
    long act_at = wait_for_start();
    see_at = act_at + 300 * slowness;
    until(act_at), dirty();
    if (cell->acts == 2 && pthread_create(&thread, 0, act, (void *)cell)) _exit(1);
    if (cell->acts == 1) act((void *)cell);
    until(end_of(act_at) + 200 * slowness);
    if (other) kill(other, SIGKILL), waitpid(other, 0, 0);
    _exit(0);
}
static void play_b(const struct cell *cell, int to) {
    char record[3001];
    if (needs_of(cell) & SPLIT) split(0);
    if (cell->observation->prepare) cell->observation->prepare();
    long act_at = wait_for_start();
    see_at = act_at + 300 * slowness;
    until(needs_of(cell) & EARLY ? act_at - 50 * slowness : see_at);
    cell->observation->see();
    int length = snprintf(record, sizeof record, "%s\n", what_was_seen());
    for (char *at = record; at < record + length - 1; at++)
        if (*at == '\n') *at = ' ';
    ck(write(to, record, length));
    until(end_of(act_at));
    if (pid_a) kill(pid_a, SIGKILL), waitpid(pid_a, 0, 0); // It may be stopped.
    clear_up(), _exit(0);
}
static pid_t other_process(uint64_t needs) {
    int flags = (needs & ONE_TABLE ? CLONE_FILES : 0) | (needs & ONE_DIRECTORY ? CLONE_FS : 0);
    return ck(flags ? syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0) : fork());
}
static void play(int number, const char *dir) {
    const struct cell *cell = &cells[number];
    uint64_t needs = needs_of(cell);
    char name[32];
    sigset_t all;
    sigfillset(&all), sigprocmask(SIG_BLOCK, &all, 0);
    if (needs & REAPED) signal(SIGCHLD, SIG_IGN);
    for (int other = 0; other < cells_len; other++)
        if (other != number) close(FIRST + other);
    close(ANNOUNCE);
    sprintf(name, "%d", number);
    ck(chdir(dir)), ck(chdir(name));
    if (cell->is_outside) {
        take_ends(), close_ends_of_others(), set_up(needs & ~inherited(needs));
        pid_a = getpid(), play_a(cell);
    }
    close_all_ends(), set_up(needs);
    pid_t first = getpid(), second = other_process(needs);
    int is_first = second != 0, first_is_a = !!(needs & B_IS_CHILD);
    if (!second) second = getpid();
    pid_a = first_is_a ? first : second, pid_b = first_is_a ? second : first;
    if (!is_first && !first_is_a) ck(prctl(PR_SET_PDEATHSIG, SIGKILL)); // If B ends before its time.
    if (is_first == first_is_a) play_a(cell); else play_b(cell, FIRST + number);
}
static int world(const char *dir) {
    ck(pipe(ready)), ck(pipe(start));
    pid_t first[CELLS_MAX];
    for (int number = 0; number < cells_len; number++) {
        first[number] = ck(fork());
        if (!first[number]) play(number, dir);
    }
    close(ready[1]), close_all_ends();
    int awaited = 0;
    for (int number = 0; number < cells_len; number++) awaited += cells[number].is_outside ? 1 : 2;
    for (int came = 0; came < awaited;) { // Who could not prepare is not waited for.
        struct pollfd one = {.fd = ready[0], .events = POLLIN};
        char bytes[64];
        if (poll(&one, 1, 5000 * slowness) <= 0) break;
        ssize_t n = read(ready[0], bytes, sizeof bytes);
        if (n <= 0) break;
        came += n;
    }
    long act_at = now() + (200 + cells_len) * slowness, open_at = act_at + OPENS_AFTER * slowness;
    for (int number = 0; number < awaited; number++) ck(write(start[1], &act_at, sizeof act_at));
    ck(write(ANNOUNCE, &open_at, sizeof open_at));
    for (int number = 0; number < cells_len; number++) close(FIRST + number);
    until(act_at + (OPENS_AFTER + 800) * slowness);
    for (int number = 0; number < cells_len; number++) // Nobody else ends an A that was stopped, or that waits.
        if (cells[number].is_outside) kill(first[number], SIGKILL);
    while (wait(0) > 0 || errno == EINTR) {}
    return 0;
}

// Outside.
static void copy(const char *from_name, const char *name) {
    int from = opened(from_name, O_RDONLY), to = ck(open(name, O_WRONLY | O_CREAT, 0755));
    struct stat stat;
    ck(fstat(from, &stat)), ck(sendfile(to, from, 0, stat.st_size)), close(from), close(to);
}
static void make_folder(int number) {
    char name[32];
    sprintf(name, "%d", number), ck(mkdir(name, 0755)), ck(chdir(name));
    put("dirt", "old dirt"), put("data", "old data"), put("other", "other"), put("lock", ""), put("gone", "gone");
    ck(mkdir("sub", 0755)), ck(mkdir("empty", 0755)), ck(mkfifo("fifo", 0600)), put("sub/file", "file");
    ck(symlink("data", "link"));
    if (needs_of(&cells[number]) & PROGRAM) copy("/bin/sleep", "program");
    ck(chdir(".."));
}
// Stops whoever makes a call that flushes; returns what says who that is. Inherited by all processes of the world.
static int stop_flushes(void) {
#define FLUSH(name, distance) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, distance, 0)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), FLUSH(syncfs, 4), FLUSH(fsync, 3),
        FLUSH(fdatasync, 2), FLUSH(sync, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (geteuid()) ck(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    return ck(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}
static void let_flushes_go(int stopped) {
    struct pollfd one = {.fd = stopped, .events = POLLIN};
    while (poll(&one, 1, 0) == 1 && one.revents & POLLIN) {
        struct seccomp_notif who = {0};
        if (ioctl(stopped, SECCOMP_IOCTL_NOTIF_RECV, &who)) break;
        struct seccomp_notif_resp answer = {.id = who.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(stopped, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}
static void send_number(int over, int f) {
    char control[CMSG_SPACE(sizeof f)] = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
    .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof f);
    memcpy(CMSG_DATA(head), &f, sizeof f), ck(sendmsg(over, &message, 0));
}
static int received_number(int over) {
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
    .msg_controllen = sizeof control};
    int f;
    if (ck(recvmsg(over, &message, 0)) != 1) end("no filter");
    memcpy(&f, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof f);
    return f;
}
static int moved(int f, int to) {
    ck(dup2(f, to)), close(f);
    return to;
}
// B outside, for each cell that has one there: what it shares with A is made before the world begins. It is told by
// `start` when A acts.
static void start_outside(const int *ends) {
    enum { TELLS = ANNOUNCE - 1 };
    ck(pipe2(ready, O_CLOEXEC)), ck(pipe2(start, O_CLOEXEC));
    for (int number = 0; number < cells_len; number++) {
        const struct cell *cell = &cells[number];
        char name[32];
        if (!cell->is_outside) continue;
        sprintf(name, "%d", number), ck(chdir(name)), set_up_outside(needs_of(cell));
        pid_b = ck(fork());
        if (!pid_b) {
            sigset_t all;
            sigfillset(&all), sigprocmask(SIG_BLOCK, &all, 0), ck(prctl(PR_SET_PDEATHSIG, SIGKILL));
            moved(ends[number], TELLS), ck(close_range(FIRST, ENDS - 1, 0)), close_ends_of_others();
            play_b(cell, TELLS);
        }
        leave_ends(), ck(chdir(".."));
    }
}
static void tell_outside(long act_at) {
    for (int number = 0; number < cells_len; number++)
        if (cells[number].is_outside) ck(write(start[1], &act_at, sizeof act_at));
}
// Whoever is left of a play, wherever it stands: what has lost its parent is ours (`PR_SET_CHILD_SUBREAPER`).
static void end_all(void) {
    char name[64];
    sprintf(name, "/proc/self/task/%d/children", getpid());
    for (int is_anybody = 1; is_anybody;) {
        FILE *children = fopen(name, "r");
        is_anybody = 0;
        for (int child; children && fscanf(children, "%d", &child) == 1;) is_anybody = 1, kill(child, SIGKILL);
        if (children) fclose(children);
        if (is_anybody && wait(0) < 0) return;
    }
}
static int gate(char **arguments, int count) {
    int tells[CELLS_MAX], announced[2], over[2], stopped = -1, is_open = count == 4;
    char self[4096], list[4096], dir[4096], *command[count + 8];
    struct { char text[3001]; int length, was_early, is_closed; } told[cells_len];
    memset(told, 0, sizeof told);
    ck(readlink("/proc/self/exe", self, sizeof self) - 1 < 0 ? -1 : 0), self[readlink("/proc/self/exe", self,
    4095)] = 0;
    if (!realpath(arguments[2], list) || !realpath(arguments[1], dir)) end("no such folder or list");
    ck(chdir(dir));
    int length = 0;
    for (int at = 4; at < count; at++) command[length++] = arguments[at];
    char *rest[] = {self, "world", dir, list, arguments[3], 0};
    memcpy(command + length, rest, sizeof rest);
    for (int number = 0; number < cells_len; number++) make_folder(number);
    ck(socketpair(AF_UNIX, SOCK_STREAM, 0, over)), ck(pipe2(announced, O_CLOEXEC));
    ck(prctl(PR_SET_CHILD_SUBREAPER, 1));
    int ends[cells_len];
    for (int number = 0; number < cells_len; number++) {
        int both[2];
        ck(pipe2(both, O_CLOEXEC));
        tells[number] = ck(fcntl(both[0], F_DUPFD_CLOEXEC, FIRST + CELLS_MAX)), close(both[0]);
        ends[number] = ck(fcntl(both[1], F_DUPFD_CLOEXEC, FIRST + 2 * CELLS_MAX)), close(both[1]);
        ck(fcntl(tells[number], F_SETFL, O_NONBLOCK));
    }
    start_outside(ends);
    pid_t child = ck(fork());
    if (!child) {
        for (int number = 0; number < cells_len; number++) moved(ends[number], FIRST + number);
        moved(announced[1], ANNOUNCE);
        if (!is_open) {
            int f = stop_flushes();
            send_number(over[1], f), close(f);
        }
        close(over[0]), close(over[1]);
        execvp(command[0], command);
        end("cannot start the command");
    }
    close(announced[1]), close(over[1]), close_all_ends();
    for (int number = 0; number < cells_len; number++) close(ends[number]);
    if (!is_open) stopped = received_number(over[0]);
    long open_at = now() + 60000 * slowness, give_up_at = open_at + 30000 * slowness;
    for (int is_over = 0, status = 0; now() < give_up_at || !is_over;) {
        if (now() > give_up_at) end_all(), end("the command does not end");
        struct pollfd watched[cells_len + 2];
        watched[cells_len] = (struct pollfd){.fd = announced[0], .events = POLLIN};
        watched[cells_len + 1] = (struct pollfd){.fd = is_open ? stopped : -1, .events = POLLIN};
        int missing = 0;
        for (int number = 0; number < cells_len; number++) {
            int is_done = told[number].length || told[number].is_closed;
            watched[number] = (struct pollfd){.fd = is_done ? -1 : tells[number], .events = POLLIN};
            missing += !is_done;
        }
        if (is_over && !missing) break;
        is_open |= !missing || now() > open_at;
        poll(watched, cells_len + 2, 20);
        if (watched[cells_len].revents) {
            if (read(announced[0], &open_at, sizeof open_at) <= 0) close(announced[0]), announced[0] = -1;
            else tell_outside(open_at - OPENS_AFTER * slowness);
        }
        for (int number = 0; number < cells_len; number++) {
            if (!watched[number].revents) continue;
            ssize_t n = read(tells[number], told[number].text, sizeof told->text - 1);
            if (n > 0) told[number].length = n, told[number].was_early = stopped == -1 || !is_open;
            told[number].is_closed = n == 0;
        }
        if (is_open && stopped != -1) let_flushes_go(stopped);
        if (is_over || waitpid(child, &status, WNOHANG) != child) continue;
        is_over = 1, give_up_at = now() + 2000 * slowness;
        if (status) fprintf(stderr, "cells: the command ended with %#x\n", status);
        // 125 and more: there was no world; 2: what plays the cells gave up. What nobody said then is no answer, and a
        // search with many of these is an error.
    }
    for (int number = 0; number < cells_len; number++)
        printf("%s %s", !told[number].length ? "none" : told[number].was_early ? "early" : "late",
               told[number].length ? told[number].text : "\n");
    end_all();
    return 0;
}

static void list_all(void) {
    for (const struct action *const *at = __start_actions; at < __stop_actions; at++) {
        printf("action %s\n", (*at)->name);
        if ((*at)->prepare) printf("prepared %s\n", (*at)->name);
        if (needs_kin((*at)->needs)) printf("of_kin %s\n", (*at)->name);
    }
    for (const struct observation *const *at = __start_observations; at < __stop_observations; at++) {
        printf("%s %s\n", (*at)->needs & CHANGES ? "changing" : "observation", (*at)->name);
        if (may_be_outside((*at)->needs)) printf("observation outside:%s\n", (*at)->name);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "list")) return list_all(), 0;
    if (argc < 5) end("usage: cells list | cells gate DIR LIST SLOWNESS [COMMAND …]");
    struct rlimit files;
    ck(getrlimit(RLIMIT_NOFILE, &files)), files.rlim_cur = files.rlim_max, ck(setrlimit(RLIMIT_NOFILE, &files));
    read_list(argv[3]), slowness = atoi(argv[4]);
    return strcmp(argv[1], "world") ? gate(argv + 1, argc - 1) : world(argv[2]);
}
