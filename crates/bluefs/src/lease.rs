//! LEASE: a promise of the server that nobody else changes a group for a term. A client with a lease answers from its
//! cache without asking.
//!
//! The server counts a lease from the moment at which it is granted, the client from the moment at which it *asked*:
//! the client's ends first, whatever the network does. A writer waits until every holder has given the lease back or
//! its term is over. While somebody waits to write, no lease is granted. After a restart the server knows no holder, so
//! that every writer waits one term.
//!
//! An exclusive lease also keeps others from getting a shared one, and is not recalled: it is the last step of PROGRESS
//! for a client that loses again and again. It ends with its term or with the interval that it was for. Requests for
//! exclusive leases stand in one queue, whatever groups they are about: so two requests never wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::{Group, SessionId};

/// Milliseconds of a clock that never goes back.
pub type Millis = u64;

/// How long a lease lasts, ms.
pub const TERM_MS: Millis = 10_000;
/// How long an exclusive lease lasts, ms.
pub const EXCLUSIVE_TERM_MS: Millis = 3_000;
/// How long nobody gets a lease on a group that another has changed, ms: two who write in turns would wait for each
/// other's leases at each change.
pub const QUIET_MS: Millis = 1_000;
/// Changed groups after which those of long ago are forgotten.
const CHANGED_MAX: usize = 65_536;
/// Leases of one session, at most.
pub const HELD_MAX: usize = 16_384;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Held {
    holders: BTreeMap<SessionId, Millis>,
    /// Who was told to give its lease back, and has not answered, also if the lease has ended meanwhile.
    recalled: BTreeSet<SessionId>,
    exclusive: Option<(SessionId, Millis)>,
    writers: BTreeSet<SessionId>,
}

impl Held {
    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.recalled.is_empty() && self.exclusive.is_none() && self.writers.is_empty()
    }
}

/// The place of a request in the queue for exclusive leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Waiting {
    session: SessionId,
    groups: BTreeSet<Group>,
}

/// Whether a commit may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MayWrite {
    /// Yes.
    Now,
    /// Not before this time at the latest. These are to be told to give their lease back; nobody is told twice.
    Wait {
        /// When the last term is over.
        until: Millis,
        /// Whom to tell, of which group.
        recall: Vec<(SessionId, Group)>,
    },
}

/// The leases on one volume, as the server knows them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Leases {
    groups: BTreeMap<Group, Held>,
    counts: BTreeMap<SessionId, usize>,
    /// Requests for exclusive leases, in the order of asking.
    queue: BTreeMap<Ticket, Waiting>,
    next_ticket: u64,
    /// What each session waits to change.
    writing: BTreeMap<SessionId, BTreeSet<Group>>,
    /// Who changed a group last, when, and when anybody else last did.
    changed: BTreeMap<Group, (SessionId, Millis, Option<Millis>)>,
    /// How long that is remembered.
    quiet: Millis,
    /// After a restart: until when somebody may have a lease that is not known here.
    unknown_until: Millis,
    /// Who that may be; empty: anybody.
    unknown: BTreeSet<SessionId>,
    term: Millis,
}

impl Leases {
    /// A server that has never granted a lease.
    pub fn new(term: Millis) -> Leases {
        Leases { term, ..Leases::default() }
    }

    /// A server that was started again: leases of its predecessor may last for one term.
    pub fn restarted(term: Millis, now: Millis) -> Leases {
        Leases { term, unknown_until: now + term, ..Leases::default() }
    }

    /// The same, when it is known who may have leases.
    #[must_use]
    pub fn held_by(self, unknown: BTreeSet<SessionId>) -> Leases {
        Leases { unknown, ..self }
    }

    /// The same, with a pause between a change and another's lease.
    #[must_use]
    pub fn with_quiet(self, quiet: Millis) -> Leases {
        Leases { quiet, ..self }
    }

    /// Changes that pause.
    pub fn set_quiet(&mut self, quiet: Millis) {
        self.quiet = quiet;
    }

    /// Another term, also for the leases of a predecessor: it has to have had the same.
    pub fn set_term(&mut self, term: Millis) {
        if self.unknown_until > 0 {
            self.unknown_until = (self.unknown_until + term).saturating_sub(self.term);
        }
        self.term = term;
    }

    /// How long a lease lasts.
    pub fn term(&self) -> Millis {
        self.term
    }

