//! What waits in a Unix socket to be received: looked at without taking it out, and put back (000, 6.6).
//!
//! A queue is filled through the socket's peer, so whoever is to put it back holds both ends. As long as we do, nobody hears that the last
//! process has closed one: [`Ends`] knows which ends that may be, and calls that would hear of it wait ([`super::sockets`]).
//!
//! What cannot be given again exactly is not taken: descriptors and credentials in messages, urgent data, empty packets, and a queue that nothing
//! can be added to any more. All of them are `ErrorKind::Unsupported` here, and a barrier to whoever asks.

use crate::sys;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_send_buffer_size, set_socket_send_buffer_size_force, socket_send_buffer_size, socket_type,
};
use rustix::net::{recv, recvmsg, send, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketType};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

/// Bytes that are kept of one queue at most; more is a barrier.
const KEPT_LEN_MAX: usize = 8 << 20;

/// The queue of one end of a connection.
#[derive(Debug)]
pub(crate) struct Queue {
    receiver: Arc<OwnedFd>,
    sender: Arc<OwnedFd>,
    is_stream: bool,
}

/// A queue, and what waited in it: the bytes of a stream, or packets.
#[derive(Debug)]
pub(crate) struct Queued {
    queue: Queue,
    contents: Vec<Vec<u8>>,
}

impl Queue {
    pub fn new(receiver: Arc<OwnedFd>, sender: Arc<OwnedFd>) -> io::Result<Self> {
        let is_stream = socket_type(&*receiver)? == SocketType::STREAM;
        Ok(Self { receiver, sender, is_stream })
    }

    /// What waits in it, which stays there.
    pub fn remember(self) -> io::Result<Queued> {
        if !self.can_be_filled()? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let contents = match self.is_stream {
            true => self.peek_stream()?,
            false => self.peek_packets()?,
        };
        Ok(Queued { queue: self, contents })
    }

    /// Whether its peer may still send, and nothing urgent was sent.
    fn can_be_filled(&self) -> io::Result<bool> {
        let special = PollFlags::RDHUP | PollFlags::PRI | PollFlags::ERR | PollFlags::HUP;
        let mut ends = [PollFd::new(&*self.receiver, special)];
        poll(&mut ends, Some(&rustix::event::Timespec::default()))?;
        Ok(!ends[0].revents().intersects(special))
    }

    fn peek_stream(&self) -> io::Result<Vec<Vec<u8>>> {
        let len = rustix::io::ioctl_fionread(&*self.receiver)? as usize;
        if len == 0 {
            return Ok(Vec::new());
        }
        if len > KEPT_LEN_MAX || sys::peek_offset(self.receiver.as_fd())? >= 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let bytes = self.peek(len)?.unwrap_or_default();
        // It stops at a message with descriptors.
        (bytes.len() == len).then(|| vec![bytes]).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn peek_packets(&self) -> io::Result<Vec<Vec<u8>>> {
        if sys::peek_offset(self.receiver.as_fd())? >= 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        sys::set_peek_offset(self.receiver.as_fd(), 0)?;
        let packets = self.peek_each_packet();
        sys::set_peek_offset(self.receiver.as_fd(), -1)?;
        packets
    }

    /// From where the last peek has ended.
    fn peek_each_packet(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut packets: Vec<Vec<u8>> = Vec::new();
        let mut room = KEPT_LEN_MAX;
        while let Some(packet) = self.peek(room)? {
            if packet.is_empty() || packet.len() == room {
                return Err(io::ErrorKind::Unsupported.into());
            }
            room -= packet.len();
            packets.push(packet);
        }
        Ok(packets)
    }

    /// `None` if there is nothing.
    fn peek(&self, room: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; room];
        let mut nothing = RecvAncillaryBuffer::new(&mut []);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recvmsg(&*self.receiver, &mut [IoSliceMut::new(&mut bytes)], &mut nothing, flags);
        let peeked = match peeked {
            Err(Errno::AGAIN) => return Ok(None),
            peeked => peeked?,
        };
        // There is no room for ancillary data: it was cut off.
        if peeked.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        bytes.truncate(peeked.bytes);
        Ok(Some(bytes))
    }

    fn drain(&self) {
        let mut scratch = [0u8; 65536];
        while matches!(recv(&*self.receiver, &mut scratch, RecvFlags::DONTWAIT), Ok((n, _)) if n > 0) {}
    }

    /// One packet, or as much of a stream as there is room for.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&*self.sender, bytes, flags) {
            // It was in there before; but in other pieces it may take a little more room.
            Err(Errno::AGAIN) => self.send_with_more_room(bytes, flags),
            sent => Ok(sent?),
        }
    }

    fn send_with_more_room(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        // The kernel counts twice what it is told.
        let before = socket_send_buffer_size(&*self.sender)? / 2;
        let more = before + 2 * KEPT_LEN_MAX;
        set_socket_send_buffer_size_force(&*self.sender, more)
            .or_else(|_| set_socket_send_buffer_size(&*self.sender, more))?;
        let sent = send(&*self.sender, bytes, flags);
        set_socket_send_buffer_size(&*self.sender, before)?;
        Ok(sent?)
    }
}

