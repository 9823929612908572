//! A door behind which a thread waits for a child. While the supervisor holds it shut, no instruction of the thread's
//! program runs, so that the thread can be changed where it sleeps, and changed back, and nobody in it knows.

use core::sync::atomic::{AtomicU32, Ordering};

const OUTSIDE: u32 = 0;
const BEHIND: u32 = 1;
const SHUT: u32 = 2;

/// The agent goes in before the program's call and comes out after it; the supervisor shuts it and opens it.
///
/// **Invariant:** only the supervisor shuts it, and it opens it again before it does anything else.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Door(AtomicU32);

impl Door {
    /// The thread goes in: its next system call waits.
    #[inline(always)]
    pub fn enter(&self) {
        self.0.store(BEHIND, Ordering::Release);
    }

    /// The thread comes out. False while the door is shut: try again.
    #[inline(always)]
    pub fn leave(&self) -> bool {
        self.0.compare_exchange(BEHIND, OUTSIDE, Ordering::AcqRel, Ordering::Acquire) != Err(SHUT)
    }

    /// A thread that is stopped is taken out, or the slot gets a new thread.
    pub fn reset(&self) {
        self.0.store(OUTSIDE, Ordering::Release);
    }

    /// Keep the thread in. False if it is not behind the door.
    pub fn shut(&self) -> bool {
        self.0.compare_exchange(BEHIND, SHUT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// After `shut`: let it out.
    pub fn open(&self) {
        // Whoever was taken out meanwhile stays outside.
        let _ = self.0.compare_exchange(SHUT, BEHIND, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_behind_it_can_be_kept() {
        let door = Door::default();
        assert!(!door.shut());
        door.enter();
        assert!(door.shut());
        assert!(!door.leave());
        assert!(!door.shut());
        door.open();
        assert!(door.leave());
        assert!(!door.shut());
    }

    #[test]
    fn whoever_was_taken_out_is_not_put_back() {
        let door = Door::default();
        door.enter();
        assert!(door.shut());
        door.reset();
        door.open();
        assert!(!door.shut());
        assert!(door.leave());
    }
}
