//! The *speculation* structure: one slow operation whose outcome is guessed, and who depends on the guess (000, 5.2).

use crate::{Process, SpeculationId};
use std::collections::BTreeSet;

/// Whether the guess can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It can fail; what depends on it then rolls back.
    Full(Access),
    /// A commit dependency: its operation is known to succeed, so that it can only commit (002, 3.1).
    Lightweight,
}

/// What the slow operation does to the state that it is about, on the server for instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A `stat`, a version check: doing it twice is harmless.
    ReadOnly,
    /// A `mkdir`: others may see its effect before the speculations after it are resolved, so that none of these may
    /// share its checkpoint (000, 5.2).
    Mutating,
}

/// Where a speculation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody knows yet.
    Open,
    /// The guess was right. The world forgets a speculation as soon as it is here.
    Committed,
    /// The guess was wrong, or the execution that made the guess was taken back.
    Failed,
}

/// Anything that can depend on a speculation, and then has an undo log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dependent<K> {
    /// A process; its entries hold checkpoints.
    Process(Process),
    /// Any other object; its entries hold what undoes operations.
    Object(K),
}

/// One guess.
#[derive(Clone, Debug)]
pub struct Speculation<K> {
    id: SpeculationId,
    kind: Kind,
    pub(crate) state: State,
    /// The kernel objects that depend on it: those with an entry that refers to it.
    pub(crate) dependents: BTreeSet<Dependent<K>>,
}

impl<K: Ord> Speculation<K> {
    pub(crate) fn new(id: SpeculationId, kind: Kind) -> Self {
        Self { id, kind, state: State::Open, dependents: BTreeSet::new() }
    }

    /// Its name.
    pub fn id(&self) -> SpeculationId {
        self.id
    }

    /// Whether it can fail, and what its operation does.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Open, or failed by a rollback that its owner has not heard of yet.
    pub fn state(&self) -> State {
        self.state
    }

    /// How many processes and objects depend on it.
    pub fn dependents_count(&self) -> usize {
        self.dependents.len()
    }
}
