//! TCP connections whose both ends are inside (000, 6.6). The kernel puts nothing back into their queues. So nothing
//! speculative ever gets into one:
//!
//! * What a speculative process sends is *held*, as output is, and sent when its process can not be taken back to
//!   before it. So the receiver depends on nobody's guess, and whoever waits for an answer waits until the guess is
//!   resolved.
//! * What it reads is *given again* in front of the connection after a rollback, as input from outside is (decision
//!   0020, [`crate::ahead::objects::input`]).
//!
//! What was set free and has found no room yet is *pending*: until it has gone, nobody else sends there. It keeps the
//! connection open.
//!
//! Barriers: `connect`, `shutdown`, ancillary data, urgent data, and reading where so much waits that its sender may be
//! waiting for room.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan, FIONREAD};
use crate::ahead::objects::input::terminal;
use crate::ahead::objects::input::{Manner, Source, SourceId};
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object, Written};
use crate::event_loop::Supervisor;
use agent_abi::{FdEntry, FdKind, OBJECTS};
use commit_clock::{Clock, DOMAINS_MAX};
use rustix::fs::OFlags;
use rustix::net::sockopt::{set_socket_linger, socket_domain, socket_linger, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use syscall_table::Op;
use tracee::{Result, Stopped};

/// Bytes for the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    ino: u64,
    socket: Arc<OwnedFd>,
    clock: Clock,
    pub bytes: Vec<u8>,
}

/// What is to be sent and has found no room yet.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Sends {
    pending: BTreeMap<u64, VecDeque<Sent>>,
    /// How many pieces are held for guesses, by socket.
    held: HashMap<u64, usize>,
    /// How long sockets wait when they are closed, as their programs want it; they have input that is given again, and
    /// are reset instead.
    lingers: HashMap<u64, Option<Duration>>,
}

impl Sends {
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn is_pending(&self, ino: u64) -> bool {
        self.pending.contains_key(&ino)
    }

    /// Whether anything is held for this socket, or has found no room yet.
    pub fn has_any_of(&self, ino: u64) -> bool {
        self.is_pending(ino) || self.held.contains_key(&ino)
    }

    fn is_held(&mut self, ino: u64) {
        *self.held.entry(ino).or_default() += 1;
    }

    /// A piece is held no more: it is sent, or dropped.
    pub fn is_held_no_more(&mut self, sent: &Sent) {
        if let Some(pieces) = self.held.get_mut(&sent.ino) {
            *pieces -= 1;
        }
        self.held.retain(|_, pieces| *pieces > 0);
    }

    fn push(&mut self, sent: Sent) {
        self.pending.entry(sent.ino).or_default().push_back(sent);
    }

    /// Send what there is room for; whether any connection is free again.
    fn flush(&mut self) -> bool {
        let before = self.pending.len();
        self.pending.retain(|_, queue| {
            while let Some(first) = queue.front_mut() {
                match rustix::net::send(&*first.socket, &first.bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(len) if len < first.bytes.len() => drop(first.bytes.drain(..len)),
                    Ok(_) => drop(queue.pop_front()),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
                    // Its reader is gone.
                    Err(_) => return false,
                }
            }
            false
        });
        self.pending.len() < before
    }
}

impl Supervisor {
    /// A call on a TCP socket; `None` if it is not connected to one inside.
    pub(in crate::ahead) fn plan_tcp(&mut self, call: &Call, op: Op, ino: u64, copy: &OwnedFd) -> Option<Plan> {
        // What is given again is there also when nothing is left of the other end.
        let is_inside = is_tcp(copy) && (self.ahead.input.is_in_front_of_socket(ino) || self.is_connected_inside(copy));
        if !is_inside {
            return None;
        }
        let args = &call.frame.args;
        let certain = || Plan::new(Class::Certain).modifying(Object::Socket(ino), Intent::Nothing).once();
        let takes = matches!(op, Op::Read { .. } | Op::Recv { .. } | Op::RecvMsg { .. } | Op::RecvMmsg { .. });
        if takes && self.ahead.is_speculative(call.pid) && self.makes_room(copy) {
            return Some(Plan::new(Class::Barrier));
        }
        Some(match op {
            Op::Read { .. } => plan_read(copy, 0),
            Op::Recv { .. } => plan_read(copy, args[3]),
            Op::RecvMsg { .. } => plan_read(copy, args[2]),
            Op::RecvMmsg { .. } => plan_read(copy, libc::MSG_TRUNC as u64),
            Op::Ioctl if args[1] & 0xffff_ffff == FIONREAD => match Source::of(copy.try_clone().ok()?) {
                Some(source) => Plan::new(Class::Tracked).observing(source.object()),
                None => Plan::new(Class::Barrier),
            },
            Op::Write { .. } | Op::Send { .. } | Op::SendMsg { .. } => {
                Plan::new(Class::Send { fd: args[0] as i32, ino }).once()
            }
            Op::Fcntl | Op::Ioctl => return None,
            _ if self.ahead.sends.is_pending(ino) => Plan::new(Class::Later),
            _ => certain(),
        })
    }

