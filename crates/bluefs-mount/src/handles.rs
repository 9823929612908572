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
    /// Owners that have a lock by `flock`.
    flocks: BTreeSet<(Ino, u64)>,
    /// How many of these were given back.
    given_back: u64,
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

    /// A directory is opened.
    pub fn open_dir(&self) -> u64 {
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

    /// An owner has a lock by `flock` now, or has none any more.
    pub fn set_flock(&self, ino: Ino, owner: u64, has: bool) {
        let mut state = self.state();
        if has {
            state.flocks.insert((ino, owner));
        } else if state.flocks.remove(&(ino, owner)) {
            state.given_back += 1;
            self.unlocked.notify_all();
        }
    }

    /// How many locks by `flock` were given back.
    pub fn flocks_given_back(&self) -> u64 {
        self.state().given_back
    }

    /// Waits while another owner here has a lock by `flock` on this file, and none was given back since there were so
    /// many of these. Whether one was.
    pub fn wait_for_flock(&self, ino: Ino, owner: u64, given_back: u64, until: Instant) -> bool {
        let mut state = self.state();
        loop {
            if state.given_back != given_back {
                return true;
            }
            let mut owners = state.flocks.range((ino, 0)..=(ino, u64::MAX));
            let left = until.saturating_duration_since(Instant::now());
            if owners.all(|(_, other)| *other == owner) || left.is_zero() {
                return false;
            }
            let waited = self.unlocked.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
