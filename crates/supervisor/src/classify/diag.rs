//! What the kernel tells of sockets: sock_diag(7).
//!
//! Only sockets of the supervisor's own network namespace are found. A socket's cookie is its identity: the kernel
//! never gives it twice, as it does with inodes and ports, and a TCP connection has its cookie before `accept` gives it
//! an inode.

use rustix::net::{netlink, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Longest datagram of an answer, bytes: a Unix listener's list of pending clients is part of one.
const ANSWER_LEN_MAX: usize = 256 << 10;

const HEADER_LEN: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;

const ALL_STATES: u32 = !0;
const NO_COOKIE: [u8; 8] = [0xff; 8];

const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_VFS: u32 = 2;
const UDIAG_SHOW_PEER: u32 = 4;
const UDIAG_SHOW_ICONS: u32 = 8;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_ICONS: u16 = 3;
const UNIX_DIAG_SHUTDOWN: u16 = 6;

/// States of a TCP socket, as in the kernel's `tcp_states.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState(u8);

impl TcpState {
    const ESTABLISHED: Self = Self(1);
    const SYN_RECEIVED: Self = Self(3);
    /// Nothing is left of it but its ports.
    pub const TIME_WAIT: Self = Self(6);
    const CLOSE_WAIT: Self = Self(8);
    const LISTEN: Self = Self(10);

    const fn bit(self) -> u32 {
        1 << self.0
    }

    /// Without an inode, a socket in one of these states waits for `accept`; in all others it has been closed.
    pub fn can_wait_for_accept(self) -> bool {
        matches!(self, Self::ESTABLISHED | Self::SYN_RECEIVED | Self::CLOSE_WAIT)
    }
}

/// One end of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEnd {
    /// How far the connection is.
    pub state: TcpState,
    /// 0: no descriptor refers to it, not yet or no longer.
    pub ino: u64,
    /// Its identity.
    pub cookie: u64,
}

/// A TCP socket that others can connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpListener {
    /// Where it listens; unspecified: everywhere.
    pub ip: IpAddr,
    /// Its inode.
    pub ino: u64,
    /// Its identity.
    pub cookie: u64,
}

/// Where a Unix socket listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A file, by device and inode.
    File {
        /// `st_dev`.
        dev: u64,
        /// `st_ino`.
        ino: u64,
    },
    /// A name in the network namespace; its first byte is 0.
    Abstract(Vec<u8>),
}

impl Name {
    /// Whether this is what the kernel says of a socket: its name, and the file that has it.
    fn is(&self, end: &UnixEnd) -> bool {
        match self {
            Self::File { dev, ino } => {
                // The kernel's own form of a device's number, and what fits of the inode's.
                let dev = libc::major(*dev) << 20 | libc::minor(*dev);
                end.file == Some((*ino as u32, dev))
            }
            Self::Abstract(name) => end.name == *name,
        }
    }
}

/// A Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixEnd {
    /// Its inode.
    pub ino: u64,
    /// Its identity.
    pub cookie: u64,
    /// Its peer's inode. `Some(0)`: no descriptor refers to the peer, not yet or no longer.
    pub peer: Option<u64>,
    /// Nothing can be sent and nothing be received any more.
    pub is_shut: bool,
    /// Of a listener: inodes of the clients that wait for `accept`.
    pub pending: Vec<u64>,
    /// As it was bound, if that was asked for.
    name: Vec<u8>,
    /// Inode and device of the file that has its name, if that was asked for.
    file: Option<(u32, u32)>,
}

/// A connection to sock_diag.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    sequence: u32,
    answer: Vec<u8>,
}

