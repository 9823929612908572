//! Messages on their way. Whoever has one hands it to the socket at once, if nothing is before it and the socket takes
//! it: then no other thread has to wake up for it. What is large, what the socket does not take now, and what comes
//! behind that waits for the connection's thread.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::Sender;

/// What is larger waits for the thread: to copy and to encrypt it takes time that whoever has it may not have.
pub const AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// A frame, or what makes one.
type Frame = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// The connection takes nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over;

/// What has become of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The socket has it.
    Sent,
    /// The thread will send it.
    Waits,
}

struct State {
    /// `None`: the thread has it, and is sending.
    sender: Option<Sender>,
    waiting: VecDeque<(usize, Frame)>,
    /// Bytes of the frame of which the socket has taken a part.
    begun: Option<usize>,
    /// Small frames that are to be sent together, if somebody has said so.
    held: Option<Vec<u8>>,
    is_over: bool,
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Gives messages to a connection. Clones are the same one; when the last goes, the connection ends behind what waits.
#[derive(Clone)]
pub struct Outbox(Arc<Handle>);

struct Handle(Arc<Shared>);

/// What the connection's thread does.
pub struct Rest(Arc<Shared>);

/// Both sides of it.
pub fn outbox(sender: Sender) -> (Outbox, Rest) {
    let state = State {
        sender: Some(sender),
        waiting: VecDeque::new(),
        begun: None,
        held: None,
        is_over: false,
        is_closed: false,
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (Outbox(Arc::new(Handle(shared.clone()))), Rest(shared))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nothing is before what comes now.
    fn is_free(&mut self) -> Option<&mut Sender> {
        if self.waiting.is_empty() && self.begun.is_none() {
            self.sender.as_mut()
        } else {
            None
        }
    }
}

impl Outbox {
    /// Sends a frame behind those before it.
    pub fn send(&self, frame: Vec<u8>) -> Result<Taken, Over> {
        let mut state = self.state()?;
        if let Some(held) = &mut state.held {
            if held.len() + frame.len() <= AT_ONCE_BYTES_MAX {
                held.extend(frame);
                return Ok(Taken::Waits);
            }
            self.send_held(&mut state)?;
        }
        self.give(&mut state, frame)
    }

    /// The same, of a frame that the thread makes. `len`: about how many bytes that has.
    pub fn send_large(&self, len: usize, frame: impl FnOnce() -> Vec<u8> + Send + 'static) -> Result<Taken, Over> {
        let mut state = self.state()?;
        self.send_held(&mut state)?;
        state.waiting.push_back((len, Box::new(frame)));
        self.0 .0.changed.notify_all();
        Ok(Taken::Waits)
    }

    /// Holds what is sent from now on, up to [`AT_ONCE_BYTES_MAX`], until [`Outbox::release`]: many small frames in a
    /// row are one piece.
    pub fn hold(&self) {
        self.0 .0.state().held.get_or_insert_default();
    }

    /// Sends what is held.
    pub fn release(&self) -> Result<(), Over> {
        let mut state = self.state()?;
        let sent = self.send_held(&mut state);
        state.held = None;
        sent
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, Over> {
        Some(self.0 .0.state()).filter(|state| !state.is_over).ok_or(Over)
    }

    fn send_held(&self, state: &mut State) -> Result<(), Over> {
        match &mut state.held {
            Some(held) if !held.is_empty() => {
                let frames = std::mem::take(held);
                self.give(state, frames).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn give(&self, state: &mut State, frame: Vec<u8>) -> Result<Taken, Over> {
        let shared = &self.0 .0;
        let len = frame.len();
        if let Some(sender) = state.is_free().filter(|_| len <= AT_ONCE_BYTES_MAX) {
            match sender.offer(&frame) {
                Ok(true) => return Ok(Taken::Sent),
                Ok(false) => state.begun = Some(len),
                Err(_) => {
                    sender.end();
                    state.is_over = true;
                    shared.changed.notify_all();
                    return Err(Over);
                }
            }
        } else {
            state.waiting.push_back((len, Box::new(move || frame)));
        }
        shared.changed.notify_all();
        Ok(Taken::Waits)
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbox")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Rest {
    /// Sends what waits, until the connection is over, and ends it. `sent` hears of each frame that has waited, as soon
    /// as it waits no more.
    pub fn send(self, sent: impl Fn(usize)) {
        while let Some((mut sender, next)) = self.next() {
            let result = match next {
                // It is noted when it is begun: its memory is the sender's then.
                Some((len, frame)) => {
                    sent(len);
                    sender.send_frame(&frame())
                }
                None => sender.flush(),
            };
            let mut state = self.0.state();
            if let Some(len) = state.begun.take() {
                sent(len);
            }
            state.is_over |= result.is_err();
            state.sender = Some(sender);
        }
        let mut state = self.0.state();
        state.is_over = true;
        if let Some(sender) = &state.sender {
            sender.end();
        }
        state.waiting.clear();
    }

    /// The sender, and the next frame, or `None` for the rest of one that is begun; `None`: there is no more.
    #[allow(clippy::type_complexity, reason = "a frame with its length")]
    fn next(&self) -> Option<(Sender, Option<(usize, Frame)>)> {
        let mut state = self.0.state();
        loop {
            if state.is_over {
                return None;
            }
            if state.begun.is_some() || !state.waiting.is_empty() {
                let sender = state.sender.take()?;
                let next = if state.begun.is_some() { None } else { state.waiting.pop_front() };
                return Some((sender, next));
            }
            if state.is_closed {
                return None;
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Hands bytes to a socket without waiting. How many it has taken.
pub(crate) fn offer(socket: &std::net::TcpStream, bytes: &[u8]) -> io::Result<usize> {
    use rustix::net::{send, SendFlags};
    loop {
        return match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(len) => Ok(len),
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::time::Duration;

    use bluefs_wire::{frame, Request};

    use super::*;
    use crate::{accept, connect, plain, Acceptor, Identity, Receiver};

    /// The two ends of a connection: who sends, who receives.
    fn ends(is_encrypted: bool) -> (Sender, Receiver) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let far = listener.accept().expect("accepted").0;
        if !is_encrypted {
            return (plain(near).expect("an end").1, plain(far).expect("an end").0);
        }
        let identity = Identity::generate().expect("a key");
        let acceptor = Acceptor::new(&identity).expect("a server");
        let accepting = std::thread::spawn(move || accept(far, &acceptor).expect("TLS").0);
        let sender = connect(near, identity.fingerprint()).expect("TLS").1;
        (sender, accepting.join().expect("no panic"))
    }

    fn large(id: u64) -> Request {
        Request::Stage { id, data: vec![7; 300 << 10] }
    }

    fn number(message: Request) -> u64 {
        match message {
            Request::Ping { tag } => tag,
            Request::Stage { id, data } if data.len() == 300 << 10 && data.iter().all(|byte| *byte == 7) => id,
            message => panic!("{message:?}"),
        }
    }

    /// Small and large ones, more than a socket takes, to somebody who begins to read later.
    #[test]
    fn messages_arrive_in_their_order() {
        for is_encrypted in [false, true] {
            let (sender, mut receiver) = ends(is_encrypted);
            let (outbox, rest) = outbox(sender);
            let (tell, told) = mpsc::channel();
            let thread = std::thread::spawn(move || rest.send(|len| tell.send(len).expect("a test")));
            let mut waits = Vec::new();
            for tag in 0..2000 {
                let taken = if tag % 50 == 7 {
                    let len = 300 << 10;
                    outbox.send_large(len, move || frame(&large(tag))).map(|taken| (taken, len))
                } else {
                    let frame = frame(&Request::Ping { tag });
                    let len = frame.len();
                    outbox.send(frame).map(|taken| (taken, len))
                };
                match taken.expect("the connection is there") {
                    (Taken::Sent, _) => assert!(tag < 7 || waits.is_empty() || !is_waiting(&outbox), "{tag}"),
                    (Taken::Waits, len) => waits.push(len),
                }
            }
            assert!(waits.len() > 1000, "most come behind the large ones: {}", waits.len());
            for tag in 0..2000 {
                assert_eq!(number(receiver.receive().expect("a message").expect("no end")), tag);
            }
            drop(outbox);
            assert!(receiver.receive::<Request>().expect("an end").is_none());
            thread.join().expect("no panic");
            assert_eq!(told.iter().collect::<Vec<_>>(), waits);
        }
    }

    fn is_waiting(outbox: &Outbox) -> bool {
        !outbox.0 .0.state().waiting.is_empty()
    }

    /// Small ones only: they fill the socket, and one of them is taken in part.
    #[test]
    fn what_a_full_socket_does_not_take_waits() {
        for is_encrypted in [false, true] {
            let (sender, mut receiver) = ends(is_encrypted);
            let (outbox, rest) = outbox(sender);
            let message = || Request::Stage { id: 5, data: vec![7; AT_ONCE_BYTES_MAX - 100] };
            let mut count = 0;
            while outbox.send(frame(&message())) == Ok(Taken::Sent) {
                count += 1;
            }
            assert!(count > 1 && outbox.0 .0.state().begun.is_some());
            assert_eq!(outbox.send(frame(&message())), Ok(Taken::Waits));
            let thread = std::thread::spawn(move || rest.send(drop));
            for _ in 0..count + 2 {
                assert_eq!(receiver.receive::<Request>().expect("a message"), Some(message()));
            }
            // The thread has given the sender back, or is about to.
            while outbox.0 .0.state().sender.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(outbox.send(frame(&message())), Ok(Taken::Sent), "nothing is before it any more");
            drop(outbox);
            assert_eq!(receiver.receive::<Request>().expect("a message"), Some(message()));
            assert!(receiver.receive::<Request>().expect("an end").is_none());
            thread.join().expect("no panic");
        }
    }

    #[test]
    fn what_is_held_is_one_piece_and_stays_in_its_place() {
        let (sender, mut receiver) = ends(false);
        let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let mut sender = sender;
        sender.set_counter(sent.clone());
        let (outbox, rest) = outbox(sender);
        let ping = |tag| frame(&Request::Ping { tag });
        outbox.hold();
        (0..10).for_each(|tag| assert_eq!(outbox.send(ping(tag)), Ok(Taken::Waits)));
        assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 0);
        outbox.send_large(300 << 10, || frame(&large(10))).expect("a connection");
        outbox.send(ping(11)).expect("a connection");
        let many = AT_ONCE_BYTES_MAX as u64 / ping(0).len() as u64 + 20;
        (12..many).for_each(|tag| _ = outbox.send(ping(tag)).expect("a connection"));
        outbox.release().expect("a connection");
        outbox.send(ping(many)).expect("a connection");
        let thread = std::thread::spawn(move || rest.send(drop));
        (0..=many).for_each(|tag| assert_eq!(number(receiver.receive().expect("a message").expect("no end")), tag));
        drop(outbox);
        thread.join().expect("no panic");
    }

    #[test]
    fn a_connection_that_is_over_takes_nothing() {
        let (sender, receiver) = ends(false);
        let cutter = sender.cutter().expect("a socket");
        let (outbox, rest) = outbox(sender);
        let thread = std::thread::spawn(move || rest.send(drop));
        cutter.cut();
        assert_eq!(outbox.send(frame(&Request::Ping { tag: 1 })), Err(Over));
        assert_eq!(outbox.send_large(1 << 20, || panic!("nobody needs it")), Err(Over));
        thread.join().expect("it ends without being told");
        drop(receiver);
    }
}
