//! fsync in all its spellings: a dependency, not a wait (002, 3.5).

use crate::clocks::Call;
use crate::gate;
use agent_abi::{FdEntry, FdKind, SYNC_AFTER_WRITE, SYNC_OF_DATA, SYNC_SHOWS, SYNC_UNSHOWN};
use commit_clock::Clock;
use core::sync::atomic::Ordering;
use syscall_table::nr;
use syscall_table::SyncKind;

const MS_ASYNC: u64 = 1;
const MS_SYNC: u64 = 4;

impl Call<'_> {
    pub fn sync(&mut self, kind: SyncKind) {
        match kind {
            SyncKind::File | SyncKind::FileSystem => self.sync_descriptor(),
            SyncKind::Range => self.sync_range(),
            SyncKind::All => self.sync_all(),
            SyncKind::Mapping => self.sync_mapping(),
        }
    }

    fn sync_descriptor(&mut self) {
        let entry = self.descriptor(self.arg(0));
        if entry.kind() != FdKind::DomainFile || self.is_path_only(entry) {
            // Errors of descriptors that cannot be synced are the kernel's.
            self.proceed();
        } else if self.frame.nr != nr::syncfs && self.volatile_since(self.arg(0), entry).is_some() {
            self.world.fsyncs_elided.fetch_add(1, Ordering::Relaxed);
            self.answer(0);
        } else if self.elides_fsync(entry.domain()) {
            self.join(entry.domain());
            self.world.fsyncs_elided.fetch_add(1, Ordering::Relaxed);
            self.answer(0);
        } else if self.is_flushed_by_write(entry) {
            self.shows_after_sync();
            self.world.fsyncs_elided.fetch_add(1, Ordering::Relaxed);
            self.answer(0);
        } else if self.shows_after_sync() {
            let entry = self.propose_log(self.arg(0), entry);
            self.commit_instead(entry);
        } else {
            self.proceed();
        }
    }

    /// Whether this thread is likely to show something before its next fsync, as it did after the last one: a
    /// server that answers.
    fn shows_after_sync(&mut self) -> bool {
        let shows = self.page.syncs & (SYNC_UNSHOWN | SYNC_SHOWS) == SYNC_SHOWS;
        self.page.syncs = if shows { SYNC_UNSHOWN | SYNC_SHOWS } else { SYNC_UNSHOWN };
        if self.is_sync_after_write() {
            self.page.syncs |= SYNC_AFTER_WRITE;
        }
        if self.frame.nr == nr::fdatasync {
            self.page.syncs |= SYNC_OF_DATA;
        }
        shows && self.world.ahead.load(Ordering::Relaxed) == 0
    }

    /// On a domain that keeps no order fsync waits for the disk, and what is shown after it waits for a commit,
    /// which waits for the disk again. A commit in the place of the fsync does both.
    fn commit_instead(&mut self, entry: FdEntry) {
        let domain = entry.domain();
        if !self.is_log(entry) {
            self.await_commit_under_way(domain);
            write_back(self.arg(0));
        }
        let mut clock = Clock::NONE;
        clock.0[domain] = self.join_contents(entry);
        self.end_change(domain, 0);
        self.await_commit(&clock);
        self.world.fsyncs_committed.fetch_add(1, Ordering::Relaxed);
        self.answer(0);
    }

    /// What is flushed beside a commit of the whole file system could have its size committed before its data.
    pub fn await_commit_under_way(&self, domain: usize) {
        let mut clock = Clock::NONE;
        clock.0[domain] = self.transactions().under_way(domain).unwrap_or(0);
        self.await_commit(&clock);
    }

    /// Whether the descriptor was opened O_PATH: then the kernel says EBADF.
    fn is_path_only(&self, entry: FdEntry) -> bool {
        if entry.has(FdEntry::OPENED) {
            return false;
        }
        const F_GETFL: u64 = 3;
        const O_PATH: i64 = 0o10000000;
        // SAFETY: no pointers.
        let flags = unsafe { gate::call(nr::fcntl, [self.arg(0), F_GETFL, 0, 0, 0, 0]) };
        let is_path_only = flags < 0 || flags & O_PATH != 0;
        if !is_path_only {
            self.remember(self.arg(0), entry.with(FdEntry::OPENED));
        }
        is_path_only
    }

    /// The call joins the active transaction as a change does, so that whatever it is waited for with waits for the
    /// commit: also for that of what somebody outside has written.
    fn join(&self, domain: usize) {
        self.join_change(domain);
        self.end_change(domain, 0);
    }

    fn sync_range(&mut self) {
        const FLAGS: u64 = 7;
        let (offset, length, flags) = (self.arg(1) as i64, self.arg(2) as i64, self.arg(3));
        let is_valid = offset >= 0 && length >= 0 && offset.checked_add(length).is_some() && flags & !FLAGS == 0;
        if is_valid {
            self.sync_descriptor();
        } else {
            self.proceed();
        }
    }

    /// `sync()`: domains that need it commit now; the others become a dependency.
    fn sync_all(&mut self) {
        let domains = 0..self.transactions().domains();
        let are_held = domains.clone().all(|domain| self.transactions().is_held(domain));
        domains.clone().filter(|&domain| self.transactions().is_held(domain)).for_each(|domain| self.join(domain));
        let mut unordered = self.transactions().dirty();
        domains.filter(|&domain| self.elides_fsync(domain)).for_each(|domain| unordered.0[domain] = 0);
        self.await_commit(&unordered);
        self.observe_everything();
        if !are_held || self.has_outside_file_systems() {
            // We cannot commit them: the kernel's call does, and everything else with them.
            self.proceed_observing();
            return;
        }
        self.world.fsyncs_elided.fetch_add(1, Ordering::Relaxed);
        self.answer(0);
    }

    fn has_outside_file_systems(&self) -> bool {
        let len = (self.world.devices_len.load(Ordering::Acquire) as usize).min(agent_abi::DEVICES_MAX);
        self.world.devices[..len]
            .iter()
            .any(|device| device.kind.load(Ordering::Relaxed) == agent_abi::DeviceKind::Outside as u32)
    }

    /// `msync(MS_SYNC)`: the kernel still checks the range.
    fn sync_mapping(&mut self) {
        let mapped = self.process.mapped_domains.load(Ordering::Relaxed);
        let ordered = (0..self.transactions().domains()).all(|d| mapped & (1 << d) == 0 || self.elides_fsync(d));
        if mapped != 0 && ordered && self.arg(2) & (MS_SYNC | MS_ASYNC) == MS_SYNC {
            self.replace_arg(2, self.arg(2) & !MS_SYNC | MS_ASYNC);
            self.world.fsyncs_elided.fetch_add(1, Ordering::Relaxed);
        }
        self.proceed();
    }
}

/// Writes a file's pages before `syncfs` commits its size, as fsync does. `syncfs` begins to write all pages and then
/// lets the journal commit before they are there: a crash in between shows zeroes at the end of a file that its program
/// has appended to. For the log the commit engine does the same. No handle is open: another thread may put anything in
/// the descriptor's place.
fn write_back(fd: u64) {
    const WAIT_BEFORE_WRITE_WAIT_AFTER: u64 = 7;
    // An error is the file system's as well, of which `syncfs` tells the commit engine.
    // SAFETY: no pointers.
    unsafe { gate::call(nr::sync_file_range, [fd, 0, 0, WAIT_BEFORE_WRITE_WAIT_AFTER, 0, 0]) };
}
