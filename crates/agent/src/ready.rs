//! Waiting for descriptors to become ready, and FIFOs with a name, for which something may be held.
//!
//! Being ready is an observation of whoever made it so, and not being ready of whoever has taken what was there.

use crate::clocks::Call;
use crate::memory::read_program;
use crate::timed::Limit;
use crate::transfer::{ready_now, POLLIN};
use agent_abi::{option, FdEntry, FdKind};
use core::sync::atomic::Ordering;
use syscall_table::nr;

impl Call<'_> {
    /// `poll`, `select` and their kin.
    pub fn await_ready(&mut self, awaits_nothing: bool) {
        if self.has_option(option::FIFO_HELD) && !self.is_clean() {
            match self.frame.nr {
                nr::poll | nr::ppoll => self.await_fifos_polled(),
                nr::select | nr::pselect6 => self.await_fifos_selected(),
                _ => {}
            }
        }
        let result = self.proceed_observing();
        self.observe_ready(result, awaits_nothing);
    }

    /// As `await_fifo`, for the first of what is asked for.
    #[cold]
    #[inline(never)]
    fn await_fifos_polled(&self) {
        const MOST: u64 = 64;
        for at in 0..self.arg(1).min(MOST) {
            let mut one = [0];
            if !read_program(self.arg(0).wrapping_add(8 * at), &mut one) {
                return;
            }
            if one[0] >> 32 & POLLIN != 0 {
                self.await_fifo_at(u64::from(one[0] as u32));
            }
        }
    }

    /// The same for the set of those that are to be read from.
    #[cold]
    #[inline(never)]
    fn await_fifos_selected(&self) {
        const BITS: u64 = u64::BITS as u64;
        // The kernel knows larger sets; libraries do not.
        const MOST: u64 = 1024;
        let (count, set) = (u64::from(self.arg(0) as u32).min(MOST), self.arg(1));
        if set == 0 {
            return;
        }
        for at in 0..count.div_ceil(BITS) {
            let mut word = [0];
            if !read_program(set.wrapping_add(8 * at), &mut word) {
                return;
            }
            let asked = (0..BITS.min(count - at * BITS)).filter(|bit| word[0] >> bit & 1 != 0);
            asked.for_each(|bit| self.await_fifo_at(at * BITS + bit));
        }
    }

    /// Also one that nothing is remembered of.
    pub fn await_fifo_at(&self, fd: u64) {
        let entry = self.descriptor(fd);
        if entry.kind() == FdKind::Outside && entry.has(FdEntry::NAMED) {
            self.await_fifo(fd, entry);
        }
    }

    /// What was written into a FIFO with a name may be held. Whoever reads there finds it if it is inside, as it would
    /// have found it without us.
    #[cold]
    #[inline(never)]
    pub fn await_fifo(&self, fd: u64, entry: FdEntry) {
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
            let watched = self.arg(0);
            self.modify_description(self.descriptor(watched));
            // Which descriptors it watches is not known. What is held for a FIFO leaves with the commit.
            if self.has_option(option::FIFO_HELD) && ready_now(watched, POLLIN) == 0 {
                self.await_commit(&self.transactions().dirty());
            }
        }
        let limit = if self.frame.nr == nr::epoll_pwait2 { Limit::Timespec } else { Limit::Milliseconds };
        let result = self.proceed_timed(3, limit);
        self.observe_ready(result, false);
    }
}
