//! Processes with several threads: each has its own state back, those that have ended are there again, those that were
//! born since are not.

mod common;
use checkpoint::{CheckpointError, ThreadedVessel};
use common::{compile, Program};
use procfs::{ProcessId, ThreadId};
use std::collections::{HashMap, HashSet};
use tracee::{Stop, Stopped};

/// Workers that do what the main thread tells them, one after the other. `vector` is held in a register across a wait.
const WORKERS: &str = r#"
#include <pthread.h>
#include <linux/futex.h>
enum { MAX = 80 };
struct worker { pthread_t thread; int number, order, done; unsigned long vector; char *stack; char said[256]; };
static struct worker workers[MAX]; static int count; static __thread unsigned long own;
static void wait_for(int *word, int value) {
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
}
static void wake(int *word, int value) {
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 99, 0, 0, 0);
}
static void do_report(struct worker *w) {
    stack_t s; sigset_t m, p; void *list, *tid; size_t len; unsigned long fs; char name[17] = {0};
    prctl(PR_GET_NAME, name);
    if (w->number >= 100) { snprintf(w->said, sizeof w->said, "%lx %lx %s", own, w->vector, name); return; }
    sigaltstack(0, &s); sigemptyset(&m); pthread_sigmask(SIG_BLOCK, 0, &m); sigpending(&p);
    syscall(SYS_get_robust_list, 0, &list, &len); prctl(40, &tid); syscall(SYS_arch_prctl, 0x1003, &fs);
    cpu_set_t c; CPU_ZERO(&c); sched_getaffinity(0, sizeof c, &c);
    snprintf(w->said, sizeof w->said, "%ld %lx %lx %p %p %p %lx %s %lx %d %d %lx", syscall(SYS_gettid), own, w->vector,
        s.ss_sp, list, tid, *(long *)&m, name, fs, sched_getscheduler(0), sigismember(&p, SIGUSR2), *(long *)&c);
}
static void do_change(struct worker *w, int how) {
    char name[16]; snprintf(name, 16, "%d-%d", how, w->number); prctl(PR_SET_NAME, name); own += how * 1000 + w->number;
    if (!w->stack) w->stack = malloc(131072);
    stack_t s = {.ss_sp = w->stack + (how % 2) * 65536, .ss_size = 65536}; sigaltstack(&s, 0);
    sigset_t m; sigemptyset(&m); sigaddset(&m, SIGUSR2); sigaddset(&m, SIGRTMIN + 3 + (how + w->number) % 20);
    pthread_sigmask(SIG_SETMASK, &m, 0);
    if (how == 1 && w->number % 2) pthread_kill(pthread_self(), SIGUSR2);
    if (how == 2) {
        static long heads[MAX][3]; struct sched_param p = {0};
        syscall(SYS_set_robust_list, heads[w->number], 24); sched_setscheduler(0, SCHED_BATCH, &p);
        cpu_set_t c; sched_getaffinity(0, sizeof c, &c); *(long *)&c &= -*(long *)&c; sched_setaffinity(0, sizeof c, &c);
        struct timespec none = {0}; sigset_t u; sigemptyset(&u); sigaddset(&u, SIGUSR2);
        if (w->number % 2) sigtimedwait(&u, 0, &none);
    }
}
static void *work(void *at) {
    struct worker *w = at; own = w->number; unsigned long vector = 0x1234 + w->number, back;
    for (;;) {
        register long a10 __asm__("r10") = 0; long answer, zero = 0;
        do {
            __asm__ volatile("movq %[v], %%xmm9\n syscall\n movq %%xmm9, %[b]" : "=a"(answer), [b] "=r"(back)
                : "a"(SYS_futex), "D"(&w->order), "S"(FUTEX_WAIT_PRIVATE), "d"(0), "r"(a10), [v] "r"(vector)
                : "rcx", "r11", "memory", "xmm9");
            if (back != vector) vector = 0xbad;
        } while (__atomic_load_n(&w->order, __ATOMIC_SEQ_CST) == 0);
        int order = w->order; w->vector = vector; vector = vector * 31 + order;
        __atomic_store_n(&w->order, 0, __ATOMIC_SEQ_CST);
        if (order == 9) return at;
        if (order == 1) do_report(w); else do_change(w, order - 1);
        wake(&w->done, 1);
    }
}
static void tell(struct worker *w, int order) {
    w->done = 0;
    wake(&w->order, order);
    if (order != 9) wait_for(&w->done, 0);
}
static void start(struct worker *w, int number) {
    memset(w, 0, sizeof *w);
    w->number = number;
    if (pthread_create(&w->thread, 0, work, w)) _exit(7);
}
static void all(int order) { for (int i = 0; i < count; i++) if (workers[i].thread) tell(&workers[i], order); }
static void say_all(const char *what) {
    all(1); uint64_t h = 0; int n = 0;
    for (int i = 0; i < count; i++)
        if (workers[i].thread) { h = h * 31 + hash(workers[i].said, strlen(workers[i].said)); n++; }
    void *tid; prctl(40, &tid);
    SAY("%s %d %lx %p %lx %s", what, n, h, tid, own, workers[0].said);
}
"#;

