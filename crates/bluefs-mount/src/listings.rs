//! Listings of directories that the kernel keeps, and when it may go on using one (docs/decisions/0236).
//!
//! The kernel opens a directory without asking, and reads its own listing if it has all of one and the directory's
//! attributes hold. It fills that with what it is answered, name behind name, and has all when it is answered that
//! there are no more. A change does not take it away: notifications drop its pages, and a listing without pages is read
//! anew.
//!
//! - Each directory has a *generation*, which ends with each change that is heard of, with a lease that is recalled,
//!   with a connection, and with each change of the mount's own before it is sent. With each of these the attributes of
//!   the directory end in the kernel, too.
//! - The places of names have the number of a snapshot, so that the kernel fills a listing with one snapshot only.
//! - Who is answered that there are no more names has filled a listing that may stay if the snapshot is of the present
//!   generation, under a lease. Otherwise the pages are dropped before that is answered.
//! - Attributes are told only if the kernel has no complete listing, or that of the present generation under a lease.
//!   Otherwise its pages are dropped first, and the attributes hold for no time.
//!
//! So a listing of an earlier generation may be there, and nobody begins to read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bluefs::{Group, Ino, Key};

use crate::snapshots::{Snapshot, Snapshots};

/// Directories of which something is noted, at most.
const DIRS_MAX: usize = 1 << 18;

/// The kernel may have all of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// No two are the same.
    stamp: u64,
    generation: u64,
}

#[derive(Debug)]
struct Dir {
    generation: u64,
    /// The snapshot of this generation.
    current: Option<u64>,
    filled: Option<Filled>,
}

/// What is known of the names of a directory that is read from its beginning.
#[derive(Debug)]
pub enum Begun {
    Known(Arc<Snapshot>),
    /// They have to be asked for. In which generation, if nobody changes it now.
    Unknown(Option<u64>),
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listings {
    dirs: BTreeMap<Ino, Dir>,
    /// Numbers of generations, and stamps: each is used once.
    last: u64,
    snapshots: Snapshots,
}

impl Listings {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A directory is read from its beginning.
    pub fn begin(&mut self, ino: Ino, is_sure: bool) -> Begun {
        let has_room = self.dirs.len() < DIRS_MAX || self.dirs.contains_key(&ino);
        if !is_sure || !has_room {
            return Begun::Unknown(None);
        }
        let generation = self.next();
        let dir = self.dirs.entry(ino).or_insert(Dir { generation, current: None, filled: None });
        match dir.current.and_then(|number| self.snapshots.get(ino, number)) {
            Some(known) => Begun::Known(known),
            None => Begun::Unknown(Some(dir.generation)),
        }
    }

    /// Its names were asked for since, as it was sure in this generation; and is it sure now?
    pub fn add(&mut self, ino: Ino, begun: Option<u64>, is_sure: bool, mut snapshot: Snapshot) -> Arc<Snapshot> {
        let dir = self.dirs.get_mut(&ino).filter(|dir| is_sure && begun == Some(dir.generation));
        snapshot.generation = dir.as_ref().map(|dir| dir.generation);
        let snapshot = self.snapshots.add(ino, snapshot);
        if let Some(dir) = dir {
            dir.current = Some(snapshot.number());
        }
        snapshot
    }

    /// The snapshot of a place, if it is still there.
    pub fn at(&mut self, ino: Ino, place: u64) -> Option<Arc<Snapshot>> {
        self.snapshots.at(ino, place)
    }

    /// The kernel is about to be answered that a snapshot has no more names. Whether its listing may stay; if not it
    /// has to be forgotten before that.
    pub fn ends(&mut self, ino: Ino, snapshot: &Snapshot, is_sure: bool) -> bool {
        let stamp = self.next();
        let Some(dir) = self.dirs.get_mut(&ino) else { return false };
        let generation = dir.generation;
        let is_current = is_sure && snapshot.may_be_kept && snapshot.generation == Some(generation);
        let may_stay = is_current && dir.filled.is_none_or(|filled| filled.generation == generation);
        if may_stay {
            dir.filled = Some(Filled { stamp, generation });
        }
        may_stay
    }

    /// What the kernel may have.
    pub fn filled(&self, ino: Ino) -> Option<Filled> {
        self.dirs.get(&ino).and_then(|dir| dir.filled)
    }

    /// The kernel has been told to forget since it may have had that. What it was told to keep meanwhile it has.
    pub fn emptied(&mut self, ino: Ino, filled: Option<Filled>) {
        if let Some(dir) = self.dirs.get_mut(&ino).filter(|dir| dir.filled == filled) {
            dir.filled = None;
        }
    }

    /// Whether the kernel may begin to read what it may have.
    pub fn is_good(&self, ino: Ino, is_sure: bool) -> bool {
        let Some(dir) = self.dirs.get(&ino) else { return true };
        dir.filled.is_none_or(|filled| is_sure && filled.generation == dir.generation)
    }

    /// The kernel has forgotten the directory, and perhaps found it again. What it may have has to be forgotten before.
    pub fn forget(&mut self, ino: Ino) {
        if self.filled(ino).is_none() {
            self.dirs.remove(&ino);
            self.snapshots.forget(ino);
        }
    }

    /// What these keys are about has changed, or is about to.
    pub fn change<'k>(&mut self, keys: impl IntoIterator<Item = &'k Key>) {
        let of_listing = |key: &&Key| matches!(key, Key::Name(..) | Key::Listing(_) | Key::Parent(_));
        keys.into_iter().filter(of_listing).for_each(|key| self.end_generation(key.ino()));
    }

