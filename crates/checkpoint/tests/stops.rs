//! Checkpoints at every kind of stop, and what the process and others can see of them.

mod common;
use checkpoint::{CheckpointError, Known, ToReap, Vessel};
use common::{compile, Program};
use procfs::{ProcessId, ThreadId};
use std::time::Duration;
use tracee::{RemoteCalls, Stop, Stopped};

#[test]
fn interrupted_in_a_sleep_it_sleeps_again() {
    let path = compile(
        "sleep",
        r#"
        static int runs; int main(void) { begin(); struct timespec t = {0, 600000000}; int r = nanosleep(&t, 0); runs++; SAY("%d %d %d", r, r ? errno : 0, runs); STOP(); return 0; }
        "#,
        &[],
    );
    let mut program = Program::start(&path, &[]);
    program.await_call(&[libc::SYS_nanosleep, libc::SYS_clock_nanosleep]);
    program.stopped = Some(Stopped::interrupt(program.pid().leader()).unwrap());
    assert_eq!(program.stopped().stop(), Stop::Trap);
    let vessel = program.fork();
    for _ in 0..3 {
        program.resume();
        program.trap();
        assert_eq!(program.line(), "0 0 1");
        program.restore(&vessel);
    }
    let start = std::time::Instant::now();
    program.resume();
    program.trap();
    assert!(start.elapsed() > Duration::from_millis(150), "it does sleep");
    program.discard(vessel);
    assert_eq!(program.end(), Some(0));
}

#[test]
fn interrupted_in_a_read_it_reads_again() {
    let path = compile(
        "read",
        r#"
        static int runs; int main(void) { begin(); int f[2]; pipe(f); char c = 0; if (fork() == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); close(1); sleep(2); for (;;) { usleep(10000); if (write(f[1], "abcdefgh", 1) < 0) _exit(0); } }
            int r = read(f[0], &c, 1); runs++; SAY("%d %c %d", r, c, runs); STOP(); return 0; }
        "#,
        &[],
    );
    let mut program = Program::start(&path, &[]);
    program.await_call(&[libc::SYS_read]);
    program.stopped = Some(Stopped::interrupt(program.pid().leader()).unwrap());
    let vessel = program.fork();
    for _ in 0..3 {
        program.resume();
        program.trap();
        assert_eq!(program.line(), "1 a 1");
        program.restore(&vessel);
    }
    program.resume();
    program.trap();
    program.discard(vessel);
}

/// The kernel reports the stop first, and then the fault instead of the end of our step, though it is blocked.
#[test]
fn a_fault_at_the_moment_of_a_stop_is_no_answer_and_comes_again() {
    const STOPS: usize = 3000;
    let path = compile(
        "faults",
        r#"
        static volatile long faults, rounds, ends; static void on(int s, siginfo_t *i, void *c) { faults++; ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP] += 2; }
        static void end(int s) { ends = 1; }
        int main(void) { struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_NODEFER}; sigaction(SIGSEGV, &a, 0); signal(SIGTERM, end); begin();
            while (!ends) { rounds++; __asm__ volatile("xor %%eax, %%eax; .byte 0x89, 0x00" ::: "eax", "memory"); }
            SAY("%d", faults == rounds); return 0; }
        "#,
        &[],
    );
    let mut program = Program::start(&path, &[]);
    let pid = program.pid();
    for round in 0..STOPS {
        // It is to be met at every moment of what it does.
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_nanos(round as u64 * 7919 % 60_000) {}
        let stopped = Stopped::interrupt(pid.leader()).unwrap();
        if stopped.stop() != Stop::Trap {
            // A fault that was reported by itself.
            let signal = stopped.signal();
            stopped.resume(signal).unwrap();
            continue;
        }
        let mut calls = RemoteCalls::new(&stopped, program.gate()).unwrap();
        assert_eq!(calls.call(libc::SYS_getpid, &[]).unwrap(), i64::from(pid.as_raw()));
        assert_eq!(calls.finish().unwrap().len(), 0);
        stopped.resume(0).unwrap();
    }
    assert!(std::process::Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    program.await_stop(|stop| stop == Stop::Signal(libc::SIGTERM));
    program.resume_with(libc::SIGTERM);
    assert_eq!(program.line(), "1");
}

