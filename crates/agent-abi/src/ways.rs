//! Names that lead past everything that is held for a guess (`decisions/0196`): who has a permit looks them up without
//! a question. The supervisor writes down which names it has followed, and strikes out those on whose way something
//! comes to be held; agents only read. So it writes down how many names a new file has, which the kernel does not know.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many names are known at once.
pub const WAYS: usize = 16384;
/// So many slots a name may stand in. Where all are taken it takes the place of another name.
const PLACES: usize = 4;
/// Bits for what may be held: some thousand names and files are told from others.
const HELD_BITS: usize = 1 << 18;
/// Longer names are not written down.
pub const WAY_LEN_MAX: usize = 512;

/// What is known of names.
#[repr(C)]
#[derive(Debug)]
pub struct Ways {
    /// Not 0: something is held, and names that are not known ask.
    is_needed: AtomicU32,
    slots: [Way; WAYS],
    /// By file, and by name in a directory: whether something may be held of it.
    held: [AtomicU64; HELD_BITS / 64],
}

/// A name, and what it leads to.
#[repr(C)]
#[derive(Debug)]
struct Way {
    key: AtomicU64,
    end: AtomicU64,
    length: AtomicU64,
}

/// What a name leads to: a file, or a directory in which the next part of it is missing. Of a file itself: how many
/// names it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayEnd {
    hash: u64,
    /// How many bytes of the name lead to the directory.
    length: u64,
}

impl WayEnd {
    const WHOLE: u64 = u64::MAX;
    const LINKS: u64 = u64::MAX - 1;
    const DIRECTORY: u64 = u64::MAX - 2;
    /// In `length`: what is meant is held. Below it stand the length, and the number of a descriptor.
    const HELD: u64 = 1 << 62;
    const DESCRIPTOR_SHIFT: u32 = 16;

    /// A file, by its device and inode.
    pub fn file(dev: u64, ino: u64) -> Self {
        Self { hash: mix(mix(0, dev), ino), length: Self::WHOLE }
    }

    /// A directory of which something is held (`decisions/0262`), by its device and inode: the name leads past all else
    /// that is.
    pub fn directory(dev: u64, ino: u64) -> Self {
        Self { length: Self::DIRECTORY, ..Self::file(dev, ino) }
    }

    /// A directory that had this `st_ctime`.
    pub fn missing(length: usize, dev: u64, ino: u64, changed: (i64, i64)) -> Self {
        let time = mix(mix(0, changed.0 as u64), changed.1 as u64);
        Self { hash: mix(mix(mix(0, dev), ino), time), length: length as u64 }
    }

    /// So many names has a file (`WayKey::links_of`).
    pub fn links(links: u64) -> Self {
        Self { hash: links, length: Self::LINKS }
    }

    /// A file that is held (`decisions/0257`), by its device and inode and the supervisor's descriptor of it; or
    /// nothing, as the name is not there for those inside. So many bytes of the name lead to a directory, by its device
    /// and inode, which is on the disk, and in which the next part of the name is held.
    pub fn held(length: usize, dir: (u64, u64), file: Option<(u32, (u64, u64))>) -> Self {
        let hash = mix(mix(1, dir.0), dir.1);
        let (descriptor, hash) = match file {
            Some((descriptor, (dev, ino))) => (descriptor, mix(mix(hash, dev), ino)),
            None => (0, hash),
        };
        Self { hash, length: Self::HELD | u64::from(descriptor) << Self::DESCRIPTOR_SHIFT | length as u64 }
    }

    /// Of a name that leads to what is held: how many bytes of it lead to the directory on the disk, and the
    /// supervisor's descriptor of the file, if there is one.
    pub fn held_behind(self) -> Option<(usize, Option<u32>)> {
        let is_held = self.length & Self::HELD != 0 && self.length < Self::DIRECTORY;
        let descriptor = (self.length >> Self::DESCRIPTOR_SHIFT) as u32;
        let length = self.length as usize & ((1 << Self::DESCRIPTOR_SHIFT) - 1);
        is_held.then_some((length, (descriptor != 0).then_some(descriptor)))
    }

    /// How many bytes of the name lead to a directory in which the next part is missing.
    pub fn length_before_missing(self) -> Option<usize> {
        (self.length < Self::HELD).then_some(self.length as usize)
    }

    /// How many names the file has.
    pub fn links_said(self) -> Option<u64> {
        (self.length == Self::LINKS).then_some(self.hash)
    }
}

/// A name as it is looked for: from where, whether a link at its end is followed, and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct WayKey(u64);

impl WayKey {
    /// `start`: device and inode of the directory; of the root nothing.
    pub fn new(start: Option<(u64, u64)>, follows: bool) -> Self {
        let (dev, ino) = start.unwrap_or_default();
        Self(mix(mix(mix(1, u64::from(follows)), dev), ino))
    }

    /// For what stands directly in the directory that is named, whatever it is called (`decisions/0245`). A link at the
    /// end is followed.
    pub fn within(start: Option<(u64, u64)>) -> Self {
        let (dev, ino) = start.unwrap_or_default();
        Self(mix(mix(mix(1, 2), dev), ino))
    }