    /// Asks for a lease. Says when it ends by the server's clock, or `None`: somebody else writes, or the session has
    /// too many.
    pub fn grant(&mut self, session: SessionId, group: Group, now: Millis) -> Option<Millis> {
        self.expire(group, now);
        if self.count(session) >= HELD_MAX {
            self.expire_all(now);
        }
        let busy = self.is_changed_by_others(session, group, now) || self.is_queued_for(group);
        let count = self.counts.entry(session).or_default();
        let held = self.groups.entry(group).or_default();
        let others_write = held.writers.iter().any(|writer| *writer != session);
        let anothers = held.exclusive.is_some_and(|(holder, _)| holder != session);
        let known = held.holders.contains_key(&session);
        if busy || others_write || anothers || held.recalled.contains(&session) || (!known && *count >= HELD_MAX) {
            self.tidy(group);
            return None;
        }
        *count += usize::from(!known);
        let until = now + self.term;
        held.holders.insert(session, until);
        Some(until)
    }

    /// A session gives a lease back. The answer to a recall is about the shared lease alone: the session may have got
    /// an exclusive one since it was recalled.
    pub fn give_back(&mut self, session: SessionId, group: Group) {
        if let Some(held) = self.groups.get_mut(&group) {
            drop_holder(held, &mut self.counts, session);
            let answers = held.recalled.remove(&session);
            if !answers && held.exclusive.is_some_and(|(holder, _)| holder == session) {
                held.exclusive = None;
            }
        }
        self.tidy(group);
    }

    /// A session uses none of its shared leases any more, those before a restart included. Recalls it answers still.
    pub fn gave_up(&mut self, session: SessionId) {
        let groups: Vec<Group> = self.groups.keys().copied().collect();
        for group in groups {
            if let Some(held) = self.groups.get_mut(&group) {
                drop_holder(held, &mut self.counts, session);
            }
            self.tidy(group);
        }
        if self.unknown.remove(&session) && self.unknown.is_empty() {
            self.unknown_until = 0;
        }
    }

    /// A session has a new connection: what it was told on the old one may be lost, and is told again.
    pub fn forget_recalls(&mut self, session: SessionId) {
        self.groups.values_mut().for_each(|held| _ = held.recalled.remove(&session));
        self.groups.retain(|_, held| !held.is_unused());
    }

    /// A session is over: its leases, its exclusive ones and its places in queues are given up.
    pub fn end(&mut self, session: SessionId) {
        let groups: Vec<Group> = self.groups.keys().copied().collect();
        self.forget_recalls(session);
        groups.into_iter().for_each(|group| self.give_back(session, group));
        self.forget_writer(session);
        self.queue.retain(|_, waiting| waiting.session != session);
        self.counts.remove(&session);
        // It writes no more.
        self.changed.retain(|_, (by, _, _)| *by != session);
    }

    /// Whether `session` may commit a change of these groups. While the answer is to wait, no lease on them is granted
    /// to others; ask again after a lease was given back, or at the time that was said.
    pub fn may_write(&mut self, session: SessionId, groups: &BTreeSet<Group>, now: Millis) -> MayWrite {
        let mut until = if now < self.unknown_until { self.unknown_until } else { 0 };
        let mut recall = Vec::new();
        for &group in groups {
            self.expire(group, now);
            let Some(held) = self.groups.get_mut(&group) else { continue };
            for (&holder, &end) in held.holders.iter().filter(|(holder, _)| **holder != session) {
                until = until.max(end);
                if held.recalled.insert(holder) {
                    recall.push((holder, group));
                }
            }
            if let Some((_, end)) = held.exclusive.filter(|(holder, _)| *holder != session) {
                until = until.max(end);
            }
        }
        self.forget_writer(session);
        if until == 0 {
            self.note_changed(session, groups, now);
            return MayWrite::Now;
        }
        for &group in groups {
            self.groups.entry(group).or_default().writers.insert(session);
        }
        self.writing.insert(session, groups.clone());
        MayWrite::Wait { until, recall }
    }

    /// The session does not wait to change anything any more.
    pub fn forget_writer(&mut self, session: SessionId) {
        for group in self.writing.remove(&session).unwrap_or_default() {
            if let Some(held) = self.groups.get_mut(&group) {
                held.writers.remove(&session);
            }
            self.tidy(group);
        }
    }

    /// Asks for exclusive leases on all of these groups: first come, first served.
    pub fn queue(&mut self, session: SessionId, groups: BTreeSet<Group>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.queue.insert(ticket, Waiting { session, groups });
        ticket
    }