/// Registers are read once for a stop: those of a call that was made for us are not taken for the program's.
#[test]
fn after_a_call_the_registers_are_the_programs_again() {
    let path = compile("pauses", "int main(void) { begin(); for (;;) pause(); }", &[]);
    let program = Program::start(&path, &[]);
    program.await_call(&[libc::SYS_pause]);
    let stopped = Stopped::interrupt(program.pid().leader()).unwrap();
    let before = stopped.registers().unwrap();
    let mut calls = RemoteCalls::new(&stopped, program.gate()).unwrap();
    calls.call(libc::SYS_getpid, &[]).unwrap();
    assert_ne!(stopped.registers().unwrap().rip, before.rip);
    calls.finish().unwrap();
    let mut after = stopped.registers().unwrap();
    assert_eq!((after.rip, after.rsp), (before.rip, before.rsp));
    after.r12 = 0x5eed;
    stopped.set_registers(&after).unwrap();
    assert_eq!(stopped.registers().unwrap().r12, 0x5eed);
    stopped.resume(0).unwrap();
}

/// Job control goes on while a stopped process makes calls for us: it is continued, and stopped once more, after
/// the last of them.
#[test]
fn a_stop_signal_that_comes_after_the_last_call_is_told() {
    let path = compile("stopped", "int main(void) { begin(); for (;;) pause(); }", &[]);
    for continues in [false, true] {
        let mut program = Program::start(&path, &[]);
        let pid = program.pid();
        program.await_call(&[libc::SYS_pause]);
        send(pid, "STOP");
        program.await_stop(|stop| stop == Stop::Group(libc::SIGSTOP));
        let mut calls = RemoteCalls::new(program.stopped(), program.gate()).unwrap();
        assert_eq!(calls.call(libc::SYS_getpid, &[]).unwrap(), i64::from(pid.as_raw()));
        if continues {
            send(pid, "CONT");
        }
        send(pid, "STOP");
        assert_eq!(calls.finish().unwrap().len(), 0);
        program.stopped.take().unwrap().listen().unwrap();
        if continues {
            program.await_stop(|stop| stop == Stop::Group(libc::SIGSTOP));
            program.stopped.take().unwrap().listen().unwrap();
        }
        assert_eq!(state(pid), 't');
        send(pid, "CONT");
        program.await_stop(|stop| stop == Stop::Trap);
    }
}

/// In one letter (proc(5)).
fn state(pid: ProcessId) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().chars().next().unwrap()
}

fn send(pid: ProcessId, signal: &str) {
    let kill = std::process::Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    assert!(kill.unwrap().success());
}

/// A filter stops `getppid`, which it calls once.
const FILTERED: &str = r#"
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        static int runs;
        int main(void) { begin();
            struct sock_filter f[] = {{0x20, 0, 0, 0}, {0x15, 0, 1, SYS_getppid}, {6, 0, 0, SECCOMP_RET_TRACE}, {0x15, 0, 1, SYS_clone}, {6, 0, 0, SECCOMP_RET_TRACE},
                {0x15, 0, 1, SYS_getitimer}, {6, 0, 0, SECCOMP_RET_TRACE}, {6, 0, 0, SECCOMP_RET_ALLOW}};
            struct sock_fprog p = {8, f}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
            int r = syscall(SYS_getppid); runs++; SAY("%d %d", r > 0, runs); STOP(); return 0; }
"#;

/// Whose process was killed the moment it was made, at the entry of a call or elsewhere.
#[test]
fn a_vessel_that_nobody_knows_of_is_recognized() {
    const VESSEL: u64 = (libc::CLONE_PTRACE | libc::CLONE_FILES) as u64;
    let mut program = Program::start(&compile("stray", FILTERED, &[]), &[]);
    program.await_stop(|stop| stop == Stop::SystemCall);
    assert!(!Vessel::is_stray(&program.stopped().registers().unwrap()));
    let mut calls = RemoteCalls::new(program.stopped(), program.gate()).unwrap();
    for place in ["instead of the call", "at the gate"] {
        let vessel = calls.call(libc::SYS_clone, &[VESSEL]).unwrap() as i32;
        let vessel = Stopped::await_thread(ThreadId::from_raw(vessel)).unwrap();
        assert!(Vessel::is_stray(&vessel.registers().unwrap()), "{place}");
        vessel.kill().unwrap();
    }
    calls.finish().unwrap();
    program.stopped().repeat_call().unwrap();
    program.resume();
    program.trap();
    assert_eq!(program.line(), "1 1");
}

