//! Which objects guesses have changed.

use super::Object;
use std::collections::{btree_set, BTreeSet};

/// The objects that may not be what they were before all open guesses.
#[derive(Debug, Default)]
pub(super) struct Touched {
    all: BTreeSet<Object>,
    /// Those of them that a call may wait for. `poll` looks at these each time, and among all that a build has changed
    /// there are few.
    awaited: BTreeSet<Object>,
}

impl Touched {
    pub fn insert(&mut self, object: Object) {
        if object.can_be_awaited() {
            self.awaited.insert(object.clone());
        }
        self.all.insert(object);
    }

    pub fn remove(&mut self, object: &Object) {
        if self.all.remove(object) {
            self.awaited.remove(object);
        }
    }

    pub fn contains(&self, object: &Object) -> bool {
        self.all.contains(object)
    }

    pub fn iter(&self) -> btree_set::Iter<'_, Object> {
        self.all.iter()
    }

    /// See `Object::can_be_awaited`.
    pub fn awaited(&self) -> btree_set::Iter<'_, Object> {
        self.awaited.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_awaited_comes_and_goes_with_the_rest() {
        let (file, pipe) = (Object::File(1, 2), Object::Pipe(1, 3));
        let mut touched = Touched::default();
        touched.insert(file.clone());
        touched.insert(pipe.clone());
        assert_eq!(touched.iter().count(), 2);
        assert_eq!(touched.awaited().collect::<Vec<_>>(), [&pipe]);
        touched.remove(&pipe);
        assert!(!touched.contains(&pipe) && touched.contains(&file));
        assert_eq!(touched.awaited().count(), 0);
    }
}
