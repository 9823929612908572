//! What a session remembers, whatever becomes of its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;

use bluefs::session::InFlight;
use bluefs::{Csn, Errno, Ino, Outcome, SessionId};
use bluefs_wire::{LockKind, LockRequest, Reply, Request};

/// Outcomes after which an acknowledgement is sent.
const ACKNOWLEDGE_EVERY: u64 = 256;

/// A question, or a request for a lock or for numbers, without a reply.
#[derive(Debug)]
struct Pending {
    request: Request,
    reply: Option<Result<Reply, Errno>>,
}

/// A session, as its client knows it.
#[derive(Debug)]
pub struct State {
    /// Where messages go; `None`: there is no connection.
    pub output: Option<Sender<Request>>,
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
    staged: BTreeMap<u64, Vec<Request>>,
    outcomes: BTreeMap<u64, Result<Outcome, Errno>>,
    acknowledged: u64,
    /// Locks whose wait was ended, until the server has said what became of them.
    cancelled: BTreeMap<u64, LockRequest>,
    open: BTreeMap<Ino, u64>,
    orphans: BTreeSet<Ino>,
    opening: u64,
}

impl State {
    pub fn new() -> State {
        State {
            output: None,
            session: None,
            dead: None,
            csn: Csn(0),
            read_only: false,
            next_tag: 1,
            pending: BTreeMap::new(),
            flight: InFlight::new(),
            staged: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            acknowledged: 0,
            cancelled: BTreeMap::new(),
            open: BTreeMap::new(),
            orphans: BTreeSet::new(),
            opening: 0,
        }
    }

    /// Up to where outcomes have arrived.
    pub fn acknowledged(&self) -> u64 {
        self.flight.acknowledged()
    }

    fn send(&mut self, request: Request) {
        // If the connection is ending, what has no reply is sent again on the next one.
        if let Some(output) = &self.output {
            let _ = output.send(request);
        }
    }

