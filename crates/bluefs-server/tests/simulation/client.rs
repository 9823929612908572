//! A client: two threads that do one thing after the other, over a session that outlives its connections.

use std::collections::{BTreeMap, BTreeSet};

use bluefs::lease::{ClientLeases, Millis, EXCLUSIVE_TERM_MS, TERM_MS};
use bluefs::op::{Content, Failure};
use bluefs::query::{Answer, Query};
use bluefs::session::InFlight;
use bluefs::{Change, Cred, Csn, Group, Ino, Interval, Key, Kind, Name, Outcome, Runs, SessionId, Step};
use bluefs_wire::{LockKind, LockRequest, Refusal, Reply, Request, PROTOCOL_VERSION};

use crate::history::{Alone, Contents, File, History, Hold};
use crate::{Dice, Fault};

/// How long a session without a connection is kept.
pub const KEPT_MS: Millis = 30_000;
/// Files that are made and removed.
const SHARED_NAMES: u64 = 3;
const EVERYTHING: u32 = 1 << 20;

/// What a thread does.
#[derive(Debug)]
enum Doing {
    Nothing { until: Millis },
    Reading { tag: u64, called: Millis, file: File },
    Leasing { tag: u64, called: Millis, file: File },
    ReadingToWrite { tag: u64, from: File, to: File, alone: Option<Millis> },
    Writing { number: u64, write: usize, alone: Option<Millis> },
    WantingAlone { tag: u64, asked: Millis, from: File, to: File },
    Locking { tag: u64, file: File },
    Locked { file: File, until: Millis },
    Unlocking { tag: u64 },
    Making { number: u64 },
    Opening { tag: u64 },
    Open { ino: Ino, until: Millis },
    ReadingOpen { tag: u64, ino: Ino, until: Millis },
}

#[derive(Debug)]
pub struct Client {
    /// Nobody else ever has this number.
    pub name: u64,
    fault: Option<Fault>,
    files: Vec<Ino>,
    pub session: Option<(SessionId, u64)>,
    pub welcome: bool,
    /// When the last connection was cut in truth that the server has accepted as far as is known here.
    cut_at: Option<Millis>,
    /// When the newest connection was cut in truth. Its welcome may have come before and be read behind that.
    newest_cut_at: Option<Millis>,
    csn: Csn,
    flight: InFlight,
    acknowledged: u64,
    pending: BTreeMap<u64, (Request, Millis)>,
    next_tag: u64,
    leases: ClientLeases,
    cache: BTreeMap<File, Contents>,
    give_back: Vec<(Millis, Group)>,
    locks: BTreeMap<File, LockRequest>,
    open: Vec<Ino>,
    orphans: BTreeSet<Ino>,
    lent: Vec<Ino>,
    threads: [Doing; 2],
    tokens: u64,
    /// Begins nothing more.
    pub is_ending: bool,
    pub out: Vec<Request>,
}

impl Client {
    pub fn new(name: u64, files: Vec<Ino>, fault: Option<Fault>) -> Client {
        let threads = [Doing::Nothing { until: 0 }, Doing::Nothing { until: 0 }];
        Client {
            name,
            fault,
            files,
            session: None,
            welcome: false,
            cut_at: None,
            newest_cut_at: None,
            csn: Csn(0),
            flight: InFlight::new(),
            acknowledged: 0,
            pending: BTreeMap::new(),
            next_tag: 1,
            leases: ClientLeases::default(),
            cache: BTreeMap::new(),
            give_back: Vec::new(),
            locks: BTreeMap::new(),
            open: Vec::new(),
            orphans: BTreeSet::new(),
            lent: Vec::new(),
            threads,
            tokens: name << 32,
            is_ending: false,
            out: Vec::new(),
        }
    }

    /// Its connection breaks, which it does not notice yet.
    pub fn cut(&mut self, now: Millis) {
        self.cut_at.get_or_insert(now);
        self.newest_cut_at.get_or_insert(now);
    }

