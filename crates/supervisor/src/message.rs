//! What the supervisor tells the front: one JSON object a line.

use crate::stats::Stats;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// From supervisor to front.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// Ready for COMMAND, which must install a filter for these segments.
    Ready { agent_id: i32, world_id: i32 },
    /// The world could not be set up.
    Failed { what: String },
    /// COMMAND is held.
    Seized,
    /// Something worth saying; shown with `-v`.
    Note { text: String },
    /// The same again, or less interesting; shown with `-vv`.
    Detail { text: String },
    /// Something that must be said.
    Warning { text: String },
    /// A program cannot run inside and is ended; whether it is COMMAND, or what COMMAND has become, and whether that is
    /// due to the program.
    Refused { text: String, is_command: bool, is_to_blame: bool },
    /// COMMAND has ended, all that its status depends on is committed, and other processes go on.
    CommandSettled,
    /// A flush failed: everything was stopped.
    FlushFailed { file_system: String, error: String },
    /// The last process has ended, everything is committed, every volume unmounted.
    WorldEnded { stats: Box<Stats>, unmount_error: Option<String> },
}

/// From front to supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Hold this process.
    Seize { pid: i32 },
    /// We got this signal from this process; COMMAND may have got it, too.
    Forward { signal: i32, sender: i32 },
}

/// One end of the channel.
#[derive(Debug)]
pub struct Channel {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Channel {
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Channel::new(a)?, Channel::new(b)?))
    }

    fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }

    pub fn sender(&self) -> io::Result<Sender> {
        Ok(Sender(self.writer.try_clone()?))
    }

    pub fn order(&mut self, order: &Order) -> io::Result<()> {
        send(&mut self.writer, order)
    }

    /// The next message; `None` when the other end is gone.
    pub fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(io::Error::other)
    }
}

/// The sending half, for any thread.
#[derive(Debug)]
pub struct Sender(UnixStream);

impl Sender {
    /// The front may be gone; then nobody wants to know.
    pub fn tell(&mut self, message: &Message) {
        let _ = send(&mut self.0, message);
    }

    /// The supervisor may be gone; then so is COMMAND.
    pub fn order(&mut self, order: &Order) {
        let _ = send(&mut self.0, order);
    }

    pub fn another(&self) -> io::Result<Sender> {
        Ok(Sender(self.0.try_clone()?))
    }
}

/// From here on the front hears of a panic in this process, whose own standard error nobody reads.
pub fn tell_of_panics(front: Sender) {
    let front = Mutex::new(front);
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let payload = panic.payload();
        let words = payload.downcast_ref::<&str>().copied();
        let reason = words.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given");
        let text = format!("the supervisor has an error at {place}: {reason}; please report this");
        front.lock().unwrap_or_else(PoisonError::into_inner).tell(&Message::Warning { text });
    }));
}

fn send<T: Serialize>(to: &mut UnixStream, what: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_hears_of_a_panic() {
        let (mut front, supervisor) = Channel::pair().unwrap();
        let usual = std::panic::take_hook();
        tell_of_panics(supervisor.sender().unwrap());
        let failed = std::thread::spawn(|| panic!("of {}", 3)).join();
        std::panic::set_hook(usual);
        assert!(failed.is_err());
        match front.receive::<Message>().unwrap() {
            Some(Message::Warning { text }) => {
                assert!(text.contains("message.rs:") && text.contains(": of 3;"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}
