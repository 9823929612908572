//! Whether a connection stays inside the world: decided once, for both of its ends.
//!
//! Of an end that is `Inside`, the agent takes dependencies over and holds nothing back; of one that is `Outside`, it
//! holds what is sent and takes nothing over. Two ends that disagree would lose dependencies. So the first end that is
//! asked for decides for the other, and where it cannot be known what the other end was told, the answer is `Doubtful`,
//! which goes together with both.
//!
//! **Invariant:** an end is `Inside` only if both ends were found in the supervisor's own network namespace and the
//! peer was made or held by a process of the world, or waited for `accept` at sockets that only the world holds; and no
//! such socket came from outside.

use super::diag::{Diag, Name, TcpEnd, TcpState, UnixEnd};
use agent_abi::hash_object;
use procfs::ProcessId;
use rustix::net::sockopt::{socket_cookie, socket_domain, socket_peercred, socket_protocol, socket_type};
use rustix::net::{getpeername, getsockname, ipproto, AddressFamily, SocketAddrAny, SocketType};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// What is known of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both ends are inside; the connection's clock is that of this object.
    Inside(u64),
    /// The other end is, or may be, outside; so is this one for whoever is there.
    Outside,
    /// Not connected yet, or the peer is gone: writes wait, and whatever arrives may depend on anything. Holds for this
    /// call only.
    Doubtful,
}

/// What the world knows of sockets by their inodes and cookies.
pub trait Inside {
    /// Whether the socket came from outside.
    fn is_marked_outside(&self, ino: u64) -> bool;
    /// Whether it is remembered that it was connected, listened to or accepted by a process of the world. Much is
    /// forgotten.
    fn was_made_inside(&self, ino: u64, cookie: u64) -> bool;
    /// Whether a process of the world has a descriptor of it. Takes long.
    fn is_held(&mut self, ino: u64) -> bool;
    /// Whether this is a process of the world.
    fn has_process(&mut self, pid: ProcessId) -> bool;

    /// Whether only the world can reach it.
    fn is_ours(&self, ino: u64, cookie: u64) -> bool {
        !self.is_marked_outside(ino) && self.was_made_inside(ino, cookie)
    }
}

/// What was decided of a connection, and what its other end was, as far as that was known.
#[derive(Clone, Copy, Debug)]
struct Record {
    verdict: Verdict,
    peer: Option<u64>,
}

/// What was decided of connections, by the cookies of their ends.
#[derive(Debug)]
pub struct Connections {
    diag: Diag,
    records: HashMap<u64, Record>,
    /// Whether only the world holds these sockets, which listen.
    listeners: HashMap<u64, bool>,
    /// At this many records those of sockets that are gone are dropped.
    records_max: usize,
}

impl Connections {
    const RECORDS_MIN: usize = 4096;
    /// The "device" of connections, for the hash of their clocks.
    const CONNECTION: u64 = u64::MAX - 1;

    pub fn new() -> io::Result<Self> {
        Ok(Self {
            diag: Diag::open()?,
            records: HashMap::new(),
            listeners: HashMap::new(),
            records_max: Self::RECORDS_MIN,
        })
    }

    /// What to do about this socket.
    pub fn judge(&mut self, socket: BorrowedFd<'_>, world: &mut impl Inside) -> io::Result<Verdict> {
        let is_connected_kind = matches!(socket_type(socket)?, SocketType::STREAM | SocketType::SEQPACKET);
        match socket_domain(socket)? {
            AddressFamily::UNIX => self.judge_unix(socket, is_connected_kind, world),
            AddressFamily::INET | AddressFamily::INET6 if is_connected_kind => self.judge_tcp(socket, world),
            // Datagrams go wherever the next one is addressed.
            _ => Ok(Verdict::Outside),
        }
    }

    /// The inode of the peer of a Unix socket; `None` if nobody has it open, not yet or no longer.
    pub fn unix_peer(&mut self, socket: BorrowedFd<'_>) -> Option<u64> {
        if socket_domain(socket) != Ok(AddressFamily::UNIX) {
            return None;
        }
        let own = self.diag.unix(rustix::fs::fstat(socket).ok()?.st_ino).ok()??;
        own.peer.filter(|&peer| peer != 0)
    }

    /// The inode of the Unix socket that listens there, if only the world holds it.
    pub fn unix_listener(&mut self, name: &Name, world: &mut impl Inside) -> Option<u64> {
        let listener = self.diag.unix_listener(name).ok()??;
        self.listens_inside(listener.ino, listener.cookie, world).then_some(listener.ino)
    }

    /// The inodes of those who listen on a TCP port.
    pub fn tcp_listeners(&mut self, port: u16) -> Vec<u64> {
        self.diag.tcp_listeners(port).unwrap_or_default().into_iter().map(|listener| listener.ino).collect()
    }