    /// Gives the exclusive leases that were asked for, if nobody else has one of them or was first to ask for one.
    /// Says when they end.
    pub fn exclusive(&mut self, ticket: Ticket, now: Millis) -> Option<Millis> {
        let Waiting { session, groups } = self.queue.get(&ticket)?.clone();
        groups.iter().for_each(|group| self.expire(*group, now));
        let mut earlier = self.queue.range(..ticket).map(|(_, waiting)| waiting);
        let is_first = earlier.all(|one| one.session == session || one.groups.is_disjoint(&groups));
        if !is_first || self.exclusive_until(ticket).is_some() {
            return None;
        }
        self.queue.remove(&ticket);
        let until = now + EXCLUSIVE_TERM_MS;
        for group in groups {
            self.groups.entry(group).or_default().exclusive = Some((session, until));
        }
        Some(until)
    }

    /// When the last exclusive lease of others ends that this request waits for.
    pub fn exclusive_until(&self, ticket: Ticket) -> Option<Millis> {
        let Waiting { session, groups } = self.queue.get(&ticket)?;
        let others = groups.iter().filter_map(|group| self.groups.get(group)?.exclusive);
        others.filter(|(holder, _)| holder != session).map(|(_, until)| until).max()
    }

    /// A request for exclusive leases is given up. What leases the session has it keeps: it may be using them.
    pub fn leave_queue(&mut self, ticket: Ticket) {
        self.queue.remove(&ticket);
    }

    fn is_queued_for(&self, group: Group) -> bool {
        self.queue.values().any(|waiting| waiting.groups.contains(&group))
    }

    /// Leases that a session has.
    pub fn count(&self, session: SessionId) -> usize {
        self.counts.get(&session).copied().unwrap_or(0)
    }

    /// Forgets every lease that is over.
    pub fn expire_all(&mut self, now: Millis) {
        let groups: Vec<Group> = self.groups.keys().copied().collect();
        groups.into_iter().for_each(|group| self.expire(group, now));
        let quiet = self.quiet;
        self.changed.retain(|_, (_, at, _)| *at + quiet > now);
    }

    fn is_changed_by_others(&self, session: SessionId, group: Group, now: Millis) -> bool {
        let last =
            self.changed.get(&group).and_then(|(by, at, others)| if *by == session { *others } else { Some(*at) });
        last.is_some_and(|at| now < at + self.quiet)
    }

    fn note_changed(&mut self, session: SessionId, groups: &BTreeSet<Group>, now: Millis) {
        if self.quiet == 0 {
            return;
        }
        for &group in groups {
            let (by, at, others) = self.changed.entry(group).or_insert((session, now, None));
            if *by != session {
                *others = Some(*at);
            }
            (*by, *at) = (session, now);
        }
        if self.changed.len() > CHANGED_MAX {
            let quiet = self.quiet;
            self.changed.retain(|_, (_, at, _)| *at + quiet > now);
        }
    }

    fn expire(&mut self, group: Group, now: Millis) {
        let Some(held) = self.groups.get_mut(&group) else { return };
        let over: Vec<SessionId> = held.holders.iter().filter(|(_, end)| **end <= now).map(|(s, _)| *s).collect();
        for session in over {
            drop_holder(held, &mut self.counts, session);
        }
        if held.exclusive.is_some_and(|(_, end)| end <= now) {
            held.exclusive = None;
        }
        self.tidy(group);
    }

    fn tidy(&mut self, group: Group) {
        if self.groups.get(&group).is_some_and(Held::is_unused) {
            self.groups.remove(&group);
        }
    }
}

fn drop_holder(held: &mut Held, counts: &mut BTreeMap<SessionId, usize>, session: SessionId) {
    if held.holders.remove(&session).is_some() {
        if let Some(count) = counts.get_mut(&session) {
            *count -= 1;
        }
    }
}

/// A client's view of its leases.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ClientLeases {
    until: BTreeMap<Group, Millis>,
}

impl ClientLeases {
    /// A lease was granted. `asked` is when the request was *sent*, by this client's own clock.
    pub fn granted(&mut self, group: Group, asked: Millis, term: Millis) {
        if self.until.len() >= 2 * HELD_MAX {
            self.until.retain(|_, until| *until > asked);
        }
        let until = self.until.entry(group).or_default();
        *until = (*until).max(asked.saturating_add(term));
    }

    /// The server wants it back.
    pub fn recalled(&mut self, group: Group) {
        self.until.remove(&group);
    }

    /// Until when there is a lease.
    pub fn until(&self, group: Group) -> Option<Millis> {
        self.until.get(&group).copied()
    }

    /// How many there are.
    pub fn count(&self, now: Millis) -> usize {
        self.until.values().filter(|until| now < **until).count()
    }

