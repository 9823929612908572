//! Sockets, clocks and threads around the engine: each connection has a thread that receives, and one that sends what
//! its socket does not take at once. One at a time decides ([`crate::desk`]), and sends.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bluefs::Time;
use bluefs_net::{outbox, Acceptor, Cutter, Outbox, Taken, AT_ONCE_BYTES_MAX};
use bluefs_store::{Store, StoreError};
use bluefs_wire::{frame, Refusal, Reply, Request, FRAME_BYTES_MAX};

use crate::access::Everybody;
use crate::bounds::{Place, Room, Strangers, Unsent, STRANGERS_MAX, WAITING_BYTES_MAX, WAITING_OF_ONE_MAX};
use crate::desk::Desk;
use crate::engine::{Access, Action, ConnectionId, Engine, Event, Now};
use crate::figures::{word, Figures, Gauge, Guest, Note, Told, Traffic};

/// Events that wait for their turn; then connections are not read.
const WAITING_EVENTS_MAX: usize = 1024;
/// Bytes that wait for a client that does not read, and is not heard any more; then its connection is ended.
const UNSENT_BYTES_MAX: usize = 128 << 20;
/// The same of all clients together; then the connection with the most of it is ended.
const UNSENT_OF_ALL_BYTES_MAX: usize = 512 << 20;
/// About what a frame that waits takes up beside its bytes.
const FRAME_EXTRA_BYTES: usize = 64;
/// Connections at once, beside those that have not said who they are.
const CONNECTIONS_MAX: usize = 1024;
/// A client says something every few seconds. One that does not is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes of a connection's first message, at most: whoever sends it may be anybody.
const HELLO_BYTES_MAX: usize = 1024;
/// How long nothing is decided after a batch for which the disk had no room: clients come again.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// How old what is told of the server may be.
const FIGURES_AGE_MAX: Duration = Duration::from_secs(1);

/// Why a server has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread or a socket.
    #[error("cannot serve: {0}")]
    Io(#[from] io::Error),
}

/// What is to be decided.
pub(crate) enum Input {
    Opened(ConnectionId, Line),
    Event(Event),
    /// A message has its place until it is decided.
    Message(ConnectionId, Request, Place),
    /// The server's own thread is to look at the clock.
    Look,
    Stop,
}

/// A connection, as whoever decides sees it.
pub(crate) struct Line {
    output: Outbox,
    unsent: Arc<Unsent>,
    cutter: Cutter,
    is_cut: bool,
    peer: Option<SocketAddr>,
    since: Instant,
    /// Who it is, once they are let in.
    guest: Option<Guest>,
}

impl Line {
    fn cut(&mut self) {
        self.is_cut = true;
        self.cutter.cut();
    }
}

/// What the threads of connections share.
struct Shared {
    room: Arc<Room>,
    strangers: Strangers,
    unsent: Arc<AtomicUsize>,
    open: AtomicUsize,
    traffic: Traffic,
}

/// Ends a server that runs.
#[derive(Clone)]
pub struct Stopper(SyncSender<Input>);

impl Stopper {
    /// Ends it, as soon as what has arrived is decided.
    pub fn stop(&self) {
        // It may have ended already.
        let _ = self.0.send(Input::Stop);
    }
}

/// A server with its store open.
pub struct Server {
    turns: Turns,
    input: Receiver<Input>,
    to_input: SyncSender<Input>,
}

impl Server {
    /// A server of this store.
    pub fn new(store: Store) -> Result<Server, ServeError> {
        let (to_input, input) = mpsc::sync_channel(WAITING_EVENTS_MAX);
        Ok(Server { turns: Turns::new(store)?, input, to_input })
    }

    /// What looks at it from another thread.
    pub fn gauge(&self) -> Gauge {
        self.turns.gauge.clone()
    }

    /// Who hears of what happens. Whoever decides calls it: it must not wait.
    pub fn set_note(&mut self, note: impl Fn(Note) + Send + 'static) {
        self.turns.note = Box::new(note);
    }

    /// Another pause between a change of a group and a lease of another session on it, ms. Tests have none.
    pub fn set_quiet(&mut self, quiet: u64) {
        self.turns.engine.set_quiet(quiet);
    }

