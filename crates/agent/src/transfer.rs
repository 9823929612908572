//! Data that the kernel would hand over by reference: pages of files (`sendfile`, `splice`) and of the program
//! (`vmsplice`).
//!
//! A pipe or a socket that holds a page shows what is stored in it later, by whomever, to a reader who depends on
//! nothing of that. So the agent moves bytes: it reads them, observes what they depend on, and writes them as
//! `write` does (`decisions/0030`).
//!
//! The call is made in pieces. Once the first one is there, `PHASE_PARTIAL` says that everything before the piece
//! under way is finished: a signal ends the call there, with what has been transferred, as it would end the
//! kernel's.

use crate::clocks::Call;
use crate::gate::{self, EAGAIN};
use crate::memory::{copy_program, read_program, write_program};
use agent_abi::{
    option, FdEntry, FdKind, Frame, Request, AFTER_LEAVES, AFTER_MUST_FINISH, PHASE_AFTER, PHASE_BEFORE, PHASE_PARTIAL,
};
use core::mem::MaybeUninit;
use core::sync::atomic::{compiler_fence, Ordering};
use syscall_table::nr;

const SPLICE_FLAGS: u64 = 0xf;
const SPLICE_F_NONBLOCK: u64 = 2;
const IOV_MAX: u64 = 1024;
/// The kernel transfers no more in one call.
const COUNT_MAX: u64 = 0x7fff_f000;
/// What is read at once: on the thread's own stack, which has twice as much.
const BUFFER: usize = 16 << 10;
/// A pipe that is ready to be written takes so much without waiting (pipe(7), PIPE_BUF).
const PIPE_BUF: u64 = 4096;
pub const POLLIN: u64 = 1;
pub const POLLOUT: u64 = 4;
pub const O_NONBLOCK: u64 = 0o4000;
const O_APPEND: u64 = 0o2000;
const O_ACCMODE: u64 = 3;

/// Aligned for files that were opened O_DIRECT.
#[repr(C, align(4096))]
struct Buffer(MaybeUninit<[u8; BUFFER]>);

/// Where the offset of a file is that a call reads from.
enum Offset {
    /// The descriptor's own.
    Own,
    /// In the program's memory.
    At(u64),
}

/// From where the bytes of a call come.
enum Source {
    File {
        fd: u64,
        entry: FdEntry,
        offset: Offset,
        position: u64,
    },
    /// A vector, and how many of its parts are left.
    Memory {
        vector: u64,
        parts: u64,
    },
    /// The same, but what is there may have to be waited for: it is copied before anything else is done.
    Served {
        vector: u64,
        parts: u64,
        part: Bytes,
    },
}

/// Bytes that are there to be written.
#[derive(Clone, Copy)]
struct Bytes {
    at: u64,
    len: u64,
}

/// Where they go to.
#[derive(Clone, Copy)]
struct Target {
    fd: u64,
    entry: FdEntry,
    is_pipe: bool,
    place: Place,
}

/// How it is written there.
#[derive(Clone, Copy)]
enum Place {
    /// At the descriptor's own offset, if it has one.
    Next,
    /// At an offset, or at the descriptor's own (-1), with `RWF_…` flags.
    At { offset: u64, flags: u64 },
}

/// A pipe or a FIFO.
pub fn is_pipe(entry: FdEntry) -> bool {
    matches!(entry.kind(), FdKind::Inside | FdKind::Outside)
        && entry.has(FdEntry::STREAM)
        && !entry.has(FdEntry::SOCKET)
}

pub fn file_flags(fd: u64) -> u64 {
    const F_GETFL: u64 = 3;
    // SAFETY: no pointers.
    unsafe { gate::call(nr::fcntl, [fd, F_GETFL, 0, 0, 0, 0]) as u64 }
}

/// What a descriptor is ready for now.
pub fn ready_now(fd: u64, events: u64) -> u64 {
    let mut one = [u64::from(fd as u32) | events << 32];
    // SAFETY: one `struct pollfd`.
    unsafe { gate::call(nr::poll, [one.as_mut_ptr() as u64, 1, 0, 0, 0, 0]) };
    one[0] >> 48
}

