//! State of a held process that can be seen or changed from outside, beside registers and memory: what a checkpoint has
//! to keep.

use crate::{sys, thread_state};
use crate::{Result, SignalInfo, Stopped};
use procfs::{ProcessId, TaskId, ThreadId};
use std::fs::File;
use std::io;
use std::ops::Range;

pub use crate::sys::RseqConfiguration;

/// Soft and hard limit of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What counts now.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

impl Stopped {
    /// Floating-point and vector registers, in the processor's own format (`XSAVE`).
    pub fn extended_state(&self) -> Result<Vec<u8>> {
        sys::extended_state(self.tid())
    }

    /// Change floating-point and vector registers.
    pub fn set_extended_state(&self, state: &[u8]) -> Result<()> {
        sys::set_extended_state(self.tid(), state)
    }

    /// Which signals it blocks: bit `n - 1` for signal `n`.
    pub fn signal_mask(&self) -> Result<u64> {
        sys::signal_mask(self.tid())
    }

    /// Change which signals it blocks.
    pub fn set_signal_mask(&self, mask: u64) -> Result<()> {
        sys::set_signal_mask(self.tid(), mask)
    }

    /// Where its restartable sequences are registered; a null pointer if nowhere.
    pub fn rseq_configuration(&self) -> Result<RseqConfiguration> {
        sys::rseq_configuration(self.tid())
    }

    /// Signals that wait to be delivered, to the thread itself or (`shared`) to its process.
    pub fn pending_signals(&self, shared: bool) -> Result<Vec<SignalInfo>> {
        sys::pending_signals(self.tid(), shared)
    }

    /// Head and length of its list of robust futexes.
    pub fn robust_list(&self) -> io::Result<(u64, u64)> {
        sys::robust_list(self.tid())
    }
}

/// A process's limit of a resource (`RLIMIT_…`).
pub fn limit(pid: ProcessId, resource: u32) -> io::Result<Limit> {
    sys::limit(pid, resource, None)
}

/// Change a process's limit of a resource.
pub fn set_limit(pid: ProcessId, resource: u32, limit: Limit) -> io::Result<()> {
    sys::limit(pid, resource, Some(limit)).map(drop)
}

/// A process's nice value.
pub fn niceness(tid: ThreadId) -> io::Result<i32> {
    sys::niceness(tid)
}

/// Change a process's nice value.
pub fn set_niceness(tid: ThreadId, nice: i32) -> io::Result<()> {
    sys::set_niceness(tid, nice)
}

/// The processors on which a thread may run, as the kernel's bit mask.
pub fn affinity(tid: ThreadId) -> io::Result<Vec<u64>> {
    sys::affinity(tid)
}

/// Change the processors on which a thread may run.
pub fn set_affinity(tid: ThreadId, mask: &[u64]) -> io::Result<()> {
    sys::set_affinity(tid, mask)
}

/// Let this thread, a tracer, run as soon as it has something to do: every process inside waits for it. Without the
/// privilege it stays as it is: false.
pub fn run_first() -> bool {
    sys::run_first()
}

/// Let a stopped thread run on the core that we are on, and on no other: what it is made to do from here is done
/// soonest there, and waking somebody on another core costs more than most calls. Where that is refused, it stays where
/// it is.
pub fn bring_near(tid: ThreadId) {
    sys::bring_near(tid);
}

/// Whether two processes are the same address space (`vfork`, `CLONE_VM`).
pub fn same_memory(a: impl Into<TaskId>, b: impl Into<TaskId>) -> io::Result<bool> {
    thread_state::sys::same_memory(a.into(), b.into())
}

/// Ranges of a process's address space that have pages of their own: anonymous, or private copies of a file's, in
/// memory or swapped out. `pagemap` is the process's `/proc/PID/pagemap`. `Unsupported` before Linux 6.7.
pub fn own_pages(pagemap: &File) -> io::Result<Vec<Range<u64>>> {
    sys::own_pages(pagemap)
}
