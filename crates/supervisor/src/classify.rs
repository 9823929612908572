//! Which sockets only the world can reach: those whose other end is inside, too. What one end sends then need not be held back, for the other
//! takes over what it depends on.

mod connections;
mod diag;
mod holders;

use crate::event_loop::Supervisor;
use agent_abi::{hash_object, option, FdEntry, FdKind, World};
use connections::{Connections, Inside, Verdict};
use holders::Holders;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

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
        // Out of its place while it asks for our processes.
        let mut classifier = self.classifier.take().unwrap_or_default();
        let verdict = self.judge(&mut classifier, socket);
        self.classifier = Some(classifier);
        entry(verdict)
    }

    /// The peer of a Unix socket, by inode, if both are inside.
    pub(crate) fn peer_inside(&mut self, socket: &OwnedFd) -> Option<u64> {
        let world = self.world();
        if world.options.load(Ordering::Relaxed) & option::OUTSIDE_EVENTS != 0 {
            return None;
        }
        let mut classifier = self.classifier.take().unwrap_or_default();
        let verdict = self.judge(&mut classifier, socket);
        let connections = classifier.connections.as_mut();
        let peer = match verdict {
            Ok(Verdict::Inside(_)) => connections.and_then(|connections| connections.unix_peer(socket.as_fd())),
            _ => None,
        };
        self.classifier = Some(classifier);
        peer
    }

    /// Who of these processes has a descriptor of this socket: process and descriptor.
    pub(crate) fn holder_among(&mut self, processes: &HashSet<i32>, ino: u64) -> Option<(i32, i32)> {
        let mut classifier = self.classifier.take().unwrap_or_default();
        let holder = classifier.holders.find(processes, ino);
        self.classifier = Some(classifier);
        holder
    }

    fn judge(&mut self, classifier: &mut Classifier, socket: &OwnedFd) -> io::Result<Verdict> {
        let Some(connections) = &mut classifier.connections else { return Ok(Verdict::Outside) };
        let dev = rustix::fs::fstat(socket)?.st_dev;
        let world = self.world();
        let processes = || self.processes();
        connections.judge(socket.as_fd(), &mut Sockets { world, dev, holders: &mut classifier.holders, processes })
    }

    /// The world's processes. A program that has not begun yet still has descriptors of ours.
    fn processes(&mut self) -> HashSet<i32> {
        let tids: Vec<i32> =
            self.tracees.iter().filter(|(_, tracee)| tracee.thread.is_some()).map(|(&tid, _)| tid).collect();
        tids.into_iter().filter_map(|tid| self.pid_of(tid).ok()).collect()
    }
}

/// What the agent is told. It never remembers a socket that is `Pseudo`: what is written there waits, what is read there may come from anybody.
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

impl<P: FnMut() -> HashSet<i32>> Inside for Sockets<'_, P> {
    fn is_marked_outside(&self, ino: u64) -> bool {
        self.world.is_outside(hash_object(self.dev, ino))
    }

    fn was_made_inside(&self, ino: u64, cookie: u64) -> bool {
        // Written by the agent at `connect`, `listen` and `accept` (agent::sockets).
        const MADE_INSIDE: u64 = 1 << 32;
        self.world.socket_slot(ino | MADE_INSIDE) == Some(cookie << 1)
    }

    fn is_held(&mut self, ino: u64) -> bool {
        self.holders.any_holds(&(self.processes)(), ino)
    }

    fn has_process(&mut self, pid: i32) -> bool {
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
