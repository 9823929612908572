//! Connections and sessions: who speaks, and whether they may.

use std::collections::BTreeMap;

use bluefs::lease::Millis;
use bluefs::tree::Tree;
use bluefs::{SessionId, Time};
use bluefs_store::{Batch, Left, Rows, SessionRow, Staged, Store, StoreError, View, VolumeId};
use bluefs_wire::{Refusal, Reply, Request, PROTOCOL_VERSION};

use crate::figures::{Guest, VolumeFigures};
use crate::versions;
use crate::volume::Volume;

/// Name of the volume that an empty name means.
const DEFAULT_VOLUME: &[u8] = b"default";
/// Sessions of one volume, at most.
const SESSIONS_MAX: usize = 4096;
/// Sessions and connections of one invitation, at most: whoever has it cannot use up those of all others.
const SESSIONS_OF_ONE_MAX: usize = 1024;
const CONNECTIONS_OF_ONE_MAX: usize = 512;
/// To whom it is not known whether they are invited. A client tries again after such a refusal: it is not for good.
const NOT_KNOWN: (Refusal, &str) = (Refusal::Limit, "the server cannot read its invitations now; try again later");

/// How often it is looked how much room there is on the disk, ms, and behind how many bytes of the log.
const ROOM_EVERY_MS: Millis = 100;
const ROOM_EVERY_BYTES: u64 = 8 << 20;
/// The same of a disk that had no room for what was to be written: whether it has is tried out.
pub(crate) const FULL_EVERY_MS: Millis = 1000;

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// Somebody has connected.
    Opened(ConnectionId),
    /// A message has arrived.
    Message(ConnectionId, Request),
    /// The connection is gone.
    Closed(ConnectionId),
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this.
    Send(ConnectionId, Reply),
    /// End the connection, when everything is sent.
    Close(ConnectionId),
}

/// The time.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Of a clock that never goes back.
    pub millis: Millis,
    /// Of the day.
    pub wall: Time,
}

/// What somebody may do with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Under which invitation; 0: nobody has to be invited.
    pub invitation: u64,
    /// Whether nothing may be changed.
    pub read_only: bool,
}

/// Who may use which volume.
pub trait Access {
    /// What this secret gives on this volume now.
    fn check(&self, volume: &[u8], secret: &[u8], wall: Time) -> Option<Grant>;
    /// Whether an invitation that was good once still is.
    fn stands(&self, invitation: u64, wall: Time) -> bool;
    /// Whether that is not known just now: whom [`Access::check`] and [`Access::stands`] refuse may try again.
    fn is_unknown(&self) -> bool {
        false
    }
    /// A number that nobody can guess.
    fn random(&self) -> u64;
}

#[derive(Debug, Default)]
struct Connection {
    session: Option<(VolumeId, SessionId)>,
}

/// The server's decisions.
pub struct Engine {
    store: Store,
    state: State,
    looked: Option<Looked>,
    /// The disk had no room for a batch.
    is_full: bool,
    /// Whether it has been told that it is full, or has none for a checkpoint.
    told_full: bool,
    /// Another pause and another term of leases.
    quiet: Option<Millis>,
    term: Option<Millis>,
}

/// How much room there was.
#[derive(Clone, Copy)]
struct Looked {
    /// When it is looked again, at the latest.
    until: Millis,
    /// How long the log was.
    log_bytes: u64,
    left: Option<Left>,
    /// Whether files that nobody has open may be freed.
    may_free: bool,
    /// Whether there was no room for a checkpoint.
    was_postponed: bool,
}

struct State {
    volumes: BTreeMap<VolumeId, Volume>,
    names: BTreeMap<VolumeId, String>,
    connections: BTreeMap<ConnectionId, Connection>,
    actions: Vec<Action>,
}

impl Engine {
    /// Begins with what is in a store. A store without a volume gets one called `default`. `random` gives numbers that
    /// no other start has been given.
    pub fn new(mut store: Store, now: Now, random: impl FnMut() -> u64) -> Result<Engine, StoreError> {
        if store.rows()?.volumes()?.is_empty() {
            store.batch(|batch| batch.create_volume(DEFAULT_VOLUME, now.wall))?;
        }
        store.batch(|batch| versions::start(batch, random))?;
        let state = State::load(&store, now)?;
        Ok(Engine { store, state, looked: None, is_full: false, told_full: false, quiet: None, term: None })
    }

