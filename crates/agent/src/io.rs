//! Data through descriptors.

use crate::clocks::Call;
use crate::descriptors::{is_doubtful_socket, note_outside_stream, Stat};
use crate::gate::{self, nr, EAGAIN};
use crate::memory::read_program;
use crate::timed::Limit;
use crate::transfer::{is_pipe, ready_now, POLLIN};
use agent_abi::{
    option, FdEntry, FdKind, Request, AFTER_MUST_FINISH, AFTER_OBSERVES, MAPPED_MEMORY, PHASE_BEFORE, PROCESS_LOCKS,
    PROCESS_LOCKS_OUTSIDE, PROCESS_MAPPED_SERVED, SYNC_AFTER_WRITE, SYNC_SHOWS, SYNC_UNSHOWN,
};
use commit_clock::Transaction;
use core::sync::atomic::Ordering;

const READ: u64 = 0;
const LSEEK: u64 = 8;
const READV: u64 = 19;
const GETDENTS: u64 = 78;
const GETDENTS64: u64 = 217;
const PREADV2: u64 = 327;
const PWRITEV2: u64 = 328;

impl Call<'_> {
    /// Observes the object behind a descriptor.
    #[inline(always)]
    pub fn read(&mut self, position: u8) {
        if self.is_clean() {
            // Nothing anywhere is uncommitted. If that changes while the call runs, what it saw may be part of the change.
            let fd = self.arg(position);
            let result = self.proceed_receiving(position, AFTER_OBSERVES);
            if result >= 0 && !self.is_clean() {
                let known = self.known(fd);
                if known.kind() == FdKind::Unknown {
                    self.observe_everything();
                } else {
                    self.observe_entry(known, result);
                }
            }
            self.observe_error(result);
        } else {
            self.read_uncommitted(position);
        }
    }

    #[inline(never)]
    fn read_uncommitted(&mut self, position: u8) {
        let fd = self.arg(position);
        if self.known(fd).kind() == FdKind::Unknown && self.read_opened(fd) {
            return;
        }
        let entry = self.descriptor(fd);
        match entry.kind() {
            FdKind::Inside => {
                // Taking something out lets go whoever waits for room.
                self.modify(self.object(entry.slot()));
                self.modify(&self.world.messages);
            }
            // Of a FIFO somebody inside may have the other end.
            FdKind::Outside if entry.has(FdEntry::NAMED) => {
                self.modify(self.object(entry.slot()));
                self.modify(&self.world.messages);
                if self.has_option(option::FIFO_HELD) {
                    self.await_fifo(fd, entry);
                }
            }
            FdKind::DomainFile | FdKind::MemoryFile | FdKind::OutsideFile | FdKind::Nothing
                if entry.slot() != 0 && self.moves_offset() && self.may_be_shared(entry) =>
            {
                self.modify(self.object(entry.slot()));
            }
            _ => {}
        }
        let result = self.proceed_receiving(position, AFTER_OBSERVES);
        if result >= 0 {
            self.observe_entry(entry, result);
        } else if result == -EAGAIN {
            // That it did not wait tells of a flag.
            self.observe(self.object(entry.slot()));
        }
        self.observe_error(result);
    }

    /// An error that tells of the other end of a stream tells of everything that was done before it.
    pub fn observe_error(&self, result: i64) {
        const EIO: i64 = -5;
        const ENXIO: i64 = -6;
        const EPIPE: i64 = -32;
        // ECONNABORTED to ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH: ECONNRESET, ENOTCONN and ESHUTDOWN are among them.
        const OF_CONNECTIONS: core::ops::RangeInclusive<i64> = -113..=-103;
        let tells = matches!(result, EIO | ENXIO | EPIPE) || OF_CONNECTIONS.contains(&result);
        if tells && !self.is_clean() {
            self.observe_everything();
        }
    }

    /// Observes what was opened by name and not looked at yet, if it need not be looked at for that. Returns whether the call was made.
    fn read_opened(&mut self, fd: u64) -> bool {
        if self.frame.nr == nr::FSTAT {
            if self.proceed_observing() == 0 {
                self.learn(fd, self.arg(1));
                self.observe_entry(self.descriptor(fd), 1);
            }
            return true;
        }
        // Nothing can be learned from it, and nobody is let go by what is taken out of it.
        let adds_nothing = self.depends_on_everything() && self.is_opened_and_no_stream(fd);
        if adds_nothing && self.proceed_observing() >= 0 {
            // Unless somebody changed it meanwhile.
            self.observe_everything();
        }
        adds_nothing
    }

    /// Whether the call moves the offset of an open file: whoever shares it sees that.
    fn moves_offset(&self) -> bool {
        matches!(self.frame.nr, READ | READV | LSEEK | GETDENTS | GETDENTS64)
            || self.frame.nr == PREADV2 && self.arg(3) == u64::MAX
    }

    /// The process observed what is behind a descriptor; `result` is what its call returned.
    pub fn observe_entry(&mut self, entry: FdEntry, result: i64) {
        match entry.kind() {
            FdKind::DomainFile | FdKind::MemoryFile => {
                self.observe(self.object(entry.slot()));
                self.observe_stores(entry);
                if entry.has(FdEntry::DIRECTORY) {
                    self.observe(&self.world.names);
                }
            }
            // The end of a stream tells that its writers have ended, whatever they did before.
            FdKind::Inside if result == 0 && entry.has(FdEntry::STREAM) => self.observe_everything(),
            // Events tell of timers, files and processes: what they depend on is not known.
            FdKind::Inside if !entry.has(FdEntry::STREAM) && !entry.has(FdEntry::SOCKET) => self.observe_everything(),
            FdKind::Inside => self.observe(self.object(entry.slot())),
            FdKind::Pseudo | FdKind::Unknown => self.observe_everything(),
            // Hung up, by whoever had its other side.
            FdKind::Outside if result == 0 && entry.has(FdEntry::TERMINAL) && matches!(self.frame.nr, READ | READV) => {
                self.observe_everything();
            }
            // A terminal, a pipe or a socket to outside brings what somebody outside did, who has seen only what is committed;
            // but its other end may be inside too (a pseudo-terminal, a FIFO): what came through it was held until it was committed.
            FdKind::OutsideFile | FdKind::Nothing if entry.slot() != 0 && self.may_be_shared(entry) => {
                self.observe(self.object(entry.slot()));
            }
            FdKind::Outside | FdKind::OutsideFile | FdKind::Nothing | FdKind::Bad => {}
        }
    }

    /// Stores through a shared mapping come without a call: whoever reads such a file may see one.
    fn observe_stores(&self, entry: FdEntry) {
        let mapped = self.world.mapped_domains.load(Ordering::Relaxed);
        if mapped == 0 {
            return;
        }
        if entry.kind() == FdKind::MemoryFile && mapped & MAPPED_MEMORY != 0 {
            self.observe_everything();
        }
        if entry.kind() == FdKind::DomainFile && mapped & (1 << entry.domain()) != 0 {
            let transaction = self.transactions().join(entry.domain());
            self.process.clock.raise(entry.domain(), transaction);
        }
    }

    /// Writes data to the object behind a descriptor.
    #[inline(always)]
    pub fn write(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        match entry.kind() {
            FdKind::DomainFile => {
                if let Some(moves) = self.volatile_since(self.arg(position), entry) {
                    return self.write_volatile(entry, moves);
                }
                if self.frame.nr == PWRITEV2 {
                    self.elide_write_flags(entry);
                }
                match self.process.flags.load(Ordering::Relaxed) & PROCESS_MAPPED_SERVED {
                    0 => self.change_contents(position, entry),
                    _ => self.write_served(entry),
                }
            }
            FdKind::MemoryFile | FdKind::Inside => self.send_inside(entry),
            FdKind::Outside => self.write_outside(position, entry),
            FdKind::OutsideFile | FdKind::Pseudo => self.barrier_to_peer(),
            FdKind::Nothing | FdKind::Bad | FdKind::Unknown => {
                self.proceed();
            }
        }
    }

    /// A barrier whose error may tell of the other end.
    pub fn barrier_to_peer(&mut self) {
        self.settle();
        let result = self.proceed_sending(AFTER_MUST_FINISH);
        self.observe_error(result);
    }

    /// A change to a file of a domain.
    #[inline(always)]
    pub fn change_file(&mut self, entry: FdEntry) {
        let transaction = self.begin_change(entry.domain());
        self.change_joined(entry, transaction);
    }

    /// A change to nothing but the contents of a file of a domain, and what the kernel notes of that with the file.
    #[inline(always)]
    fn change_contents(&mut self, position: u8, entry: FdEntry) {
        self.settle_elsewhere(entry.domain());
        if entry.log() != 0 && self.write_flushed(self.arg(position), entry) {
            return;
        }
        let transaction = self.join_contents(entry);
        self.change_joined(entry, transaction);
    }

    #[inline(always)]
    fn change_joined(&mut self, entry: FdEntry, transaction: Transaction) {
        let domain = entry.domain();
        let object = self.object(entry.slot());
        object.raise(domain, transaction);
        self.modify(object);
        self.note_change(entry.slot());
        let result = self.proceed();
        self.end_change(domain, result);
        // Almost every modification is also an observation (000, 5.3).
        self.observe(object);
    }

    /// A change to something that only the world can reach.
    #[inline(always)]
    pub fn send_inside(&mut self, entry: FdEntry) {
        if self.is_clean() {
            let result = self.proceed_sending(AFTER_OBSERVES);
            if !self.is_clean() {
                // It may have waited for room that somebody made meanwhile.
                self.observe(self.object(entry.slot()));
            }
            return self.observe_error(result);
        }
        if entry.kind() == FdKind::Inside && self.has_option(option::OUTSIDE_EVENTS) {
            self.settle();
        }
        let object = self.object(entry.slot());
        self.modify(object);
        self.modify(&self.world.messages);
        self.note_change(entry.slot());
        if entry.kind() == FdKind::Inside {
            self.settle_if_spliced(entry.slot());
        }
        let result = self.proceed_sending(AFTER_OBSERVES);
        self.observe(object);
        self.observe_error(result);
    }

    /// Whether a write can go straight to the outside.
    #[inline(always)]
    pub fn goes_straight_through(&self, entry: FdEntry) -> bool {
        self.world.queue_pending[entry.queue()].load(Ordering::Acquire) == 0 && self.is_settled()
    }

    /// Output: straight through if it depends on nothing, else taken for later (002, 2.3).
    #[inline(always)]
    pub fn write_outside(&mut self, position: u8, entry: FdEntry) {
        if self.page.syncs & SYNC_UNSHOWN != 0 {
            self.page.syncs = SYNC_SHOWS | self.page.syncs & SYNC_AFTER_WRITE;
        }
        if self.goes_straight_through(entry) {
            let result = self.proceed_sending(AFTER_OBSERVES);
            // It may have waited for room that somebody made in a FIFO.
            if entry.has(FdEntry::NAMED) && !self.is_clean() {
                self.observe(self.object(entry.slot()));
            }
            return self.observe_error(result);
        }
        self.hold_output(position);
    }

    #[inline(never)]
    pub fn hold_output(&mut self, position: u8) {
        if self.has_option(option::RELEASE_EARLY) {
            self.proceed();
            return;
        }
        if self.descriptor(self.arg(position)).has(FdEntry::NAMED) {
            self.world.options.fetch_or(option::FIFO_HELD, Ordering::SeqCst);
        }
        let clock = self.dependencies();
        let frame = &raw const *self.frame as u64;
        let taken = gate::effect(Request::Output, self.arg(position), frame);
        if taken >= 0 {
            self.answer(taken);
            self.request_commit(&clock);
            return;
        }
        // Not taken: nothing happened, the call is still to be made.
        self.page.phase = PHASE_BEFORE;
        if taken == -EAGAIN {
            self.request_commit(&clock);
        }
        self.settle();
        self.await_queue(self.descriptor(self.arg(position)));
        let result = self.proceed_sending(AFTER_MUST_FINISH);
        self.observe_error(result);
    }

    /// Attributes, size or allocation of what is behind a descriptor.
    pub fn modify_descriptor(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        match entry.kind() {
            FdKind::DomainFile => {
                let transaction_domain = entry.domain();
                let names = self.transactions().active(transaction_domain);
                self.world.names.raise(transaction_domain, names);
                self.change_file(entry);
                self.world
                    .names
                    .merge(&self.process.clock.load(self.transactions().domains()), self.transactions().domains());
            }
            FdKind::MemoryFile | FdKind::Inside => self.send_inside(entry),
            FdKind::Nothing | FdKind::Bad | FdKind::Unknown => {
                self.proceed();
            }
            FdKind::Outside | FdKind::OutsideFile | FdKind::Pseudo => self.barrier(),
        }
    }

    /// From one descriptor to another inside the kernel.
    pub fn copy(&mut self, input: u8, output: u8) {
        let from = self.descriptor(self.arg(input));
        let to = self.descriptor(self.arg(output));
        if from.kind() == FdKind::Bad || to.kind() == FdKind::Bad {
            self.proceed();
            return;
        }
        if self.hands_over(from, to) {
            return self.hand_over(from, to, input, output);
        }
        match to.kind() {
            FdKind::DomainFile if !matches!(from.kind(), FdKind::DomainFile | FdKind::MemoryFile | FdKind::Nothing) => {
                self.splice_to_file(from, to);
            }
            FdKind::DomainFile => {
                // The data moves in one step: what it depends on is taken over before it arrives.
                self.observe_source(from);
                self.change_file(to);
            }
            FdKind::MemoryFile | FdKind::Inside => {
                self.observe_source(from);
                self.modify(self.object(to.slot()));
                self.modify(&self.world.messages);
                if to.kind() == FdKind::Inside {
                    self.settle_if_spliced(to.slot());
                }
                self.proceed();
                // Data that came into the source while the call waited went on unseen.
                self.observe_source(from);
                self.modify(self.object(to.slot()));
                self.modify(&self.world.messages);
                self.observe(self.object(to.slot()));
            }
            FdKind::Nothing => {
                // It goes nowhere: whoever waits for room in the source, or shares its offset, is all that learns of it.
                self.modify(self.object(from.slot()));
                self.modify(&self.world.messages);
                self.proceed_observing();
            }
            _ => {
                if from.kind() == FdKind::Inside && !self.bound_by_queue(from, self.arg(input), to) {
                    return;
                }
                self.observe_source(from);
                self.settle();
                self.await_queue(to);
                self.proceed();
            }
        }
        self.observe_source(from);
    }

    pub fn observe_source(&mut self, from: FdEntry) {
        if !self.is_clean() {
            if from.kind() == FdKind::Inside {
                // Whoever sends while we wait is not known yet.
                self.observe_everything();
            } else {
                self.observe_entry(from, 1);
            }
        }
    }

    /// `poll` and its kin: being ready is an observation of whoever made it ready, and not being ready of whoever has taken what was there.
    pub fn await_ready(&mut self, awaits_nothing: bool) {
        if self.has_option(option::FIFO_HELD) && !self.is_clean() {
            self.await_fifos();
        }
        let result = self.proceed_observing();
        self.observe_ready(result, awaits_nothing);
    }

    /// Before a `poll`: as `await_fifo`, for the first of what is asked for.
    #[cold]
    #[inline(never)]
    fn await_fifos(&self) {
        const POLL: u64 = 7;
        const PPOLL: u64 = 271;
        const MOST: u64 = 64;
        if !matches!(self.frame.nr, POLL | PPOLL) {
            return;
        }
        for at in 0..self.arg(1).min(MOST) {
            let mut one = [0];
            if !read_program(self.arg(0).wrapping_add(8 * at), &mut one) {
                return;
            }
            let (fd, asks) = (u64::from(one[0] as u32), one[0] >> 32 & POLLIN != 0);
            // Also one that nothing is remembered of.
            if !asks {
                continue;
            }
            let entry = self.descriptor(fd);
            if entry.kind() == FdKind::Outside && entry.has(FdEntry::NAMED) {
                self.await_fifo(fd, entry);
            }
        }
    }

    /// What was written into a FIFO with a name may be held. Whoever reads there finds it if it is inside, as it would
    /// have found it without us.
    #[cold]
    #[inline(never)]
    fn await_fifo(&self, fd: u64, entry: FdEntry) {
        loop {
            let seen = self.world.commits.load(Ordering::Acquire);
            let is_held = self.world.queue_pending[entry.queue()].load(Ordering::Acquire) != 0;
            if !is_held || ready_now(fd, POLLIN) != 0 {
                return;
            }
            self.request_commit(&self.transactions().dirty());
            self.sleep(seen);
        }
    }

    fn observe_ready(&self, result: i64, awaits_nothing: bool) {
        if result >= 0 && !awaits_nothing && !self.is_clean() {
            self.observe(&self.world.messages);
            if result > 0 {
                self.observe(&self.world.names);
            }
        }
    }

    /// The same for a set of watched descriptors, which gives some events only once.
    pub fn await_watched(&mut self) {
        if !self.is_clean() {
            let entry = self.descriptor(self.arg(0));
            self.modify_description(entry);
        }
        const EPOLL_PWAIT2: u64 = 441;
        let limit = if self.frame.nr == EPOLL_PWAIT2 { Limit::Timespec } else { Limit::Milliseconds };
        let result = self.proceed_timed(3, limit);
        self.observe_ready(result, false);
    }

    /// A pipe that is made inside is inside.
    pub fn pipe(&mut self) {
        let result = self.proceed();
        let mut ends = [0u64; 1];
        if result == 0 && crate::memory::read_program(self.arg(0), &mut ends) {
            if let Ok(stat) = Stat::of_fd(ends[0] & 0xffff_ffff) {
                self.world.remember_pipe(stat.hash());
            }
        }
    }

    pub fn close(&mut self) {
        let fd = self.arg(0);
        self.before_close(fd);
        self.forget(fd);
        self.proceed();
        self.forget(fd);
    }

    /// The end of a stream is output, too: whoever is at the other end must not see it before what it depends on is committed.
    #[inline(always)]
    pub fn before_close(&mut self, fd: u64) {
        let known = self.known(fd);
        match known.kind() {
            FdKind::Outside => self.before_close_outside(fd, known),
            // The other end will be told that this one is gone.
            FdKind::Inside if !self.is_clean() => self.modify(&self.world.messages),
            // So will whoever has the other side of a terminal.
            FdKind::OutsideFile if !self.is_clean() => self.before_close_outside_file(),
            FdKind::Pseudo if !self.is_clean() => self.settle_locks(),
            // Where a file was made is known for certain once it has been looked at.
            FdKind::Unknown if !self.is_clean() && (known.has(FdEntry::MADE) || !self.is_opened_and_no_stream(fd)) => {
                let entry = self.descriptor(fd);
                match entry.kind() {
                    FdKind::Outside => self.before_close_outside(fd, entry),
                    FdKind::Inside => self.modify(&self.world.messages),
                    FdKind::OutsideFile => self.before_close_outside_file(),
                    _ if is_doubtful_socket(entry) => self.before_close_named(fd),
                    FdKind::Pseudo => self.settle_locks(),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn before_close_outside_file(&mut self) {
        self.modify(&self.world.messages);
        self.settle_locks();
    }

    /// A file is closed whose locks may be seen outside: they are given up.
    fn settle_locks(&mut self) {
        if self.process.flags.load(Ordering::Relaxed) & PROCESS_LOCKS_OUTSIDE != 0 {
            self.settle();
        }
    }

    fn before_close_outside(&mut self, fd: u64, entry: FdEntry) {
        self.settle_locks();
        if entry.has(FdEntry::SOCKET) || entry.has(FdEntry::NAMED) {
            self.hold_end(fd);
        } else if entry.has(FdEntry::TERMINAL) {
            self.modify(&self.world.messages);
        } else {
            // An inherited pipe: its copy is let go when nobody inside has it any more.
            self.world.closes.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    pub fn hold_end(&mut self, fd: u64) {
        self.world.closes.fetch_add(1, Ordering::Relaxed);
        if !self.is_settled() && !self.has_option(option::RELEASE_EARLY) {
            gate::request(Request::HoldEnd, fd, 0, 0);
            self.request_commit(&self.dependencies());
        }
    }

    pub fn close_range(&mut self) {
        const CLOSE_RANGE_UNSHARE: u64 = 2;
        const CLOSE_RANGE_CLOEXEC: u64 = 4;
        let (first, last, flags) = (self.arg(0), self.arg(1), self.arg(2));
        if flags & CLOSE_RANGE_UNSHARE != 0 {
            crate::descriptors::forget_forever();
        }
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            self.before_close_range(first, last);
            self.forget_range(first, last);
        }
        self.proceed();
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            self.forget_range(first, last);
        }
    }

    pub fn dup2(&mut self) {
        let (old, new) = (self.arg(0), self.arg(1));
        if old == new {
            self.proceed();
            return;
        }
        self.before_close(new);
        self.forget(new);
        let result = self.proceed();
        let known = if result >= 0 { self.known(old) } else { FdEntry::UNKNOWN };
        self.remember(new, known);
    }

    pub fn fcntl(&mut self) {
        const F_DUPFD: u64 = 0;
        const F_GETFD: u64 = 1;
        const F_SETFD: u64 = 2;
        const F_GETFL: u64 = 3;
        const F_GETLK: u64 = 5;
        const F_SETLK: u64 = 6;
        const F_SETLKW: u64 = 7;
        const F_OFD_GETLK: u64 = 36;
        const F_OFD_SETLKW: u64 = 38;
        const F_SETFL: u64 = 4;
        const F_SETOWN: u64 = 8;
        const F_GETSIG: u64 = 11;
        const F_SETOWN_EX: u64 = 15;
        const F_GETOWNER_UIDS: u64 = 17;
        const F_DUPFD_CLOEXEC: u64 = 1030;
        const F_SETPIPE_SZ: u64 = 1031;
        const F_SET_FILE_RW_HINT: u64 = 1038;
        const DUP: u64 = 32;
        const F_SETLEASE: u64 = 1024;
        const O_ASYNC: u64 = 0o20000;
        let command = if self.frame.nr == DUP { F_DUPFD } else { u64::from(self.arg(1) as u32) };
        match command {
            F_GETLK..=F_SETLKW | F_OFD_GETLK..=F_OFD_SETLKW => {
                let is_noted = self.process.flags.load(Ordering::Relaxed) & PROCESS_LOCKS != 0;
                if matches!(command, F_SETLK | F_SETLKW) && !is_noted {
                    self.process.flags.fetch_or(PROCESS_LOCKS, Ordering::Relaxed);
                }
                self.lock(0, !matches!(command, F_GETLK | F_OFD_GETLK));
            }
            F_GETFL => self.get_flags(),
            F_GETFD | F_SETFD => {
                self.proceed();
            }
            F_DUPFD | F_DUPFD_CLOEXEC => {
                let known = self.known(self.arg(0));
                let result = self.proceed();
                if result >= 0 {
                    self.remember(result as u64, known);
                }
            }
            F_SETFL if self.arg(2) & O_ASYNC != 0 => {
                self.signal_readiness();
                self.change_description(0);
            }
            F_SETFL | F_SETOWN..=F_GETSIG | F_SETOWN_EX..=F_GETOWNER_UIDS | F_SETPIPE_SZ..=F_SET_FILE_RW_HINT => {
                self.change_description(0);
            }
            // Leases tell who has the file open, and for the rest nobody knows.
            _ => {
                if command == F_SETLEASE {
                    // Who has one allows others to open the file.
                    self.hear_reads();
                }
                self.change_description(0);
                self.observe_everything();
            }
        }
    }

    /// From now on the kernel tells somebody by a signal that something can be read or written: no guess is to make
    /// it so.
    fn signal_readiness(&self) {
        self.world.options.fetch_or(option::READINESS_SIGNALLED, Ordering::SeqCst);
    }

    /// Flags, owner, size, seals, options, timers: what all who share an open file see.
    pub fn change_description(&mut self, position: u8) {
        if self.is_clean() {
            self.proceed();
            return;
        }
        let entry = self.descriptor(self.arg(position));
        if entry.kind() == FdKind::Bad {
            self.proceed();
            return;
        }
        if self.is_inherited_from_outside(entry) {
            self.settle();
        }
        self.modify_description(entry);
        self.proceed();
        self.observe(self.object(entry.slot()));
        if is_doubtful_socket(entry) {
            self.observe_everything();
        }
    }

    /// Whoever shares it may look at it, or wait for it to become ready.
    fn modify_description(&self, entry: FdEntry) {
        if self.may_be_shared(entry) {
            self.modify(self.object(entry.slot()));
            self.modify(&self.world.messages);
        }
    }

    /// From now on somebody inside hears that files are opened and read, or even has to allow it.
    fn hear_reads(&self) {
        self.world.options.fetch_or(agent_abi::option::READS_HEARD, Ordering::SeqCst);
    }

    /// `fanotify_init`.
    pub fn listen_to_files(&mut self) {
        self.hear_reads();
        self.barrier();
    }

    /// A watch that is added gets the next number.
    pub fn add_watch(&mut self, position: u8) {
        const INOTIFY_ADD_WATCH: u64 = 254;
        const IN_ACCESS: u64 = 0x1;
        const IN_CLOSE_NOWRITE: u64 = 0x10;
        const IN_OPEN: u64 = 0x20;
        if self.frame.nr == INOTIFY_ADD_WATCH && self.arg(2) & (IN_ACCESS | IN_CLOSE_NOWRITE | IN_OPEN) != 0 {
            self.hear_reads();
        }
        let entry = if self.is_clean() { None } else { Some(self.descriptor(self.arg(position))) };
        entry.iter().for_each(|&entry| self.modify_description(entry));
        self.observe_path();
        if let Some(entry) = entry {
            self.observe(self.object(entry.slot()));
        }
    }

    /// Whether somebody outside may have the same open file.
    fn is_inherited_from_outside(&self, entry: FdEntry) -> bool {
        match entry.kind() {
            FdKind::Outside if entry.has(FdEntry::TERMINAL) => true,
            FdKind::Outside => Stat::of_fd(self.arg(0)).is_ok_and(|stat| self.world.is_outside(stat.hash())),
            FdKind::OutsideFile => self.may_be_shared(entry),
            _ => false,
        }
    }

    /// A lock is a message: who takes it may have waited for whoever held it. On a file whose data waits like output
    /// it is one to outside (`decisions/0036`).
    pub fn lock(&mut self, position: u8, changes: bool) {
        let entry = self.descriptor(self.arg(position));
        self.modify(self.object(entry.slot()));
        if changes && matches!(entry.kind(), FdKind::OutsideFile | FdKind::Outside | FdKind::Pseudo) {
            self.process.flags.fetch_or(PROCESS_LOCKS_OUTSIDE, Ordering::Relaxed);
            // It is given up with the process, too.
            note_outside_stream(self.arg(position));
            self.settle();
        }
        self.proceed();
        // A lock is also given up by closing the file, or by the end of a process: whoever takes it, or sees that it is taken, does not know whose.
        if !self.is_clean() {
            self.observe_everything();
        }
    }

    pub fn ioctl(&mut self) {
        const FIOASYNC: u32 = 0x5452;
        let entry = self.descriptor(self.arg(0));
        match Ioctl::of(self.arg(1) as u32) {
            Ioctl::Observes => self.read(0),
            Ioctl::Flags => {
                if self.arg(1) as u32 == FIOASYNC {
                    self.signal_readiness();
                }
                self.change_description(0);
            }
            Ioctl::ModifiesFile => self.modify_descriptor(0),
            Ioctl::Freezes => self.answer(-gate::EOPNOTSUPP),
            Ioctl::Unknown => match entry.kind() {
                FdKind::Inside if is_pipe(entry) => self.send_inside(entry),
                FdKind::Nothing | FdKind::Bad => {
                    self.proceed();
                }
                FdKind::DomainFile => {
                    self.settle();
                    self.modify_descriptor(0);
                }
                FdKind::Outside if changes_how_it_is_shown(self.arg(1) as u32) => {
                    self.settle();
                    self.await_queue(entry);
                    self.proceed();
                }
                _ => {
                    self.barrier();
                    self.observe_everything();
                }
            },
        }
    }

    fn elide_write_flags(&mut self, entry: FdEntry) {
        const RWF_DSYNC: u64 = 2;
        const RWF_SYNC: u64 = 4;
        if self.arg(5) & (RWF_DSYNC | RWF_SYNC) != 0 && self.elides_fsync(entry.domain()) {
            self.replace_arg(5, self.arg(5) & !(RWF_DSYNC | RWF_SYNC));
            self.world.fsyncs_elided.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether a request to a terminal concerns what was written before, by others too: the modes in which it is shown, or that it has been.
fn changes_how_it_is_shown(request: u32) -> bool {
    // TCSETS and its kin, TCSBRK, TCSBRKP. (Not TCXONC: it is what lets the rest be shown.)
    matches!(request, 0x5402..=0x5404 | 0x5406..=0x5409 | 0x402c542b..=0x402c542d | 0x5425)
}

/// What an `ioctl` request means.
enum Ioctl {
    /// Reads state, or changes only this process's view of it.
    Observes,
    /// Changes the flags of an open file: FIONBIO, FIOASYNC.
    Flags,
    /// Changes a file.
    ModifiesFile,
    /// FIFREEZE and FITHAW: a frozen file system could not commit.
    Freezes,
    /// Not known: a barrier.
    Unknown,
}

impl Ioctl {
    fn of(request: u32) -> Self {
        match request {
            // TCGETS, TCGETS2, TIOCGWINSZ, TIOCGPGRP, TIOCGSID, TIOCOUTQ, FIONREAD, TIOCGPTN, TIOCGEXCL, TIOCGETD
            0x5401 | 0x802c542a | 0x5413 | 0x540f | 0x5429 | 0x5411 | 0x541b | 0x80045430 | 0x80045440 | 0x5424 => {
                Self::Observes
            }
            0x5421 | 0x5452 => Self::Flags,
            // FIOSETOWN, SIOCSPGRP, TFD_IOC_SET_TICKS, EPIOCSPARAMS
            0x8901 | 0x8902 | 0x4008_5400 | 0x4008_8a01 => Self::Flags,
            // FIONCLEX, FIOCLEX, FIOQSIZE, FIGETBSZ, FIBMAP, FS_IOC_FIEMAP, FIOGETOWN, SIOCGPGRP, SIOCATMARK,
            // SIOCOUTQNSD, EPIOCGPARAMS
            0x5450 | 0x5451 | 0x5460 | 2 | 1 | 0xc020660b | 0x8903..=0x8905 | 0x894b | 0x8008_8a02 => Self::Observes,
            // FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FSGETXATTR, FS_IOC_GETFSUUID, BLKGETSIZE64, BLKSSZGET
            0x80086601 | 0x80087601 | 0x801c581f | 0x80111500 | 0x80081272 | 0x1268 => Self::Observes,
            // FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION
            0x40049409 | 0x4020940d | 0xc0189436 | 0x40086602 | 0x401c5820 | 0x40087602 => Self::ModifiesFile,
            0xc0045877 | 0xc0045878 => Self::Freezes,
            _ => Self::Unknown,
        }
    }
}
