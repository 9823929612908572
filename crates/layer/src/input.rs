//! What COMMAND reads. It never gets a descriptor through which it could write outside: our standard input is copied
//! into a pipe. What COMMAND did not read is there for whoever reads next, as in a loop that reads names and tries
//! something with each. Of a file the place is put back; of a pipe or a socket a copy is made of what comes, and it is
//! taken when COMMAND has read the copy.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::thread::JoinHandle;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::SpliceFlags;

/// Our standard input, for COMMAND.
pub struct Input {
    reader: OwnedFd,
    writer: OwnedFd,
    source: Source,
    /// Where what is taken goes.
    nowhere: File,
    stopped: io::PipeReader,
    stop: io::PipeWriter,
}

/// How it is read.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A file, from this place on.
    File(u64),
    Pipe,
    Socket,
    /// What was read cannot be given back.
    Other,
}

/// Something copies it.
pub struct Copying {
    reader: OwnedFd,
    source: Source,
    nowhere: File,
    stop: io::PipeWriter,
    /// How many bytes were copied that COMMAND has or had, and that were not taken from where they came from.
    copier: JoinHandle<u64>,
}

/// COMMAND's standard input; and, if ours has to be copied into it, what copies.
pub fn prepare(is_terminal: bool) -> io::Result<(OwnedFd, Option<Input>)> {
    let null = || Ok((File::open("/dev/null")?.into(), None));
    if is_terminal {
        return null();
    }
    let stdin = rustix::stdio::stdin();
    let Ok(found) = File::from(stdin.try_clone_to_owned()?).metadata() else { return null() };
    let kind = found.file_type();
    // A terminal is not for a program whose questions nobody sees.
    if kind.is_char_device() || kind.is_block_device() || kind.is_dir() {
        return null();
    }
    let source = match () {
        () if kind.is_file() => rustix::fs::seek(stdin, SeekFrom::Current(0)).map_or(Source::Other, Source::File),
        () if kind.is_fifo() => Source::Pipe,
        () if kind.is_socket() => Source::Socket,
        () => Source::Other,
    };
    let (reader, writer) = io::pipe()?;
    let (reader, writer): (OwnedFd, OwnedFd) = (reader.into(), writer.into());
    if matches!(source, Source::Pipe | Source::Socket) {
        // Of one page there is room only when all of it was read.
        rustix::pipe::fcntl_setpipe_size(&writer, rustix::param::page_size())?;
    }
    let (stopped, stop) = io::pipe()?;
    let nowhere = File::options().write(true).open("/dev/null")?;
    Ok((reader.try_clone()?, Some(Input { reader, writer, source, nowhere, stopped, stop })))
}

impl Input {
    /// COMMAND may begin to read.
    pub fn start(self) -> io::Result<Copying> {
        let Input { reader, writer, source, nowhere, stopped, stop } = self;
        let copiers = nowhere.try_clone()?;
        let copier = std::thread::Builder::new().spawn(move || match source {
            Source::File(_) | Source::Other => copy(&writer, &stopped),
            Source::Pipe | Source::Socket => show(source, &writer, &copiers, &stopped),
        })?;
        Ok(Copying { reader, source, nowhere, stop, copier })
    }
}

impl Copying {
    /// What COMMAND did not read is there for whoever reads next. Nobody who could read it is there any more.
    pub fn give_back(self) {
        let Copying { reader, source, nowhere, stop, copier } = self;
        drop(stop);
        match source {
            Source::File(begun_at) => {
                // Whoever copies may wait for room in the pipe, and closes it then.
                let unread = io::copy(&mut File::from(reader), &mut io::sink()).unwrap_or(0);
                let read = copier.join().map_or(0, |copied| copied.saturating_sub(unread));
                let _ = rustix::fs::seek(rustix::stdio::stdin(), SeekFrom::Start(begun_at + read));
            }
            Source::Pipe | Source::Socket => {
                let shown = copier.join().unwrap_or(0);
                let unread = rustix::io::ioctl_fionread(&reader).unwrap_or(0);
                let _ = take(source, rustix::stdio::stdin(), &nowhere, shown.saturating_sub(unread));
            }
            // It ends when it can be read.
            Source::Other => {}
        }
    }
}

/// Copies our standard input into a pipe, in pieces that are written as a whole. How many bytes were.
fn copy(writer: &OwnedFd, stopped: &io::PipeReader) -> u64 {
    let (mut buffer, mut copied) = ([0; 4096], 0);
    while !is_ready(stopped.as_fd()) {
        // Not through the standard library, which reads ahead.
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Err(Errno::INTR) => {}
            Ok(len) if len > 0 && write_all(writer, &buffer[..len]).is_ok() => copied += len as u64,
            _ => break,
        }
    }
    copied
}