    /// Goes on after [`StoreError::Full`]: nothing of the last batch is in the store, but all that is kept in memory
    /// has it. So everything is as after a restart: all connections are over, and what their clients send again is
    /// refused if it takes room.
    pub fn begin_again(&mut self, now: Now) -> Result<(), StoreError> {
        self.state = State::load(&self.store, now)?;
        self.quiet.into_iter().for_each(|quiet| self.set_quiet(quiet));
        self.term.into_iter().for_each(|term| self.set_term(term));
        let until = now.millis + FULL_EVERY_MS;
        let left = Some(self.store.left_when_full());
        let was_postponed = self.store.is_postponed();
        self.looked = Some(Looked { until, log_bytes: self.log_bytes(), left, may_free: false, was_postponed });
        self.is_full = true;
        Ok(())
    }

    /// Whether the disk has become full, or has no room for a checkpoint any more, since this was asked last.
    pub fn became_full(&mut self) -> bool {
        let has_none = self.has_no_room();
        !std::mem::replace(&mut self.told_full, has_none) && has_none
    }

    /// Whether the disk had no room for a batch, or for a checkpoint that was due.
    fn has_no_room(&self) -> bool {
        self.is_full || self.store.is_postponed()
    }

    /// Handles what has happened, in this order. What is to be done may be done when it returns: everything that it
    /// tells is on stable storage. After an error nothing may be done any more, but for [`Engine::begin_again`].
    pub fn handle(&mut self, events: Vec<Event>, now: Now, access: &dyn Access) -> Result<Vec<Action>, StoreError> {
        let mut events = events.into_iter();
        // A batch is held in memory, and is one record of the log.
        let mut goes_on = true;
        while goes_on {
            self.look_at_room(now)?;
            let Engine { store, state, .. } = self;
            goes_on = store.batch(|batch| {
                for event in events.by_ref() {
                    state.event(batch, event, now, access)?;
                    if batch.is_full() {
                        return Ok(true);
                    }
                }
                state.tick(batch, now, access).map(|()| false)
            })?;
        }
        Ok(std::mem::take(&mut self.state.actions))
    }

    /// What takes more room is refused before the disk is full.
    fn look_at_room(&mut self, now: Now) -> Result<(), StoreError> {
        let log_bytes = self.store.log_bytes();
        let more = |looked: Looked| log_bytes.checked_sub(looked.log_bytes).filter(|more| *more < ROOM_EVERY_BYTES);
        let is_postponed = self.store.is_postponed();
        let known = self.looked.filter(|looked| now.millis < looked.until && looked.was_postponed == is_postponed);
        let left = match known.and_then(|looked| Some(looked.left?.behind(more(looked)?))) {
            Some(left) => Some(left),
            None if known.is_some_and(|looked| looked.left.is_none() && more(looked).is_some()) => return Ok(()),
            None => self.look(now)?,
        };
        let may_free = self.looked.is_none_or(|looked| looked.may_free);
        self.state.volumes.values_mut().for_each(|volume| volume.set_left(left, may_free));
        Ok(())
    }

    fn look(&mut self, now: Now) -> Result<Option<Left>, StoreError> {
        let used = self.volumes()?.iter().map(|volume| volume.space.used_bytes).fold(0, u64::saturating_add);
        let before = self.looked.and_then(|looked| looked.left);
        // A disk that cannot be asked just now is as it was.
        let mut left = self.store.left(used).unwrap_or(before);
        let is_short = self.has_no_room() || left.is_some_and(|left| left.new == 0);
        if is_short && self.store.give_back()? {
            left = self.store.left(used).unwrap_or(left);
        }
        self.is_full = self.is_full && !self.store.has_room();
        let has_none = self.has_no_room();
        if has_none {
            left = Some(self.store.left_when_full());
        }
        let has_rest = left.is_none_or(|left| left.rest > 0);
        let may_free = has_rest && (!self.is_full || self.store.has_some_room());
        let until = now.millis + if has_none { FULL_EVERY_MS } else { ROOM_EVERY_MS };
        let was_postponed = self.store.is_postponed();
        self.looked = Some(Looked { until, log_bytes: self.store.log_bytes(), left, may_free, was_postponed });
        Ok(left)
    }

    /// When [`Engine::handle`] should be called, also if nothing happens.
    pub fn next_turn(&self) -> Option<Millis> {
        self.state.volumes.values().filter_map(Volume::next_turn).min()
    }

