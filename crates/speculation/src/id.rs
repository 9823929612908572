//! Names of things. A speculation is named by the process that made it and a counter of that process, so that the
//! speculations of one process have consecutive names and sets of them pack into runs (000, end of 7.1).

use std::fmt;

/// A process inside the world, all its threads together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u32);

/// The tuple ⟨pid, spec.id⟩ of 000, 7.1. The counter starts at 1 and never returns to an old value, even after a
/// rollback.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpeculationId {
    /// Who created it.
    pub process: Process,
    /// How many that process had created, this one included.
    pub counter: u64,
}

/// Name of a checkpoint that [`crate::Action::TakeCheckpoint`] asked for (000, 5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Checkpoint(pub u64);

impl fmt::Display for SpeculationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "⟨{}, {}⟩", self.process.0, self.counter)
    }
}
