//! The locks that a session has, so that it can reclaim them from a server that was started again, and so that whoever
//! has lost one is told.

use std::collections::{BTreeMap, BTreeSet};

use bluefs::Ino;
use bluefs_wire::{LockKind, LockRequest};

/// All of them.
#[derive(Debug, Default)]
pub struct OwnLocks {
    /// Of each file and owner. Later ones were given later: in their bytes they replace the earlier ones.
    held: BTreeMap<(Ino, u64), Vec<LockRequest>>,
    /// What is reclaimed, until the server has answered.
    reclaimed: BTreeMap<u64, LockRequest>,
    lost: BTreeSet<Ino>,
}

impl OwnLocks {
    /// A lock is asked for. What is given back is not the session's from then on.
    pub fn asked(&mut self, lock: &LockRequest) {
        if lock.kind == LockKind::Unlock {
            self.take_out(lock);
        }
    }

    /// A lock is given.
    pub fn given(&mut self, lock: &LockRequest) {
        self.take_out(lock);
        if lock.kind != LockKind::Unlock {
            self.held.entry((lock.ino, lock.owner)).or_default().push(LockRequest { wait: false, ..*lock });
        }
    }

    /// All bytes of a lock, in parts: what the session has locked of them, as a request for the same lock, and what it
    /// has not, as a request to unlock that.
    pub fn before(&self, lock: &LockRequest) -> Vec<LockRequest> {
        let held = self.held.get(&(lock.ino, lock.owner)).into_iter().flatten();
        let had = held.filter(|one| one.start <= lock.end && lock.start <= one.end);
        let mut had: Vec<LockRequest> = had
            .map(|one| LockRequest {
                start: one.start.max(lock.start),
                end: one.end.min(lock.end),
                wait: false,
                ..*one
            })
            .collect();
        had.sort_unstable_by_key(|one| one.start);
        let gap = |start, end| LockRequest { kind: LockKind::Unlock, start, end, wait: false, ..*lock };
        let mut parts = Vec::new();
        let mut next = Some(lock.start);
        for one in had {
            parts.extend(next.filter(|next| *next < one.start).map(|next| gap(next, one.start - 1)));
            next = one.end.checked_add(1);
            parts.push(one);
        }
        parts.extend(next.filter(|next| *next <= lock.end).map(|next| gap(next, lock.end)));
        parts
    }

    /// All that the session has.
    pub fn all(&self) -> Vec<LockRequest> {
        self.held.values().flatten().copied().collect()
    }

    /// This one is reclaimed with this tag.
    pub fn reclaims(&mut self, tag: u64, lock: LockRequest) {
        self.reclaimed.insert(tag, lock);
    }

    /// The server has answered to what was reclaimed.
    pub fn reclaimed(&mut self, tag: u64, is_given: bool) {
        let Some(lock) = self.reclaimed.remove(&tag).filter(|_| !is_given) else { return };
        // It may have been given back meanwhile.
        let owned = self.held.get(&(lock.ino, lock.owner)).is_some_and(|held| held.contains(&lock));
        if owned {
            self.lose(&lock);
        }
    }

    /// The server has not given this back to the session.
    pub fn lose(&mut self, lock: &LockRequest) {
        self.take_out(lock);
        self.lost.insert(lock.ino);
    }

    /// The session is over, and with it what it had.
    pub fn lose_all(&mut self) {
        self.lost.extend(std::mem::take(&mut self.held).into_keys().map(|(ino, _)| ino));
        self.reclaimed.clear();
    }

    /// Whether a lock on this file was lost.
    pub fn has_lost(&self, ino: Ino) -> bool {
        self.lost.contains(&ino)
    }

    /// Nobody has the file open any more.
    pub fn closed(&mut self, ino: Ino) {
        self.lost.remove(&ino);
    }

    fn take_out(&mut self, lock: &LockRequest) {
        let Some(held) = self.held.get_mut(&(lock.ino, lock.owner)) else { return };
        let mut left = Vec::new();
        for one in held.drain(..) {
            if one.end < lock.start || lock.end < one.start {
                left.push(one);
                continue;
            }
            if one.start < lock.start {
                left.push(LockRequest { end: lock.start - 1, ..one });
            }
            if one.end > lock.end {
                left.push(LockRequest { start: lock.end + 1, ..one });
            }
        }
        *held = left;
        if held.is_empty() {
            self.held.remove(&(lock.ino, lock.owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(5);

    fn lock(kind: LockKind, start: u64, end: u64) -> LockRequest {
        LockRequest { ino: FILE, owner: 1, kind, start, end, wait: false }
    }

    #[test]
    fn later_locks_replace_earlier_ones() {
        let mut locks = OwnLocks::default();
        locks.given(&lock(LockKind::Exclusive, 0, 99));
        locks.given(&lock(LockKind::Shared, 10, 19));
        locks.asked(&lock(LockKind::Unlock, 15, 29));
        let expected = [(LockKind::Exclusive, 0, 9), (LockKind::Exclusive, 30, 99), (LockKind::Shared, 10, 14)];
        assert_eq!(locks.all(), expected.map(|(kind, start, end)| lock(kind, start, end)));
        locks.asked(&lock(LockKind::Unlock, 0, u64::MAX));
        assert!(locks.held.is_empty());
    }

    #[test]
    fn what_was_before_a_lock_has_all_of_its_bytes() {
        let mut locks = OwnLocks::default();
        locks.given(&lock(LockKind::Shared, 10, 19));
        locks.given(&lock(LockKind::Exclusive, 40, u64::MAX));
        let before = |start, end| {
            let parts = locks.before(&lock(LockKind::Exclusive, start, end));
            parts.into_iter().map(|one| (one.kind, one.start, one.end)).collect::<Vec<_>>()
        };
        use LockKind::{Exclusive, Shared, Unlock};
        assert_eq!(before(0, 9), [(Unlock, 0, 9)]);
        assert_eq!(before(15, 30), [(Shared, 15, 19), (Unlock, 20, 30)]);
        let all = [(Unlock, 0, 9), (Shared, 10, 19), (Unlock, 20, 39), (Exclusive, 40, u64::MAX)];
        assert_eq!(before(0, u64::MAX), all);
    }

    #[test]
    fn what_is_lost_is_lost_until_the_file_is_closed() {
        let mut locks = OwnLocks::default();
        let one = lock(LockKind::Exclusive, 0, 9);
        locks.given(&one);
        locks.reclaims(7, one);
        locks.reclaimed(7, true);
        assert!(!locks.has_lost(FILE) && locks.all() == [one]);
        locks.reclaims(8, one);
        locks.reclaimed(8, false);
        assert!(locks.has_lost(FILE) && locks.all().is_empty());
        locks.closed(FILE);
        assert!(!locks.has_lost(FILE));
        locks.given(&one);
        locks.lose_all();
        assert!(locks.has_lost(FILE));
    }

    #[test]
    fn what_was_given_back_meanwhile_is_not_lost() {
        let mut locks = OwnLocks::default();
        let one = lock(LockKind::Exclusive, 0, 9);
        locks.given(&one);
        locks.reclaims(7, one);
        locks.asked(&lock(LockKind::Unlock, 0, 9));
        locks.reclaimed(7, false);
        assert!(!locks.has_lost(FILE));
    }
}
