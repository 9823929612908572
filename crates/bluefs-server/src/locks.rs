//! Locks between clients, as fcntl(2) has them: an owner's later request replaces its earlier ones in the same bytes.
//! Who waits is served in the order of asking, as far as what it waits for is free.
//!
//! Locks are in memory. A server that was started again gives none until every session that may have had some has
//! reclaimed them, or is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bluefs::lease::Millis;
use bluefs::{Ino, SessionId};
use bluefs_wire::{LockKind, LockRequest};

/// Requests that one session may have waiting.
pub const WAITING_MAX: usize = 1024;
/// So many locks are looked at for one that may close a circle.
const LOOKED_AT_MAX: usize = 100_000;

/// The last byte that `fcntl` can lock. That of `flock` is behind it.
const RECORD_END: u64 = i64::MAX as u64;

/// Who has a lock.
type Owner = (SessionId, u64);

/// Locks that one session may have.
pub const HELD_MAX: usize = 65_536;

/// What a request comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// It is given.
    Given,
    /// Another has it, and the caller does not wait.
    Refused,
    /// It is given later.
    Waits,
    /// The session has too many, or too many wait. So it may be with what is given back in the middle of a lock: that
    /// makes two of it.
    TooMany,
    /// Whoever has it waits, in the end, for the caller.
    Deadlock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    session: SessionId,
    owner: u64,
    exclusive: bool,
    start: u64,
    end: u64,
}

impl Held {
    fn meets(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    session: SessionId,
    tag: u64,
    request: LockRequest,
}

/// The locks of one volume.
#[derive(Debug, Default)]
pub struct Locks {
    held: BTreeMap<Ino, Vec<Held>>,
    /// How many each session has.
    counts: BTreeMap<SessionId, usize>,
    waiting: VecDeque<Waiting>,
    /// Who may have locks that are not known here, and until when that is waited for.
    unknown: BTreeSet<SessionId>,
    unknown_until: Millis,
    /// Nobody is waited for longer than until then, however often connections end.
    unknown_at_most: Millis,
    /// Something has changed since it was looked last whose wait is over. It is looked with each message of anybody.
    has_changed: bool,
}

impl Locks {
    /// A server that was started again: these sessions may have locks of its predecessor. They are waited for until
    /// then, and once more as long if their connections end meanwhile.
    pub fn restarted(unknown: BTreeSet<SessionId>, now: Millis, kept: Millis) -> Locks {
        let (unknown_until, unknown_at_most) = (now + kept, now + 2 * kept);
        Locks { unknown, unknown_until, unknown_at_most, ..Locks::default() }
    }

    /// Until when it may be that no lock is given.
    pub fn unknown_until(&self) -> Option<Millis> {
        (!self.unknown.is_empty()).then_some(self.unknown_until)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        if now >= self.unknown_until {
            self.has_changed |= !self.unknown.is_empty();
            self.unknown.clear();
        }
    }

    /// The session says that it has had this lock. `false`: it has lost it.
    pub fn reclaim(&mut self, session: SessionId, request: LockRequest) -> bool {
        if !self.unknown.contains(&session) {
            return self.has(session, &request);
        }
        let is_free = self.other(session, &request).is_none() && !self.is_too_much(session, &request);
        if is_free {
            self.put(session, &request);
        }
        is_free
    }

    /// The connection of a session has ended. If it has not reclaimed its locks, it is waited for until it is over.
    pub fn disconnected(&mut self, session: SessionId, over: Millis) {
        if self.unknown.contains(&session) {
            self.unknown_until = self.unknown_until.max(over).min(self.unknown_at_most);
        }
    }

    /// The session has reclaimed every lock.
    pub fn reclaimed(&mut self, session: SessionId) {
        self.has_changed |= self.unknown.remove(&session);
    }

    /// Whether the session may have any: also those that it has not reclaimed yet.
    pub fn may_have_any(&self, session: SessionId) -> bool {
        self.unknown.contains(&session) || self.counts.get(&session).is_some_and(|count| *count > 0)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.counts.values().sum()
    }

    /// A lock of another owner that is in the way of this one, without its owner.
    pub fn in_the_way(&self, session: SessionId, request: &LockRequest) -> Option<LockRequest> {
        let Held { exclusive, start, end, .. } = *self.other(session, request)?;
        let kind = if exclusive { LockKind::Exclusive } else { LockKind::Shared };
        Some(LockRequest { ino: request.ino, owner: 0, kind, start, end, wait: false })
    }