/// A checkpoint was refused with "clone in process N: Unknown error 513". Where a signal waits that cannot be blocked,
/// the kernel makes no child. Other calls that a stopped thread makes for us are interrupted so where they would wait.
#[test]
fn a_clone_that_is_interrupted_is_made_again() {
    let mut program = Program::start(&compile("interrupted", FILTERED, &[]), &[]);
    program.await_stop(|stop| stop == Stop::SystemCall);
    send(program.pid(), "STOP");
    // The clone is the first call that it makes.
    let known = Known { no_timers: true, ..Known::default() };
    let vessel = Vessel::fork_known(program.stopped(), program.gate(), known, &mut Vec::new()).unwrap();
    program.stopped().repeat_call().unwrap();
    program.resume();
    program.await_stop(|stop| stop == Stop::Signal(libc::SIGSTOP));
    program.resume();
    program.trap();
    assert_eq!(program.line(), "1 1");
    program.discard(vessel);
}

#[test]
fn a_filtered_call_is_not_made_and_can_be_repeated() {
    let path = compile("filtered", FILTERED, &[]);
    let mut program = Program::start(&path, &[]);
    program.await_stop(|stop| stop == Stop::SystemCall);
    let registers = program.stopped().registers().unwrap();
    let vessel = program.fork();
    let after = program.stopped().registers().unwrap();
    assert_eq!((after.rip, after.orig_rax, after.rax), (registers.rip, registers.orig_rax, registers.rax));
    for _ in 0..3 {
        program.stopped().repeat_call().unwrap();
        program.resume();
        program.await_stop(|stop| stop == Stop::SystemCall);
        program.resume();
        program.trap();
        assert_eq!(program.line(), "1 1");
        program.restore(&vessel);
    }
    program.discard(vessel);
}

#[test]
fn a_signal_that_is_being_delivered_is_not_lost() {
    let path = compile(
        "delivered",
        r#"
        static volatile int value, runs; static void on(int s, siginfo_t *i, void *c) { value = i->si_value.sival_int; }
        int main(void) { struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO}; sigaction(SIGUSR1, &a, 0); begin();
            sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42}); runs++; SAY("%d %d", value, runs); STOP(); return 0; }
        "#,
        &[],
    );
    let mut program = Program::start(&path, &[]);
    program.await_stop(|stop| stop == Stop::Signal(libc::SIGUSR1));
    let vessel = program.fork();
    program.resume_with(libc::SIGUSR1);
    program.trap();
    assert_eq!(program.line(), "42 1");
    program.restore(&vessel);
    let signal = vessel.signal().unwrap();
    program.stopped.take().unwrap().resume_with(&signal).unwrap();
    program.trap();
    assert_eq!(program.line(), "42 1");
    program.discard(vessel);
    assert_eq!(program.end(), Some(0));
}

#[test]
fn nobody_waits_for_a_vessel() {
    let path = compile(
        "waits",
        r#"
        int main(void) { begin(); int f[2]; pipe(f); STOP(); char c; close(f[1]);
            SAY("%d %d", read(f[0], &c, 1), waitpid(-1, 0, WNOHANG) == -1 ? errno : 0); STOP();
            SAY("%d", waitpid(-1, 0, 0) == -1 ? errno : 0); STOP();
            pid_t p = fork(); if (!p) _exit(7); int s; pid_t q = wait(&s); SAY("%d %d", p == q, WEXITSTATUS(s)); STOP();
            SAY("%d", waitpid(-1, 0, __WALL) == -1 ? errno : 0); STOP(); return 0; }
        "#,
        &[],
    );
    let mut program = Program::start(&path, &[]);
    program.trap();
    let first = program.fork();
    program.resume();
    program.trap();
    assert_eq!(program.line(), format!("0 {}", libc::ECHILD), "the end of the stream comes: the vessel holds no end");
    let second = program.fork();
    let dead = first.discard(None).unwrap().unwrap();
    program.resume();
    program.trap();
    assert_eq!(program.line(), libc::ECHILD.to_string(), "nor is a dead one waited for");
    program.resume();
    program.trap();
    assert_eq!(program.line(), "1 7");
    let dead = [dead, second.discard(None).unwrap().unwrap()];
    ToReap::all(dead, program.stopped(), program.gate(), false).unwrap();
    program.resume();
    program.trap();
    assert_eq!(program.line(), libc::ECHILD.to_string(), "nothing is left");
    assert_eq!(program.end(), Some(0));
}

