//! Which names of those that are held mean a file, and which stand in a directory: whoever asks about one file does not
//! look at all names.

use super::name_changes::Inode;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;

/// A directory, and a name in it.
pub(super) type NameKey = (Inode, OsString);

/// What a name means now, what it means on the disk, and what each change makes of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meanings<'a> {
    pub now: Option<Inode>,
    pub disk: Option<Inode>,
    pub steps: &'a [(u64, Option<Inode>)],
}

/// What is known of one file.
#[derive(Debug, Default)]
struct Of {
    /// They mean it now.
    names: BTreeSet<NameKey>,
    /// So many mean it on the disk.
    disk: usize,
    /// So many changes make a name that of the file.
    steps: usize,
}

impl Of {
    fn is_nothing(&self) -> bool {
        self.names.is_empty() && self.disk == 0 && self.steps == 0
    }
}

/// The index. Each name is in it once, with what it means.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    of: HashMap<Inode, Of>,
    in_dir: HashMap<Inode, BTreeSet<OsString>>,
}

impl NameIndex {
    /// A name is held, or means something else from now on: what it meant before was taken out.
    pub fn put(&mut self, key: &NameKey, meanings: Meanings) {
        if let Some(inode) = meanings.now {
            self.of.entry(inode).or_default().names.insert(key.clone());
        }
        if let Some(inode) = meanings.disk {
            self.of.entry(inode).or_default().disk += 1;
        }
        for inode in meanings.steps.iter().filter_map(|(_, inode)| *inode) {
            self.of.entry(inode).or_default().steps += 1;
        }
        self.in_dir.entry(key.0).or_default().insert(key.1.clone());
    }

    /// The opposite.
    pub fn take_out(&mut self, key: &NameKey, meanings: Meanings) {
        if let Some(inode) = meanings.now {
            self.change(inode, |of| {
                of.names.remove(key);
            });
        }
        if let Some(inode) = meanings.disk {
            self.change(inode, |of| of.disk -= 1);
        }
        for inode in meanings.steps.iter().filter_map(|(_, inode)| *inode) {
            self.change(inode, |of| of.steps -= 1);
        }
        if let Some(names) = self.in_dir.get_mut(&key.0) {
            names.remove(&key.1);
            if names.is_empty() {
                self.in_dir.remove(&key.0);
            }
        }
    }

    fn change(&mut self, inode: Inode, change: impl FnOnce(&mut Of)) {
        if let Some(of) = self.of.get_mut(&inode) {
            change(of);
            if of.is_nothing() {
                self.of.remove(&inode);
            }
        }
    }

    /// The names that mean a file now.
    pub fn names_of(&self, inode: Inode) -> impl Iterator<Item = &NameKey> {
        self.of.get(&inode).into_iter().flat_map(|of| &of.names)
    }

    /// How many names a file has gained, beyond those of the disk.
    pub fn gained(&self, inode: Inode) -> i64 {
        self.of.get(&inode).map_or(0, |of| of.names.len() as i64 - of.disk as i64)
    }

    /// Whether a file has, had, or gets a name that is held.
    pub fn is_concerned(&self, inode: Inode) -> bool {
        self.of.get(&inode).is_some_and(|of| of.disk > 0 || of.steps > 0)
    }

    /// Names that are held in a directory.
    pub fn names_in(&self, dir: Inode) -> impl Iterator<Item = &OsString> {
        self.in_dir.get(&dir).into_iter().flatten()
    }

    /// All files that names mean now.
    pub fn meant(&self) -> impl Iterator<Item = Inode> + '_ {
        self.of.iter().filter(|(_, of)| !of.names.is_empty()).map(|(&inode, _)| inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    struct Name {
        dir: u64,
        name: u8,
        disk: Option<u64>,
        steps: Vec<Option<u64>>,
    }

    fn names() -> impl Strategy<Value = Vec<Name>> {
        let inode = || proptest::option::of(0..4u64);
        let name = (0..3u64, 0..4u8, inode(), proptest::collection::vec(inode(), 0..3));
        proptest::collection::vec(name.prop_map(|(dir, name, disk, steps)| Name { dir, name, disk, steps }), 0..40)
    }

    type Held = HashMap<NameKey, (Option<Inode>, Vec<(u64, Option<Inode>)>)>;

    fn meanings((disk, steps): &(Option<Inode>, Vec<(u64, Option<Inode>)>)) -> Meanings<'_> {
        Meanings { now: steps.last().and_then(|step| step.1), disk: *disk, steps }
    }

    proptest! {
        /// Names are held, mean something else, and are held no more: the index says what a look at all of them says.
        #[test]
        fn it_says_what_all_names_say(changes in names()) {
            let (mut index, mut held) = (NameIndex::default(), Held::new());
            for Name { dir, name, disk, steps } in changes {
                let key = ((0, dir), OsString::from(name.to_string()));
                let steps: Vec<_> = steps.into_iter().map(|step| (0, step.map(|inode| (1, inode)))).collect();
                if let Some(before) = held.remove(&key) {
                    index.take_out(&key, meanings(&before));
                }
                if !steps.is_empty() {
                    let now = (disk.map(|inode| (1, inode)), steps);
                    index.put(&key, meanings(&now));
                    held.insert(key, now);
                }
                for inode in (0..4).map(|inode| (1, inode)) {
                    let of = |is: &dyn Fn(Meanings) -> usize| held.values().map(|one| is(meanings(one))).sum::<usize>();
                    let now = of(&|all| usize::from(all.now == Some(inode)));
                    let disk = of(&|all| usize::from(all.disk == Some(inode)));
                    let steps = of(&|all| all.steps.iter().filter(|step| step.1 == Some(inode)).count());
                    prop_assert_eq!(index.gained(inode), now as i64 - disk as i64);
                    prop_assert_eq!(index.names_of(inode).count(), now);
                    prop_assert_eq!(index.is_concerned(inode), disk + steps > 0);
                    prop_assert_eq!(index.meant().any(|meant| meant == inode), now > 0);
                }
                for dir in (0..3).map(|dir| (0, dir)) {
                    prop_assert_eq!(index.names_in(dir).count(), held.keys().filter(|key| key.0 == dir).count());
                }
            }
            for (key, all) in held {
                index.take_out(&key, meanings(&all));
            }
            prop_assert!(index.of.is_empty() && index.in_dir.is_empty());
        }
    }
}
