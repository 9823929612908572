//! What is taken out of a pipe, a socket or a terminal makes room there: whoever is at its other end can send more, or
//! asks how much is left, and learns that the process has come so far. Where that may be somebody outside, and
//! `--hold-input` asks for it, it waits as what is written does (`decisions/0138`). So does, always, what the end of a
//! process gives back.

use crate::clocks::Call;
use crate::descriptors::{is_doubtful_socket, Stat, S_IFCHR};
use crate::gate;
use crate::memory::read_program_bytes;
use crate::sockets::socket_option;
use crate::transfer::queued;
use agent_abi::{option, FdEntry, FdKind, Request, PROCESS_GIVES_BACK, PROCESS_LOCKS_OUTSIDE, PROCESS_UNDOES};
use core::sync::atomic::Ordering;
use syscall_table::nr;

const MSG_PEEK: u64 = 2;
const MSG_WAITALL: u64 = 0x100;
/// A part of a connection's buffer that is taken without waiting for anything: a peer is not kept from sending while
/// that much is left there.
const BUFFER_PART: u64 = 8;

/// When somebody outside can tell that something was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Unseen,
    AtOnce,
    /// After so many bytes.
    After(u64),
}

impl Call<'_> {
    /// The call may take something from a descriptor. The world is not clean.
    pub fn settle_taking(&mut self, fd: u64, entry: FdEntry) {
        if !self.has_option(option::HOLD_INPUT) || !self.takes() {
            return;
        }
        if self.is_settled() {
            return self.process.taken.store(0, Ordering::Relaxed);
        }
        let waits = match self.room(fd, entry) {
            Room::Unseen => false,
            Room::AtOnce => true,
            Room::After(_) if self.message_flags() & MSG_WAITALL != 0 || self.frame.nr == nr::recvmmsg => true,
            Room::After(bytes) => u64::from(self.process.taken.load(Ordering::Relaxed)) + queued(fd) > bytes,
        };
        if waits {
            self.settle_input();
            self.process.taken.store(0, Ordering::Relaxed);
        }
    }

    /// So much was taken.
    pub fn note_taken(&self, entry: FdEntry, bytes: i64) {
        if entry.has(FdEntry::SOCKET) && entry.kind() != FdKind::Inside && self.takes() {
            self.process.taken.fetch_add(bytes.clamp(0, 1 << 30) as u32, Ordering::Relaxed);
        }
    }

    /// A connection is about to be accepted: where many wait, there is room for one more.
    pub fn settle_accepting(&mut self, listener: u64) {
        let is_seen = || match tcp_backlog(listener) {
            Some((pending, most)) => u64::from(pending) > u64::from(most) / BUFFER_PART,
            None => true,
        };
        if self.has_option(option::HOLD_INPUT) && !self.is_settled() && is_seen() {
            self.settle_input();
        }
    }

    /// As a barrier, but on a guess held output may have to wait for what this process does next.
    fn settle_input(&mut self) {
        if self.world.ahead.load(Ordering::Relaxed) == 0 {
            self.settle();
        } else {
            self.await_commit(&self.dependencies());
        }
    }

    /// Whether the call takes what it reads.
    fn takes(&self) -> bool {
        match self.frame.nr {
            nr::read | nr::readv | nr::preadv2 | nr::splice | nr::vmsplice => true,
            nr::recvfrom | nr::recvmsg | nr::recvmmsg => self.message_flags() & MSG_PEEK == 0,
            _ => false,
        }
    }

    /// `MSG_…` of a call that receives.
    fn message_flags(&self) -> u64 {
        match self.frame.nr {
            nr::recvfrom | nr::recvmmsg => self.arg(3),
            nr::recvmsg => self.arg(2),
            _ => 0,
        }
    }

    fn room(&self, fd: u64, entry: FdEntry) -> Room {
        match entry.kind() {
            FdKind::Outside if entry.has(FdEntry::SOCKET) => room_of_socket(fd),
            FdKind::Outside => Room::AtOnce,
            FdKind::Pseudo if is_doubtful_socket(entry) => room_of_socket(fd),
            FdKind::Inside if self.has_option(option::OUTSIDE_EVENTS) => Room::AtOnce,
            FdKind::OutsideFile => room_of_device(fd),
            _ => Room::Unseen,
        }
    }

    /// `semop`, `mq_notify`: the end of the process may take it back.
    pub fn note_given_back(&self) {
        let flag = match self.frame.nr {
            nr::mq_notify => PROCESS_LOCKS_OUTSIDE,
            _ if has_undo(self.arg(1), self.arg(2)) => PROCESS_UNDOES,
            _ => return,
        };
        if self.process.flags.fetch_or(flag, Ordering::Relaxed) & PROCESS_GIVES_BACK == 0 {
            gate::request(Request::WatchEnd, 0, 0, 0);
        }
    }
}