    /// The same of every directory of a group; `None`: of all.
    pub fn change_group(&mut self, group: Option<Group>) {
        let numbers = group.map_or(0..u64::MAX, Group::inodes);
        let inos: Vec<Ino> = self.dirs.range(Ino(numbers.start)..Ino(numbers.end)).map(|(ino, _)| *ino).collect();
        inos.into_iter().for_each(|ino| self.end_generation(ino));
    }

    fn end_generation(&mut self, ino: Ino) {
        let next = self.next();
        if let Some(dir) = self.dirs.get_mut(&ino) {
            (dir.generation, dir.current) = (next, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use bluefs::{Kind, Name};

    use super::*;

    const DIR: Ino = Ino(70);

    /// Reads a directory from its beginning to its end. Whether the kernel keeps that.
    fn list(listings: &mut Listings, is_sure: bool) -> bool {
        let snapshot = begin(listings, is_sure);
        listings.ends(DIR, &snapshot, is_sure)
    }

    fn begin(listings: &mut Listings, is_sure: bool) -> Arc<Snapshot> {
        match listings.begin(DIR, is_sure) {
            Begun::Known(snapshot) => snapshot,
            Begun::Unknown(begun) => listings.add(DIR, begun, is_sure, snapshot()),
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot::new(vec![(b"a".to_vec(), Ino(71), Kind::File)], &RandomState::new())
    }

    /// Has the kernel forget.
    fn empty(listings: &mut Listings) {
        let filled = listings.filled(DIR);
        listings.emptied(DIR, filled);
    }

    #[test]
    fn a_listing_stays_until_the_directory_changes() {
        let mut listings = Listings::default();
        assert!(!list(&mut listings, false), "it is not sure");
        assert!(listings.is_good(DIR, false), "there is none");
        let name = Key::Name(DIR, Name::new(b"a".as_slice()).expect("a name"));
        for changed in [name, Key::Listing(DIR), Key::Parent(DIR)] {
            assert!(list(&mut listings, true) && listings.is_good(DIR, true) && !listings.is_good(DIR, false));
            listings.change([&Key::Attr(DIR), &Key::Data(DIR), &Key::Listing(Ino(71))]);
            assert!(listings.is_good(DIR, true));
            listings.change([&changed]);
            assert!(!listings.is_good(DIR, true));
            assert!(!list(&mut listings, true), "what the kernel has is to be forgotten first");
            empty(&mut listings);
            assert!(listings.is_good(DIR, true));
        }
        for group in [Some(DIR.group()), None] {
            assert!(list(&mut listings, true));
            listings.change_group(Some(Group(9)));
            assert!(listings.is_good(DIR, true));
            listings.change_group(group);
            assert!(!listings.is_good(DIR, true));
            empty(&mut listings);
        }
        listings.forget(DIR);
        assert!(listings.dirs.is_empty());
    }

    #[test]
    fn who_shares_a_generation_shares_a_snapshot() {
        let mut listings = Listings::default();
        let one = begin(&mut listings, true);
        assert!(Arc::ptr_eq(&one, &begin(&mut listings, true)));
        assert!(!Arc::ptr_eq(&one, &begin(&mut listings, false)), "it may have changed");
        listings.change([&Key::Listing(DIR)]);
        let other = begin(&mut listings, true);
        assert!(!Arc::ptr_eq(&one, &other));
        let place = one.behind(0).last().expect("a name").0;
        assert!(listings.at(DIR, place).is_some_and(|found| Arc::ptr_eq(&one, &found)));
        assert!(!listings.ends(DIR, &one, true) && listings.ends(DIR, &other, true));
    }

    /// A change while names are asked for may be among them, or not.
    #[test]
    fn what_changes_while_it_is_asked_for_does_not_stay() {
        let mut listings = Listings::default();
        let Begun::Unknown(begun) = listings.begin(DIR, true) else { panic!("nobody has asked yet") };
        listings.change([&Key::Listing(DIR)]);
        let old = listings.add(DIR, begun, true, snapshot());
        assert!(!listings.ends(DIR, &old, true));
        // A change of the mount's own is under way when they are asked for, and done when they are there.
        let Begun::Unknown(begun) = listings.begin(DIR, false) else { panic!("nobody knows") };
        let old = listings.add(DIR, begun, true, snapshot());
        assert!(!listings.ends(DIR, &old, true));
        // The kernel forgets the directory, and finds it again.
        let Begun::Unknown(begun) = listings.begin(DIR, true) else { panic!("nobody has asked yet") };
        listings.forget(DIR);
        listings.change([&Key::Listing(DIR)]);
        let Begun::Unknown(_) = listings.begin(DIR, true) else { panic!("nobody has asked yet") };
        let old = listings.add(DIR, begun, true, snapshot());
        assert!(!listings.ends(DIR, &old, true));
    }

    #[test]
    fn what_is_filled_while_the_kernel_forgets_is_there() {
        let mut listings = Listings::default();
        assert!(list(&mut listings, true));
        let filled = listings.filled(DIR);
        assert!(list(&mut listings, true));
        listings.emptied(DIR, filled);
        listings.forget(DIR);
        listings.change([&Key::Listing(DIR)]);
        assert!(!listings.is_good(DIR, true));
    }
}