const FREEZE_MAX: usize = 100;

fn tids(pid: ProcessId) -> HashSet<ThreadId> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().map(ThreadId::from_raw).unwrap()).collect()
}

/// A program whose first thread is stopped: stop all others, and attach to those that are not attached yet.
fn freeze(program: &mut Program) -> HashMap<ThreadId, Stopped> {
    let pid = program.pid();
    let mut stops = HashMap::from([(pid.leader(), program.stopped.take().unwrap())]);
    for _ in 0..FREEZE_MAX {
        let running: Vec<ThreadId> = tids(pid).into_iter().filter(|tid| !stops.contains_key(tid)).collect();
        if running.is_empty() {
            return stops;
        }
        for tid in running {
            // Mostly it was attached before.
            let _ = tracee::seize(tid);
            if tracee::interrupt(tid).is_err() {
                continue;
            }
            stops.extend(tracee::await_stop(tid).unwrap().map(|stopped| (tid, stopped)));
        }
    }
    panic!("threads are born faster than they are stopped");
}

fn resume(program: &mut Program, mut stops: HashMap<ThreadId, Stopped>) {
    let leader = stops.remove(&program.pid().leader()).unwrap();
    for (_, stopped) in stops {
        let signal = stopped.signal();
        stopped.resume(signal).unwrap();
    }
    leader.resume(0).unwrap();
}

fn sorted(stops: &HashMap<ThreadId, Stopped>) -> Vec<ThreadId> {
    let mut sorted: Vec<ThreadId> = stops.keys().copied().collect();
    sorted.sort_unstable();
    sorted
}

/// What each thread has registered for restartable sequences.
fn sequences(stops: &HashMap<ThreadId, Stopped>) -> Vec<(ThreadId, u64)> {
    let pointer = |tid: &ThreadId| stops[tid].rseq_configuration().unwrap().pointer;
    sorted(stops).into_iter().map(|tid| (tid, pointer(&tid))).collect()
}

/// `body` is `setup(argument)` and `change()`: afterwards and after two rollbacks the same is said.
fn check(name: &str, body: &str, workers: usize) {
    let main = r#"
        int main(int argc, char **argv) {
            begin(); count = atoi(argv[1]); setup(); STOP();
            say_all("a"); change(); say_all("b"); STOP(); SAY("end"); return 0;
        }"#;
    let path = compile(name, &format!("{WORKERS}{body}{main}"), &["-pthread"]);
    let mut program = Program::start(&path, &[&workers.to_string()]);
    program.trap();
    let (pid, gate) = (program.pid(), program.gate());
    let stops = freeze(&mut program);
    let before = sorted(&stops);
    let vessel = ThreadedVessel::fork(pid, &stops, gate).unwrap();
    assert_eq!(vessel.others().count() + 1, before.len());
    let registered = sequences(&stops);
    resume(&mut program, stops);
    program.trap();
    let lines = (program.line(), program.line());
    assert_ne!(lines.0[1..], lines.1[1..], "{name}: the change can be seen");
    for round in 0..2 {
        let mut stops = freeze(&mut program);
        vessel.restore(&mut stops, gate).unwrap();
        assert_eq!(sorted(&stops), before, "{name}: the threads of the checkpoint");
        assert_eq!(tids(pid).len(), before.len(), "{name}: and no others");
        assert_eq!(sequences(&stops), registered, "{name}: restartable sequences");
        resume(&mut program, stops);
        program.trap();
        assert_eq!(program.line(), lines.0, "{name}: as it was, round {round}");
        assert_eq!(program.line(), lines.1, "{name}: goes on as it did, round {round}");
    }
    let stops = freeze(&mut program);
    let child = vessel.vessel().id().process();
    vessel.discard(&stops[&pid.leader()], gate).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{child}")).exists(), "nothing is left of a vessel");
    resume(&mut program, stops);
    assert_eq!(program.line(), "end", "{name}");
}

