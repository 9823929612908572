//! Calls that concern nobody but the process that makes them, and that a checkpoint of the process undoes.

use crate::{look_up, Op, Shows, Whom};

/// Whether a call with this number and these arguments touches only what a checkpoint of its process holds: memory,
/// handlers, masks, time (000, 5.1). Whoever is speculative may make it without a word. Identity (`setuid`,
/// `setsid`) is not among them, nor are limits, which cannot always be raised again: a checkpoint does not take
/// them back.
#[inline]
pub const fn concerns_only_its_process(nr: u64, args: &[u64; 6]) -> bool {
    const MMAP: u64 = 9;
    const MAP_SHARED_OR_FIXED_TYPE: u64 = 0x03;
    const MAP_PRIVATE: u64 = 2;
    const MAP_ANONYMOUS: u64 = 0x20;
    if let Some((Op::Look, shows)) = look_up(nr) {
        // A parent that ended on a guess is still there, and a guess's share in a total is nothing among those of
        // the checkpoints.
        return matches!(shows, Shows::Parent | Shows::Totals) || matches!(shows.whom(args), Whom::Caller);
    }
    let flags = args[3];
    if nr == MMAP {
        return flags & MAP_ANONYMOUS != 0 && flags & MAP_SHARED_OR_FIXED_TYPE == MAP_PRIVATE;
    }
    matches!(
        nr,
        // mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, sched_yield, mremap, madvise, pause
        10..=15 | 24 | 25 | 28 | 34
        // nanosleep, getitimer, alarm, setitimer, getpid, uname, umask, gettimeofday, getrlimit, getrusage, times
        | 35..=39 | 63 | 95..=98 | 100
        // getuid, getgid, geteuid, getegid, getpgrp, getgroups, getresuid, getresgid
        | 102 | 104 | 107 | 108 | 111 | 115 | 118 | 120
        // rt_sigpending, rt_sigsuspend, sigaltstack, gettid, time, futex
        | 127 | 130 | 131 | 186 | 201 | 202
        // set_tid_address, set_robust_list, getcpu, getrandom, membarrier, rseq
        | 218 | 273 | 309 | 318 | 324 | 334
    )
}
