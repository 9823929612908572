//! Which sockets only the world can reach: those whose other end is inside, too. What one end sends then need not be
//! held back, for the other takes over what it depends on.

mod connections;
mod diag;
mod holders;

use crate::event_loop::Supervisor;
use agent_abi::{hash_object, option, FdEntry, FdKind, World};
use connections::{Connections, Inside, Verdict};
pub(crate) use diag::Name;
use holders::Holders;
use procfs::{ProcessId, ThreadId};
use rustix::net::sockopt::socket_cookie;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Sets what the agent writes at `connect`, `listen` and `accept` (agent::sockets) apart from pairs, whose inodes have
/// 32 bits.
const MADE_INSIDE: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Classifier {
    /// `None` on a kernel without sock_diag: then all sockets are outside.
    connections: Option<Connections>,
    holders: Holders,
}

impl Default for Classifier {
    fn default() -> Self {
        Self { connections: Connections::new().ok(), holders: Holders::default() }
    }
}

impl Supervisor {
    /// The entry of a socket, or 0: outside.
    pub(crate) fn classify_socket(&mut self, _tid: i32, socket: &OwnedFd) -> u64 {
        entry(self.with_classifier(|this, classifier| this.judge(classifier, socket)))
    }

    /// The peer of a Unix socket, by inode, if both are inside.
    pub(crate) fn peer_inside(&mut self, socket: &OwnedFd) -> Option<u64> {
        self.is_connected_inside(socket).then(|| self.unix_peer(socket))?
    }

    /// Whether a socket is connected to another one, and both ends are inside.
    pub(crate) fn is_connected_inside(&mut self, socket: &OwnedFd) -> bool {
        let verdict = self.with_classifier(|this, classifier| this.judge(classifier, socket));
        !self.may_anything_be_outside() && matches!(verdict, Ok(Verdict::Inside(_)))
    }

    /// The peer of a Unix socket, by inode; `None` if nobody has it open, not yet or no longer.
    pub(crate) fn unix_peer(&mut self, socket: &OwnedFd) -> Option<u64> {
        self.with_classifier(|_, classifier| classifier.connections.as_mut()?.unix_peer(socket.as_fd()))
    }

    /// The inode of the Unix socket that listens where a client wants to connect to, if only the world holds it.
    pub(crate) fn unix_listener(&mut self, name: &Name, client: &OwnedFd) -> Option<u64> {
        let dev = rustix::fs::fstat(client).ok()?.st_dev;
        if self.may_anything_be_outside() {
            return None;
        }
        self.with_classifier(|this, Classifier { connections, holders }| {
            let mut sockets = this.sockets(holders, dev);
            connections.as_mut()?.unix_listener(name, &mut sockets)
        })
    }

    /// The inodes of those who listen on a TCP port.
    pub(crate) fn tcp_listeners(&mut self, port: u16) -> Vec<u64> {
        self.with_classifier(|_, classifier| {
            classifier.connections.as_mut().map_or(Vec::new(), |connections| connections.tcp_listeners(port))
        })
    }

    /// The peer of a TCP socket, by inode; `None` if no descriptor refers to it, not yet or no longer.
    pub(crate) fn tcp_peer(&mut self, socket: &OwnedFd) -> Option<u64> {
        self.with_classifier(|_, classifier| classifier.connections.as_mut()?.tcp_peer(socket.as_fd()))
    }

    /// End all TCP connections between a port of this machine and some others, which takes `CAP_NET_ADMIN`.
    pub(crate) fn destroy_tcp(&mut self, port: u16, others: &BTreeSet<u16>) -> io::Result<()> {
        self.with_classifier(|_, classifier| match &mut classifier.connections {
            Some(connections) => connections.destroy_tcp(port, others),
            None => Err(io::ErrorKind::Unsupported.into()),
        })
    }

    /// Whether only the world holds this socket, which listens.
    pub(crate) fn is_ours_alone(&mut self, socket: &OwnedFd) -> bool {
        let dev = rustix::fs::fstat(socket).map(|stat| stat.st_dev);
        let (Ok(dev), false) = (dev, self.may_anything_be_outside()) else { return false };
        self.with_classifier(|this, Classifier { connections, holders }| {
            let Some(connections) = connections else { return false };
            connections.is_listener_inside(socket.as_fd(), &mut this.sockets(holders, dev)).unwrap_or(false)
        })
    }

    /// Whether a Unix socket is in our network namespace, so that we find all others that it can reach.
    pub(crate) fn is_in_our_network(&mut self, socket: &OwnedFd) -> bool {
        self.with_classifier(|_, classifier| {
            let Some(connections) = &mut classifier.connections else { return false };
            connections.is_in_our_network(socket.as_fd()).unwrap_or(false)
        })
    }

    /// Whether another process inside than this one has a socket open, too. Whoever lets go of it last has it wait
    /// for what the others did.
    pub(crate) fn is_held_by_others(&mut self, pid: ProcessId, socket: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(socket) else { return false };
        self.with_classifier(|this, classifier| {
            let mut others = this.processes();
            others.remove(&pid);
            classifier.holders.any_holds(&others, stat.st_ino)
        })
    }