const STATE: &str = r#"
    static void setup(void) { for (int i = 0; i < count; i++) start(&workers[i], i); all(2); own = 7; }
    static void change(void) { all(3); own = 8; }
"#;

#[test]
fn each_of_one_thread_beside_the_first_has_its_state_back() {
    check("state1", STATE, 1);
}

#[test]
fn each_of_few_threads_has_its_state_back() {
    check("state4", STATE, 4);
}

#[test]
fn each_of_many_threads_has_its_state_back() {
    check("state16", STATE, 16);
    check("state64", STATE, 64);
}

#[test]
fn threads_that_have_ended_are_there_again_and_those_born_since_are_not() {
    check(
        "ended",
        r#"
        static void setup(void) { for (int i = 0; i < count; i++) start(&workers[i], i); all(2); }
        static void change(void) {
            for (int i = 1; i < count; i += 2) {
                tell(&workers[i], 9); pthread_join(workers[i].thread, 0); workers[i].thread = 0;
            }
            for (int i = 0; i < 3; i++) start(&workers[count + i], 100 + i);
            count += 3; all(3); }
        "#,
        7,
    );
}

#[test]
fn threads_that_an_exec_has_ended_are_there_again() {
    let body = r#"
        static void setup(void) { for (int i = 0; i < count; i++) start(&workers[i], i); all(2); }
        int main(int argc, char **argv) {
            if (argc > 2) { STOP(); return 3; }
            begin(); count = atoi(argv[1]); setup(); STOP(); say_all("a");
            char *words[] = {argv[0], argv[1], "x", 0}; execv("/proc/self/exe", words); return 9;
        }"#;
    let path = compile("exec", &format!("{WORKERS}{body}"), &["-pthread"]);
    let mut program = Program::start(&path, &["3"]);
    program.trap();
    let (pid, gate) = (program.pid(), program.gate());
    let stops = freeze(&mut program);
    let before = sorted(&stops);
    let vessel = ThreadedVessel::fork(pid, &stops, gate).unwrap();
    let registered = sequences(&stops);
    resume(&mut program, stops);
    let mut line = String::new();
    for round in 0..3 {
        // The kernel goes on with the exec when their tracer has heard of the others' ends.
        before.iter().filter(|tid| !tid.is_leader_of(pid)).for_each(|&tid| drop(tracee::await_end(tid)));
        program.await_stop(|stop| matches!(stop, Stop::Exec { .. }));
        program.resume();
        program.trap();
        let said = program.line();
        assert!(round == 0 || said == line, "as it was, round {round}: {said} {line}");
        line = said;
        if round < 2 {
            let now = program.gate();
            let mut stops = freeze(&mut program);
            vessel.restore(&mut stops, now).unwrap();
            assert_eq!(sorted(&stops), before);
            assert_eq!(sequences(&stops), registered);
            resume(&mut program, stops);
        }
    }
    let stops = freeze(&mut program);
    vessel.discard(&stops[&pid.leader()], program.gate()).unwrap();
    resume(&mut program, stops);
}

