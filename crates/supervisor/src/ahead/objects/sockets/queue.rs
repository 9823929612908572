//! What waits in a Unix socket to be received: looked at without taking it out, and put back (000, 6.6).
//!
//! A queue is filled through the socket's peer, so whoever is to put it back holds both ends. As long as we do, nobody
//! hears that the last process has closed one: [`Ends`] knows which ends that may be, and calls that would hear of it
//! wait ([`crate::ahead::objects::sockets`]).
//!
//! Descriptors in messages are kept as those that were closed are, and sent again with the bytes that they came with. A
//! stream gives them together with the first byte of their message, and no call reads on beyond its last. A peek shows
//! where such a message ends, but not where it begins (looking at the last byte before it shows its descriptors, too):
//! so in a stream they are kept only if there is nothing else than small messages with them.
//!
//! What cannot be given again exactly is not taken: credentials in messages, urgent data, empty packets, and a queue
//! that nothing can be added to any more. All of them are `ErrorKind::Unsupported` here, and a barrier to whoever asks.

use crate::ahead::rollback::undo::Descriptor;
use crate::sys::{self, Peeked};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_send_buffer_size, set_socket_send_buffer_size_force, socket_send_buffer_size, socket_type,
};
use rustix::net::{
    recv, sendmsg, socketpair, AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketFlags, SocketType,
};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

/// Bytes that are kept of one queue at most; more is a barrier.
const KEPT_LEN_MAX: usize = 8 << 20;

/// Descriptors that one message can have (unix(7), `SCM_MAX_FD`).
const RIGHTS_MAX: usize = 253;

/// The queue of one end of a connection.
#[derive(Debug)]
pub(crate) struct Queue {
    receiver: Arc<OwnedFd>,
    sender: Arc<OwnedFd>,
    is_stream: bool,
}

/// A packet, or a part of a stream: plain bytes, or the message that came with descriptors.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    descriptors: Vec<Descriptor>,
}

/// A queue, and what waited in it.
#[derive(Debug)]
pub(crate) struct Queued {
    queue: Queue,
    contents: Vec<Piece>,
    /// What it took of its sender's buffer.
    memory: usize,
}

/// What makes of a copy of a descriptor in a message what an undo entry may hold of it.
pub(crate) type Keep<'a> = dyn FnMut(OwnedFd) -> io::Result<Descriptor> + 'a;

impl Queue {
    pub fn new(receiver: Arc<OwnedFd>, sender: Arc<OwnedFd>) -> io::Result<Self> {
        let is_stream = socket_type(&*receiver)? == SocketType::STREAM;
        Ok(Self { receiver, sender, is_stream })
    }

    /// What waits in it, which stays there.
    pub fn remember(self, keep: &mut Keep) -> io::Result<Queued> {
        if !self.can_be_filled()? || sys::peek_offset(self.receiver.as_fd())? >= 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let peeked = match self.is_stream {
            true => self.peek_stream()?,
            false => self.peek_from_the_beginning(Self::peek_each_packet)?,
        };
        let pieces = peeked.into_iter().map(|Peeked { bytes, rights }| {
            Ok(Piece { bytes, descriptors: rights.into_iter().map(&mut *keep).collect::<io::Result<_>>()? })
        });
        let contents = pieces.collect::<io::Result<_>>()?;
        let memory = sys::unread(self.sender.as_fd())?;
        Ok(Queued { queue: self, contents, memory })
    }

    /// Whether its peer may still send, and nothing urgent was sent.
    fn can_be_filled(&self) -> io::Result<bool> {
        let special = PollFlags::RDHUP | PollFlags::PRI | PollFlags::ERR | PollFlags::HUP;
        let mut ends = [PollFd::new(&*self.receiver, special)];
        poll(&mut ends, Some(&rustix::event::Timespec::default()))?;
        Ok(!ends[0].revents().intersects(special))
    }

