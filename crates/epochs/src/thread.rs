//! What a thread works on, and what its process depends on.

use crate::planted::{planted, Fault};
use crate::{look_after, AtomicU64, Epoch, Ordering};

/// How many objects a call may touch without asking.
pub const OBJECTS_MAX: usize = 4;

/// A published word: this slot, counted from 1.
fn word(slot: usize) -> u64 {
    slot as u64 + 1
}

/// The objects that a thread's call works on.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Thread {
    /// 0 where there is none. The first one is published last.
    slots: [AtomicU64; OBJECTS_MAX],
}

impl Thread {
    /// A thread that makes no call.
    pub fn new() -> Self {
        Self { slots: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Publishes slots: from now on nobody changes their epochs, until [`Thread::clear`].
    #[inline(always)]
    pub(crate) fn publish(&self, slots: impl Iterator<Item = usize>) {
        let mut first = 0;
        for (at, slot) in slots.take(OBJECTS_MAX).enumerate() {
            if at == 0 {
                first = word(slot);
            } else {
                self.slots[at].store(word(slot), Ordering::Relaxed);
            }
        }
        if planted(Fault::PublishedRelaxed) {
            self.slots[0].store(first, Ordering::Relaxed);
            return;
        }
        // Sequentially consistent: before the look at the objects.
        self.slots[0].swap(first, Ordering::SeqCst);
        look_after();
    }

    /// The call is over: its effects are there.
    #[inline(always)]
    pub fn clear(&self) {
        for slot in self.slots.iter().skip(1) {
            if slot.load(Ordering::Relaxed) != 0 {
                slot.store(0, Ordering::Release);
            }
        }
        self.slots[0].store(0, Ordering::Release);
    }

    /// Whether its call works on the slot.
    #[inline(always)]
    pub fn works_on(&self, slot: usize) -> bool {
        // The first one is read first: once it is seen, so are the others.
        let first = self.slots[0].load(Ordering::SeqCst);
        if planted(Fault::OnlyFirstSeen) {
            return first == word(slot);
        }
        first != 0
            && (first == word(slot) || self.slots.iter().skip(1).any(|held| held.load(Ordering::Acquire) == word(slot)))
    }

    /// Whether its call works on anything.
    #[inline(always)]
    pub fn works(&self) -> bool {
        self.slots[0].load(Ordering::SeqCst) != 0
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

/// What a process depends on.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Process {
    epoch: AtomicU64,
    /// Not 0 while each of its calls has to ask.
    ask: AtomicU64,
}

impl Process {
    /// A process that depends on what its parent depends on.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch: AtomicU64::new(epoch), ask: AtomicU64::new(0) }
    }

    /// The newest epoch that it depends on.
    #[inline(always)]
    pub fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Acquire)
    }

    /// Only while none of its threads works on anything.
    pub(crate) fn set_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Whether each of its calls has to ask.
    #[inline(always)]
    pub fn asks(&self) -> bool {
        self.ask.load(Ordering::Acquire) != 0
    }

    /// Whether each of its calls has to ask from now on. A call that is under way does not hear of it: who sets this
    /// interrupts the threads.
    pub fn set_asks(&self, asks: bool) {
        self.ask.store(u64::from(asks), Ordering::Release);
    }
}
