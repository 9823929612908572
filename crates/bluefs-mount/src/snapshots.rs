//! Names of directories as they were at one time, and the places in them that programs know.
//!
//! The kernel asks for the names behind a place, and does not say through which open directory: it does not tell who
//! opens or closes one (docs/decisions/0236). So a place says by itself what it means. It is the number of a snapshot
//! and a hash of the name before it, by which the names are sorted. If the snapshot is still there, who is in the
//! middle of it goes on in it. Otherwise the names are read once more: a name that stays has the same hash, so it comes
//! before the same place, or behind it, as before.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use bluefs::{Ino, Kind};

/// Names of a directory: name, inode, kind.
pub type Listing = Vec<(Vec<u8>, Ino, Kind)>;

/// Names that are kept for those who are in the middle of a directory, at most, if that leaves so many snapshots.
const NAMES_MAX: usize = 1 << 18;
const SNAPSHOTS_MIN: usize = 16;
/// Numbers of snapshots: a place has 63 bits.
const NUMBERS: u64 = (1 << 31) - 1;
/// Hashes of names, less than there are places: of names with the same hash each has a place of its own.
const HASHES: u64 = (1 << 32) - (1 << 25);
/// Places before those of other names.
const DOT: u32 = 1;
const DOT_DOT: u32 = 2;
/// Bytes of a page, and of a name's head in a page of the kernel. Each begins at a multiple of the last.
const PAGE_BYTES: usize = 4096;
const HEAD_BYTES: usize = 24;
const ALIGN_BYTES: usize = 8;

/// A name, and where it stands.
#[derive(Debug)]
pub struct Entry {
    place: u32,
    pub name: Vec<u8>,
    pub ino: Ino,
    pub kind: Kind,
}

/// Names of a directory at one time, in the order of their places.
#[derive(Debug)]
pub struct Snapshot {
    number: u64,
    names: Vec<Entry>,
    /// In which generation of the directory it is complete, if that is known.
    pub generation: Option<u64>,
    /// Whether the kernel can have all of it.
    pub may_be_kept: bool,
}

impl Snapshot {
    /// Without a number yet.
    pub fn new(listing: Listing, hasher: &impl BuildHasher) -> Snapshot {
        let entry = |(name, ino, kind): (Vec<u8>, Ino, Kind)| Entry { place: place(&name, hasher), name, ino, kind };
        let mut names: Vec<Entry> = listing.into_iter().map(entry).collect();
        names.sort_unstable_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
        let mut last = 0;
        for entry in &mut names {
            entry.place = entry.place.max(last + 1);
            last = entry.place;
        }
        let may_be_kept = !ends_with_a_page(&names);
        Snapshot { number: 0, names, generation: None, may_be_kept }
    }

    /// The names behind a place, and the place behind each.
    pub fn behind(&self, place: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let begin = self.names.partition_point(|entry| entry.place <= place as u32);
        self.names[begin..].iter().map(|entry| ((self.number << 32) | u64::from(entry.place), entry))
    }
}

fn place(name: &[u8], hasher: &impl BuildHasher) -> u32 {
    match name {
        b"." => DOT,
        b".." => DOT_DOT,
        // It is less than 2^32.
        _ => (hasher.hash_one(name) % HASHES) as u32 + DOT_DOT + 1,
    }
}

/// Whether these names, as the kernel packs them into pages, fill the last one. To who is at a place that is not in
/// there it says that this is the end (`fuse_readdir_cached`), and asks nobody.
fn ends_with_a_page(names: &[Entry]) -> bool {
    let end = names.iter().fold(0, |end: usize, entry| {
        let bytes = (HEAD_BYTES + entry.name.len()).next_multiple_of(ALIGN_BYTES);
        let fits = end % PAGE_BYTES + bytes <= PAGE_BYTES;
        bytes + if fits { end } else { end.next_multiple_of(PAGE_BYTES) }
    });
    end % PAGE_BYTES == 0
}

#[derive(Debug)]
struct Kept {
    snapshot: Arc<Snapshot>,
    /// When it was used last, counted in uses.
    used: u64,
}

/// Those of all directories that are kept.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// How many there were.
    count: u64,
    kept: BTreeMap<(Ino, u64), Kept>,
    uses: BTreeMap<u64, (Ino, u64)>,
    use_count: u64,
    names: usize,
}

impl Snapshots {
    /// Keeps one, which gets its number.
    pub fn add(&mut self, ino: Ino, mut snapshot: Snapshot) -> Arc<Snapshot> {
        self.count += 1;
        // Once numbers are used again the kernel could take the names of two for those of one.
        snapshot.may_be_kept &= self.count <= NUMBERS;
        snapshot.number = self.count % NUMBERS + 1;
        let (number, snapshot) = (snapshot.number, Arc::new(snapshot));
        self.drop_one(ino, number);
        self.use_count += 1;
        self.names += snapshot.names.len();
        self.kept.insert((ino, number), Kept { snapshot: snapshot.clone(), used: self.use_count });
        self.uses.insert(self.use_count, (ino, number));
        while self.names > NAMES_MAX && self.kept.len() > SNAPSHOTS_MIN {
            let Some((_, (ino, number))) = self.uses.pop_first() else { break };
            self.drop_one(ino, number);
        }
        snapshot
    }

