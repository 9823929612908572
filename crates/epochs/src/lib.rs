//! Dependencies on guesses, in memory that all processes of a world share (000, section 6; decisions/0056).
//!
//! A guess is a member of the open *epoch*; epochs are numbered from 1, commit in order and are never used twice. A
//! process and an object each have the newest epoch that they depend on. A call needs nobody's help if the process
//! already depends on all that the objects depend on, and if each object that it modifies depends on what the process
//! depends on: then what undoes the modification was kept before. Otherwise a thread that modifies an object for the
//! first time in an epoch keeps what was there by itself, and everything else asks the supervisor.
//!
//! Four rules make that safe; `tests/loom.rs` breaks each of them and is told.
//!
//! * *Publish, then look.* A thread publishes the objects of its call before it looks at them, and takes that back
//!   after the call. Whoever changes an object's epoch marks the object as changing, and then looks at what is
//!   published. One of the two sees the other.
//! * *An object's epoch changes only while the object is marked and nobody else works on it.*
//! * *A process's epoch changes only while none of its threads works on anything*: the supervisor stops them.
//! * *What undoes a modification is kept before the object's epoch is raised, and that before the modification.*
#![no_std]
#![forbid(unsafe_code)]

#[cfg(loom)]
extern crate std;

mod agent;
mod object;
mod permit;
#[cfg(loom)]
pub mod planted;
#[cfg(not(loom))]
mod planted;
mod supervisor;
mod thread;
mod young;

pub use agent::{Ask, Want};
pub use object::Object;
pub use permit::{About, Permits, Work};
pub use supervisor::{Asker, Busy};
pub use thread::{Process, Thread, OBJECTS_MAX};
pub use young::YoungPipes;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

/// After a sequentially consistent exchange and before the look that has to come after it. The exchange alone is
/// enough for that; loom knows the order of fences only.
#[inline(always)]
pub(crate) fn look_after() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Number of an epoch; 0 means that something depends on nothing.
pub type Epoch = u64;

/// What the whole world has: its newest epoch, and the newest that is committed.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Epochs {
    current: AtomicU64,
    committed: AtomicU64,
}

impl Epochs {
    /// No epoch was opened.
    pub fn new() -> Self {
        Self { current: AtomicU64::new(0), committed: AtomicU64::new(0) }
    }

    /// The newest epoch that is committed. Only a hint to whoever does not commit: it grows.
    #[inline(always)]
    pub fn committed(&self) -> Epoch {
        self.committed.load(Ordering::Acquire)
    }

    /// What an epoch is worth now: nothing, if it is committed.
    #[inline(always)]
    pub fn open_part(&self, epoch: Epoch) -> Epoch {
        if epoch > self.committed() {
            epoch
        } else {
            0
        }
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}
