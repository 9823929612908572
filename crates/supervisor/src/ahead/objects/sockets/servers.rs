//! TCP servers that a guess starts, and their clients inside
//! ([0328](../../../../../../docs/decisions/0328-servers-of-a-guess.md)).
//!
//! From `listen` on the kernel accepts connections by itself, of anybody. So a socket that is to listen on a guess gets
//! a filter first, which lets nothing in but what comes from the ports of known clients. A client outside sends again
//! what was lost, as over any network: it is connected when the guess was right and what came before `listen` is
//! durable, and refused when the guess was wrong.
//!
//! A client inside gets the port that it connects from before it connects, and that port is let in. Both must depend on
//! the same guesses, and no checkpoint that is kept may have a socket of theirs: who depends on more since then has
//! such a checkpoint. So whatever takes back one of them takes back the other one, to before the connection was. Then
//! nothing need be kept of what is sent over it, nor that it was closed, as with pairs of sockets (decision 0175). Once
//! somebody has such a checkpoint, the connection is like all others ([`tcp`](super::tcp)).
//!
//! A port that is bound on a guess is taken for those outside, too, as a lock is.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::objects::sockets::pair::plan_without_undo;
use crate::ahead::objects::sockets::refused::own_address;
use crate::ahead::objects::sockets::sys;
use crate::ahead::objects::sockets::tcp::is_tcp;
use crate::ahead::rollback::undo::{Intent, Undo};
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use commit_clock::Clock;
use procfs::ThreadId;
use rustix::net::sockopt::{socket_protocol, socket_reuseaddr, socket_reuseport};
use rustix::net::{bind, getpeername, getsockname, ipproto, socket, AddressFamily, SocketAddrAny, SocketType};
use rustix::thread::CapabilitySet;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use syscall_table::nr;
use syscall_table::Op;
use tracee::{Result, Stopped};

/// What a guess does to a socket that is to become a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerStep {
    /// It takes a port.
    Bind { port: u16 },
    /// Clients can connect from here on. The clock of what was changed before that.
    Listen { before: Clock },
}

/// A socket that listens on a guess.
#[derive(Debug, Default)]
struct Server {
    port: u16,
    /// Ports of the clients that have connected, or may have, in their order.
    clients: Vec<u16>,
    /// The ends of connections to it that are known, by inode: one that was reset says nothing of its peer.
    ends: HashSet<u64>,
}

/// A server that may be seen from outside as soon as what came before it is durable.
#[derive(Debug)]
struct Opening {
    port: u16,
    clock: Clock,
    /// Whether the clock has what was held before the server.
    is_complete: bool,
}

/// What guesses that are open have made of sockets, by their inodes.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Servers {
    bound: HashMap<u64, u16>,
    listening: HashMap<u64, Server>,
    opening: Vec<Opening>,
    /// In the rollback that is under way.
    undone: Vec<Server>,
}

impl Servers {
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.listening.is_empty() && self.opening.is_empty()
    }

    /// Whether some servers are about to be seen from outside.
    pub fn any_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// Whether a socket, with this inode, is an end of a connection to one of these servers. It is remembered.
    fn has_end(&mut self, ino: u64, socket: &OwnedFd) -> bool {
        if self.listening.values().any(|server| server.ends.contains(&ino)) {
            return true;
        }
        let ports = port_of(getsockname(socket).ok()).zip(port_of(getpeername(socket).ok().flatten()));
        let server = ports.and_then(|(one, other)| self.between(one, other));
        server.is_some_and(|server| server.ends.insert(ino))
    }

    /// The server between whose port and a client's a connection is.
    fn between(&mut self, one: u16, other: u16) -> Option<&mut Server> {
        let is_it = |server: &Server, port: u16, client: u16| server.port == port && server.clients.contains(&client);
        self.listening.values_mut().find(|server| is_it(server, one, other) || is_it(server, other, one))
    }
}

