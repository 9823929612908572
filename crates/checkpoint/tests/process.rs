//! What a process has beside memory.

mod common;
use common::{check, check_with};

#[test]
fn vector_registers() {
    check_with(
        "vector",
        r#"
        static unsigned char v[32]; static int runs;
        static void setup(void) { memset(v, 3, 32); }
        static void report(void) { SAY("%d %lx", runs, hash(v, 32)); }
        static void change(void) { runs++; }
        "#,
        &[],
    );
    // The registers themselves, across the stop, not through memory.
    let path = common::compile(
        "vector_held",
        r#"
        int main(void) { begin(); unsigned char in[32], out[32], other[32]; memset(in, 0x5a, 32); memset(other, 1, 32);
            __asm__ volatile("vmovdqu (%0), %%ymm7\n fldpi\n int3\n vmovdqu %%ymm7, (%1)\n fstp %%st(0)\n vmovdqu (%2), %%ymm7"
                :: "r"(in), "r"(out), "r"(other) : "memory", "xmm7");
            SAY("%d", memcmp(in, out, 32)); __asm__ volatile("vmovdqu (%0), %%ymm7\n int3" :: "r"(other) : "xmm7", "memory"); return 0; }
        "#,
        &["-mavx"],
    );
    let mut program = common::Program::start(&path, &[]);
    program.trap();
    let vessel = program.fork();
    program.resume();
    assert_eq!(program.line(), "0");
    program.trap();
    let other = program.stopped().extended_state().unwrap();
    program.restore(&vessel);
    assert_ne!(program.stopped().extended_state().unwrap(), other);
    program.resume();
    assert_eq!(program.line(), "0");
    program.trap();
    program.discard(vessel);
    assert_eq!(program.end(), Some(0));
}

#[test]
fn signals() {
    check(
        "signals",
        r#"
        static volatile int hits; static void one(int s) { hits += 1; } static void two(int s) { hits += 100; }
        static void setup(void) { signal(SIGUSR1, one); signal(SIGHUP, SIG_IGN); sigset_t s; sigemptyset(&s); sigaddset(&s, SIGALRM); sigprocmask(SIG_BLOCK, &s, 0);
            struct sigaction c = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT}; sigaction(SIGCHLD, &c, 0); }
        static void report(void) { struct sigaction h, u, c, t; sigset_t m; sigaction(SIGHUP, 0, &h); sigaction(SIGUSR2, 0, &u); sigaction(SIGCHLD, 0, &c); sigaction(SIGTERM, 0, &t);
            sigprocmask(SIG_BLOCK, 0, &m);
            SAY("%d %d %d %x %d %d %d", h.sa_handler == SIG_IGN, u.sa_handler == SIG_DFL, hits, c.sa_flags & SA_NOCLDWAIT, t.sa_handler == SIG_IGN, sigismember(&m, SIGALRM), sigismember(&m, SIGINT));
            raise(SIGUSR1); }
        static void change(void) { signal(SIGUSR1, two); signal(SIGHUP, two); signal(SIGUSR2, two); signal(SIGCHLD, SIG_DFL); signal(SIGTERM, SIG_IGN);
            sigset_t s; sigemptyset(&s); sigaddset(&s, SIGINT); sigprocmask(SIG_SETMASK, &s, 0); }
        "#,
    );
}

#[test]
fn alternate_stack() {
    check(
        "altstack",
        r#"
        static char *a, *b; static void setup(void) { a = malloc(65536); b = malloc(65536); stack_t s = {.ss_sp = a, .ss_size = 65536}; sigaltstack(&s, 0); }
        static void report(void) { stack_t s; sigaltstack(0, &s); SAY("%d %d %zu %d", s.ss_sp == a, s.ss_sp == b, s.ss_size, s.ss_flags); }
        static void change(void) { stack_t s = {.ss_sp = b, .ss_size = 32768}; sigaltstack(&s, 0); }
        "#,
    );
}

