//! What undoes an operation on an object (000, 6.2 to 6.9), and how it is done.

use crate::ahead::filesystems::memory::inverse::{Before, Change};
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::objects::epoll;
use crate::ahead::objects::file_lock::LockBefore;
use crate::ahead::objects::input::{Reading, SourceId};
use crate::ahead::objects::kind::{OpenObject, State};
use crate::ahead::objects::pipe::Contents;
use crate::ahead::objects::record_lock::RecordsBefore;
use crate::ahead::objects::sockets::accept::Accepted;
use crate::ahead::objects::sockets::queue::Queued;
use crate::ahead::objects::sockets::servers::ServerStep;
use crate::ahead::objects::sockets::shutdown::Closed;
use crate::ahead::objects::sockets::Direction;
use crate::ahead::process::signals::Sent;
use crate::ahead::speculations::bounds::Counted;
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use procfs::{ProcessId, ThreadId};
use rustix::fs::{FileType, OFlags, SeekFrom};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a call is about to do to an object: enough to make its undo, if one is needed.
#[derive(Debug)]
pub(crate) enum Intent {
    /// Put bytes into a pipe, take some out, or close one of its ends.
    Stream(OwnedFd),
    /// Send something to a Unix socket, or receive it.
    Queue(Direction),
    /// Take a connection out of the queue of a socket that listens.
    Accept { listener: u64, accepted: Arc<Accepted> },
    /// Put one into it.
    Connect { listener: u64, client: OwnedFd },
    /// Make a server of a socket.
    Server { ino: u64, step: ServerStep },
    /// Close directions of a connection.
    Shutdown { own: u64, closed: Closed },
    /// Change the state of an object of some kind.
    State(OpenObject),
    /// Change what is in an epoll set, or be told of it.
    EpollSet(epoll::Change),
    /// Read what comes from outside.
    Input { id: SourceId, pin: OwnedFd, reading: Arc<Reading> },
    /// Move the position of an open file.
    Position(OwnedFd),
    /// Close a descriptor, or put another object in its place.
    Close(i32),
    /// Change whether exec closes a descriptor.
    CloseOnExec(i32),
    /// Take the lock of a file, or give it up.
    Lock(LockBefore),
    /// Take a record lock of a file, or give it up.
    Records(RecordsBefore),
    /// Map a file that gets this mirror.
    Mirror((u64, u64)),
    /// Change an open file's flags.
    Flags(OwnedFd),
    /// Change those of a pipe's end.
    EndFlags { fd: i32, end: OwnedFd },
    /// Change a file in memory, or its name.
    Memory(Change),
    /// Learn how a child ended. `is_told`: the process hears of that end from us, not from the kernel.
    Reap { child: ProcessId, is_told: bool },
    /// Send a signal.
    Send { receiver: ProcessId, number: u64 },
    /// Something whose undo is part of another one.
    Nothing,
}