#[test]
fn a_vessel_has_no_descriptors() {
    let path = compile("plain", "int main(void) { begin(); STOP(); return 0; }", &[]);
    let mut program = Program::start(&path, &[]);
    program.trap();
    let descriptors = |pid: ProcessId| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = descriptors(program.pid());
    let vessel = program.fork();
    assert_eq!((descriptors(vessel.id().process()), descriptors(program.pid())), (0, before));
    program.discard(vessel);
}

/// The process has the only end that can be written to, and closes it: whoever reads sees the end, though nothing was
/// done about the copy.
#[test]
fn a_vessel_that_is_not_settled_holds_nothing_open() {
    let path = compile(
        "young",
        r#"
        int main(void) { begin(); int f[2]; pipe(f); STOP(); close(f[1]); char c; int r = read(f[0], &c, 1); SAY("%d", r); STOP(); return 0; }
        "#,
        &[],
    );
    let mut program = Program::start(&path, &[]);
    program.trap();
    let vessel = Vessel::fork_known(program.stopped(), program.gate(), Known::default(), &mut vec![]).unwrap();
    for _ in 0..2 {
        program.resume();
        program.trap();
        assert_eq!(program.line(), "0");
        program.restore(&vessel);
    }
    let group = |pid: ProcessId| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().to_owned()
    };
    assert_eq!(group(vessel.id().process()), group(program.pid()));
    vessel.settle().unwrap();
    assert_ne!(group(vessel.id().process()), group(program.pid()));
    assert_eq!(std::fs::read_dir(format!("/proc/{}/fd", vessel.id().process())).unwrap().count(), 0);
    program.discard(vessel);
    program.resume();
    program.trap();
    assert_eq!(program.line(), "0");
    assert_eq!(program.end(), Some(0));
}

#[test]
fn a_vessel_can_be_given_up_before_it_has_stopped() {
    let path = compile("plain", "int main(void) { begin(); STOP(); return 0; }", &[]);
    let mut program = Program::start(&path, &[]);
    program.trap();
    let mut dying: Option<checkpoint::Dying> = None;
    for _ in 0..100 {
        let mut dead: Vec<_> = dying.take().map(checkpoint::Dying::await_end).into_iter().collect();
        let vessel = Vessel::fork_known(program.stopped(), program.gate(), Known::default(), &mut dead).unwrap();
        assert!(dead.is_empty());
        dying = Some(vessel.give_up().unwrap());
    }
    let dead = dying.map(checkpoint::Dying::await_end);
    assert!(dead.as_ref().is_some_and(ToReap::can_wait), "nobody could notice it");
    ToReap::all(dead, program.stopped(), program.gate(), false).unwrap();
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).unwrap();
    assert_eq!(children, "", "nothing is left");
    assert_eq!(program.end(), Some(0));
}

/// A checkpoint that is refused reaps nobody, and whoever asked for it still has those that it would have reaped.
#[test]
fn dead_vessels_outlive_a_refusal() {
    let path = compile(
        "timer",
        r#"
        #include <time.h>
        int main(void) { begin(); STOP(); timer_t t; timer_create(CLOCK_MONOTONIC, 0, &t); STOP(); return 0; }
        "#,
        &[],
    );
    let mut program = Program::start(&path, &[]);
    program.trap();
    let vessel = Vessel::fork(program.stopped(), program.gate()).unwrap();
    let mut dead = vec![vessel.give_up().unwrap().await_end()];
    assert!(!dead[0].can_wait(), "it was settled: its process may have executed a program");
    program.resume();
    program.trap();
    let refused = Vessel::fork_known(program.stopped(), program.gate(), Known::default(), &mut dead);
    assert!(matches!(refused, Err(checkpoint::CheckpointError::Unsupported("POSIX timers"))), "{refused:?}");
    assert_eq!(dead.len(), 1);
    ToReap::all(dead, program.stopped(), program.gate(), false).unwrap();
    assert_eq!(program.end(), Some(0));
}