impl Supervisor {
    /// `bind` and `listen` of a TCP socket by a speculative process; `None`: it is not known that it can be undone.
    pub(in crate::ahead) fn plan_server(&mut self, call: &Call, ino: u64, socket: &OwnedFd) -> Option<Plan> {
        let is_possible = is_plain_tcp(socket)
            && is_in_our_network(socket)
            && self.is_fresh(call, ino)
            && !self.are_descriptors_passed()
            && socket_reuseport(socket) == Ok(false);
        if !is_possible {
            return None;
        }
        match call.frame.nr {
            nr::bind => self.plan_bind(call, ino, socket),
            nr::listen if self.ahead.servers.listening.contains_key(&ino) => Some(Plan::tracked_once()),
            nr::listen if !sys::has_filter(socket.as_fd()) => {
                Some(Plan::new(Class::Listen { ino, socket: socket.try_clone().ok()? }).once())
            }
            _ => None,
        }
    }

    /// A port that somebody inside has bound on a guess tells of that guess.
    fn plan_bind(&mut self, call: &Call, ino: u64, socket: &OwnedFd) -> Option<Plan> {
        let port = bound_port(call)?;
        // A rollback ends what is left of its connections. Without the right to that their ports stay taken.
        if socket_reuseaddr(socket) != Ok(true) && !may_destroy() {
            return None;
        }
        let step = Intent::Server { ino, step: ServerStep::Bind { port } };
        let others = self.ahead.servers.bound.iter().filter(|(_, &bound)| bound == port).map(|(&other, _)| other);
        let plan = others.fold(Plan::tracked_once(), |plan, other| plan.observing(Object::Socket(other)));
        let plan = plan.modifying(Object::Socket(ino), step);
        let gains = self.ahead.core.gains(process(call.pid), &plan.observes, &[Object::Socket(ino)]);
        gains.is_empty().then_some(plan)
    }

    /// Whether this is a `bind` to a port that depends on guesses which are not the caller's.
    pub(in crate::ahead) fn binds_what_is_guessed(&mut self, call: &Call) -> bool {
        let Some(port) = bound_port(call).filter(|_| !self.ahead.servers.bound.is_empty()) else { return false };
        let core = &self.ahead.core;
        let own = core.dependencies_of_process(process(call.pid));
        let is_new = |ino: u64| !core.dependencies_of_object(&Object::Socket(ino)).is_subset(own);
        self.ahead.servers.bound.iter().any(|(&ino, &bound)| bound == port && is_new(ino))
    }

    /// Whether this is a `bind` to a port of a socket that its programs have closed, or left behind by ending, and that
    /// is there for us only.
    pub(in crate::ahead) fn binds_what_is_given_up(&mut self, call: &Call) -> bool {
        let Some(port) = bound_port(call) else { return false };
        let has_port = |end: &OwnedFd| is_tcp(end) && port_of(getsockname(end).ok()) == Some(port);
        let mut left = self.tcp_listeners(port);
        // Who has ended may be known no more, and have it for a moment yet.
        left.retain(|&ino| self.ahead.ends.get(ino).is_some() || self.was_made_inside(ino));
        let kept = self.ahead.ends.held().into_iter();
        left.extend(kept.filter(|&ino| self.ahead.ends.get(ino).is_some_and(|end| has_port(&end))));
        left.into_iter().any(|ino| !self.is_held_by_the_living(ino))
    }

    /// A socket begins to listen on a guess.
    pub(in crate::ahead) fn listen_unseen(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        ino: u64,
        socket: &OwnedFd,
    ) -> Result<Decision> {
        let step = ServerStep::Listen { before: self.clock_of(call.tid) };
        let modifies = vec![(Object::Socket(ino), Intent::Server { ino, step })];
        let decision = self.track(stopped, call, Plan::tracked_once(), modifies)?;
        if matches!(decision, Decision::GoAndTell(_)) && self.ahead.is_speculative(call.pid) {
            if sys::let_only_ports_in(socket.as_fd(), &[]).is_err() {
                return Ok(self.wait_at_barrier(call));
            }
            self.ahead.servers.listening.entry(ino).or_default();
        }
        Ok(decision)
    }

