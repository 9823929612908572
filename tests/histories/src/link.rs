//! The line between a client and the server: it can be cut and held, and what it carries can be falsified.

mod falsify;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bluefs_wire::{frame, Frames, Reply, Request};

use crate::planted::Planted;
use falsify::Falsifier;

/// How often somebody who waits looks around.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How much later than the rest a client is told what comes late.
const LATE: Duration = Duration::from_millis(30);

#[derive(Default)]
struct State {
    /// Where the server listens; 0: it is away.
    server: AtomicU16,
    holds_up: AtomicBool,
    holds_down: AtomicBool,
    is_over: AtomicBool,
    /// Ends of connections.
    open: Mutex<Vec<TcpStream>>,
}

/// A line.
pub struct Link {
    at: SocketAddr,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
    planted: Option<Planted>,
}

impl Link {
    /// A line to a server that is not there yet.
    pub fn new(planted: Option<Planted>) -> io::Result<Link> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (at, state) = (listener.local_addr()?, Arc::new(State::default()));
        let of_line = state.clone();
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming() {
                if of_line.is_over.load(Ordering::SeqCst) {
                    break;
                }
                let line = of_line.clone();
                if let Ok(client) = client {
                    std::thread::spawn(move || carry(&line, client, planted));
                }
            }
        });
        Ok(Link { at, state, accepting: Some(accepting), planted })
    }

    /// Where clients reach the server.
    pub fn address(&self) -> String {
        format!("bluefs://{}", self.at)
    }

    /// The server is there now.
    pub fn set_server(&self, port: u16) {
        self.state.server.store(port, Ordering::SeqCst);
    }

    /// Every connection ends.
    pub fn cut(&self) {
        // The client of a falsified line does not hear of it.
        let ends = lock(&self.state.open);
        let only_server = self.planted == Some(Planted::StaleAfterReconnection);
        let port = self.state.server.load(Ordering::SeqCst);
        let is_chosen = |end: &&TcpStream| !only_server || end.peer_addr().is_ok_and(|peer| peer.port() == port);
        ends.iter().filter(is_chosen).for_each(|end| _ = end.shutdown(Shutdown::Both));
    }

    /// What is sent to the server, and by it, does not arrive for a while.
    pub fn hold(&self, up: bool, down: bool) {
        self.state.holds_up.store(up, Ordering::SeqCst);
        self.state.holds_down.store(down, Ordering::SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // It waits for a connection.
        let _ = TcpStream::connect(self.at);
        lock(&self.state.open).iter().for_each(|end| _ = end.shutdown(Shutdown::Both));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl State {
    fn connect(&self) -> io::Result<TcpStream> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server.load(Ordering::SeqCst)))?;
        server.set_nodelay(true)?;
        let mut open = lock(&self.open);
        // Ends that are closed at both sides say so.
        open.retain(|end| end.peer_addr().is_ok());
        open.push(server.try_clone()?);
        Ok(server)
    }

    fn waits(&self, holds: &AtomicBool) {
        while holds.load(Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// One connection of a client.
struct Carried {
    client: TcpStream,
    /// One at a time sends to the client.
    sending: Mutex<()>,
    /// The server's end, which a falsified line may replace.
    server: Mutex<TcpStream>,
    falsifier: Mutex<Falsifier>,
}

fn carry(line: &Arc<State>, client: TcpStream, planted: Option<Planted>) {
    let connected = || -> io::Result<Arc<Carried>> {
        client.set_nodelay(true)?;
        let server = Mutex::new(line.connect()?);
        lock(&line.open).push(client.try_clone()?);
        Ok(Arc::new(Carried {
            client,
            sending: Mutex::default(),
            server,
            falsifier: Mutex::new(Falsifier::new(planted)),
        }))
    };
    // A client whose server is away hears that the connection has ended.
    let Ok(carried) = connected() else { return };
    let (of_line, upward) = (line.clone(), carried.clone());
    let up = std::thread::spawn(move || {
        let _ = upward.up(&of_line);
        upward.end();
    });
    while carried.down(line).is_ok() && carried.goes_on(line) {}
    carried.end();
    let _ = up.join();
}

impl Carried {
    fn up(&self, line: &State) -> io::Result<()> {
        let mut messages = Frames::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let len = (&self.client).read(&mut bytes)?;
            line.waits(&line.holds_up);
            if len == 0 {
                return Ok(());
            }
            messages.push(&bytes[..len]);
            while let Some(request) = messages.next_message::<Request>().map_err(io::Error::other)? {
                lock(&self.falsifier).up(&request);
                let sent = lock(&self.server).write_all(&frame(&request));
                // Who goes on with another connection sends it again there.
                if sent.is_err() && !lock(&self.falsifier).hides_cuts() {
                    return sent;
                }
            }
        }
    }

    /// Ends well if the server has ended the connection.
    fn down(self: &Arc<Carried>, line: &State) -> io::Result<()> {
        let mut server = lock(&self.server).try_clone()?;
        let mut messages = Frames::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let Ok(len) = server.read(&mut bytes) else { return Ok(()) };
            line.waits(&line.holds_down);
            if len == 0 {
                return Ok(());
            }
            messages.push(&bytes[..len]);
            while let Some(reply) = messages.next_message::<Reply>().map_err(io::Error::other)? {
                let (down, up) = lock(&self.falsifier).down(reply);
                if let Some(request) = up {
                    lock(&self.server).write_all(&frame(&request))?;
                }
                match down {
                    Some(reply) if lock(&self.falsifier).is_late(&reply) => {
                        let carried = self.clone();
                        std::thread::spawn(move || {
                            std::thread::sleep(LATE);
                            carried.send_down(&reply)
                        });
                    }
                    Some(reply) => self.send_down(&reply)?,
                    None => {}
                }
            }
        }
    }

    fn send_down(&self, reply: &Reply) -> io::Result<()> {
        let _one = lock(&self.sending);
        (&self.client).write_all(&frame(reply))
    }

    /// Whether the line goes on with another connection to the server, without a word to the client.
    fn goes_on(&self, line: &State) -> bool {
        while lock(&self.falsifier).hides_cuts() && !line.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK_EVERY);
            let mut falsifier = lock(&self.falsifier);
            let Ok(server) = line.connect() else { continue };
            if falsifier.resume(&server).is_ok() {
                *lock(&self.server) = server;
                return true;
            }
        }
        false
    }

    fn end(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = lock(&self.server).shutdown(Shutdown::Both);
    }
}
