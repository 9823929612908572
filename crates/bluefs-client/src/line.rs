//! One connection: how it begins.

use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

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