/// How an operation is undone.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Changes of files are most of them.
pub(crate) enum Undo {
    /// What was in the pipe.
    Stream { pipe: OwnedFd, contents: Contents, _kept: Counted },
    /// What waited in the socket.
    Queue(Queued, #[expect(dead_code, reason = "its end counts")] Counted),
    /// The connection that was accepted, to be accepted again.
    Accept { listener: u64, accepted: Arc<Accepted> },
    /// The client that was not connected.
    Connect { listener: u64, client: u64, held: Arc<OwnedFd> },
    /// What was not done to a socket.
    Server { ino: u64, step: ServerStep },
    /// What was closed of a connection, as far as it is held.
    Shutdown { own: u64, before: Closed, closed: Closed },
    /// What the state of the object was.
    State { file: Arc<OwnedFd>, state: Box<dyn State> },
    /// What was in the epoll set.
    EpollSet(epoll::Before),
    /// What was read from outside, to be given again.
    Input { id: SourceId, pin: OwnedFd, reading: Arc<Reading> },
    /// Where the position was.
    Position { file: OwnedFd, position: u64 },
    /// What was behind the descriptor.
    Descriptor { pid: ProcessId, fd: i32, was: Descriptor, close_on_exec: bool },
    /// Whether exec would have closed it.
    CloseOnExec { pid: ProcessId, fd: i32, was: bool },
    /// Whether it was locked.
    Lock(LockBefore),
    /// Who had record locks.
    Records(RecordsBefore),
    /// That there is this mirror of a mapped file.
    Mirror((u64, u64)),
    /// The open file's flags.
    Flags { file: Arc<OwnedFd>, flags: OFlags },
    /// Those of a pipe's end, and who had it open, by which descriptors. The end itself is not kept, so that
    /// end-of-file and EPIPE stay true.
    EndFlags { pipe: (u64, u64), holders: Vec<(ProcessId, i32)>, flags: OFlags },
    /// The file in memory, or its name.
    Memory(Box<Before>, #[expect(dead_code, reason = "its end counts")] Counted),
    /// The child that had not been waited for. `is_told`: as of [`Intent::Reap`].
    Reap { child: ProcessId, is_told: bool },
    /// The child of whose end the process had not heard.
    Told { parent: ProcessId, child: ProcessId, status: i32 },
    /// The signal that was sent.
    Sent { receiver: ProcessId, number: u64 },
    /// The signal that was heard.
    Heard { receiver: ProcessId, sent: Sent },
    /// Nothing.
    Nothing,
}

/// What is kept of a descriptor that was closed, or waits in a message.
#[derive(Debug)]
pub(crate) enum Descriptor {
    /// The open file itself.
    Open(Arc<OwnedFd>),
    /// A pipe's end. Only a path to the pipe is kept, so that end-of-file and EPIPE stay true for the others; and who
    /// has the same open file by another descriptor.
    PipeEnd { path: OwnedFd, flags: OFlags, holders: Vec<(ProcessId, i32)> },
}

impl Descriptor {
    /// A descriptor of the same object.
    pub fn open(&self) -> io::Result<Arc<OwnedFd>> {
        match self {
            Self::Open(open) => Ok(Arc::clone(open)),
            Self::PipeEnd { path, flags, .. } => Ok(Arc::new(open_end(path, *flags)?)),
        }
    }

    /// Both ends of the pipe, if it is one of them.
    fn both_ends(&self) -> Option<OwnedFd> {
        match self {
            Self::Open(_) => None,
            Self::PipeEnd { path, .. } => open_both(path).ok(),
        }
    }
}

impl Undo {
    /// Both ends of each pipe that is put back.
    pub fn pipes(&self) -> Vec<OwnedFd> {
        match self {
            Self::Stream { pipe, .. } => open_both(pipe).ok().into_iter().collect(),
            Self::Descriptor { was, .. } => was.both_ends().into_iter().collect(),
            Self::Queue(queued, _) => queued.descriptors().filter_map(Descriptor::both_ends).collect(),
            _ => Vec::new(),
        }
    }
}

impl Supervisor {
    pub(crate) fn undo_of(&mut self, tid: ThreadId, intent: Intent) -> io::Result<Undo> {
        Ok(match intent {
            Intent::Stream(pipe) => {
                let contents = Contents::of(&pipe)?;
                // A path holds neither end open.
                let kept = Counted::new(contents.len());
                Undo::Stream { pipe: path_to(&pipe)?, contents, _kept: kept }
            }
            Intent::Queue(direction) => {
                let queued = self.remember_queue(direction)?;
                let kept = Counted::new(queued.len());
                Undo::Queue(queued, kept)
            }
            Intent::Accept { listener, accepted } => Undo::Accept { listener, accepted },
            Intent::Server { ino, step } => self.remember_server(ino, step),
            Intent::Shutdown { own, closed } => {
                Undo::Shutdown { own, before: self.ahead.shutdowns.closed_by(own), closed }
            }
            Intent::Connect { listener, client } => {
                let ino = rustix::fs::fstat(&client)?.st_ino;
                Undo::Connect { listener, client: ino, held: self.ahead.ends.hold(ino, client) }
            }
            Intent::State(object) => Undo::State { state: object.state()?, file: object.file },
            Intent::EpollSet(change) => Undo::EpollSet(self.remember_set(tid, change)?),
            Intent::Position(file) => {
                let position = rustix::fs::seek(&file, SeekFrom::Current(0)).unwrap_or(0);
                Undo::Position { file, position }
            }
            Intent::Close(fd) => {
                let pid = self.pid_of(tid)?;
                let copy = self.copy_descriptor(tid, fd)?;
                let close_on_exec = is_close_on_exec(pid, fd)?;
                let mut was = self.keep(copy)?;
                if let Descriptor::PipeEnd { holders, .. } = &mut was {
                    *holders = self.holders_of_end((pid.leader(), fd));
                    holders.retain(|&holder| holder != (pid, fd));
                }
                Undo::Descriptor { pid, fd, was, close_on_exec }
            }
            Intent::CloseOnExec(fd) => {
                let pid = self.pid_of(tid)?;
                Undo::CloseOnExec { pid, fd, was: is_close_on_exec(pid, fd)? }
            }
            Intent::Flags(file) => {
                let flags = rustix::fs::fcntl_getfl(&file)?;
                Undo::Flags { file: self.hold(file)?, flags }
            }
            Intent::EndFlags { fd, end } => {
                let pipe = rustix::fs::fstat(&end)?;
                let pid = self.pid_of(tid)?;
                let holders = self.holders_of_end((pid.leader(), fd));
                let flags = rustix::fs::fcntl_getfl(&end)?;
                Undo::EndFlags { pipe: (pipe.st_dev, pipe.st_ino), holders, flags }
            }
            Intent::Lock(before) => Undo::Lock(before),
            Intent::Records(before) => Undo::Records(before),
            Intent::Input { id, pin, reading } => Undo::Input { id, pin, reading },
            Intent::Memory(change) => {
                let before = change.remember()?;
                let kept = Counted::new(before.len());
                Undo::Memory(Box::new(before), kept)
            }
            Intent::Reap { child, is_told } => Undo::Reap { child, is_told },
            Intent::Send { receiver, number } => Undo::Sent { receiver, number },
            Intent::Mirror(copied) => Undo::Mirror(copied),
            Intent::Nothing => Undo::Nothing,
        })
    }

    /// All who have the same end of a pipe open, as processes and their descriptors.
    fn holders_of_end(&mut self, end: (ThreadId, i32)) -> Vec<(ProcessId, i32)> {
        let pids = self.processes();
        let of = |pid: ProcessId| {
            let descriptors = self.descriptors_of(pid).unwrap_or_default();
            descriptors.into_iter().map(move |fd| (pid, fd))
        };
        let is_same = |&other: &(ProcessId, i32)| crate::sys::are_same_file(end, other).unwrap_or(false);
        pids.into_iter().flat_map(of).filter(is_same).collect()
    }

    /// What was closed, for whoever had it. The end of a pipe is the open file of those who have it still, or again:
    /// they share its flags, and sets of epoll know it by its file.
    pub(in crate::ahead) fn open_again(&mut self, was: &Descriptor) -> io::Result<Arc<OwnedFd>> {
        let Descriptor::PipeEnd { path, flags, holders } = was else { return was.open() };
        let pipe = rustix::fs::fstat(path)?;
        let is_end = |copy: &OwnedFd| {
            let mode = |flags: OFlags| flags & (OFlags::RWMODE | OFlags::PATH);
            rustix::fs::fstat(copy).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (pipe.st_dev, pipe.st_ino))
                && rustix::fs::fcntl_getfl(copy).is_ok_and(|now| mode(now) == mode(*flags))
        };
        for &(pid, fd) in holders {
            if let Some(copy) = self.copy_descriptor(pid.leader(), fd).ok().filter(is_end) {
                return Ok(Arc::new(copy));
            }
        }
        was.open()
    }

    /// Whoever has the end of the pipe, or has it again, finds its flags as they were.
    pub(in crate::ahead) fn restore_end_flags(
        &mut self,
        pipe: (u64, u64),
        holders: &[(ProcessId, i32)],
        flags: OFlags,
    ) {
        for &(pid, fd) in holders {
            let Ok(copy) = self.copy_descriptor(pid.leader(), fd) else { continue };
            let is_pipe = rustix::fs::fstat(&copy).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == pipe);
            let mode = |flags: OFlags| flags & OFlags::RWMODE;
            if is_pipe && rustix::fs::fcntl_getfl(&copy).is_ok_and(|now| mode(now) == mode(flags)) {
                // It is one that has these flags, or could have them.
                let _ = rustix::fs::fcntl_setfl(&copy, flags);
            }
        }
    }