    /// Another term of leases, ms. A store has to have the same after each restart.
    pub fn set_term(&mut self, term: u64) {
        self.turns.engine.set_term(term);
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.to_input.clone())
    }

    /// Serves whoever connects, until it is stopped.
    /// Without an `acceptor` nothing is encrypted.
    pub fn run(
        self,
        listener: TcpListener,
        acceptor: Option<Acceptor>,
        access: Box<dyn Access + Send + Sync>,
    ) -> Result<(), ServeError> {
        let Server { turns, input, to_input } = self;
        let shared = turns.shared.clone();
        let desk = Arc::new(Desk::new(turns, to_input, access));
        let at_desk = desk.clone();
        let accept = move || accept(&listener, &acceptor, &at_desk, &shared);
        std::thread::Builder::new().name("accept".to_owned()).spawn(accept)?;
        desk.decide(&input)?.end()
    }
}

/// What is decided, turn by turn.
pub(crate) struct Turns {
    engine: Engine,
    clock: Instant,
    lines: BTreeMap<ConnectionId, Line>,
    shared: Arc<Shared>,
    /// The places of the messages that are decided now.
    taken: Vec<Place>,
    /// Frames of one connection that are sent together.
    joined: Option<(ConnectionId, Vec<u8>)>,
    /// What is counted by whoever decides.
    counted: Figures,
    gauge: Gauge,
    told_at: Instant,
    note: Box<dyn Fn(Note) + Send>,
    /// A turn has failed: nothing may be decided any more.
    is_broken: bool,
    /// Why, if the server's own thread has still to hear of it.
    failure: Option<ServeError>,
}

impl Turns {
    fn new(store: Store) -> Result<Turns, ServeError> {
        let clock = Instant::now();
        let engine = Engine::new(store, now(clock), || Everybody.random())?;
        let (strangers, unsent, open) = (Strangers::default(), Arc::default(), AtomicUsize::new(0));
        let (room, traffic) = (Arc::new(Room::new(WAITING_BYTES_MAX)), Traffic::default());
        let shared = Arc::new(Shared { room, strangers, unsent, open, traffic });
        let mut turns = Turns {
            engine,
            clock,
            lines: BTreeMap::new(),
            shared,
            taken: Vec::new(),
            joined: None,
            counted: Figures::default(),
            gauge: Gauge::default(),
            told_at: clock,
            note: Box::new(drop),
            is_broken: false,
            failure: None,
        };
        turns.tell_figures()?;
        Ok(turns)
    }

    /// How long until something is to be done, also if nothing happens.
    pub fn until_next(&self) -> Duration {
        let millis = now(self.clock).millis;
        let left = |at: u64| Duration::from_millis(at.saturating_sub(millis));
        match self.is_broken {
            true => Duration::ZERO,
            false => self.engine.next_turn().map_or(Duration::MAX, left).min(FIGURES_AGE_MAX),
        }
    }

    /// A turn of another thread has failed: the server's own one hears of it with its next turn.
    pub fn fail(&mut self, error: ServeError) {
        self.failure.get_or_insert(error);
    }

    /// Decides this, and does what is to be done. False: the server is to stop. After an error nothing is decided.
    pub fn turn(&mut self, inputs: Vec<Input>, access: &dyn Access) -> Result<bool, ServeError> {
        if self.is_broken {
            return Err(self.failure.take().unwrap_or_else(|| StoreError::Broken.into()));
        }
        let mut events = Vec::new();
        for input in inputs {
            if !self.take(input, &mut events) {
                return Ok(false);
            }
        }
        self.is_broken = true;
        let (begun, has_events) = (Instant::now(), !events.is_empty());
        let actions = match self.engine.handle(events, now(self.clock), access) {
            Err(StoreError::Full(_)) => self.begin_again()?,
            decided => decided?,
        };
        if has_events {
            self.counted.turn_took(begun.elapsed());
        }
        if self.engine.became_full() {
            (self.note)(Note::Full);
        }
        actions.into_iter().for_each(|action| self.perform(action));
        self.send_joined();
        self.taken.clear();
        self.shared.strangers.end_late();
        if self.told_at.elapsed() >= FIGURES_AGE_MAX {
            self.tell_figures()?;
        }
        self.is_broken = false;
        Ok(true)
    }