    /// Asks for a lock, or gives it back.
    pub fn request(&mut self, session: SessionId, tag: u64, request: LockRequest) -> Locked {
        if self.is_too_much(session, &request) {
            return Locked::TooMany;
        }
        if self.is_free(session, &request) {
            self.put(session, &request);
            return Locked::Given;
        }
        // Whoever does not wait for others waits until it is known whether any have it.
        let is_known = self.unknown.is_empty() || self.other(session, &request).is_some();
        if !request.wait && is_known {
            return Locked::Refused;
        }
        // Whoever asks again and again is told to, and takes no place from those that wait.
        let is_alike = |one: &&Waiting| one.session == session && one.request.wait == request.wait;
        if self.waiting.iter().filter(is_alike).count() >= WAITING_MAX {
            return if request.wait { Locked::TooMany } else { Locked::Refused };
        }
        if request.wait && self.closes_circle(session, &request) {
            return Locked::Deadlock;
        }
        self.waiting.push_back(Waiting { session, tag, request });
        Locked::Waits
    }

    /// Whether those who have this lock wait, directly or by others, for who asks for it (fcntl(2), EDEADLK). `flock`
    /// waits whatever comes of it.
    fn closes_circle(&self, session: SessionId, request: &LockRequest) -> bool {
        if request.end > RECORD_END {
            return false;
        }
        let mut waits: BTreeMap<Owner, Vec<&LockRequest>> = BTreeMap::new();
        for one in self.waiting.iter().filter(|one| one.request.wait && one.request.end <= RECORD_END) {
            waits.entry((one.session, one.request.owner)).or_default().push(&one.request);
        }
        let own = (session, request.owner);
        let mut seen = BTreeSet::from([own]);
        let mut next = vec![(own, request)];
        let mut left = LOOKED_AT_MAX;
        while let Some(((session, _), request)) = next.pop() {
            // Everybody waits for this. A longer one is waited in, as by open file descriptions.
            let held = self.held.get(&request.ino).map_or(0, Vec::len);
            match left.checked_sub(held) {
                Some(less) => left = less,
                None => return false,
            }
            for other in self.others(session, request).map(|held| (held.session, held.owner)) {
                if other == own {
                    return true;
                }
                if seen.insert(other) {
                    next.extend(waits.get(&other).into_iter().flatten().map(|request| (other, *request)));
                }
            }
        }
        false
    }

    /// Ends a wait. `false`: nobody waits under this tag.
    pub fn cancel(&mut self, session: SessionId, tag: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.session != session || waiting.tag != tag);
        self.waiting.len() != before
    }

    /// The session's connection is gone: whoever waited asks again on the next one.
    pub fn forget_waiting(&mut self, session: SessionId) {
        self.waiting.retain(|waiting| waiting.session != session);
    }

    /// The session is over.
    pub fn end(&mut self, session: SessionId) {
        self.forget_waiting(session);
        self.has_changed = true;
        self.unknown.remove(&session);
        self.counts.remove(&session);
        self.held.values_mut().for_each(|held| held.retain(|one| one.session != session));
        self.held.retain(|_, held| !held.is_empty());
    }

    /// Those whose wait is over: the session and the tag of each, and whether it is given.
    pub fn give(&mut self) -> Vec<(SessionId, u64, bool)> {
        let mut over = Vec::new();
        // What is given now may be in the way of one that was looked at before.
        if !std::mem::take(&mut self.has_changed) {
            return over;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { session, tag, request } = waiting;
            let is_free = self.is_free(session, &request);
            if is_free {
                self.put(session, &request);
            }
            if is_free || (!request.wait && self.other(session, &request).is_some()) {
                over.push((session, tag, is_free));
            } else {
                self.waiting.push_back(waiting);
            }
        }
        over
    }

    fn is_free(&self, session: SessionId, request: &LockRequest) -> bool {
        request.kind == LockKind::Unlock || (self.unknown.is_empty() && self.other(session, request).is_none())
    }

    fn other(&self, session: SessionId, request: &LockRequest) -> Option<&Held> {
        self.others(session, request).next()
    }

