//! What this mount has open: files, and locks that are to be given back.

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bluefs::Ino;

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Owners that may have locks.
    owners: BTreeMap<(Ino, u64), Owner>,
    /// How many locks by `flock` were given back.
    given_back: u64,
}

/// Somebody who may have locks on a file: a process, or an open file. The kernel's number of an open file is free for
/// the next one before RELEASE of the first is read; the handle is never used again.
#[derive(Debug)]
struct Owner {
    /// The open file through which the last lock was asked for.
    handle: u64,
    /// There is a lock by `flock`.
    has_flock: bool,
    /// The open file may be closing.
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

    /// A file is opened.
    pub fn open(&self) -> u64 {
        let mut state = self.state();
        state.last += 1;
        state.last
    }

    /// Whether this owner may have locks on the file that were asked for through another open file.
    pub fn has_asked_through_another(&self, ino: Ino, owner: u64, handle: u64) -> bool {
        self.state().owners.get(&(ino, owner)).is_some_and(|asked| asked.handle != handle)
    }

    /// An owner is about to ask for a lock through this open file. If the owner is an open file (`is_open_file`) that
    /// has the number of a closed one, whose RELEASE is not read yet, `give_back` is called first.
    pub fn asks(&self, ino: Ino, owner: u64, handle: u64, is_open_file: bool, give_back: impl FnOnce()) {
        let mut state = self.state();
        let asking = Owner { handle, has_flock: false, may_close: false };
        match state.owners.entry((ino, owner)) {
            Entry::Vacant(owners) => _ = owners.insert(asking),
            Entry::Occupied(mut owners) if owners.get().handle != handle && is_open_file => {
                let closed = owners.insert(asking);
                give_back();
                self.forgotten(&mut state, &closed);
            }
            Entry::Occupied(mut owners) => owners.get_mut().handle = handle,
        }
    }

    /// An owner was given a lock through this open file. While it waited, it may have closed another descriptor of the
    /// file, and was forgotten ([`Handles::closes`]).
    pub fn gets(&self, ino: Ino, owner: u64, handle: u64) {
        let asked = Owner { handle, has_flock: false, may_close: false };
        self.state().owners.entry((ino, owner)).or_insert(asked);
    }

    /// The owner is a process that closes the file. Whether it may have had locks.
    pub fn closes(&self, ino: Ino, owner: u64) -> bool {
        let mut state = self.state();
        let closed = state.owners.remove(&(ino, owner));
        closed.iter().for_each(|owner| self.forgotten(&mut state, owner));
        closed.is_some()
    }

    /// An open file is closed. Calls `give_back` for each owner that may have locks through it, before anybody can ask
    /// for a lock under the same number.
    pub fn released(&self, ino: Ino, handle: u64, give_back: impl Fn(u64)) {
        let mut state = self.state();
        let of_file = state.owners.range((ino, 0)..=(ino, u64::MAX)).filter(|(_, owner)| owner.handle == handle);
        let closed: Vec<u64> = of_file.map(|((_, number), _)| *number).collect();
        for number in closed {
            give_back(number);
            if let Some(owner) = state.owners.remove(&(ino, number)) {
                self.forgotten(&mut state, &owner);
            }
        }
    }

    /// Wakes those who wait for a lock by `flock` that was given back.
    fn forgotten(&self, state: &mut State, owner: &Owner) {
        if owner.has_flock {
            state.given_back += 1;
            self.unlocked.notify_all();
        }
    }

    /// An owner has a lock by `flock` now, or has it no more.
    pub fn set_flock(&self, ino: Ino, owner: u64, has: bool) {
        let mut state = self.state();
        let Some(owner) = state.owners.get_mut(&(ino, owner)) else { return };
        if std::mem::replace(&mut owner.has_flock, has) && !has {
            state.given_back += 1;
            self.unlocked.notify_all();
        }
    }

    /// A descriptor of this open file is closed: if it is the last one, the open file is, too.
    pub fn may_close(&self, ino: Ino, handle: u64) {
        let mut state = self.state();
        let owners = state.owners.range_mut((ino, 0)..=(ino, u64::MAX));
        owners.filter(|(_, owner)| owner.handle == handle).for_each(|(_, owner)| owner.may_close = true);
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
            let others = state.owners.range_mut((ino, 0)..=(ino, u64::MAX)).filter(|((_, other), _)| *other != owner);
            let mut closing = others.filter(|(_, other)| other.has_flock && other.may_close).peekable();
            let left = until.saturating_duration_since(Instant::now());
            if closing.peek().is_none() || left.is_zero() {
                // Another descriptor has it open: who comes next does not wait for that.
                closing.for_each(|(_, other)| other.may_close = false);
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

    /// An owner gets a lock by `flock` through this open file.
    fn locked(handles: &Handles, ino: Ino, owner: u64, handle: u64) {
        handles.asks(ino, owner, handle, true, || panic!("nothing to give back"));
        handles.set_flock(ino, owner, true);
    }

    #[test]
    fn only_an_open_file_that_may_be_closing_is_waited_for() {
        let (handles, ino) = (Handles::default(), Ino(5));
        locked(&handles, ino, 1, 7);
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
            handles.released(ino, 7, |owner| assert_eq!(owner, 1));
            assert!(waits.join().expect("no panic"));
        });
    }

    /// fcntl(2), of threads: one waits for a lock while another one opens the file and closes it again.
    #[test]
    fn who_closes_a_file_while_it_waits_for_a_lock_may_have_that_lock() {
        let (handles, ino) = (Handles::default(), Ino(5));
        handles.asks(ino, 1, 7, false, || panic!("nothing to give back"));
        assert!(handles.closes(ino, 1) && !handles.closes(ino, 1));
        handles.gets(ino, 1, 7);
        assert!(handles.closes(ino, 1));
        locked(&handles, ino, 2, 8);
        handles.gets(ino, 2, 8);
        handles.released(ino, 8, |owner| assert_eq!(owner, 2));
        assert_eq!(handles.flocks_given_back(), 1, "what is known of an owner stays");
    }

    #[test]
    fn an_open_file_with_the_number_of_a_closed_one_keeps_its_lock() {
        let (handles, ino) = (Handles::default(), Ino(5));
        let given_back = |handle| {
            let owners = Mutex::new(Vec::new());
            handles.released(ino, handle, |owner| owners.lock().expect("no panic").push(owner));
            owners.into_inner().expect("no panic")
        };
        locked(&handles, ino, 1, 7);
        let mut first = 0;
        handles.asks(ino, 1, 8, true, || first += 1);
        handles.set_flock(ino, 1, true);
        assert_eq!((first, handles.flocks_given_back()), (1, 1), "the lock of the first one is given back");
        assert_eq!(given_back(7), [], "RELEASE of the first one takes no lock of the second one");
        assert_eq!((given_back(8), handles.flocks_given_back()), (vec![1], 2));
        // In the other order.
        locked(&handles, ino, 1, 9);
        assert_eq!(given_back(9), [1]);
        locked(&handles, ino, 1, 10);
        assert_eq!(given_back(10), [1]);
    }

    #[test]
    fn a_process_has_locks_through_several_open_files() {
        let (handles, ino) = (Handles::default(), Ino(5));
        for handle in [7, 8] {
            handles.asks(ino, 3, handle, false, || panic!("a process keeps what it has"));
        }
        handles.released(ino, 7, |_| panic!("it is given back when the process closes the file"));
        assert!(handles.closes(ino, 3) && !handles.closes(ino, 3));
    }
}