/// How much can be read from a pipe or a socket.
pub fn queued(fd: u64) -> u64 {
    const FIONREAD: u64 = 0x541b;
    let mut len = 0u64;
    // SAFETY: an `int` that is ours.
    let result = unsafe { gate::call(nr::ioctl, [fd, FIONREAD, &raw mut len as u64, 0, 0, 0]) };
    if result == 0 {
        len as u32 as u64
    } else {
        0
    }
}

impl Source {
    /// Whether the call moves an offset that other processes may share.
    fn is_shown_to_heirs(&self) -> bool {
        matches!(self, Source::File { offset: Offset::Own, .. })
    }

    /// So much of it was transferred: whoever looks at the offset sees that.
    fn advance(&mut self, by: u64) {
        let Source::File { fd, offset, position, .. } = self else { return };
        *position += by;
        match offset {
            // SAFETY: no pointers.
            Offset::Own => drop(unsafe { gate::call(nr::lseek, [*fd, *position, 0, 0, 0, 0]) }),
            Offset::At(at) => drop(write_program(*at, &[*position])),
        }
    }
}

impl Target {
    /// So much was written.
    fn advance(&mut self, by: u64) {
        const OWN_OFFSET: u64 = u64::MAX;
        match &mut self.place {
            Place::At { offset, .. } if *offset != OWN_OFFSET => *offset += by,
            _ => {}
        }
    }
}

/// The next part of a vector that is not empty.
fn next_part(vector: &mut u64, parts: &mut u64) -> Result<Option<Bytes>, i64> {
    while *parts > 0 {
        let mut part = [0u64; 2];
        if !read_program(*vector, &mut part) {
            return Err(-gate::EFAULT);
        }
        *vector += 16;
        *parts -= 1;
        match part {
            [_, 0] => {}
            [_, len] if len as i64 <= 0 => return Err(-gate::EINVAL),
            [at, len] => return Ok(Some(Bytes { at, len })),
        }
    }
    Ok(None)
}

