//! Input that speculative processes read from outside (000, 5.3), or from TCP connections inside, into which nothing
//! can be put back. The program makes its call itself, so that it waits, is interrupted and fails as ever; what it read
//! is kept with what undoes the call. A rollback puts it in front of its source, and whoever reads there next gets it
//! again ([`pushback`](crate::ahead::objects::input::pushback)); who asks whether there is something to read is told of
//! it ([`ready`](crate::ahead::calls::ready)).
//!
//! A source is what is behind the descriptor, a pipe by its inode: all who have it read from one stream, in the order
//! in which they do. So at most one call at a time takes something out of it while anything is speculative.
//!
//! A terminal outlives the world: what nobody has read again when COMMAND ends, or stops, goes back into it
//! ([`terminal`]).
//!
//! What is a barrier: a pipe that somebody outside can read, too, for he would miss what is given again only inside;
//! FIFOs, whose contents end with their last user; sockets that lead outside; a terminal that we may not put anything
//! back into, or that its reader has in the background; more than [`KEPT_LEN_MAX`] bytes.

pub(in crate::ahead) mod pushback;
pub(in crate::ahead) mod terminal;

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::calls::under_way::{Taking, UnderWay};
use crate::ahead::objects::input::pushback::{Chunk, Pushback};
use crate::ahead::objects::sockets::tcp::is_tcp;
use crate::ahead::rollback::undo::{path_to, Intent};
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use crate::signals;
use agent_abi::Frame;
use procfs::{ProcessId, ThreadId};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::RecvFlags;
use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::offset_of;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use syscall_table::nr;
use tracee::{Result, Stopped, TraceError};

/// The file system of pipes without a name.
pub(in crate::ahead) const PIPEFS_MAGIC: i64 = 0x5049_5045;

/// What may be kept of calls that can still be undone, bytes.
const KEPT_LEN_MAX: usize = 64 << 20;

/// As much as a call may take out of a pipe: more than the largest has room for.
const PIPE_LEN_MAX: usize = 1 << 20;

/// A pipe by device and inode; a terminal by [`terminal::DEVICE`] and its number, whatever name it was opened by.
pub(crate) type SourceId = (u64, u64);

/// A stream that comes from outside.
#[derive(Debug)]
pub(crate) struct Source {
    pub id: SourceId,
    /// A copy of the descriptor.
    copy: OwnedFd,
    manner: Manner,
}

/// How a call wants to read from a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// It does not wait, whatever its descriptor's flags.
    pub is_hurried: bool,
    /// It leaves there what it reads.
    pub peeks: bool,
    /// It waits until its buffers are full, or nothing more can come.
    pub wants_all: bool,
}