/// A stream's sender is held up by what nobody takes, and any other sender by the number of messages; of what comes
/// from networks the rest is lost, and the kernel does not wait.
fn room_of_socket(fd: u64) -> Room {
    const SO_TYPE: u64 = 3;
    const SO_RCVBUF: u64 = 8;
    const SO_DOMAIN: u64 = 39;
    const SOCK_STREAM: u64 = 1;
    const AF_UNIX: u64 = 1;
    const AF_INET: u64 = 2;
    const AF_INET6: u64 = 10;
    const AF_NETLINK: u64 = 16;
    match (socket_option(fd, SO_DOMAIN), socket_option(fd, SO_TYPE), socket_option(fd, SO_RCVBUF)) {
        (Some(AF_UNIX | AF_INET | AF_INET6), Some(SOCK_STREAM), Some(buffer)) => Room::After(buffer / BUFFER_PART),
        (Some(AF_INET | AF_INET6 | AF_NETLINK), Some(_), _) => Room::Unseen,
        _ => Room::AtOnce,
    }
}

/// A terminal's master, what makes events; not a file.
fn room_of_device(fd: u64) -> Room {
    const ANONYMOUS: u32 = 0;
    /// Who asks a file system that somebody serves waits for the answer.
    const FUSE: u64 = 10 << 8 | 229;
    match Stat::of_fd(fd) {
        Ok(stat) if stat.kind() == S_IFCHR && stat.rdev != FUSE || stat.kind() == ANONYMOUS => Room::AtOnce,
        _ => Room::Unseen,
    }
}

/// How many wait to be accepted, and how many may.
fn tcp_backlog(listener: u64) -> Option<(u32, u32)> {
    const IPPROTO_TCP: u64 = 6;
    const TCP_INFO: u64 = 11;
    // tcp_info of a socket that listens: 8 bytes, then `rto`, `ato`, `snd_mss`, `rcv_mss`; `unacked`, `sacked`.
    let mut words = [0u64; 4];
    let mut len = size_of_val(&words) as u32;
    let args = [listener, IPPROTO_TCP, TCP_INFO, words.as_mut_ptr() as u64, &raw mut len as u64, 0];
    // SAFETY: both are ours, and as long as they say.
    let result = unsafe { gate::call(nr::getsockopt, args) };
    (result == 0 && len as usize == size_of_val(&words)).then_some((words[3] as u32, (words[3] >> 32) as u32))
}

/// Whether one of these operations on semaphores is to be undone. Many, or what cannot be read, count as such.
fn has_undo(operations: u64, count: u64) -> bool {
    const SEM_UNDO: u64 = 0x1000;
    const OPERATION_LEN: u64 = 6;
    const LOOKED_AT: u64 = 16;
    let mut words = [0u64; (OPERATION_LEN * LOOKED_AT / 8) as usize];
    if count > LOOKED_AT || !read_program_bytes(operations, &mut words, count * OPERATION_LEN) {
        return true;
    }
    let half = |at: u64| words[at as usize / 4] >> (at % 4 * 16) & 0xffff;
    (0..count).any(|one| half(one * 3 + 2) & SEM_UNDO != 0)
}
