// Children end, and their parent hears of it in every way that there is: what it is told is the same whether anybody is
// asked about an end or not (decision 0238). Some ends have to be asked about, as they close what others could tell, so
// that both kinds are mixed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t told;

static void on_child(int signal) {
    (void)signal;
    told++;
}

static void on_alarm(int signal) {
    (void)signal;
}

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

// A child that ends with this status; `asks`: it has an event counter open, of which somebody is asked.
static pid_t child(int status, int asks) {
    pid_t pid = fork();
    if (pid < 0) exit(90);
    if (pid > 0) return pid;
    if (asks && eventfd(0, 0) < 0) _exit(91);
    _exit(status);
}

static void pause_ms(long ms) {
    struct timespec left = {.tv_nsec = ms * 1000000};
    while (nanosleep(&left, &left) != 0) {}
}

// Until a child of this number is dead, without waiting for it.
static void await_zombie(pid_t pid) {
    siginfo_t info;
    while (waitid(P_PID, pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {}
}

static void wait_one_by_one(void) {
    for (int i = 0; i < 6; i++) {
        int status = 0;
        struct rusage usage = {.ru_maxrss = -1};
        pid_t pid = child(i, i > 3);
        pid_t waited = wait4(pid, &status, 0, &usage);
        printf("one %d: own %d status %d usage %d\n", i, waited == pid, WEXITSTATUS(status), usage.ru_maxrss >= 0);
    }
    int said = wait(NULL);
    printf("none: %d %d\n", said, errno == ECHILD);
}

static void wait_for_any(void) {
    int seen = 0, count = 0, status;
    for (int i = 0; i < 8; i++) child(i, i % 2);
    while (wait4(-1, &status, 0, NULL) > 0) {
        seen |= 1 << WEXITSTATUS(status);
        count++;
    }
    printf("any: %d, all %x\n", count, seen);
}

static void hear_of_each(void) {
    handle(SIGCHLD, on_child, SA_RESTART);
    for (int i = 0; i < 6; i++) {
        int before = told, status = 0;
        pid_t pid = child(10 + i, i == 3);
        while (told == before) pause_ms(1);
        pid_t waited = waitpid(pid, &status, WNOHANG);
        printf("heard: own %d status %d\n", waited == pid, WEXITSTATUS(status));
    }
    // Natively the signal is there when the wait is over; a moment later it was told once, and once only.
    for (int i = 0; i < 4; i++) {
        int before = told;
        pid_t pid = child(0, i == 1);
        pid_t waited = waitpid(pid, NULL, 0);
        for (int patience = 500; patience > 0 && told == before; patience--) pause_ms(1);
        printf("waited %d told %d\n", waited == pid, told - before);
    }
    handle(SIGCHLD, SIG_DFL, 0);
}

static void look_first(void) {
    siginfo_t info;
    pid_t pid = child(20, 0), other = child(21, 1);
    for (int i = 0; i < 2; i++) {
        int said = waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
        printf("looked: %d own %d status %d\n", said, info.si_pid == pid, info.si_status);
    }
    await_zombie(other);
    int said = waitid(P_PID, pid, &info, WEXITED);
    printf("waited: %d own %d code %d\n", said, info.si_pid == pid, info.si_code == CLD_EXITED);
    said = waitid(P_PID, pid, &info, WEXITED);
    printf("gone: %d %d\n", said, errno == ECHILD);
    said = waitid(P_ALL, 0, &info, WEXITED | WNOHANG);
    printf("other: %d own %d status %d\n", said, info.si_pid == other, info.si_status);
}

static void by_group(void) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        _exit(30);
    }
    await_zombie(pid);
    pid_t other = child(31, 0);
    pid_t waited = waitpid(-pid, &status, 0);
    printf("group: own %d status %d\n", waited == pid, WEXITSTATUS(status));
    waited = waitpid(0, &status, 0);
    printf("own group: own %d status %d\n", waited == other, WEXITSTATUS(status));
}

// A signal interrupts a wait for somebody who lives on.
static void interrupted(void) {
    handle(SIGALRM, on_alarm, 0);
    int end[2];
    if (pipe(end)) exit(92);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(end[1]);
        _exit(read(end[0], &byte, 1) == 0 ? 40 : 41);
    }
    struct itimerval soon = {.it_value.tv_usec = 20000};
    setitimer(ITIMER_REAL, &soon, NULL);
    int status = 0, said = wait(&status);
    printf("interrupted: %d %d\n", said, errno == EINTR);
    close(end[1]);
    said = waitpid(pid, &status, 0);
    printf("then: own %d status %d\n", said == pid, WEXITSTATUS(status));
    close(end[0]);
}

// Who ends has children: they are not its parent's.
static void orphans(void) {
    int end[2];
    char byte;
    if (pipe(end)) exit(93);
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            pause_ms(20);
            _exit(write(end[1], "x", 1) == 1 ? 0 : 1);
        }
        _exit(60);
    }
    close(end[1]);
    int status = 0;
    pid_t waited = waitpid(pid, &status, 0);
    printf("orphaned: own %d status %d\n", waited == pid, WEXITSTATUS(status));
    long first = read(end[0], &byte, 1), last = read(end[0], &byte, 1);
    printf("orphan: %ld then %ld, none %d\n", first, last, wait(NULL) == -1 && errno == ECHILD);
    close(end[0]);
}

static void killed(void) {
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (i) raise(SIGTERM);
            for (;;) pause();
        }
        if (!i) kill(pid, SIGKILL);
        int status = 0, waited = waitpid(pid, &status, 0);
        printf("killed: own %d by %d\n", waited == pid, WTERMSIG(status));
    }
}

static void programs(void) {
    static const char *scripts[] = {"(exit 5); /bin/true; exit 6", "exit 3 &\nwait; exit 4", "exit 2 | (exit 8)"};
    int status = 0;
    pid_t pid;
    for (int i = 0; i < 3; i++) {
        pid = fork();
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", scripts[i], NULL);
            _exit(94);
        }
        pid_t waited = waitpid(pid, &status, 0);
        printf("program: own %d status %d\n", waited == pid, WEXITSTATUS(status));
    }
    pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", scripts[0], NULL);
        _exit(95);
    }
    status = 0;
    printf("spawned: own %d", waitpid(pid, &status, 0) == pid);
    printf(" status %d\n", WEXITSTATUS(status));
    pid = vfork();
    if (pid == 0) {
        execl("/nowhere", "nowhere", NULL);
        _exit(7);
    }
    pid_t waited = waitpid(pid, &status, 0);
    printf("no program: own %d status %d\n", waited == pid, WEXITSTATUS(status));
}

int main(void) {
    wait_one_by_one();
    wait_for_any();
    hear_of_each();
    look_first();
    by_group();
    interrupted();
    orphans();
    killed();
    programs();
    fflush(stdout);
    return 0;
}
