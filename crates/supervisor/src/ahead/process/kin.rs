//! Who is whose child, with an index for those who ask for their children: in a guess many have ended.

use procfs::ProcessId;
use std::collections::{BTreeSet, HashMap};

/// Parents and children.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Kin {
    parent_of: HashMap<ProcessId, ProcessId>,
    /// How many had been born when a child was.
    born_at: HashMap<ProcessId, u64>,
    births: u64,
    children_of: HashMap<ProcessId, BTreeSet<ProcessId>>,
    /// Those for whom their parents have not waited, as far as these know.
    unreaped_of: HashMap<ProcessId, BTreeSet<ProcessId>>,
}

impl Kin {
    pub fn insert(&mut self, child: ProcessId, parent: ProcessId) {
        self.remove(child);
        self.parent_of.insert(child, parent);
        self.births += 1;
        self.born_at.insert(child, self.births);
        self.children_of.entry(parent).or_default().insert(child);
        self.unreaped_of.entry(parent).or_default().insert(child);
    }

    /// Returns the parent.
    pub fn remove(&mut self, child: ProcessId) -> Option<ProcessId> {
        let parent = self.parent_of.remove(&child)?;
        self.born_at.remove(&child);
        remove_from(&mut self.children_of, parent, child);
        remove_from(&mut self.unreaped_of, parent, child);
        Some(parent)
    }

    /// A parent has ended: its number may be another process's next.
    pub fn forget_children_of(&mut self, parent: ProcessId) {
        self.unreaped_of.remove(&parent);
        for child in self.children_of.remove(&parent).unwrap_or_default() {
            self.parent_of.remove(&child);
            self.born_at.remove(&child);
        }
    }

    /// How many have been born so far.
    pub fn births(&self) -> u64 {
        self.births
    }

    /// The children that a process had when this many had been born, as far as they are known.
    pub fn of_before(&self, parent: ProcessId, births: u64) -> impl Iterator<Item = ProcessId> + '_ {
        self.of(parent).filter(move |child| self.born_at.get(child).is_none_or(|&at| at <= births))
    }

    pub fn parent(&self, child: ProcessId) -> Option<ProcessId> {
        self.parent_of.get(&child).copied()
    }

    pub fn of(&self, parent: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        self.children_of.get(&parent).into_iter().flatten().copied()
    }

    /// The children for whom a process has not waited, in order.
    pub fn unreaped_of(&self, parent: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        self.unreaped_of.get(&parent).into_iter().flatten().copied()
    }

    pub fn reaped(&mut self, child: ProcessId) {
        if let Some(parent) = self.parent(child) {
            remove_from(&mut self.unreaped_of, parent, child);
        }
    }

    pub fn not_reaped(&mut self, child: ProcessId) {
        if let Some(parent) = self.parent(child) {
            self.unreaped_of.entry(parent).or_default().insert(child);
        }
    }
}

fn remove_from(index: &mut HashMap<ProcessId, BTreeSet<ProcessId>>, parent: ProcessId, child: ProcessId) {
    if let Some(children) = index.get_mut(&parent) {
        children.remove(&child);
        if children.is_empty() {
            index.remove(&parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessId = ProcessId::from_raw(1);
    const TWO: ProcessId = ProcessId::from_raw(2);
    const THREE: ProcessId = ProcessId::from_raw(3);
    const FOUR: ProcessId = ProcessId::from_raw(4);

    #[test]
    fn children_are_found_until_they_are_waited_for() {
        let mut kin = Kin::default();
        kin.insert(TWO, ONE);
        kin.insert(THREE, ONE);
        kin.reaped(TWO);
        assert_eq!(
            (kin.of(ONE).collect::<Vec<_>>(), kin.unreaped_of(ONE).collect::<Vec<_>>()),
            (vec![TWO, THREE], vec![THREE])
        );
        kin.not_reaped(TWO);
        assert_eq!(kin.unreaped_of(ONE).collect::<Vec<_>>(), [TWO, THREE]);
        assert_eq!(kin.of_before(ONE, 1).collect::<Vec<_>>(), [TWO]);
        assert_eq!((kin.of_before(ONE, 0).count(), kin.of_before(ONE, kin.births()).count()), (0, 2));
        assert_eq!((kin.remove(THREE), kin.remove(THREE)), (Some(ONE), None));
        kin.insert(TWO, FOUR);
        assert_eq!((kin.of(ONE).count(), kin.parent(TWO)), (0, Some(FOUR)));
        kin.forget_children_of(FOUR);
        assert_eq!((kin.parent(TWO), kin.unreaped_of(FOUR).count()), (None, 0));
        assert!(kin.children_of.is_empty() && kin.unreaped_of.is_empty() && kin.born_at.is_empty());
    }
}
