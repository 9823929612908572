//! Calls on Unix sockets whose both ends are inside (000, 6.6): what they observe and modify.
//!
//! The object is the receiving end, by inode: what waits there, and whether somebody may still send. Sending modifies
//! the peer's object, receiving the caller's own; both may let somebody go on who waits.
//!
//! An end that a speculative process closes, or leaves behind when it ends, is kept (but for [`pair`]): its peer cannot
//! be told, because what the kernel told could not be taken back. So whoever calls on a socket whose peer nobody holds
//! any more but us waits until that is true in the kernel as well; only the end of a stream that was read to its end is
//! told at once, by us.

pub(in crate::ahead) mod accept;
pub(in crate::ahead) mod netlink;
pub(in crate::ahead) mod pair;
pub(in crate::ahead) mod queue;
pub(in crate::ahead) mod refused;
pub(in crate::ahead) mod servers;
pub(in crate::ahead) mod shutdown;
pub(in crate::ahead) mod tcp;

#[allow(unsafe_code)]
mod sys;

use crate::ahead::calls::plan::{Class, Plan, FIONBIO};
use crate::ahead::objects::sockets::queue::{Queue, Queued};
use crate::ahead::objects::sockets::shutdown::Closed;
use crate::ahead::objects::sockets::tcp::is_tcp;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::option;
use procfs::{ProcessId, ThreadId};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use speculation::Dependent;
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use syscall_table::nr;
use syscall_table::Op;

/// A socket inside whose peer is inside.
#[derive(Debug)]
struct Connection {
    own: u64,
    peer: u64,
    copy: OwnedFd,
}

/// One direction of a connection, by inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction {
    pub receiver: u64,
    pub sender: u64,
}

const FIONREAD: u64 = 0x541b;

impl Supervisor {
    /// What is to be said of a call on a socket. Of those that lead outside, or nowhere yet, nothing can be taken back.
    pub(in crate::ahead) fn plan_socket(&mut self, call: &Call, op: Op, ino: u64, copy: OwnedFd) -> Plan {
        let Some((own, peer)) = self.peer_inside(&copy).map(|peer| (ino, peer)) else {
            return self.plan_unconnected(call, op, ino, copy);
        };
        if let Some(plan) = self.plan_young_pair(call, op, own, Some(peer)) {
            return plan;
        }
        let connection = Connection { own, peer, copy };
        // What has gone wrong is told to one call, and nothing tells it again.
        if self.ahead.is_speculative(call.pid) && may_have_error(&connection.copy) {
            return Plan::new(Class::Barrier).once();
        }
        if self.is_hung_up(connection.peer) {
            return self.plan_hung_up(call, op, &connection);
        }
        if let Some(plan) = self.plan_closed(op, call, &connection) {
            return plan;
        }
        let args = &call.frame.args;
        match op {
            Op::Read { .. } => connection.receive(0),
            Op::Recv { .. } => connection.receive(args[3]),
            Op::RecvMsg { .. } => connection.receive(args[2]),
            Op::Write { .. } => connection.send(self.is_empty_packet(call, &connection), 0),
            Op::Send { .. } if args[4] == 0 => connection.send(self.is_empty_packet(call, &connection), args[3]),
            Op::SendMsg { .. } => connection.send(is_special_message(call), args[2]),
            Op::Ioctl if args[1] & 0xffff_ffff == FIONREAD => {
                Plan::new(Class::Tracked).observing(Object::Socket(connection.own))
            }
            // Whoever has it as well may send, and would be told that there is no room instead of waiting for it.
            Op::Ioctl if args[1] & 0xffff_ffff == FIONBIO => change_flags(connection.own, connection.copy)
                .modifying(Object::Socket(connection.peer), Intent::Nothing),
            Op::Fcntl => change_flags(connection.own, connection.copy)
                .modifying(Object::Socket(connection.peer), Intent::Nothing),
            Op::Shutdown => match Closed::of(args[1]) {
                Some(closed) => {
                    let (ends, socket) = ((connection.own, connection.peer), connection.copy);
                    Plan::new(Class::Shutdown { ends, socket, closed }).once()
                }
                None => Plan::new(Class::Free),
            },
            // Several messages in one call, addresses, new names.
            _ => connection.certain(),
        }
    }