    /// What it says on a new connection.
    pub fn hello(&mut self) -> Request {
        self.newest_cut_at = None;
        let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
        let acknowledged = self.flight.acknowledged();
        Request::Hello { version, volume, session: self.session, acknowledged, secret }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.threads.iter().all(|doing| matches!(doing, Doing::Nothing { .. }))
            && self.open.is_empty()
            && self.give_back.is_empty()
    }

    pub fn doing(&self) -> String {
        format!("{}: {:?}", self.name, self.threads)
    }

    /// It notices that its connection is gone.
    pub fn disconnected(&mut self) {
        self.welcome = false;
        (self.leases, self.cache) = (ClientLeases::default(), BTreeMap::new());
        self.give_back.clear();
        self.pending.retain(|_, (request, _)| !matches!(request, Request::Lend { .. }));
    }

    /// It is over. Whatever it had is over now, or since its session is.
    pub fn killed(&mut self, now: Millis, history: &mut History) {
        self.end_holds(self.session_ended(now), history);
    }

    /// When its session has ended, if it is over now.
    fn session_ended(&self, now: Millis) -> Millis {
        self.cut_at.map_or(now, |cut| now.min(cut + KEPT_MS))
    }

    fn end_holds(&mut self, at: Millis, history: &mut History) {
        history.holds.iter_mut().filter(|hold| hold.owner == self.name).for_each(|hold| hold.to = hold.to.min(at));
        self.locks.clear();
    }

    fn ask(&mut self, now: Millis, request: impl FnOnce(u64) -> Request) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let request = request(tag);
        self.pending.insert(tag, (request.clone(), now));
        self.out.push(request);
        tag
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    fn submit(&mut self, base: Csn, reads: Vec<Key>, changes: Vec<Change>) -> u64 {
        let steps = changes.into_iter().map(|change| Step { cred: 0, time: None, change }).collect();
        let (after, creds) = (Runs::new(), vec![Cred::root()]);
        let interval = self.flight.send(Interval { number: 0, base, after, reads, creds, steps }).clone();
        let number = interval.number;
        self.out.push(Request::Submit { interval });
        number
    }

    fn append(&self, file: File, token: u64) -> Change {
        Change::Append { ino: self.files[file], content: Content::Inline(token.to_le_bytes().to_vec()) }
    }

    fn write(
        &mut self,
        now: Millis,
        to: Vec<File>,
        saw: Option<(Csn, File, Contents)>,
        history: &mut History,
    ) -> Doing {
        let token = self.token();
        let changes = to.iter().map(|file| self.append(*file, token)).collect();
        let (base, reads) = match &saw {
            Some((base, file, _)) => (*base, vec![Key::Data(self.files[*file])]),
            None => (Csn(0), vec![]),
        };
        let appends = to.into_iter().map(|file| (file, token)).collect();
        let write = history.write(now, appends, saw.map(|(_, file, saw)| (file, saw)));
        let number = self.submit(base, reads, changes);
        if let Some((session, _)) = self.session {
            history.numbered(session, number, write);
        }
        Doing::Writing { number, write, alone: None }
    }

    /// Time passes.
    pub fn run(&mut self, now: Millis, dice: &mut Dice, history: &mut History) {
        let (due, later) = std::mem::take(&mut self.give_back).into_iter().partition(|(at, _)| *at <= now);
        self.give_back = later;
        let due: Vec<(Millis, Group)> = due;
        due.into_iter().for_each(|(_, group)| self.out.push(Request::GiveBack { group }));
        for i in 0..self.threads.len() {
            let doing = std::mem::replace(&mut self.threads[i], Doing::Nothing { until: now });
            self.threads[i] = self.go_on(doing, now, dice, history);
        }
    }

