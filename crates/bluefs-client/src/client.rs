//! A client: callers send what the socket takes at once, and wait for their replies; one thread receives, and connects
//! again, and one sends the rest.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use bluefs::op::{Effect, Failure};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Csn, Errno, Group, Ino, Interval, Key, Outcome, Runs, SessionId, Step};
use bluefs_net::{outbox, Cutter, Outbox, Receiver, AT_ONCE_BYTES_MAX};
use bluefs_wire::{frame, LockRequest, Refusal, Reply, Request, PROTOCOL_VERSION};

use crate::address::Address;
use crate::disk::Disk;
use crate::line::{self, ConnectError, Due, Line, Pulse};
use crate::state::{Counts, Output, State};
use crate::wakers::Event;
use crate::{Front, OnDisconnect, Ticket};

/// How often somebody who waits looks whether they are to give up. To look takes some 30 µs: where many wait, so many
/// of them look in a second.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_PER_SECOND: u32 = 1000;
/// Locks that wait at the server; it keeps 1,024 of a session.
const LOCKS_WAIT_MAX: usize = 1000;
/// When who is beyond that asks again.
const LOCK_AGAIN: Duration = Duration::from_secs(1);
/// Pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the end of a session may take. The server ends it by itself later.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// EINTR, EAGAIN, EPROTO.
const INTERRUPTED: Errno = Errno(4);
const AGAIN: Errno = Errno(11);
/// ENOLCK.
const NO_LOCKS: Errno = Errno(37);
const PROTOCOL: Errno = Errno(71);

struct Shared {
    address: Address,
    ticket: Option<Ticket>,
    on_disconnect: OnDisconnect,
    state: Mutex<State>,
    front: OnceLock<Arc<dyn Front>>,
    /// The connection, for whoever ends the client.
    cutter: Mutex<Option<Cutter>>,
    /// How many there were.
    connection: AtomicU64,
    /// Bytes of all connections.
    sent: Arc<AtomicU64>,
    received: AtomicU64,
}

/// A session with a server. Clones are the same session; the last one that goes ends it.
#[derive(Clone)]
pub struct Client(Arc<Handle>);

struct Handle(Arc<Shared>);

/// Looks at a client, and does not keep it.
#[derive(Debug)]
pub struct Watch(Weak<Shared>);

/// While it is there, no file is given up that loses its name.
pub struct Opening<'c> {
    client: &'c Client,
    number: u64,
    opened: Option<Ino>,
}

/// Something that was asked. With it goes whoever waits for the reply.
pub(crate) struct Asked<'c> {
    pub client: &'c Client,
    pub tag: u64,
}

/// Whether somebody who waits is to give up: they get EINTR.
pub(crate) type GivesUp<'g> = &'g dyn Fn() -> bool;

impl Client {
    /// Connects. The first connection has to come about; later ones are tried again.
    /// With a ticket the connection is encrypted, and the server is the one that the ticket is from. Without one it is
    /// plain, and goes to loopback addresses only.
    pub fn connect(
        address: Address,
        ticket: Option<Ticket>,
        on_disconnect: OnDisconnect,
    ) -> Result<Client, ConnectError> {
        Client::connect_with(address, ticket, on_disconnect, None)
    }

    /// The same, with contents that were kept on disk before.
    pub fn connect_with(
        address: Address,
        ticket: Option<Ticket>,
        on_disconnect: OnDisconnect,
        disk: Option<Disk>,
    ) -> Result<Client, ConnectError> {
        let mut state = State::new();
        state.disk = disk.map(Arc::new);
        let line = line::connect(&address, fingerprint(&ticket), &hello(&address, &ticket, &state))?;
        let shared = Arc::new(Shared {
            address,
            ticket,
            on_disconnect,
            state: Mutex::new(state),
            front: OnceLock::new(),
            cutter: Mutex::new(None),
            connection: AtomicU64::new(0),
            sent: Arc::default(),
            received: AtomicU64::new(0),
        });
        let keeper = shared.clone();
        let spawned = std::thread::Builder::new().name("connection".to_owned()).spawn(move || keeper.keep(line));
        spawned.map_err(|source| ConnectError::Io { address: shared.address.clone(), source })?;
        let client = Client(Arc::new(Handle(shared)));
        // The server may have cut it before anybody looks.
        let begun = |state: &mut State| (state.was_connected || state.dead.is_some()).then_some(Ok(()));
        let _ = client.wait(Event::Any, &|| false, begun);
        Ok(client)
    }