    /// Nothing is known of the peer. Of a Unix socket it may be known before the call ends: a client may wait for an
    /// answer before it is accepted.
    fn plan_unconnected(&mut self, call: &Call, op: Op, ino: u64, copy: OwnedFd) -> Plan {
        if let Some(plan) = self.plan_young_pair(call, op, ino, None) {
            return plan;
        }
        if let Some(plan) = self.plan_served(call, op, ino, &copy) {
            return plan;
        }
        if let Some(plan) = self.plan_tcp(call, op, ino, &copy) {
            return plan;
        }
        if let Some(plan) = self.plan_netlink(call, op, ino, &copy) {
            return plan;
        }
        let plan = match socket_domain(&copy) {
            Ok(AddressFamily::UNIX) => Plan::new(Class::Certain).modifying(Object::SOME_SOCKET, Intent::Nothing),
            _ => Plan::new(Class::Barrier),
        };
        match op {
            Op::Read { .. } | Op::Recv { .. } | Op::RecvMsg { .. } => plan,
            Op::SocketName { .. } if call.frame.nr == nr::connect && is_tcp(&copy) => match self.is_refused(call) {
                true => Plan::new(Class::Later),
                false => {
                    let known = self.plan_client(call, ino, &copy).or_else(|| self.plan_refused(call, ino, &copy));
                    known.unwrap_or_else(|| plan.once())
                }
            },
            Op::SocketName { .. } if call.frame.nr == nr::connect => {
                if let Some(plan) = self.plan_connect_to_nothing(call, &copy) {
                    return plan;
                }
                self.plan_connect(call, ino, copy).unwrap_or_else(|| plan.once())
            }
            Op::SocketName { .. } if self.binds_what_is_given_up(call) => Plan::new(Class::Later),
            // Any port will do: nobody can tell it from one that somebody outside was given.
            Op::SocketName { .. } if takes_any_port(call) && self.is_fresh(call, ino) => Plan::new(Class::Free).once(),
            Op::SocketName { .. } if self.ahead.is_speculative(call.pid) => {
                self.plan_server(call, ino, &copy).unwrap_or_else(|| plan.once())
            }
            Op::SocketName { .. } if self.binds_what_is_guessed(call) => Plan::new(Class::Later),
            Op::Ioctl if call.frame.args[1] & 0xffff_ffff != FIONBIO => plan.once(),
            Op::Ioctl | Op::Fcntl if self.is_fresh(call, ino) => Plan::new(Class::Free),
            // What others do there does not look at the object, but for `accept`.
            Op::Ioctl | Op::Fcntl if !self.listens_inside(&copy) && self.has_other_holder(call.pid, ino) => {
                Plan::new(Class::Barrier).once()
            }
            Op::Ioctl | Op::Fcntl => change_flags(ino, copy),
            _ => plan.once(),
        }
    }

    fn connection(&mut self, own: u64, copy: OwnedFd) -> Option<Connection> {
        let peer = self.peer_inside(&copy)?;
        Some(Connection { own, peer, copy })
    }

    /// An empty packet cannot be told from none. To a stream nothing is sent.
    fn is_empty_packet(&self, call: &Call, connection: &Connection) -> bool {
        let is_stream = socket_type(&connection.copy) == Ok(SocketType::STREAM);
        // What is in several pieces is counted by nobody here.
        !is_stream && (!matches!(call.frame.nr, nr::write | nr::sendto) || call.frame.args[2] == 0)
    }

    /// Nobody but us, or those who have ended for their program, holds this end any more, and its peer has not heard of
    /// it.
    pub(in crate::ahead) fn is_hung_up(&mut self, ino: u64) -> bool {
        (self.ahead.ends.get(ino).is_some() || self.ahead.children.any_held_exits())
            && !self.ahead.listeners.has(ino)
            && !self.is_held_by_the_living(ino)
    }

    pub(in crate::ahead) fn is_held_by_the_living(&mut self, ino: u64) -> bool {
        let living = self.living();
        self.holder_among(&living, ino).is_some()
    }