    /// Of a process that was born on a guess and has no checkpoint nothing is put back: it is taken back by its end.
    /// What it closes need not be kept for it. (Of pipes and sockets the others are to see the same as ever.)
    pub(in crate::ahead) fn without_needless_copies(
        &mut self,
        call: &Call,
        mut modifies: Vec<(Object, Intent)>,
    ) -> Vec<(Object, Intent)> {
        for (_, intent) in &mut modifies {
            if self.concerns_what_goes_too(call, intent) {
                *intent = Intent::Nothing;
            }
        }
        if !self.ahead.is_speculative(call.pid) || self.ahead.checkpoints.of(call.pid).next().is_some() {
            return modifies;
        }
        for (_, intent) in &mut modifies {
            if matches!(intent, Intent::Close(fd) if self.is_plain_file(call.tid, *fd)) {
                *intent = Intent::Nothing;
            }
        }
        modifies
    }

    /// Whether all that an undo would put back is taken back itself, or nobody who is put back has it open. A new file
    /// must not be kept open for writing: nobody could execute it.
    fn concerns_what_goes_too(&mut self, call: &Call, intent: &Intent) -> bool {
        match intent {
            Intent::Close(fd) => self
                .copy_descriptor(call.tid, *fd)
                .is_ok_and(|copy| self.goes_with(call.pid, &copy) || self.closes_what_is_young(&copy)),
            Intent::Position(file) | Intent::Flags(file) | Intent::Stream(file) => {
                self.goes_with(call.pid, file) || self.is_young(file)
            }
            Intent::EndFlags { end, .. } => self.is_young(end),
            _ => false,
        }
    }

