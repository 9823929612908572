//! The log of a domain: the one file whose flush commits a transaction in which nothing else was changed.
//!
//! A server that answers after its fsync of one file needs no commit of the whole file system. The supervisor numbers
//! files that can be logs, and the commit engine decides which one is it. A write to it says that nothing else was
//! changed; every other change, also one whose descriptor is not known to be the log's, says the opposite.

use crate::clocks::Call;
use crate::descriptors::replace_remembered;
use crate::gate;
use agent_abi::{FdEntry, Request};
use commit_clock::Transaction;
use core::sync::atomic::Ordering;

/// While another file is the log, one of so many fsyncs asks again.
const MISSES: u32 = 64;

impl Call<'_> {
    fn is_log(&self, entry: FdEntry) -> bool {
        let number = entry.log();
        number != 0 && self.world.logs[entry.domain()].load(Ordering::SeqCst) == number
    }

    /// `join_change` for the contents of a file.
    #[inline(always)]
    pub fn join_contents(&self, entry: FdEntry) -> Transaction {
        let domain = entry.domain();
        self.open_handle(domain);
        // With the handle open: what is the log now is so until the next transaction is closed.
        let transaction = match self.is_log(entry) {
            true => self.transactions().join_log(domain),
            false => self.transactions().join(domain),
        };
        self.process.clock.raise(domain, transaction);
        transaction
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