impl Source {
    /// `None` for what cannot be given again.
    pub fn of(copy: OwnedFd) -> Option<Self> {
        let flags = rustix::fs::fcntl_getfl(&copy).ok()?;
        if flags & OFlags::RWMODE == OFlags::WRONLY || flags.contains(OFlags::PATH) {
            return None;
        }
        let stat = rustix::fs::fstat(&copy).ok()?;
        let id = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo if rustix::fs::fstatfs(&copy).ok()?.f_type == PIPEFS_MAGIC => (stat.st_dev, stat.st_ino),
            FileType::CharacterDevice => (terminal::DEVICE, terminal::number(&copy)?),
            FileType::Socket if is_tcp(&copy) => (stat.st_dev, stat.st_ino),
            _ => return None,
        };
        Some(Self { id, copy, manner: Manner::default() })
    }

    pub fn read_in(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    fn is_connection(&self) -> bool {
        is_tcp(&self.copy)
    }

    fn is_terminal(&self) -> bool {
        self.id.0 == terminal::DEVICE
    }

    /// What keeps it, and what is given again there, from being taken for something else.
    fn pin(&self) -> io::Result<OwnedFd> {
        match self.is_terminal() {
            true => self.copy.try_clone(),
            // With one of its ends nobody would see that the others are closed.
            false => path_to(&self.copy),
        }
    }

    pub fn copy(&self) -> &OwnedFd {
        &self.copy
    }

    pub fn object(&self) -> Object {
        Object::Input(self.id.0, self.id.1)
    }

    /// Whether a call that wants all of `len_max` bytes gets what it waits for, with so many that are given again.
    fn has_enough(&self, again: usize, len_max: usize) -> bool {
        let now = rustix::io::ioctl_fionread(&self.copy).unwrap_or(0) as usize;
        let mut ends = [PollFd::new(&self.copy, PollFlags::RDHUP)];
        let _ = poll(&mut ends, Some(&Timespec::default()));
        again + now >= len_max || !ends[0].revents().is_empty()
    }

    fn never_waits(&self) -> bool {
        self.manner.is_hurried
            || rustix::fs::fcntl_getfl(&self.copy).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// What it has now, at most `len_max` bytes, without waiting for more.
    fn read_now(&self, len_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len_max.min(PIPE_LEN_MAX)];
        let len = if self.is_connection() {
            let peek = if self.manner.peeks { RecvFlags::PEEK } else { RecvFlags::empty() };
            rustix::net::recv(&self.copy, bytes.as_mut_slice(), RecvFlags::DONTWAIT | peek)?.0
        } else {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let reader = rustix::fs::open(procfs::own_path(&self.copy), flags, Mode::empty())?;
            rustix::io::read(&reader, &mut bytes)?
        };
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// What one call of a speculative process reads; nothing until it has.
#[derive(Debug)]
pub(crate) struct Reading {
    chunk: OnceLock<Chunk>,
    /// Of all that are kept, bytes.
    kept_len: Arc<AtomicUsize>,
}

impl Reading {
    fn record(&self, chunk: Chunk) {
        let len = chunk.bytes.len();
        if self.chunk.set(chunk).is_ok() {
            self.kept_len.fetch_add(len, Ordering::Relaxed);
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let len = self.chunk.get().map_or(0, |chunk| chunk.bytes.len());
        self.kept_len.fetch_sub(len, Ordering::Relaxed);
    }
}

/// A call that is about to read.
#[derive(Debug)]
pub(crate) struct ReadUnderWay {
    reading: Arc<Reading>,
    buffers: Buffers,
    source: Source,
}

/// Where in a process a call puts what it reads: address and length.
#[derive(Debug)]
struct Buffers(Vec<(u64, usize)>);

impl Buffers {
    /// `None` if the call is none that we can make in its place.
    fn of(tid: ThreadId, frame: &Frame) -> Option<Self> {
        let [_, at, count, ..] = frame.args;
        match frame.nr {
            nr::read | nr::recvfrom => Some(Self(vec![(at, count as usize)])),
            nr::readv => Self::of_vector(tid, at, count),
            nr::recvmsg => {
                let header: [u64; 4] = tracee::read_value(tid, at).ok()?;
                Self::of_vector(tid, header[2], header[3])
            }
            _ => None,
        }
    }

    fn of_vector(tid: ThreadId, at: u64, count: u64) -> Option<Self> {
        let parts = crate::requests::parts_of(tid, at, count)?;
        Some(Self(parts.into_iter().map(|[at, len]| (at, len as usize)).collect()))
    }

    fn len(&self) -> usize {
        self.0.iter().fold(0, |sum, &(_, len)| sum.saturating_add(len))
    }

    /// The first `len` bytes of them.
    fn gather(&self, tid: ThreadId, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        for &(at, room) in &self.0 {
            let part = room.min(len - bytes.len());
            bytes.extend(tracee::read_bytes(tid, at, part)?);
        }
        Ok(bytes)
    }

    fn scatter(&self, tid: ThreadId, mut bytes: &[u8]) -> io::Result<()> {
        for &(at, room) in &self.0 {
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            tracee::write_bytes(tid, at, part)?;
            bytes = rest;
        }
        Ok(())
    }
}

/// Input of a world.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Input {
    /// What is given again, with a descriptor that keeps the inode's number from being used again.
    pushbacks: HashMap<SourceId, (OwnedFd, Pushback)>,
    /// Whether nobody outside reads there, and when that was seen.
    alone: HashMap<SourceId, (bool, Instant)>,
    kept_len: Arc<AtomicUsize>,
    /// The poll that each thread made last.
    pub polls: HashMap<ThreadId, Frame>,
    /// Somebody wants more than is given again, and waits for the kernel to have the rest.
    pub awaits_more: bool,
    /// When it was last looked whether anybody can still read what is given again.
    looked_at: Option<Instant>,
}

impl Input {
    pub fn has_any(&self) -> bool {
        !self.pushbacks.is_empty()
    }

    /// How much is given again there, bytes; none if nothing is.
    pub fn pushback_len(&self, id: SourceId) -> Option<usize> {
        self.pushbacks.get(&id).map(|(_, pushback)| pushback.len())
    }

    /// Whether something is given again in front of the socket with this inode.
    pub fn is_in_front_of_socket(&self, ino: u64) -> bool {
        self.pushbacks.keys().any(|id| id.1 == ino)
    }

    /// The call has never been made.
    pub fn give_back(&mut self, id: SourceId, pin: OwnedFd, reading: &Reading) {
        let Some(chunk) = reading.chunk.get() else { return };
        let (_, pushback) = self.pushbacks.entry(id).or_insert_with(|| (pin, Pushback::default()));
        pushback.give_back(chunk.clone());
    }

    pub fn discard(&mut self, id: SourceId) {
        self.pushbacks.remove(&id);
    }

    fn take(&mut self, source: &Source, len_max: usize) -> Chunk {
        let Some((_, pushback)) = self.pushbacks.get_mut(&source.id) else { return Chunk::of(Vec::new(), len_max) };
        if source.manner.peeks {
            return take_from(&mut pushback.clone(), source, len_max);
        }
        let chunk = take_from(pushback, source, len_max);
        if pushback.is_empty() {
            self.pushbacks.remove(&source.id);
        }
        chunk
    }

    fn new_reading(&self) -> Arc<Reading> {
        Arc::new(Reading { chunk: OnceLock::new(), kept_len: Arc::clone(&self.kept_len) })
    }
}

/// What is given again, and what joins it: in the manner of the call.
fn take_from(pushback: &mut Pushback, source: &Source, len_max: usize) -> Chunk {
    let mut chunk = pushback.take(len_max);
    if chunk.error.is_some() {
        return chunk;
    }
    while source.manner.wants_all && chunk.bytes.len() < len_max && !pushback.is_empty() {
        chunk.bytes.extend(pushback.take(len_max - chunk.bytes.len()).bytes);
        chunk.ends = false;
    }
    if pushback.is_empty() && (!chunk.ends || source.manner.wants_all) && chunk.bytes.len() < len_max {
        let rest = len_max - chunk.bytes.len();
        // At its end, or with nothing in it, there is nothing to join.
        chunk.bytes.extend(source.read_now(rest).unwrap_or_default());
        chunk.ends = chunk.bytes.len() < len_max;
    }
    chunk
}

impl Supervisor {
    /// A read of something outside.
    pub(in crate::ahead) fn plan_input(&mut self, call: &Call, copy: OwnedFd) -> Plan {
        match Source::of(copy) {
            Some(source) if matches!(call.frame.nr, nr::read | nr::readv) => Plan::new(Class::Input { source }),
            _ => Plan::new(Class::Barrier),
        }
    }

    pub(in crate::ahead) fn read_input(&mut self, stopped: &Stopped, call: &Call, source: Source) -> Result<Decision> {
        let buffers = Buffers::of(call.tid, &call.frame).filter(|buffers| buffers.len() > 0);
        let Some(buffers) = buffers else { return Ok(Decision::Go) };
        if source.is_terminal() && terminal::is_in_background(call.pid, source.id.1) {
            // The kernel stops it, or fails its call.
            return Ok(match self.ahead.is_speculative(call.pid) {
                true => self.wait_at_barrier(call),
                false => Decision::Go,
            });
        }
        let has_pushback = self.ahead.input.pushback_len(source.id).is_some();
        if self.ahead.is_speculative(call.pid) && !has_pushback && !self.can_give_again(&source, buffers.len()) {
            return Ok(self.wait_at_barrier(call));
        }
        if source.manner.peeks {
            return self.peek_input(stopped, call, &source, &buffers);
        }
        if !self.takes_alone(call, &source.object(), source.never_waits()) {
            return Ok(Decision::Wait);
        }
        let again = self.ahead.input.pushback_len(source.id);
        if again.is_some_and(|again| source.manner.wants_all && !source.has_enough(again, buffers.len())) {
            self.ahead.input.awaits_more = true;
            return Ok(Decision::Wait);
        }
        let reading = self.ahead.input.new_reading();
        let pin = source.pin().map_err(|source| kernel("keep a pipe", call.tid, source))?;
        let intent = Intent::Input { id: source.id, pin, reading: Arc::clone(&reading) };
        // Interrupted, one that wants all would return what it has by then.
        let plan = if source.manner.wants_all { Plan::tracked_once() } else { Plan::new(Class::Tracked) };
        let decision = self.track(stopped, call, plan, vec![(source.object(), intent)])?;
        let Decision::GoAndTell(mut under_way) = decision else { return Ok(decision) };
        if has_pushback {
            return Ok(Decision::Answer(self.read_again(call, &source, &reading, &buffers)));
        }
        if self.ahead.is_speculative(call.pid) {
            expect_result(call)?;
            under_way.takes = Some(Taking::Input(ReadUnderWay { reading, buffers, source }));
        }
        Ok(Decision::GoAndTell(under_way))
    }

    /// A look at what is there.
    fn peek_input(&mut self, stopped: &Stopped, call: &Call, source: &Source, buffers: &Buffers) -> Result<Decision> {
        let decision = self.track(stopped, call, Plan::new(Class::Tracked).observing(source.object()), Vec::new())?;
        if matches!(decision, Decision::Wait) || self.ahead.input.pushback_len(source.id).is_none() {
            return Ok(decision);
        }
        let chunk = self.ahead.input.take(source, buffers.len());
        self.observe_everything(call.tid);
        Ok(Decision::Answer(match chunk.error {
            Some(error) => -i64::from(error),
            None => deliver(call, buffers, &chunk.bytes),
        }))
    }

    /// Whether nobody else is about to take something out of a source: in which order they did could not be told
    /// afterwards.
    pub(in crate::ahead) fn takes_alone(&mut self, call: &Call, object: &Object, never_waits: bool) -> bool {
        if self.ahead.core.open_speculations() == 0 {
            return true;
        }
        let mut others = self.ahead.under_way.of_others(call.tid);
        let Some((other, _)) = others.find(|(_, other)| other.objects.contains(object)) else { return true };
        if never_waits {
            // It is not to wait for one that does: that one asks again, after us.
            let _ = tracee::interrupt(other);
        }
        false
    }

    /// Bytes that were read before are read again.
    fn read_again(&mut self, call: &Call, source: &Source, reading: &Reading, buffers: &Buffers) -> i64 {
        let chunk = self.ahead.input.take(source, buffers.len());
        self.ahead.changes += 1;
        if source.is_connection() {
            self.reset_if_closed(source.id);
            self.observe_everything(call.tid);
        }
        let error = chunk.error;
        let result = error.map_or_else(|| deliver(call, buffers, &chunk.bytes), |error| -i64::from(error));
        reading.record(chunk);
        if let Ok(len) = u64::try_from(result) {
            self.ahead.report.input_again += len;
        } else if let (None, Ok(pin)) = (error, source.pin()) {
            self.ahead.input.give_back(source.id, pin, reading);
        }
        result
    }

    /// Whether what is read there can be given to everybody who would get it.
    fn can_give_again(&mut self, source: &Source, len: usize) -> bool {
        /// Somebody outside who has a pipe may let it go: one who starts us often ends at once.
        const PATIENCE: Duration = Duration::from_millis(500);
        if self.ahead.input.kept_len.load(Ordering::Relaxed) + len.min(PIPE_LEN_MAX) > KEPT_LEN_MAX {
            return false;
        }
        if source.is_terminal() {
            return terminal::can_be_returned_to();
        }
        if source.is_connection() {
            // Both of its ends are inside.
            return true;
        }
        if let Some(&(is_alone, at)) = self.ahead.input.alone.get(&source.id) {
            if is_alone || at.elapsed() < PATIENCE {
                return is_alone;
            }
        }
        let inside = self.those_inside();
        let is_alone = !is_read_by_others(source.id.1, &inside);
        self.ahead.input.alone.insert(source.id, (is_alone, Instant::now()));
        is_alone
    }

    /// The world's processes, and those that only stand around it.
    fn those_inside(&mut self) -> HashSet<ProcessId> {
        let tids: Vec<ThreadId> = self.tracees.keys().copied().collect();
        let mut inside: HashSet<ProcessId> = tids.into_iter().filter_map(|tid| self.pid_of(tid).ok()).collect();
        inside.insert(ProcessId::own());
        // The front has what COMMAND has, and reads nothing.
        inside.extend(crate::sys::parent());
        inside
    }

    /// Whatever call the thread was making, it is not to be told of any more: it has ended, or will be made again. But
    /// where something is left to be done, the thread will say that it has been made before it goes on.
    pub(in crate::ahead) fn end_call(&mut self, stopped: &Stopped) -> Result<()> {
        let tid = stopped.tid();
        let leaves_something = self.ahead.under_way.of(tid).is_some_and(UnderWay::leaves_something);
        if leaves_something && signals::is_call_made(stopped, &self.image)? {
            return Ok(());
        }
        let Some(taking) = self.ahead.under_way.end(tid).and_then(|made| made.takes) else {
            return Ok(());
        };
        match signals::result_of_call(stopped, &self.image)? {
            Some(result) => self.note_taken(stopped.tid(), &taking, result),
            None => Ok(()),
        }
    }

    /// A call has ended with this result: what it took is to be given again if it is undone.
    pub(in crate::ahead) fn note_taken(&mut self, tid: ThreadId, taking: &Taking, result: i64) -> Result<()> {
        match taking {
            Taking::Input(input) => note_input(tid, input, result),
            Taking::Connection(accepted) => self.note_accepted(tid, accepted, result),
        }
    }

    /// Somebody outside reads from the terminals next: what is given again there goes back into them.
    pub(crate) fn return_input(&mut self) {
        let pushbacks = std::mem::take(&mut self.ahead.input.pushbacks);
        for (id, (pin, pushback)) in pushbacks {
            if id.0 != terminal::DEVICE {
                self.ahead.input.pushbacks.insert(id, (pin, pushback));
            } else if let Err(error) = terminal::put_back(&pin, pushback.chunks()) {
                self.front
                    .tell(&crate::message::Message::Warning { text: format!("what was typed ahead is lost: {error}") });
            }
        }
    }

    /// Nobody can read any more what would be given again: it is gone, as it would be without us.
    pub(in crate::ahead) fn forget_unread_input(&mut self) {
        const PATIENCE: Duration = Duration::from_millis(50);
        let looked_at = self.ahead.input.looked_at;
        if !self.ahead.input.has_any() || looked_at.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        self.ahead.input.looked_at = Some(Instant::now());
        let inside = self.those_inside();
        let own = [Some(ProcessId::own()), crate::sys::parent()];
        let is_read =
            |ino| inside.iter().any(|&pid: &ProcessId| !own.contains(&Some(pid)) && can_read(pid, ino).unwrap_or(true));
        let ends = &self.ahead.ends;
        // A connection may wait to be accepted, or to be opened again.
        let may_be_read = |ino| ends.get(ino).is_some() || is_read(ino);
        self.ahead.input.pushbacks.retain(|&(dev, ino), _| dev == terminal::DEVICE || may_be_read(ino));
    }
}

/// Put what a call reads where it wants it; of a connection it wants no more than that there is nothing else.
fn deliver(call: &Call, buffers: &Buffers, bytes: &[u8]) -> i64 {
    const NAME: u64 = 0;
    const NAME_LEN: u64 = 8;
    const CONTROL_LEN: u64 = 40;
    const FLAGS: u64 = 48;
    let (tid, args) = (call.tid, &call.frame.args);
    let clear = |at: u64, len: usize| tracee::write_bytes(tid, at, &[0; 8][..len]);
    let rest = || match call.frame.nr {
        nr::recvfrom if args[4] != 0 => clear(args[5], 4),
        nr::recvmsg => {
            let header = args[1];
            clear(header + CONTROL_LEN, 8)?;
            clear(header + FLAGS, 4)?;
            match tracee::read_value::<u64>(tid, header + NAME)? {
                0 => Ok(()),
                _ => clear(header + NAME_LEN, 4),
            }
        }
        _ => Ok(()),
    };
    match buffers.scatter(tid, bytes).and_then(|()| rest()) {
        Ok(()) => bytes.len() as i64,
        Err(_) => -i64::from(libc::EFAULT),
    }
}

/// A call has ended with this result.
fn note_input(tid: ThreadId, input: &ReadUnderWay, result: i64) -> Result<()> {
    let Ok(len) = usize::try_from(result) else {
        let error = i32::try_from(-result).ok().filter(|&error| input.source.is_connection() && is_told_once(error));
        error.into_iter().for_each(|error| input.reading.record(Chunk::of_error(error)));
        return Ok(());
    };
    if len == 0 && !(input.source.is_terminal() && terminal::has_lines(&input.source.copy)) {
        // The end of a pipe stays where it is. At a terminal it is typed.
        return Ok(());
    }
    let bytes = input.buffers.gather(tid, len).map_err(|source| kernel("read what was read", tid, source))?;
    input.reading.record(Chunk::of(bytes, input.buffers.len()));
    Ok(())
}

/// Whether it is what has become of a TCP connection, which the kernel tells to one call (`sk_err`).
fn is_told_once(error: i32) -> bool {
    matches!(
        error,
        libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::EPIPE
            | libc::ETIMEDOUT
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ENETDOWN
    )
}

/// Until the agent has written down what the call returned, it is seen that it has not.
pub(in crate::ahead) fn expect_result(call: &Call) -> Result<()> {
    let at = call.frame_at + offset_of!(Frame, rax) as u64;
    tracee::write_bytes(call.tid, at, &signals::NO_RESULT.to_ne_bytes())
        .map_err(|source| kernel("write into a frame", call.tid, source))
}

fn kernel(what: &'static str, tid: ThreadId, source: io::Error) -> TraceError {
    TraceError::kernel(what, tid, source)
}

/// Whether anybody but those inside can read from a pipe. What cannot be looked at may.
fn is_read_by_others(ino: u64, inside: &HashSet<ProcessId>) -> bool {
    let Ok(processes) = procfs::machine::processes() else { return true };
    let mut others = processes.into_iter().filter(|pid| !inside.contains(pid));
    others.any(|pid| procfs::unless_gone(can_read(pid, ino)).unwrap_or(true))
}

/// Whether a process has a descriptor to read from a pipe or socket.
fn can_read(pid: ProcessId, ino: u64) -> procfs::Result<bool> {
    let names = [format!("pipe:[{ino}]"), format!("socket:[{ino}]")];
    let mut can_read = false;
    procfs::visit_descriptors(pid, |fd, link| {
        let is_it = names.iter().any(|name| link == name.as_bytes());
        can_read = is_it && procfs::is_open_for_reading(pid, fd).unwrap_or(true);
        if can_read {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(can_read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    fn ino(fd: &OwnedFd) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    #[test]
    fn who_can_only_write_reads_nothing() {
        let own = ProcessId::own();
        let (reader, writer) = pipe().unwrap();
        let ino = ino(&writer);
        assert!(can_read(own, ino).unwrap());
        drop(reader);
        assert!(!can_read(own, ino).unwrap());
        assert!(!is_read_by_others(ino, &HashSet::from([own])) || !rustix::process::geteuid().is_root());
    }

    #[test]
    fn another_reader_is_found() {
        let (reader, _writer) = pipe().unwrap();
        assert!(is_read_by_others(ino(&reader), &HashSet::new()));
    }

    #[test]
    fn a_terminal_is_one_source_whatever_its_descriptor() {
        use rustix::pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let open = || ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let [a, b] = [Source::of(open()).unwrap(), Source::of(open()).unwrap()];
        assert_eq!(a.id, b.id);
        assert!(a.is_terminal());
        assert!(Source::of(master.try_clone().unwrap()).is_none(), "the other end is a device of its own");
    }

    #[test]
    fn only_the_reading_end_of_a_pipe_is_a_source() {
        let (reader, writer) = pipe().unwrap();
        let id = Source::of(reader).unwrap().id;
        assert_eq!(id.1, ino(&writer));
        assert!(Source::of(writer).is_none());
        assert!(Source::of(std::fs::File::open("/dev/null").unwrap().into()).is_none());
    }

    #[test]
    fn what_came_meanwhile_joins_what_is_given_again() {
        let (reader, writer) = pipe().unwrap();
        let source = Source::of(reader).unwrap();
        let mut input = Input::default();
        let give_back = |input: &mut Input, text: &str, len_max| {
            let reading = input.new_reading();
            reading.record(Chunk::of(text.as_bytes().to_vec(), len_max));
            input.give_back(source.id, path_to(&source.copy).unwrap(), &reading);
        };
        rustix::io::write(&writer, b"def").unwrap();
        give_back(&mut input, "abc", 3);
        assert_eq!(input.take(&source, 100).bytes, b"abcdef");
        give_back(&mut input, "abc", 10);
        rustix::io::write(&writer, b"def").unwrap();
        assert_eq!(input.take(&source, 100).bytes, b"abc", "a call that asked for more got no more");
        assert!(!input.has_any());
        assert_eq!(input.kept_len.load(Ordering::Relaxed), 0, "what was given again is not kept any longer");
    }
}
