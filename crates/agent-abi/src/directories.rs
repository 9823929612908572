//! What those inside are shown of directories of which names or attributes are held for a guess (`decisions/0262`): the
//! kernel does not know it. The supervisor writes it down, and agents put it into the kernel's answers.

use core::sync::atomic::{AtomicU64, Ordering};

/// So many directories are known at once, each in one slot that others may take.
pub const DIRECTORIES: usize = 1024;
const WORDS: usize = 11;

/// Seconds and nanoseconds.
pub type Time = (i64, i64);

/// What differs from what the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownDirectory {
    /// So many links it has beyond those that the kernel counts.
    pub links_gained: i64,
    /// When its names were changed last (`st_mtime`).
    pub contents: Time,
    /// When anything of it was (`st_ctime`).
    pub changed: Time,
    /// What is held of its attributes. `None`: nothing, and the times are the kernel's if those are later.
    pub attributes: Option<ShownAttributes>,
}

/// Attributes that are as this says, whatever the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownAttributes {
    /// `st_mode`.
    pub mode: u32,
    /// `st_uid`.
    pub user: u32,
    /// `st_gid`.
    pub group: u32,
    /// When it was read last. `None`: when the kernel says.
    pub access: Option<Time>,
}

/// What is known, by the directory's device and inode.
#[repr(C)]
#[derive(Debug)]
pub struct Directories([Slot; DIRECTORIES]);

#[repr(C)]
#[derive(Debug)]
struct Slot {
    /// Device and inode; 0: nothing.
    inode: [AtomicU64; 2],
    words: [AtomicU64; WORDS],
}

impl Directories {
    fn slot_of((dev, ino): (u64, u64)) -> usize {
        (dev ^ ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % DIRECTORIES
    }

    /// What those inside are shown of a directory. It is so as long as no permit is revoked.
    pub fn of(&self, inode: (u64, u64)) -> Option<ShownDirectory> {
        let slot = &self.0[Self::slot_of(inode)];
        let is_it = || slot.inode.each_ref().map(|word| word.load(Ordering::Acquire)) == [inode.0, inode.1];
        if inode.1 == 0 || !is_it() {
            return None;
        }
        let words = slot.words.each_ref().map(|word| word.load(Ordering::Acquire));
        is_it().then(|| ShownDirectory::from_words(words))
    }

    /// Write down what is shown of a directory; its slot. The supervisor's.
    pub fn learn(&self, inode: (u64, u64), shown: ShownDirectory) -> usize {
        let number = Self::slot_of(inode);
        self.forget(number);
        let slot = &self.0[number];
        slot.words.iter().zip(shown.words()).for_each(|(place, word)| place.store(word, Ordering::SeqCst));
        slot.inode[0].store(inode.0, Ordering::SeqCst);
        slot.inode[1].store(inode.1, Ordering::SeqCst);
        number
    }

    /// What stands in this slot is not known any more. The supervisor's.
    pub fn forget(&self, slot: usize) {
        self.0[slot % DIRECTORIES].inode[1].store(0, Ordering::SeqCst);
    }
}

impl ShownDirectory {
    const HAS_ATTRIBUTES: u64 = 1;
    const HAS_ACCESS: u64 = 2;

    fn words(self) -> [u64; WORDS] {
        let has = |is_so: bool, bit: u64| if is_so { bit } else { 0 };
        let held = self.attributes.unwrap_or(ShownAttributes { mode: 0, user: 0, group: 0, access: None });
        let access = held.access.unwrap_or_default();
        let has_attributes = has(self.attributes.is_some(), Self::HAS_ATTRIBUTES);
        [
            has_attributes | has(held.access.is_some(), Self::HAS_ACCESS),
            self.links_gained as u64,
            self.contents.0 as u64,
            self.contents.1 as u64,
            self.changed.0 as u64,
            self.changed.1 as u64,
            u64::from(held.mode),
            u64::from(held.user),
            u64::from(held.group),
            access.0 as u64,
            access.1 as u64,
        ]
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let time = |at: usize| (words[at] as i64, words[at + 1] as i64);
        let attributes = || ShownAttributes {
            mode: words[6] as u32,
            user: words[7] as u32,
            group: words[8] as u32,
            access: (words[0] & Self::HAS_ACCESS != 0).then(|| time(9)),
        };
        Self {
            links_gained: words[1] as i64,
            contents: time(2),
            changed: time(4),
            attributes: (words[0] & Self::HAS_ATTRIBUTES != 0).then(attributes),
        }
    }

    /// Both times, where the kernel says these.
    pub fn times(&self, contents: Time, changed: Time) -> (Time, Time) {
        match self.attributes {
            Some(_) => (self.contents, self.changed),
            None => (self.contents.max(contents), self.changed.max(changed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Directories {
        let words = || core::array::from_fn(|_| AtomicU64::new(0));
        Directories(core::array::from_fn(|_| Slot { inode: [AtomicU64::new(0), AtomicU64::new(0)], words: words() }))
    }

    fn shown(seconds: i64) -> ShownDirectory {
        ShownDirectory { links_gained: -2, contents: (seconds, 7), changed: (seconds, 8), attributes: None }
    }

    #[test]
    fn what_is_shown_of_a_directory_is_known_until_it_is_forgotten() {
        let known = empty();
        let attributes = ShownAttributes { mode: 0o40755, user: 5, group: u32::MAX, access: Some((-1, 3)) };
        let more = ShownDirectory { attributes: Some(attributes), ..shown(i64::from(u32::MAX) + 9) };
        known.learn((8, 9), shown(-3));
        let slot = known.learn((8, 9), more);
        assert_eq!(known.of((8, 9)), Some(more));
        let less = ShownDirectory { attributes: Some(ShownAttributes { access: None, ..attributes }), ..more };
        known.learn((8, 9), less);
        assert_eq!(known.of((8, 9)), Some(less));
        assert!(known.of((9, 8)).is_none() && known.of((8, 10)).is_none() && known.of((0, 0)).is_none());
        known.forget(slot);
        assert!(known.of((8, 9)).is_none());
    }

    #[test]
    fn of_two_directories_in_one_slot_the_last_is_known() {
        let known = empty();
        let same = |ino: u64| Directories::slot_of((8, ino)) == Directories::slot_of((8, 9));
        let other = (10..).find(|&ino| same(ino)).unwrap();
        known.learn((8, 9), shown(1));
        known.learn((8, other), shown(2));
        assert_eq!((known.of((8, 9)), known.of((8, other))), (None, Some(shown(2))));
    }

    #[test]
    fn later_times_of_the_kernel_are_right_where_no_attribute_is_held() {
        assert_eq!(shown(5).times((5, 6), (6, 0)), ((5, 7), (6, 0)));
        let attributes = ShownAttributes { mode: 0, user: 0, group: 0, access: None };
        let held = ShownDirectory { attributes: Some(attributes), ..shown(5) };
        assert_eq!(held.times((9, 0), (9, 0)), ((5, 7), (5, 8)));
    }
}