/// A thread in the middle of its program: what it has counted in a register and in memory is the same afterwards.
#[test]
fn a_thread_that_computes_goes_on_from_where_it_was() {
    let path = compile(
        "counts",
        r#"
        #include <pthread.h>
        static volatile unsigned long at, seen;
        static void *count(void *unused) {
            for (unsigned long n = 1;; n++) { if (n != at + 1) abort(); at = n; __asm__ volatile("pause"); }
        }
        int main(void) {
            begin(); pthread_t t; pthread_create(&t, 0, count, 0); while (at < 1000) sched_yield();
            for (int round = 0;; round++) {
                seen = at; SAY("%d", round); while (at < seen + 1000) sched_yield(); STOP();
            }
        }
        "#,
        &["-pthread"],
    );
    let mut program = Program::start(&path, &[]);
    program.trap();
    program.line();
    let (pid, gate) = (program.pid(), program.gate());
    let stops = freeze(&mut program);
    let vessel = ThreadedVessel::fork(pid, &stops, gate).unwrap();
    resume(&mut program, stops);
    let mut first = None;
    for _ in 0..20 {
        program.trap();
        let line = program.line();
        // Each of them is the same round; had the thread not both of its counts back, it would have ended us.
        assert_eq!(*first.get_or_insert_with(|| line.clone()), line);
        let mut stops = freeze(&mut program);
        vessel.restore(&mut stops, gate).unwrap();
        resume(&mut program, stops);
    }
    program.trap();
    let stops = freeze(&mut program);
    vessel.discard(&stops[&pid.leader()], gate).unwrap();
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let path = compile(
        "apart",
        r#"
        #include <pthread.h>
        static int ready;
        static void *work(void *how) {
            if (*(char *)how == 'd') unshare(CLONE_FILES);
            if (*(char *)how == 'f') unshare(CLONE_FS);
            __atomic_store_n(&ready, 1, __ATOMIC_SEQ_CST); for (;;) pause();
        }
        int main(int argc, char **argv) {
            begin(); pthread_t t; pthread_create(&t, 0, work, argv[1]);
            while (!__atomic_load_n(&ready, __ATOMIC_SEQ_CST)) usleep(100);
            STOP(); return 0;
        }
        "#,
        &["-pthread"],
    );
    for (how, is_refused) in [("plain", false), ("descriptors", true), ("fs", true)] {
        let mut program = Program::start(&path, &[how]);
        program.trap();
        let (pid, gate) = (program.pid(), program.gate());
        let mut stops = freeze(&mut program);
        let forked = ThreadedVessel::fork(pid, &stops, gate);
        match forked {
            Ok(vessel) => {
                assert!(!is_refused, "{how}");
                vessel.discard(&stops[&pid.leader()], gate).unwrap();
            }
            Err(error) => assert!(is_refused && matches!(error, CheckpointError::Unsupported(_)), "{how}: {error}"),
        }
        // One that nobody has stopped is no part of a checkpoint.
        let other = *stops.keys().find(|tid| !tid.is_leader_of(pid)).unwrap();
        let missing = stops.remove(&other).unwrap();
        assert!(matches!(ThreadedVessel::fork(pid, &stops, gate), Err(CheckpointError::Unsupported(_))), "{how}");
        stops.insert(other, missing);
        resume(&mut program, stops);
    }
}

/// A process that is killed while we make it do something: its first thread's end is told after all others'.
#[test]
fn a_process_that_is_killed_meanwhile_is_gone() {
    let path = compile(
        "killed",
        &format!(
            "{WORKERS}{STATE}int main(int argc, char **argv) {{ begin(); count = 3; setup(); STOP(); return 0; }}"
        ),
        &["-pthread"],
    );
    let mut program = Program::start(&path, &[]);
    program.trap();
    let (pid, gate) = (program.pid(), program.gate());
    let mut stops = freeze(&mut program);
    let vessel = ThreadedVessel::fork(pid, &stops, gate).unwrap();
    tracee::kill(pid).unwrap();
    let error = vessel.restore(&mut stops, gate).unwrap_err();
    assert!(error.is_gone(), "{error}");
    let _dying = vessel.into_vessel().give_up();
}
