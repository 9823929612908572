//! Who is whose child, with an index for those who ask for their children: in a guess many have ended.

use std::collections::{BTreeSet, HashMap};

/// Parents and children.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Kin {
    parent_of: HashMap<i32, i32>,
    children_of: HashMap<i32, BTreeSet<i32>>,
    /// Those for whom their parents have not waited, as far as these know.
    unreaped_of: HashMap<i32, BTreeSet<i32>>,
}

impl Kin {
    pub fn insert(&mut self, child: i32, parent: i32) {
        self.remove(child);
        self.parent_of.insert(child, parent);
        self.children_of.entry(parent).or_default().insert(child);
        self.unreaped_of.entry(parent).or_default().insert(child);
    }

    /// Returns the parent.
    pub fn remove(&mut self, child: i32) -> Option<i32> {
        let parent = self.parent_of.remove(&child)?;
        remove_from(&mut self.children_of, parent, child);
        remove_from(&mut self.unreaped_of, parent, child);
        Some(parent)
    }

    /// A parent has ended: its number may be another process's next.
    pub fn forget_children_of(&mut self, parent: i32) {
        self.unreaped_of.remove(&parent);
        for child in self.children_of.remove(&parent).unwrap_or_default() {
            self.parent_of.remove(&child);
        }
    }

    pub fn parent(&self, child: i32) -> Option<i32> {
        self.parent_of.get(&child).copied()
    }

    pub fn of(&self, parent: i32) -> impl Iterator<Item = i32> + '_ {
        self.children_of.get(&parent).into_iter().flatten().copied()
    }

    /// The children for whom a process has not waited, in order.
    pub fn unreaped_of(&self, parent: i32) -> impl Iterator<Item = i32> + '_ {
        self.unreaped_of.get(&parent).into_iter().flatten().copied()
    }

    pub fn reaped(&mut self, child: i32) {
        if let Some(parent) = self.parent(child) {
            remove_from(&mut self.unreaped_of, parent, child);
        }
    }

    pub fn not_reaped(&mut self, child: i32) {
        if let Some(parent) = self.parent(child) {
            self.unreaped_of.entry(parent).or_default().insert(child);
        }
    }
}

fn remove_from(index: &mut HashMap<i32, BTreeSet<i32>>, parent: i32, child: i32) {
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

    #[test]
    fn children_are_found_until_they_are_waited_for() {
        let mut kin = Kin::default();
        kin.insert(2, 1);
        kin.insert(3, 1);
        kin.reaped(2);
        assert_eq!((kin.of(1).collect::<Vec<_>>(), kin.unreaped_of(1).collect::<Vec<_>>()), (vec![2, 3], vec![3]));
        kin.not_reaped(2);
        assert_eq!(kin.unreaped_of(1).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((kin.remove(3), kin.remove(3)), (Some(1), None));
        kin.insert(2, 4);
        assert_eq!((kin.of(1).count(), kin.parent(2)), (0, Some(4)));
        kin.forget_children_of(4);
        assert_eq!((kin.parent(2), kin.unreaped_of(4).count()), (None, 0));
        assert!(kin.children_of.is_empty() && kin.unreaped_of.is_empty());
    }
}