    fn go_on(&mut self, doing: Doing, now: Millis, dice: &mut Dice, history: &mut History) -> Doing {
        match doing {
            // Before there is a session there are no numbers.
            Doing::Nothing { until } if until <= now && !self.is_ending && self.session.is_some() => {
                self.begin(now, dice, history)
            }
            Doing::Locked { file, until } if until <= now => {
                if self.locks.remove(&file).is_none() {
                    return Doing::Nothing { until: now };
                }
                let open = history.holds.iter_mut().filter(|hold| hold.owner == self.name && hold.file == file);
                open.for_each(|hold| hold.to = hold.to.min(now));
                Doing::Unlocking { tag: self.lock(now, file, LockKind::Unlock) }
            }
            Doing::Open { ino, until } if until <= now => {
                self.open.swap_remove(self.open.iter().position(|one| *one == ino).expect("it is open"));
                self.release();
                Doing::Nothing { until: now + dice.roll(100) }
            }
            Doing::Open { ino, until } if dice.roll(200) == 0 => {
                let query = Query::Read { ino, offset: 0, len: EVERYTHING };
                Doing::ReadingOpen {
                    tag: self.ask(now, |tag| Request::Ask { tag, cred: Cred::root(), query }),
                    ino,
                    until,
                }
            }
            doing => doing,
        }
    }

    fn begin(&mut self, now: Millis, dice: &mut Dice, history: &mut History) -> Doing {
        let count = self.files.len() as u64;
        let (file, other) = (dice.roll(count) as File, dice.roll(count) as File);
        match dice.roll(20) {
            0..=8 => {
                // Often something that the client may know.
                let known = self.cache.keys().nth(dice.roll(4) as usize).copied();
                self.begin_read(now, known.unwrap_or(file), history)
            }
            9..=10 => self.write(now, vec![file], None, history),
            11 => self.write(now, BTreeSet::from([file, other]).into_iter().collect(), None, history),
            12..=13 => Doing::ReadingToWrite { tag: self.ask_for(now, file), from: file, to: other, alone: None },
            14 => {
                let keys = vec![Key::Data(self.files[file]), Key::Data(self.files[other])];
                let tag = self.ask(now, |tag| Request::Exclusive { tag, keys });
                Doing::WantingAlone { tag, asked: now, from: file, to: other }
            }
            15..=16 if !self.locks.contains_key(&file) && !self.is_locking(file) => {
                Doing::Locking { tag: self.lock(now, file, LockKind::Exclusive), file }
            }
            17 => self.make(now, dice),
            18 => {
                let query = Query::Lookup { dir: Ino::ROOT, name: shared(dice) };
                Doing::Opening { tag: self.ask(now, |tag| Request::Ask { tag, cred: Cred::root(), query }) }
            }
            19 => {
                let change = Change::Unlink { dir: Ino::ROOT, name: shared(dice) };
                Doing::Making { number: self.submit(Csn(0), vec![], vec![change]) }
            }
            _ => Doing::Nothing { until: now + dice.roll(300) },
        }
    }

    fn is_locking(&self, file: File) -> bool {
        self.threads.iter().any(|doing| matches!(doing, Doing::Locking { file: other, .. } if *other == file))
    }

    fn ask_for(&mut self, now: Millis, file: File) -> u64 {
        let query = Query::Read { ino: self.files[file], offset: 0, len: EVERYTHING };
        self.ask(now, |tag| Request::AskLeased { tag, cred: Cred::root(), query })
    }

    fn begin_read(&mut self, now: Millis, file: File, history: &mut History) -> Doing {
        let group = self.files[file].group();
        match self.cache.get(&file).cloned() {
            Some(saw) if self.leases.holds(group, now) && !self.changes(file) => {
                history.read(now, now, file, saw);
                Doing::Nothing { until: now + 5 }
            }
            Some(_) if now.is_multiple_of(2) => {
                Doing::Leasing { tag: self.ask(now, |tag| Request::Lease { tag, group }), called: now, file }
            }
            _ => Doing::Reading { tag: self.ask_for(now, file), called: now, file },
        }
    }

    /// Whether a change of its own is under way, which others may have seen.
    fn changes(&self, file: File) -> bool {
        let is_of = |change: &Change| matches!(change, Change::Append { ino, .. } if *ino == self.files[file]);
        self.fault != Some(Fault::OwnChangesIgnored)
            && self.flight.again().any(|interval| interval.steps.iter().any(|step| is_of(&step.change)))
    }

