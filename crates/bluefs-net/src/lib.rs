//! Messages of BlueFS over a socket, in both directions at once: one thread receives, and whoever has something sends
//! it at once, or leaves it to another thread.
#![forbid(unsafe_code)]

mod hex;
mod outbox;
mod tls;

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bluefs_wire::{frame, Frames, Wire};
use rustls::Connection;

pub use hex::{from_hex, to_hex};
pub use outbox::{outbox, Outbox, Over, Rest, Taken, AT_ONCE_BYTES_MAX};
pub use tls::{random_bytes, sha256, Acceptor, Identity};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that are written between two counts: whoever looks sees that a large message goes on over a slow line.
const WRITE_BYTES: usize = 64 << 10;

/// What is encrypted is shared by both ends; it is never locked while somebody waits for the network.
type Shared = Arc<Mutex<Connection>>;

fn lock(tls: &Shared) -> MutexGuard<'_, Connection> {
    tls.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The end that receives.
#[derive(Debug)]
pub struct Receiver {
    socket: TcpStream,
    tls: Option<Shared>,
    frames: Frames,
    bytes: Vec<u8>,
    received: u64,
    timeout: Option<Duration>,
}

/// The end that sends.
#[derive(Debug)]
pub struct Sender {
    socket: TcpStream,
    tls: Option<Shared>,
    /// What the socket has not taken yet.
    rest: Vec<u8>,
    sent: Arc<AtomicU64>,
    waited: Arc<AtomicU64>,
}

/// What ends a connection from another thread.
#[derive(Debug)]
pub struct Cutter(TcpStream);

/// Both ends of a connection without encryption.
pub fn plain(socket: TcpStream) -> io::Result<(Receiver, Sender)> {
    both(socket, None)
}

/// Both ends of a connection that a client has made to this server.
pub fn accept(socket: TcpStream, acceptor: &Acceptor) -> io::Result<(Receiver, Sender)> {
    encrypted(socket, acceptor.connection()?)
}

/// Both ends of a connection to the server with this fingerprint.
pub fn connect(socket: TcpStream, fingerprint: [u8; 32]) -> io::Result<(Receiver, Sender)> {
    encrypted(socket, tls::client(fingerprint)?)
}

fn encrypted(mut socket: TcpStream, mut tls: Connection) -> io::Result<(Receiver, Sender)> {
    tls.set_buffer_limit(None);
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    let (mut receiver, sender) = both(socket, Some(Arc::new(Mutex::new(tls))))?;
    receiver.take(&[])?;
    Ok((receiver, sender))
}

fn both(socket: TcpStream, tls: Option<Shared>) -> io::Result<(Receiver, Sender)> {
    socket.set_nodelay(true)?;
    let (rest, sent, waited) = (Vec::new(), Arc::default(), Arc::default());
    let sender = Sender { socket: socket.try_clone()?, tls: tls.clone(), rest, sent, waited };
    let (frames, bytes) = (Frames::new(), vec![0; READ_BYTES]);
    Ok((Receiver { socket, tls, frames, bytes, received: 0, timeout: None }, sender))
}

impl Receiver {
    /// The next message; `None`: the other end has closed the connection. A time-out is an error of the kind
    /// `WouldBlock` or `TimedOut`, after which one may go on: what has arrived of a message is kept.
    pub fn receive<T: Wire>(&mut self) -> io::Result<Option<T>> {
        let begun = Instant::now();
        loop {
            let next = self.frames.next_message();
            if let Some(message) = next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return Ok(Some(message));
            }
            if self.timeout.is_some_and(|timeout| begun.elapsed() >= timeout / 2) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let len = match self.socket.read(&mut self.bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            };
            if len == 0 {
                return Ok(None);
            }
            self.received += len as u64;
            let bytes = std::mem::take(&mut self.bytes);
            let taken = self.take(&bytes[..len]);
            self.bytes = bytes;
            taken?;
        }
    }

    /// Takes bytes that have arrived, and what was decrypted before.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else {
            self.frames.push(bytes);
            return Ok(());
        };
        let mut tls = lock(tls);
        loop {
            let read = if bytes.is_empty() { 0 } else { tls.read_tls(&mut bytes)? };
            let state = tls.process_new_packets();
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            tls.reader().read_exact(&mut plain)?;
            self.frames.push(&plain);
            if read == 0 || bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Bytes that have come from the socket, behind the handshake; those of messages that are not whole are among them.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// How many bytes a message may have, up to the bound of the protocol.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.frames.set_bytes_max(bytes_max);
    }

    /// How long [`Receiver::receive`] waits for bytes. While some arrive it waits for a message half as long: then it
    /// returns in one and a half of this at the latest.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout = timeout;
        self.socket.set_read_timeout(timeout)
    }
}

