//! What a session remembers, whatever becomes of its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bluefs::lease::{Millis, TERM_MS};
use bluefs::op::Inode;
use bluefs::query::{Answer, Query};
use bluefs::session::InFlight;
use bluefs::{Cred, Csn, Errno, Group, Ino, Interval, Key, Outcome, SessionId};
use bluefs_wire::{LockKind, LockRequest, Reply, Request};
use rustix::time::{clock_gettime, ClockId};

use crate::ahead::Ahead;
use crate::cache::{Cache, Said};
use crate::disk::{Disk, DiskCounts, History};
use crate::from_disk::{drop_gone, keep_read};
use crate::locks::OwnLocks;
use crate::wakers::{Event, Wakers};
use crate::window::{answer_bytes, Asked, Sent, INTERVALS_MAX};

/// More numbers of inodes are borrowed when there are no more than these.
const LENT_MIN: usize = 32;
/// A cache in front of this one counts from when it is told: so much later it may be, ms.
const FRONT_MARGIN_MS: Millis = 2_000;
/// Outcomes after which an acknowledgement is sent.
const ACKNOWLEDGE_EVERY: u64 = 256;

/// A question, or a request for a lock or for numbers, without a reply.
#[derive(Debug)]
struct Pending {
    request: Request,
    reply: Option<Result<Reply, Errno>>,
    /// When it was sent first.
    asked: Millis,
    /// Nobody waits for it: what it tells is kept in the cache.
    background: bool,
}

impl Pending {
    /// Whether it is sent again on the next connection, although nobody waits for it.
    fn is_kept(&self) -> bool {
        match &self.request {
            Request::Lock { lock, .. } => lock.kind == LockKind::Unlock || self.restores_lock(),
            _ => false,
        }
    }

    /// Whether it is to put back what a lock was before another one was asked for that nobody has waited for.
    fn restores_lock(&self) -> bool {
        self.background && matches!(&self.request, Request::Lock { lock, .. } if lock.kind != LockKind::Unlock)
    }
}

/// An outcome, and the inodes that were changed, if they were told.
type Decided = (Result<Outcome, Errno>, Vec<(Ino, Option<Inode>)>);

/// Where messages go, in their order.
pub trait Output: std::fmt::Debug + Send {
    /// Sends one. If the connection is ending, what has no reply is sent again on the next one.
    fn send(&self, request: Request);
    /// What is sent from now on may be sent together.
    fn hold(&self) {}
    /// It is sent now.
    fn release(&self) {}
}

/// What a session does, for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions that the cache has answered.
    pub hits: u64,
    /// Questions that were asked, also ahead.
    pub asked: u64,
    /// Changes that were sent.
    pub changes: u64,
    /// What waits for the server now.
    pub in_flight: u64,
    /// Leases.
    pub leases: u64,
    /// Bytes that were given to connections, and that came from them.
    pub sent_bytes: u64,
    /// See `sent_bytes`.
    pub received_bytes: u64,
    /// The cache on disk, if there is one.
    pub disk: Option<DiskCounts>,
    /// Contents of changes that are on the server's disk.
    pub written_bytes: u64,
    /// Contents of changes that the server has not answered yet.
    pub unwritten_bytes: u64,
}

