//! Data through descriptors.

use crate::clocks::Call;
use crate::descriptors::{is_doubtful_socket, Stat, Way, S_IFBLK, S_IFCHR, S_IFIFO};
use crate::gate::{self, EAGAIN};
use crate::transfer::{file_flags, ready_now, O_NONBLOCK, POLLOUT};
use agent_abi::{
    option, FdEntry, FdKind, Request, AFTER_MUST_FINISH, AFTER_OBSERVES, MAPPED_MEMORY, PROCESS_LOCKS_OUTSIDE,
    PROCESS_MAPPED_SERVED, SYNC_AFTER_WRITE, SYNC_OF_DATA, SYNC_SHOWS, SYNC_UNSHOWN,
};
use commit_clock::Transaction;
use core::sync::atomic::Ordering;
use syscall_table::nr;

impl Call<'_> {
    /// Observes the object behind a descriptor.
    #[inline(always)]
    pub fn read(&mut self, position: u8) {
        if self.is_clean() {
            // Nothing anywhere is uncommitted. If that changes while the call runs, what it saw may be part of the
            // change.
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

    /// `fstat`: as `read`, but it shows the file's times besides.
    pub fn read_attributes(&mut self, position: u8) {
        if !self.are_times_clean() {
            return self.read_uncommitted(position);
        }
        let fd = self.arg(position);
        let result = self.proceed_observing();
        if result >= 0 && !self.are_times_clean() {
            self.learn(fd, self.arg(1));
            self.observe_attributes(fd);
        }
    }

    fn observe_attributes(&mut self, fd: u64) {
        let entry = self.descriptor(fd);
        self.note_look_at_log(entry.slot());
        self.observe_entry(entry, 1);
    }

    #[inline(never)]
    fn read_uncommitted(&mut self, position: u8) {
        let fd = self.arg(position);
        if self.known(fd).kind() == FdKind::Unknown && self.read_opened(fd) {
            return;
        }
        let entry = self.descriptor(fd);
        self.settle_taking(fd, entry);
        self.lets_others_go(entry);
        match entry.kind() {
            FdKind::Outside if entry.has(FdEntry::NAMED) && self.has_option(option::FIFO_HELD) => {
                self.await_fifo(fd, entry);
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
            if self.frame.nr == nr::fstat {
                self.note_look_at_log(entry.slot());
            }
            self.note_taken(entry, result);
            self.observe_entry(entry, result);
        }
        self.observe_none(entry, result);
        self.observe_error(result);
    }

    /// Taking something out lets go whoever waits for room. Of a FIFO somebody inside may have the other end.
    pub fn lets_others_go(&self, entry: FdEntry) {
        if entry.kind() == FdKind::Inside || entry.kind() == FdKind::Outside && entry.has(FdEntry::NAMED) {
            self.modify(self.object(entry.slot()));
            self.modify(&self.world.messages);
        }
    }

    /// There was nothing to be taken: somebody may have taken it. That the call did not wait tells of a flag.
    pub fn observe_none(&self, entry: FdEntry, result: i64) {
        if result == -EAGAIN && !self.is_clean() {
            self.observe(self.object(entry.slot()));
        }
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

    /// Observes what was opened by name and not looked at yet, if it need not be looked at for that. Returns whether
    /// the call was made.
    fn read_opened(&mut self, fd: u64) -> bool {
        if self.frame.nr == nr::fstat {
            if self.proceed_observing() == 0 {
                self.learn(fd, self.arg(1));
                self.observe_attributes(fd);
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
        matches!(self.frame.nr, nr::read | nr::readv | nr::lseek | nr::getdents | nr::getdents64)
            || self.frame.nr == nr::preadv2 && self.arg(3) == u64::MAX
    }

    /// Whether a copy begins where the source's open file stands, and moves that.
    fn moves_offset_of_source(&self) -> bool {
        match self.frame.nr {
            nr::sendfile => self.arg(2) == 0,
            nr::splice | nr::copy_file_range => self.arg(1) == 0,
            _ => false,
        }
    }

    /// The process observed what is behind a descriptor; `result` is what its call returned.
    pub fn observe_entry(&mut self, entry: FdEntry, result: i64) {
        self.observe_node(entry);
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
            FdKind::Inside if !entry.has(FdEntry::STREAM) && !entry.has(FdEntry::SOCKET) => {
                self.observe_events(entry, result);
            }
            FdKind::Inside => self.observe(self.object(entry.slot())),
            FdKind::Pseudo | FdKind::Unknown => self.observe_everything(),
            FdKind::OutsideFile if entry.has(FdEntry::BLOCKS) => self.observe_everything(),
            // Hung up, by whoever had its other side.
            FdKind::Outside
                if result == 0 && entry.has(FdEntry::TERMINAL) && matches!(self.frame.nr, nr::read | nr::readv) =>
            {
                self.observe_everything();
            }
            // A terminal, a pipe or a socket to outside brings what somebody outside did, who has seen only what is
            // committed; but its other end may be inside too (a pseudo-terminal, a FIFO): what came through it was held
            // until it was committed.
            FdKind::OutsideFile | FdKind::Nothing if entry.slot() != 0 && self.may_be_shared(entry) => {
                self.observe(self.object(entry.slot()));
            }
            FdKind::Outside | FdKind::OutsideFile | FdKind::Nothing | FdKind::Bad => {}
        }
    }

    /// The attributes of a FIFO or a device, which others change by its name (`modify_descriptor`).
    pub fn observe_node(&self, entry: FdEntry) {
        let looks_at_attributes = matches!(self.frame.nr, nr::fstat | nr::fgetxattr | nr::flistxattr);
        if looks_at_attributes && is_of_node(entry) {
            self.observe(&self.world.names);
        }
    }

    /// Events tell of timers, files and processes: what they depend on is not known. Of signals that somebody inside
    /// has sent it is; which of them are taken from here whoever has the descriptor, too, may have changed.
    #[inline(never)]
    fn observe_events(&self, entry: FdEntry, result: i64) {
        let are_signals = entry.has(FdEntry::SIGNALS) && self.frame.nr == nr::read;
        match are_signals && self.observe_senders(result) {
            true => self.observe(self.object(entry.slot())),
            false => self.observe_everything(),
        }
    }

    /// Stores through a shared mapping come without a call: whoever reads such a file may see one.
    pub fn observe_stores(&self, entry: FdEntry) {
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
                if self.frame.nr == nr::pwritev2 {
                    self.elide_write_flags(entry);
                }
                match self.process.flags.load(Ordering::Relaxed) & PROCESS_MAPPED_SERVED {
                    0 => self.change_contents(position, entry),
                    _ => self.write_served(entry),
                }
            }
            FdKind::MemoryFile | FdKind::Inside => self.send_inside(entry),
            FdKind::Outside => self.write_outside(position, entry),
            FdKind::OutsideFile | FdKind::Pseudo => self.barrier_to_peer(entry),
            FdKind::Nothing | FdKind::Bad | FdKind::Unknown => {
                self.proceed();
            }
        }
    }

    /// A barrier whose error may tell of the other end.
    pub fn barrier_to_peer(&mut self, entry: FdEntry) {
        self.settle();
        self.send_behind_queue(self.arg(0), entry);
    }

    /// Sends when nothing is held for who is at the other end any more. Who does not wait is told that there is no
    /// room, if there is none: what is held there then waits for a reader.
    fn send_behind_queue(&mut self, fd: u64, entry: FdEntry) {
        let has_no_room = || self.sends_at_once(fd) && ready_now(fd, POLLOUT) == 0;
        if !self.await_queue_unless(entry, has_no_room) {
            return self.answer(-EAGAIN);
        }
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
        let entry = self.expect_log(self.arg(position), entry);
        let transaction = match entry.log() {
            0 => self.join_contents(entry),
            _ if self.write_flushed(self.arg(position), entry) => return,
            _ => self.join_apart(self.arg(position), entry),
        };
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
            self.page.syncs = SYNC_SHOWS | self.page.syncs & (SYNC_AFTER_WRITE | SYNC_OF_DATA);
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
        self.page.after = AFTER_MUST_FINISH;
        let taken = gate::effect(Request::Output, self.arg(position), frame);
        if taken >= 0 {
            self.answer(taken);
            self.request_commit(&clock);
            return;
        }
        // Not taken: nothing happened, the call is still to be made.
        if !self.may_begin_more(true) {
            return self.begin_again();
        }
        if taken == -EAGAIN {
            self.request_commit(&clock);
        }
        self.settle();
        let fd = self.arg(position);
        self.send_behind_queue(fd, self.descriptor(fd));
    }

    /// Whether a call that sends fails where it would have to wait.
    pub fn sends_at_once(&self, fd: u64) -> bool {
        const MSG_DONTWAIT: u64 = 0x40;
        let flags = match self.frame.nr {
            nr::sendto | nr::sendmmsg => self.arg(3),
            nr::sendmsg => self.arg(2),
            _ => 0,
        };
        flags & MSG_DONTWAIT != 0 || file_flags(fd) & O_NONBLOCK != 0
    }

    /// Attributes, size or allocation of what is behind a descriptor.
    pub fn modify_descriptor(&mut self, position: u8) {
        let fd = self.arg(position);
        let entry = self.descriptor(fd);
        // The attributes of a FIFO or a device are its file system's.
        let node = if is_of_node(entry) { self.node_of(fd) } else { None };
        let entry = node.unwrap_or(entry);
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

    /// Where the name of a FIFO or a device lies, if it has one on a file system of ours.
    fn node_of(&self, fd: u64) -> Option<FdEntry> {
        let stat = Stat::of_fd(fd).ok().filter(|stat| matches!(stat.kind(), S_IFIFO | S_IFCHR | S_IFBLK))?;
        let node = self.file_entry(&stat, Way::Descriptor(fd));
        matches!(node.kind(), FdKind::DomainFile | FdKind::MemoryFile).then_some(node)
    }

    /// From one descriptor to another inside the kernel.
    pub fn copy(&mut self, input: u8, output: u8) {
        let from = self.descriptor(self.arg(input));
        let to = self.descriptor(self.arg(output));
        if from.kind() == FdKind::Bad || to.kind() == FdKind::Bad {
            self.proceed();
            return;
        }
        if self.has_option(option::FIFO_HELD) && !self.is_clean() {
            self.await_fifo_at(self.arg(input));
        }
        if !self.is_clean() {
            self.settle_taking(self.arg(input), from);
        }
        if self.hands_over(from, to) {
            return self.hand_over(from, to, input, output);
        }
        if !self.is_clean() {
            self.lets_others_go(from);
            if self.moves_offset_of_source() && self.may_be_shared(from) {
                self.modify(self.object(from.slot()));
            }
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
                // It goes nowhere: whoever waits for room in the source, or shares its offset, is all that learns of
                // it.
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

    /// A pipe that is made inside is inside. Others may have it before this is told. They see that somebody is about to
    /// tell (decisions/0232).
    pub fn pipe(&mut self) {
        self.thread.makes_pipe.store(1, Ordering::SeqCst);
        // Behind the call it may be an epoch that is younger than a checkpoint which has the pipe.
        let epoch = self.process.young.load(Ordering::SeqCst);
        let result = self.proceed();
        let mut ends = [0u64; 1];
        if result == 0 && crate::memory::read_program(self.arg(0), &mut ends) {
            if let Ok(stat) = Stat::of_fd(ends[0] & 0xffff_ffff) {
                self.world.remember_pipe(stat.hash());
                self.note_pipe(stat.hash(), epoch);
            }
        }
        self.thread.makes_pipe.store(0, Ordering::Release);
    }

    pub fn close(&mut self) {
        let fd = self.arg(0);
        self.before_close(fd);
        self.forget(fd);
        self.proceed();
        self.forget(fd);
    }

    /// The end of a stream is output, too: whoever is at the other end must not see it before what it depends on is
    /// committed.
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
            FdKind::Unknown if !known.has(FdEntry::FRESH) => {
                // It may be what COMMAND inherited.
                self.world.closes.fetch_add(1, Ordering::Relaxed);
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

    fn elide_write_flags(&mut self, entry: FdEntry) {
        const RWF_DSYNC: u64 = 2;
        const RWF_SYNC: u64 = 4;
        if self.arg(5) & (RWF_DSYNC | RWF_SYNC) != 0 && self.elides_fsync(entry.domain()) {
            self.replace_arg(5, self.arg(5) & !(RWF_DSYNC | RWF_SYNC));
            self.world.fsyncs_elided.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether a descriptor may be one of a file with a name that is no regular file.
fn is_of_node(entry: FdEntry) -> bool {
    match entry.kind() {
        FdKind::Outside => entry.has(FdEntry::NAMED) || entry.has(FdEntry::TERMINAL),
        FdKind::OutsideFile | FdKind::Nothing => true,
        _ => false,
    }
}