    /// For how many names a file has, by its device and inode (`decisions/0255`).
    pub fn links_of(dev: u64, ino: u64) -> Self {
        Self(mix(mix(mix(1, 3), dev), ino))
    }

    /// With one more byte.
    #[inline(always)]
    pub fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(MULTIPLIER).rotate_left(23);
    }

    /// The slots, and what stands in one of them.
    fn places(self) -> (core::ops::Range<usize>, u64) {
        let key = mix(self.0, 3);
        let first = key as usize % (WAYS / PLACES) * PLACES;
        (first..first + PLACES, key | 1)
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word ^ 0xa076_1d64_78bd_642f) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

impl Ways {
    /// Whether only what is known may be looked up.
    #[inline(always)]
    pub fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Acquire) != 0
    }

    /// The supervisor's.
    pub fn set_needed(&self, is_needed: bool) {
        self.is_needed.store(u32::from(is_needed), Ordering::SeqCst);
    }

    /// What a name leads to, if that is known.
    pub fn end_of(&self, key: WayKey) -> Option<WayEnd> {
        let (slots, key) = key.places();
        let way = self.slots[slots].iter().find(|way| way.key.load(Ordering::Acquire) == key)?;
        let is_it = || way.key.load(Ordering::Acquire) == key;
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        let end = WayEnd { hash: load(&way.end), length: load(&way.length) };
        is_it().then_some(end)
    }

    /// Write down what a name leads to; its slot. The supervisor's.
    pub fn learn(&self, key: WayKey, end: WayEnd) -> usize {
        let (slots, key) = key.places();
        let has = |slot: usize, word: u64| self.slots[slot].key.load(Ordering::Relaxed) == word;
        // Which one goes is as good as chance.
        let other = slots.start + (key >> 32) as usize % PLACES;
        let slot = slots.clone().find(|&slot| has(slot, key)).or_else(|| slots.clone().find(|&slot| has(slot, 0)));
        let slot = slot.unwrap_or(other);
        self.forget(slot);
        self.slots[slot].end.store(end.hash, Ordering::SeqCst);
        self.slots[slot].length.store(end.length, Ordering::SeqCst);
        self.slots[slot].key.store(key, Ordering::SeqCst);
        slot
    }

    /// Whether something may be held of a file or directory itself.
    pub fn may_be_held(&self, file: WayEnd) -> bool {
        self.is_noted(file.hash)
    }

    /// Something is held of a file or directory. The supervisor's.
    pub fn note_held(&self, file: WayEnd) {
        self.note(file.hash);
    }

    /// Whether something may be held of a name in a directory: its key begins there (`WayKey::new`, no link followed).
    pub fn may_be_held_name(&self, name: WayKey) -> bool {
        self.is_noted(name.0)
    }

    /// Something is held of a name. The supervisor's.
    pub fn note_held_name(&self, name: WayKey) {
        self.note(name.0);
    }

    fn is_noted(&self, hash: u64) -> bool {
        let (word, bit) = held_bit(hash);
        self.held[word].load(Ordering::Acquire) & bit != 0
    }

    fn note(&self, hash: u64) {
        let (word, bit) = held_bit(hash);
        self.held[word].fetch_or(bit, Ordering::SeqCst);
    }

    /// Nothing is held of anything. The supervisor's.
    pub fn nothing_is_held(&self) {
        self.held.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }

    /// What stands in this slot is not known any more. The supervisor's.
    pub fn forget(&self, slot: usize) {
        self.slots[slot % WAYS].key.store(0, Ordering::SeqCst);
    }
}