    /// Whether so much waits to be read that whoever sends may be waiting for room. (What it may learn besides, that it
    /// has been read, larger buffers would show as well.)
    fn makes_room(&self, copy: &OwnedFd) -> bool {
        let is_given_again = rustix::fs::fstat(copy)
            .is_ok_and(|stat| self.ahead.input.pushback_len((stat.st_dev, stat.st_ino)).is_some());
        !is_given_again && crate::sys::receive_memory(copy.as_fd()).is_ok_and(|(used, limit)| used >= limit / 4)
    }

    /// Whether a client would be refused, but for us: who listens there is held by nobody else any more who lives.
    pub(in crate::ahead) fn is_refused(&mut self, call: &Call) -> bool {
        // The family, and the port behind it, in a `struct sockaddr_in` and `sockaddr_in6`.
        let Ok(head) = tracee::read_value::<u32>(call.tid, call.frame.args[1]) else { return false };
        let port = u16::from_be((head >> 16) as u16);
        let listeners = self.tcp_listeners(port);
        listeners.into_iter().any(|ino| self.end_of(ino).is_ok() && !self.is_held_by_the_living(ino))
    }

    /// A write to a connection inside.
    pub(in crate::ahead) fn send_inside(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        fd: i32,
        ino: u64,
    ) -> Result<Decision> {
        if self.ahead.sends.is_pending(ino) {
            return Ok(self.wait_for_room(call, fd));
        }
        let mut held = None;
        if self.ahead.is_speculative(call.pid) {
            held = self.output_of(call.tid, fd, &call.frame).filter(|_| !self.ahead.holds_enough());
            if held.is_none() {
                return Ok(self.wait_at_barrier(call));
            }
        }
        let modifies = vec![(Object::Socket(ino), Intent::Nothing)];
        let decision = self.track(stopped, call, Plan::tracked_once(), modifies)?;
        if !matches!(decision, Decision::GoAndTell(_)) || !self.ahead.is_speculative(call.pid) {
            return Ok(decision);
        }
        let held = held.or_else(|| self.output_of(call.tid, fd, &call.frame));
        let slot = self.tracees.get(&call.tid).map(|tracee| tracee.process);
        let (Some((target, bytes)), Some(slot)) = (held, slot) else { return Ok(self.wait_at_barrier(call)) };
        let socket = self.ahead.with_one_descriptor(target).fd;
        let clock = self.world().processes[slot].clock.load(DOMAINS_MAX);
        let len = bytes.len() as i64;
        self.ahead.report.output_held += bytes.len() as u64;
        self.ahead.shown_bytes += bytes.len() as u64;
        self.ahead.sends.is_held(ino);
        self.ahead.core.output(process(call.pid), Written::Sent(Sent { ino, socket, clock, bytes }));
        Ok(Decision::Answer(len))
    }

