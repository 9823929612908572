//! A process that has become another program is the old one again.

mod common;
use common::{compile, gate, Program};
use procfs::ProcessId;
use tracee::Stop;

const OTHER: &str = r#"
int main(int argc, char **argv) { char *memory = malloc(9 << 20); memset(memory, 1, 9 << 20);
    STOP(); SAY("other %s", argv[1]); STOP(); return 3; }
"#;

/// Everything that exec destroys, and what it keeps.
const OLD: &str = r#"
static char data[9000] = {1}; static char *heap, *mapped; static __thread int own = 5; static volatile int hits;
static void on(int s) { hits++; }
int main(int argc, char **argv) {
    begin();
    heap = malloc(100000); memset(heap, 6, 100000); data[5000] = 3; own = 6;
    mapped = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(mapped, 4, 1 << 20);
    int *shared = mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); *shared = 12;
    int id = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600); int *segment = shmat(id, 0, 0); shmctl(id, IPC_RMID, 0); *segment = 13;
    signal(SIGUSR1, on); prctl(PR_SET_NAME, "renamed");
    stack_t s = {.ss_sp = malloc(65536), .ss_size = 65536}; sigaltstack(&s, 0);
    STOP();
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    char name[16], exe[999] = {0}, line[999] = {0}; prctl(PR_GET_NAME, name); readlink("/proc/self/exe", exe, 998);
    int f = open("/proc/self/cmdline", 0); read(f, line, 998); close(f); raise(SIGUSR1); stack_t now; sigaltstack(0, &now);
    SAY("%lx %lx %lx %d %d %d %s %s %s %d %d %p %d", hash(data, 9000), hash(heap, 100000), hash(mapped, 1 << 20), own, *shared, *segment,
        name, exe, line, hits, now.ss_sp == s.ss_sp, sbrk(0), t.tv_sec > 0);
    free(malloc(5 << 20)); free(heap);
    if (argc > 1) execv(argv[1], (char *[]){"other", "argument", 0});
    STOP();
    return 0;
}
"#;

fn restored_after_exec(name: &str, old: &[&str], other: &[&str], at_exec_stop: bool) {
    let old = compile(&format!("old_{name}"), OLD, old);
    let other = compile(&format!("other_{name}"), OTHER, other);
    let mut program = Program::start(&old, &[other.to_str().unwrap()]);
    program.trap();
    let vessel = program.fork();
    let links = |pid: ProcessId| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let mut before = None;
    for round in 0..3 {
        program.resume();
        program.await_stop(|stop| matches!(stop, Stop::Exec { .. }));
        let line = program.line();
        assert_eq!(*before.get_or_insert(line.clone()), line, "round {round}");
        if !at_exec_stop {
            program.resume();
            program.trap();
            program.resume();
            program.trap();
            assert_eq!(program.line(), "other argument");
        }
        let descriptors = links(program.pid());
        program.restore(&vessel);
        assert_eq!(links(program.pid()), descriptors, "no descriptor is left behind");
    }
    assert!(before.unwrap().contains("renamed"));
    let maps = |pid: ProcessId| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        maps.lines().filter(|line| line.contains('[')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(maps(program.pid()), maps(vessel.id().process()), "heap, stack and vdso are named as they were");
    assert_eq!(gate(program.pid()), gate(vessel.id().process()));
    program.discard(vessel);
    program.resume();
    program.await_stop(|stop| matches!(stop, Stop::Exec { .. }));
}

#[test]
fn dynamic_to_dynamic() {
    restored_after_exec("dd", &[], &[], false);
    restored_after_exec("dd_early", &[], &[], true);
}

#[test]
fn dynamic_to_static() {
    restored_after_exec("ds", &[], &["-static"], false);
    restored_after_exec("ds_early", &[], &["-static"], true);
}

#[test]
fn static_to_dynamic() {
    restored_after_exec("sd", &["-static"], &[], false);
    restored_after_exec("sd_early", &["-static"], &[], true);
}

#[test]
fn fixed_to_static() {
    restored_after_exec("fs", &["-static", "-no-pie"], &["-static-pie"], false);
    restored_after_exec("ff", &["-static", "-no-pie"], &["-static", "-no-pie"], false);
}
