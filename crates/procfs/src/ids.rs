//! Whom a number of the kernel's names. All of them are numbers of one space, and the first thread of a process has the
//! number of its process: a program with one thread cannot tell which one was meant, one with several can.
//!
//! A number becomes one of these types where the kernel or `/proc` gives it, and a number again where the kernel is
//! called. What a program inside says or is told is a plain number: it may count in a namespace of its own.

use crate::{Result, Status};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(i32);

        impl $name {
            /// The number, for the kernel, for what is shared with the agent, and for what is shown.
            pub const fn as_raw(self) -> i32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number! {
    /// A process: what has descriptors, memory, children, a parent. The kernel says TGID.
    ProcessId
}

number! {
    /// A thread: what runs, stops, makes calls and has registers. The kernel says TID, or PID.
    ThreadId
}

number! {
    /// A process or a thread, where either of them will do: all threads of a process share its memory, its descriptors
    /// and most of what `/proc` says. Nothing leads back from here to what it was.
    TaskId
}

impl TaskId {
    /// Nobody in particular.
    pub const NONE: Self = Self(0);
}

impl ProcessId {
    /// A number of which the kernel says that it is a process's.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// The calling process.
    pub fn own() -> Self {
        Self(std::process::id() as i32)
    }

    /// Its first thread, which has its number. It may have ended before the others.
    pub const fn leader(self) -> ThreadId {
        ThreadId(self.0)
    }
}

impl ThreadId {
    /// A number of which the kernel says that it is a thread's.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// The process that it is the first thread of: for whoever knows that it is one, as the only thread of a process
    /// that was just born is.
    pub const fn leads(self) -> ProcessId {
        ProcessId(self.0)
    }

    /// Whether it is the first thread of this process.
    pub fn is_leader_of(self, process: ProcessId) -> bool {
        self.0 == process.0
    }
}

/// The process that a thread is of; `/proc` is asked.
///
/// # Errors
/// See [`Error`](crate::Error).
pub fn process_of(thread: ThreadId) -> Result<ProcessId> {
    Status::of(thread)?.process()
}

impl From<ProcessId> for TaskId {
    fn from(process: ProcessId) -> Self {
        Self(process.0)
    }
}

impl From<ThreadId> for TaskId {
    fn from(thread: ThreadId) -> Self {
        Self(thread.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_of_its_process_and_does_not_lead_it() {
        std::thread::spawn(|| {
            let thread = ThreadId::from_raw(rustix::thread::gettid().as_raw_nonzero().get());
            assert!(!thread.is_leader_of(ProcessId::own()));
            assert_eq!(process_of(thread).unwrap(), ProcessId::own());
        })
        .join()
        .unwrap();
        assert_eq!(process_of(ProcessId::own().leader()).unwrap(), ProcessId::own());
        assert_eq!(ProcessId::own().leader().leads(), ProcessId::own());
    }
}