    /// Whose connection this is, once it has said so.
    pub fn guest(&self, connection: ConnectionId) -> Option<Guest> {
        let (volume, session) = self.state.connections.get(&connection)?.session?;
        let row = self.state.volumes[&volume].row(session)?;
        let volume = self.state.names.get(&volume).cloned().unwrap_or_default();
        let SessionRow { epoch, invitation, read_only, .. } = *row;
        Some(Guest { volume, invitation, epoch, read_only })
    }

    /// What all volumes have now.
    pub fn volumes(&self) -> Result<Vec<VolumeFigures>, StoreError> {
        let (rows, staged) = (self.store.rows()?, Staged::new());
        let figures = |(id, volume): (&VolumeId, &Volume)| {
            let name = self.state.names.get(id).cloned().unwrap_or_default();
            Ok(volume.figures(name, View::new(&rows, *id, &staged).space()?))
        };
        self.state.volumes.iter().map(figures).collect()
    }

    /// Bytes of the newest segment of the log.
    pub fn log_bytes(&self) -> u64 {
        self.store.log_bytes()
    }

    /// Another pause between a change of a group and a lease of another session on it, ms.
    pub fn set_quiet(&mut self, quiet: Millis) {
        self.quiet = Some(quiet);
        self.state.volumes.values_mut().for_each(|volume| volume.set_quiet(quiet));
    }

    /// Another term of leases, ms, before anything is handled. A store has to have the same after each restart.
    pub fn set_term(&mut self, term: Millis) {
        self.term = Some(term);
        self.state.volumes.values_mut().for_each(|volume| volume.set_term(term));
    }

    /// The store, at the end.
    pub fn into_store(self) -> Store {
        self.store
    }
}

impl State {
    /// What is in a store.
    fn load(store: &Store, now: Now) -> Result<State, StoreError> {
        let rows = store.rows()?;
        let known = rows.volumes()?;
        let names = known.iter().map(|row| (row.id, String::from_utf8_lossy(&row.name).into_owned())).collect();
        let volumes = known.iter().map(|row| Ok((row.id, Volume::load(&rows, row.id, now)?)));
        let volumes = volumes.collect::<Result<_, StoreError>>()?;
        Ok(State { volumes, names, connections: BTreeMap::new(), actions: Vec::new() })
    }

    fn event(&mut self, batch: &mut Batch, event: Event, now: Now, access: &dyn Access) -> Result<(), StoreError> {
        match event {
            Event::Opened(from) => _ = self.connections.insert(from, Connection::default()),
            Event::Closed(from) => self.closed(from, now),
            Event::Message(from, message) => self.message(batch, from, message, now, access)?,
        }
        self.refuse_parked(now);
        Ok(())
    }

    /// Ends connections whose parked messages were refused.
    fn refuse_parked(&mut self, now: Now) {
        let refused: Vec<_> = self.volumes.values_mut().flat_map(Volume::take_refused).collect();
        refused.into_iter().for_each(|(connection, why, text)| self.refuse(connection, why, text, now));
    }

    fn message(
        &mut self,
        batch: &mut Batch,
        from: ConnectionId,
        message: Request,
        now: Now,
        access: &dyn Access,
    ) -> Result<(), StoreError> {
        // A connection that was ended meanwhile: its session may have a newer one.
        let Some(connection) = self.connections.get(&from) else { return Ok(()) };
        match (connection.session, message) {
            (None, Request::Hello { version, volume, session, acknowledged, secret }) => {
                let hello = Hello { version, volume, session, acknowledged, secret };
                self.hello(batch, from, hello, now, access)
            }
            (Some((volume, session)), message) if !matches!(message, Request::Hello { .. }) => {
                let over = matches!(message, Request::Goodbye {});
                let volume = self.volumes.get_mut(&volume).expect("a session's volume is there");
                let refused = volume.message(batch, session, message, now, &mut self.actions)?;
                match refused {
                    Some((why, text)) => self.refuse(from, why, text, now),
                    None if over => self.close(from),
                    None => {}
                }
                Ok(())
            }
            _ => {
                self.refuse(from, Refusal::Protocol, "a connection begins with one hello", now);
                Ok(())
            }
        }
    }

    fn hello(
        &mut self,
        batch: &mut Batch,
        from: ConnectionId,
        hello: Hello,
        now: Now,
        access: &dyn Access,
    ) -> Result<(), StoreError> {
        match self.admit(batch, &hello, now, access)? {
            Ok((id, session)) => {
                let volume = self.volumes.get_mut(&id).expect("found by its name");
                let old = volume.connect(batch, session, from, hello.acknowledged, now, &mut self.actions)?;
                self.connections.insert(from, Connection { session: Some((id, session)) });
                if let Some(old) = old {
                    self.close(old);
                }
            }
            Err((why, text)) => self.refuse(from, why, text, now),
        }
        Ok(())
    }