    /// Somebody who depends on the same guess may receive or send meanwhile: then it is looked at again.
    fn peek_stream(&self) -> io::Result<Vec<Peeked>> {
        const LOOKS_MAX: usize = 100;
        for _ in 1..LOOKS_MAX {
            let len = self.len()?;
            match self.peek_stream_of(len) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported && self.len()? != len => {}
                peeked => return peeked,
            }
        }
        self.peek_stream_of(self.len()?)
    }

    fn len(&self) -> io::Result<usize> {
        Ok(rustix::io::ioctl_fionread(&*self.receiver)? as usize)
    }

    fn peek_stream_of(&self, len: usize) -> io::Result<Vec<Peeked>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        if len > KEPT_LEN_MAX {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match self.peek(len)? {
            Some(all) if all.bytes.len() == len && all.rights.is_empty() => Ok(vec![all]),
            _ => self.peek_from_the_beginning(|this| this.peek_each_message(len)),
        }
    }

    /// While each peek goes on where the last one has ended.
    fn peek_from_the_beginning<T>(&self, peek: impl FnOnce(&Self) -> io::Result<T>) -> io::Result<T> {
        sys::set_peek_offset(self.receiver.as_fd(), 0)?;
        let peeked = peek(self);
        sys::set_peek_offset(self.receiver.as_fd(), -1)?;
        peeked
    }

    /// A peek ends behind a message with descriptors. Where that begins no peek tells, unless there is nothing before
    /// it.
    fn peek_each_message(&self, len: usize) -> io::Result<Vec<Peeked>> {
        let mut messages = Vec::new();
        let mut at = 0;
        while at < len {
            let Some(message) = self.peek(len - at)?.filter(|message| !message.bytes.is_empty()) else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            at += message.bytes.len();
            messages.push(message);
        }
        let are_whole = messages.len() >= self.messages_max()?;
        are_whole.then_some(messages).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// So many messages wait at most: none takes less memory of its sender than the smallest.
    fn messages_max(&self) -> io::Result<usize> {
        let (reader, writer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::write(&writer, b"x")?;
        let smallest = sys::unread(writer.as_fd())?;
        drop(reader);
        Ok(sys::unread(self.sender.as_fd())? / smallest.max(1))
    }

    fn peek_each_packet(&self) -> io::Result<Vec<Peeked>> {
        let mut packets = Vec::new();
        let mut room = KEPT_LEN_MAX;
        // A packet is shorter than its sender's buffer, if that was not made smaller since.
        let longest = socket_send_buffer_size(&*self.sender)?;
        while let Some(packet) = self.peek(room.min(longest))? {
            if packet.bytes.is_empty() || packet.bytes.len() == room.min(longest) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            room -= packet.bytes.len();
            packets.push(packet);
        }
        Ok(packets)
    }

    /// `None` if there is nothing.
    fn peek(&self, room: usize) -> io::Result<Option<Peeked>> {
        match sys::peek_message(self.receiver.as_fd(), room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            peeked => peeked.map(Some),
        }
    }

    fn drain(&self) {
        let mut scratch = [0u8; 65536];
        while matches!(recv(&*self.receiver, &mut scratch, RecvFlags::DONTWAIT), Ok((n, _)) if n > 0) {}
    }

    /// One packet, or as much of a stream as there is room for.
    fn send(&self, bytes: &[u8], rights: &[BorrowedFd]) -> io::Result<usize> {
        match self.send_now(bytes, rights) {
            // It was in there before; but in other pieces it may take a little more room.
            Err(Errno::AGAIN) => self.send_with_more_room(bytes, rights),
            sent => Ok(sent?),
        }
    }

    fn send_now(&self, bytes: &[u8], rights: &[BorrowedFd]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !rights.is_empty() && !control.push(SendAncillaryMessage::ScmRights(rights)) {
            return Err(Errno::TOOMANYREFS);
        }
        sendmsg(&*self.sender, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    fn send_with_more_room(&self, bytes: &[u8], rights: &[BorrowedFd]) -> io::Result<usize> {
        // The kernel counts twice what it is told.
        let before = socket_send_buffer_size(&*self.sender)? / 2;
        let more = before + 2 * KEPT_LEN_MAX;
        set_socket_send_buffer_size_force(&*self.sender, more)
            .or_else(|_| set_socket_send_buffer_size(&*self.sender, more))?;
        let sent = self.send_now(bytes, rights);
        set_socket_send_buffer_size(&*self.sender, before)?;
        Ok(sent?)
    }
}

impl Piece {
    /// Bytes of a stream go in pieces of at most `most`; a message with descriptors is one.
    fn send_to(&self, queue: &Queue, most: usize) -> io::Result<()> {
        if queue.is_stream && self.descriptors.is_empty() {
            return self.bytes.chunks(most).try_for_each(|bytes| send_all(queue, bytes, &[]));
        }
        let opened = self.descriptors.iter().map(Descriptor::open).collect::<io::Result<Vec<_>>>()?;
        let rights: Vec<BorrowedFd> = opened.iter().map(|fd| fd.as_fd()).collect();
        send_all(queue, &self.bytes, &rights)
    }
}

fn send_all(queue: &Queue, bytes: &[u8], rights: &[BorrowedFd]) -> io::Result<()> {
    let mut at = queue.send(bytes, rights)?;
    while at < bytes.len() {
        at += queue.send(&bytes[at..], &[])?;
    }
    Ok(())
}

impl Queued {
    /// Bytes that it holds.
    pub fn len(&self) -> usize {
        self.contents.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// Make this all that waits. In fewer pieces a stream takes less of its sender's buffer, and who waits for room
    /// would find some that nobody has made: it goes in the largest pieces that take as much as before.
    pub fn restore(&self) -> io::Result<()> {
        let (mut small_enough, mut too_large) = (0, self.len().max(1));
        if self.fill(too_large)? {
            return Ok(());
        }
        while too_large - small_enough > 1 {
            let most = small_enough + (too_large - small_enough) / 2;
            match self.fill(most)? {
                true => small_enough = most,
                false => too_large = most,
            }
        }
        self.fill(small_enough.max(1)).map(|_| ())
    }

    /// Fill the queue with pieces of at most that length. Whether they take as much as before, where their length is
    /// ours to choose.
    fn fill(&self, most: usize) -> io::Result<bool> {
        self.queue.drain();
        self.contents.iter().try_for_each(|piece| piece.send_to(&self.queue, most))?;
        let is_ours = self.queue.is_stream && self.contents.iter().any(|piece| piece.descriptors.is_empty());
        Ok(!is_ours || sys::unread(self.queue.sender.as_fd())? >= self.memory)
    }

    /// The descriptors in its messages.
    pub fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        self.contents.iter().flat_map(|piece| &piece.descriptors)
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
    use rustix::net::send;

    fn pair(kind: SocketType) -> (Arc<OwnedFd>, Arc<OwnedFd>) {
        let (receiver, sender) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Arc::new(receiver), Arc::new(sender))
    }

    fn queue(ends: &(Arc<OwnedFd>, Arc<OwnedFd>)) -> Queue {
        Queue::new(Arc::clone(&ends.0), Arc::clone(&ends.1)).unwrap()
    }

    fn remember(ends: &(Arc<OwnedFd>, Arc<OwnedFd>)) -> io::Result<Queued> {
        queue(ends).remember(&mut |fd| Ok(Descriptor::Open(Arc::new(fd))))
    }

    /// A message with the reading ends of pipes that have these bytes in them.
    fn put_with(end: &OwnedFd, bytes: &[u8], in_pipes: &[&[u8]]) {
        let readers: Vec<OwnedFd> = in_pipes
            .iter()
            .map(|bytes| {
                let (reader, writer) = rustix::pipe::pipe().unwrap();
                rustix::io::write(&writer, bytes).unwrap();
                reader
            })
            .collect();
        let rights: Vec<BorrowedFd> = readers.iter().map(|fd| fd.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); 64];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(end, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT).unwrap();
    }

    /// What one call receives, and what is in the pipes that come with it.
    fn take_with(end: &OwnedFd, room: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut bytes = vec![0; room];
        let mut space = [MaybeUninit::uninit(); 64];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let len = rustix::net::recvmsg(end, &mut parts, &mut control, RecvFlags::DONTWAIT).map_or(0, |got| got.bytes);
        bytes.truncate(len);
        let mut in_pipes = Vec::new();
        for message in control.drain() {
            if let rustix::net::RecvAncillaryMessage::ScmRights(rights) = message {
                for fd in rights {
                    let mut inside = vec![0; 100];
                    let len = rustix::io::read(&fd, &mut inside).unwrap();
                    inside.truncate(len);
                    in_pipes.push(inside);
                }
            }
        }
        (bytes, in_pipes)
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
        let queued = remember(&ends).unwrap();
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
            let queued = remember(&ends).unwrap();
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
            let queued = remember(&ends).unwrap();
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
    fn what_is_put_back_leaves_no_more_room() {
        for len in [1, 100, 4096, 20_000] {
            let ends = pair(SocketType::STREAM);
            while send(&*ends.1, &vec![b'x'; len], SendFlags::DONTWAIT).is_ok() {}
            let before = sys::unread(ends.1.as_fd()).unwrap();
            let queued = remember(&ends).unwrap();
            while !take(&ends.0, 50_000).is_empty() {}
            queued.restore().unwrap();
            let after = sys::unread(ends.1.as_fd()).unwrap();
            assert!((before..before + before / 4).contains(&after), "{len}: {before}, {after}");
        }
    }

    fn received(end: &OwnedFd) -> Vec<(String, Vec<String>)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let one = || Some(take_with(end, 100)).filter(|(bytes, _)| !bytes.is_empty());
        let each = |(bytes, pipes): (Vec<u8>, Vec<Vec<u8>>)| (text(bytes), pipes.into_iter().map(text).collect());
        std::iter::from_fn(one).map(each).collect()
    }

    fn message(text: &str, in_pipes: &[&str]) -> (String, Vec<String>) {
        (text.to_owned(), in_pipes.iter().map(|&text| text.to_owned()).collect())
    }

    #[test]
    fn descriptors_come_again_with_their_bytes() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM] {
            let ends = pair(kind);
            put_with(&ends.1, b"with two", &[b"one", b"two"]);
            put_with(&ends.1, b"x", &[b"three"]);
            put(&ends.1, b"end");
            let queued = remember(&ends).unwrap();
            assert_eq!(queued.descriptors().count(), 3);
            while !take(&ends.0, 100).is_empty() {}
            queued.restore().unwrap();
            let expected = [message("with two", &["one", "two"]), message("x", &["three"]), message("end", &[])];
            assert_eq!(received(&ends.0), expected, "{kind:?}");
        }
    }

    #[test]
    fn packets_before_one_with_descriptors_are_kept() {
        let ends = pair(SocketType::SEQPACKET);
        put(&ends.1, b"plain");
        put_with(&ends.1, b"message", &[b"inside"]);
        let queued = remember(&ends).unwrap();
        while !take(&ends.0, 100).is_empty() {}
        queued.restore().unwrap();
        assert_eq!(received(&ends.0), [message("plain", &[]), message("message", &["inside"])]);
    }

    #[test]
    fn a_message_whose_begin_nobody_knows_is_refused() {
        for plain in [1, 7, 4000] {
            let ends = pair(SocketType::STREAM);
            put(&ends.1, &vec![b'p'; plain]);
            put_with(&ends.1, b"message", &[b"inside"]);
            assert_eq!(remember(&ends).unwrap_err().kind(), io::ErrorKind::Unsupported, "{plain}");
            assert_eq!(take_with(&ends.0, plain), (vec![b'p'; plain], vec![]));
            // Now it is alone. Its rest has none any more.
            let queued = remember(&ends).unwrap();
            assert_eq!(queued.descriptors().count(), 1);
            assert_eq!(take_with(&ends.0, 1), (b"m".to_vec(), vec![b"inside".to_vec()]), "{plain}");
            assert_eq!(remember(&ends).unwrap().descriptors().count(), 0);
        }
    }

    #[test]
    fn what_could_not_be_given_again_is_refused() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let ends = pair(kind);
            rustix::net::sockopt::set_socket_passcred(&*ends.0, true).unwrap();
            put(&ends.1, b"with credentials");
            let refused = remember(&ends).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{kind:?}");
        }
        let ends = pair(SocketType::STREAM);
        rustix::net::shutdown(&*ends.1, rustix::net::Shutdown::Write).unwrap();
        assert_eq!(remember(&ends).unwrap_err().kind(), io::ErrorKind::Unsupported, "nothing can be added");
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
