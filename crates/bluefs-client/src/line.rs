//! One connection: how it begins.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
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
    let (mut receiver, mut sender) = open(address, fingerprint).map_err(io)?;
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

fn open(address: &Address, fingerprint: Option<[u8; 32]>) -> io::Result<(Receiver, Sender)> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for place in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, CONNECT_MAX) {
            Ok(socket) => {
                socket.set_write_timeout(Some(SILENCE_MAX))?;
                socket.set_read_timeout(Some(CONNECT_MAX))?;
                return match fingerprint {
                    Some(fingerprint) => bluefs_net::connect(socket, fingerprint),
                    None => bluefs_net::plain(socket),
                };
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