    fn is_plain_file(&mut self, tid: ThreadId, fd: i32) -> bool {
        let Ok(copy) = self.copy_descriptor(tid, fd) else { return false };
        let kind = rustix::fs::fstat(&copy).map(|stat| FileType::from_raw_mode(stat.st_mode));
        // With its last descriptor a lock would go, before what is held under it.
        kind.is_ok_and(|kind| matches!(kind, FileType::RegularFile | FileType::Directory))
            && !self.is_file_locked(&copy)
    }

    /// What an undo entry may hold of a descriptor that is closed, or in a message.
    pub(in crate::ahead) fn keep(&mut self, copy: OwnedFd) -> io::Result<Descriptor> {
        let flags = rustix::fs::fcntl_getfl(&copy)?;
        let is_end = !flags.contains(OFlags::PATH)
            && matches!(self.description_of(copy.try_clone()?), FileDescription::Pipe { .. });
        Ok(match is_end {
            true => Descriptor::PipeEnd { path: path_to(&copy)?, flags, holders: Vec::new() },
            false => Descriptor::Open(self.hold(copy)?),
        })
    }

    /// For an undo entry: of a socket it is to be known that it is held.
    fn hold(&mut self, file: OwnedFd) -> io::Result<Arc<OwnedFd>> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => self.ahead.ends.hold(stat.st_ino, file),
            _ => Arc::new(file),
        })
    }
}