    /// The disk had no room: nothing of this turn was decided. Clients connect again, and send again what was not
    /// answered.
    fn begin_again(&mut self) -> Result<Vec<Action>, StoreError> {
        let ids: Vec<ConnectionId> = self.lines.keys().copied().collect();
        ids.into_iter().for_each(|id| _ = self.gone(id));
        std::thread::sleep(FULL_PAUSE);
        self.engine.begin_again(now(self.clock))?;
        Ok(Vec::new())
    }

    /// The server is over: all are told.
    fn end(mut self) -> Result<(), ServeError> {
        (self.note)(Note::Stopping);
        let farewell = Reply::Refused { why: Refusal::Stopping, text: b"the server is stopping".to_vec() };
        let ids: Vec<ConnectionId> = self.lines.keys().copied().collect();
        for id in ids {
            self.perform(Action::Send(id, farewell.clone()));
            self.perform(Action::Close(id));
        }
        Ok(self.engine.into_store().checkpoint()?)
    }

    /// False: the server is to stop.
    fn take(&mut self, input: Input, events: &mut Vec<Event>) -> bool {
        match input {
            Input::Opened(id, line) => {
                self.lines.insert(id, line);
                events.push(Event::Opened(id));
            }
            Input::Event(event) => {
                if let Event::Closed(id) = &event {
                    self.gone(*id);
                }
                events.push(event);
            }
            Input::Message(id, message, place) => {
                self.taken.push(place);
                self.counted.messages += 1;
                events.push(Event::Message(id, message));
            }
            Input::Look => {}
            Input::Stop => return false,
        }
        true
    }

    /// The connection is gone.
    fn gone(&mut self, id: ConnectionId) -> Option<Line> {
        let mut line = self.lines.remove(&id)?;
        if let Some(guest) = line.guest.take() {
            (self.note)(Note::Disconnected { peer: line.peer, guest, after: line.since.elapsed() });
        }
        Some(line)
    }

    /// Whom this reply lets in or sends away.
    fn notice(&mut self, to: ConnectionId, reply: &Reply) {
        let Some(line) = self.lines.get_mut(&to) else { return };
        match reply {
            Reply::Welcome { .. } => {
                line.guest = self.engine.guest(to);
                let connected = line.guest.clone().map(|guest| Note::Connected { peer: line.peer, guest });
                connected.into_iter().for_each(&self.note);
            }
            // A server that stops says so once.
            Reply::Refused { why: Refusal::Stopping, .. } => {}
            Reply::Refused { why, text } => {
                let (peer, guest, why) = (line.peer, line.guest.clone(), word(*why));
                *self.counted.refused.entry(why).or_default() += 1;
                (self.note)(Note::Refused { peer, guest, why, text: String::from_utf8_lossy(text).into_owned() });
            }
            _ => {}
        }
    }

    /// Makes known what the server has now.
    fn tell_figures(&mut self) -> Result<(), ServeError> {
        self.told_at = Instant::now();
        let (received_bytes, sent_bytes) = self.shared.traffic.look();
        self.gauge.set(Figures {
            up: self.clock.elapsed(),
            connections: self.lines.values().filter(|line| line.guest.is_some()).count(),
            received_bytes,
            sent_bytes,
            unsent_bytes: self.shared.unsent.load(Ordering::Relaxed),
            log_bytes: self.engine.log_bytes(),
            volumes: self.engine.volumes()?,
            ..self.counted.clone()
        });
        Ok(())
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Send(to, reply) => {
                self.counted.replies += 1;
                self.notice(to, &reply);
                let frame = frame(&reply);
                match &mut self.joined {
                    Some((with, frames)) if *with == to && frames.len() + frame.len() <= AT_ONCE_BYTES_MAX => {
                        frames.extend(frame);
                    }
                    _ => {
                        self.send_joined();
                        self.joined = Some((to, frame));
                    }
                }
            }
            Action::Close(to) => {
                self.send_joined();
                // It ends behind what waits to be sent.
                self.gone(to);
            }
        }
    }

    fn send_joined(&mut self) {
        let Some((to, frames)) = self.joined.take() else { return };
        let Some(line) = self.lines.get_mut(&to).filter(|line| !line.is_cut) else { return };
        let bytes = frames.len() + FRAME_EXTRA_BYTES;
        let (own, all) = line.unsent.add(bytes);
        let taken = line.output.send(frames);
        if taken != Ok(Taken::Waits) {
            line.unsent.sent(bytes);
        }
        if own > UNSENT_BYTES_MAX || taken.is_err() {
            line.cut();
        } else if all > UNSENT_OF_ALL_BYTES_MAX {
            let most = self.lines.values_mut().filter(|line| !line.is_cut).max_by_key(|line| line.unsent.own());
            most.into_iter().for_each(Line::cut);
        }
    }
}

