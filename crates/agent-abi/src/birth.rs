//! What is known of a child until the supervisor has seen it.

use core::sync::atomic::{AtomicU64, Ordering};

/// A child that was made, or is being made, and that the supervisor has not seen: it may be killed before it stops for
/// the first time. What its maker says of it then tells which slots it had.
///
/// The slot may be somebody else's as soon as the child was seen, so that its maker changes only what it wrote there
/// itself: each birth has a word of its own.
#[repr(transparent)]
#[derive(Debug)]
pub struct Birth(AtomicU64);

impl Birth {
    /// The word has a child's thread id.
    const MADE: u64 = 1 << 63;
    /// The child is a thread of its maker's process.
    const THREAD: u64 = 1 << 62;

    /// The thread in slot `maker` is about to make a child, in its call `count`. Answers the word of this birth.
    pub fn begin(&self, maker: usize, count: u32, is_thread: bool) -> u64 {
        let kind = if is_thread { Self::THREAD } else { 0 };
        let word = kind | (maker as u64 + 1) << 32 | u64::from(count);
        self.0.store(word, Ordering::Release);
        word
    }

    /// The child of this birth has this id, as the supervisor counts. Nothing if it was seen already.
    pub fn made(&self, word: u64, tid: u32) {
        let made = Self::MADE | word & Self::THREAD | u64::from(tid);
        let _ = self.0.compare_exchange(word, made, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The child was seen, or there is none.
    pub fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The child's id, if it was made and not seen.
    pub fn unseen(&self) -> Option<u32> {
        let word = self.0.load(Ordering::Acquire);
        (word & Self::MADE != 0).then_some(word as u32)
    }

    /// Whether a thread of its maker's process was made, or is being made, that was not seen: it ends with its process.
    pub fn is_unseen_thread(&self) -> bool {
        self.0.load(Ordering::Acquire) & Self::THREAD != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maker_says_whom_it_has_made_until_somebody_has_seen_the_child() {
        let birth = Birth(AtomicU64::new(0));
        let word = birth.begin(7, 1000, false);
        assert_eq!(birth.unseen(), None);
        birth.made(word, 4711);
        assert_eq!(birth.unseen(), Some(4711));
        assert!(!birth.is_unseen_thread());
        birth.end();
        assert_eq!(birth.unseen(), None);
    }

    #[test]
    fn who_was_seen_first_is_not_unseen_any_more() {
        let birth = Birth(AtomicU64::new(0));
        let earlier = birth.begin(7, 1000, true);
        assert!(birth.is_unseen_thread());
        birth.end();
        birth.made(earlier, 4711);
        assert_eq!((birth.unseen(), birth.is_unseen_thread()), (None, false));
    }

    #[test]
    fn a_slot_that_is_another_ones_already_is_left_alone() {
        let birth = Birth(AtomicU64::new(0));
        let earlier = birth.begin(7, 1000, true);
        for (maker, count) in [(7, 1001), (8, 1000), (agent_max(), u32::MAX)] {
            birth.end();
            let word = birth.begin(maker, count, true);
            birth.made(earlier, 4711);
            assert_eq!(birth.unseen(), None);
            birth.made(word, u32::MAX);
            assert_eq!((birth.unseen(), birth.is_unseen_thread()), (Some(u32::MAX), true));
        }
    }

    fn agent_max() -> usize {
        crate::THREADS_MAX - 1
    }
}