    /// The inode of the peer of a TCP socket; `None` if no descriptor refers to it, not yet or no longer.
    pub fn tcp_peer(&mut self, socket: BorrowedFd<'_>) -> Option<u64> {
        let (local, remote) = endpoints(socket)?;
        let peer = self.diag.tcp(remote, local).ok()??;
        (peer.ino != 0).then_some(peer.ino)
    }

    /// End all TCP connections between a port of this machine and some others.
    pub fn destroy_tcp(&mut self, port: u16, others: &BTreeSet<u16>) -> io::Result<()> {
        self.diag.destroy_tcp(port, others)
    }

    /// Whether only the world holds this socket, which listens.
    pub fn is_listener_inside(&mut self, socket: BorrowedFd<'_>, world: &mut impl Inside) -> io::Result<bool> {
        let ino = rustix::fs::fstat(socket)?.st_ino;
        Ok(self.listens_inside(ino, socket_cookie(socket)?, world))
    }

    /// Whether a Unix socket is in the supervisor's own network namespace.
    pub fn is_in_our_network(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let end = self.diag.unix(rustix::fs::fstat(socket)?.st_ino)?;
        Ok(end.map(|end| end.cookie) == Some(socket_cookie(socket)?))
    }

    fn judge_tcp(&mut self, socket: BorrowedFd<'_>, world: &mut impl Inside) -> io::Result<Verdict> {
        if socket_protocol(socket)? != Some(ipproto::TCP) {
            return Ok(Verdict::Outside);
        }
        let Some((local, remote)) = endpoints(socket) else { return Ok(Verdict::Doubtful) };
        if !stays_here(local, remote) {
            return Ok(Verdict::Outside);
        }
        let own = socket_cookie(socket)?;
        let peer = self.diag.tcp(remote, local)?;
        if let Some(record) = self.records.get(&own) {
            // The same socket can be disconnected and connected again. Whoever is gone reads nothing that is sent from
            // here on.
            if peer.is_none_or(|peer| Some(peer.cookie) == record.peer || peer.state == TcpState::TIME_WAIT) {
                return Ok(record.verdict);
            }
        }
        if self.diag.tcp(local, remote)?.map(|end| end.cookie) != Some(own) {
            // In another network namespace; so is its peer, which is told the same.
            return Ok(Verdict::Outside);
        }
        let Some(peer) = peer else { return Ok(Verdict::Doubtful) };
        match self.is_tcp_peer_inside(&peer, remote, world)? {
            Some(is_inside) => Ok(self.record(own, Some(peer.cookie), is_inside)),
            None => Ok(Verdict::Doubtful),
        }
    }

    /// `None` if it has been closed: nobody can tell by whom.
    fn is_tcp_peer_inside(
        &mut self,
        peer: &TcpEnd,
        address: SocketAddr,
        world: &mut impl Inside,
    ) -> io::Result<Option<bool>> {
        if peer.ino == 0 {
            let waits = peer.state.can_wait_for_accept();
            return if waits { self.is_listener_ours(address, world) } else { Ok(None) };
        }
        if world.is_ours(peer.ino, peer.cookie) {
            return Ok(Some(true));
        }
        let is_accepted_here = self.is_listener_ours(address, world)? == Some(true);
        Ok(Some(is_peer_ours_after_all(peer.ino, peer.cookie, is_accepted_here, world)))
    }

    /// Whether only the world can accept connections to this address; `None` if nobody can.
    fn is_listener_ours(&mut self, address: SocketAddr, world: &mut impl Inside) -> io::Result<Option<bool>> {
        let mut listeners = self.diag.tcp_listeners(address.port())?;
        listeners.retain(|listener| listener.ip.is_unspecified() || listener.ip == address.ip());
        if listeners.is_empty() {
            return Ok(None);
        }
        Ok(Some(listeners.iter().all(|listener| self.listens_inside(listener.ino, listener.cookie, world))))
    }

    /// Listeners live long, and it may be forgotten that they were made inside: looked for once.
    fn listens_inside(&mut self, ino: u64, cookie: u64, world: &mut impl Inside) -> bool {
        if world.is_marked_outside(ino) {
            return false;
        }
        *self.listeners.entry(cookie).or_insert_with(|| world.was_made_inside(ino, cookie) || world.is_held(ino))
    }

    fn judge_unix(
        &mut self,
        socket: BorrowedFd<'_>,
        is_connected_kind: bool,
        world: &mut impl Inside,
    ) -> io::Result<Verdict> {
        let peer = getpeername(socket).ok().flatten();
        // Nobody can connect to a name that is not there: such ends were born together.
        let is_pair = peer.as_ref().is_some_and(is_unnamed) && is_unnamed(&getsockname(socket)?);
        if !is_connected_kind && !is_pair {
            return Ok(Verdict::Outside);
        }
        if peer.is_none() {
            return Ok(Verdict::Doubtful);
        }
        let stat = rustix::fs::fstat(socket)?;
        let cookie = socket_cookie(socket)?;
        let own = self.diag.unix(stat.st_ino)?.filter(|end| end.cookie == cookie);
        match own {
            Some(own) if is_pair => Ok(judge_pair(stat.st_dev, &own, world)),
            // The agents remember pairs by themselves, in every network namespace.
            None if is_pair => Ok(Verdict::Doubtful),
            Some(own) => self.judge_unix_connection(socket, &own, world),
            None => Ok(Verdict::Outside),
        }
    }

