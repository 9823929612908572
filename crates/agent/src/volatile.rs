//! Files below a path of `--volatile`: what is written there is not waited for before output is shown.
//!
//! Where a file is, is asked once for each descriptor, and again for those that were found there when something was
//! moved out of such a path (`World::moves`). A change there joins no transaction. It still carries what its writer
//! depends on: whoever reads the file depends on that.

use crate::clocks::Call;
use crate::descriptors::{private, replace_remembered, volatile_descriptors};
use crate::gate;
use agent_abi::{option, FdEntry, FdKind, Request};
use core::sync::atomic::Ordering;
use syscall_table::nr;

const RWF_DSYNC: u64 = 2;
const RWF_SYNC: u64 = 4;

impl Call<'_> {
    /// What is to be remembered of a descriptor beside its entry.
    #[inline(always)]
    pub fn volatility(&self, fd: u64, entry: FdEntry) -> u64 {
        if entry.kind() == FdKind::DomainFile && self.has_option(option::VOLATILE) {
            self.ask_volatility(fd, entry)
        } else {
            0
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_volatility(&self, fd: u64, entry: FdEntry) -> u64 {
        match gate::request(Request::Volatile, fd, entry.slot() as u64, 0) {
            1 => FdEntry::VOLATILE,
            _ => 0,
        }
    }

    /// Whether what is written to this file need not be waited for, and after how many moves that was so.
    #[inline(always)]
    pub fn volatile_since(&self, fd: u64, entry: FdEntry) -> Option<u64> {
        if entry.has(FdEntry::VOLATILE) {
            self.volatile_still(fd)
        } else {
            None
        }
    }

    fn moves(&self) -> u64 {
        self.world.moves.load(Ordering::SeqCst)
    }

    /// If something was moved out of such a path, ask again for each descriptor that was there.
    #[cold]
    #[inline(never)]
    fn volatile_still(&self, fd: u64) -> Option<u64> {
        let moves = self.moves();
        if private().moves_seen.load(Ordering::SeqCst) == moves {
            return Some(moves);
        }
        volatile_descriptors(|fd, known| {
            if self.ask_volatility(fd, known) == 0 {
                replace_remembered(fd, known, known.without(FdEntry::VOLATILE));
            }
        });
        private().moves_seen.store(moves, Ordering::SeqCst);
        self.descriptor(fd).has(FdEntry::VOLATILE).then_some(moves)
    }

    /// Writes data to a file that was there after so many moves.
    #[cold]
    #[inline(never)]
    pub fn write_volatile(&mut self, entry: FdEntry, moves: u64) {
        if self.frame.nr == nr::pwritev2 && self.arg(5) & (RWF_DSYNC | RWF_SYNC) != 0 {
            self.replace_arg(5, self.arg(5) & !(RWF_DSYNC | RWF_SYNC));
        }
        let object = self.object(entry.slot());
        self.modify(object);
        self.note_change(entry.slot());
        let written = self.proceed();
        if written > 0 {
            self.world.volatile_bytes.fetch_add(written as u64, Ordering::Relaxed);
        }
        self.observe(object);
        if self.moves() != moves {
            // Perhaps it was moved while this was written, and what was written then belongs to where the file is now.
            object.raise(entry.domain(), self.join_change(entry.domain()));
            self.end_change(entry.domain(), written);
        }
    }

    /// A name is about to be given to something, or taken from it, by a call that may move it out of such a path.
    #[inline(always)]
    pub fn before_move(&mut self, from: FdEntry) {
        if self.has_option(option::VOLATILE) && self.world.volatile_bytes.load(Ordering::Relaxed) != 0 {
            self.before_move_out(from);
        }
    }

    #[cold]
    #[inline(never)]
    fn before_move_out(&mut self, from: FdEntry) {
        let frame = &raw const *self.frame as u64;
        if from.kind() != FdKind::DomainFile || gate::request(Request::MovesOut, frame, 0, 0) == 0 {
            return;
        }
        self.world.moves.fetch_add(1, Ordering::SeqCst);
        // What was written there may depend on anything that its writers depended on.
        self.observe_everything();
        if !self.is_ordered(from.domain()) {
            // An fsync there did nothing. Whoever moves a file after it relies on what is in it.
            let mut clock = commit_clock::Clock::NONE;
            clock.0[from.domain()] = self.join_change(from.domain());
            self.end_change(from.domain(), 0);
            self.await_commit(&clock);
        }
    }
}
