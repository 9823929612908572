//! TCP connections whose both ends are inside (000, 6.6). The kernel puts nothing back into their queues. So nothing speculative ever gets into one:
//!
//! * What a speculative process sends is *held*, as output is, and sent when its process can not be taken back to before it. So the receiver depends
//!   on nobody's guess, and whoever waits for an answer waits until the guess is resolved.
//! * What it reads is *given again* in front of the connection after a rollback, as input from outside is (decision 0020, [`super::input`]).
//!
//! What was set free and has found no room yet is *pending*: until it has gone, nobody else sends there. It keeps the connection open.
//!
//! Barriers: `connect`, `shutdown`, messages, urgent data, reads that wait for all or look without taking.

use super::ask::Decision;
use super::input::Source;
use super::plan::{Class, Plan};
use super::undo::Intent;
use super::{process, Call, Object, Written};
use crate::event_loop::Supervisor;
use agent_abi::{FdEntry, FdKind, OBJECTS};
use commit_clock::{Clock, DOMAINS_MAX};
use rustix::fs::OFlags;
use rustix::net::sockopt::{set_socket_linger, socket_domain, socket_linger, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use syscall_table::Op;
use tracee::{Result, Stopped};

const FIONREAD: u64 = 0x541b;

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
pub(super) struct Sends {
    pending: BTreeMap<u64, VecDeque<Sent>>,
    /// How long sockets wait when they are closed, as their programs want it; they have input that is given again, and are reset instead.
    lingers: HashMap<u64, Option<Duration>>,
}

impl Sends {
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn is_pending(&self, ino: u64) -> bool {
        self.pending.contains_key(&ino)
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
    pub(super) fn plan_tcp(&mut self, call: &Call, op: Op, ino: u64, copy: &OwnedFd) -> Option<Plan> {
        const PLAIN: u64 = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64;
        if !is_tcp(copy) || !self.is_connected_inside(copy) {
            return None;
        }
        let args = &call.frame.args;
        let certain = || Plan::new(Class::Certain).modifying(Object::Socket(ino), Intent::Nothing).once();
        Some(match op {
            Op::Read { .. } => self.plan_tcp_read(copy, false),
            Op::Recv { .. } if args[3] & !PLAIN == 0 && args[4] == 0 => {
                self.plan_tcp_read(copy, args[3] & libc::MSG_DONTWAIT as u64 != 0)
            }
            Op::Recv { .. } | Op::RecvMsg { .. } | Op::RecvMmsg { .. } => Plan::new(Class::Barrier),
            Op::Ioctl if args[1] & 0xffff_ffff == FIONREAD => match Source::of(copy.try_clone().ok()?) {
                Some(source) => Plan::new(Class::Tracked).observing(source.object()),
                None => Plan::new(Class::Barrier),
            },
            Op::Write { .. } | Op::Send { .. } | Op::SendMsg { .. } => {
                Plan::new(Class::Send { fd: args[0] as i32, ino }).once()
            }
            _ if self.ahead.sends.is_pending(ino) => Plan::new(Class::Later),
            _ => certain(),
        })
    }

    fn plan_tcp_read(&self, copy: &OwnedFd, never_waits: bool) -> Plan {
        match copy.try_clone().ok().and_then(Source::of) {
            Some(source) => Plan::new(Class::Input { source: source.without_waiting(never_waits) }),
            None => Plan::new(Class::Barrier),
        }
    }

    /// A write to a connection inside.
    pub(super) fn send_inside(&mut self, stopped: &Stopped, call: &Call, fd: i32, ino: u64) -> Result<Decision> {
        if self.ahead.sends.is_pending(ino) {
            return Ok(self.wait_for_room(call, fd));
        }
        let modifies = vec![(Object::Socket(ino), Intent::Nothing)];
        let decision = self.track(stopped, call, Plan::tracked_once(), modifies)?;
        if !matches!(decision, Decision::GoAndTell(_)) || !self.ahead.is_speculative(call.pid) {
            return Ok(decision);
        }
        let held = self.output_of(call.tid, fd, &call.frame);
        let slot = self.tracees.get(&call.tid).map(|tracee| tracee.process);
        let (Some((target, bytes)), Some(slot)) = (held, slot) else { return Ok(self.wait_at_barrier(call)) };
        let socket = self.ahead.with_one_descriptor(target).fd;
        let clock = self.world().processes[slot].clock.load(DOMAINS_MAX);
        let len = bytes.len() as i64;
        self.ahead.report.output_held += bytes.len() as u64;
        self.ahead.core.output(process(call.pid), Written::Sent(Sent { ino, socket, clock, bytes }));
        Ok(Decision::Answer(len))
    }

    /// What was sent before has found no room: nor would this.
    fn wait_for_room(&mut self, call: &Call, fd: i32) -> Decision {
        let never_waits = self.copy_descriptor(call.tid, fd).is_ok_and(|copy| {
            rustix::fs::fcntl_getfl(copy).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
        });
        match never_waits {
            true => Decision::Answer(-i64::from(libc::EAGAIN)),
            false => Decision::Wait,
        }
    }

    /// It can not be taken back any more. Before it can be received, the connection depends on what its sender depended on.
    pub(super) fn release_sent(&mut self, mut sent: Sent) {
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

    pub(super) fn flush_sends(&mut self) {
        if !self.ahead.sends.is_empty() && self.ahead.sends.flush() {
            self.ahead.changes += 1;
        }
    }

    /// There is input that is given again, or there is none any more. A connection that is closed with something unread is reset.
    pub(super) fn reset_if_closed(&mut self, ino: u64, resets: bool) {
        let Ok(socket) = self.end_of(ino) else { return };
        match (resets, self.ahead.sends.lingers.remove(&ino)) {
            (true, before) => {
                let before = before.unwrap_or_else(|| socket_linger(&*socket).unwrap_or(None));
                self.ahead.sends.lingers.insert(ino, before);
                let _ = set_socket_linger(&*socket, Some(Duration::ZERO));
            }
            (false, Some(before)) => drop(set_socket_linger(&*socket, before)),
            (false, None) => {}
        }
    }
}

/// A TCP socket, connected or not.
pub(super) fn is_tcp(socket: &OwnedFd) -> bool {
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