    fn lock(&mut self, now: Millis, file: File, kind: LockKind) -> u64 {
        let lock = LockRequest { ino: self.files[file], owner: 1, kind, start: 0, end: u64::MAX, wait: true };
        self.ask(now, |tag| Request::Lock { tag, lock })
    }

    fn make(&mut self, now: Millis, dice: &mut Dice) -> Doing {
        let Some(ino) = self.lent.pop() else {
            if !self.pending.values().any(|(request, _)| matches!(request, Request::Lend { .. })) {
                self.ask(now, |tag| Request::Lend { tag });
            }
            return Doing::Nothing { until: now + 100 };
        };
        let name = shared(dice);
        let (kind, dir, content) = (Kind::File, Ino::ROOT, Content::Inline(ino.0.to_le_bytes().to_vec()));
        let create = Change::Create { dir, name, ino: Some(ino), kind, mode: 0o644, rdev: 0, target: vec![] };
        let number = self.submit(Csn(0), vec![], vec![create, Change::Write { ino, offset: 0, content }]);
        Doing::Making { number }
    }

    fn release(&mut self) {
        let unused: Vec<Ino> = self.orphans.iter().filter(|ino| !self.open.contains(ino)).copied().collect();
        for ino in unused {
            self.orphans.remove(&ino);
            self.out.push(Request::Released { ino });
        }
    }

    /// A message has arrived.
    pub fn receive(&mut self, reply: Reply, now: Millis, dice: &mut Dice, history: &mut History) {
        match reply {
            Reply::Welcome { session, epoch, csn, .. } => {
                if csn < self.csn {
                    history
                        .wrong
                        .push(format!("{} was told of {}, and the server has {}", self.name, self.csn.0, csn.0));
                }
                (self.session, self.csn, self.welcome) = (Some((session, epoch)), csn, true);
                self.cut_at = self.newest_cut_at;
                self.send_again();
            }
            Reply::Refused { why: Refusal::Session, .. } => self.begin_anew(now, history),
            Reply::Refused { why: Refusal::Stopping, .. } => {}
            Reply::Refused { why, text } => {
                history.wrong.push(format!("refused: {why:?} {}", String::from_utf8_lossy(&text)));
            }
            Reply::Invalidate { csn, keys } => {
                self.csn = self.csn.max(csn);
                if self.fault != Some(Fault::InvalidationsIgnored) {
                    self.forget(&keys);
                }
            }
            Reply::Changed { csn, keys, .. } => {
                self.csn = self.csn.max(csn);
                self.forget(&keys);
            }
            Reply::Recall { group } => {
                if self.fault != Some(Fault::RecallsIgnored) {
                    self.leases.recalled(group);
                }
                self.give_back.push((now + dice.roll(60), group));
            }
            Reply::Granted { tag, groups } => {
                if let Some(asked) = self.asked(tag, now) {
                    groups.into_iter().for_each(|group| self.leases.granted(group, asked, TERM_MS));
                }
            }
            Reply::Orphan { ino } => {
                self.orphans.insert(ino);
                if self.fault == Some(Fault::ReleasedWhileOpen) {
                    self.out.push(Request::Released { ino });
                }
                self.release();
            }
            Reply::Decided { number, outcome } => self.decided(number, &outcome, now, dice, history),
            Reply::Error { tag: 0, .. } => history.wrong.push(format!("{} has lost a lock", self.name)),
            Reply::Answer { tag, .. }
            | Reply::Error { tag, .. }
            | Reply::Leased { tag, .. }
            | Reply::Lent { tag, .. }
            | Reply::Locked { tag } => self.replied(tag, reply, now, dice, history),
            Reply::Tested { .. } | Reply::Pong { .. } | Reply::History { .. } | Reply::Versions { .. } => {}
        }
    }