    /// Locks of others that are in the way.
    fn others<'l>(&'l self, session: SessionId, request: &LockRequest) -> impl Iterator<Item = &'l Held> + use<'l> {
        let LockRequest { owner, start, end, kind, .. } = *request;
        let conflicts = move |held: &&Held| {
            let is_other = (held.session, held.owner) != (session, owner);
            is_other && held.meets(start, end) && (kind == LockKind::Exclusive || held.exclusive)
        };
        self.held.get(&request.ino).into_iter().flatten().filter(conflicts)
    }

    /// Whether a session has no room for one more, and this would be one more.
    fn is_too_much(&self, session: SessionId, request: &LockRequest) -> bool {
        if self.counts.get(&session).is_none_or(|count| *count < HELD_MAX) {
            return false;
        }
        let own = self.held.get(&request.ino).into_iter().flatten();
        let mut own = own.filter(|one| (one.session, one.owner) == (session, request.owner));
        let is_cut = |one: &Held| one.start < request.start && one.end > request.end;
        request.kind != LockKind::Unlock || own.any(is_cut)
    }

    /// Whether an owner has all of these bytes locked in this way.
    fn has(&self, session: SessionId, request: &LockRequest) -> bool {
        let exclusive = request.kind == LockKind::Exclusive;
        let own = |one: &&Held| (one.session, one.owner, one.exclusive) == (session, request.owner, exclusive);
        let mut own: Vec<&Held> = self.held.get(&request.ino).into_iter().flatten().filter(own).collect();
        own.sort_unstable_by_key(|one| one.start);
        let mut next = request.start;
        for one in own.into_iter().filter(|one| one.meets(request.start, request.end)) {
            if one.start > next {
                return false;
            }
            match one.end {
                end if end >= request.end => return true,
                end => next = end + 1,
            }
        }
        false
    }

    fn put(&mut self, session: SessionId, request: &LockRequest) {
        self.has_changed = true;
        let (owner, start, end) = (request.owner, request.start, request.end);
        let held = self.held.entry(request.ino).or_default();
        let before = held.len();
        let replaces = |one: &Held| (one.session, one.owner) == (session, owner) && one.meets(start, end);
        // Most replace nothing: a file with many locks is not copied for each.
        let mut kept = if held.iter().any(replaces) { Vec::new() } else { std::mem::take(held) };
        for one in held.drain(..) {
            if !replaces(&one) {
                kept.push(one);
                continue;
            }
            if one.start < start {
                kept.push(Held { end: start - 1, ..one });
            }
            if one.end > end {
                kept.push(Held { start: end + 1, ..one });
            }
        }
        if request.kind != LockKind::Unlock {
            kept.push(Held { session, owner, exclusive: request.kind == LockKind::Exclusive, start, end });
        }
        let count = self.counts.entry(session).or_default();
        *count = (*count + kept.len()).saturating_sub(before);
        *held = kept;
        if held.is_empty() {
            self.held.remove(&request.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn lock(kind: LockKind, start: u64, end: u64, wait: bool) -> LockRequest {
        LockRequest { ino: Ino(5), owner: 1, kind, start, end, wait }
    }

    #[test]
    fn exclusive_keeps_others_out_until_it_is_given_back() {
        let mut locks = Locks::default();
        assert_eq!(locks.request(A, 1, lock(LockKind::Exclusive, 0, 9, false)), Locked::Given);
        assert_eq!(locks.request(B, 1, lock(LockKind::Shared, 9, 9, false)), Locked::Refused);
        assert_eq!(locks.request(B, 2, lock(LockKind::Shared, 10, 20, false)), Locked::Given);
        assert_eq!(locks.request(B, 3, lock(LockKind::Exclusive, 5, 6, true)), Locked::Waits);
        assert_eq!(locks.give(), []);
        assert_eq!(locks.request(A, 2, lock(LockKind::Unlock, 5, 5, false)), Locked::Given);
        assert_eq!(locks.give(), [], "byte 6 is locked");
        locks.request(A, 3, lock(LockKind::Unlock, 6, 6, false));
        assert_eq!(locks.give(), [(B, 3, true)]);
        assert_eq!(locks.request(B, 4, lock(LockKind::Shared, 4, 4, false)), Locked::Refused, "4 is still A's");
        assert_eq!(locks.request(B, 5, lock(LockKind::Shared, 7, 7, false)), Locked::Refused, "and so is 7");
        locks.end(A);
        assert_eq!(locks.request(B, 6, lock(LockKind::Shared, 0, 9, false)), Locked::Given);
        locks.end(B);
        assert!(locks.held.is_empty());
    }

    #[test]
    fn a_session_has_no_more_locks_than_it_may() {
        let mut locks = Locks::default();
        let of = |ino| LockRequest { ino: Ino(ino), ..lock(LockKind::Shared, 0, 9, false) };
        (0..HELD_MAX as u64).for_each(|ino| assert_eq!(locks.request(A, 1, of(ino)), Locked::Given));
        assert_eq!(locks.request(A, 1, of(1 << 20)), Locked::TooMany);
        assert_eq!(locks.request(B, 1, of(1 << 20)), Locked::Given, "others may");
        let back = |start, end| LockRequest { kind: LockKind::Unlock, start, end, ..of(0) };
        assert_eq!(locks.request(A, 1, back(5, 5)), Locked::TooMany, "two would be left");
        assert_eq!(locks.request(A, 1, back(0, 5)), Locked::Given);
        assert_eq!(locks.request(A, 1, of(1 << 20)), Locked::TooMany);
        assert_eq!(locks.request(A, 1, back(0, 9)), Locked::Given);
        assert_eq!(locks.request(A, 1, of(1 << 20)), Locked::Given);
        locks.end(A);
        assert_eq!((locks.request(A, 1, of(7)), locks.counts[&A]), (Locked::Given, 1));
    }

    #[test]
    fn who_would_wait_for_itself_is_told() {
        const C: SessionId = SessionId(3);
        let mut locks = Locks::default();
        let byte = |at, wait| lock(LockKind::Exclusive, at, at, wait);
        for (session, at) in [(A, 0), (B, 1), (C, 2)] {
            assert_eq!(locks.request(session, 1, byte(at, false)), Locked::Given);
        }
        assert_eq!(locks.request(A, 2, byte(1, true)), Locked::Waits);
        assert_eq!(locks.request(B, 2, byte(2, true)), Locked::Waits);
        assert_eq!(locks.request(C, 2, byte(0, false)), Locked::Refused, "it does not wait");
        assert_eq!(locks.request(C, 2, byte(0, true)), Locked::Deadlock);
        assert_eq!(locks.request(C, 2, byte(1, true)), Locked::Deadlock, "a smaller circle");
        let another = LockRequest { owner: 2, ..byte(0, true) };
        assert_eq!(locks.request(C, 2, another), Locked::Waits, "nobody waits for this owner");
        assert!(locks.cancel(B, 2));
        assert_eq!(locks.request(C, 3, byte(0, true)), Locked::Waits);
        assert_eq!(locks.request(B, 3, byte(2, true)), Locked::Deadlock, "B has what A waits for, and A what C does");
    }

    #[test]
    fn flock_waits_whatever_comes_of_it() {
        let mut locks = Locks::default();
        let file = |ino, wait| LockRequest { ino: Ino(ino), ..lock(LockKind::Exclusive, u64::MAX, u64::MAX, wait) };
        assert_eq!(locks.request(A, 1, file(5, false)), Locked::Given);
        assert_eq!(locks.request(B, 1, file(6, false)), Locked::Given);
        assert_eq!(locks.request(A, 2, file(6, true)), Locked::Waits);
        assert_eq!(locks.request(B, 2, file(5, true)), Locked::Waits);
    }

    #[test]
    fn who_waits_when_too_many_do_is_told_so() {
        let mut locks = Locks::default();
        let at = |tag: u64, wait| LockRequest { owner: tag, ..lock(LockKind::Exclusive, 0, 0, wait) };
        locks.request(A, 0, at(0, false));
        let waits = |tag: &u64| locks.request(B, *tag, at(*tag, true)) == Locked::Waits;
        assert_eq!((1..).take_while(waits).count(), WAITING_MAX);
        assert_eq!(locks.request(B, 9999, at(9999, true)), Locked::TooMany);
        assert_eq!(locks.request(B, 9999, at(9999, false)), Locked::Refused);
    }

    #[test]
    fn a_wait_can_be_ended() {
        let mut locks = Locks::default();
        locks.request(A, 1, lock(LockKind::Shared, 0, 0, false));
        assert_eq!(locks.request(B, 1, lock(LockKind::Shared, 0, 0, false)), Locked::Given, "shared");
        assert_eq!(locks.request(B, 2, lock(LockKind::Exclusive, 0, 0, true)), Locked::Waits);
        assert!(locks.cancel(B, 2) && !locks.cancel(B, 2));
        locks.end(A);
        assert_eq!(locks.give(), []);
    }

    #[test]
    fn nobody_gets_a_lock_before_all_that_may_have_some_have_reclaimed_them() {
        let mut locks = Locks::restarted(BTreeSet::from([A, B]), 0, 100);
        assert_eq!(locks.request(A, 1, lock(LockKind::Exclusive, 0, 0, false)), Locked::Waits, "nobody knows");
        assert_eq!(locks.request(A, 2, lock(LockKind::Exclusive, 0, 0, true)), Locked::Waits);
        assert_eq!(locks.request(A, 3, lock(LockKind::Exclusive, 30, 39, false)), Locked::Waits);
        assert!(locks.reclaim(B, lock(LockKind::Exclusive, 0, 9, false)));
        assert!(!locks.reclaim(A, lock(LockKind::Shared, 9, 9, false)), "B has it");
        assert_eq!(locks.request(A, 4, lock(LockKind::Exclusive, 5, 5, false)), Locked::Refused, "it is known");
        locks.reclaimed(A);
        assert_eq!((locks.give(), locks.unknown_until()), (vec![(A, 1, false)], Some(100)));
        locks.reclaimed(B);
        assert_eq!((locks.give(), locks.unknown_until()), (vec![(A, 3, true)], None));
        assert!(locks.reclaim(B, lock(LockKind::Exclusive, 0, 9, false)), "it has it still");
        locks.request(B, 1, lock(LockKind::Unlock, 0, 0, false));
        assert_eq!(locks.give(), [(A, 2, true)]);
        assert!(!locks.reclaim(B, lock(LockKind::Exclusive, 0, 9, false)), "not all of it");
        assert!(locks.reclaim(B, lock(LockKind::Exclusive, 1, 9, false)));
        assert!(!locks.reclaim(B, lock(LockKind::Shared, 20, 20, false)), "what is free may have been another's");
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for_for_ever() {
        let mut locks = Locks::restarted(BTreeSet::from([A]), 0, 100);
        assert_eq!(locks.request(B, 1, lock(LockKind::Exclusive, 0, 0, true)), Locked::Waits);
        locks.disconnected(A, 110);
        locks.disconnected(B, 120);
        locks.tick(109);
        assert_eq!(locks.give(), []);
        locks.tick(110);
        assert_eq!(locks.give(), [(B, 1, true)]);
    }

    #[test]
    fn who_comes_and_goes_is_not_waited_for_for_ever() {
        let mut locks = Locks::restarted(BTreeSet::from([A]), 0, 100);
        assert_eq!(locks.request(B, 1, lock(LockKind::Exclusive, 0, 0, false)), Locked::Waits);
        for now in [90, 180, 199] {
            locks.tick(now);
            assert_eq!(locks.give(), []);
            locks.disconnected(A, now + 100);
        }
        locks.tick(200);
        assert_eq!(locks.give(), [(B, 1, true)]);
    }

    #[test]
    fn what_is_in_the_way_is_told_without_its_owner() {
        let mut locks = Locks::default();
        locks.request(A, 1, lock(LockKind::Shared, 5, 9, false));
        assert_eq!(locks.in_the_way(A, &lock(LockKind::Exclusive, 0, 9, false)), None);
        assert_eq!(locks.in_the_way(B, &lock(LockKind::Shared, 0, 9, false)), None);
        let other = locks.in_the_way(B, &lock(LockKind::Exclusive, 0, 9, false));
        assert_eq!(other, Some(LockRequest { owner: 0, ..lock(LockKind::Shared, 5, 9, false) }));
    }

    #[test]
    fn an_owner_replaces_its_own() {
        let mut locks = Locks::default();
        locks.request(A, 1, lock(LockKind::Exclusive, 0, u64::MAX, false));
        assert_eq!(locks.request(A, 2, lock(LockKind::Shared, 0, u64::MAX, false)), Locked::Given);
        assert_eq!(locks.request(B, 1, lock(LockKind::Shared, 3, 3, false)), Locked::Given);
        let other_owner = LockRequest { owner: 2, ..lock(LockKind::Exclusive, 3, 3, false) };
        assert_eq!(locks.request(A, 3, other_owner), Locked::Refused, "owners of one session exclude each other");
    }
}
