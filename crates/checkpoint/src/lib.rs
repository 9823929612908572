//! Checkpoints of processes, and how a process is put back in place (000, 5.1).
//!
//! A checkpoint of a process P is a *vessel*: a forked copy of P that is born held, never runs code of the program and,
//! once settled, holds no descriptor. When a speculation succeeds the vessel is discarded. When it fails P, which goes
//! on existing under its own id, is given back the memory, the registers and the other state that the vessel has kept.
//! P's identity, its children, its parent and its descriptors are not touched: nothing in the system can tell that it
//! was not P all the time.
//!
//! ```text
//! Vessel::fork(&p)            P ──clone──► V      V: stopped for good
//! vessel.settle()                                   V: no descriptors, in no group
//! … P runs ahead, dirties pages, maps, execs …
//! vessel.restore(&p)          P ◄─layout, state, differing pages── V
//! vessel.discard(Some(&p))                 V dies; P reaps it without noticing
//! ```
//!
//! **Invariant:** a vessel is never resumed but to make one of our system calls.
//!
//! **Invariant:** what cannot be put back is refused with `Unsupported`: at the checkpoint where that can be known, or
//! else before anything of P is changed.
//!
//! A process with several threads has a [`ThreadedVessel`]: one vessel, and beside it what the kernel keeps for each
//! thread. Whoever takes it stops them all first.
//!
//! Not kept here: descriptors, file offsets, pipes, files, locks, children, System V semaphore adjustments.
#![forbid(unsafe_code)]

mod answer;
mod areas;
mod give;
mod id;
mod layout;
mod pages;
mod reap;
mod state;
mod threads;
mod vessel;

pub use give::{give_memory, Given, Halted};
pub use id::VesselId;
pub use pages::Copied;
pub use reap::{Dying, ToReap};
pub use threads::ThreadedVessel;
pub use vessel::{Known, Vessel};

use procfs::TaskId;

/// Why a checkpoint could not be taken or a process not put back.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The process has something that a vessel cannot keep, or lost what it cannot be given again: nothing was changed.
    #[error("cannot be kept in a checkpoint: {0}")]
    Unsupported(&'static str),
    /// It died meanwhile, or the kernel refused to let us at it.
    #[error(transparent)]
    Trace(#[from] tracee::TraceError),
    /// The kernel refused a system call that the process made for us.
    #[error("{call} in process {task}: {source}")]
    Refused {
        /// The call.
        call: &'static str,
        /// In whom.
        task: TaskId,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// Something about it could not be read or written.
    #[error("{what} of process {task}: {source}")]
    Access {
        /// What.
        what: &'static str,
        /// Of whom.
        task: TaskId,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// Its memory is laid out differently from the vessel's, though every call that should have changed that succeeded.
    #[error("the memory of process {task} could not be laid out as it was: {difference}")]
    Layout {
        /// Whose.
        task: TaskId,
        /// The first difference.
        difference: String,
    },
}

impl CheckpointError {
    fn access(what: &'static str, task: impl Into<TaskId>) -> impl FnOnce(std::io::Error) -> Self {
        let task = task.into();
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Trace(tracee::TraceError::Gone(task)),
            _ => Self::Access { what, task, source },
        }
    }

    /// The process died: there is nothing left to put back.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Trace(tracee::TraceError::Gone(_)))
    }
}

impl From<procfs::Error> for CheckpointError {
    fn from(error: procfs::Error) -> Self {
        Self::Trace(error.into())
    }
}

/// What operations on checkpoints answer.
pub type Result<T> = std::result::Result<T, CheckpointError>;