    /// Says what is to forget with the client. Once.
    pub fn set_front(&self, front: Arc<dyn Front>) {
        let _ = self.0 .0.front.set(front);
    }

    /// Asks. Says which state the answer is about.
    pub fn ask(&self, cred: &Cred, query: Query, gives_up: GivesUp) -> Result<(Csn, Answer), Errno> {
        match self.request(gives_up, |tag| Request::Ask { tag, cred: cred.clone(), query })? {
            Reply::Answer { csn, answer, .. } => Ok((csn, answer)),
            _ => Err(PROTOCOL),
        }
    }

    /// Carries out one change.
    pub fn change(&self, cred: &Cred, change: Change, gives_up: GivesUp) -> Result<Effect, Errno> {
        let steps = vec![Step { cred: 0, time: None, change }];
        let interval =
            Interval { number: 0, base: Csn(0), after: Runs::new(), reads: vec![], creds: vec![cred.clone()], steps };
        match self.submit(interval, Vec::new(), gives_up)? {
            Outcome::Committed { mut effects, .. } => effects.pop().ok_or(PROTOCOL),
            Outcome::Failed(Failure::Refused { errno, .. }) => Err(errno),
            Outcome::Failed(_) => Err(Errno::STALE),
        }
    }

    /// Carries out an interval, as a whole or not at all. `staged` are contents that it takes, by their numbers.
    pub fn submit(&self, interval: Interval, staged: Vec<(u64, Vec<u8>)>, gives_up: GivesUp) -> Result<Outcome, Errno> {
        self.submit_lent(interval, staged, BTreeSet::new(), gives_up)
    }

    /// The same of an interval that uses numbers which were lent to these sessions.
    pub(crate) fn submit_lent(
        &self,
        interval: Interval,
        staged: Vec<(u64, Vec<u8>)>,
        lent_to: BTreeSet<SessionId>,
        gives_up: GivesUp,
    ) -> Result<Outcome, Errno> {
        let piece = bluefs::op::STEP_BYTES_MAX;
        let pieces = staged
            .iter()
            .flat_map(|(id, data)| data.chunks(piece).map(|data| Request::Stage { id: *id, data: data.to_vec() }));
        let pieces = pieces.collect();
        match self.send_interval(interval, pieces, &lent_to)? {
            Some(number) => self.outcome(number, gives_up, |state| Some(state.take_outcome(number)?.0)),
            None => Ok(Outcome::Failed(Failure::TooOld)),
        }
    }

    /// Sends an interval: behind what is in front of the cache. `None`: nothing is sent, as numbers that it uses were
    /// lent to another session than the one that there is now. The server would take them for a mistake.
    pub(crate) fn send_interval(
        &self,
        interval: Interval,
        pieces: Vec<Request>,
        lent_to: &BTreeSet<SessionId>,
    ) -> Result<Option<u64>, Errno> {
        let submit = |state: &mut State, interval: Interval| {
            let is_own = lent_to.iter().all(|lent_to| state.session.is_some_and(|(session, _)| session == *lent_to));
            is_own.then(|| state.submit(interval, pieces))
        };
        let Some(front) = self.0 .0.front.get() else { return self.begin(|state| submit(state, interval)) };
        let (announced, touched) = self.begin(|state| state.cache.announce(&interval))?;
        front.before_change(&touched);
        let sent = self.begin(|state| submit(state, interval));
        self.state().cache.withdraw(announced);
        sent
    }

    /// Waits for the outcome of an interval.
    pub(crate) fn outcome<T>(
        &self,
        number: u64,
        gives_up: GivesUp,
        take: impl Fn(&mut State) -> Option<Result<T, Errno>>,
    ) -> Result<T, Errno> {
        let outcome = self.wait(Event::Outcome(number), gives_up, take);
        if matches!(outcome, Err(INTERRUPTED)) {
            self.state().abandon(number);
        }
        outcome
    }

