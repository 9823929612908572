//! What the world wants done. Carry the actions out in the order in which they come, before the system call that caused
//! them goes on.

use crate::{Checkpoint, Process, SpeculationId};

/// One thing to do.
///
/// A failure comes as one sequence without anything else in between, so that it is atomic (000, 6.1): every `Stop`,
/// then what is dropped and put back, then every process that starts again, then `RollbackComplete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<K, P, O> {
    /// Remember the process as it was at the entry of its system call (000, 5.1).
    TakeCheckpoint {
        /// Whose state to keep.
        process: Process,
        /// How it will be called.
        checkpoint: Checkpoint,
    },
    /// The checkpoint will not be needed.
    DiscardCheckpoint {
        /// Whose state it holds.
        process: Process,
        /// Which one.
        checkpoint: Checkpoint,
    },
    /// A rollback begins that concerns this process: it must do nothing any more that can be seen.
    Stop {
        /// Who.
        process: Process,
    },
    /// The guess turned out wrong, or was never made because its process rolled back to a time before.
    Failed {
        /// Which guess.
        speculation: SpeculationId,
    },
    /// Undo operations. Over all objects the youngest operation is undone first, so that one object may come more than
    /// once in a rollback.
    RollBack {
        /// What to put back.
        object: K,
        /// What undoes its operations, youngest first.
        payloads: Vec<P>,
    },
    /// These operations will never be undone: let go of what was kept for that.
    RollForward {
        /// Which object.
        object: K,
        /// What would have undone its operations, oldest first.
        payloads: Vec<P>,
    },
    /// Start the process again from the checkpoint, which is thereby used up. Also revives a process that has exited.
    RestoreProcess {
        /// Who.
        process: Process,
        /// From where.
        checkpoint: Checkpoint,
    },
    /// The process was forked by an execution that never happened (000, 6.8).
    DestroyProcess {
        /// Who.
        process: Process,
    },
    /// All of a rollback is done; the restored processes may run.
    RollbackComplete,
    /// Show it: all that it depends on is committed.
    ReleaseOutput {
        /// Who wrote it.
        process: Process,
        /// What.
        output: O,
    },
    /// Never show it.
    DropOutput {
        /// Who wrote it.
        process: Process,
        /// What.
        output: O,
    },
    /// The process depends on nothing any more: end its barriers.
    ProcessResolved {
        /// Who.
        process: Process,
    },
    /// The object depends on nothing any more: deliver it if it is a signal (000, 6.7).
    ObjectResolved {
        /// Which.
        object: K,
    },
    /// The process has exited and depends on nothing any more: its pid may be used again (000, 6.9).
    ReleasePid {
        /// Who.
        process: Process,
    },
}