    /// That with this number, if it is still there.
    pub fn get(&mut self, ino: Ino, number: u64) -> Option<Arc<Snapshot>> {
        let kept = self.kept.get_mut(&(ino, number))?;
        self.uses.remove(&kept.used);
        self.use_count += 1;
        kept.used = self.use_count;
        self.uses.insert(self.use_count, (ino, number));
        Some(kept.snapshot.clone())
    }

    /// That of a place.
    pub fn at(&mut self, ino: Ino, place: u64) -> Option<Arc<Snapshot>> {
        self.get(ino, place >> 32)
    }

    /// Nobody has the directory open.
    pub fn forget(&mut self, ino: Ino) {
        let numbers: Vec<u64> = self.kept.range((ino, 0)..=(ino, u64::MAX)).map(|((_, number), _)| *number).collect();
        numbers.into_iter().for_each(|number| self.drop_one(ino, number));
    }

    fn drop_one(&mut self, ino: Ino, number: u64) {
        if let Some(kept) = self.kept.remove(&(ino, number)) {
            self.uses.remove(&kept.used);
            self.names -= kept.snapshot.names.len();
        }
    }
}

impl Snapshot {
    /// By which it is known.
    pub fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

    use super::*;

    const DIR: Ino = Ino(70);

    fn listing(names: &[&str]) -> Listing {
        names.iter().map(|name| (name.as_bytes().to_vec(), Ino(71), Kind::File)).collect()
    }

    fn snapshot(names: &[&str]) -> Snapshot {
        Snapshot::new(listing(names), &BuildHasherDefault::<DefaultHasher>::default())
    }

    /// Names behind a place, with the place behind each.
    fn behind(snapshot: &Snapshot, place: u64) -> Vec<(u64, String)> {
        let text = |entry: &Entry| String::from_utf8(entry.name.clone()).expect("text");
        snapshot.behind(place).map(|(place, entry)| (place, text(entry))).collect()
    }

    #[test]
    fn a_place_means_the_same_in_another_snapshot() {
        let mut all = Snapshots::default();
        let names = ["a", ".", "b", "..", "c", "d", "e", "f"];
        let old = all.add(DIR, snapshot(&names));
        let read = behind(&old, 0);
        assert_eq!([&read[0].1, &read[1].1], [".", ".."]);
        let (place, gone) = &read[4];
        let fewer: Vec<&str> = names.into_iter().filter(|name| name != gone).chain(["new"]).collect();
        let new = all.add(DIR, snapshot(&fewer));
        let left = |read: &[(u64, String)]| -> Vec<String> {
            read.iter().map(|(_, name)| name.clone()).filter(|name| name != "new").collect()
        };
        assert_eq!(left(&behind(&new, *place)), left(&read[5..]));
        assert_ne!(behind(&new, 0)[0].0, read[0].0, "the kernel does not take one for the other");
        assert!(behind(&new, behind(&new, 0).last().expect("names").0).is_empty());
    }

    #[test]
    fn names_with_one_hash_have_places_of_their_own() {
        #[derive(Default)]
        struct Same;
        impl Hasher for Same {
            fn finish(&self) -> u64 {
                u64::MAX
            }
            fn write(&mut self, _: &[u8]) {}
        }
        let snapshot = Snapshot::new(listing(&["a", "b", "c", "."]), &BuildHasherDefault::<Same>::default());
        let read = behind(&snapshot, 0);
        assert_eq!(read.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), [".", "a", "b", "c"]);
        assert_eq!(behind(&snapshot, read[2].0), read[3..]);
    }

    #[test]
    fn what_was_used_last_is_kept() {
        let mut all = Snapshots::default();
        let many: Vec<String> = (0..NAMES_MAX / SNAPSHOTS_MIN).map(|i| i.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let first = all.add(DIR, snapshot(&many)).number();
        let second = all.add(DIR, snapshot(&many)).number();
        for _ in 2..SNAPSHOTS_MIN {
            all.add(DIR, snapshot(&many));
        }
        assert!(all.at(DIR, first << 32).is_some());
        all.add(Ino(71), snapshot(&many));
        assert!(all.at(DIR, first << 32).is_some() && all.at(DIR, second << 32).is_none());
        all.forget(DIR);
        assert!(all.at(DIR, first << 32).is_none() && all.kept.len() == 1 && all.uses.len() == 1);
        assert_eq!(all.names, many.len());
    }

    #[test]
    fn the_kernel_keeps_no_listing_that_fills_its_last_page() {
        // Each takes 32 bytes.
        let names: Vec<String> = (0..256).map(|i| format!("{i:0>8}")).collect();
        let may_be_kept = |count: usize| {
            let names: Vec<&str> = names[..count].iter().map(String::as_str).collect();
            snapshot(&names).may_be_kept
        };
        assert!(may_be_kept(127) && !may_be_kept(128) && may_be_kept(129) && may_be_kept(255) && !may_be_kept(256));
    }
}