/// The word, and the bit in it.
fn held_bit(hash: u64) -> (usize, u64) {
    let bit = mix(hash, 5) as usize % HELD_BITS;
    (bit / 64, 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn empty() -> Ways {
        let free = |_| Way { key: AtomicU64::new(0), end: AtomicU64::new(0), length: AtomicU64::new(0) };
        let is_needed = AtomicU32::new(0);
        Ways { is_needed, slots: core::array::from_fn(free), held: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn key(start: Option<(u64, u64)>, follows: bool, name: &[u8]) -> WayKey {
        let mut key = WayKey::new(start, follows);
        name.iter().for_each(|&byte| key.add(byte));
        key
    }

    #[test]
    fn a_name_is_known_from_where_it_was_looked_for_until_it_is_forgotten() {
        let ways = empty();
        let known = key(Some((1, 2)), true, b"a/b");
        let slot = ways.learn(known, WayEnd::file(8, 9));
        assert_eq!(ways.end_of(known), Some(WayEnd::file(8, 9)));
        assert!(WayEnd::file(8, 9).length_before_missing().is_none() && WayEnd::file(8, 9) != WayEnd::file(9, 8));
        let missing = WayEnd::missing(2, 8, 9, (5, 6));
        assert_eq!(missing.length_before_missing(), Some(2));
        assert!(missing != WayEnd::missing(2, 8, 9, (5, 7)) && missing != WayEnd::missing(0, 8, 9, (5, 6)));
        let others = [
            key(None, true, b"a/b"),
            key(Some((2, 1)), true, b"a/b"),
            key(Some((1, 2)), false, b"a/b"),
            key(Some((1, 2)), true, b"a/c"),
            key(Some((1, 2)), true, b"a/b/"),
        ];
        assert!(others.iter().all(|&other| ways.end_of(other).is_none()));
        ways.forget(slot);
        assert!(ways.end_of(known).is_none());
    }

    #[test]
    fn how_many_names_a_file_has_is_no_end_of_a_name() {
        let ways = empty();
        ways.learn(WayKey::links_of(1, 2), WayEnd::links(3));
        assert_eq!(ways.end_of(WayKey::links_of(1, 2)).and_then(WayEnd::links_said), Some(3));
        assert!(ways.end_of(WayKey::links_of(2, 1)).is_none() && ways.end_of(key(Some((1, 2)), true, b"")).is_none());
        let (links, file, missing) = (WayEnd::links(3), WayEnd::file(1, 2), WayEnd::missing(4, 1, 2, (5, 6)));
        assert!(links.length_before_missing().is_none());
        assert!(file.links_said().is_none() && missing.links_said().is_none());
    }

    #[test]
    fn a_held_file_is_the_one_behind_its_descriptor() {
        let (dir, file) = ((8, 9), (8, 11));
        let (there, nothing) = (WayEnd::held(300, dir, Some((70_000, file))), WayEnd::held(300, dir, None));
        assert_eq!(there.held_behind(), Some((300, Some(70_000))));
        assert_eq!(nothing.held_behind(), Some((300, None)));
        let others = [
            WayEnd::held(300, dir, Some((70_000, (8, 12)))),
            WayEnd::held(300, (8, 10), Some((70_000, file))),
            WayEnd::held(300, (8, 10), None),
            WayEnd::held(0, dir, None),
        ];
        assert!(others.iter().all(|&other| other != there && other != nothing));
        let all = [there, nothing, others[3]];
        assert!(all.iter().all(|end| end.length_before_missing().is_none() && end.links_said().is_none()));
        let missing = WayEnd::missing(2, 8, 9, (5, 6));
        let plain = [WayEnd::file(8, 9), missing, WayEnd::links(3), WayEnd::directory(8, 9)];
        assert!(plain.iter().all(|end| end.held_behind().is_none()));
        assert!(plain[3] != plain[0] && plain[3].length_before_missing().is_none() && plain[3].links_said().is_none());
    }

    #[test]
    fn names_that_meet_do_not_take_each_others_place() {
        let ways = empty();
        let name = |n: u32| key(None, true, std::format!("/usr/include/{n}.h").as_bytes());
        let (first, _) = name(0).places();
        let meeting: std::vec::Vec<WayKey> = (0..).map(name).filter(|key| key.places().0 == first).take(6).collect();
        let end = |n: usize| WayEnd::file(1, n as u64);
        let known = || meeting.iter().enumerate().filter(|&(n, &key)| ways.end_of(key) == Some(end(n))).count();
        let learned: std::collections::HashSet<usize> =
            meeting[..4].iter().enumerate().map(|(n, &key)| ways.learn(key, end(n))).collect();
        assert_eq!((learned.len(), known()), (4, 4));
        assert_eq!((ways.learn(meeting[1], end(1)), known()), (1 + first.start, 4), "the same name once more");
        ways.learn(meeting[4], end(4));
        assert_eq!(known(), 4, "it has taken a place");
        learned.into_iter().for_each(|slot| ways.forget(slot));
        assert_eq!(known(), 0);
    }

    #[test]
    fn what_is_held_is_known_until_nothing_is() {
        let ways = empty();
        let file = |n: u64| WayEnd::file(65024, n);
        let name = |n: u64| key(Some((65024, n % 9)), false, std::format!("conf{n}.c").as_bytes());
        (0..4000).step_by(2).for_each(|n| ways.note_held(file(n)));
        (0..4000).step_by(2).for_each(|n| ways.note_held_name(name(n)));
        assert!((0..4000).step_by(2).all(|n| ways.may_be_held(file(n)) && ways.may_be_held_name(name(n))));
        let others = (1..4000).step_by(2);
        let wrong = others.filter(|&n| ways.may_be_held(file(n)) || ways.may_be_held_name(name(n))).count();
        assert!(wrong < 150, "{wrong} of 2000 are taken for held");
        ways.nothing_is_held();
        assert!((0..4000).all(|n| !ways.may_be_held(file(n)) && !ways.may_be_held_name(name(n))));
    }

    #[test]
    fn a_million_names_have_keys_of_their_own() {
        let keys: std::collections::HashSet<u64> = (0..1_000_000u32)
            .map(|n| key(Some((65024, u64::from(n % 7))), n % 2 == 0, std::format!("conf{n}.c").as_bytes()).places().1)
            .collect();
        assert_eq!(keys.len(), 1_000_000);
    }
}