    /// `connect` of a TCP socket to a server of a guess; `None`: there is none.
    pub(in crate::ahead) fn plan_client(&mut self, call: &Call, ino: u64, socket: &OwnedFd) -> Option<Plan> {
        if self.ahead.servers.is_empty() || !is_in_our_network(socket) {
            return None;
        }
        let port = own_address(call)?.port();
        let listeners = self.tcp_listeners(port);
        let is_opening = self.ahead.servers.opening.iter().any(|server| server.port == port);
        if !is_opening && !listeners.iter().any(|ino| self.ahead.servers.listening.contains_key(ino)) {
            return None;
        }
        if is_opening || !self.ahead.is_speculative(call.pid) {
            return Some(Plan::new(Class::Later));
        }
        let &[server] = &listeners[..] else { return Some(Plan::new(Class::Barrier).once()) };
        let who = process(call.pid);
        let depend_on_same = |supervisor: &Self| {
            let core = &supervisor.ahead.core;
            core.dependencies_of_process(who) == core.dependencies_of_object(&Object::Socket(server))
        };
        let is_possible = is_plain_tcp(socket)
            && self.is_young_socket(server)
            && self.is_held_by_the_living(server)
            && self.is_fresh(call, ino)
            && depend_on_same(self)
            && !sys::has_filter(socket.as_fd());
        let class = match is_possible {
            true => Class::Connect { server, port, client: socket.try_clone().ok()? },
            false => Class::Barrier,
        };
        Some(Plan::new(class).once())
    }

    /// A client inside connects to a server of the guess that it depends on itself.
    pub(in crate::ahead) fn connect_unseen(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        (server, port): (u64, u16),
        client: &OwnedFd,
    ) -> Result<Decision> {
        let Ok(found) = rustix::fs::fstat(client) else { return Ok(self.wait_at_barrier(call)) };
        let changed = [server, found.st_ino].map(|ino| (Object::Socket(ino), Intent::Nothing));
        let decision = self.track(stopped, call, Plan::tracked_once(), changed.into())?;
        if matches!(decision, Decision::GoAndTell(_)) && self.let_in(call, (server, port), client).is_err() {
            return Ok(self.wait_at_barrier(call));
        }
        Ok(decision)
    }

    fn let_in(&mut self, call: &Call, (server, port): (u64, u16), client: &OwnedFd) -> io::Result<()> {
        let unknown = || io::Error::from(io::ErrorKind::NotFound);
        let reached = own_address(call).ok_or_else(unknown)?;
        let from = match port_of(Some(getsockname(client)?)) {
            Some(0) | None => {
                bind(client, &SocketAddr::new(sender_to(reached.ip()), 0))?;
                port_of(Some(getsockname(client)?)).filter(|&port| port != 0).ok_or_else(unknown)?
            }
            Some(from) => from,
        };
        let living = self.inside();
        let (pid, fd) = self.holder_among(&living, server).ok_or_else(unknown)?;
        let listener = self.descriptors.copy(pid, fd)?;
        let known = self.ahead.servers.listening.get_mut(&server).ok_or_else(unknown)?;
        known.port = port;
        known.clients.push(from);
        known.ends.insert(rustix::fs::fstat(client)?.st_ino);
        sys::let_only_ports_in(listener.as_fd(), &known.clients)
    }

    /// `accept` at a server of a guess; `None`: it is like any other one.
    pub(in crate::ahead) fn plan_accept_unseen(&self, call: &Call, ino: u64) -> Option<Plan> {
        let object = Object::Socket(ino);
        let is_it = self.ahead.is_speculative(call.pid)
            && self.ahead.servers.listening.contains_key(&ino)
            && self.is_young_socket(ino)
            && self.ahead.core.gains(process(call.pid), &[], std::slice::from_ref(&object)).is_empty();
        is_it.then(|| Plan::new(Class::Tracked).modifying(object, Intent::Nothing))
    }

    /// A call on an end of a connection to such a server; `None`: it is like any other one.
    pub(in crate::ahead) fn plan_served(&mut self, call: &Call, op: Op, own: u64, socket: &OwnedFd) -> Option<Plan> {
        const ODD: i32 = libc::MSG_OOB | libc::MSG_ERRQUEUE;
        if !self.ahead.is_speculative(call.pid) || !self.is_served(socket) {
            return None;
        }
        let args = &call.frame.args;
        let flags = match op {
            Op::Read { .. } | Op::Write { .. } | Op::Shutdown | Op::Ioctl | Op::Fcntl => 0,
            Op::Recv { .. } | Op::Send { .. } | Op::RecvMmsg { .. } | Op::SendMmsg { .. } => args[3],
            Op::RecvMsg { .. } | Op::SendMsg { .. } => args[2],
            _ => return None,
        } as i32;
        let takes = matches!(op, Op::Read { .. } | Op::Recv { .. } | Op::RecvMsg { .. });
        let peer = self.tcp_peer(socket);
        let changed: Vec<Object> = [Some(own), peer].into_iter().flatten().map(Object::Socket).collect();
        if flags & ODD != 0 || !self.ahead.core.gains(process(call.pid), &[], &changed).is_empty() {
            return None;
        }
        Some(plan_without_undo(changed, takes && flags & libc::MSG_WAITALL == 0))
    }