/// Milliseconds of a clock that goes on while the machine sleeps: a lease ends meanwhile.
fn now() -> Millis {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// A session, as its client knows it.
#[derive(Debug)]
pub struct State {
    /// Where messages go; `None`: there is no connection.
    pub output: Option<Box<dyn Output>>,
    /// There was a connection. It may be gone.
    pub was_connected: bool,
    /// The session and its epoch.
    pub session: Option<(SessionId, u64)>,
    /// Nothing can be done any more: this is everybody's result.
    pub dead: Option<Errno>,
    /// The newest state that was told of.
    pub csn: Csn,
    /// Whether the session may only read.
    pub read_only: bool,
    next_tag: u64,
    pending: BTreeMap<u64, Pending>,
    flight: InFlight,
    /// The last interval that was given to a connection: up to it all may be carried out.
    given: u64,
    staged: BTreeMap<u64, Vec<Request>>,
    /// Intervals that this connection was given. Those behind wait for room.
    sent: Sent,
    /// Questions that this connection was given, and the tags of those that wait for room.
    asked: Asked,
    held: BTreeSet<u64>,
    /// Who waits for what.
    pub wakers: Wakers,
    outcomes: BTreeMap<u64, Decided>,
    /// Intervals for whose outcomes nobody waits any more.
    abandoned: BTreeSet<u64>,
    /// What intervals have changed whose outcomes come next.
    told: BTreeMap<u64, Vec<(Ino, Option<Inode>)>>,
    /// What is known of the volume.
    pub cache: Cache,
    /// What was known before, on disk.
    pub disk: Option<Arc<Disk>>,
    /// Of which volume and of which of its states that may be, since the connection has said so.
    pub history: Option<History>,
    /// What is read before it is wanted.
    pub ahead: Ahead,
    /// How long a lease lasts.
    pub term: Millis,
    renewing: BTreeSet<Group>,
    /// Numbers of inodes that are lent to the session, and were not used.
    lent: Vec<Ino>,
    is_borrowing: bool,
    counts: Counts,
    acknowledged: u64,
    /// Locks whose wait was ended, until the server has said what became of them.
    cancelled: BTreeMap<u64, LockRequest>,
    locks: OwnLocks,
    open: BTreeMap<Ino, u64>,
    /// Files without a name, and the last opening that was begun before this was told.
    orphans: BTreeMap<Ino, u64>,
    /// Openings that are under way, by their numbers.
    opening: BTreeSet<u64>,
    last_opening: u64,
}

impl State {
    pub fn new() -> State {
        State {
            output: None,
            was_connected: false,
            session: None,
            dead: None,
            csn: Csn(0),
            read_only: false,
            next_tag: 1,
            pending: BTreeMap::new(),
            flight: InFlight::new(),
            given: 0,
            staged: BTreeMap::new(),
            sent: Sent::default(),
            asked: Asked::default(),
            held: BTreeSet::new(),
            wakers: Wakers::default(),
            outcomes: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            told: BTreeMap::new(),
            cache: Cache::default(),
            disk: None,
            history: None,
            ahead: Ahead::default(),
            term: TERM_MS,
            renewing: BTreeSet::new(),
            lent: Vec::new(),
            is_borrowing: false,
            counts: Counts::default(),
            acknowledged: 0,
            cancelled: BTreeMap::new(),
            locks: OwnLocks::default(),
            open: BTreeMap::new(),
            orphans: BTreeMap::new(),
            opening: BTreeSet::new(),
            last_opening: 0,
        }
    }

    /// Up to where outcomes have arrived.
    pub fn acknowledged(&self) -> u64 {
        self.flight.acknowledged()
    }

    fn send(&mut self, request: Request) {
        if let Some(output) = &self.output {
            output.send(request);
        }
    }

    /// Sends something that has a reply with this tag.
    pub fn ask(&mut self, request: impl FnOnce(u64) -> Request) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.ask_tagged(tag, request(tag), false);
        tag
    }

    /// Asks ahead: nobody waits for it.
    pub fn ask_ahead(&mut self, request: impl FnOnce(u64) -> Request) -> Option<u64> {
        // On the next connection nobody may want it any more.
        self.output.as_ref()?;
        let tag = self.next_tag;
        self.next_tag += 1;
        self.ask_tagged(tag, request(tag), true);
        Some(tag)
    }

    fn ask_tagged(&mut self, tag: u64, request: Request, background: bool) {
        self.counts.asked += u64::from(matches!(request, Request::Ask { .. } | Request::AskLeased { .. }));
        if let Request::Lock { lock, .. } = &request {
            self.locks.asked(lock);
            // Who asks again for what it has given up keeps it, should it have been given.
            let is_same = |old: &LockRequest| {
                (old.ino, old.owner, old.start, old.end) == (lock.ino, lock.owner, lock.start, lock.end)
            };
            self.cancelled.retain(|_, old| !is_same(old));
        }
        self.pending.insert(tag, Pending { request: request.clone(), reply: None, asked: now(), background });
        self.send_tagged(tag, request);
    }

    /// Sends a question, or keeps it until there is room for its answer.
    fn send_tagged(&mut self, tag: u64, request: Request) {
        let bytes = answer_bytes(&request);
        if bytes > 0 && self.output.is_some() && (!self.held.is_empty() || !self.asked.begin(tag, bytes)) {
            self.held.insert(tag);
            return;
        }
        self.send(request);
    }

    /// A question has its answer: others may be sent.
    fn send_held(&mut self, answered: u64) {
        self.asked.end(answered);
        while let Some(tag) = self.held.first().copied() {
            let Some(request) = self.pending.get(&tag).map(|one| one.request.clone()) else {
                self.held.pop_first();
                continue;
            };
            if !self.asked.begin(tag, answer_bytes(&request)) {
                return;
            }
            self.held.pop_first();
            self.send(request);
        }
    }

    /// How much may be read before it is wanted.
    pub fn room_ahead(&self) -> u64 {
        if self.held.is_empty() {
            self.asked.room_ahead()
        } else {
            0
        }
    }

    /// What the cache says. Leases that were used are prolonged.
    pub fn cached(&mut self, cred: &Cred, query: &Query) -> Said {
        let said = self.cache.answer(cred, query, now());
        self.counts.hits += u64::from(matches!(said, Said::Known(..)));
        for group in self.cache.take_aging() {
            if !self.renewing.contains(&group) && self.ask_ahead(|tag| Request::Lease { tag, group }).is_some() {
                self.renewing.insert(group);
            }
        }
        said
    }

    /// What the cache says, and for how long a cache in front of it may say the same.
    pub fn known_for(&mut self, cred: &Cred, query: &Query) -> Option<(Result<Answer, Errno>, Duration)> {
        let now = now();
        match self.cached(cred, query) {
            Said::Known(known, until) => {
                let sure = until.saturating_sub(now + FRONT_MARGIN_MS);
                Some((known, Duration::from_millis(sure)))
            }
            _ => None,
        }
    }

    /// A number for a new inode, if there is one. More are borrowed before there is none.
    pub fn take_ino(&mut self) -> Option<(Ino, SessionId)> {
        if self.lent.len() < LENT_MIN && !self.is_borrowing {
            self.is_borrowing = self.ask_ahead(|tag| Request::Lend { tag }).is_some();
        }
        Some((self.lent.pop()?, self.session?.0))
    }

    /// The number was not used.
    pub fn put_ino(&mut self, ino: Ino, lent_to: SessionId) {
        if self.session.is_some_and(|(session, _)| session == lent_to) {
            self.lent.push(ino);
        }
    }

    /// Numbers for people.
    pub fn counts(&self) -> Counts {
        let waiting = self.pending.values().filter(|one| one.reply.is_none() && !one.background).count();
        let in_flight = (waiting + self.flight.again().count()) as u64;
        let unwritten_bytes = self.flight.again().map(|interval| self.content_bytes(interval)).sum();
        let leases = self.cache.lease_count(now()) as u64;
        let disk = self.disk.as_ref().map(|disk| disk.counts());
        Counts { in_flight, leases, unwritten_bytes, disk, ..self.counts }
    }

    /// Bytes of contents that an interval carries or takes.
    fn content_bytes(&self, interval: &Interval) -> u64 {
        let staged = self.staged.get(&interval.number).into_iter().flatten().map(|piece| match piece {
            Request::Stage { data, .. } => data.len(),
            _ => 0,
        });
        interval.steps.iter().map(|step| step.change.bytes()).chain(staged).sum::<usize>() as u64
    }

    /// The connection is gone: nobody tells any more what changes.
    pub fn disconnected(&mut self) {
        self.output = None;
        self.sent.clear();
        self.asked.clear();
        self.held.clear();
        self.cache.clear();
        self.history = None;
        self.ahead.clear();
        self.renewing.clear();
        self.is_borrowing = false;
        self.pending.retain(|_, one| !one.background || one.is_kept());
    }

    /// Takes the reply, if it is there.
    pub fn take_reply(&mut self, tag: u64) -> Option<Result<Reply, Errno>> {
        self.pending.get(&tag)?.reply.as_ref()?;
        self.pending.remove(&tag)?.reply
    }

    /// Nobody waits for this reply any more. A lock that is given back is given back nevertheless, and numbers that are
    /// lent are for whoever needs some next.
    pub fn forget(&mut self, tag: u64) {
        let Some(mut one) = self.pending.remove(&tag) else { return };
        self.held.remove(&tag);
        if one.is_kept() || matches!(one.request, Request::Lend { .. }) {
            one.background = true;
            self.pending.insert(tag, one);
        } else if let Request::Lock { lock, .. } = one.request {
            self.cancelled.insert(tag, lock);
            self.send(Request::CancelLock { tag });
        }
    }

    /// Locks that are waited for.
    pub fn waiting_locks(&self) -> usize {
        let waits =
            |one: &Pending| one.reply.is_none() && matches!(&one.request, Request::Lock { lock, .. } if lock.wait);
        self.pending.values().filter(|one| waits(one)).count()
    }

    /// Gives a lock back. Nobody waits for that; it is said again on each connection until the server has answered.
    pub fn unlock_later(&mut self, lock: LockRequest) {
        let tag = self.ask(|tag| Request::Lock { tag, lock });
        self.forget(tag);
    }

    /// A lock was given for which nobody waits any more, or it may have been: what the session had of these bytes
    /// before it has again. Returns the tags of what is asked for that.
    fn restore_lock(&mut self, lock: &LockRequest) -> Vec<u64> {
        let parts = self.locks.before(lock);
        let first = self.next_tag;
        for part in parts {
            let tag = self.next_tag;
            self.next_tag += 1;
            self.ask_tagged(tag, Request::Lock { tag, lock: part }, true);
        }
        (first..self.next_tag).collect()
    }

    /// Nobody waits for this outcome any more.
    pub fn abandon(&mut self, number: u64) {
        if self.outcomes.remove(&number).is_none() && self.flight.get(number).is_some() {
            self.abandoned.insert(number);
        }
    }

    /// Sends an interval, and before it the contents that it takes.
    pub fn submit(&mut self, interval: Interval, staged: Vec<Request>) -> u64 {
        let interval = self.flight.send(interval).clone();
        let number = interval.number;
        self.cache.begun(&interval);
        self.counts.changes += 1;
        self.staged.insert(number, staged);
        self.send_intervals();
        number
    }

    /// Sends intervals that this connection was not given, in their order, as far as there is room for them.
    fn send_intervals(&mut self) {
        while self.output.is_some() {
            let Some(interval) = self.flight.behind(self.sent.last()) else { return };
            let number = interval.number;
            if number > self.acknowledged + INTERVALS_MAX {
                if self.flight.acknowledged() <= self.acknowledged {
                    return;
                }
                self.acknowledge();
                continue;
            }
            let pieces = self.staged.get(&number).map_or(&[][..], Vec::as_slice);
            if !self.sent.begin(interval, pieces) {
                return;
            }
            let (interval, pieces) = (interval.clone(), pieces.to_vec());
            self.given = self.given.max(number);
            pieces.into_iter().for_each(|piece| self.send(piece));
            self.send(Request::Submit { interval });
        }
    }

    /// The server may forget outcomes that are here.
    fn acknowledge(&mut self) {
        self.acknowledged = self.flight.acknowledged();
        self.send(Request::Acknowledge { number: self.acknowledged });
    }

    /// Takes the outcome, if it is there.
    pub fn take_outcome(&mut self, number: u64) -> Option<Decided> {
        self.outcomes.remove(&number)
    }

    /// A new connection: everything without a reply is sent again, intervals in their order.
    pub fn connected(&mut self, output: impl Output + 'static) {
        // Whether one was given on the old connection is not known. What is reclaimed is what was before, and so is
        // asked for first; what was to be given back is, behind what is reclaimed.
        for (_, lock) in std::mem::take(&mut self.cancelled) {
            self.restore_lock(&lock);
        }
        self.output = Some(Box::new(output));
        self.was_connected = true;
        let is_first = |one: &Pending| one.reply.is_none() && one.restores_lock();
        let first = self.pending.values().filter(|one| is_first(one));
        let first: Vec<Request> = first.map(|one| one.request.clone()).collect();
        first.into_iter().for_each(|request| self.send(request));
        for lock in self.locks.all() {
            let tag = self.next_tag;
            self.next_tag += 1;
            self.locks.reclaims(tag, lock);
            self.send(Request::Reclaim { tag, lock });
        }
        // The cache was emptied with the connection before.
        self.send(Request::GaveUp {});
        if self.disk.is_some() {
            self.ask_ahead(|tag| Request::History { tag });
        }
        self.acknowledged = self.flight.acknowledged();
        self.sent.clear();
        self.send_intervals();
        self.asked.clear();
        self.held.clear();
        let waiting = self.pending.iter().filter(|(_, one)| one.reply.is_none() && !is_first(one));
        let waiting: Vec<(u64, Request)> = waiting.map(|(tag, one)| (*tag, one.request.clone())).collect();
        waiting.into_iter().for_each(|(tag, request)| self.send_tagged(tag, request));
    }

    /// The session is gone, and a new one begins: what was in flight cannot be proven. Questions are asked again.
    pub fn begin_anew(&mut self) {
        self.session = None;
        self.locks.lose_all();
        // At ESTALE the kernel looks names up again, and carries the change out once more.
        let given = self.given;
        self.fail_intervals(|number| if number <= given { Errno::IO } else { Errno::STALE });
        self.flight.begin_anew();
        self.acknowledged = 0;
        self.told.clear();
        self.orphans.clear();
        self.lent.clear();
    }

    /// Everybody who waits gets this.
    pub fn fail_all(&mut self, errno: Errno) {
        self.fail_intervals(|_| errno);
        for (tag, one) in self.pending.iter_mut().filter(|(_, one)| one.reply.is_none() && !one.background) {
            one.reply = Some(Err(errno));
            // It may have been given all the same.
            if let Request::Lock { lock, .. } = one.request {
                self.cancelled.insert(*tag, lock);
            }
        }
    }

    fn fail_intervals(&mut self, errno: impl Fn(u64) -> Errno) {
        let numbers: Vec<u64> = self.flight.again().map(|interval| interval.number).collect();
        for number in numbers {
            self.decided(number, Err(errno(number)));
        }
    }

    fn decided(&mut self, number: u64, outcome: Result<Outcome, Errno>) {
        let told = self.told.remove(&number).unwrap_or_default();
        if let Ok(Outcome::Committed { effects, csn }) = &outcome {
            if let Some(interval) = self.flight.get(number) {
                // The server tells what an interval has changed in front of the outcome. With an outcome that it tells
                // again it does not: others may have changed the same since.
                if self.cache.was_told(number) {
                    self.cache.committed(interval, effects);
                }
                self.keep_written(interval, effects, *csn);
                self.counts.written_bytes += self.content_bytes(interval);
            }
        }
        self.cache.settled(number);
        if self.flight.outcome(number) {
            if !self.abandoned.remove(&number) {
                self.outcomes.insert(number, (outcome, told));
            }
            self.staged.remove(&number);
        }
        self.sent.end(number);
        self.wakers.wake(Event::Outcome(number));
    }

    /// A reply has arrived.
    pub fn arrived(&mut self, reply: Reply) {
        match &reply {
            Reply::Answer { csn, .. }
            | Reply::Error { csn, .. }
            | Reply::Invalidate { csn, .. }
            | Reply::Changed { csn, .. }
            | Reply::Versions { csn, .. } => {
                self.csn = self.csn.max(*csn);
            }
            _ => {}
        }
        if let Reply::Answer { tag, .. } | Reply::Error { tag, .. } = &reply {
            self.send_held(*tag);
        }
        match reply {
            Reply::Decided { number, outcome } => {
                if let Outcome::Committed { csn, .. } = &outcome {
                    self.csn = self.csn.max(*csn);
                }
                self.decided(number, Ok(outcome));
                if self.flight.acknowledged() >= self.acknowledged + ACKNOWLEDGE_EVERY {
                    self.acknowledge();
                }
                self.send_intervals();
            }
            Reply::Answer { tag, .. }
            | Reply::Error { tag, .. }
            | Reply::Leased { tag, .. }
            | Reply::Lent { tag, .. }
            | Reply::Tested { tag, .. }
            | Reply::History { tag, .. }
            | Reply::Versions { tag, .. }
            | Reply::Locked { tag } => self.replied(tag, reply),
            Reply::Orphan { ino } => {
                self.orphans.insert(ino, self.last_opening);
                self.release();
            }
            Reply::Granted { tag, groups } => {
                if let Some(asked) = self.pending.get(&tag).map(|one| one.asked) {
                    groups.into_iter().for_each(|group| self.cache.granted(group, asked, self.term));
                }
            }
            Reply::Invalidate { keys, .. } => keys.iter().for_each(|key| self.cache.forget(key)),
            Reply::Changed { number, keys, inodes, names, .. } => {
                self.cache.changed(number, &keys, &inodes, &names);
                self.told.insert(number, inodes);
            }
            Reply::Recall { group } => self.cache.recalled(group),
            Reply::Welcome { .. } | Reply::Refused { .. } | Reply::Pong { .. } => {}
        }
    }

    /// The reply to a question has arrived.
    fn replied(&mut self, tag: u64, reply: Reply) {
        let Some(mut pending) = self.pending.remove(&tag) else {
            // A lock that was reclaimed, or one that was given while its wait was ended.
            self.locks.reclaimed(tag, matches!(reply, Reply::Locked { .. }));
            if let (Some(lock), Reply::Locked { .. }) = (self.cancelled.remove(&tag), reply) {
                self.restore_lock(&lock);
            }
            return;
        };
        self.learn(&pending, &reply);
        if pending.background {
            return self.arrived_ahead(tag, reply);
        }
        pending.reply = Some(Ok(reply));
        self.pending.insert(tag, pending);
        self.wakers.wake(Event::Reply(tag));
    }

    /// Keeps what a reply says, whoever has asked.
    fn learn(&mut self, pending: &Pending, reply: &Reply) {
        match (&pending.request, reply) {
            (Request::Ask { query, .. } | Request::AskLeased { query, .. }, Reply::Answer { answer, csn, .. }) => {
                self.cache.learn(query, Ok(answer));
                if let (Some(disk), Some(history)) = (&self.disk, &self.history) {
                    keep_read(disk, history, query, answer, *csn);
                }
            }
            (Request::Ask { query, .. } | Request::AskLeased { query, .. }, Reply::Error { errno, .. }) => {
                self.cache.learn(query, Err(*errno));
            }
            (Request::History { .. }, Reply::History { volume, starts, .. }) => {
                self.history = History::new(*volume, starts.clone());
                if let (Some(disk), Some(_)) = (&self.disk, &self.history) {
                    disk.use_volume(*volume);
                }
            }
            (Request::Versions { inos, .. }, Reply::Versions { versions, .. }) => {
                self.cache.learn_versions(inos, versions);
                if let (Some(disk), Some(history)) = (&self.disk, &self.history) {
                    drop_gone(disk, history, inos, versions);
                }
            }
            (Request::Lock { lock, .. }, Reply::Locked { .. }) => self.locks.given(lock),
            (Request::Lock { lock, .. }, Reply::Error { .. }) if pending.restores_lock() => self.locks.lose(lock),
            (Request::Lease { group, .. } | Request::LeaseNow { group, .. }, Reply::Leased { granted, .. }) => {
                self.renewing.remove(group);
                if *granted {
                    self.cache.granted(*group, pending.asked, self.term);
                }
            }
            _ => {}
        }
    }

    /// Nobody answers from what was known under this lease any more.
    pub fn give_back(&mut self, group: Group) {
        self.send(Request::GiveBack { group });
    }

    fn arrived_ahead(&mut self, tag: u64, reply: Reply) {
        self.ahead.arrived(tag);
        self.wakers.wake(Event::Ahead(tag));
        if let Reply::Lent { group, .. } = reply {
            self.is_borrowing = false;
            self.put_group(group);
            self.ask_ahead(|tag| Request::Lease { tag, group });
        }
    }

    /// Numbers that were lent. The first one is given out first.
    pub fn put_group(&mut self, group: Group) {
        self.lent.splice(0..0, group.inodes().rev().map(Ino));
    }

    /// Somebody is about to open something: until that has ended no file is given up that loses its name meanwhile.
    /// Says the opening's number.
    pub fn begin_opening(&mut self) -> u64 {
        self.last_opening += 1;
        self.opening.insert(self.last_opening);
        self.last_opening
    }

    /// It is open, or was not opened.
    pub fn end_opening(&mut self, number: u64, opened: Option<Ino>) {
        self.opening.remove(&number);
        if let Some(ino) = opened {
            let count = self.open.entry(ino).or_default();
            *count += 1;
            if *count == 1 {
                self.locks.closed(ino);
            }
        }
        self.release();
    }

    /// It is open once more, if somebody here has it open.
    pub fn open_again(&mut self, ino: Ino) -> bool {
        let count = self.open.get_mut(&ino);
        count.map(|count| *count += 1).is_some()
    }

    /// One who had it open less. Whether it has no name.
    pub fn close(&mut self, ino: Ino) -> bool {
        let is_nameless = self.orphans.contains_key(&ino);
        if let Some(count) = self.open.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&ino);
                self.locks.closed(ino);
            }
        }
        self.release();
        is_nameless
    }

    /// Whether a lock on this file was lost since it was opened: its contents may be another's by now.
    pub fn has_lost_lock(&self, ino: Ino) -> bool {
        self.locks.has_lost(ino)
    }

    /// Whether anybody here has it open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.open.contains_key(&ino)
    }

    /// Gives up files without a name that nobody has open. Who began to open something before that was told may open
    /// one of them; who begins later is told that it has no name.
    fn release(&mut self) {
        let oldest = self.opening.first().copied().unwrap_or(u64::MAX);
        let is_unused = |(ino, last): &(&Ino, &u64)| **last < oldest && !self.open.contains_key(ino);
        let unused: Vec<Ino> = self.orphans.iter().filter(is_unused).map(|(ino, _)| *ino).collect();
        for ino in unused {
            self.orphans.remove(&ino);
            [Key::Data(ino), Key::Xattr(ino)].iter().for_each(|key| self.cache.forget(key));
            self.send(Request::Released { ino });
        }
    }
}

#[cfg(test)]
mod tests;