    /// Takes a lock, or gives it back.
    pub fn lock(&self, lock: LockRequest, gives_up: GivesUp) -> Result<(), Errno> {
        let is_too_much = |state: &State| lock.wait && state.waiting_locks() >= LOCKS_WAIT_MAX;
        loop {
            // The server keeps no more that wait: whoever is beyond asks again and again.
            let wait = lock.wait && !is_too_much(&self.state());
            let asked = self.request(gives_up, |tag| Request::Lock { tag, lock: LockRequest { wait, ..lock } });
            // What the server has no room for is tried again as well: others may have come before.
            let is_refused = !wait && matches!(asked, Err(AGAIN | NO_LOCKS));
            if !lock.wait || !is_refused {
                return asked.map(|_| ());
            }
            let begun = Instant::now();
            while begun.elapsed() < LOCK_AGAIN && is_too_much(&self.state()) {
                if gives_up() {
                    return Err(INTERRUPTED);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// Gives a lock back. If nobody waits for that any more, or there is no connection, it is given back later.
    pub fn unlock(&self, lock: LockRequest, gives_up: GivesUp) -> Result<(), Errno> {
        let unlocked = self.lock(lock, gives_up);
        if unlocked == Err(Errno::IO) {
            self.unlock_later(lock);
        }
        unlocked
    }

    /// The same without waiting. What this session asks from now on it asks behind it.
    pub fn unlock_later(&self, lock: LockRequest) {
        let mut state = self.state();
        if state.dead.is_none() {
            state.unlock_later(lock);
        }
    }

    /// A lock of somebody else that is in the way of this one.
    pub fn test_lock(&self, lock: LockRequest, gives_up: GivesUp) -> Result<Option<LockRequest>, Errno> {
        match self.request(gives_up, |tag| Request::TestLock { tag, lock })? {
            Reply::Tested { other, .. } => Ok(other),
            _ => Err(PROTOCOL),
        }
    }

    /// Whether a lock on a file was lost since it was opened: what it has protected may have been changed.
    pub fn has_lost_lock(&self, ino: Ino) -> bool {
        self.state().has_lost_lock(ino)
    }

    /// A number for a new inode, and the session to which it is lent. Some are borrowed if there is none.
    pub(crate) fn borrow_ino(&self, gives_up: GivesUp) -> Result<(Ino, SessionId), Errno> {
        loop {
            if let Some(taken) = self.state().take_ino() {
                return Ok(taken);
            }
            let group = self.lend(gives_up)?;
            self.state().put_group(group);
        }
    }

    /// Borrows numbers for 64 inodes.
    pub fn lend(&self, gives_up: GivesUp) -> Result<Group, Errno> {
        match self.request(gives_up, |tag| Request::Lend { tag })? {
            Reply::Lent { group, .. } => Ok(group),
            _ => Err(PROTOCOL),
        }
    }

    /// Keeps others from changing what these keys belong to, for a while; `false`: others want the same for too long.
    pub(crate) fn exclusive(&self, keys: Vec<Key>) -> Result<bool, Errno> {
        match self.request(&|| false, |tag| Request::Exclusive { tag, keys })? {
            Reply::Leased { granted, .. } => Ok(granted),
            _ => Err(PROTOCOL),
        }
    }

    /// Something is about to be opened.
    pub fn opening(&self) -> Opening<'_> {
        let number = self.state().begin_opening();
        Opening { client: self, number, opened: None }
    }

    /// Something that was opened is closed. Whether it had no name any more.
    pub fn close(&self, ino: Ino) -> bool {
        self.state().close(ino)
    }

    /// Whether something is open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.state().is_open(ino)
    }

    /// Whether the session may only read.
    pub fn is_read_only(&self) -> bool {
        self.state().read_only
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.state().output.is_some()
    }

    /// What looks at it from another thread.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.0 .0))
    }

    /// What is done, for people.
    pub fn counts(&self) -> Counts {
        self.0 .0.counts(&self.state())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0 .0.lock()
    }

    pub(crate) fn request(&self, gives_up: GivesUp, request: impl FnOnce(u64) -> Request) -> Result<Reply, Errno> {
        let tag = self.begin(|state| state.ask(request))?;
        self.reply(tag, gives_up)
    }

    /// Waits for the reply with this tag.
    pub(crate) fn reply(&self, tag: u64, gives_up: GivesUp) -> Result<Reply, Errno> {
        let mut reply = self.wait(Event::Reply(tag), gives_up, |state| state.take_reply(tag));
        if reply == Err(INTERRUPTED) {
            let mut state = self.state();
            // It may have come just now. A lock that was given is the caller's, or the session would keep it.
            match state.take_reply(tag) {
                Some(there) => reply = there,
                None => state.forget(tag),
            }
        }
        match reply? {
            Reply::Error { errno, .. } => Err(errno),
            reply => Ok(reply),
        }
    }

    /// Sends something, unless it is clear that nobody will answer.
    pub(crate) fn begin<T>(&self, send: impl FnOnce(&mut State) -> T) -> Result<T, Errno> {
        let mut state = self.state();
        match state.dead {
            Some(errno) => Err(errno),
            None if state.output.is_none() && self.0 .0.on_disconnect == OnDisconnect::Error => Err(Errno::IO),
            None => Ok(send(&mut state)),
        }
    }

    /// Waits until there is something to take; `event` is when that may be.
    pub(crate) fn wait<T>(
        &self,
        event: Event,
        gives_up: GivesUp,
        take: impl Fn(&mut State) -> Option<Result<T, Errno>>,
    ) -> Result<T, Errno> {
        let mut state = self.state();
        if let Some(result) = take(&mut state) {
            return result;
        }
        let (number, woken) = state.wakers.enter(event);
        let look_every = |state: &State| {
            let all = Duration::from_secs(1) * state.wakers.count() as u32 / LOOKS_PER_SECOND;
            all.max(LOOK_EVERY)
        };
        let mut look_at = Instant::now() + look_every(&state);
        let result = loop {
            if let Some(result) = take(&mut state) {
                break result;
            }
            let left = look_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                let is_given_up = gives_up();
                state = self.state();
                if is_given_up {
                    break Err(INTERRUPTED);
                }
                look_at = Instant::now() + look_every(&state);
                continue;
            }
            (state, _) = woken.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        state.wakers.leave(event, number);
        result
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.client.state().forget(self.tag);
    }
}

impl Watch {
    /// Whether there is a connection, and what is done; `None`: the client is gone.
    pub fn look(&self) -> Option<(bool, Counts)> {
        let shared = self.0.upgrade()?;
        let state = shared.lock();
        Some((state.output.is_some(), shared.counts(&state)))
    }
}

impl Opening<'_> {
    /// It is open now. [`Client::close`] ends it.
    pub fn opened(mut self, ino: Ino) {
        self.opened = Some(ino);
    }

