//! What COMMAND prints is held until the try is kept: it goes into a file without a name, in the order in which it
//! came.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread::JoinHandle;

use rustix::event::{poll, PollFd, PollFlags};

/// Where something was printed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Everything that was printed.
#[derive(Debug)]
pub struct Held {
    spool: File,
    /// Where each piece belongs, and how long it is.
    pieces: Vec<(Stream, u64)>,
    /// The spool could not take everything.
    failed: Option<io::Error>,
}

/// Takes what is printed until it is told to stop, or everybody who could print is gone.
#[derive(Debug)]
pub struct Collector {
    stop: io::PipeWriter,
    thread: JoinHandle<Held>,
}

impl Collector {
    /// `readers` are the reading ends of what COMMAND has as its standard output and error.
    pub fn start(dir: &Path, readers: Vec<(Stream, OwnedFd)>) -> io::Result<Collector> {
        let mut options = OpenOptions::new();
        let spool = options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(dir)?;
        let (stopped, stop) = io::pipe()?;
        let held = Held { spool, pieces: Vec::new(), failed: None };
        let thread = std::thread::Builder::new().spawn(move || collect(readers, stopped.into(), held))?;
        Ok(Collector { stop, thread })
    }

    /// What has been printed so far; nothing more is taken.
    pub fn finish(self) -> io::Result<Held> {
        drop(self.stop);
        self.thread.join().map_err(|_| io::Error::other("the reader of what was printed ended"))
    }
}

fn collect(mut readers: Vec<(Stream, OwnedFd)>, stopped: OwnedFd, mut held: Held) -> Held {
    let mut stopping = false;
    while !readers.is_empty() {
        let mut polls: Vec<PollFd<'_>> = readers.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
        polls.push(PollFd::new(&stopped, PollFlags::IN));
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polls, stopping.then_some(&now)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
        let ready: Vec<bool> = polls.iter().map(|poll| !poll.revents().is_empty()).collect();
        if ready.last() == Some(&true) && stopping && ready.iter().filter(|ready| **ready).count() == 1 {
            break;
        }
        stopping |= ready.last() == Some(&true);
        let mut index = 0;
        readers.retain(|(stream, fd)| {
            index += 1;
            !ready[index - 1] || held.take(*stream, fd)
        });
    }
    held
}

impl Held {
    /// False at the end of the stream.
    fn take(&mut self, stream: Stream, fd: &OwnedFd) -> bool {
        let mut buffer = [0; 64 << 10];
        let len = match rustix::io::read(fd, &mut buffer) {
            Ok(0) => return false,
            Ok(len) => len,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return true,
            Err(_) => return false,
        };
        if self.failed.is_none() {
            match self.spool.write_all(&buffer[..len]) {
                Ok(()) => self.note(stream, len as u64),
                Err(error) => self.failed = Some(error),
            }
        }
        true
    }

    fn note(&mut self, stream: Stream, len: u64) {
        match self.pieces.last_mut() {
            Some((last, bytes)) if *last == stream => *bytes += len,
            _ => self.pieces.push((stream, len)),
        }
    }

    /// Bytes printed on a stream.
    pub fn len(&self, stream: Stream) -> u64 {
        self.pieces.iter().filter(|(of, _)| *of == stream).map(|(_, len)| len).sum()
    }

    /// Bytes printed.
    pub fn total(&self) -> u64 {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    /// The last bytes of what was printed, on both streams as it came.
    pub fn ending(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let total = self.total();
        let from = total.saturating_sub(bytes_max as u64);
        let mut text = vec![0; (total - from) as usize];
        self.spool.read_exact_at(&mut text, from)?;
        Ok(text)
    }

    /// Each piece of what was printed, in its order, from the byte `from` on.
    pub fn pieces(&self, from: u64) -> io::Result<Vec<(Stream, Vec<u8>)>> {
        let mut at = 0;
        let mut pieces = Vec::new();
        for &(stream, len) in &self.pieces {
            let begin = at.max(from);
            at += len;
            if begin < at {
                let mut bytes = vec![0; (at - begin) as usize];
                self.spool.read_exact_at(&mut bytes, begin)?;
                pieces.push((stream, bytes));
            }
        }
        Ok(pieces)
    }

    /// Why not everything that was printed is here.
    pub fn failed(&self) -> Option<&io::Error> {
        self.failed.as_ref()
    }

    /// Writes everything into a new file, on both streams as it came.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        copy(Piece { spool: &self.spool, at: 0, end: self.total() }, &mut file)
    }

    /// Writes everything to our own standard output and error. A reader that is gone is no failure.
    pub fn release(&self) -> io::Result<()> {
        let mut at = 0;
        for &(stream, len) in &self.pieces {
            let piece = Piece { spool: &self.spool, at, end: at + len };
            match stream {
                Stream::Out => copy(piece, &mut Patient(rustix::stdio::stdout()))?,
                Stream::Err => copy(piece, &mut Patient(rustix::stdio::stderr()))?,
            }
            at += len;
        }
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}

fn copy(mut from: Piece<'_>, to: &mut impl Write) -> io::Result<()> {
    match io::copy(&mut from, to) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => to.flush(),
    }
}

/// A stream that others may have made non-blocking: waits for its reader all the same.
struct Patient(BorrowedFd<'static>);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.0, bytes) {
                Err(rustix::io::Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None);
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Piece<'a> {
    spool: &'a File,
    at: u64,
    end: u64,
}

impl Read for Piece<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let len = self.spool.read_at(&mut buffer[..want], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}
