//! One connection: how it begins.

use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bluefs_net::{Receiver, Sender};
use bluefs_wire::{Refusal, Reply, Request};

use crate::address::Address;

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long the other end may be silent. After half of that it is asked whether it is there.
pub const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The network.
    #[error("cannot connect to {address}: {source}")]
    Io {
        /// Where to.
        address: Address,
        /// Why not.
        source: io::Error,
    },
    /// It would be neither encrypted nor known who is there.
    #[error("cannot connect to {address} without an invitation: {place} is not a loopback address (127.0.0.1, ::1)")]
    Elsewhere {
        /// Where to.
        address: Address,
        /// What its host means.
        place: IpAddr,
    },
    /// The server.
    #[error("{address} refuses: {text}")]
    Refused {
        /// Which.
        address: Address,
        /// Why.
        why: Refusal,
        /// In its words.
        text: String,
    },
}

/// An end that has answered nothing for so long is gone. A server that works at one thing for long, as at a checkpoint
/// on a slow disk, answers afterwards.
const GONE_AFTER: Duration = Duration::from_secs(30);

/// Who is silent on a connection, and since when. Each end takes the other one for gone that says nothing for long.
#[derive(Debug)]
pub struct Pulse {
    heard: Instant,
    spoken: Instant,
    sent: u64,
    waited: u64,
}

/// What is to be done about that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// The other end is to be asked whether it is there, and hears that we are.
    Ping,
    /// The other end is gone.
    End,
}

impl Pulse {
    /// A connection begins. `sent` is as in [`Pulse::look`].
    pub fn begin(now: Instant, sent: u64) -> Pulse {
        Pulse { heard: now, spoken: now, sent, waited: 0 }
    }

    /// Something has arrived, of a message or all of it.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// To be called behind each message and each time-out: who is told all the time what others change may have nothing
    /// to say. `sent`: bytes that sockets have taken so far. `waited`: those of this connection for which there was no
    /// room at first. Contents have no replies: while these become more the other end is there. That a socket has taken
    /// something at once says nothing of the other end.
    pub fn look(&mut self, now: Instant, sent: u64, waited: u64) -> Due {
        if std::mem::replace(&mut self.sent, sent) != sent {
            self.spoken = now;
        }
        if std::mem::replace(&mut self.waited, waited) != waited {
            self.heard = now;
        }
        if now.duration_since(self.heard) >= GONE_AFTER {
            return Due::End;
        }
        if now.duration_since(self.heard.min(self.spoken)) < SILENCE_MAX / 2 {
            return Due::Nothing;
        }
        self.spoken = now;
        Due::Ping
    }
}

/// A connection whose session is welcome.
pub struct Line {
    pub receiver: Receiver,
    pub sender: Sender,
    pub welcome: Reply,
}

/// Connects, and says hello.
pub fn connect(address: &Address, fingerprint: Option<[u8; 32]>, hello: &Request) -> Result<Line, ConnectError> {
    let io = |source| ConnectError::Io { address: address.clone(), source };
    let (mut receiver, mut sender) = open(address, fingerprint)?;
    receiver.set_timeout(Some(CONNECT_MAX)).map_err(io)?;
    sender.send(hello).map_err(io)?;
    match receiver.receive::<Reply>().map_err(io)? {
        Some(welcome @ Reply::Welcome { .. }) => {
            receiver.set_timeout(Some(SILENCE_MAX / 2)).map_err(io)?;
            Ok(Line { receiver, sender, welcome })
        }
        Some(Reply::Refused { why, text }) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            Err(ConnectError::Refused { address: address.clone(), why, text })
        }
        Some(_) => Err(io(io::Error::new(io::ErrorKind::InvalidData, "the server does not begin with a welcome"))),
        None => Err(io(io::ErrorKind::UnexpectedEof.into())),
    }
}

fn open(address: &Address, fingerprint: Option<[u8; 32]>) -> Result<(Receiver, Sender), ConnectError> {
    let io = |source| ConnectError::Io { address: address.clone(), source };
    let mut last = io(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    // A name may mean another place each time.
    for at in (address.host.as_str(), address.port).to_socket_addrs().map_err(io)? {
        let place = at.ip().to_canonical();
        if fingerprint.is_none() && !place.is_loopback() {
            last = ConnectError::Elsewhere { address: address.clone(), place };
            continue;
        }
        match TcpStream::connect_timeout(&at, CONNECT_MAX) {
            Ok(socket) => return begin(socket, fingerprint).map_err(io),
            Err(error) => last = io(error),
        }
    }
    Err(last)
}

fn begin(socket: TcpStream, fingerprint: Option<[u8; 32]>) -> io::Result<(Receiver, Sender)> {
    socket.set_write_timeout(Some(SILENCE_MAX))?;
    socket.set_read_timeout(Some(CONNECT_MAX))?;
    match fingerprint {
        Some(fingerprint) => bluefs_net::connect(socket, fingerprint),
        None => bluefs_net::plain(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hears_much_and_says_nothing_says_that_it_is_there() {
        let begun = Instant::now();
        let at = |secs| begun + Duration::from_secs(secs);
        let (mut pulse, mut sent, mut pings) = (Pulse::begin(begun, 70), 70, Vec::new());
        for secs in 1..=30 {
            pulse.heard(at(secs));
            if pulse.look(at(secs), sent, 0) == Due::Ping {
                pings.push(secs);
                sent += 17;
            }
        }
        // Of each it is heard a look later that it was sent.
        assert_eq!(pings, [8, 17, 26]);
    }

    #[test]
    fn what_is_asked_over_a_dead_line_does_not_keep_it_alive() {
        let begun = Instant::now();
        let mut pulse = Pulse::begin(begun, 0);
        let due: Vec<Due> = (1..=3).map(|turn| pulse.look(begun + GONE_AFTER / 2 * turn, u64::from(turn), 0)).collect();
        assert_eq!(due, [Due::Ping, Due::End, Due::End]);
    }

    #[test]
    fn contents_that_go_on_keep_it_alive() {
        let begun = Instant::now();
        let mut pulse = Pulse::begin(begun, 0);
        for turn in 1..9 {
            let (at, bytes) = (begun + SILENCE_MAX / 2 * turn, u64::from(turn));
            assert_eq!(pulse.look(at, bytes, bytes), Due::Nothing);
        }
    }
}
