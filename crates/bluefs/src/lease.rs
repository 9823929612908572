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
//!
//! Writers and requests take turns (docs/decisions/0155): a request waits for the writers that waited before it, and
//! for those that an exclusive lease on one of its groups has kept out, also if its own session had that lease. So a
//! writer waits for the exclusive lease that it has met and for one more at most, and no request waits for writers
//! without end.

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
/// How often it is looked, for who has so many, which of all leases are over, ms: that takes milliseconds.
const SWEEP_EVERY_MS: Millis = 50;
/// Groups on which one session may have exclusive leases or wait for them, and that all may wait for: a turn of the
/// server looks at each.
pub const ALONE_MAX: usize = 4_096;
const QUEUED_MAX: usize = 65_536;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Held {
    holders: BTreeMap<SessionId, Millis>,
    /// Who was told to give its lease back, and has not answered, also if the lease has ended meanwhile.
    recalled: BTreeSet<SessionId>,
    exclusive: Option<(SessionId, Millis)>,
    writers: BTreeMap<SessionId, Turn>,
}

/// When it is a waiting writer's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Turn {
    /// The first request for exclusive leases that came later.
    before: Ticket,
    /// An exclusive lease that has ended kept it out: it goes before all of them.
    was_kept_out: bool,
}

impl Held {
    /// Whether a writer that is not `session` goes before this request.
    fn goes_before(&self, session: SessionId, ticket: Ticket) -> bool {
        let mut others = self.writers.iter().filter(|(writer, _)| **writer != session);
        others.any(|(_, turn)| turn.was_kept_out || turn.before <= ticket)
    }

    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.recalled.is_empty() && self.exclusive.is_none() && self.writers.is_empty()
    }
}

/// The place of a request in the queue for exclusive leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(u64);

/// What becomes of a request for exclusive leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The leases are given, until then by the server's clock.
    Until(Millis),
    /// Others wait for what the session has: it may not wait, too.
    Never,
}