    /// When this was asked: from then on a lease counts.
    fn asked(&self, tag: u64, now: Millis) -> Option<Millis> {
        let asked = self.pending.get(&tag)?.1;
        Some(if self.fault == Some(Fault::LeaseFromReply) { now } else { asked })
    }

    fn send_again(&mut self) {
        let locks = self.locks.values().filter(|_| self.fault != Some(Fault::LocksNotReclaimed));
        self.out.extend(locks.map(|lock| Request::Reclaim { tag: 0, lock: *lock }));
        self.out.push(Request::GaveUp {});
        let again: Vec<Interval> = self.flight.again().cloned().collect();
        again.into_iter().for_each(|interval| self.out.push(Request::Submit { interval }));
        self.out.extend(self.pending.values().map(|(request, _)| request.clone()));
    }

    fn begin_anew(&mut self, now: Millis, history: &mut History) {
        self.end_holds(self.session_ended(now), history);
        self.session = None;
        (self.flight, self.acknowledged) = (InFlight::new(), 0);
        self.orphans.clear();
        self.open.clear();
        self.lent.clear();
        for doing in &mut self.threads {
            if matches!(
                doing,
                Doing::Writing { .. } | Doing::Making { .. } | Doing::Open { .. } | Doing::ReadingOpen { .. }
            ) {
                *doing = Doing::Nothing { until: now };
            }
        }
    }

    fn forget(&mut self, keys: &[Key]) {
        for key in keys {
            if let Key::Data(ino) = key {
                self.cache.retain(|file, _| self.files[*file] != *ino);
            }
        }
    }

    fn decided(&mut self, number: u64, outcome: &Outcome, now: Millis, dice: &mut Dice, history: &mut History) {
        if let Outcome::Committed { csn, .. } = outcome {
            self.csn = self.csn.max(*csn);
        }
        if !self.flight.outcome(number) {
            return;
        }
        let acknowledged = self.flight.acknowledged();
        if acknowledged >= self.acknowledged + 4 {
            self.acknowledged = acknowledged;
            self.out.push(Request::Acknowledge { number: acknowledged });
        }
        let next = Doing::Nothing { until: now + dice.roll(50) };
        for i in 0..self.threads.len() {
            match &self.threads[i] {
                Doing::Writing { number: mine, write, alone } if *mine == number => {
                    history.returned(*write, now, outcome.is_committed());
                    let in_time = alone.is_some_and(|asked| now < asked + EXCLUSIVE_TERM_MS);
                    if in_time && matches!(outcome, Outcome::Failed(Failure::Conflict(_))) {
                        history.wrong.push(format!("{write} had its files alone, and failed: {outcome:?}"));
                    }
                    self.threads[i] = next;
                    return;
                }
                Doing::Making { number: mine } if *mine == number => {
                    self.threads[i] = next;
                    return;
                }
                _ => {}
            }
        }
    }

    fn replied(&mut self, tag: u64, reply: Reply, now: Millis, dice: &mut Dice, history: &mut History) {
        let asked = self.asked(tag, now);
        let Some((request, _)) = self.pending.remove(&tag) else { return };
        let answer = match &reply {
            Reply::Answer { csn, answer, .. } => {
                self.csn = self.csn.max(*csn);
                Some((*csn, answer.clone()))
            }
            _ => None,
        };
        match (&request, &reply) {
            (Request::Lend { .. }, Reply::Lent { group, .. }) => return self.lent.extend(group.inodes().map(Ino)),
            (Request::Lease { group, .. }, Reply::Leased { granted: true, .. }) => {
                self.leases.granted(*group, asked.expect("it was pending"), TERM_MS);
            }
            (Request::AskLeased { query: Query::Read { ino, .. }, .. }, Reply::Answer { answer, .. }) => {
                let file = self.files.iter().position(|file| file == ino).expect("one of the files");
                self.cache.insert(file, contents(answer));
            }
            _ => {}
        }
        let mine = |doing: &Doing| match doing {
            Doing::Reading { tag: mine, .. }
            | Doing::Leasing { tag: mine, .. }
            | Doing::ReadingToWrite { tag: mine, .. }
            | Doing::WantingAlone { tag: mine, .. }
            | Doing::Locking { tag: mine, .. }
            | Doing::Unlocking { tag: mine }
            | Doing::Opening { tag: mine }
            | Doing::ReadingOpen { tag: mine, .. } => *mine == tag,
            _ => false,
        };
        let Some(i) = self.threads.iter().position(mine) else { return };
        let idle = Doing::Nothing { until: now + dice.roll(50) };
        let doing = std::mem::replace(&mut self.threads[i], idle);
        if let Some(next) = self.after(doing, &reply, answer, now, dice, history) {
            self.threads[i] = next;
        }
    }