impl Diag {
    pub fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self { socket, sequence: 0, answer: vec![0; ANSWER_LEN_MAX] })
    }

    /// The socket with these addresses, if there is one.
    pub fn tcp(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<TcpEnd>> {
        let mut end = None;
        let request = tcp_request(family(local.ip()), ALL_STATES, local, remote);
        self.ask_for_one(&request, |answer| end = tcp_end(answer))?;
        // Where there is no such connection, the kernel falls back to who listens.
        Ok(end.filter(|end: &TcpEnd| end.state != TcpState::LISTEN))
    }

    /// Who listens on a TCP port.
    pub fn tcp_listeners(&mut self, port: u16) -> io::Result<Vec<TcpListener>> {
        let mut listeners = Vec::new();
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let states = TcpState::LISTEN.bit();
            let request = tcp_request(family(any), states, SocketAddr::new(any, port), SocketAddr::new(any, 0));
            self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |answer| listeners.extend(tcp_listener(answer)))?;
        }
        Ok(listeners)
    }

    /// End all TCP connections between a port of this machine's own addresses and some others, also those of which
    /// nothing is left but that their ports are not used again yet (`TIME_WAIT`).
    pub fn destroy_tcp(&mut self, port: u16, others: &BTreeSet<u16>) -> io::Result<()> {
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let (here, anywhere) = (SocketAddr::new(any, port), SocketAddr::new(any, 0));
            for (local, remote) in [(here, anywhere), (anywhere, here)] {
                let mut requests = Vec::new();
                let request = tcp_request(family(any), !TcpState::LISTEN.bit(), local, remote);
                self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |answer| {
                    requests.extend(destruction(answer, port, others));
                })?;
                for request in requests {
                    match self.ask(SOCK_DESTROY, NLM_F_ACK, &request, |_| {}) {
                        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                        done => done?,
                    }
                }
            }
        }
        Ok(())
    }

    /// The Unix socket with this inode, if there is one.
    pub fn unix(&mut self, ino: u64) -> io::Result<Option<UnixEnd>> {
        let mut end = None;
        let Ok(ino) = u32::try_from(ino) else { return Ok(None) };
        let request = unix_request(ALL_STATES, ino, UDIAG_SHOW_PEER);
        self.ask_for_one(&request, |answer| end = unix_end(answer))?;
        Ok(end)
    }

    /// The Unix socket at which the client with this inode waits for `accept`.
    pub fn unix_listener_of(&mut self, client: u64) -> io::Result<Option<UnixEnd>> {
        let mut listener = None;
        let request = unix_request(TcpState::LISTEN.bit(), 0, UDIAG_SHOW_ICONS);
        self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |answer| {
            listener = listener.take().or(unix_end(answer).filter(|end| end.pending.contains(&client)));
        })?;
        Ok(listener)
    }

    /// The Unix socket that listens there.
    pub fn unix_listener(&mut self, name: &Name) -> io::Result<Option<UnixEnd>> {
        let mut listener = None;
        let request = unix_request(TcpState::LISTEN.bit(), 0, UDIAG_SHOW_NAME | UDIAG_SHOW_VFS);
        self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |answer| {
            listener = listener.take().or(unix_end(answer).filter(|end| name.is(end)));
        })?;
        Ok(listener)
    }

    /// The cookies of all TCP and Unix sockets.
    pub fn cookies(&mut self) -> io::Result<HashSet<u64>> {
        let mut cookies = HashSet::new();
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let nowhere = SocketAddr::new(any, 0);
            let request = tcp_request(family(any), !TcpState::TIME_WAIT.bit(), nowhere, nowhere);
            self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |answer| {
                cookies.extend(tcp_end(answer).map(|end| end.cookie))
            })?;
        }
        let request = unix_request(ALL_STATES, 0, 0);
        self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |answer| {
            cookies.extend(unix_end(answer).map(|end| end.cookie))
        })?;
        Ok(cookies)
    }

    /// As `ask`; that there is no such socket is not an error.
    fn ask_for_one(&mut self, request: &[u8], each: impl FnMut(&[u8])) -> io::Result<()> {
        match self.ask(SOCK_DIAG_BY_FAMILY, 0, request, each) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// The kernel answers while it takes the request, so that there is nothing to wait for.
    fn ask(&mut self, kind: u16, flags: u16, request: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = message(kind, flags, self.sequence, request);
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        loop {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let (_, len) = rustix::net::recv(&self.socket, self.answer.as_mut_slice(), flags)?;
            let answer =
                self.answer.get(..len).ok_or_else(|| io::Error::other("an answer of sock_diag was cut off"))?;
            if is_complete(answer, self.sequence, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Calls `each` with what every message of a datagram carries; whether the answer ends here.
fn is_complete(mut datagram: &[u8], sequence: u32, each: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while let Some(len) = u32_at(datagram, 0).map(|len| len as usize).filter(|&len| len >= HEADER_LEN) {
        let Some(message) = datagram.get(..len) else { break };
        let payload = &message[HEADER_LEN..];
        // An earlier answer that was not read to its end is passed over.
        if u32_at(message, 8) == Some(sequence) {
            match u16_at(message, 4) {
                Some(NLMSG_DONE) => return Ok(true),
                Some(NLMSG_ERROR) => {
                    return error_of(payload).map_or(Ok(true), |errno| Err(io::Error::from_raw_os_error(errno)))
                }
                Some(SOCK_DIAG_BY_FAMILY) => each(payload),
                _ => {}
            }
            const NLM_F_MULTI: u16 = 2;
            if u16_at(message, 6).is_some_and(|flags| flags & NLM_F_MULTI == 0) {
                return Ok(true);
            }
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// 0 is an acknowledgement.
fn error_of(payload: &[u8]) -> Option<i32> {
    u32_at(payload, 0).map(|errno| (errno as i32).wrapping_neg()).filter(|&errno| errno != 0)
}

fn message(kind: u16, flags: u16, sequence: u32, request: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_LEN + request.len());
    message.extend(((HEADER_LEN + request.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(request);
    message
}

fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// `struct inet_diag_req_v2`.
fn tcp_request(family: u8, states: u32, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut request = vec![family, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend(states.to_ne_bytes());
    request.extend(local.port().to_be_bytes());
    request.extend(remote.port().to_be_bytes());
    request.extend(address_words(local.ip()));
    request.extend(address_words(remote.ip()));
    request.extend(0u32.to_ne_bytes());
    request.extend(NO_COOKIE);
    request
}

fn address_words(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut words = [0; 16];
            words[..4].copy_from_slice(&ip.octets());
            words
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// What ends the TCP connection that an answer tells of, if it is one between these ports.
fn destruction(answer: &[u8], port: u16, others: &BTreeSet<u16>) -> Option<Vec<u8>> {
    /// Of a `struct inet_diag_msg`: where its `struct inet_diag_sockid` is, and how long.
    const ID_AT: usize = 4;
    const ID_LEN: usize = 48;
    let id = answer.get(ID_AT..ID_AT + ID_LEN)?;
    let port_at = |at: usize| Some(u16::from_be_bytes(bytes_at(id, at)?));
    let (local, remote) = (port_at(0)?, port_at(2)?);
    let is_one = local == port && others.contains(&remote) || remote == port && others.contains(&local);
    let request = [&[*answer.first()?, libc::IPPROTO_TCP as u8, 0, 0][..], &ALL_STATES.to_ne_bytes(), id].concat();
    is_one.then_some(request)
}

/// Of a `struct inet_diag_msg`.
fn tcp_end(answer: &[u8]) -> Option<TcpEnd> {
    Some(TcpEnd {
        state: TcpState(*answer.get(1)?),
        ino: u32_at(answer, 68)?.into(),
        cookie: u64::from_ne_bytes(bytes_at(answer, 44)?),
    })
}

fn tcp_listener(answer: &[u8]) -> Option<TcpListener> {
    let ip = match i32::from(*answer.first()?) {
        libc::AF_INET => IpAddr::from(bytes_at::<4>(answer, 8)?),
        _ => IpAddr::from(bytes_at::<16>(answer, 8)?).to_canonical(),
    };
    let TcpEnd { ino, cookie, .. } = tcp_end(answer)?;
    Some(TcpListener { ip, ino, cookie })
}

/// `struct unix_diag_req`.
fn unix_request(states: u32, ino: u32, show: u32) -> Vec<u8> {
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [states, ino, show] {
        request.extend(word.to_ne_bytes());
    }
    request.extend(NO_COOKIE);
    request
}

/// Of a `struct unix_diag_msg` and its attributes.
fn unix_end(answer: &[u8]) -> Option<UnixEnd> {
    const LEN: usize = 16;
    let ino = u32_at(answer, 4)?.into();
    let cookie = u64::from_ne_bytes(bytes_at(answer, 8)?);
    let mut end = UnixEnd { ino, cookie, ..UnixEnd::default() };
    let mut rest = answer.get(LEN..)?;
    while let (Some(len), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let Some(value) = rest.get(4..usize::from(len)) else { break };
        match kind {
            UNIX_DIAG_NAME => end.name = value.to_vec(),
            UNIX_DIAG_VFS => end.file = u32_at(value, 0).zip(u32_at(value, 4)),
            UNIX_DIAG_PEER => end.peer = u32_at(value, 0).map(u64::from),
            UNIX_DIAG_ICONS => {
                end.pending = value.chunks_exact(4).filter_map(|w| u32_at(w, 0)).map(u64::from).collect()
            }
            UNIX_DIAG_SHUTDOWN => end.is_shut = value.first().is_some_and(|&shutdown| shutdown & 3 == 3),
            _ => {}
        }
        rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    Some(end)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}
