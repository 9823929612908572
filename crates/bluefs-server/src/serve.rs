//! Sockets, clocks and threads around the engine: one thread decides, each connection has one that receives and one
//! that sends.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bluefs::Time;
use bluefs_net::{Acceptor, Cutter, Sender};
use bluefs_store::{Store, StoreError};
use bluefs_wire::{frame, Refusal, Reply, FRAME_BYTES_MAX};

use crate::engine::{Access, Action, ConnectionId, Engine, Event, Now};

/// Events that are decided in one turn, at most: one batch of the store.
const TURN_EVENTS_MAX: usize = 512;
/// Events that wait for their turn; then connections are not read.
const WAITING_EVENTS_MAX: usize = 1024;
/// Bytes that wait for a client that does not read; then its connection is ended.
const UNSENT_BYTES_MAX: usize = 128 << 20;
/// Connections at once.
const CONNECTIONS_MAX: usize = 1024;
/// A client says something every few seconds. One that does not is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes of a connection's first message, at most: whoever sends it may be anybody.
const HELLO_BYTES_MAX: usize = 1024;
/// How often the clock is looked at, also if nothing happens: an invitation may have expired.
const TURN_MAX: Duration = Duration::from_secs(1);

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

/// What reaches the thread that decides.
enum Input {
    Opened(ConnectionId, SyncSender<Output>, Arc<AtomicUsize>, Cutter),
    Event(Event),
    Stop,
}

enum Output {
    Frame(Vec<u8>),
    Close,
}

/// A connection, as the deciding thread sees it.
struct Line {
    output: mpsc::SyncSender<Output>,
    unsent: Arc<AtomicUsize>,
    cutter: Cutter,
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
    engine: Engine,
    clock: Instant,
    input: Receiver<Input>,
    to_input: SyncSender<Input>,
    lines: BTreeMap<ConnectionId, Line>,
}

impl Server {
    /// A server of this store.
    pub fn new(store: Store) -> Result<Server, ServeError> {
        let clock = Instant::now();
        let (to_input, input) = mpsc::sync_channel(WAITING_EVENTS_MAX);
        let engine = Engine::new(store, now(clock))?;
        Ok(Server { engine, clock, input, to_input, lines: BTreeMap::new() })
    }

    /// Another pause between a change of a group and a lease of another session on it, ms. Tests have none.
    pub fn set_quiet(&mut self, quiet: u64) {
        self.engine.set_quiet(quiet);
    }

    /// Another term of leases, ms. A store has to have the same after each restart.
    pub fn set_term(&mut self, term: u64) {
        self.engine.set_term(term);
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.to_input.clone())
    }

    /// Serves whoever connects, until it is stopped.
    /// Without an `acceptor` nothing is encrypted.
    pub fn run(
        mut self,
        listener: TcpListener,
        acceptor: Option<Acceptor>,
        access: &dyn Access,
    ) -> Result<(), ServeError> {
        let to_input = self.to_input.clone();
        std::thread::Builder::new().name("accept".to_owned()).spawn(move || accept(&listener, &acceptor, &to_input))?;
        while let Some(events) = self.next_events() {
            let actions = self.engine.handle(events, now(self.clock), access)?;
            actions.into_iter().for_each(|action| self.perform(action));
        }
        let farewell = Reply::Refused { why: Refusal::Stopping, text: b"the server is stopping".to_vec() };
        let ids: Vec<ConnectionId> = self.lines.keys().copied().collect();
        for id in ids {
            self.perform(Action::Send(id, farewell.clone()));
            self.perform(Action::Close(id));
        }
        Ok(self.engine.into_store().checkpoint()?)
    }

    /// What is to be decided next; `None`: the server is to stop.
    fn next_events(&mut self) -> Option<Vec<Event>> {
        let millis = now(self.clock).millis;
        let turn = self.engine.next_turn().map_or(TURN_MAX, |at| Duration::from_millis(at.saturating_sub(millis)));
        let mut events = Vec::new();
        match self.input.recv_timeout(turn.clamp(Duration::from_millis(1), TURN_MAX)) {
            Ok(input) => self.take(input, &mut events)?,
            Err(RecvTimeoutError::Timeout) => return Some(events),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        while events.len() < TURN_EVENTS_MAX {
            let Ok(input) = self.input.try_recv() else { break };
            self.take(input, &mut events)?;
        }
        Some(events)
    }

    fn take(&mut self, input: Input, events: &mut Vec<Event>) -> Option<()> {
        match input {
            Input::Opened(id, output, unsent, cutter) => {
                self.lines.insert(id, Line { output, unsent, cutter });
                events.push(Event::Opened(id));
            }
            Input::Event(event) => {
                if let Event::Closed(id) = &event {
                    self.lines.remove(id);
                }
                events.push(event);
            }
            Input::Stop => return None,
        }
        Some(())
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Send(to, reply) => {
                let Some(line) = self.lines.get(&to) else { return };
                let frame = frame(&reply);
                let unsent = line.unsent.fetch_add(frame.len(), Ordering::Relaxed) + frame.len();
                if unsent > UNSENT_BYTES_MAX || line.output.try_send(Output::Frame(frame)).is_err() {
                    line.cutter.cut();
                }
            }
            Action::Close(to) => {
                if let Some(line) = self.lines.remove(&to) {
                    if line.output.try_send(Output::Close).is_err() {
                        line.cutter.cut();
                    }
                }
            }
        }
    }
}

