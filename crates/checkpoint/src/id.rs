//! Which number is a vessel's.

use procfs::{ProcessId, TaskId, ThreadId};
use std::fmt;

/// The number of a vessel: a process with one thread that never runs code of the program. Where a process and its
/// vessel stand side by side, this says which is which.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VesselId(ProcessId);

impl VesselId {
    /// A number of which it is known that a vessel has it: it is what the call that made it answered.
    pub const fn from_raw(number: i32) -> Self {
        Self(ProcessId::from_raw(number))
    }

    /// The process that it is, to those who treat it as any other: the kernel.
    pub const fn process(self) -> ProcessId {
        self.0
    }

    /// Its only thread.
    pub const fn thread(self) -> ThreadId {
        self.0.leader()
    }

    /// The number.
    pub const fn as_raw(self) -> i32 {
        self.0.as_raw()
    }
}

impl From<VesselId> for TaskId {
    fn from(vessel: VesselId) -> Self {
        vessel.0.into()
    }
}

impl fmt::Display for VesselId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for VesselId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VesselId({})", self.0)
    }
}