    /// Sends something that has a reply with this tag.
    pub fn ask(&mut self, request: impl FnOnce(u64) -> Request) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let request = request(tag);
        self.pending.insert(tag, Pending { request: request.clone(), reply: None });
        self.send(request);
        tag
    }

    /// Takes the reply, if it is there.
    pub fn take_reply(&mut self, tag: u64) -> Option<Result<Reply, Errno>> {
        self.pending.get(&tag)?.reply.as_ref()?;
        self.pending.remove(&tag)?.reply
    }

    /// Nobody waits for this reply any more.
    pub fn forget(&mut self, tag: u64) {
        if let Some(Pending { request: Request::Lock { lock, .. }, .. }) = self.pending.remove(&tag) {
            self.cancelled.insert(tag, lock);
            self.send(Request::CancelLock { tag });
        }
    }

    /// Sends an interval, and before it the contents that it takes.
    pub fn submit(&mut self, interval: bluefs::Interval, staged: Vec<Request>) -> u64 {
        let interval = self.flight.send(interval).clone();
        let number = interval.number;
        staged.iter().for_each(|piece| self.send(piece.clone()));
        self.staged.insert(number, staged);
        self.send(Request::Submit { interval });
        number
    }

    /// Takes the outcome, if it is there.
    pub fn take_outcome(&mut self, number: u64) -> Option<Result<Outcome, Errno>> {
        self.outcomes.remove(&number)
    }

    /// A new connection: everything without a reply is sent again, intervals in their order.
    pub fn connected(&mut self, output: Sender<Request>) {
        self.output = Some(output);
        self.acknowledged = self.flight.acknowledged();
        // Whether one was given on the old connection is not known.
        for lock in std::mem::take(&mut self.cancelled).into_values() {
            self.send(Request::Lock { tag: 0, lock: LockRequest { kind: LockKind::Unlock, ..lock } });
        }
        let numbers: Vec<u64> = self.flight.again().map(|interval| interval.number).collect();
        for number in numbers {
            let pieces = self.staged.get(&number).cloned().unwrap_or_default();
            pieces.into_iter().for_each(|piece| self.send(piece));
            let interval = self.flight.again().find(|interval| interval.number == number).cloned();
            self.send(Request::Submit { interval: interval.expect("it is in flight") });
        }
        let waiting: Vec<Request> =
            self.pending.values().filter(|one| one.reply.is_none()).map(|one| one.request.clone()).collect();
        waiting.into_iter().for_each(|request| self.send(request));
    }

    /// The session is gone, and a new one begins: what was in flight cannot be proven. Questions are asked again.
    pub fn begin_anew(&mut self) {
        self.session = None;
        self.fail_intervals(Errno::STALE);
        self.flight = InFlight::new();
        self.acknowledged = 0;
        self.orphans.clear();
    }

    /// Everybody who waits gets this.
    pub fn fail_all(&mut self, errno: Errno) {
        self.fail_intervals(errno);
        for one in self.pending.values_mut().filter(|one| one.reply.is_none()) {
            one.reply = Some(Err(errno));
        }
    }

    fn fail_intervals(&mut self, errno: Errno) {
        let numbers: Vec<u64> = self.flight.again().map(|interval| interval.number).collect();
        for number in numbers {
            self.decided(number, Err(errno));
        }
    }

    fn decided(&mut self, number: u64, outcome: Result<Outcome, Errno>) {
        if self.flight.outcome(number) {
            self.outcomes.insert(number, outcome);
            self.staged.remove(&number);
        }
    }

    /// A reply has arrived.
    pub fn arrived(&mut self, reply: Reply) {
        match &reply {
            Reply::Answer { csn, .. } | Reply::Error { csn, .. } | Reply::Invalidate { csn, .. } => {
                self.csn = self.csn.max(*csn);
            }
            _ => {}
        }
        match reply {
            Reply::Decided { number, outcome } => {
                if let Outcome::Committed { csn, .. } = &outcome {
                    self.csn = self.csn.max(*csn);
                }
                self.decided(number, Ok(outcome));
                let number = self.flight.acknowledged();
                if number >= self.acknowledged + ACKNOWLEDGE_EVERY {
                    self.acknowledged = number;
                    self.send(Request::Acknowledge { number });
                }
            }
            Reply::Answer { tag, .. }
            | Reply::Error { tag, .. }
            | Reply::Leased { tag, .. }
            | Reply::Lent { tag, .. }
            | Reply::Locked { tag } => match self.pending.get_mut(&tag) {
                Some(pending) => pending.reply = Some(Ok(reply)),
                // The lock was given while its wait was ended.
                None => {
                    if let (Some(lock), Reply::Locked { .. }) = (self.cancelled.remove(&tag), reply) {
                        self.send(Request::Lock { tag: 0, lock: LockRequest { kind: LockKind::Unlock, ..lock } });
                    }
                }
            },
            Reply::Orphan { ino } => {
                self.orphans.insert(ino);
                self.release();
            }
            Reply::Recall { group } => self.send(Request::GiveBack { group }),
            Reply::Welcome { .. } | Reply::Refused { .. } | Reply::Invalidate { .. } | Reply::Pong { .. } => {}
        }
    }

    /// Somebody is about to open something: until then no file without a name is given up.
    pub fn begin_opening(&mut self) {
        self.opening += 1;
    }

    /// It is open, or was not opened.
    pub fn end_opening(&mut self, opened: Option<Ino>) {
        self.opening -= 1;
        if let Some(ino) = opened {
            *self.open.entry(ino).or_default() += 1;
        }
        self.release();
    }

    /// One who had it open less.
    pub fn close(&mut self, ino: Ino) {
        if let Some(count) = self.open.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&ino);
            }
        }
        self.release();
    }

    /// Whether anybody here has it open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.open.contains_key(&ino)
    }

    fn release(&mut self) {
        if self.opening > 0 {
            return;
        }
        let unused: Vec<Ino> = self.orphans.iter().filter(|ino| !self.open.contains_key(ino)).copied().collect();
        for ino in unused {
            self.orphans.remove(&ino);
            self.send(Request::Released { ino });
        }
    }
}
