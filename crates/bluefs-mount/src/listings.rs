//! Listings of directories that the kernel keeps (`FOPEN_CACHE_DIR`), and when it may go on using one.
//!
//! The kernel fills its listing with what it is answered through any open directory that may, and begins anew where it
//! sees that the directory has other times. So all of these open directories have to be of one *generation*: of a time
//! in which nobody has changed the listing. Each change that is heard of, and each that the mount itself is about to
//! make, begins the next one. Who opens the directory under a lease, with no change of the mount's own under way, has
//! heard of every change: the kernel keeps what it has if all of that is of this generation (docs/decisions/0188).
//!
//! Who has had a directory open since before a change may read it again from its beginning. The kernel looks at the
//! directory's times first, and somebody may have set these back. So as long as it is open the attributes hold for no
//! time, and with each answer about them, and with each part of a listing, the kernel forgets the listing that it has.

use std::collections::BTreeMap;

use bluefs::{Group, Ino, Key};
use fuser::FopenFlags;

/// Directories of which something is noted, at most.
const DIRS_MAX: usize = 1 << 18;

#[derive(Debug, Default)]
struct Dir {
    generation: u64,
    /// The generation of what the kernel has.
    filled: Option<u64>,
    /// Open directories through which it may be filled, with the generations in which they were opened.
    open: BTreeMap<u64, u64>,
}

impl Dir {
    fn is_old(&self) -> bool {
        self.open.values().any(|generation| *generation != self.generation)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listings(BTreeMap<Ino, Dir>);

impl Listings {
    /// A directory is opened. If the listing is sure now, says what the kernel may do with its own.
    pub fn open(&mut self, ino: Ino, handle: u64, is_sure: bool) -> FopenFlags {
        let has_room = self.0.len() < DIRS_MAX || self.0.contains_key(&ino);
        // Without a flag the kernel forgets what it has.
        if !is_sure || !has_room {
            return FopenFlags::empty();
        }
        let dir = self.0.entry(ino).or_default();
        if dir.is_old() {
            return FopenFlags::empty();
        }
        let keeps = dir.filled.replace(dir.generation) == Some(dir.generation);
        dir.open.insert(handle, dir.generation);
        let keep = if keeps { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        FopenFlags::FOPEN_CACHE_DIR | keep
    }

    /// It is closed.
    pub fn close(&mut self, ino: Ino, handle: u64) {
        let Some(dir) = self.0.get_mut(&ino) else { return };
        dir.open.remove(&handle);
        self.tidy(ino);
    }

    /// The kernel has forgotten the directory.
    pub fn forget(&mut self, ino: Ino) {
        if self.0.get(&ino).is_some_and(|dir| dir.open.is_empty()) {
            self.0.remove(&ino);
        }
    }

    /// Whether somebody has the directory open through whom the kernel may have something older.
    pub fn is_old(&self, ino: Ino) -> bool {
        self.0.get(&ino).is_some_and(Dir::is_old)
    }

    /// What these keys are about has changed, or is about to.
    pub fn change<'k>(&mut self, keys: impl IntoIterator<Item = &'k Key>) {
        let of_listing = |key: &&Key| matches!(key, Key::Name(..) | Key::Listing(_) | Key::Parent(_));
        keys.into_iter().filter(of_listing).for_each(|key| self.next(key.ino()));
    }

    /// The same of every directory of a group; `None`: of all.
    pub fn change_group(&mut self, group: Option<Group>) {
        let inos: Vec<Ino> = match group {
            Some(group) => {
                let numbers = group.inodes();
                self.0.range(Ino(numbers.start)..Ino(numbers.end)).map(|(ino, _)| *ino).collect()
            }
            None => self.0.keys().copied().collect(),
        };
        inos.into_iter().for_each(|ino| self.next(ino));
    }

    fn next(&mut self, ino: Ino) {
        if let Some(dir) = self.0.get_mut(&ino) {
            dir.generation += 1;
        }
        self.tidy(ino);
    }

    /// Of what is neither open nor kept nothing needs to be known.
    fn tidy(&mut self, ino: Ino) {
        if self.0.get(&ino).is_some_and(|dir| dir.open.is_empty() && dir.filled != Some(dir.generation)) {
            self.0.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use bluefs::Name;

    use super::*;

    const DIR: Ino = Ino(70);
    const FILLS: FopenFlags = FopenFlags::FOPEN_CACHE_DIR;
    const KEEPS: FopenFlags = FopenFlags::FOPEN_CACHE_DIR.union(FopenFlags::FOPEN_KEEP_CACHE);

    #[test]
    fn what_the_kernel_has_is_kept_until_the_directory_changes() {
        let mut listings = Listings::default();
        assert_eq!(listings.open(DIR, 1, false), FopenFlags::empty(), "it is not sure");
        assert_eq!(listings.open(DIR, 2, true), FILLS);
        assert_eq!(listings.open(DIR, 3, true), KEEPS);
        listings.close(DIR, 2);
        listings.close(DIR, 3);
        assert_eq!(listings.open(DIR, 4, true), KEEPS);
        listings.close(DIR, 4);
        let name = Key::Name(DIR, Name::new(b"a".as_slice()).expect("a name"));
        for changed in [name, Key::Listing(DIR), Key::Parent(DIR)] {
            listings.change([&Key::Attr(DIR), &Key::Listing(Ino(71)), &changed]);
            assert_eq!(listings.open(DIR, 5, true), FILLS);
            listings.close(DIR, 5);
        }
        listings.change([&Key::Attr(DIR), &Key::Data(DIR)]);
        assert_eq!(listings.open(DIR, 6, true), KEEPS);
        listings.close(DIR, 6);
        for group in [Some(DIR.group()), None] {
            listings.change_group(Some(Group(9)));
            assert_eq!(listings.open(DIR, 7, true), KEEPS);
            listings.close(DIR, 7);
            listings.change_group(group);
            assert_eq!(listings.open(DIR, 8, true), FILLS);
            listings.close(DIR, 8);
        }
        listings.forget(DIR);
        assert!(listings.0.is_empty());
    }

    /// Who has opened it before may fill the kernel's listing with what was there before.
    #[test]
    fn nobody_shares_a_listing_with_who_has_opened_the_directory_before_a_change() {
        let mut listings = Listings::default();
        assert_eq!(listings.open(DIR, 1, true), FILLS);
        assert!(!listings.is_old(DIR));
        listings.change([&Key::Listing(DIR)]);
        assert!(listings.is_old(DIR));
        assert_eq!(listings.open(DIR, 2, true), FopenFlags::empty());
        listings.close(DIR, 1);
        assert!(!listings.is_old(DIR));
        assert_eq!(listings.open(DIR, 3, true), FILLS);
    }
}