impl Sender {
    /// Sends a message.
    pub fn send<T: Wire>(&mut self, message: &T) -> io::Result<()> {
        self.send_frame(&frame(message))
    }

    /// Sends a message that stands in its frame.
    pub fn send_frame(&mut self, frame: &[u8]) -> io::Result<()> {
        self.flush()?;
        let sealed = self.sealed(frame)?;
        self.write(&sealed)
    }

    /// Sends what the socket did not take.
    pub fn flush(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        self.write(&rest)
    }

    /// Waits until the socket has taken these.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(WRITE_BYTES) {
            self.socket.write_all(piece)?;
            self.count(piece.len());
            self.waited.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Hands a message that stands in its frame to the socket, without waiting; `false`: it has not taken all of it,
    /// and [`Sender::flush`] sends the rest.
    pub fn offer(&mut self, frame: &[u8]) -> io::Result<bool> {
        let sealed = self.sealed(frame)?;
        let taken = if self.rest.is_empty() { outbox::offer(&self.socket, &sealed)? } else { 0 };
        self.rest.extend_from_slice(&sealed[taken..]);
        self.count(taken);
        Ok(self.rest.is_empty())
    }

    /// A frame as it goes over the line.
    fn sealed<'f>(&self, frame: &'f [u8]) -> io::Result<Cow<'f, [u8]>> {
        let Some(tls) = &self.tls else { return Ok(Cow::Borrowed(frame)) };
        let mut bytes = Vec::with_capacity(frame.len() + 1024);
        let mut tls = lock(tls);
        tls.writer().write_all(frame)?;
        while tls.wants_write() {
            tls.write_tls(&mut bytes)?;
        }
        Ok(Cow::Owned(bytes))
    }

    fn count(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that are given to the socket from now on there.
    pub fn set_counter(&mut self, sent: Arc<AtomicU64>) {
        self.sent = sent;
    }

    /// Bytes for which the socket has had no room at first. As long as they become more, the other end takes in what is
    /// sent; of what a socket takes at once that is not known.
    pub fn waited_counter(&self) -> Arc<AtomicU64> {
        self.waited.clone()
    }

    /// Ends the connection: both ends fail.
    pub fn end(&self) {
        // It may be closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Something that can end the connection from another thread.
    pub fn cutter(&self) -> io::Result<Cutter> {
        Ok(Cutter(self.socket.try_clone()?))
    }
}

impl Cutter {
    /// Ends the connection: both ends fail.
    pub fn cut(&self) {
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Whether an error says no more than that nothing has arrived in time.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use bluefs_wire::Request;

    use super::*;

    #[test]
    fn a_message_that_arrives_slowly_keeps_nobody_from_the_clock() {
        const TIMEOUT: Duration = Duration::from_millis(50);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut far = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (mut receiver, _sender) = plain(listener.accept().expect("accepted").0).expect("both ends");
        receiver.set_timeout(Some(TIMEOUT)).expect("a socket");
        let message = Request::Stage { id: 1, data: vec![7; 12] };
        let bytes = frame(&message);
        let sending = std::thread::spawn(move || {
            for byte in bytes {
                far.write_all(&[byte]).expect("sent");
                std::thread::sleep(TIMEOUT / 5);
            }
        });
        let mut looks = 0;
        let arrived = loop {
            match receiver.receive::<Request>() {
                Err(error) if is_timeout(&error) => looks += 1,
                other => break other.expect("a message"),
            }
        };
        assert_eq!(arrived, Some(message));
        assert!(looks > 0, "and there was time for something else");
        sending.join().expect("no panic");
    }
}
