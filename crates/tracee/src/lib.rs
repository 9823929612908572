//! Holding other processes: stops as types, their memory, the filter that makes them stop, and how the agent gets into
//! them.
//!
//! **Invariant:** a `Stopped` is the only way to read or change a thread's registers, and resuming it gives it up. A
//! thread can be killed at any moment, stopped or not; every operation can therefore answer `Gone`.
#![deny(unsafe_code)]

mod agent_image;
mod filter;
mod inject;
mod memory;
pub mod process_state;
mod remote;
mod segment;
mod stop;
#[allow(unsafe_code)]
mod sys;
pub mod thread_state;

pub use agent_image::AgentImage;
pub use filter::Filter;
pub use inject::{call_before_start, Injection};
pub use memory::{
    read_bytes, read_ranges, read_value, write_bytes, write_own_bytes, write_ranges, RemoteMemory, RANGES_MAX,
};
pub use remote::{ignores_traps, mind_ignored_traps, RemoteCalls, RESTARTS};
pub use segment::{remove_segments_of, Segment, WorldSegment};
pub use stop::{
    await_end, await_stop, block_child_signal, halt, halt_all, interrupt, kill, look_for_end, seize, wait,
    wait_before_end, wait_until, Event, Stop, Stopped, Waker,
};
pub use sys::{enter_world, fork_with, Forked, Registers, SignalInfo};

use procfs::TaskId;

/// Why something could not be done to a thread.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// the thread died meanwhile
    #[error("thread {0} died meanwhile")]
    Gone(TaskId),
    /// the kernel refused
    #[error("{what} of thread {task}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// On whom.
        task: TaskId,
        /// The kernel's word.
        source: std::io::Error,
    },
}

impl TraceError {
    fn last(what: &'static str, task: impl Into<TaskId>) -> Self {
        Self::kernel(what, task, std::io::Error::last_os_error())
    }

    /// `what` could not be done to a thread. That there is no such thread (ESRCH) says that it died.
    pub fn kernel(what: &'static str, task: impl Into<TaskId>, source: std::io::Error) -> Self {
        let task = task.into();
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone(task),
            _ => Self::Kernel { what, task, source },
        }
    }
}

impl From<procfs::Error> for TraceError {
    fn from(error: procfs::Error) -> Self {
        let task = error.task();
        match error {
            procfs::Error::Gone(_) => Self::Gone(task),
            unknown => Self::Kernel { what: "read /proc", task, source: std::io::Error::other(unknown) },
        }
    }
}

/// What operations on threads answer.
pub type Result<T> = std::result::Result<T, TraceError>;