    /// One end has connected to a name, the other was accepted.
    fn judge_unix_connection(
        &mut self,
        socket: BorrowedFd<'_>,
        own: &UnixEnd,
        world: &mut impl Inside,
    ) -> io::Result<Verdict> {
        if let Some(record) = self.records.get(&own.cookie) {
            return Ok(record.verdict);
        }
        match own.peer {
            Some(0) if !own.is_shut => {
                // Not accepted yet.
                let Some(listener) = self.diag.unix_listener_of(own.ino)? else { return Ok(Verdict::Doubtful) };
                let is_inside = self.listens_inside(listener.ino, listener.cookie, world);
                Ok(self.record(own.cookie, None, is_inside))
            }
            Some(ino) if ino != 0 => {
                let Some(peer) = self.diag.unix(ino)? else { return Ok(Verdict::Doubtful) };
                if let Some(&record) = self.records.get(&peer.cookie) {
                    return Ok(self.adopt(own.cookie, record));
                }
                let is_inside = is_unix_peer_inside(socket, &peer, world)?;
                Ok(self.record(own.cookie, Some(peer.cookie), is_inside))
            }
            _ => Ok(Verdict::Doubtful),
        }
    }

    /// What was decided for the other end holds for this one.
    fn adopt(&mut self, own: u64, record: Record) -> Verdict {
        self.records.insert(own, record);
        record.verdict
    }

    /// Decides for both ends.
    fn record(&mut self, own: u64, peer: Option<u64>, is_inside: bool) -> Verdict {
        let verdict = if is_inside { Verdict::Inside(hash_object(Self::CONNECTION, own)) } else { Verdict::Outside };
        self.make_room();
        if let Some(peer) = peer {
            self.records.insert(peer, Record { verdict, peer: Some(own) });
        }
        self.records.insert(own, Record { verdict, peer });
        verdict
    }

    fn make_room(&mut self) {
        if self.records.len() + self.listeners.len() < self.records_max {
            return;
        }
        if let Ok(alive) = self.diag.cookies() {
            self.records.retain(|cookie, _| alive.contains(cookie));
            self.listeners.retain(|cookie, _| alive.contains(cookie));
        }
        self.records_max = ((self.records.len() + self.listeners.len()) * 2).max(Self::RECORDS_MIN);
    }
}

fn is_unix_peer_inside(socket: BorrowedFd<'_>, peer: &UnixEnd, world: &mut impl Inside) -> io::Result<bool> {
    if world.is_ours(peer.ino, peer.cookie) {
        return Ok(true);
    }
    // Whoever connected, or whoever listened: its children may hold the peer by now.
    let is_probable = world.has_process(ProcessId::from_raw(socket_peercred(socket)?.pid.as_raw_pid()));
    Ok(is_peer_ours_after_all(peer.ino, peer.cookie, is_probable, world))
}

/// A peer that is not remembered: `accept` makes the socket a moment before the agent can tell of it, and what was told
/// may be forgotten.
fn is_peer_ours_after_all(ino: u64, cookie: u64, is_probable: bool, world: &mut impl Inside) -> bool {
    // The process may have told of it since, and then closed what made it probable.
    (is_probable && !world.is_marked_outside(ino) && world.is_held(ino)) || world.is_ours(ino, cookie)
}

/// A pair that was not marked was made inside, and so were both of its ends; what has left since, `nothing_is_inside`
/// told the agents.
fn judge_pair(dev: u64, own: &UnixEnd, world: &impl Inside) -> Verdict {
    match own.peer {
        // The hash that the agent has computed when it made the pair.
        Some(peer) if peer != 0 && !world.is_marked_outside(peer) => {
            Verdict::Inside(hash_object(dev, own.ino.min(peer)))
        }
        _ => Verdict::Doubtful,
    }
}

/// Nothing but the family.
fn is_unnamed(name: &SocketAddrAny) -> bool {
    name.addr_len() as usize <= size_of::<libc::sa_family_t>()
}

/// Both addresses of a connected socket; those of IPv4 in IPv6 clothes as IPv4.
fn endpoints(socket: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let canonical = |name: SocketAddrAny| {
        let address = SocketAddr::try_from(name).ok()?;
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    };
    Some((canonical(getsockname(socket).ok()?)?, canonical(getpeername(socket).ok()??)?))
}

/// Packets between these addresses cannot leave the machine, nor its network namespace. The answer is the same for both
/// ends.
fn stays_here(local: SocketAddr, remote: SocketAddr) -> bool {
    (local.ip().is_loopback() && remote.ip().is_loopback()) || local.ip() == remote.ip()
}

#[cfg(test)]
mod tests;
