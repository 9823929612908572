//! Permits: calls that need not ask as long as nothing changes, whatever it is.
//!
//! A permit is the world's number at the moment when it was given. Whoever is about to change something revokes all
//! permits by taking the next number; it is never used again, so that a permit that somebody remembers, or that a
//! rollback brings back with his memory, means nothing later on.
//!
//! * *Publish, then look.* A thread publishes that it works on a permit before it looks whether that still holds, and
//!   takes it back after the call.
//! * *Revoke, then look.* Whoever gives an object dependencies that it did not have revokes first, and then looks
//!   whether a thread still works. One of the two sees the other.

use crate::planted::{planted, Fault};
use crate::{look_after, AtomicU64, Ordering};

/// The number of the permits that hold. All zeros is a world in which none was given.
#[repr(transparent)]
#[derive(Debug)]
pub struct Permits(AtomicU64);

impl Permits {
    /// None was given.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// What a permit that is given now is; 0 is none.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// No permit holds any more. Only the supervisor's.
    pub fn revoke(&self) {
        let next = self.0.load(Ordering::Relaxed) + 1;
        if planted(Fault::RevokedRelaxed) {
            return self.0.store(next, Ordering::Relaxed);
        }
        // Sequentially consistent: before the look at who works.
        self.0.swap(next, Ordering::SeqCst);
        look_after();
    }

    /// The same for whoever is about to give dependencies to an object: it must not, while `is_under_way` says that a
    /// thread still works.
    pub fn revoke_and_look(&self, is_under_way: impl FnOnce() -> bool) -> bool {
        if planted(Fault::WorkersLookedAtFirst) {
            let was_under_way = is_under_way();
            self.revoke();
            return was_under_way;
        }
        self.revoke();
        !planted(Fault::WorkersIgnored) && is_under_way()
    }
}

impl Default for Permits {
    fn default() -> Self {
        Self::new()
    }
}

/// What a call on a permit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Anything.
    Anything,
    /// What is in a pipe or socket, and nothing else: such a call may sleep until somebody puts something in.
    Stream,
}

/// Set beside the permit of a call that is about a stream. Permits never get there.
const STREAM: u64 = 1 << 63;

/// The permit on which a thread works now, and what about; all zeros is none.
#[repr(transparent)]
#[derive(Debug)]
pub struct Work(AtomicU64);

impl Work {
    /// It works on none.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether the thread may make its call on this permit. If so, it works until [`Work::end`].
    #[inline(always)]
    pub fn begin(&self, permits: &Permits, permit: u64, about: About) -> bool {
        let holds = || permit != 0 && permits.number() == permit;
        let early = planted(Fault::PermitLookedAtFirst).then(holds);
        if planted(Fault::WorkRelaxed) {
            self.0.store(published(permit, about), Ordering::Relaxed);
        } else if !planted(Fault::WorkNotPublished) {
            // Sequentially consistent: before the look at the number.
            self.0.swap(published(permit, about), Ordering::SeqCst);
            look_after();
        }
        let holds = early.unwrap_or_else(holds);
        if !holds {
            self.end();
        }
        holds
    }

    /// The supervisor lets a thread work that stands still: it need not look.
    pub fn begin_for(&self, permit: u64, about: About) {
        self.0.store(published(permit, about), Ordering::SeqCst);
    }

    /// The call is over: its effects are there. Or the thread was taken out of it, or has ended.
    #[inline(always)]
    pub fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether the thread is in a call for which nobody was asked.
    #[inline(always)]
    pub fn is_under_way(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Whether the thread is in such a call that may be about more than what is in a stream.
    #[inline(always)]
    pub fn is_under_way_elsewhere(&self) -> bool {
        let published = self.0.load(Ordering::SeqCst);
        published != 0 && published & STREAM == 0
    }
}

fn published(permit: u64, about: About) -> u64 {
    match about {
        About::Anything if !planted(Fault::StreamPublished) => permit,
        _ => permit | STREAM,
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::new()
    }
}
