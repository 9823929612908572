//! `shutdown` of a connection inside while something is speculative (000, 6.6). The kernel opens no direction again,
//! and a queue behind a closed one cannot be put back: so the call is answered, and *held* until nothing can be taken
//! back on either side. Until then the other end reads to the end as if it had been made; whoever would hear of it in
//! any other way waits.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use procfs::ThreadId;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tracee::{Result, Stopped};

/// Directions that are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    pub receiving: bool,
    pub sending: bool,
}

impl Closed {
    /// As shutdown(2) says it.
    pub fn of(how: u64) -> Option<Self> {
        Some(match how as i32 {
            libc::SHUT_RD => Self { receiving: true, sending: false },
            libc::SHUT_WR => Self { receiving: false, sending: true },
            libc::SHUT_RDWR => Self { receiving: true, sending: true },
            _ => return None,
        })
    }

    fn how(self) -> Option<rustix::net::Shutdown> {
        match (self.receiving, self.sending) {
            (true, true) => Some(rustix::net::Shutdown::Both),
            (true, false) => Some(rustix::net::Shutdown::Read),
            (false, true) => Some(rustix::net::Shutdown::Write),
            (false, false) => None,
        }
    }

    fn and(self, other: Self) -> Self {
        Self { receiving: self.receiving || other.receiving, sending: self.sending || other.sending }
    }

    /// What the other end has of it.
    fn mirrored(self) -> Self {
        Self { receiving: self.sending, sending: self.receiving }
    }
}

/// A shutdown that is held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    peer: u64,
    socket: Arc<OwnedFd>,
    closed: Closed,
    /// How much of it can not be taken back any more.
    certain: Closed,
}

/// Those that are held, by the inode of the socket.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Shutdowns(BTreeMap<u64, Held>);

impl Shutdowns {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sockets that any of them concerns.
    pub fn ends(&self) -> HashSet<u64> {
        self.0.iter().flat_map(|(&own, held)| [own, held.peer]).collect()
    }

    /// What is closed at an end, as far as it is held.
    pub fn closed_at(&self, own: u64, peer: u64) -> Closed {
        let closed = |ino| self.0.get(&ino).map_or(Closed::default(), |held| held.closed);
        closed(own).and(closed(peer).mirrored())
    }

    pub fn closed_by(&self, ino: u64) -> Closed {
        self.0.get(&ino).map_or(Closed::default(), |held| held.closed)
    }

    fn hold(&mut self, ino: u64, peer: u64, socket: Arc<OwnedFd>, closed: Closed) {
        let held = self.0.entry(ino).or_insert(Held { peer, socket, closed, certain: Closed::default() });
        held.closed = held.closed.and(closed);
    }

    /// The call has never been made.
    pub fn take_back(&mut self, ino: u64, before: Closed) {
        match before == Closed::default() {
            true => drop(self.0.remove(&ino)),
            false => {
                if let Some(held) = self.0.get_mut(&ino) {
                    held.closed = before;
                }
            }
        }
    }

    /// The call cannot be taken back any more.
    pub fn is_certain(&mut self, ino: u64, closed: Closed) {
        if let Some(held) = self.0.get_mut(&ino) {
            held.certain = held.certain.and(closed);
        }
    }
}

impl Supervisor {
    pub(in crate::ahead) fn shut_down(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        ends: (u64, u64),
        socket: OwnedFd,
        closed: Closed,
    ) -> Result<Decision> {
        let (own, peer) = ends;
        let socket = self.ahead.ends.hold(own, socket);
        let modifies =
            vec![(Object::Socket(peer), Intent::Shutdown { own, closed }), (Object::Socket(own), Intent::Nothing)];
        let decision = self.track(stopped, call, Plan::tracked_once(), modifies)?;
        if !matches!(decision, Decision::GoAndTell(_)) || !self.ahead.is_speculative(call.pid) {
            return Ok(decision);
        }
        self.ahead.shutdowns.hold(own, peer, socket, closed);
        self.ahead.changes += 1;
        self.call_out_who_waits_at(call.tid, &[Object::Socket(own), Object::Socket(peer)]);
        Ok(Decision::Answer(0))
    }

    /// Something was closed at these sockets and is held: who waits there in the kernel would not hear of it, and asks
    /// again.
    pub(in crate::ahead) fn call_out_who_waits_at(&mut self, caller: ThreadId, sockets: &[Object]) {
        for (tid, other) in self.ahead.under_way.of_others(caller) {
            let is_concerned = sockets.iter().any(|socket| other.concerns(socket));
            if is_concerned && other.can_be_repeated {
                let _ = tracee::interrupt(tid);
            }
        }
        self.call_out_who_works(caller);
    }

    /// What is certain is made, where nothing that has gone through the connection can be taken back.
    pub(in crate::ahead) fn make_shutdowns(&mut self) {
        let Self { ahead, .. } = self;
        let core = &ahead.core;
        let is_settled = |ino: u64| core.dependencies_of_object(&Object::Socket(ino)).is_empty();
        ahead.shutdowns.0.retain(|&own, held| {
            let Some(how) = held.certain.how().filter(|_| is_settled(own) && is_settled(held.peer)) else {
                return true;
            };
            // A connection that has ended meanwhile needs it no more.
            let _ = rustix::net::shutdown(&*held.socket, how);
            held.certain != held.closed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};

    #[test]
    fn the_other_end_has_the_opposite() {
        let (socket, _peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut shutdowns = Shutdowns::default();
        let writing = Closed::of(libc::SHUT_WR as u64).unwrap();
        shutdowns.hold(1, 2, Arc::new(socket), writing);
        assert_eq!(shutdowns.closed_at(1, 2), writing);
        assert_eq!(shutdowns.closed_at(2, 1), Closed { receiving: true, sending: false });
        assert_eq!(Closed::of(3), None);
    }

    #[test]
    fn each_call_is_taken_back_by_itself() {
        let (socket, _peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let socket = Arc::new(socket);
        let mut shutdowns = Shutdowns::default();
        let [reading, writing] = [libc::SHUT_RD, libc::SHUT_WR].map(|how| Closed::of(how as u64).unwrap());
        shutdowns.hold(1, 2, Arc::clone(&socket), reading);
        shutdowns.hold(1, 2, socket, writing);
        assert_eq!(shutdowns.closed_at(1, 2), reading.and(writing));
        shutdowns.take_back(1, reading);
        assert_eq!(shutdowns.closed_at(1, 2), reading);
        shutdowns.take_back(1, Closed::default());
        assert!(shutdowns.is_empty());
    }
}
