//! An undo log: one per object with speculative state (000, 5.2). An entry is pushed before the change that it undoes;
//! rollback takes the youngest first.

use crate::{DependencySet, SpeculationId};
use std::collections::VecDeque;

/// One operation that can be undone, with the dependencies that this operation *added*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<P> {
    /// Moment of the operation; orders entries of different logs.
    pub sequence: u64,
    /// What undoes it. For a process: what it starts again from.
    pub payload: P,
    /// The speculations on which the object did not depend before.
    pub dependencies: DependencySet,
}

/// The entries of one object, oldest first.
#[derive(Clone, Debug)]
pub struct UndoLog<P> {
    entries: VecDeque<Entry<P>>,
    /// Union of the entries' dependencies.
    depends_on: DependencySet,
}

impl<P> Default for UndoLog<P> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), depends_on: DependencySet::default() }
    }
}

impl<P> UndoLog<P> {
    /// All speculations on which the object depends: those that an entry refers to.
    pub fn depends_on(&self) -> &DependencySet {
        &self.depends_on
    }

    /// Whether the object is non-speculative.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry<P>> {
        self.entries.iter()
    }

    pub(crate) fn entries_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Entry<P>> {
        self.entries.iter_mut()
    }

    /// Append an entry. `dependencies` must be new to this log.
    pub fn push(&mut self, sequence: u64, payload: P, dependencies: DependencySet) {
        debug_assert!(self.depends_on.is_disjoint(&dependencies), "an entry holds only new dependencies");
        debug_assert!(self.entries.back().is_none_or(|last| last.sequence < sequence));
        self.depends_on.merge(&dependencies);
        self.entries.push_back(Entry { sequence, payload, dependencies });
    }

    /// The youngest entry.
    pub fn last_mut(&mut self) -> Option<&mut Entry<P>> {
        self.entries.back_mut()
    }

    /// Index of the oldest entry that depends on any of `failed`.
    pub fn first_dependent(&self, failed: &DependencySet) -> Option<usize> {
        if self.depends_on.is_disjoint(failed) {
            return None;
        }
        self.entries.iter().position(|entry| !entry.dependencies.is_disjoint(failed))
    }

    /// `id` committed: no entry depends on it any more. Returns the one that did.
    pub fn resolve(&mut self, id: SpeculationId) -> Option<&mut Entry<P>> {
        if !self.depends_on.remove(id) {
            return None;
        }
        self.entries.iter_mut().find_map(|entry| entry.dependencies.remove(id).then_some(entry))
    }

    /// Take away the leading entries that depend on nothing any more.
    pub fn drop_leading(&mut self) -> Vec<Entry<P>> {
        let resolved = self.entries.iter().take_while(|entry| entry.dependencies.is_empty());
        let count = resolved.count();
        self.entries.drain(..count).collect()
    }

    /// Take away the entry at `index` and all younger ones, youngest first.
    pub fn truncate(&mut self, index: usize) -> Vec<Entry<P>> {
        let mut undone: Vec<_> = self.entries.drain(index..).collect();
        for entry in &undone {
            self.depends_on.subtract(&entry.dependencies);
        }
        undone.reverse();
        undone
    }

    /// Whoever depends on `member` depends on `newcomer` as well, from the same entry on: the two share a checkpoint.
    pub fn join(&mut self, member: SpeculationId, newcomer: SpeculationId) {
        let entry = self.entries.iter_mut().find(|entry| entry.dependencies.contains(member));
        if let Some(entry) = entry {
            entry.dependencies.insert(newcomer);
            self.depends_on.insert(newcomer);
        }
    }
}