    /// Whether a socket is a server of a guess, or an end of a connection to one, and nobody who is put back has either
    /// end open.
    pub(in crate::ahead) fn goes_with_its_server(&mut self, socket: &OwnedFd) -> bool {
        let Ok(found) = rustix::fs::fstat(socket) else { return false };
        let is_server = self.ahead.servers.listening.contains_key(&found.st_ino);
        is_server && self.is_young_socket(found.st_ino) || self.is_served(socket)
    }

    /// Whether a socket is an end of a connection to a server of a guess, and no checkpoint has either end.
    fn is_served(&mut self, socket: &OwnedFd) -> bool {
        if self.ahead.servers.listening.is_empty() || !is_tcp(socket) || !is_in_our_network(socket) {
            return false;
        }
        let Ok(own) = rustix::fs::fstat(socket).map(|found| found.st_ino) else { return false };
        self.ahead.servers.has_end(own, socket)
            && self.is_young_socket(own)
            && self.tcp_peer(socket).is_none_or(|peer| self.is_young_socket(peer))
    }

    /// Whether nobody who is put back has a socket open, and nothing waits in front of it that was put back or is held.
    fn is_young_socket(&self, ino: u64) -> bool {
        let ahead = &self.ahead;
        !self.are_descriptors_passed()
            && ahead.ends.get(ino).is_none()
            && !ahead.checkpoints.has_socket(ino)
            && !ahead.listeners.waits_at(ino)
            && !ahead.listeners.has(ino)
            && !ahead.input.is_in_front_of_socket(ino)
            && !ahead.sends.has_any_of(ino)
    }

    /// Whether a call sets or reads what the filter of such a socket is.
    pub(in crate::ahead) fn concerns_our_filter(&self, call: &Call, socket: &OwnedFd) -> bool {
        const SO_DETACH_REUSEPORT_BPF: i32 = 68;
        let [_, level, option, ..] = call.frame.args.map(|argument| argument as i32);
        let is_filters = matches!(
            option,
            libc::SO_ATTACH_FILTER
                | libc::SO_DETACH_FILTER
                | libc::SO_LOCK_FILTER
                | libc::SO_ATTACH_BPF
                | libc::SO_ATTACH_REUSEPORT_CBPF
                | libc::SO_ATTACH_REUSEPORT_EBPF
                | libc::SO_REUSEPORT
                | SO_DETACH_REUSEPORT_BPF
        );
        level == libc::SOL_SOCKET && is_filters && !self.ahead.servers.is_empty() && is_tcp(socket)
    }

    /// A guess was right: what it did to a socket is done for good.
    pub(in crate::ahead) fn server_is_certain(&mut self, ino: u64, step: ServerStep) {
        match step {
            ServerStep::Bind { .. } => drop(self.ahead.servers.bound.remove(&ino)),
            ServerStep::Listen { before } => {
                let Some(server) = self.ahead.servers.listening.remove(&ino) else { return };
                let living = self.inside();
                let holder = self.holder_among(&living, ino);
                let listener = holder.and_then(|(pid, fd)| self.descriptors.copy(pid, fd).ok());
                let port = listener.and_then(|socket| port_of(getsockname(socket).ok())).unwrap_or(server.port);
                self.ahead.servers.opening.push(Opening { port, clock: before, is_complete: false });
            }
        }
        self.ahead.changes += 1;
    }

    /// A guess was wrong.
    pub(in crate::ahead) fn server_never_was(&mut self, ino: u64, step: ServerStep) {
        let servers = &mut self.ahead.servers;
        match step {
            ServerStep::Bind { .. } => drop(servers.bound.remove(&ino)),
            ServerStep::Listen { .. } => servers.undone.extend(servers.listening.remove(&ino)),
        }
    }