    /// The same of a file without a name, which has to be open here already. Whether it is.
    pub fn opened_again(self, ino: Ino) -> bool {
        self.client.state().open_again(ino)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.client.state().end_opening(self.number, self.opened);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let Some(output) = state.output.take() {
            // The thread that sends ends the connection behind it.
            output.send(Request::Goodbye {});
        }
        state.dead = Some(Errno::IO);
        let disk = state.disk.clone();
        state.wakers.wake_all();
        drop(state);
        if let Some(disk) = disk {
            disk.flush();
        }
        let begun = Instant::now();
        while self.0.has_line() && begun.elapsed() < GOODBYE_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How a connection has ended.
enum Ended {
    /// Something was answered on it.
    Answered,
    /// Nothing was that had been asked.
    Unanswered,
    /// A limit is exceeded.
    AsksTooMuch,
}

/// Whether it is about what was asked, rather than about what each connection begins with.
fn is_answer(reply: &Reply) -> bool {
    use Reply::{Answer, Decided, Error, Granted, Leased, Lent};
    matches!(reply, Answer { .. } | Decided { .. } | Error { .. } | Granted { .. } | Leased { .. } | Lent { .. })
}

fn fingerprint(ticket: &Option<Ticket>) -> Option<[u8; 32]> {
    ticket.as_ref().map(|ticket| ticket.fingerprint)
}

fn hello(address: &Address, ticket: &Option<Ticket>, state: &State) -> Request {
    Request::Hello {
        version: PROTOCOL_VERSION,
        volume: address.volume.clone().into_bytes(),
        session: state.session,
        acknowledged: state.acknowledged(),
        secret: ticket.as_ref().map_or_else(Vec::new, |ticket| ticket.secret.to_vec()),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn counts(&self, state: &State) -> Counts {
        let (sent_bytes, received_bytes) = (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        Counts { sent_bytes, received_bytes, ..state.counts() }
    }

    fn has_line(&self) -> bool {
        self.cutter.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some()
    }

    /// Uses one connection after the other, until the client goes.
    fn keep(self: &Arc<Shared>, mut line: Line) {
        let mut pause = PAUSE_MIN;
        loop {
            if self.begin(&line) {
                let begun = Instant::now();
                let ended = self.use_line(line);
                let mut state = self.lock();
                state.was_connected = true;
                state.wakers.wake_all();
                drop(state);
                // What is sent again may be refused again, or end the next connection, too.
                match ended {
                    Ended::Answered => pause = PAUSE_MIN,
                    Ended::Unanswered => {
                        if begun.elapsed() > PAUSE_MAX {
                            pause = PAUSE_MIN;
                        }
                        std::thread::sleep(pause);
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                    Ended::AsksTooMuch => std::thread::sleep(PAUSE_MAX),
                }
            }
            match self.connect_again() {
                Some(next) => line = next,
                None => return,
            }
        }
    }

    /// Whether the welcome is one to go on with: a server that has gone back has lost what was acknowledged.
    fn begin(&self, line: &Line) -> bool {
        let Reply::Welcome { session, epoch, csn, read_only, lease_ms, .. } = line.welcome else { return false };
        let mut state = self.lock();
        if csn < state.csn {
            self.die(&mut state, Errno::STALE);
            return false;
        }
        (state.session, state.csn, state.read_only) = (Some((session, epoch)), csn, read_only);
        state.term = lease_ms;
        true
    }

    /// Uses a connection until it ends.
    fn use_line(self: &Arc<Shared>, line: Line) -> Ended {
        let Line { receiver, mut sender, .. } = line;
        let Ok(cutter) = sender.cutter() else { return Ended::Unanswered };
        sender.set_counter(self.sent.clone());
        let waited = sender.waited_counter();
        let (output, rest) = outbox(sender);
        let sending = std::thread::Builder::new().name("send".to_owned()).spawn(move || rest.send(drop));
        let Ok(sending) = sending else { return Ended::Unanswered };
        if !self.connected(&output, cutter) {
            return Ended::Unanswered;
        }
        let ended = self.receive_all(receiver, &output, &waited);
        drop(output);
        self.disconnected();
        // It ends with its connection.
        let _ = sending.join();
        ended
    }

    /// There is a connection. `false`: nobody wants it any more.
    fn connected(&self, output: &Outbox, cutter: Cutter) -> bool {
        // The first word on it is that no lease of the one before is used.
        self.connection.fetch_add(1, Ordering::Relaxed);
        if let Some(front) = self.front.get() {
            if front.forget(None) {
                front.forget_contents(None);
            }
        }
        let mut state = self.lock();
        if state.dead.is_some() {
            return false;
        }
        *self.cutter.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(cutter);
        state.connected(output.clone());
        state.wakers.wake_all();
        true
    }

    /// There is no connection any more.
    fn disconnected(&self) {
        let mut state = self.lock();
        state.disconnected();
        if self.on_disconnect == OnDisconnect::Error {
            state.fail_all(Errno::IO);
        }
        state.wakers.wake_all();
        drop(state);
        if let Some(cutter) = self.cutter.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            cutter.cut();
        }
    }

    /// Takes in all that the server says, until it says nothing more or is gone. `waited`: as in [`Pulse::look`].
    fn receive_all(self: &Arc<Shared>, mut receiver: Receiver, output: &Outbox, waited: &AtomicU64) -> Ended {
        let mut pulse = Pulse::begin(Instant::now(), self.sent.load(Ordering::Relaxed));
        let (mut received, mut ended) = (0, Ended::Unanswered);
        loop {
            let next = receiver.receive::<Reply>();
            let more = receiver.received() - received;
            self.received.fetch_add(more, Ordering::Relaxed);
            received += more;
            if more > 0 {
                // Also a part of a large reply, over a slow line.
                pulse.heard(Instant::now());
            }
            match next {
                Ok(Some(Reply::Refused { why, .. })) => {
                    self.refused(why);
                    if why == Refusal::Limit {
                        ended = Ended::AsksTooMuch;
                    }
                    return ended;
                }
                Ok(Some(reply)) => {
                    pulse.heard(Instant::now());
                    if is_answer(&reply) {
                        ended = Ended::Answered;
                    }
                    self.take_in(reply);
                }
                Err(error) if bluefs_net::is_timeout(&error) => {}
                Ok(None) | Err(_) => return ended,
            }
            match pulse.look(Instant::now(), self.sent.load(Ordering::Relaxed), waited.load(Ordering::Relaxed)) {
                Due::Nothing => {}
                Due::Ping => Output::send(output, Request::Ping { tag: 0 }),
                Due::End => return ended,
            }
        }
    }

    fn take_in(self: &Arc<Shared>, reply: Reply) {
        let recalled = if let Reply::Recall { group } = reply { Some(group) } else { None };
        if let (Reply::Invalidate { keys, .. }, Some(front)) = (&reply, self.front.get()) {
            front.others_changed(keys);
        }
        {
            let mut state = self.lock();
            state.arrived(reply);
            state.wakers.wake(Event::Any);
        }
        if let Some(group) = recalled {
            self.recalled(group);
        }
    }

    /// The cache uses a lease no more: what is in front forgets, and it is given back.
    fn recalled(self: &Arc<Shared>, group: Group) {
        let Some(front) = self.front.get().filter(|front| front.forget(Some(group))) else {
            return self.lock().give_back(group);
        };
        let (shared, front, connection) = (self.clone(), front.clone(), self.connection.load(Ordering::Relaxed));
        let forget = move || {
            front.forget_contents(Some(group));
            // On another connection it was given up already, and may be had again.
            let mut state = shared.lock();
            if shared.connection.load(Ordering::Relaxed) == connection {
                state.give_back(group);
            }
        };
        // If there is no thread to be had, the lease ends with its term.
        let _ = std::thread::Builder::new().name("forget".to_owned()).spawn(forget);
    }

    fn connect_again(&self) -> Option<Line> {
        let mut pause = PAUSE_MIN;
        loop {
            let hello = {
                let state = self.lock();
                if state.dead.is_some() {
                    return None;
                }
                hello(&self.address, &self.ticket, &state)
            };
            match line::connect(&self.address, fingerprint(&self.ticket), &hello) {
                Ok(line) => return Some(line),
                Err(ConnectError::Refused { why, .. }) => self.refused(why),
                Err(ConnectError::Io { .. } | ConnectError::Elsewhere { .. }) => {}
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn refused(&self, why: Refusal) {
        let mut state = self.lock();
        match why {
            Refusal::Session => state.begin_anew(),
            Refusal::Volume => self.die(&mut state, Errno::ACCES),
            Refusal::Version | Refusal::Protocol => self.die(&mut state, PROTOCOL),
            Refusal::Limit | Refusal::Stopping => {}
        }
        state.wakers.wake_all();
    }

    fn die(&self, state: &mut State, errno: Errno) {
        state.dead = Some(errno);
        state.output = None;
        state.fail_all(errno);
        state.wakers.wake_all();
    }
}

impl Output for Outbox {
    fn send(&self, request: Request) {
        // A connection that is over ends by itself, and on the next one is sent again what has no reply.
        let _ = match request.bytes() {
            len if len > AT_ONCE_BYTES_MAX => self.send_large(len, move || frame(&request)),
            _ => Outbox::send(self, frame(&request)),
        };
    }

    fn hold(&self) {
        Outbox::hold(self);
    }

    fn release(&self) {
        let _ = Outbox::release(self);
    }
}