impl Queued {
    /// Make this all that waits.
    pub fn restore(&self) -> io::Result<()> {
        self.queue.drain();
        for piece in &self.contents {
            let mut at = 0;
            while at < piece.len() {
                at += self.queue.send(&piece[at..])?;
            }
        }
        Ok(())
    }
}

/// Ends of connections that undo entries hold open, by inode.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    held: HashMap<u64, Weak<OwnedFd>>,
}

impl Ends {
    /// Hold an end, until the last of those who got it lets go.
    pub fn hold(&mut self, ino: u64, end: OwnedFd) -> Arc<OwnedFd> {
        if let Some(held) = self.get(ino) {
            return held;
        }
        let end = Arc::new(end);
        self.held.retain(|_, end| end.strong_count() > 0);
        self.held.insert(ino, Arc::downgrade(&end));
        end
    }

    pub fn get(&self, ino: u64) -> Option<Arc<OwnedFd>> {
        self.held.get(&ino)?.upgrade()
    }

    /// Which are held.
    pub fn held(&self) -> Vec<u64> {
        self.held.iter().filter(|(_, end)| end.strong_count() > 0).map(|(&ino, _)| ino).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{sendmsg, socketpair, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags};
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    fn pair(kind: SocketType) -> (Arc<OwnedFd>, Arc<OwnedFd>) {
        let (receiver, sender) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Arc::new(receiver), Arc::new(sender))
    }

    fn queue(ends: &(Arc<OwnedFd>, Arc<OwnedFd>)) -> Queue {
        Queue::new(Arc::clone(&ends.0), Arc::clone(&ends.1)).unwrap()
    }

    fn put(end: &OwnedFd, bytes: &[u8]) {
        assert_eq!(send(end, bytes, SendFlags::DONTWAIT).unwrap(), bytes.len());
    }

    fn take(end: &OwnedFd, room: usize) -> Vec<u8> {
        let mut bytes = vec![0; room];
        let n = recv(end, bytes.as_mut_slice(), RecvFlags::DONTWAIT).map_or(0, |(n, _)| n);
        bytes.truncate(n);
        bytes
    }

    #[test]
    fn what_was_read_and_written_is_taken_back() {
        let ends = pair(SocketType::STREAM);
        put(&ends.1, b"one ");
        put(&ends.1, b"two");
        let queued = queue(&ends).remember().unwrap();
        assert_eq!(take(&ends.0, 5), b"one t", "it is still there");
        put(&ends.1, b"WRONG");
        queued.restore().unwrap();
        assert_eq!(take(&ends.0, 100), b"one two");
        assert_eq!(take(&ends.0, 100), b"");
    }

    #[test]
    fn packets_keep_their_ends() {
        for kind in [SocketType::SEQPACKET, SocketType::DGRAM] {
            let ends = pair(kind);
            for packet in [&b"one"[..], b"two and more", b"3"] {
                put(&ends.1, packet);
            }
            let queued = queue(&ends).remember().unwrap();
            take(&ends.0, 1);
            put(&ends.1, b"WRONG");
            queued.restore().unwrap();
            let received: Vec<Vec<u8>> = (0..4).map(|_| take(&ends.0, 100)).collect();
            assert_eq!(received, [&b"one"[..], b"two and more", b"3", b""]);
        }
    }

    #[test]
    fn a_full_queue_is_full_again() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let ends = pair(kind);
            let mut sent = 0;
            for len in [1, 4000, 77, 30_000].into_iter().cycle() {
                match send(&*ends.1, &vec![b'x'; len], SendFlags::DONTWAIT) {
                    Ok(n) => sent += n,
                    Err(_) => break,
                }
            }
            let queued = queue(&ends).remember().unwrap();
            while !take(&ends.0, 50_000).is_empty() {}
            queued.restore().unwrap();
            let size = socket_send_buffer_size(&*ends.1).unwrap();
            queued.restore().unwrap();
            assert_eq!(socket_send_buffer_size(&*ends.1).unwrap(), size);
            let back: usize = std::iter::from_fn(|| Some(take(&ends.0, 50_000).len()).filter(|&n| n > 0)).sum();
            assert_eq!(back, sent);
        }
    }

    #[test]
    fn what_could_not_be_given_again_is_refused() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let ends = pair(kind);
            put(&ends.1, b"plain");
            let descriptors = [ends.0.as_fd()];
            let mut space = [MaybeUninit::uninit(); 64];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            sendmsg(&*ends.1, &[IoSlice::new(b"with one")], &mut control, SendFlags::empty()).unwrap();
            let refused = queue(&ends).remember().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{kind:?}");
        }
        let ends = pair(SocketType::STREAM);
        rustix::net::shutdown(&*ends.1, rustix::net::Shutdown::Write).unwrap();
        assert_eq!(queue(&ends).remember().unwrap_err().kind(), io::ErrorKind::Unsupported, "nothing can be added");
    }

    #[test]
    fn an_end_is_held_as_long_as_somebody_wants_it() {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut ends = Ends::default();
        let first = ends.hold(7, a);
        let second = ends.hold(7, b);
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(ends.held(), [7]);
        drop(second);
        assert!(ends.held().is_empty() && ends.get(7).is_none());
    }
}