/// Where it may run is part of what is kept, also if it was confined for a moment when the checkpoint was taken.
#[test]
fn a_process_may_run_where_it_might() {
    let path = compile("plain", "int main(void) { begin(); STOP(); return 0; }", &[]);
    let mut program = Program::start(&path, &[]);
    program.trap();
    let affinity = || tracee::process_state::affinity(program.pid().leader()).unwrap();
    let before = affinity();
    tracee::process_state::bring_near(program.pid().leader());
    let known = Known { affinity_of: Some((program.pid().leader(), before.clone())), ..Known::default() };
    let vessel = Vessel::fork_known(program.stopped(), program.gate(), known, &mut vec![]).unwrap();
    program.restore(&vessel);
    assert_eq!(affinity(), before);
    program.discard(vessel);
    assert_eq!(program.end(), Some(0));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let check = |name: &str, source: &str, reason: &str| {
        let path = compile(name, &format!("{source}\nint main(void) {{ begin(); setup(); STOP(); SAY(\"%d\", waitpid(-1, 0, __WALL)); return 0; }}"), &["-pthread"]);
        let mut program = Program::start(&path, &[]);
        program.trap();
        match Vessel::fork(program.stopped(), program.gate()) {
            Err(CheckpointError::Unsupported(why)) => assert!(why.contains(reason), "{why}"),
            other => panic!("{name}: {other:?}"),
        }
        program.resume();
        assert_eq!(program.line(), "-1", "{name}: nothing is left, and it goes on");
    };
    check("timer", "static void setup(void) { timer_t t; timer_create(CLOCK_MONOTONIC, 0, &t); }", "POSIX timers");
    check("dontfork", "static void setup(void) { madvise(mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, MADV_DONTFORK); }", "DONTFORK");
    let wiped = "static void setup(void) { \
                 madvise(mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, MADV_WIPEONFORK); }";
    check("wipeonfork", wiped, "WIPEONFORK");
    check("threads", "#include <pthread.h>\nstatic void *run(void *x) { for (;;) pause(); } static void setup(void) { pthread_t t; pthread_create(&t, 0, run, 0); }", "thread");
}

#[test]
fn a_death_is_reported() {
    let path = compile("dies", "int main(void) { begin(); STOP(); for (;;) pause(); }", &[]);
    let mut program = Program::start(&path, &[]);
    program.trap();
    let gate = program.gate();
    let vessel = program.fork();
    kill(program.pid());
    assert!(vessel.restore(program.stopped(), gate).unwrap_err().is_gone());
    assert!(Vessel::fork_known(program.stopped(), gate, Known::default(), &mut vec![]).unwrap_err().is_gone());
    let _ = vessel.discard(None).unwrap();
    // And the other way round: the vessel dies, and the process is as it was.
    let mut program = Program::start(&path, &[]);
    program.trap();
    let vessel = program.fork();
    kill(vessel.id().process());
    let registers = program.stopped().registers().unwrap();
    assert!(vessel.restore(program.stopped(), program.gate()).unwrap_err().is_gone());
    assert_eq!(program.stopped().registers().unwrap().rip, registers.rip);
    program.discard(vessel);
}

/// Of whom it was asked that they stop once more before they end. Whoever is to hear of that stop lets it go on.
#[test]
fn who_is_killed_in_a_call_of_ours_stops_on_the_way_out() {
    let path = compile("killed_in_a_call", "int main(void) { begin(); STOP(); for (;;) pause(); }", &[]);
    let mut program = Program::start(&path, &[]);
    program.trap();
    let (pid, gate) = (program.pid(), program.gate());
    program.stopped().trace_exit().unwrap();
    let mut calls = tracee::RemoteCalls::new(program.stopped(), gate).unwrap();
    let killed = calls.call(libc::SYS_kill, &[pid.as_raw() as u64, libc::SIGKILL as u64]);
    assert!(matches!(killed, Err(tracee::TraceError::Gone(_))), "{killed:?}");
    drop(calls);
    let stopped = tracee::await_stop(pid.leader()).unwrap().expect("it is on its way");
    assert_eq!(stopped.stop(), Stop::Exit);
    stopped.resume(0).unwrap();
    assert_eq!(tracee::await_end(pid.leader()).unwrap(), libc::SIGKILL);
}

fn kill(pid: ProcessId) {
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(50));
}
