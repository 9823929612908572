//! Which of the world's processes holds a socket.

use procfs::ProcessId;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Remembers who held something lately: a server's connections are looked for in the server first.
#[derive(Debug, Default)]
pub struct Holders {
    recent: Vec<ProcessId>,
}

impl Holders {
    /// How many processes are looked at first.
    const RECENT_MAX: usize = 8;

    /// Whether one of these processes has a descriptor of the socket with this inode.
    pub fn any_holds(&mut self, processes: &HashSet<ProcessId>, ino: u64) -> bool {
        self.find(processes, ino).is_some()
    }

    /// One of these processes that has a descriptor of the socket with this inode, and that descriptor.
    pub fn find(&mut self, processes: &HashSet<ProcessId>, ino: u64) -> Option<(ProcessId, i32)> {
        let recent = self.recent.iter().filter(|pid| processes.contains(pid));
        let others = processes.iter().filter(|pid| !self.recent.contains(pid));
        let mut all = recent.chain(others).copied();
        let (pid, fd) = all.find_map(|pid| Some((pid, *held_as(pid, ino, 1).ok()?.first()?)))?;
        self.recent.retain(|&other| other != pid);
        self.recent.insert(0, pid);
        self.recent.truncate(Self::RECENT_MAX);
        Some((pid, fd))
    }

    /// Whether there is one descriptor of this socket in all of these processes. What cannot be looked at may have
    /// more.
    pub fn holds_one(&self, processes: &HashSet<ProcessId>, ino: u64) -> bool {
        processes.iter().map(|&pid| held_as(pid, ino, 2).map_or(2, |held| held.len())).sum::<usize>() == 1
    }
}

/// Descriptors that a process has of this socket, at most `count`.
fn held_as(pid: ProcessId, ino: u64, count: usize) -> procfs::Result<Vec<i32>> {
    let socket = format!("socket:[{ino}]");
    let mut held = Vec::new();
    // A descriptor that was closed meanwhile is not the one: its owner still runs, the one that asks waits.
    procfs::visit_descriptors(pid, |fd, link| {
        held.extend((link == socket.as_bytes()).then_some(fd));
        if held.len() == count {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    fn own_pid() -> ProcessId {
        ProcessId::own()
    }

    #[test]
    fn a_socket_is_found_while_it_is_open() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let ino = rustix::fs::fstat(&socket).unwrap().st_ino;
        let mut holders = Holders::default();
        let processes = HashSet::from([own_pid(), ProcessId::from_raw(1)]);
        assert!(holders.any_holds(&processes, ino));
        assert!(holders.holds_one(&HashSet::from([own_pid()]), ino));
        let copy = socket.try_clone().unwrap();
        assert!(!holders.holds_one(&HashSet::from([own_pid()]), ino));
        drop(copy);
        assert_eq!(holders.recent, [own_pid()]);
        assert!(!holders.any_holds(&HashSet::new(), ino), "nobody is in the world");
        drop(socket);
        assert!(!holders.any_holds(&processes, ino));
    }

    #[test]
    fn other_descriptors_with_the_same_number_are_something_else() {
        let file = tempfile_ino();
        assert!(!Holders::default().any_holds(&HashSet::from([own_pid()]), file));
    }

    fn tempfile_ino() -> u64 {
        std::fs::metadata("/proc/self/exe").unwrap().ino()
    }
}
