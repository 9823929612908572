//! Calls that concern nobody but the process that makes them, and that a checkpoint of the process undoes.

/// Whether a call with this number, and `flags` as its fourth argument, touches only what a checkpoint of its process holds: memory, handlers,
/// masks, time (000, 5.1). Whoever is speculative may make it without a word. Identity (`setuid`, `setsid`) is not among them,
/// nor are limits, which cannot always be raised again: a checkpoint does not take them back.
#[inline]
pub const fn concerns_only_its_process(nr: u64, flags: u64) -> bool {
    const MMAP: u64 = 9;
    const MAP_SHARED_OR_FIXED_TYPE: u64 = 0x03;
    const MAP_PRIVATE: u64 = 2;
    const MAP_ANONYMOUS: u64 = 0x20;
    if nr == MMAP {
        return flags & MAP_ANONYMOUS != 0 && flags & MAP_SHARED_OR_FIXED_TYPE == MAP_PRIVATE;
    }
    matches!(
        nr,
        // mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, sched_yield, mremap, mincore, madvise, pause
        10..=15 | 24 | 25 | 27 | 28 | 34
        // nanosleep, getitimer, alarm, setitimer, getpid, uname, umask, gettimeofday, getrlimit, getrusage, sysinfo, times
        | 35..=39 | 63 | 95..=100
        // getuid, getgid, geteuid, getegid, getppid, getpgrp, getgroups, getresuid, getresgid, getpgid, getsid
        | 102 | 104 | 107 | 108 | 110 | 111 | 115 | 118 | 120 | 121 | 124
        // rt_sigpending, rt_sigsuspend, sigaltstack, getpriority, gettid, time, futex, sched_getaffinity
        | 127 | 130 | 131 | 140 | 186 | 201 | 202 | 204
        // set_tid_address, clock_gettime, clock_getres, clock_nanosleep, set_robust_list, getcpu, getrandom, membarrier, rseq
        | 218 | 228..=230 | 273 | 309 | 318 | 324 | 334
    )
}
