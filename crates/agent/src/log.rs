//! The log of a domain: the one file whose flush commits a transaction in which nothing else was changed.
//!
//! A server that answers after its fsync of one file needs no commit of the whole file system. The supervisor numbers
//! files that can be logs, and the commit engine decides which one is it. A write to it says that nothing else was
//! changed; every other change, also one whose descriptor is not known to be the log's, says the opposite.
//!
//! Where a thread writes once, flushes at once, and answers, its *write* flushes the log, and the flush after it has
//! nothing to do ([0080](../../../docs/decisions/0080-a-write-flushes-its-log.md)). When the write returns, what it
//! wrote is on stable storage: nobody can learn of it before, but by looking at the file.

use crate::clocks::Call;
use crate::descriptors::{replace_remembered, Stat};
use crate::gate;
use crate::memory::is_set;
use agent_abi::{FdEntry, Request, PROCESS_SHARES, SYNC_AFTER_WRITE, SYNC_OF_DATA, SYNC_SHOWS, SYNC_UNSHOWN};
use commit_clock::Transaction;
use core::sync::atomic::{fence, Ordering};
use syscall_table::nr;

/// While another file is the log, one of so many fsyncs asks again.
const MISSES: u32 = 64;
/// So many writes between two flushes of a thread wait for a commit that is under way. Whoever writes more than that
/// before it flushes is not to be held up each time.
const KEPT_APART: u32 = 4;
/// Each look at times that were left to the next commit costs one: a world that does so often flushes them at once.
const LOOKS_MAX: u32 = 4;

