//! What is in a pipe, and how it is put back (000, 6.5).
//!
//! Bytes alone do not put a pipe back. It has room for a number of *buffers* (a page or less each), whatever is in
//! them, and a packet ends where its buffer does (pipe(7), `O_DIRECT`). So the contents are kept buffer by buffer. A
//! pipe without ends forgets how large it was made: that is kept, too.

use crate::ahead::rollback::undo::open_both;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice, tee, PipeFlags, SpliceFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A pipe's buffer cannot be larger than this unless it came from elsewhere than a write.
const PAGE: usize = 4096;

/// Bytes in a pipe that a reader gets together, or less of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Buffer {
    bytes: Vec<u8>,
    /// A reader gets nothing else with them.
    is_packet: bool,
}

/// What is in a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Of all buffers, bytes.
    size: usize,
    buffers: Vec<Buffer>,
}

/// A pipe of our own, never full and never waiting.
#[derive(Debug)]
struct OwnPipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl OwnPipe {
    fn new(size: usize) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if fcntl_getpipe_size(writer.as_fd())? != size {
            fcntl_setpipe_size(writer.as_fd(), size)?;
        }
        Ok(Self { reader, writer })
    }

    /// With room for one buffer.
    fn of_one_buffer() -> io::Result<Self> {
        Self::new(PAGE)
    }
}

impl Contents {
    /// Bytes that it holds.
    pub fn len(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.bytes.len()).sum()
    }

    /// What is in `pipe`, and stays there.
    pub fn of(pipe: &OwnedFd) -> io::Result<Self> {
        // Both ends for a moment; nobody can see that: whoever could is asked about every call, by this thread.
        let both = open_both(pipe)?;
        let size = fcntl_getpipe_size(both.as_fd())?;
        let mut this = Self { size, buffers: Vec::new() };
        let copy = OwnPipe::new(size)?;
        let len = match tee(&both, &copy.writer, size, SpliceFlags::NONBLOCK) {
            Err(Errno::AGAIN) => 0,
            len => len?,
        };
        if len > 0 {
            this.take_from(&copy, len)?;
        }
        Ok(this)
    }

    fn take_from(&mut self, copy: &OwnPipe, len: usize) -> io::Result<()> {
        let one = OwnPipe::of_one_buffer()?;
        let looked_at = OwnPipe::new(2 * PAGE)?;
        let mut rest = len;
        while rest > 0 {
            let len = splice(&copy.reader, None, &one.writer, None, rest, SpliceFlags::NONBLOCK)?;
            rest -= len;
            splice(&one.reader, None, &looked_at.writer, None, len, SpliceFlags::NONBLOCK)?;
            self.buffers.push(Buffer::read(&looked_at, len)?);
        }
        Ok(())
    }

    /// Make these all that is in `pipe`.
    pub fn put_back(&self, pipe: &OwnedFd) -> io::Result<()> {
        let both = open_both(pipe)?;
        let mut scratch = [0u8; 65536];
        while matches!(rustix::io::read(&both, &mut scratch), Ok(n) if n > 0) {}
        if fcntl_getpipe_size(both.as_fd())? != self.size {
            fcntl_setpipe_size(both.as_fd(), self.size)?;
        }
        if self.buffers.is_empty() {
            return Ok(());
        }
        let one = OwnPipe::of_one_buffer()?;
        self.buffers.iter().try_for_each(|buffer| buffer.write(&one, &both))
    }
}

impl Buffer {
    /// The only one in `pipe`, of `len` bytes.
    fn read(pipe: &OwnPipe, len: usize) -> io::Result<Self> {
        // Together with another byte, unless it is a packet.
        rustix::io::write(&pipe.writer, &[0])?;
        let mut bytes = vec![0; len + 1];
        let is_packet = rustix::io::read(&pipe.reader, &mut bytes)? == len;
        if is_packet {
            rustix::io::read(&pipe.reader, &mut [0])?;
        }
        bytes.truncate(len);
        Ok(Self { bytes, is_packet })
    }

    /// Into `pipe`, as a buffer of its own: one that is moved as a whole is not joined with what is there.
    fn write(&self, one: &OwnPipe, pipe: &OwnedFd) -> io::Result<()> {
        let mut flags = OFlags::WRONLY | OFlags::NONBLOCK;
        flags.set(OFlags::DIRECT, self.is_packet);
        rustix::fs::fcntl_setfl(&one.writer, flags)?;
        for part in self.bytes.chunks(PAGE) {
            rustix::io::write(&one.writer, part)?;
            splice(&one.reader, None, pipe, None, part.len(), SpliceFlags::NONBLOCK)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 16 * PAGE;

    fn fill(pipe: &OwnPipe) -> usize {
        let bytes = vec![7; SIZE];
        std::iter::from_fn(|| rustix::io::write(&pipe.writer, &bytes).ok()).sum()
    }

    fn read(pipe: &OwnPipe, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let len = rustix::io::read(&pipe.reader, &mut bytes).unwrap_or(0);
        bytes.truncate(len);
        bytes
    }

    /// Keeps what is in `pipe`, has `then` change it, and puts it back.
    fn kept_over(pipe: &OwnPipe, then: impl FnOnce(&OwnPipe)) {
        let contents = Contents::of(&pipe.reader).unwrap();
        then(pipe);
        contents.put_back(&pipe.reader).unwrap();
        assert_eq!(Contents::of(&pipe.reader).unwrap(), contents);
    }

    #[test]
    fn a_full_pipe_with_a_begun_first_page_is_as_full_again() {
        let pipe = OwnPipe::new(SIZE).unwrap();
        assert_eq!(fill(&pipe), SIZE);
        assert_eq!(read(&pipe, 1000).len(), 1000);
        kept_over(&pipe, |pipe| {
            read(pipe, 9000);
            fill(pipe);
        });
        assert_eq!(fill(&pipe), 0, "fifteen pages and a part of one take all sixteen buffers");
        assert_eq!(read(&pipe, SIZE).len(), SIZE - 1000);
    }

    #[test]
    fn packets_stay_packets() {
        let pipe = OwnPipe::new(SIZE).unwrap();
        rustix::fs::fcntl_setfl(&pipe.writer, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::DIRECT).unwrap();
        for packet in [&b"abc"[..], b"d", b"efghi"] {
            rustix::io::write(&pipe.writer, packet).unwrap();
        }
        kept_over(&pipe, |pipe| assert_eq!(read(pipe, 2), b"ab"));
        assert_eq!(read(&pipe, 100), b"abc");
        assert_eq!(read(&pipe, 100), b"d");
        assert_eq!(read(&pipe, 2), b"ef");
        assert!(read(&pipe, 100).is_empty());
    }

    #[test]
    fn what_is_written_next_still_joins_the_last_page() {
        let pipe = OwnPipe::new(PAGE).unwrap();
        rustix::io::write(&pipe.writer, b"ab").unwrap();
        kept_over(&pipe, |pipe| assert_eq!(read(pipe, 1), b"a"));
        rustix::io::write(&pipe.writer, b"c").unwrap();
        assert_eq!(read(&pipe, 10), b"abc");
    }

    #[test]
    fn a_size_that_was_set_is_set_again() {
        let pipe = OwnPipe::new(SIZE).unwrap();
        fill(&pipe);
        kept_over(&pipe, |pipe| {
            read(pipe, SIZE);
            fcntl_setpipe_size(pipe.writer.as_fd(), PAGE).unwrap();
        });
        assert_eq!(read(&pipe, 2 * SIZE).len(), SIZE);
    }
}