fn now(clock: Instant) -> Now {
    // Before 1970 every time is 0; after 2262 the largest.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    Now { millis: clock.elapsed().as_millis() as u64, wall: Time(i64::try_from(wall).unwrap_or(i64::MAX)) }
}

fn accept(listener: &TcpListener, acceptor: &Option<Acceptor>, input: &SyncSender<Input>) {
    let open = Arc::new(AtomicUsize::new(0));
    for id in 0.. {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            // No descriptors, or a connection that was gone again: others may come.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (input, acceptor, counted) = (input.clone(), acceptor.clone(), open.clone());
        let receive = move || {
            let id = ConnectionId(id);
            // Whatever ends a connection, the engine hears that it has ended.
            let _ = receive(socket, acceptor, id, &input);
            let _ = input.send(Input::Event(Event::Closed(id)));
            counted.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("receive".to_owned()).spawn(receive).is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn receive(
    socket: TcpStream,
    acceptor: Option<Acceptor>,
    id: ConnectionId,
    input: &SyncSender<Input>,
) -> io::Result<()> {
    socket.set_write_timeout(Some(SILENCE_MAX))?;
    socket.set_read_timeout(Some(SILENCE_MAX))?;
    let (mut receiver, sender) = match acceptor {
        Some(acceptor) => bluefs_net::accept(socket, &acceptor)?,
        None => bluefs_net::plain(socket)?,
    };
    let (to_output, output) = mpsc::sync_channel(1 << 16);
    let unsent = Arc::new(AtomicUsize::new(0));
    let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
    let opened = Input::Opened(id, to_output, unsent.clone(), sender.cutter()?);
    std::thread::Builder::new().name("send".to_owned()).spawn(move || send(sender, &output, &unsent))?;
    input.send(opened).map_err(|_| ended())?;
    receiver.set_bytes_max(HELLO_BYTES_MAX);
    while let Some(message) = receiver.receive()? {
        receiver.set_bytes_max(FRAME_BYTES_MAX);
        input.send(Input::Event(Event::Message(id, message))).map_err(|_| ended())?;
    }
    Ok(())
}

fn send(mut sender: Sender, output: &Receiver<Output>, unsent: &AtomicUsize) {
    while let Ok(Output::Frame(frame)) = output.recv() {
        unsent.fetch_sub(frame.len(), Ordering::Relaxed);
        if sender.send_frame(&frame).is_err() {
            break;
        }
    }
    if let Ok(cutter) = sender.cutter() {
        cutter.cut();
    }
}