    /// Whether the cache may answer.
    pub fn holds(&self, group: Group, now: Millis) -> bool {
        self.until.get(&group).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);
    const G: Group = Group(7);

    fn just(group: Group) -> BTreeSet<Group> {
        BTreeSet::from([group])
    }

    #[test]
    fn a_writer_waits_for_the_holder_or_one_term() {
        let mut leases = Leases::new(10);
        assert_eq!(leases.grant(A, G, 100), Some(110));
        let wait = MayWrite::Wait { until: 110, recall: vec![(A, G)] };
        assert_eq!(leases.may_write(B, &just(G), 105), wait);
        assert_eq!(leases.may_write(B, &just(G), 106), MayWrite::Wait { until: 110, recall: vec![] });
        assert_eq!(leases.grant(C, G, 106), None, "somebody waits to write");
        assert_eq!(leases.grant(A, G, 106), None, "it is recalled");
        assert_eq!(leases.may_write(B, &just(G), 110), MayWrite::Now);
        assert_eq!(leases.grant(C, G, 110), Some(120));
    }

    #[test]
    fn giving_back_lets_the_writer_go_on() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        leases.may_write(B, &just(G), 1);
        leases.give_back(A, G);
        assert_eq!(leases.may_write(B, &just(G), 2), MayWrite::Now);
        assert_eq!(leases, Leases { counts: BTreeMap::from([(A, 0)]), ..Leases::new(10) }, "nothing is left of it");
    }

    #[test]
    fn the_holder_itself_may_write() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        assert_eq!(leases.may_write(A, &just(G), 1), MayWrite::Now);
    }

    #[test]
    fn who_changes_a_group_keeps_others_from_leases_for_a_while() {
        let mut leases = Leases::new(10).with_quiet(5);
        assert_eq!(leases.may_write(A, &just(G), 100), MayWrite::Now);
        assert_eq!((leases.grant(B, G, 104), leases.grant(A, G, 104)), (None, Some(114)));
        leases.give_back(A, G);
        assert_eq!(leases.may_write(B, &just(G), 104), MayWrite::Now);
        assert_eq!((leases.grant(B, G, 104), leases.grant(A, G, 108)), (None, None));
        assert_eq!((leases.grant(B, G, 105), leases.grant(A, G, 109)), (Some(115), Some(119)));
        leases.end(A);
        assert_eq!(leases.may_write(B, &just(G), 110), MayWrite::Now);
        assert_eq!(leases.grant(C, G, 110), None);
        leases.end(B);
        assert_eq!(leases.grant(C, G, 110), Some(120), "nobody writes any more");
    }

    #[test]
    fn leases_that_are_over_do_not_count() {
        let mut leases = Leases::new(10);
        (0..HELD_MAX as u64).for_each(|group| _ = leases.grant(A, Group(group), 0));
        assert_eq!(leases.grant(A, Group(1 << 40), 9), None);
        assert_eq!(leases.grant(A, Group(1 << 40), 10), Some(20));
        assert_eq!(leases.count(A), 1);
        leases.expire_all(20);
        assert_eq!(leases.count(A), 0);
    }

    #[test]
    fn after_a_restart_everybody_waits_a_term() {
        let mut leases = Leases::restarted(10, 50);
        assert_eq!(leases.may_write(A, &just(G), 59), MayWrite::Wait { until: 60, recall: vec![] });
        assert_eq!(leases.may_write(A, &just(G), 60), MayWrite::Now);
    }

    #[test]
    fn after_a_restart_nobody_waits_for_who_has_given_up() {
        let mut leases = Leases::restarted(10, 50).held_by(BTreeSet::from([A, B]));
        leases.gave_up(A);
        leases.gave_up(C);
        assert_eq!(leases.may_write(C, &just(G), 51), MayWrite::Wait { until: 60, recall: vec![] });
        leases.gave_up(B);
        assert_eq!(leases.may_write(C, &just(G), 51), MayWrite::Now);
        leases.grant(B, G, 52);
        leases.gave_up(B);
        assert_eq!((leases.may_write(C, &just(G), 53), leases.count(B)), (MayWrite::Now, 0));
    }

    #[test]
    fn exclusive_leases_are_given_in_order() {
        let mut leases = Leases::new(10);
        let [a, b, c] = [A, B, C].map(|session| leases.queue(session, just(G)));
        assert_eq!(leases.exclusive(b, 0), None, "A was first");
        assert_eq!(leases.exclusive(a, 0), Some(EXCLUSIVE_TERM_MS));
        assert_eq!((leases.exclusive(b, 1), leases.exclusive(c, 2)), (None, None));
        assert_eq!(leases.exclusive_until(b), Some(EXCLUSIVE_TERM_MS));
        assert_eq!(leases.may_write(C, &just(G), 2), MayWrite::Wait { until: EXCLUSIVE_TERM_MS, recall: vec![] });
        assert_eq!(leases.may_write(A, &just(G), 2), MayWrite::Now);
        leases.give_back(A, G);
        assert_eq!(leases.exclusive(c, 3), None, "B was first");
        assert_eq!(leases.exclusive(b, 3), Some(3 + EXCLUSIVE_TERM_MS));
        leases.end(B);
        assert_eq!(leases.exclusive(c, 4), Some(4 + EXCLUSIVE_TERM_MS));
    }

    /// A asks, then B; A gives a shared lease on one of the groups back. With a queue for each group A stood behind B
    /// in one of them from then on, and in front of B in the other: neither was ever served.
    #[test]
    fn who_gives_a_lease_back_keeps_its_place_in_the_queue() {
        let mut leases = Leases::new(10);
        let both = BTreeSet::from([G, Group(8)]);
        leases.grant(A, G, 0);
        let [c, a, b] = [C, A, B].map(|session| leases.queue(session, both.clone()));
        assert_eq!(leases.exclusive(c, 0), Some(EXCLUSIVE_TERM_MS));
        assert_eq!((leases.exclusive(a, 1), leases.exclusive(b, 1)), (None, None));
        leases.give_back(A, G);
        leases.end(C);
        assert_eq!(leases.exclusive(b, 2), None, "A was first");
        assert_eq!(leases.exclusive(a, 2), Some(2 + EXCLUSIVE_TERM_MS));
    }

    /// The simulation has found it: a session whose exclusive lease came behind a recall lost it by answering.
    #[test]
    fn who_answers_a_recall_keeps_its_exclusive_lease() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        assert_eq!(leases.may_write(B, &just(G), 1), MayWrite::Wait { until: 10, recall: vec![(A, G)] });
        let a = leases.queue(A, just(G));
        let end = leases.exclusive(a, 2).expect("nobody has it");
        leases.give_back(A, G);
        assert_eq!(leases.may_write(B, &just(G), 3), MayWrite::Wait { until: end, recall: vec![] });
        leases.give_back(A, G);
        assert_eq!(leases.may_write(B, &just(G), 3), MayWrite::Now);
    }

    #[test]
    fn who_connects_anew_is_recalled_again() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        let wait = MayWrite::Wait { until: 10, recall: vec![(A, G)] };
        assert_eq!(leases.may_write(B, &just(G), 1), wait);
        assert_eq!(leases.may_write(B, &just(G), 2), MayWrite::Wait { until: 10, recall: vec![] });
        leases.forget_recalls(A);
        assert_eq!(leases.may_write(B, &just(G), 3), wait);
    }

    #[test]
    fn who_leaves_the_queue_keeps_its_lease() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        let [b, a, c] = [B, A, C].map(|session| leases.queue(session, just(G)));
        leases.exclusive(b, 0);
        assert_eq!(leases.exclusive(a, 1), None);
        leases.leave_queue(a);
        assert_eq!(leases.may_write(B, &just(G), 2), MayWrite::Wait { until: 10, recall: vec![(A, G)] });
        leases.give_back(B, G);
        assert_eq!(leases.exclusive(c, 3), Some(3 + EXCLUSIVE_TERM_MS), "A does not wait");
    }

    #[test]
    fn who_waits_no_more_to_write_keeps_nobody_from_leases() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        assert!(matches!(leases.may_write(B, &just(G), 1), MayWrite::Wait { .. }));
        leases.give_back(A, G);
        assert_eq!(leases.grant(C, G, 2), None, "B waits");
        leases.forget_writer(B);
        assert_eq!(leases.grant(C, G, 2), Some(12));
    }

    #[test]
    fn a_session_cannot_hoard() {
        let mut leases = Leases::new(10);
        for group in 0..HELD_MAX as u64 {
            assert!(leases.grant(A, Group(group), 0).is_some());
        }
        assert_eq!(leases.grant(A, Group(1 << 40), 0), None);
        leases.end(A);
        assert_eq!(leases, Leases::new(10));
    }

    #[test]
    fn a_client_counts_from_asking() {
        let mut held = ClientLeases::default();
        held.granted(G, 100, 10);
        assert!(held.holds(G, 109) && !held.holds(G, 110));
        held.recalled(G);
        assert!(!held.holds(G, 101));
    }
}
