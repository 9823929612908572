//! What this mount has open: listings of directories, and locks that are to be given back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bluefs::{Ino, Kind};

/// Names of a directory as they were when they were read from the beginning: name, inode, kind.
pub type Listing = Vec<(Vec<u8>, Ino, Kind)>;

#[derive(Debug, Default)]
struct State {
    last: u64,
    listings: BTreeMap<u64, Listing>,
    locked: BTreeSet<(Ino, u64)>,
    /// Owners that have a lock by `flock`, each with its open file, and whether that may be closing.
    flocks: BTreeMap<(Ino, u64), Flock>,
    /// How many of these were given back.
    given_back: u64,
}

#[derive(Debug)]
struct Flock {
    handle: u64,
    may_close: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Handles {
    state: Mutex<State>,
    unlocked: Condvar,
}

impl Handles {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file or a directory is opened.
    pub fn open(&self) -> u64 {
        let mut state = self.state();
        state.last += 1;
        state.last
    }

    /// A directory was read from its beginning.
    pub fn set_listing(&self, handle: u64, listing: Listing) {
        self.state().listings.insert(handle, listing);
    }

    /// Calls `each` for the names from `offset` on until it says that there is no room, with the offset behind each.
    pub fn read_listing(&self, handle: u64, offset: u64, mut each: impl FnMut(u64, &[u8], Ino, Kind) -> bool) {
        let state = self.state();
        let listing = state.listings.get(&handle).map_or(&[][..], Vec::as_slice);
        for (i, (name, ino, kind)) in listing.iter().enumerate().skip(offset as usize) {
            if each(i as u64 + 1, name, *ino, *kind) {
                break;
            }
        }
    }

    /// A directory is closed.
    pub fn close_dir(&self, handle: u64) {
        self.state().listings.remove(&handle);
    }

    /// This owner may have locks on this file.
    pub fn locked(&self, ino: Ino, owner: u64) {
        self.state().locked.insert((ino, owner));
    }

    /// The owner closes the file. Whether it may have had locks.
    pub fn unlock(&self, ino: Ino, owner: u64) -> bool {
        self.state().locked.remove(&(ino, owner))
    }

    /// Nobody here has the file open any more: the owners that may have locks on it.
    pub fn unlock_all(&self, ino: Ino) -> Vec<u64> {
        let mut state = self.state();
        let owners: Vec<u64> = state.locked.range((ino, 0)..=(ino, u64::MAX)).map(|(_, owner)| *owner).collect();
        owners.iter().for_each(|owner| _ = state.locked.remove(&(ino, *owner)));
        owners
    }

    /// An owner has a lock by `flock` now, through this open file.
    pub fn has_flock(&self, ino: Ino, owner: u64, handle: u64) {
        self.state().flocks.insert((ino, owner), Flock { handle, may_close: false });
    }

    /// An owner has no lock by `flock` any more.
    pub fn has_no_flock(&self, ino: Ino, owner: u64) {
        let mut state = self.state();
        if state.flocks.remove(&(ino, owner)).is_some() {
            state.given_back += 1;
            self.unlocked.notify_all();
        }
    }

    /// A descriptor of this open file is closed: if it is the last one, the open file is, too.
    pub fn may_close(&self, ino: Ino, handle: u64) {
        let mut state = self.state();
        let flocks = state.flocks.range_mut((ino, 0)..=(ino, u64::MAX));
        flocks.filter(|(_, flock)| flock.handle == handle).for_each(|(_, flock)| flock.may_close = true);
    }

    /// How many locks by `flock` were given back.
    pub fn flocks_given_back(&self) -> u64 {
        self.state().given_back
    }

    /// Waits while an open file may be closing through which another owner has a lock by `flock` on this file, and none
    /// was given back since there were so many of these. Whether one was.
    pub fn wait_for_flock(&self, ino: Ino, owner: u64, given_back: u64, until: Instant) -> bool {
        let mut state = self.state();
        loop {
            if state.given_back != given_back {
                return true;
            }
            let others = state.flocks.range_mut((ino, 0)..=(ino, u64::MAX));
            let mut closing = others.filter(|((_, other), flock)| *other != owner && flock.may_close).peekable();
            let left = until.saturating_duration_since(Instant::now());
            if closing.peek().is_none() || left.is_zero() {
                // Another descriptor has it open: who comes next does not wait for that.
                closing.for_each(|(_, flock)| flock.may_close = false);
                return false;
            }
            let waited = self.unlocked.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_an_open_file_that_may_be_closing_is_waited_for() {
        let (handles, ino) = (Handles::default(), Ino(5));
        handles.has_flock(ino, 1, 7);
        let until = || Instant::now() + Duration::from_millis(20);
        let long = Instant::now() + Duration::from_secs(60);
        assert!(!handles.wait_for_flock(ino, 2, 0, long), "nobody closes it");
        handles.may_close(ino, 8);
        assert!(!handles.wait_for_flock(ino, 2, 0, long), "another open file is closed");
        handles.may_close(ino, 7);
        assert!(!handles.wait_for_flock(ino, 1, 0, long), "it is the owner's own");
        let end = until();
        assert!(!handles.wait_for_flock(ino, 2, 0, end) && Instant::now() >= end);
        assert!(!handles.wait_for_flock(ino, 2, 0, long), "it was a copy that was closed");
        handles.may_close(ino, 7);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| handles.wait_for_flock(ino, 2, 0, long));
            std::thread::sleep(Duration::from_millis(20));
            handles.has_no_flock(ino, 1);
            assert!(waits.join().expect("no panic"));
        });
    }
}