/// Undo what needs no process.
pub(crate) fn apply_to_object(undo: &Undo) -> io::Result<()> {
    match undo {
        Undo::Stream { pipe, contents, .. } => contents.put_back(pipe),
        Undo::Position { file, position } => {
            // A pipe or terminal has no position.
            let _ = rustix::fs::seek(file, SeekFrom::Start(*position));
            Ok(())
        }
        Undo::Queue(queued, _) => queued.restore(),
        Undo::Lock(before) => {
            before.restore();
            Ok(())
        }
        Undo::Records(before) => {
            before.restore();
            Ok(())
        }
        Undo::State { file, state } => state.restore(file),
        Undo::Flags { file, flags } => Ok(rustix::fs::fcntl_setfl(file, *flags)?),
        Undo::Memory(before, _) => before.restore(),
        Undo::Input { .. }
        | Undo::EpollSet(_)
        | Undo::Accept { .. }
        | Undo::Connect { .. }
        | Undo::Server { .. }
        | Undo::Shutdown { .. }
        | Undo::Descriptor { .. }
        | Undo::CloseOnExec { .. }
        | Undo::EndFlags { .. }
        | Undo::Reap { .. }
        | Undo::Told { .. }
        | Undo::Sent { .. }
        | Undo::Heard { .. }
        | Undo::Mirror(_)
        | Undo::Nothing => Ok(()),
    }
}

/// A descriptor that names a pipe without being one of its ends.
pub(crate) fn path_to(pipe: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(procfs::own_path(pipe), OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty())?)
}

/// Open an end of a pipe again.
pub(crate) fn open_end(path: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
    let is_in_packets = flags.contains(OFlags::DIRECT);
    let flags = flags & (OFlags::RWMODE | OFlags::APPEND | OFlags::NONBLOCK);
    // Without O_NONBLOCK an open would wait for the other end.
    let fd =
        rustix::fs::open(procfs::own_path(path), flags | OFlags::NONBLOCK | OFlags::CLOEXEC, rustix::fs::Mode::empty());
    let fd = match fd {
        // Nobody reads: both ends for a moment, so that one of them can be opened.
        Err(rustix::io::Errno::NXIO) => {
            let _both = open_both(path)?;
            rustix::fs::open(
                procfs::own_path(path),
                flags | OFlags::NONBLOCK | OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            )?
        }
        other => other?,
    };
    let mut opened = rustix::fs::fcntl_getfl(&fd)?;
    opened.set(OFlags::NONBLOCK, flags.contains(OFlags::NONBLOCK));
    // To open a pipe with it is refused; to set it is not.
    opened.set(OFlags::DIRECT, is_in_packets);
    rustix::fs::fcntl_setfl(&fd, opened)?;
    Ok(fd)
}

pub(crate) fn open_both(pipe: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(procfs::own_path(pipe), flags, rustix::fs::Mode::empty())?)
}

/// `O_CLOEXEC`, as `/proc` says it of a descriptor that exec closes.
pub(in crate::ahead) const CLOSE_ON_EXEC: u32 = libc::O_CLOEXEC as u32;

/// Whether exec closes a descriptor of another process. One that is not open is not closed.
pub(crate) fn is_close_on_exec(pid: ProcessId, fd: i32) -> procfs::Result<bool> {
    match procfs::descriptor_flags(pid, fd) {
        Err(procfs::Error::Gone(_) | procfs::Error::Missing { .. }) => Ok(false),
        flags => Ok(flags? & CLOSE_ON_EXEC != 0),
    }
}

/// The object that a call on a file moves the position of.
pub(crate) fn position_of(dev: u64, ino: u64) -> Object {
    Object::Position(dev, ino)
}