    /// What was sent before has found no room: nor would this.
    fn wait_for_room(&mut self, call: &Call, fd: i32) -> Decision {
        let never_waits = self
            .copy_descriptor(call.tid, fd)
            .is_ok_and(|copy| rustix::fs::fcntl_getfl(copy).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)));
        match never_waits {
            true => Decision::Answer(-i64::from(libc::EAGAIN)),
            false => Decision::Wait,
        }
    }

    /// It can not be taken back any more. Before it can be received, the connection depends on what its sender depended
    /// on.
    pub(in crate::ahead) fn release_sent(&mut self, mut sent: Sent) {
        self.ahead.sends.is_held_no_more(&sent);
        sent.clock.merge(&self.ahead.written);
        let entry = FdEntry(self.classify_socket(0, &sent.socket));
        let world = self.world();
        if entry.kind() == FdKind::Inside {
            world.objects[entry.slot() % OBJECTS].merge(&sent.clock, DOMAINS_MAX);
        }
        world.messages.merge(&sent.clock, DOMAINS_MAX);
        self.ahead.sends.push(sent);
        self.flush_sends();
    }

    /// Whether anybody who waited can send again.
    pub(in crate::ahead) fn flush_sends(&mut self) -> bool {
        let is_free = !self.ahead.sends.is_empty() && self.ahead.sends.flush();
        self.ahead.changes += u64::from(is_free);
        is_free
    }

    /// A connection that is closed with something unread is reset; what is given again the kernel does not know of.
    pub(in crate::ahead) fn reset_if_closed(&mut self, id: SourceId) {
        let has_pushback = self.ahead.input.pushback_len(id).is_some();
        let before = self.ahead.sends.lingers.remove(&id.1);
        if id.0 == terminal::DEVICE || !has_pushback && before.is_none() {
            return;
        }
        let Ok(socket) = self.end_of(id.1) else { return };
        if has_pushback {
            let before = before.unwrap_or_else(|| socket_linger(&*socket).unwrap_or(None));
            self.ahead.sends.lingers.insert(id.1, before);
            let _ = set_socket_linger(&*socket, Some(Duration::ZERO));
        } else if let Some(before) = before {
            let _ = set_socket_linger(&*socket, before);
        }
    }
}

fn plan_read(copy: &OwnedFd, flags: u64) -> Plan {
    const HURRIED: i32 = libc::MSG_DONTWAIT;
    const HARMLESS: i32 = libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;
    let flags = flags as i32;
    let manner = Manner {
        is_hurried: flags & HURRIED != 0,
        peeks: flags & libc::MSG_PEEK != 0,
        wants_all: flags & libc::MSG_WAITALL != 0,
    };
    let is_plain = flags & !(HURRIED | HARMLESS | libc::MSG_PEEK | libc::MSG_WAITALL) == 0;
    match copy.try_clone().ok().and_then(Source::of).filter(|_| is_plain) {
        Some(source) => Plan::new(Class::Input { source: source.read_in(manner) }),
        // Urgent data, or bytes that are thrown away.
        None => Plan::new(Class::Barrier),
    }
}

/// A TCP socket, connected or not.
pub(in crate::ahead) fn is_tcp(socket: &OwnedFd) -> bool {
    matches!(socket_domain(socket), Ok(AddressFamily::INET | AddressFamily::INET6))
        && socket_type(socket) == Ok(SocketType::STREAM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{recv, socketpair, RecvFlags, SocketFlags};

    #[test]
    fn what_finds_no_room_waits_in_its_order() {
        let (socket, reader) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let socket = Arc::new(socket);
        let mut sends = Sends::default();
        let all: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
        for part in all.chunks(300_000) {
            sends.push(Sent { ino: 7, socket: Arc::clone(&socket), clock: Clock::NONE, bytes: part.to_vec() });
        }
        assert!(!sends.flush() && sends.is_pending(7));
        let mut got = Vec::new();
        let mut buffer = vec![0; 65536];
        while got.len() < all.len() {
            let (len, _) = recv(&reader, &mut buffer[..], RecvFlags::empty()).unwrap();
            got.extend_from_slice(&buffer[..len]);
            sends.flush();
        }
        assert!(got == all && sends.is_empty());
    }

    #[test]
    fn what_nobody_will_read_is_dropped() {
        let (socket, reader) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        drop(reader);
        let mut sends = Sends::default();
        sends.push(Sent { ino: 7, socket: Arc::new(socket), clock: Clock::NONE, bytes: vec![1] });
        assert!(sends.flush() && sends.is_empty());
    }
}
