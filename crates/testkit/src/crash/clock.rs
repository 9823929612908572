//! The one clock of disk and observer. It counts events; it does not measure time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Something that may hold output which has left the workload and is not stamped yet.
pub(super) trait Tap: Send + Sync {
    /// Takes in and stamps what is there, without waiting.
    fn drain(&self);
}

/// Counts the events of disk and observer. Clones are the same clock.
#[derive(Clone, Default)]
pub struct Clock {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    next: AtomicU64,
    taps: Mutex<Vec<Weak<dyn Tap>>>,
}

impl Clock {
    /// A clock that stands at 0.
    pub fn new() -> Clock {
        Clock::default()
    }

    /// The value that the next event gets.
    pub fn now(&self) -> u64 {
        self.inner.next.load(Ordering::SeqCst)
    }

    /// Stamps an event of the disk: all output that left before it is stamped first.
    pub fn stamp(&self) -> u64 {
        let taps = self.inner.taps.lock();
        for tap in taps.unwrap_or_else(PoisonError::into_inner).iter() {
            if let Some(tap) = tap.upgrade() {
                tap.drain();
            }
        }
        self.stamp_message()
    }

    /// Stamps a message; called by taps.
    pub(super) fn stamp_message(&self) -> u64 {
        self.inner.next.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn add_tap(&self, tap: Weak<dyn Tap>) {
        let taps = self.inner.taps.lock();
        let mut taps = taps.unwrap_or_else(PoisonError::into_inner);
        taps.retain(|tap| tap.strong_count() > 0);
        taps.push(tap);
    }
}