    /// Processes that have not ended for their program.
    fn living(&mut self) -> HashSet<ProcessId> {
        let mut inside = self.inside();
        inside.retain(|pid| !self.ahead.children.held_exits.contains_key(pid));
        inside
    }

    /// Processes that may have descriptors of the program, also those whose agent is not there yet.
    pub(in crate::ahead) fn inside(&mut self) -> HashSet<ProcessId> {
        let tids: Vec<ThreadId> = self.tracees.keys().copied().collect();
        tids.into_iter().map(|tid| self.pid_of(tid).unwrap_or(tid.leads())).collect()
    }

    /// Sockets, by inode, of which the kernel does not know yet what has become of the connection: who polls there
    /// might miss its end.
    pub(in crate::ahead) fn deceived_ends(&mut self) -> HashSet<u64> {
        let mut deceived = self.ahead.shutdowns.ends();
        for ino in self.ahead.ends.held() {
            // What ends a TCP connection is held with everything else that is sent there.
            let is_unix = |end: &Arc<OwnedFd>| socket_domain(&**end) == Ok(AddressFamily::UNIX);
            let Some(end) = self.ahead.ends.get(ino).filter(is_unix) else { continue };
            if !self.ahead.listeners.has(ino) && !self.is_held_by_the_living(ino) {
                deceived.extend(self.unix_peer(&end));
            }
        }
        deceived
    }

    /// Whether the socket behind a descriptor was made since the last checkpoint: what is set on any other would
    /// outlive a rollback.
    pub(in crate::ahead) fn is_fresh_socket(&mut self, call: &Call, fd: i32) -> bool {
        let copy = self.copy_descriptor(call.tid, fd).ok();
        let stat = copy.and_then(|copy| rustix::fs::fstat(copy).ok());
        stat.is_some_and(|stat| self.is_fresh(call, stat.st_ino))
    }

    /// `getsockopt`: what has gone wrong at a socket (`SO_ERROR`) is told once, and a rollback cannot put it back.
    pub(in crate::ahead) fn plan_socket_state(&mut self, call: &Call) -> Plan {
        let [fd, level, option, ..] = call.frame.args.map(|argument| argument as i32);
        let takes = (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR)
            && self.ahead.is_speculative(call.pid)
            && self.copy_descriptor(call.tid, fd).is_ok_and(|copy| may_have_error(&copy))
            && !self.is_fresh_socket(call, fd);
        Plan::new(if takes { Class::Barrier } else { Class::Free }).once()
    }

    /// What a shutdown that is held changes; nobody but us knows of it.
    fn plan_closed(&self, op: Op, call: &Call, connection: &Connection) -> Option<Plan> {
        let closed = self.ahead.shutdowns.closed_at(connection.own, connection.peer);
        let is_empty = || rustix::io::ioctl_fionread(&connection.copy) == Ok(0);
        match op {
            Op::Read { .. } | Op::Recv { .. } | Op::RecvMsg { .. } | Op::RecvMmsg { .. }
                if closed.receiving && is_empty() =>
            {
                Some(match is_plain_read(call, op) {
                    true => Plan::new(Class::EndOfFile).observing(connection.own()),
                    false => Plan::new(Class::Later),
                })
            }
            Op::Write { .. } | Op::Send { .. } | Op::SendMsg { .. } | Op::SendMmsg { .. } if closed.sending => {
                Some(Plan::new(Class::Later))
            }
            _ => None,
        }
    }