/// A request for exclusive leases.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiting {
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
    /// Who waits for an exclusive lease on each group, and by how many requests.
    queued: BTreeMap<Group, BTreeMap<SessionId, usize>>,
    /// The groups on which each session has an exclusive lease.
    alone: BTreeMap<SessionId, BTreeSet<Group>>,
    next_ticket: Ticket,
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
    /// When it was looked last for a session that has as many as one may have.
    swept: Millis,
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
        if self.is_changed_by_others(session, group, now) {
            self.tidy(group);
            return None;
        }
        self.grant_now(session, group, now)
    }

    /// The same without the pause behind another's change.
    pub fn grant_now(&mut self, session: SessionId, group: Group, now: Millis) -> Option<Millis> {
        self.expire(group, now);
        if self.count(session) >= HELD_MAX && now >= self.swept + SWEEP_EVERY_MS {
            self.swept = now;
            self.expire_all(now);
        }
        let busy = self.queued.contains_key(&group);
        let count = self.counts.entry(session).or_default();
        let held = self.groups.entry(group).or_default();
        let others_write = held.writers.keys().any(|writer| *writer != session);
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
                self.end_alone(group);
            }
        }
        self.tidy(group);
    }

    /// An exclusive lease is over: whom it kept out goes before the next one.
    fn end_alone(&mut self, group: Group) {
        let Some(held) = self.groups.get_mut(&group) else { return };
        let Some((session, _)) = held.exclusive.take() else { return };
        held.writers.values_mut().for_each(|turn| turn.was_kept_out = true);
        let alone = self.alone.get_mut(&session).expect("it is noted there");
        alone.remove(&group);
        if alone.is_empty() {
            self.alone.remove(&session);
        }
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
        let asked = self.queue.iter().filter(|(_, waiting)| waiting.session == session);
        for ticket in asked.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.leave_queue(ticket);
        }
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
        if until == 0 {
            self.forget_writer(session);
            self.note_changed(session, groups, now);
            return MayWrite::Now;
        }
        self.note_writer(session, groups);
        MayWrite::Wait { until, recall }
    }

    /// The session waits to change these. It keeps its turn where it has waited before.
    fn note_writer(&mut self, session: SessionId, groups: &BTreeSet<Group>) {
        let before = self.writing.insert(session, groups.clone()).unwrap_or_default();
        for group in before.difference(groups) {
            self.forget_writer_of(session, *group);
        }
        let turn = Turn { before: self.next_ticket, was_kept_out: false };
        for group in groups {
            self.groups.entry(*group).or_default().writers.entry(session).or_insert(turn);
        }
    }

    fn forget_writer_of(&mut self, session: SessionId, group: Group) {
        if let Some(held) = self.groups.get_mut(&group) {
            held.writers.remove(&session);
        }
        self.tidy(group);
    }

    /// The session does not wait to change anything any more.
    pub fn forget_writer(&mut self, session: SessionId) {
        for group in self.writing.remove(&session).unwrap_or_default() {
            self.forget_writer_of(session, group);
        }
    }

    /// Asks for exclusive leases on all of these groups. `None`: these would be too many, or are none.
    pub fn queue(&mut self, session: SessionId, groups: BTreeSet<Group>) -> Option<Ticket> {
        if groups.is_empty() {
            return None;
        }
        let of_session = self.queue.values().filter(|waiting| waiting.session == session);
        let asked = of_session.map(|waiting| waiting.groups.len()).sum::<usize>() + groups.len();
        let has = self.alone.get(&session).map_or(0, BTreeSet::len);
        if asked + has > ALONE_MAX || self.queued.len() + groups.len() > QUEUED_MAX {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket.0 += 1;
        for group in &groups {
            *self.queued.entry(*group).or_default().entry(session).or_default() += 1;
        }
        self.queue.insert(ticket, Waiting { session, groups });
        Some(ticket)
    }

    /// Gives the exclusive leases whose turn it is: first come, first served. A session that waits while others wait
    /// for what it has is told so at once, by its latest request first: two who each wait for what the other one has
    /// would do so for a whole term.
    pub fn give_exclusive(&mut self, now: Millis) -> Vec<(Ticket, Given)> {
        self.queued.keys().copied().collect::<Vec<_>>().into_iter().for_each(|group| self.expire(group, now));
        let mut given = Vec::new();
        // Who was first to ask for each group, and whether others have behind.
        let mut asked: BTreeMap<Group, (SessionId, bool)> = BTreeMap::new();
        let tickets: Vec<(Ticket, SessionId)> = self.queue.iter().map(|(ticket, one)| (*ticket, one.session)).collect();
        for &(ticket, session) in &tickets {
            let groups = &self.queue[&ticket].groups;
            let is_first = |group| asked.get(group).is_none_or(|(first, others)| *first == session && !others);
            if groups.iter().all(|group| is_first(group) && self.is_free(session, *group, ticket)) {
                let until = now + EXCLUSIVE_TERM_MS;
                self.take_alone(ticket, until);
                given.push((ticket, Given::Until(until)));
                continue;
            }
            for group in groups {
                let (first, others) = asked.entry(*group).or_insert((session, false));
                *others |= *first != session;
            }
        }
        for (ticket, session) in tickets.into_iter().rev() {
            if self.queue.contains_key(&ticket) && self.keeps_others_waiting(session, now) {
                self.leave_queue(ticket);
                given.push((ticket, Given::Never));
            }
        }
        given
    }

    /// Whether nobody else has this group alone, or is to write it first.
    fn is_free(&self, session: SessionId, group: Group, ticket: Ticket) -> bool {
        let Some(held) = self.groups.get(&group) else { return true };
        held.exclusive.is_none_or(|(holder, _)| holder == session) && !held.goes_before(session, ticket)
    }

    fn take_alone(&mut self, ticket: Ticket, until: Millis) {
        let Some(Waiting { session, groups }) = self.leave_queue(ticket) else { return };
        for group in &groups {
            self.groups.entry(*group).or_default().exclusive = Some((session, until));
        }
        self.alone.entry(session).or_default().extend(groups);
    }

    /// Whether somebody waits for an exclusive lease of this session, to have it or to write.
    fn keeps_others_waiting(&mut self, session: SessionId, now: Millis) -> bool {
        let alone: Vec<Group> = self.alone.get(&session).into_iter().flatten().copied().collect();
        alone.iter().for_each(|group| self.expire(*group, now));
        self.alone.get(&session).into_iter().flatten().any(|group| {
            let writes = self.groups[group].writers.keys().any(|writer| *writer != session);
            writes || self.queued.get(group).is_some_and(|asking| asking.keys().any(|other| *other != session))
        })
    }

    /// When the last exclusive lease of others ends that this request waits for.
    pub fn exclusive_until(&self, ticket: Ticket) -> Option<Millis> {
        let Waiting { session, groups } = self.queue.get(&ticket)?;
        let others = groups.iter().filter_map(|group| self.groups.get(group)?.exclusive);
        others.filter(|(holder, _)| holder != session).map(|(_, until)| until).max()
    }

    /// A request for exclusive leases is given up. What leases the session has it keeps: it may be using them.
    pub fn leave_queue(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.queue.remove(&ticket)?;
        for group in &waiting.groups {
            let asking = self.queued.get_mut(group).expect("it was counted");
            let count = asking.get_mut(&waiting.session).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                asking.remove(&waiting.session);
            }
            if asking.is_empty() {
                self.queued.remove(group);
            }
        }
        Some(waiting)
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
            self.end_alone(group);
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
        let mut leases = Leases::new(1000);
        (0..HELD_MAX as u64).for_each(|group| _ = leases.grant(A, Group(group), 0));
        assert_eq!(leases.grant(A, Group(1 << 40), 950), None);
        assert_eq!(leases.grant(A, Group(1 << 40), 1000), Some(2000));
        assert_eq!(leases.count(A), 1);
    }

    #[test]
    fn who_has_as_many_as_one_may_have_costs_the_others_no_time() {
        let mut leases = Leases::new(10_000);
        (0..HELD_MAX as u64).for_each(|group| _ = leases.grant(A, Group(group), 0));
        let begun = std::time::Instant::now();
        assert!((0..5000).all(|group| leases.grant(A, Group((1 << 40) + group), 100).is_none()));
        assert!(begun.elapsed().as_secs() < 5);
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

    fn ask(leases: &mut Leases, session: SessionId, groups: &BTreeSet<Group>) -> Ticket {
        leases.queue(session, groups.clone()).expect("not too many")
    }

    /// Who is given exclusive leases now.
    fn given(leases: &mut Leases, now: Millis) -> Vec<Ticket> {
        let given = leases.give_exclusive(now).into_iter();
        given.filter(|(_, given)| *given == Given::Until(now + EXCLUSIVE_TERM_MS)).map(|(ticket, _)| ticket).collect()
    }

    #[test]
    fn exclusive_leases_are_given_in_order() {
        let mut leases = Leases::new(10);
        let [a, b, c] = [A, B, C].map(|session| ask(&mut leases, session, &just(G)));
        assert_eq!(given(&mut leases, 0), [a], "A was first");
        assert_eq!(given(&mut leases, 1), []);
        assert_eq!(leases.exclusive_until(b), Some(EXCLUSIVE_TERM_MS));
        assert_eq!(leases.may_write(C, &just(G), 2), MayWrite::Wait { until: EXCLUSIVE_TERM_MS, recall: vec![] });
        assert_eq!(leases.may_write(A, &just(G), 2), MayWrite::Now);
        leases.forget_writer(C);
        leases.give_back(A, G);
        assert_eq!(given(&mut leases, 3), [b], "B was first");
        leases.end(B);
        assert_eq!(given(&mut leases, 4), [c]);
        leases.end(C);
        assert!(leases.alone.is_empty() && leases.queued.is_empty() && leases.groups.is_empty());
    }

    #[test]
    fn a_writer_that_was_kept_out_goes_before_the_next_exclusive_lease() {
        let mut leases = Leases::new(10);
        let [a, _] = [A, B].map(|session| ask(&mut leases, session, &just(G)));
        assert_eq!(given(&mut leases, 0), [a]);
        assert!(matches!(leases.may_write(C, &just(G), 1), MayWrite::Wait { .. }));
        leases.give_back(A, G);
        assert_eq!(given(&mut leases, 2), [], "B had asked before C has begun to wait, but C was kept out");
        assert_eq!(leases.may_write(C, &just(G), 3), MayWrite::Now);
        assert_eq!(given(&mut leases, 3).len(), 1);
    }

    /// `cargo xtask hostile` has shown it: its own lease did not keep the session from the next one.
    #[test]
    fn who_has_an_exclusive_lease_does_not_get_the_next_one_before_who_waits() {
        let mut leases = Leases::new(10);
        ask(&mut leases, A, &just(G));
        assert_eq!(given(&mut leases, 0).len(), 1);
        let wait = MayWrite::Wait { until: EXCLUSIVE_TERM_MS, recall: vec![] };
        assert_eq!(leases.may_write(B, &just(G), 1), wait);
        let again = ask(&mut leases, A, &just(G));
        assert_eq!(leases.give_exclusive(2), [(again, Given::Never)], "it may not wait for who waits for it");
        assert_eq!(leases.may_write(B, &just(G), 3), wait, "no longer than before");
        let again = ask(&mut leases, A, &just(G));
        assert_eq!(leases.give_exclusive(EXCLUSIVE_TERM_MS), [], "B is first");
        assert_eq!(leases.may_write(B, &just(G), EXCLUSIVE_TERM_MS), MayWrite::Now);
        assert_eq!(given(&mut leases, EXCLUSIVE_TERM_MS), [again]);
    }

    #[test]
    fn who_begins_to_write_later_keeps_nobody_from_an_exclusive_lease() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        assert!(matches!(leases.may_write(B, &just(G), 1), MayWrite::Wait { .. }));
        let c = ask(&mut leases, C, &just(G));
        assert_eq!(given(&mut leases, 1), [], "B waits since before");
        assert!(matches!(leases.may_write(SessionId(4), &just(G), 2), MayWrite::Wait { .. }));
        leases.give_back(A, G);
        assert_eq!(leases.may_write(B, &just(G), 3), MayWrite::Now);
        assert_eq!(given(&mut leases, 3), [c]);
    }

    #[test]
    fn two_do_not_wait_for_what_the_other_one_has() {
        let mut leases = Leases::new(10);
        let (first, second) = (just(G), just(Group(8)));
        ask(&mut leases, A, &first);
        ask(&mut leases, B, &second);
        assert_eq!(given(&mut leases, 0).len(), 2);
        let a = ask(&mut leases, A, &second);
        assert_eq!(leases.give_exclusive(1), [], "nobody waits for A");
        let b = ask(&mut leases, B, &first);
        assert_eq!(leases.give_exclusive(2), [(b, Given::Never)]);
        leases.give_back(B, Group(8));
        assert_eq!(given(&mut leases, 3), [a]);
    }

    #[test]
    fn nobody_can_hoard_exclusive_leases() {
        let mut leases = Leases::new(10);
        let many = (0..ALONE_MAX as u64).map(Group).collect::<BTreeSet<_>>();
        let ticket = ask(&mut leases, A, &many);
        assert_eq!(leases.queue(A, just(G)), None);
        assert_eq!(given(&mut leases, 0), [ticket]);
        assert_eq!(leases.queue(A, just(G)), None);
        (2..18).for_each(|session| _ = ask(&mut leases, SessionId(session), &many));
        assert!(leases.queue(SessionId(18), many).is_some(), "they are the same groups");
    }

    /// A asks, then B; A gives a shared lease on one of the groups back. With a queue for each group A stood behind B
    /// in one of them from then on, and in front of B in the other: neither was ever served.
    #[test]
    fn who_gives_a_lease_back_keeps_its_place_in_the_queue() {
        let mut leases = Leases::new(10);
        let both = BTreeSet::from([G, Group(8)]);
        leases.grant(A, G, 0);
        let [c, a, _] = [C, A, B].map(|session| ask(&mut leases, session, &both));
        assert_eq!(given(&mut leases, 0), [c]);
        assert_eq!(given(&mut leases, 1), []);
        leases.give_back(A, G);
        leases.end(C);
        assert_eq!(given(&mut leases, 2), [a], "A was first");
    }

    /// The simulation has found it: a session whose exclusive lease came behind a recall lost it by answering.
    #[test]
    fn who_answers_a_recall_keeps_its_exclusive_lease() {
        let mut leases = Leases::new(10);
        leases.grant(A, G, 0);
        let a = ask(&mut leases, A, &just(G));
        assert_eq!(leases.may_write(B, &just(G), 1), MayWrite::Wait { until: 10, recall: vec![(A, G)] });
        assert_eq!(given(&mut leases, 2), [a], "A has asked before B has begun to wait");
        leases.give_back(A, G);
        let wait = MayWrite::Wait { until: 2 + EXCLUSIVE_TERM_MS, recall: vec![] };
        assert_eq!(leases.may_write(B, &just(G), 3), wait);
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
        let [b, a, c] = [B, A, C].map(|session| ask(&mut leases, session, &just(G)));
        assert_eq!(given(&mut leases, 0), [b]);
        leases.leave_queue(a);
        assert_eq!(leases.may_write(B, &just(G), 2), MayWrite::Wait { until: 10, recall: vec![(A, G)] });
        leases.forget_writer(B);
        leases.give_back(B, G);
        assert_eq!(given(&mut leases, 3), [c], "A does not wait");
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