impl Call<'_> {
    /// Whether the kernel would let the destination refer to pages of the source, or read the source only after the
    /// call was made.
    pub fn hands_over(&self, from: FdEntry, to: FdEntry) -> bool {
        let is_file = matches!(from.kind(), FdKind::DomainFile | FdKind::MemoryFile);
        let leaves = match to.kind() {
            FdKind::Inside => to.has(FdEntry::STREAM) || to.has(FdEntry::SOCKET),
            kind => matches!(kind, FdKind::Outside | FdKind::OutsideFile | FdKind::Pseudo),
        };
        // What is read from a file system that somebody serves must not be awaited with an open handle.
        let awaits = matches!(from.kind(), FdKind::OutsideFile | FdKind::Pseudo) && to.kind() == FdKind::DomainFile;
        match self.frame.nr {
            nr::sendfile => is_file && leaves || awaits,
            nr::splice => is_file && is_pipe(to) && self.arg(5) & !SPLICE_FLAGS == 0 && self.arg(3) == 0,
            nr::copy_file_range => is_file && matches!(to.kind(), FdKind::OutsideFile | FdKind::Pseudo) || awaits,
            _ => false,
        }
    }

    /// `sendfile` from a file, `splice` from a file into a pipe.
    #[inline(never)]
    pub fn hand_over(&mut self, from: FdEntry, to: FdEntry, input: u8, output: u8) {
        if self.frame.nr == nr::copy_file_range {
            return self.copy_elsewhere();
        }
        let (offset_at, count) = match self.frame.nr {
            nr::sendfile => (self.arg(2), self.arg(3)),
            _ => (self.arg(1), self.arg(4)),
        };
        let target = Target { fd: self.arg(output), entry: to, is_pipe: is_pipe(to), place: Place::Next };
        let flags = file_flags(target.fd);
        // Where the kernel refuses to append, so do we.
        let is_possible = flags & O_ACCMODE != 0 && (target.is_pipe || flags & O_APPEND == 0) && count != 0;
        let position = self.position_of(self.arg(input), offset_at);
        let Some(position) = position.filter(|_| is_possible) else {
            // The kernel says what is wrong; it transfers nothing.
            self.proceed();
            return;
        };
        let offset = if offset_at == 0 { Offset::Own } else { Offset::At(offset_at) };
        let source = Source::File { fd: self.arg(input), entry: from, offset, position };
        let splice_flags = if self.frame.nr == nr::splice { self.arg(5) } else { 0 };
        let waits = flags & O_NONBLOCK == 0 && splice_flags & SPLICE_F_NONBLOCK == 0;
        if self.await_room(target, waits) {
            self.transfer(source, target, count.min(COUNT_MAX));
        }
    }

    fn position_of(&self, fd: u64, offset_at: u64) -> Option<u64> {
        const SEEK_CUR: u64 = 1;
        let mut position = [0u64];
        if offset_at == 0 {
            // SAFETY: no pointers.
            position[0] = unsafe { gate::call(nr::lseek, [fd, 0, SEEK_CUR, 0, 0, 0]) as u64 };
        } else if !read_program(offset_at, &mut position) {
            return None;
        }
        Some(position[0]).filter(|&position| position as i64 >= 0)
    }

    /// `copy_file_range` to a file system that is not ours: programs copy by themselves where it is not possible
    /// (copy_file_range(2)).
    fn copy_elsewhere(&mut self) {
        const EXDEV: i64 = -18;
        self.replace_arg(4, 0);
        if self.proceed() == 0 && self.arg(4) != 0 {
            self.answer(EXDEV);
        }
    }

    /// `vmsplice`: what is stored in the pages later is not passed on.
    pub fn vmsplice(&mut self) {
        let target = Target { fd: self.arg(0), entry: self.descriptor(self.arg(0)), is_pipe: true, place: Place::Next };
        let is_bad_call = self.arg(3) & !SPLICE_FLAGS != 0 || self.arg(2) > IOV_MAX;
        if !is_pipe(target.entry) || is_bad_call {
            self.proceed();
            return;
        }
        if file_flags(target.fd) & O_ACCMODE == 0 {
            return self.read(0);
        }
        let source = Source::Memory { vector: self.arg(1), parts: self.arg(2) };
        if self.arg(2) == 0 || self.await_room(target, self.arg(3) & SPLICE_F_NONBLOCK == 0) {
            self.transfer(source, target, COUNT_MAX);
        }
    }

    /// A write to a domain by a process that has mapped files of a file system that somebody serves. With an open
    /// handle no page of it may be touched: the one who serves it may be inside, and wait for the commit that waits
    /// for the handle. What is written is copied before.
    #[inline(never)]
    pub fn write_served(&mut self, entry: FdEntry) {
        let [fd, first, second, third, ..] = self.frame.args;
        let own = [first, second];
        let (vector, parts) = match self.frame.nr {
            nr::write | nr::pwrite64 => (own.as_ptr() as u64, 1),
            _ => (first, second),
        };
        let place = match self.frame.nr {
            nr::pwrite64 | nr::pwritev => Place::At { offset: third, flags: 0 },
            nr::pwritev2 => Place::At { offset: third, flags: self.given_arg(5) },
            _ => Place::Next,
        };
        let is_bad_offset = matches!(self.frame.nr, nr::pwrite64 | nr::pwritev) && (third as i64) < 0;
        let source = Source::Served { vector, parts, part: Bytes { at: 0, len: 0 } };
        if parts > IOV_MAX || is_bad_offset {
            // The kernel says what is wrong.
            return self.change_file(entry);
        }
        self.transfer(source, Target { fd, entry, is_pipe: false, place }, COUNT_MAX);
    }

    /// Wait until a pipe has room; false if the call is over.
    fn await_room(&mut self, target: Target, waits: bool) -> bool {
        if !target.is_pipe || ready_now(target.fd, POLLOUT) != 0 {
            return true;
        }
        if !waits {
            if !self.is_clean() {
                self.observe(self.object(target.entry.slot()));
            }
            self.answer(-EAGAIN);
        }
        waits && self.await_as_program(target.fd, POLLOUT)
    }

    /// Wait where the program's own call would: a handler interrupts it. False if a signal takes the thread out of
    /// the agent.
    fn await_as_program(&mut self, fd: u64, events: u64) -> bool {
        const MASK_LEN: u64 = 8;
        let mut one = [u64::from(fd as u32) | events << 32];
        self.page.after = AFTER_MUST_FINISH;
        gate::instead(&[one.as_mut_ptr() as u64, 1, 0, 0, MASK_LEN, 0], nr::ppoll);
        let goes_on = self.may_begin_more(true);
        if !goes_on {
            self.begin_again();
        }
        goes_on
    }

    /// Nothing of the call has happened: it is made again at its call site, where signals find it.
    pub fn begin_again(&mut self) {
        // A signal finds it at its call site, and not two bytes before.
        self.set_phase(PHASE_AFTER);
        self.frame.rax = self.frame.nr;
        self.frame.continuation = self.frame.continuation.wrapping_sub(2);
    }

    pub fn set_phase(&mut self, phase: u32) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: one aligned word of this thread's page; the supervisor reads it while the thread is stopped, so
        // it must be stored here and now.
        unsafe { (&raw mut self.page.phase).write_volatile(phase) };
        compiler_fence(Ordering::SeqCst);
    }

    /// A step of the call has changed nothing: the call stands where it stood before the step (`is_first`: at its
    /// beginning). Whether it may make another one. To begin that says anew what comes behind it (`ThreadPage::after`),
    /// and the word that is looked for here would be lost. Who is stopped behind the first line is taken out.
    pub fn may_begin_more(&mut self, is_first: bool) -> bool {
        self.set_phase(if is_first { PHASE_BEFORE } else { PHASE_PARTIAL });
        !self.must_leave()
    }

    /// Whether a signal waits until the thread has left the agent, or a checkpoint was taken since the step before.
    pub fn must_leave(&self) -> bool {
        // SAFETY: as in `set_phase`, the other way round.
        unsafe { (&raw const self.page.after).read_volatile() == AFTER_LEAVES }
    }

    /// Transfer at most `count` bytes. Into a pipe goes what it has room for, as with the kernel's call; elsewhere
    /// all of it.
    fn transfer(&mut self, mut source: Source, mut target: Target, count: u64) {
        let mut buffer = Buffer(MaybeUninit::uninit());
        let mut done = 0;
        let mut here = Bytes { at: 0, len: 0 };
        while done < count {
            if here.len == 0 {
                here = match self.next(&mut source, &mut buffer, count - done) {
                    Ok(bytes) => bytes,
                    Err(error) if done == 0 => return self.fail(&source, error),
                    Err(_) => break,
                };
            }
            let piece = Bytes { len: here.len.min(BUFFER as u64), ..here };
            if piece.len == 0 && done == 0 && matches!(source, Source::Served { .. }) {
                return self.change_file(target.entry);
            }
            if piece.len == 0 {
                break;
            }
            self.clear_cut();
            let result = match self.put(&source, target, piece, done == 0) {
                Some(result) if result > 0 => result,
                Some(error) if done == 0 => return self.answer(error),
                None if done == 0 => return self.begin_again(),
                _ => break,
            };
            source.advance(result as u64);
            target.advance(result as u64);
            done += result as u64;
            here = Bytes { at: here.at + result as u64, len: here.len - result as u64 };
            self.answer(done as i64);
            self.set_phase(PHASE_PARTIAL);
            // A pipe may have got as much as surely has room, and have more; and a stop of ours ends no transfer.
            let has_more = target.is_pipe && result as u64 >= PIPE_BUF || self.is_cut();
            let is_short = (result as u64) < piece.len && !has_more;
            if is_short || self.must_leave() {
                break;
            }
        }
        self.set_phase(PHASE_AFTER);
        self.answer(done as i64);
    }

    /// Nothing could be read: the kernel says what is wrong.
    fn fail(&mut self, source: &Source, error: i64) {
        if !matches!(source, Source::File { .. }) {
            return self.answer(error);
        }
        self.settle();
        self.proceed();
    }

    /// What comes next of the source, and its dependencies. No bytes at its end.
    fn next(&mut self, source: &mut Source, buffer: &mut Buffer, most: u64) -> Result<Bytes, i64> {
        match source {
            Source::File { fd, entry, position, .. } => {
                let at = buffer.0.as_mut_ptr() as u64;
                // SAFETY: the buffer has that much.
                let result = unsafe { gate::call(nr::pread64, [*fd, at, most.min(BUFFER as u64), *position, 0, 0]) };
                if !self.is_clean() {
                    self.observe_entry(*entry, 1);
                }
                match result {
                    0.. => Ok(Bytes { at, len: result as u64 }),
                    error => Err(error),
                }
            }
            Source::Memory { vector, parts } => Ok(match next_part(vector, parts)? {
                Some(part) => Bytes { len: part.len.min(most), ..part },
                None => Bytes { at: 0, len: 0 },
            }),
            Source::Served { vector, parts, part } => {
                let at = buffer.0.as_mut_ptr() as u64;
                let room = most.min(BUFFER as u64);
                let mut len = 0;
                while len < room {
                    if part.len == 0 {
                        let Some(next) = next_part(vector, parts)? else { break };
                        *part = next;
                    }
                    let copied = copy_program(part.at, at + len, part.len.min(room - len));
                    if copied == 0 {
                        break;
                    }
                    *part = Bytes { at: part.at + copied, len: part.len - copied };
                    len += copied;
                }
                match (len, part.len) {
                    (0, 1..) => Err(-gate::EFAULT),
                    _ => Ok(Bytes { at, len }),
                }
            }
        }
    }

    /// Write a piece; what it depends on was observed when it was read. `is_first`: nothing of the call has
    /// happened yet. `None`: a signal waits.
    fn put(&mut self, source: &Source, target: Target, bytes: Bytes, is_first: bool) -> Option<i64> {
        if let Source::File { fd: _, entry, .. } = source {
            if source.is_shown_to_heirs() && self.may_be_shared(*entry) && !self.is_clean() {
                self.modify(self.object(entry.slot()));
            }
        }
        let object = self.object(target.entry.slot());
        match target.entry.kind() {
            FdKind::DomainFile => {
                let domain = target.entry.domain();
                let transaction = self.begin_change(domain);
                object.raise(domain, transaction);
                self.modify(object);
                self.note_change(target.entry.slot());
                let result = self.write_piece(target, bytes);
                self.end_change(domain, result);
                self.observe(object);
                Some(result)
            }
            FdKind::Inside => {
                if self.has_option(option::OUTSIDE_EVENTS) {
                    self.settle();
                }
                self.modify(object);
                self.modify(&self.world.messages);
                self.settle_if_spliced(target.entry.slot());
                let result = self.write_stream(target, bytes, is_first);
                if !self.is_clean() {
                    self.observe(object);
                }
                result
            }
            FdKind::Outside if !self.goes_straight_through(target.entry) => self.hold_piece(target, bytes, is_first),
            FdKind::Outside => self.write_stream(target, bytes, is_first),
            _ => {
                self.settle();
                Some(self.write_piece(target, bytes))
            }
        }
    }

    /// A piece into a pipe or a socket. Of a pipe's room somebody else may have taken some since it was asked for: the
    /// piece gets what there is, without waiting. `None`: nothing was left, and nothing of the call has happened.
    fn write_stream(&mut self, target: Target, bytes: Bytes, is_first: bool) -> Option<i64> {
        const RWF_NOWAIT: u64 = 8;
        const EOPNOTSUPP: i64 = 95;
        if !target.is_pipe {
            return Some(self.write_piece(target, bytes));
        }
        let at_once = Target { place: Place::At { offset: u64::MAX, flags: RWF_NOWAIT }, ..target };
        match self.write_piece(at_once, bytes) {
            error if error == -EAGAIN && is_first => {
                self.set_phase(PHASE_BEFORE);
                None
            }
            error if error == -EOPNOTSUPP => self.write_ready(target, bytes, is_first),
            result => Some(result),
        }
    }

    /// The same for an end of a pipe that knows no writing without waiting: if there is room, as much as has room then.
    /// Such an end was opened by a name, as by a rollback, or the kernel has moved data there; or it is an old kernel.
    #[cold]
    fn write_ready(&mut self, target: Target, bytes: Bytes, is_first: bool) -> Option<i64> {
        if !self.may_begin_more(is_first) {
            return None;
        }
        if !is_first && ready_now(target.fd, POLLOUT) == 0 {
            return Some(-EAGAIN);
        }
        Some(self.write_piece(target, Bytes { len: bytes.len.min(PIPE_BUF), ..bytes }))
    }

    fn write_piece(&mut self, target: Target, bytes: Bytes) -> i64 {
        self.page.after = AFTER_MUST_FINISH;
        match target.place {
            Place::Next => gate::instead(&[target.fd, bytes.at, bytes.len, 0, 0, 0], nr::write),
            Place::At { offset, flags } => {
                let part = [bytes.at, bytes.len];
                gate::instead(&[target.fd, part.as_ptr() as u64, 1, offset, 0, flags], nr::pwritev2)
            }
        }
    }

    /// As `hold_output`.
    fn hold_piece(&mut self, target: Target, bytes: Bytes, is_first: bool) -> Option<i64> {
        if self.has_option(option::RELEASE_EARLY) {
            return self.write_stream(target, bytes, is_first);
        }
        let mut bytes = bytes;
        if target.is_pipe {
            // What is taken for later finds room in any pipe.
            if !is_first && ready_now(target.fd, POLLOUT) == 0 {
                return Some(-EAGAIN);
            }
            bytes.len = bytes.len.min(PIPE_BUF);
        }
        let clock = self.dependencies();
        let as_write = Frame { nr: nr::write, args: [target.fd, bytes.at, bytes.len, 0, 0, 0], ..Frame::default() };
        self.page.after = AFTER_MUST_FINISH;
        let taken = gate::effect(Request::Output, target.fd, &raw const as_write as u64);
        if taken >= 0 {
            self.request_commit(&clock);
            return Some(taken);
        }
        if !self.may_begin_more(is_first) {
            return None;
        }
        if taken == -EAGAIN {
            self.request_commit(&clock);
        }
        self.settle();
        let has_no_room = || self.sends_at_once(target.fd) && ready_now(target.fd, POLLOUT) == 0;
        if !self.await_queue_unless(target.entry, has_no_room) {
            return Some(-EAGAIN);
        }
        self.write_stream(target, bytes, is_first)
    }

    /// From a pipe or a socket to outside: no more than what is in it now. What comes in later may depend on more
    /// than was waited for. False if the call is over.
    pub fn bound_by_queue(&mut self, from: FdEntry, input: u64, to: FdEntry) -> bool {
        let (count, flags) = match self.frame.nr {
            nr::splice => (4, self.arg(5)),
            nr::tee => (2, self.arg(3)),
            _ => return true,
        };
        if !from.has(FdEntry::STREAM) || self.arg(count) == 0 {
            return true;
        }
        // Another reader may take what was waited for, and the kernel then passes on what comes in after it.
        self.note_spliced(from.slot());
        loop {
            let ready = ready_now(input, POLLIN);
            let len = queued(input);
            if len != 0 {
                self.replace_arg(count.into(), self.arg(count).min(len));
                return true;
            }
            // Its end, or an error, which the kernel tells.
            if ready & !POLLIN != 0 || ready != 0 && from.has(FdEntry::SOCKET) {
                return true;
            }
            if ready == 0 && self.is_refused(to) {
                return true;
            }
            if ready == 0 && !self.await_input(input, to, flags) {
                return false;
            }
        }
    }

    /// Whether the kernel surely says what is wrong with `splice` or `tee` before it waits for its source.
    fn is_refused(&self, to: FdEntry) -> bool {
        const O_PATH: u64 = 0o10000000;
        let (output, has_offset) = match self.frame.nr {
            nr::tee => (1, false),
            _ => (2, self.arg(1) != 0 || self.arg(3) != 0 && to.has(FdEntry::STREAM)),
        };
        let flags = file_flags(self.arg(output));
        let is_writable = flags & O_ACCMODE != 0 && flags & (O_PATH | O_APPEND) == 0;
        has_offset || !is_writable || self.frame.nr == nr::tee && !is_pipe(to)
    }

    /// Wait until something can be read, as the program's own call would. False if the call is over.
    fn await_input(&mut self, input: u64, to: FdEntry, flags: u64) -> bool {
        let waits = flags & SPLICE_F_NONBLOCK == 0 && (!is_pipe(to) || file_flags(input) & O_NONBLOCK == 0);
        if !waits {
            self.observe_everything();
            self.answer(-EAGAIN);
        }
        waits && self.await_as_program(input, POLLIN)
    }

    /// From a pipe into a file of a domain: an empty pipe is waited for without a handle.
    pub fn splice_to_file(&mut self, from: FdEntry, to: FdEntry) {
        let (input, flags) = (self.arg(0), self.arg(5));
        if self.frame.nr != nr::splice || !is_pipe(from) || flags & !SPLICE_FLAGS != 0 {
            self.proceed();
            return;
        }
        self.observe_source(from);
        self.replace_arg(5, flags | SPLICE_F_NONBLOCK);
        // First of all the kernel says what is wrong, if anything is.
        self.change_file(to);
        if self.frame.rax as i64 != -EAGAIN || flags & SPLICE_F_NONBLOCK != 0 {
            return;
        }
        // Nothing was there.
        if !self.may_begin_more(true) || self.await_as_program(input, POLLIN) {
            self.begin_again();
        }
    }
}