/// Copies what comes, and takes it when it was read. How much was not taken.
///
/// Nothing here waits for our standard input but `await_one`: others may read there as well, and take what has just
/// been seen.
fn show(source: Source, writer: &OwnedFd, nowhere: &File, stopped: &io::PipeReader) -> u64 {
    let stdin = rustix::stdio::stdin();
    // tee(2) says the same where nothing is there and where there is no room, as COMMAND can write to its own input.
    let mut is_input_next = true;
    loop {
        // First of all: of a FIFO that nobody has opened for writing yet, poll(2) would not say that it has ended.
        match look(source, stdin, writer) {
            Ok(shown @ 1..) => {
                if !await_one(writer.as_fd(), PollFlags::OUT, stopped) {
                    return shown;
                }
                if take(source, stdin, nowhere, shown).is_err() {
                    return 0;
                }
                is_input_next = true;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let (next, event) =
                    if is_input_next { (stdin, PollFlags::IN) } else { (writer.as_fd(), PollFlags::OUT) };
                if !await_one(next, event, stopped) {
                    return 0;
                }
                is_input_next = !is_input_next;
            }
            _ => return 0,
        }
    }
}

const PIECE: usize = 4096;

/// Copies what is there into a pipe that is empty; EAGAIN if nothing is.
fn look(source: Source, from: BorrowedFd<'_>, writer: &OwnedFd) -> Result<u64, Errno> {
    if let Source::Pipe = source {
        return look_into_pipe(from, writer);
    }
    let mut buffer = [0; PIECE];
    let (len, _) = rustix::net::recv(from, &mut buffer[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    write_all(writer, &buffer[..len]).map(|()| len as u64)
}

fn look_into_pipe(from: BorrowedFd<'_>, writer: &OwnedFd) -> Result<u64, Errno> {
    // tee(2) answers 0 at the end, and also if another reader takes what is there in the middle of the call.
    const TRIES: u32 = 16;
    for _ in 0..TRIES {
        let shown = rustix::pipe::tee(from, writer, PIECE, SpliceFlags::NONBLOCK)?;
        if shown > 0 {
            return Ok(shown as u64);
        }
    }
    Ok(0)
}

/// Takes so much of what was looked at, as far as nobody else has taken it.
fn take(source: Source, from: BorrowedFd<'_>, nowhere: &File, mut len: u64) -> Result<(), Errno> {
    let mut buffer = [0; PIECE];
    while len > 0 {
        let most = PIECE.min(usize::try_from(len).unwrap_or(PIECE));
        let taken = match source {
            // A read(2) of a pipe could wait.
            Source::Pipe => rustix::pipe::splice(from, None, nowhere, None, most, SpliceFlags::NONBLOCK),
            _ => rustix::net::recv(from, &mut buffer[..most], RecvFlags::DONTWAIT).map(|(len, _)| len),
        };
        match taken {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(taken) => len = len.saturating_sub(taken as u64),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_all(writer: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(writer, bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits; false if it is over before, or if all that can be said is an error, which poll(2) says again and again.
fn await_one(fd: BorrowedFd<'_>, event: PollFlags, stopped: &io::PipeReader) -> bool {
    loop {
        let mut polls = [PollFd::from_borrowed_fd(fd, event), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut polls, None) {
            Ok(_) if !polls[1].revents().is_empty() => return false,
            Ok(_) => {
                let found = polls[0].revents();
                return found.contains(event) || !found.intersects(PollFlags::ERR | PollFlags::NVAL);
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn is_ready(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// What another reader has taken since poll(2) has shown it. If one of them waited, this would never end.
    #[test]
    fn nothing_waits_for_what_is_not_there_any_more() {
        let nowhere = File::options().write(true).open("/dev/null").unwrap();
        let (_reader, writer) = io::pipe().unwrap();
        let writer = writer.into();
        let (from, into) = io::pipe().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        for (source, from) in [(Source::Pipe, from.as_fd()), (Source::Socket, near.as_fd())] {
            assert_eq!(look(source, from, &writer), Err(Errno::AGAIN), "{source:?}");
            assert_eq!(take(source, from, &nowhere, 1), Ok(()), "{source:?}");
        }
        drop((into, far));
        for (source, from) in [(Source::Pipe, from.as_fd()), (Source::Socket, near.as_fd())] {
            assert_eq!(look(source, from, &writer), Ok(0), "{source:?}");
        }
    }

    /// poll(2) tells of it at once, and nothing takes it away.
    #[test]
    fn what_only_has_an_error_is_over() {
        let (_stop, stopped) = {
            let (stopped, stop) = io::pipe().unwrap();
            (stop, stopped)
        };
        let (reader, mut writer) = io::pipe().unwrap();
        let size = rustix::pipe::fcntl_setpipe_size(&writer, rustix::param::page_size()).unwrap();
        assert!(await_one(writer.as_fd(), PollFlags::OUT, &stopped));
        writer.write_all(&vec![0; size]).unwrap();
        drop(reader);
        assert!(!await_one(writer.as_fd(), PollFlags::OUT, &stopped));
    }

    #[test]
    fn what_is_looked_at_is_there_until_it_is_taken() {
        let nowhere = File::options().write(true).open("/dev/null").unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let writer = writer.into();
        let (mut from, mut into) = io::pipe().unwrap();
        into.write_all(b"12345").unwrap();
        assert_eq!(look(Source::Pipe, from.as_fd(), &writer), Ok(5));
        let mut seen = [0; 5];
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"12345");
        take(Source::Pipe, from.as_fd(), &nowhere, 3).unwrap();
        drop(into);
        let mut left = String::new();
        from.read_to_string(&mut left).unwrap();
        assert_eq!(left, "45");
    }
}
