//! A thread that has confined itself to one core while it makes a child, and who frees it: itself when the child has
//! been made, or the supervisor, before the child can look at its parent, and when it takes the thread out of the
//! agent.

use core::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const CONFINED: u32 = 1;
const FREES_ITSELF: u32 = 2;
const IS_BEING_FREED: u32 = 3;

/// Whether a thread is confined.
///
/// **Invariant:** the thread does not leave the agent before whoever frees it is done: its program may confine it again
/// at once.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Confinement(AtomicU32);

impl Confinement {
    /// The thread is about to confine itself.
    pub fn begin(&self) {
        self.0.store(CONFINED, Ordering::Release);
    }

    /// The thread frees itself with `free`, unless the supervisor does it: then it waits with `wait` until that is
    /// done.
    pub fn end(&self, free: impl FnOnce(), wait: impl Fn()) {
        let change = |from, to| self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if change(CONFINED, FREES_ITSELF) {
            free();
            change(FREES_ITSELF, FREE);
        }
        while self.0.load(Ordering::Acquire) != FREE {
            wait();
        }
    }

    /// The supervisor frees the thread with `free` if it is not free yet.
    pub fn end_for(&self, free: impl FnOnce()) {
        let shut = |state| (state != FREE).then_some(IS_BEING_FREED);
        if self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, shut).is_ok() {
            free();
            self.0.store(FREE, Ordering::Release);
        }
    }

    /// The slot gets a new thread.
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn it_is_freed_once() {
        let (confinement, freed) = (Confinement::default(), Cell::new(0));
        let free = || freed.set(freed.get() + 1);
        let never = || panic!("nobody else frees it");
        confinement.end(free, never);
        confinement.end_for(free);
        assert_eq!(freed.get(), 0);
        confinement.begin();
        confinement.end(free, never);
        confinement.end_for(free);
        assert_eq!(freed.get(), 1);
        confinement.begin();
        confinement.end_for(free);
        confinement.end(free, never);
        assert_eq!(freed.get(), 2);
    }

    #[test]
    fn a_thread_waits_for_the_supervisor_that_frees_it() {
        let (confinement, waited) = (Confinement::default(), Cell::new(0));
        confinement.begin();
        let supervisor_begins = || confinement.0.store(IS_BEING_FREED, Ordering::Release);
        let supervisor_ends = || {
            waited.set(waited.get() + 1);
            confinement.0.store(FREE, Ordering::Release);
        };
        confinement.end(supervisor_begins, supervisor_ends);
        assert_eq!(waited.get(), 1);
    }
}