    fn plan_hung_up(&mut self, call: &Call, op: Op, connection: &Connection) -> Plan {
        if !is_plain_read(call, op) {
            return Plan::new(Class::Later);
        }
        // What the peer has not read makes its end a reset, which a stream's reader sees when it has read what is left,
        // one of packets at once. Datagrams have no end: who has read them all waits, as natively.
        let is_reset = !self.is_read_to_its_end(connection.peer);
        let left = rustix::io::ioctl_fionread(&connection.copy).unwrap_or(0);
        let kind = socket_type(&connection.copy);
        let receives = match kind {
            Ok(SocketType::STREAM | SocketType::DGRAM) => true,
            Ok(SocketType::SEQPACKET) => !is_reset,
            _ => false,
        };
        if receives && left > 0 {
            let flags = if matches!(op, Op::Recv { .. }) { call.frame.args[3] } else { 0 };
            // The next one may have to be told of the end, which the kernel does not know.
            return connection.receive(flags).once();
        }
        // One that is under way in a message is not closed at all.
        let passed = self.world().options.load(Ordering::Relaxed) & option::DESCRIPTORS_PASSED != 0;
        let has_ended = receives && kind != Ok(SocketType::DGRAM) && !is_reset && is_empty(&connection.copy);
        match has_ended && !passed {
            true => self.plan_end_of_file(connection),
            false => Plan::new(Class::Later),
        }
    }

    /// Who is told of an end depends on whoever has made it. A connection that was not accepted yet when its client
    /// ended on a guess was no object then.
    fn plan_end_of_file(&mut self, connection: &Connection) -> Plan {
        let own = Object::Socket(connection.own);
        let held_exits: Vec<ProcessId> = self.ahead.children.held_exits.keys().copied().collect();
        let has_it = |&pid: &ProcessId| self.holder_among(&HashSet::from([pid]), connection.peer).is_some();
        let ended: Vec<ProcessId> = held_exits.into_iter().filter(has_it).collect();
        if ended.is_empty() && self.ahead.core.dependencies_of_object(&own).is_empty() {
            return Plan::new(Class::Later);
        }
        let mut plan = Plan::new(Class::EndOfFile).observing(own);
        plan.observes.extend(ended.into_iter().map(|pid| Dependent::Process(process(pid))));
        plan
    }

    fn is_read_to_its_end(&mut self, ino: u64) -> bool {
        self.end_of(ino).is_ok_and(|end| is_empty(&end))
    }

    /// What a speculative process shows by closing its last descriptor of a socket: both directions end.
    pub(in crate::ahead) fn hang_up(&mut self, pid: ProcessId, ino: u64, copy: OwnedFd) -> Vec<(Object, Intent)> {
        let Some(connection) = self.connection(ino, copy) else { return Vec::new() };
        if self.has_other_holder(pid, ino) {
            return Vec::new();
        }
        [connection.peer, connection.own].map(|ino| (Object::Socket(ino), Intent::Nothing)).into()
    }

    /// Whether somebody else inside, who has not ended, has a socket as well: nobody is told of its close here.
    pub(in crate::ahead) fn has_other_holder(&mut self, pid: ProcessId, ino: u64) -> bool {
        let mut others = self.living();
        others.remove(&pid);
        self.holder_among(&others, ino).is_some()
    }

    /// The queue of a direction, as it is.
    pub(in crate::ahead) fn remember_queue(&mut self, direction: Direction) -> io::Result<Queued> {
        if self.ahead.odd_queues.contains(&direction.receiver) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let queue = Queue::new(self.end_of(direction.receiver)?, self.end_of(direction.sender)?)?;
        let queued = queue.remember(&mut |fd| self.keep(fd));
        if queued.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            // An empty packet that was looked at once is passed over when it is looked at again.
            self.ahead.odd_queues.insert(direction.receiver);
        }
        queued
    }

    /// An end of a connection, whoever inside has it.
    pub(in crate::ahead) fn end_of(&mut self, ino: u64) -> io::Result<Arc<OwnedFd>> {
        if let Some(end) = self.ahead.ends.get(ino) {
            return Ok(end);
        }
        let all = self.inside();
        let (pid, fd) = self.holder_among(&all, ino).ok_or(io::ErrorKind::Unsupported)?;
        // It may be ending.
        let end = self.descriptors.copy(pid, fd).map_err(|_| io::ErrorKind::Unsupported)?;
        Ok(self.ahead.ends.hold(ino, end))
    }
}

impl Connection {
    fn own(&self) -> Object {
        Object::Socket(self.own)
    }

    fn peer(&self) -> Object {
        Object::Socket(self.peer)
    }