#[test]
fn small_things() {
    check(
        "small",
        r#"
        static void setup(void) { umask(027); prctl(PR_SET_NAME, "before"); chdir("/usr"); struct rlimit l = {77, 99}; setrlimit(RLIMIT_NOFILE, &l); }
        static void report(void) { int u = umask(0); umask(u); char name[16], cwd[99]; prctl(PR_GET_NAME, name); struct rlimit l, c; getrlimit(RLIMIT_NOFILE, &l); getrlimit(RLIMIT_CORE, &c);
            cpu_set_t s; sched_getaffinity(0, sizeof s, &s);
            SAY("%o %s %s %lu %lx %d %d %d", u, name, getcwd(cwd, 99), l.rlim_cur, c.rlim_cur, getpriority(PRIO_PROCESS, 0), CPU_COUNT(&s), prctl(PR_GET_DUMPABLE)); }
        static void change(void) { umask(077); prctl(PR_SET_NAME, "after (x"); chdir("/"); struct rlimit l = {50, 99}; setrlimit(RLIMIT_NOFILE, &l); l.rlim_cur = 3; l.rlim_max = RLIM_INFINITY; setrlimit(RLIMIT_CORE, &l);
            setpriority(PRIO_PROCESS, 0, 5); cpu_set_t s; CPU_ZERO(&s); CPU_SET(0, &s); sched_setaffinity(0, sizeof s, &s); prctl(PR_SET_DUMPABLE, 0); }
        "#,
    );
}

#[test]
fn interval_timers() {
    check(
        "itimer",
        r#"
        static void setup(void) { struct itimerval t = {{3, 0}, {1000, 0}}; setitimer(ITIMER_REAL, &t, 0); }
        static void report(void) { struct itimerval t, p; getitimer(ITIMER_REAL, &t); getitimer(ITIMER_PROF, &p); SAY("%ld %ld %d", t.it_interval.tv_sec, (t.it_value.tv_sec + 50) / 100, p.it_value.tv_sec > 0); }
        static void change(void) { struct itimerval t = {{0, 0}, {500, 0}}; setitimer(ITIMER_REAL, &t, 0); setitimer(ITIMER_PROF, &t, 0); }
        "#,
    );
}

/// While the signal of a timer waits, nothing is left of the timer's time, although it goes on.
#[test]
fn an_interval_timer_whose_signal_waits_goes_on() {
    check(
        "itimer_pending",
        r#"
        static sigset_t one; static int heard;
        static int next(void) { struct timespec while_ = {5, 0}; return sigtimedwait(&one, 0, &while_) == SIGALRM; }
        static void setup(void) { sigemptyset(&one); sigaddset(&one, SIGALRM); sigprocmask(SIG_BLOCK, &one, 0);
            struct itimerval t = {{0, 20000}, {0, 1}}; setitimer(ITIMER_REAL, &t, 0); usleep(5000); }
        static void report(void) { struct itimerval t; getitimer(ITIMER_REAL, &t); int a = next(), b = next();
            SAY("%ld %d %d %d", t.it_interval.tv_usec, a, b, heard); }
        static void change(void) { heard++; struct itimerval t = {{0, 0}, {0, 0}}; setitimer(ITIMER_REAL, &t, 0); }
        "#,
    );
}

#[test]
fn pending_signals_are_pending_again() {
    check(
        "pending",
        r#"
        static volatile int hits, value; static void on(int s, siginfo_t *i, void *c) { hits++; value = i->si_value.sival_int; }
        static sigset_t one;
        static void setup(void) { struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO}; sigaction(SIGUSR1, &a, 0); sigaction(SIGUSR2, &a, 0);
            sigemptyset(&one); sigaddset(&one, SIGUSR1); sigprocmask(SIG_BLOCK, &one, 0); sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42}); }
        static void report(void) { sigset_t p; sigpending(&p); SAY("%d %d %d", sigismember(&p, SIGUSR1), hits, value); }
        static void change(void) { sigprocmask(SIG_UNBLOCK, &one, 0); }
        "#,
    );
}

/// Setting a disposition that ignores a signal throws away what waits of it, also of one that came since.
#[test]
fn signals_that_are_ignored_by_default_are_pending_again() {
    check(
        "ignored",
        r#"
        static sigset_t all;
        static void setup(void) {
            sigemptyset(&all); sigaddset(&all, SIGCHLD); sigaddset(&all, SIGWINCH); sigaddset(&all, SIGURG);
            sigprocmask(SIG_BLOCK, &all, 0);
            if (fork() == 0) _exit(3);
            siginfo_t i; waitid(P_ALL, 0, &i, WEXITED | WNOWAIT); raise(SIGWINCH); raise(SIGURG);
        }
        static void report(void) {
            sigset_t p; sigpending(&p);
            SAY("%d %d %d", sigismember(&p, SIGCHLD), sigismember(&p, SIGWINCH), sigismember(&p, SIGURG));
        }
        static void change(void) {
            struct timespec none = {0, 0}; sigset_t s;
            sigemptyset(&s); sigaddset(&s, SIGURG); sigtimedwait(&s, 0, &none);
        }
        "#,
    );
}
