//! What a row of the table says.
//!
//! All dependencies flow through the process that acts: first it takes those of what it observes, then it gives its own to
//! what it modifies (000, 6.1). So two lists say everything.

use crate::{ObjectKind, Operation};

/// Who takes part in an operation besides the process that acts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// The object that the operation is about.
    Object,
    /// The sender's own socket (000, 6.6: "the process sending data observes the state of the source socket").
    Source,
    /// The file or directory that a changed name stands for, or the second directory of a `rename`.
    Named,
    /// The process that is forked, waited for, signalled.
    OtherProcess,
    /// A file that is mapped, or that stands behind an open file description.
    Backing,
}

/// How far an operation is carried out in the presence of dependencies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Support {
    /// Dependencies are passed on.
    Tracked,
    /// The process waits until it depends on nothing.
    Barrier,
}

/// What an operation passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PropagationRule {
    /// The process takes the dependencies of these.
    pub observes: &'static [Role],
    /// These take the dependencies of the process.
    pub modifies: &'static [Role],
    /// Whether processes and objects with lightweight speculations may do it.
    pub lightweight: Support,
    /// Whether processes and objects with full speculations may do it. Stricter, as it has to be undone.
    pub full: Support,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The kind of object.
    pub kind: ObjectKind,
    /// What is done to it.
    pub operation: Operation,
    /// What that passes on.
    pub rule: PropagationRule,
    /// Reason or source.
    pub why: &'static str,
}

impl PropagationRule {
    /// When in doubt, wait.
    pub const BARRIER: Self =
        Self { observes: &[], modifies: &[], lightweight: Support::Barrier, full: Support::Barrier };

    /// Passes dependencies on and can be undone.
    pub(crate) const fn tracked(observes: &'static [Role], modifies: &'static [Role]) -> Self {
        Self { observes, modifies, lightweight: Support::Tracked, full: Support::Tracked }
    }

    /// Passes dependencies on, but cannot be undone.
    pub(crate) const fn lightweight_only(observes: &'static [Role], modifies: &'static [Role]) -> Self {
        Self { observes, modifies, lightweight: Support::Tracked, full: Support::Barrier }
    }

    /// Whether the process may learn something from the object itself.
    pub fn observes_object(&self) -> bool {
        self.observes.contains(&Role::Object)
    }

    /// Whether the object itself may change.
    pub fn modifies_object(&self) -> bool {
        self.modifies.contains(&Role::Object)
    }

    /// Whether any dependency makes the process wait.
    pub fn is_barrier(&self) -> bool {
        self.lightweight == Support::Barrier
    }
}