    /// A rollback is complete: nothing is left of the connections that have never been, nor are their ports taken.
    pub(in crate::ahead) fn forget_connections_never_made(&mut self) {
        for Server { port, clients, .. } in std::mem::take(&mut self.ahead.servers.undone) {
            let clients: BTreeSet<u16> = clients.into_iter().collect();
            // Without the right to it only who may share the port has bound it.
            let done = if clients.is_empty() { Ok(()) } else { self.destroy_tcp(port, &clients) };
            self.ahead.trace(|| format!("  connections at port {port} are forgotten: {done:?}"));
        }
    }

    /// Servers of right guesses are shown as soon as what came before them is durable. Whether one is now.
    pub(in crate::ahead) fn show_servers(&mut self) -> bool {
        if !self.ahead.servers.any_opening() || !self.ahead.overflow.is_empty() {
            return false;
        }
        let before = self.ahead.servers.opening.len();
        for mut opening in std::mem::take(&mut self.ahead.servers.opening) {
            if !opening.is_complete {
                opening.clock.merge(&self.ahead.written);
                opening.is_complete = true;
            }
            let transactions = &self.world().transactions;
            if transactions.is_resolved(&opening.clock) {
                self.remove_filters(opening.port);
                self.ahead.changes += 1;
                continue;
            }
            if transactions.request(&opening.clock) {
                external_sync::engine::ring(self.world());
            }
            self.ahead.servers.opening.push(opening);
        }
        self.ahead.servers.opening.len() < before
    }

    /// Of all sockets inside with this port, but for a server of a younger guess and its connections.
    fn remove_filters(&mut self, port: u16) {
        for pid in self.inside() {
            for fd in self.descriptors_of(pid).unwrap_or_default() {
                let Ok(copy) = self.descriptors.copy(pid, fd) else { continue };
                let Ok(ino) = rustix::fs::fstat(&copy).map(|found| found.st_ino) else { continue };
                let servers = &mut self.ahead.servers;
                if is_tcp(&copy)
                    && port_of(getsockname(&copy).ok()) == Some(port)
                    && !servers.listening.contains_key(&ino)
                    && !servers.has_end(ino, &copy)
                {
                    let _ = sys::remove_filter(copy.as_fd());
                }
            }
        }
    }

    fn clock_of(&self, tid: ThreadId) -> Clock {
        let slot = self.tracees.get(&tid).map(|tracee| tracee.process);
        slot.map_or(Clock::NONE, |slot| self.world().processes[slot].clock.load(commit_clock::DOMAINS_MAX))
    }

    /// What undoes a step; from here on it counts.
    pub(in crate::ahead) fn remember_server(&mut self, ino: u64, step: ServerStep) -> Undo {
        if let ServerStep::Bind { port } = step {
            self.ahead.servers.bound.insert(ino, port);
        }
        Undo::Server { ino, step }
    }
}

/// The port of a `bind` to an address of the internet, if it names one.
fn bound_port(call: &Call) -> Option<u16> {
    let head: [u8; 4] = tracee::read_bytes(call.tid, call.frame.args[1], 4).ok()?.try_into().ok()?;
    let family = i32::from(u16::from_ne_bytes([head[0], head[1]]));
    let port = u16::from_be_bytes([head[2], head[3]]);
    (call.frame.nr == nr::bind && matches!(family, libc::AF_INET | libc::AF_INET6) && port != 0).then_some(port)
}

fn port_of(name: Option<SocketAddrAny>) -> Option<u16> {
    Some(SocketAddr::try_from(name?).ok()?.port())
}

/// The address that a connection to an address of this machine comes from.
fn sender_to(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// Neither MPTCP, nor anything else that looks like TCP.
fn is_plain_tcp(socket: &OwnedFd) -> bool {
    is_tcp(socket) && socket_protocol(socket) == Ok(Some(ipproto::TCP))
}

/// Whether we find all that a socket can reach on this machine.
fn is_in_our_network(socket: &OwnedFd) -> bool {
    static OURS: OnceLock<Option<u64>> = OnceLock::new();
    let ours = || sys::network_of(self::socket(AddressFamily::UNIX, SocketType::STREAM, None).ok()?.as_fd()).ok();
    OURS.get_or_init(ours).is_some_and(|ours| sys::network_of(socket.as_fd()).is_ok_and(|network| network == ours))
}

/// Whether the kernel lets us end connections.
fn may_destroy() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    let may = || rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
    *MAY.get_or_init(may)
}