    /// The session that a hello begins or continues.
    #[allow(clippy::type_complexity, reason = "a session or a refusal")]
    fn admit(
        &mut self,
        batch: &mut Batch,
        hello: &Hello,
        now: Now,
        access: &dyn Access,
    ) -> Result<Result<(VolumeId, SessionId), (Refusal, &'static str)>, StoreError> {
        if !(1..=PROTOCOL_VERSION).contains(&hello.version) {
            return Ok(Err((Refusal::Version, "the server speaks versions 1 to 3 of the protocol")));
        }
        let name = if hello.volume.is_empty() { DEFAULT_VOLUME } else { &hello.volume };
        // Who is not invited does not learn which volumes there are.
        let grant = access.check(name, &hello.secret, now.wall);
        let (Some(grant), Some(id)) = (grant, batch.volume(name)?) else {
            if grant.is_none() && access.is_unknown() {
                return Ok(Err(NOT_KNOWN));
            }
            return Ok(Err((Refusal::Volume, "no such volume, or no right to it")));
        };
        let volume = self.volumes.get_mut(&id).expect("all volumes are loaded");
        let (sessions, connections) = volume.sessions_of(grant.invitation);
        if grant.invitation != 0 && connections >= CONNECTIONS_OF_ONE_MAX {
            return Ok(Err((Refusal::Limit, "the invitation has too many connections")));
        }
        let Some((session, epoch)) = hello.session else {
            if volume.session_count() >= SESSIONS_MAX {
                return Ok(Err((Refusal::Limit, "the volume has too many sessions")));
            }
            if grant.invitation != 0 && sessions >= SESSIONS_OF_ONE_MAX {
                return Ok(Err((Refusal::Limit, "the invitation has too many sessions")));
            }
            let session = SessionId(access.random());
            let Grant { invitation, read_only } = grant;
            volume.begin(session, SessionRow { epoch: 0, acknowledged: 0, invitation, read_only, leased: false }, now);
            return Ok(Ok((id, session)));
        };
        let known = volume.row(session).is_some_and(|row| epoch <= row.epoch && row.invitation == grant.invitation);
        Ok(if known { Ok((id, session)) } else { Err((Refusal::Session, "the session is not known any more")) })
    }

    fn refuse(&mut self, to: ConnectionId, why: Refusal, text: &str, now: Now) {
        self.actions.push(Action::Send(to, Reply::Refused { why, text: text.as_bytes().to_vec() }));
        self.closed(to, now);
        self.actions.push(Action::Close(to));
    }

    /// Ends a connection whose session has another one, or is over.
    fn close(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        self.actions.push(Action::Close(connection));
    }

    fn closed(&mut self, connection: ConnectionId, now: Now) {
        let known = self.connections.remove(&connection);
        if let Some((volume, session)) = known.and_then(|connection| connection.session) {
            self.volumes.get_mut(&volume).expect("a session's volume is there").disconnect(session, connection, now);
        }
    }

    fn tick(&mut self, batch: &mut Batch, now: Now, access: &dyn Access) -> Result<(), StoreError> {
        for volume in self.volumes.values_mut() {
            volume.tick(batch, now, &mut self.actions)?;
        }
        self.refuse_parked(now);
        let withdrawn = |(volume, session): (VolumeId, SessionId)| {
            let row = self.volumes[&volume].row(session)?;
            (row.invitation != 0 && !access.stands(row.invitation, now.wall)).then_some((volume, session))
        };
        let ended: Vec<_> = self.connections.iter().filter_map(|(id, c)| Some((*id, withdrawn(c.session?)?))).collect();
        for (connection, (volume, session)) in ended {
            if access.is_unknown() {
                // The session goes on with the next connection, as it does when one breaks.
                let (why, text) = NOT_KNOWN;
                self.refuse(connection, why, text, now);
                continue;
            }
            self.refuse(connection, Refusal::Volume, "the invitation is withdrawn or has expired", now);
            self.volumes.get_mut(&volume).expect("loaded").end(batch, session, now, &mut self.actions)?;
        }
        self.refuse_parked(now);
        Ok(())
    }
}

/// The fields of a hello.
struct Hello {
    version: u16,
    volume: Vec<u8>,
    session: Option<(SessionId, u64)>,
    acknowledged: u64,
    secret: Vec<u8>,
}