fn now(clock: Instant) -> Now {
    // Before 1970 every time is 0; after 2262 the largest.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    Now { millis: clock.elapsed().as_millis() as u64, wall: Time(i64::try_from(wall).unwrap_or(i64::MAX)) }
}

fn accept(listener: &TcpListener, acceptor: &Option<Acceptor>, desk: &Arc<Desk>, shared: &Arc<Shared>) {
    for id in 0.. {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            // No descriptors, or a connection that was gone again: others may come.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if shared.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX + STRANGERS_MAX {
            shared.open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (desk, acceptor, of_thread) = (desk.clone(), acceptor.clone(), shared.clone());
        let receive = move || {
            let shared = of_thread;
            // Whatever ends a connection, the engine hears that it has ended.
            let _ = receive(socket, acceptor, ConnectionId(id), &desk, &shared);
            shared.strangers.leave(id);
            let _ = desk.hand_in(Input::Event(Event::Closed(ConnectionId(id))));
            shared.open.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("receive".to_owned()).spawn(receive).is_err() {
            shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn receive(
    socket: TcpStream,
    acceptor: Option<Acceptor>,
    id: ConnectionId,
    desk: &Desk,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    socket.set_write_timeout(Some(SILENCE_MAX))?;
    socket.set_read_timeout(Some(SILENCE_MAX))?;
    let (peer, since) = (socket.peer_addr().ok(), Instant::now());
    shared.strangers.enter(id.0, &socket)?;
    let (mut receiver, mut sender) = match acceptor {
        Some(acceptor) => bluefs_net::accept(socket, &acceptor)?,
        None => bluefs_net::plain(socket)?,
    };
    receiver.set_bytes_max(HELLO_BYTES_MAX);
    let Some(mut message) = receiver.receive::<Request>()? else { return Ok(()) };
    shared.strangers.leave(id.0);
    receiver.set_bytes_max(FRAME_BYTES_MAX);
    let unsent = Arc::new(Unsent::new(shared.unsent.clone()));
    let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
    let (cutter, is_cut, guest) = (sender.cutter()?, false, None);
    sender.set_counter(shared.traffic.sent_counter());
    let (output, rest) = outbox(sender);
    let opened = Line { output, unsent: unsent.clone(), cutter, is_cut, peer, since, guest };
    let at_sender = unsent.clone();
    let send = move || {
        rest.send(|bytes| at_sender.sent(bytes + FRAME_EXTRA_BYTES));
        at_sender.end();
    };
    std::thread::Builder::new().name("send".to_owned()).spawn(send)?;
    desk.hand_in(Input::Opened(id, opened)).map_err(|_| ended())?;
    let own = Arc::new(Room::new(WAITING_OF_ONE_MAX));
    let mut told = Told::default();
    loop {
        shared.traffic.received(receiver.received(), &mut told);
        let place = Place::take(&shared.room, &own, message.bytes());
        desk.hand_in(Input::Message(id, message, place)).map_err(|_| ended())?;
        match receiver.receive()? {
            Some(next) if unsent.wait() => message = next,
            _ => return Ok(()),
        }
    }
}