    /// Whether these processes have one descriptor of this socket among them.
    pub(crate) fn is_held_once_among(&mut self, processes: &HashSet<ProcessId>, ino: u64) -> bool {
        self.with_classifier(|_, classifier| classifier.holders.holds_one(processes, ino))
    }

    /// Who of these processes has a descriptor of this socket: process and descriptor.
    pub(crate) fn holder_among(&mut self, processes: &HashSet<ProcessId>, ino: u64) -> Option<(ProcessId, i32)> {
        self.with_classifier(|_, classifier| classifier.holders.find(processes, ino))
    }

    /// Whether it is remembered that somebody inside has made this socket listen, or connected or accepted it, and
    /// nothing has left the world.
    pub(crate) fn was_made_inside(&self, ino: u64) -> bool {
        !self.may_anything_be_outside() && self.world().socket_slot(ino | MADE_INSIDE).is_some()
    }

    /// What the agent does for a socket that its process has accepted.
    pub(crate) fn remember_made_inside(&self, socket: &OwnedFd) {
        if let (Ok(stat), Ok(cookie)) = (rustix::fs::fstat(socket), socket_cookie(socket)) {
            self.world().remember_socket(stat.st_ino | MADE_INSIDE, cookie << 1);
        }
    }

    /// Something has left the world, nobody knows what.
    fn may_anything_be_outside(&self) -> bool {
        self.world().options.load(Ordering::Relaxed) & option::OUTSIDE_EVENTS != 0
    }

    /// Out of its place while it asks for our processes.
    fn with_classifier<T>(&mut self, ask: impl FnOnce(&mut Self, &mut Classifier) -> T) -> T {
        let mut classifier = self.classifier.take().unwrap_or_default();
        let answer = ask(self, &mut classifier);
        self.classifier = Some(classifier);
        answer
    }

    fn judge(&mut self, classifier: &mut Classifier, socket: &OwnedFd) -> io::Result<Verdict> {
        let Classifier { connections, holders } = classifier;
        let Some(connections) = connections else { return Ok(Verdict::Outside) };
        let dev = rustix::fs::fstat(socket)?.st_dev;
        connections.judge(socket.as_fd(), &mut self.sockets(holders, dev))
    }

    fn sockets<'a>(
        &'a mut self,
        holders: &'a mut Holders,
        dev: u64,
    ) -> Sockets<'a, impl FnMut() -> HashSet<ProcessId> + use<'a>> {
        Sockets { world: self.world(), dev, holders, processes: || self.processes() }
    }

    /// The world's processes. A program that has not begun yet still has descriptors of ours.
    pub(crate) fn processes(&mut self) -> HashSet<ProcessId> {
        let tids: Vec<ThreadId> =
            self.tracees.iter().filter(|(_, tracee)| tracee.thread.is_some()).map(|(&tid, _)| tid).collect();
        tids.into_iter().filter_map(|tid| self.pid_of(tid).ok()).collect()
    }
}

/// What the agent is told. It never remembers a socket that is `Pseudo`: what is written there waits, what is read
/// there may come from anybody.
fn entry(verdict: io::Result<Verdict>) -> u64 {
    /// The agent takes a negative answer for an error; the hash's highest bit picks nothing.
    const POSITIVE: u64 = i64::MAX as u64;
    match verdict {
        Ok(Verdict::Inside(object)) => {
            FdEntry::new(FdKind::Inside, 0, object & POSITIVE).with(FdEntry::SOCKET | FdEntry::STREAM).0
        }
        Ok(Verdict::Outside) => 0,
        Ok(Verdict::Doubtful) | Err(_) => FdEntry::new(FdKind::Pseudo, 0, 0).with(FdEntry::SOCKET).0,
    }
}

/// Sockets, as the world knows them.
struct Sockets<'a, P> {
    world: &'static World,
    /// `st_dev` of all sockets.
    dev: u64,
    holders: &'a mut Holders,
    processes: P,
}

impl<P: FnMut() -> HashSet<ProcessId>> Inside for Sockets<'_, P> {
    fn is_marked_outside(&self, ino: u64) -> bool {
        self.world.is_outside(hash_object(self.dev, ino))
    }

    fn was_made_inside(&self, ino: u64, cookie: u64) -> bool {
        self.world.socket_slot(ino | MADE_INSIDE) == Some(cookie << 1)
    }

    fn is_held(&mut self, ino: u64) -> bool {
        self.holders.any_holds(&(self.processes)(), ino)
    }

    fn has_process(&mut self, pid: ProcessId) -> bool {
        (self.processes)().contains(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_looks_like_an_error() {
        for object in [u64::MAX, 1 << 63 | 1, 1] {
            let answer = entry(Ok(Verdict::Inside(object)));
            assert!(answer as i64 > 0);
            assert_eq!(FdEntry(answer).slot(), FdEntry::new(FdKind::Inside, 0, object).slot());
        }
        assert_eq!(FdEntry(entry(Ok(Verdict::Doubtful))).kind(), FdKind::Pseudo);
        assert_eq!(entry(Ok(Verdict::Outside)), 0);
    }
}
