//! One thread among several of its process: waiting for it, what it alone has, and its end.

#[allow(unsafe_code)]
pub(crate) mod sys;

use crate::{RemoteCalls, Result, SignalInfo, Stopped, TraceError};
use procfs::ThreadId;
use std::io;

/// Policy, priority and nice value of a thread (`struct sched_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling([u8; sys::SCHEDULING_LEN]);

/// How a thread is scheduled.
pub fn scheduling(tid: ThreadId) -> io::Result<Scheduling> {
    sys::scheduling(tid).map(Scheduling)
}

/// Change how a thread is scheduled.
pub fn set_scheduling(tid: ThreadId, scheduling: &Scheduling) -> io::Result<()> {
    sys::set_scheduling(tid, &scheduling.0)
}

/// Whether two threads have the same table of descriptors (`CLONE_FILES`) and the same directories and umask
/// (`CLONE_FS`). Threads of one process mostly do, but need not (`unshare`).
pub fn same_files(a: ThreadId, b: ThreadId) -> io::Result<bool> {
    sys::same_files(a, b)
}

/// Wait for the next thing that happens to a thread; what happens to others meanwhile is kept for the event loop. If
/// its process dies, the first thread is reported only after all others, so that one has to wait for all of them.
pub(crate) fn wait_among(tid: ThreadId) -> io::Result<Option<i32>> {
    while let Some((other, status)) = sys::wait_own()? {
        if other == tid {
            return Ok(Some(status));
        }
        crate::sys::keep_for_later(other, status);
    }
    Ok(None)
}

/// What was kept for the event loop of a thread that had this id is not to be told: another one is about to have it.
pub fn forget_former(tid: ThreadId) {
    while crate::sys::take_kept(tid).is_some() {}
}

impl Stopped {
    /// Let this thread end, and no other one. It tells nobody in memory (`CLONE_CHILD_CLEARTID`, robust futexes). Its
    /// end is kept for the event loop. Answers signals that could not wait in the kernel, which are the process's.
    pub fn end_alone(self, gate: u64) -> Result<Vec<SignalInfo>> {
        const LIST_LEN: u64 = 24;
        const NO_CALL: u64 = u64::MAX;
        let tid = self.tid();
        let mut calls = RemoteCalls::in_company(&self, gate)?;
        calls.call(libc::SYS_set_tid_address, &[0])?;
        calls.call(libc::SYS_set_robust_list, &[0, LIST_LEN])?;
        let mut collected = calls.finish()?;
        self.set_signal_mask(u64::MAX)?;
        let registers = self.registers()?;
        self.set_registers(&crate::Registers {
            rip: gate,
            rax: libc::SYS_exit as u64,
            orig_rax: NO_CALL,
            rdi: 0,
            rsp: 0,
            ..registers
        })?;
        loop {
            crate::sys::resume(tid, libc::PTRACE_CONT, 0)?;
            let kernel = |source| TraceError::Kernel { what: "wait for the end", task: tid.into(), source };
            let status = wait_among(tid).map_err(kernel)?.ok_or(TraceError::Gone(tid.into()))?;
            if !libc::WIFSTOPPED(status) {
                crate::sys::keep_for_later(tid, status);
                return Ok(collected);
            }
            // Where it stops on the way there does not matter: the filter, its last stop.
            if status >> 16 == 0 {
                collected.push(self.signal_info()?);
            }
        }
    }
}