impl Call<'_> {
    pub fn is_log(&self, entry: FdEntry) -> bool {
        let number = entry.log();
        number != 0 && self.world.logs[entry.domain()].load(Ordering::SeqCst) == number
    }

    /// `join_change` for the contents of a file.
    #[inline(always)]
    pub fn join_contents(&self, entry: FdEntry) -> Transaction {
        self.open_handle(entry.domain());
        self.join_opened(entry)
    }

    /// The same for a write to a file that can be a log, and that was not flushed by its write. A commit of more than
    /// the log writes the log's data first: a write that comes into its middle would have its size committed alone.
    #[inline(never)]
    pub fn join_apart(&self, fd: u64, entry: FdEntry) -> Transaction {
        let is_kept_apart = self.page.log_writes <= KEPT_APART && self.world.ahead.load(Ordering::Relaxed) == 0;
        match is_kept_apart && self.is_log(entry) {
            true => self.open_handle_apart(fd, entry.domain()),
            false => self.open_handle(entry.domain()),
        }
        self.join_opened(entry)
    }

    /// Open the thread's handle for a write that may change a file's size, while no commit of `domain` is under way:
    /// none begins to flush until it is closed.
    fn open_handle_apart(&self, fd: u64, domain: usize) {
        self.open_handle(domain);
        while self.transactions().under_way(domain).is_some() && !self.is_within_file(fd) {
            self.thread.handle.close();
            self.await_commit_under_way(domain);
            self.open_handle(domain);
        }
    }

    /// Whether the call writes where the file has contents already: what a crash may show there, it may show natively.
    /// A database's log is of that kind.
    #[cold]
    fn is_within_file(&self, fd: u64) -> bool {
        const F_GETFL: u64 = 3;
        const O_APPEND: i64 = 0o2000;
        if self.frame.nr != nr::pwrite64 {
            return false;
        }
        // SAFETY: no pointers.
        let flags = unsafe { gate::call(nr::fcntl, [fd, F_GETFL, 0, 0, 0, 0]) };
        let end = (self.arg(3) as i64).checked_add(self.arg(2) as i64);
        let is_inside = |stat: Stat| end.is_some_and(|end| end <= stat.size);
        flags >= 0 && flags & O_APPEND == 0 && Stat::of_fd(fd).is_ok_and(is_inside)
    }

    #[inline(always)]
    fn join_opened(&self, entry: FdEntry) -> Transaction {
        let domain = entry.domain();
        // With the handle open: what is the log now is so until the next transaction is closed.
        let transaction = match self.is_log(entry) {
            true => self.transactions().join_log(domain),
            false => self.transactions().join(domain),
        };
        self.process.clock.raise(domain, transaction);
        transaction
    }

    /// A write to a file that can be a log, if it is likely that this thread flushes it next and answers then. The
    /// flush is made here. Returns whether all of that was done; otherwise nothing was.
    #[inline(never)]
    pub fn write_flushed(&mut self, fd: u64, entry: FdEntry) -> bool {
        const IS_LIKELY: u32 = SYNC_SHOWS | SYNC_AFTER_WRITE;
        let is_usual = self.page.syncs & (IS_LIKELY | SYNC_UNSHOWN) == IS_LIKELY;
        let is_likely = (is_usual || self.is_expected_log(entry)) && self.page.log_writes == 0;
        let call = self.thread.calls.load(Ordering::Relaxed);
        self.page.log_writes = self.page.log_writes.saturating_add(1);
        self.page.log_written = call;
        if !is_likely || self.world.ahead.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let domain = entry.domain();
        // Not beside a commit of more than the log: the journal would take the file's new size before its data.
        self.open_handle_apart(fd, domain);
        if !self.is_log(entry) {
            self.thread.handle.close();
            return false;
        }
        let transaction = self.thread.join_flushed(self.transactions(), domain);
        let object = self.object(entry.slot());
        object.raise(domain, transaction);
        // Whoever maps the file marks its slot and then observes the tag.
        fence(Ordering::SeqCst);
        if is_set(&self.world.mapped_slots, entry.slot()) {
            self.thread.leave_change(self.transactions());
            return false;
        }
        let is_of_data = self.leaves_times();
        if is_of_data {
            self.transactions().leave_times(domain, transaction);
        }
        self.modify(object);
        let result = self.proceed();
        // Another thread may have put another file there meanwhile: it says so before it does.
        if result > 0 && flush(fd, is_of_data) && self.known(fd) == entry {
            self.world.writes_flushed.fetch_add(1, Ordering::Relaxed);
            self.page.log_flushed = flushed(call, entry);
            self.expect_of_others(entry);
            self.thread.end_flushed(self.transactions());
            self.end_change(domain, 0);
        } else {
            // An error of the flush is the commit engine's as well, which tells of it.
            self.transactions().join_log(domain);
            self.process.clock.raise(domain, transaction);
            self.thread.end_flushed(self.transactions());
            self.end_change(domain, result);
            self.observe(object);
        }
        true
    }

    /// Whether a write that flushes the log leaves its times to the next commit: where the program's own flush would,
    /// and hardly anybody looks at them.
    #[inline(always)]
    fn leaves_times(&self) -> bool {
        self.page.syncs & SYNC_OF_DATA != 0 && self.world.log_looks.load(Ordering::Relaxed) < LOOKS_MAX
    }

    /// The times of what has this slot were looked at.
    #[cold]
    #[inline(never)]
    pub fn note_look_at_log(&self, slot: usize) {
        let transactions = self.transactions();
        let object = self.object(slot);
        let committed = transactions.committed().0;
        let waits = |domain| !transactions.has_times_of(domain) && object.get(domain) > committed[domain];
        if (0..transactions.domains()).any(waits) {
            self.world.log_looks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Others with common memory have flushed this log with their writes: the next one most likely will, too. Its first
    /// answers, and those of all others meanwhile, would wait for a commit.
    #[inline(always)]
    fn expect_of_others(&self, entry: FdEntry) {
        let expected = &self.world.log_slots[entry.domain()];
        let slot = entry.slot() as u32 + 1;
        if expected.load(Ordering::Relaxed) != slot && self.shares_memory() {
            expected.store(slot, Ordering::Relaxed);
        }
    }

    /// Whether a thread that has never flushed anything writes to what may be that log.
    #[inline(always)]
    fn is_expected_log(&self, entry: FdEntry) -> bool {
        self.page.syncs == 0
            && self.world.log_slots[entry.domain()].load(Ordering::Relaxed) == entry.slot() as u32 + 1
            && self.shares_memory()
    }

    /// The same, before the write: the file's number is asked for, as otherwise at a flush.
    #[inline(always)]
    pub fn expect_log(&mut self, fd: u64, entry: FdEntry) -> FdEntry {
        match !entry.has(FdEntry::LOG_ASKED) && self.is_expected_log(entry) {
            true => self.propose_log(fd, entry),
            false => entry,
        }
    }

    fn shares_memory(&self) -> bool {
        self.process.flags.load(Ordering::Relaxed) & PROCESS_SHARES != 0
    }

    /// A thread flushes a file. Whether its last call has done so, being the write to it.
    pub fn is_flushed_by_write(&self, entry: FdEntry) -> bool {
        let before = self.thread.calls.load(Ordering::Relaxed).wrapping_sub(1);
        entry.log() != 0
            && matches!(self.frame.nr, nr::fsync | nr::fdatasync)
            && self.page.log_flushed == flushed(before, entry)
            && (self.frame.nr == nr::fdatasync || self.page.syncs & SYNC_OF_DATA == 0)
    }

    /// Whether the only write since the thread's last flush was its last call.
    pub fn is_sync_after_write(&mut self) -> bool {
        let writes = core::mem::take(&mut self.page.log_writes);
        writes == 1 && self.page.log_written + 1 == self.thread.calls.load(Ordering::Relaxed)
    }

    /// A file is flushed by a thread that answers afterwards: it could be the log.
    #[inline(never)]
    pub fn propose_log(&mut self, fd: u64, entry: FdEntry) -> FdEntry {
        let now = self.world.logs[entry.domain()].load(Ordering::SeqCst);
        if entry.has(FdEntry::LOG_ASKED) {
            let is_settled = entry.log() == 0 || entry.log() == now;
            let is_early = || !self.world.log_misses.fetch_add(1, Ordering::Relaxed).is_multiple_of(MISSES);
            if is_settled || now != 0 && is_early() {
                return entry;
            }
        }
        let number = gate::request(Request::Log, fd, entry.slot() as u64, 0);
        let asked = entry.with_log(u16::try_from(number).unwrap_or_default());
        if self.known(fd) == entry {
            replace_remembered(u64::from(fd as u32), entry, asked);
        }
        asked
    }
}

/// Call `call` of a thread has flushed this log.
fn flushed(call: u64, entry: FdEntry) -> u64 {
    call << 16 | u64::from(entry.log() as u16)
}

/// `is_of_data`: without the file's times, which whoever looks at them waits for.
fn flush(fd: u64, is_of_data: bool) -> bool {
    let number = if is_of_data { nr::fdatasync } else { nr::fsync };
    // SAFETY: no pointers.
    unsafe { gate::call(number, [fd, 0, 0, 0, 0, 0]) == 0 }
}
