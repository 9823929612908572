//! Pipes that were made on a guess and that all who have them depend on alike (decisions/0231): calls on these need no
//! question.
//!
//! A pipe is young for one *epoch* of the world. An epoch ends when a guess is made or resolved and when a checkpoint
//! is taken. While it lasts, only processes have the pipe that depend on all guesses that are open: the one that made
//! it, and those born to it since. What one of them reads there adds nothing to what it depends on, and a rollback
//! takes back all of them, and the pipe.
//!
//! *Look at the permit first.* A thread looks up the permit, then the epoch and the pipe, and then publishes that it
//! works on that permit. Whoever ends an epoch changes it first, and then revokes.

use crate::planted::{planted, Fault};
use crate::{About, AtomicU64, Ordering, Permits, Work};

/// How many pipes are known to be young. One that is forgotten is asked about.
const YOUNG_PIPES: usize = if cfg!(loom) { 4 } else { 4096 };
/// So many places one pipe may have.
const PLACES: usize = 4;

/// Which pipes are young.
#[repr(C)]
#[derive(Debug)]
pub struct YoungPipes {
    /// What calls on them are published with. Revoked with each end of an epoch.
    permits: Permits,
    /// The epoch; 0: there is none.
    epoch: AtomicU64,
    /// The same, or 0: for now all calls are asked about.
    unasked: AtomicU64,
    /// Of pipe and epoch.
    slots: [AtomicU64; YOUNG_PIPES],
}

impl YoungPipes {
    /// None is known. All zeros are that.
    pub fn new() -> Self {
        Self {
            permits: Permits::new(),
            epoch: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
            slots: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Whether a thread may make a call on a pipe alone, of which `is_young` says whether it is young in an epoch. If
    /// so, the thread works until [`Work::end`].
    #[inline(always)]
    pub fn begin(&self, work: &Work, is_young: impl FnOnce(u64) -> bool) -> bool {
        let permit = self.permits.number();
        let epoch = self.unasked();
        epoch != 0 && is_young(epoch) && work.begin(&self.permits, permit, About::Stream)
    }

    /// The epoch in which a pipe is made; 0: there is none.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// The epoch of the pipes of which nobody need be asked; 0: of all somebody has to.
    fn unasked(&self) -> u64 {
        self.unasked.load(Ordering::SeqCst)
    }

    /// The supervisor's: another epoch begins, or none. Calls that have begun go on.
    pub fn begin_epoch(&self, epoch: u64) {
        self.suspend();
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    /// The supervisor's: for now all calls are asked about. Those that have begun go on.
    pub fn suspend(&self) {
        if planted(Fault::EpochEndedLast) {
            self.permits.revoke();
            return self.unasked.store(0, Ordering::SeqCst);
        }
        if self.unasked.swap(0, Ordering::SeqCst) != 0 {
            self.permits.revoke();
        }
    }

    /// The supervisor's: of pipes of this epoch nobody need be asked.
    pub fn go_on(&self) {
        if self.permits.number() == 0 {
            // 0 is none.
            self.permits.revoke();
        }
        self.unasked.store(self.epoch(), Ordering::SeqCst);
    }

    /// A pipe (its hash) was made in this epoch, which may be over.
    pub fn note(&self, pipe: u64, epoch: u64) {
        let word = word(pipe, epoch);
        let places = self.places(word);
        let free = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
        // Those of epochs that are over are not told from others: which one goes is as good as chance.
        let place = places.iter().find(free).unwrap_or(&places[(word >> 32) as usize % PLACES]);
        place.store(word, Ordering::SeqCst);
    }

    /// Whether a pipe was made in this epoch.
    pub fn has(&self, pipe: u64, epoch: u64) -> bool {
        let word = word(pipe, epoch);
        epoch != 0 && self.places(word).iter().any(|place| place.load(Ordering::SeqCst) == word)
    }

    fn places(&self, word: u64) -> &[AtomicU64] {
        let first = word as usize % (YOUNG_PIPES / PLACES) * PLACES;
        &self.slots[first..first + PLACES]
    }
}

impl Default for YoungPipes {
    fn default() -> Self {
        Self::new()
    }
}

/// Never 0.
fn word(pipe: u64, epoch: u64) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let product = u128::from(pipe.rotate_left(32) ^ epoch.wrapping_mul(MULTIPLIER)) * u128::from(MULTIPLIER);
    ((product >> 64) as u64 ^ product as u64).max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_young_in_its_epoch_alone() {
        let (young, work) = (YoungPipes::new(), Work::new());
        let may_work = |pipe: u64| {
            let may = young.begin(&work, |epoch| young.has(pipe, epoch));
            work.end();
            may
        };
        young.note(40, 7);
        assert!(young.has(40, 7) && !young.has(40, 8) && !young.has(41, 7) && !young.has(40, 0));
        assert!(!may_work(40), "there is no epoch");
        young.begin_epoch(7);
        assert!(young.epoch() == 7 && !may_work(40), "it is suspended");
        young.go_on();
        assert!(may_work(40) && !may_work(41));
        young.suspend();
        assert!(young.epoch() == 7 && !may_work(40));
        young.go_on();
        assert!(may_work(40));
        young.begin_epoch(8);
        young.go_on();
        assert!(!may_work(40));
    }

    #[test]
    fn as_many_are_known_as_there_is_room_for() {
        let young = YoungPipes::new();
        (0..100_000).for_each(|pipe| young.note(pipe, 8));
        let known = (0..100_000).filter(|&pipe| young.has(pipe, 8)).count();
        assert!((3_000..=YOUNG_PIPES).contains(&known), "{known}");
    }
}