    fn receive(&self, flags: u64) -> Plan {
        let flags = flags as i32;
        if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            return self.certain();
        }
        if flags & libc::MSG_PEEK != 0 {
            return Plan::new(Class::Tracked).observing(self.own());
        }
        let taken = Intent::Queue(Direction { receiver: self.own, sender: self.peer });
        let plan = Plan::new(Class::Tracked).modifying(self.own(), taken);
        // Interrupted, it would return what it has by then.
        if flags & libc::MSG_WAITALL != 0 {
            return plan.once();
        }
        plan
    }

    fn send(&self, is_special: bool, flags: u64) -> Plan {
        if is_special || flags as i32 & libc::MSG_OOB != 0 {
            return self.certain();
        }
        let given = Intent::Queue(Direction { receiver: self.peer, sender: self.own });
        Plan::new(Class::Tracked).modifying(self.peer(), given).once()
    }

    /// What cannot be undone is done only while neither direction can be taken back.
    fn certain(&self) -> Plan {
        Plan::new(Class::Certain).modifying(self.own(), Intent::Nothing).modifying(self.peer(), Intent::Nothing).once()
    }
}

/// Whether nothing waits to be received there. An empty packet has no bytes, but is something; where the end has come,
/// packets are not looked for.
fn is_empty(end: &OwnedFd) -> bool {
    let is_stream = socket_type(end) == Ok(SocketType::STREAM);
    let mut ready = [PollFd::new(end, PollFlags::IN)];
    let mut is_ready = || poll(&mut ready, Some(&Timespec::default())) != Ok(0);
    rustix::io::ioctl_fionread(end) == Ok(0) && (is_stream || !is_ready())
}

/// Whether something may have gone wrong of which nobody has been told.
fn may_have_error(socket: &OwnedFd) -> bool {
    let mut ready = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut ready, Some(&Timespec::default())).map_or(true, |_| ready[0].revents().contains(PollFlags::ERR))
}

/// All that such a call tells is what it returns.
fn is_plain_read(call: &Call, op: Op) -> bool {
    matches!(call.frame.nr, nr::read | nr::readv) || matches!(op, Op::Recv { .. }) && call.frame.args[4] == 0
}

/// Whether it is a `bind` to an address of the internet that names no port.
fn takes_any_port(call: &Call) -> bool {
    const FAMILIES: [u16; 2] = [libc::AF_INET as u16, libc::AF_INET6 as u16];
    let head = tracee::read_bytes(call.tid, call.frame.args[1], 4);
    call.frame.nr == nr::bind
        && head.is_ok_and(|head| FAMILIES.contains(&u16::from_ne_bytes([head[0], head[1]])) && head[2..] == [0, 0])
}

fn change_flags(ino: u64, copy: OwnedFd) -> Plan {
    Plan::new(Class::Tracked).modifying(Object::Socket(ino), Intent::Flags(copy)).once()
}

/// With an address or something else than descriptors; or empty, as far as can be seen.
fn is_special_message(call: &Call) -> bool {
    let header: io::Result<[u64; 7]> = tracee::read_value(call.tid, call.frame.args[1]);
    let Ok([name, _, vector, count, control, control_len, _]) = header else { return true };
    let first: io::Result<[u64; 2]> = tracee::read_value(call.tid, vector);
    let is_empty = count == 0 || first.is_ok_and(|[_, len]| len == 0);
    name != 0 || is_empty || control != 0 && !has_only_descriptors(call.tid, control, control_len as usize)
}

/// Whether ancillary data is nothing but descriptors.
fn has_only_descriptors(tid: ThreadId, at: u64, len: usize) -> bool {
    /// More than a message can have.
    const LEN_MAX: usize = 4096;
    const HEADER_LEN: usize = 16;
    if len > LEN_MAX {
        return false;
    }
    let Ok(control) = tracee::read_bytes(tid, at, len) else { return false };
    let mut rest = &control[..];
    while rest.len() >= HEADER_LEN {
        let word = |at: usize| u64::from_ne_bytes(rest[at..at + 8].try_into().unwrap_or_default());
        let (len, kind) = (word(0) as usize, word(8));
        let rights = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;
        if kind != rights || !(HEADER_LEN..=rest.len()).contains(&len) {
            return false;
        }
        rest = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    true
}