    /// What a thread does after the reply that it has waited for.
    fn after(
        &mut self,
        doing: Doing,
        reply: &Reply,
        answer: Option<(Csn, Answer)>,
        now: Millis,
        dice: &mut Dice,
        history: &mut History,
    ) -> Option<Doing> {
        match (doing, answer) {
            (Doing::Reading { called, file, .. }, Some((_, answer))) => {
                history.read(called, now, file, contents(&answer));
            }
            (Doing::Leasing { called, file, .. }, _) => match self.cache.get(&file).cloned() {
                Some(saw) if self.leases.holds(self.files[file].group(), now) && !self.changes(file) => {
                    history.read(called, now, file, saw);
                }
                _ => return Some(Doing::Reading { tag: self.ask_for(now, file), called, file }),
            },
            (Doing::ReadingToWrite { from, to, alone, .. }, Some((csn, answer))) => {
                let base = if self.fault == Some(Fault::BaseTooNew) { Csn(csn.0 + 3) } else { csn };
                let next = self.write(now, vec![to], Some((base, from, contents(&answer))), history);
                let Doing::Writing { number, write, .. } = next else { return Some(next) };
                return Some(Doing::Writing { number, write, alone });
            }
            (Doing::WantingAlone { asked, from, to, .. }, _) => {
                if let (Reply::Leased { granted: true, .. }, Some((owner, _))) = (reply, self.session) {
                    history.alone.push(Alone {
                        owner,
                        files: vec![from, to],
                        from: now,
                        to: asked + EXCLUSIVE_TERM_MS,
                    });
                    return Some(Doing::ReadingToWrite { tag: self.ask_for(now, from), from, to, alone: Some(asked) });
                }
            }
            (Doing::Locking { file, .. }, _) => {
                let Reply::Locked { .. } = reply else { return None };
                let (ino, kind) = (self.files[file], LockKind::Exclusive);
                let lock = LockRequest { ino, owner: 1, kind, start: 0, end: u64::MAX, wait: true };
                self.locks.insert(file, lock);
                history.holds.push(Hold { owner: self.name, file, from: now, to: Millis::MAX });
                return Some(Doing::Locked { file, until: now + dice.roll(8_000) });
            }
            (Doing::Opening { .. }, Some((_, Answer::Inode(ino, _)))) => {
                self.open.push(ino);
                history.opened += 1;
                return Some(Doing::Open { ino, until: now + dice.roll(2_000) });
            }
            (Doing::ReadingOpen { ino, until, .. }, answer) => {
                match answer {
                    Some((_, answer)) if contents(&answer) == [ino.0] => {}
                    other => history.wrong.push(format!("{ino:?} is open and has {other:?} {reply:?}")),
                }
                return Some(Doing::Open { ino, until });
            }
            _ => {}
        }
        None
    }
}

fn shared(dice: &mut Dice) -> Name {
    Name::new(format!("shared{}", dice.roll(SHARED_NAMES)).as_bytes()).expect("a name")
}

/// The tokens in an answer.
pub fn contents(answer: &Answer) -> Contents {
    let Answer::Bytes(bytes) = answer else { panic!("contents and not {answer:?}") };
    bytes.chunks_exact(8).map(|token| u64::from_le_bytes(token.try_into().expect("8 bytes"))).collect()
}
