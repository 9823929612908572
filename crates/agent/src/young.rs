//! Calls on pipes that were made on a guess, of which nobody is asked ([`YoungPipes`](agent_abi::YoungPipes),
//! [0231](../../../docs/decisions/0231-young-pipes.md)).
//!
//! Such a call is published like one on a permit, and a thread that sleeps in it can be called out: it has no effect
//! before it ends. Nothing is remembered of a descriptor: whether it leads to such a pipe is looked at each time.

use crate::clocks::Call;
use crate::descriptors::{Stat, S_IFIFO};
use crate::gate::EBADF;
use crate::memory::read_program_bytes;
use agent_abi::{option, permitted, PROCESS_HAS_TO_HEAR, PROCESS_SHARES_STATE};
use core::sync::atomic::Ordering;
use syscall_table::nr;

const AT_EMPTY_PATH: u64 = 0x1000;
const O_NONBLOCK: u64 = 0o4000;
const O_DIRECT: u64 = 0o40000;
const O_CLOEXEC: u64 = 0o2000000;

impl Call<'_> {
    /// A pipe (its hash) was made. It is young if the process depends on all guesses that are open, as it did in this
    /// epoch before the call.
    pub fn note_pipe(&self, pipe: u64, epoch: u64) {
        const FLAGS: u64 = O_CLOEXEC | O_NONBLOCK | O_DIRECT;
        let young = &self.world.young;
        let is_plain = self.frame.nr == nr::pipe || self.arg(1) & 0xffff_ffff & !FLAGS == 0;
        if epoch != 0 && epoch == young.epoch() && is_plain {
            young.note(pipe, epoch);
        }
    }

    /// Begins a call that concerns a young pipe and nothing else.
    #[inline(never)]
    pub fn begins_on_young_pipe(&self) -> bool {
        self.may_concern_young_pipes()
            && self.world.young.begin(&self.thread.work, |epoch| self.concerns_young_pipe(epoch))
    }

    /// Whether the descriptor that the call uses or replaces leads to a pipe that is young in this epoch.
    fn concerns_young_pipe(&self, epoch: u64) -> bool {
        let is_young =
            |fd: u64| Stat::of_fd(fd).map(|stat| stat.kind() == S_IFIFO && self.world.young.has(stat.hash(), epoch));
        match self.frame.nr {
            nr::newfstatat => is_young(self.arg(0)) == Ok(true) && self.has_empty_name(),
            // What is replaced is closed.
            nr::dup2 | nr::dup3 => is_young(self.arg(1)).unwrap_or_else(|error| error == -EBADF),
            _ => is_young(self.arg(0)) == Ok(true),
        }
    }

    /// Whether the call is of a kind that is made on young pipes without a question. The process has to be alone with
    /// its descriptors and must have nothing to hear. Nobody may have got a descriptor in another way than by birth, or
    /// be told by a signal that a pipe is ready.
    fn may_concern_young_pipes(&self) -> bool {
        const OTHERS_MAY_TELL: u32 =
            option::DESCRIPTORS_PASSED | option::DESCRIPTORS_TAKEN | option::READINESS_SIGNALLED | option::READS_HEARD;
        let kind = match self.frame.nr {
            nr::read | nr::readv => permitted::READ,
            // What goes in as a whole or not at all.
            nr::write if (1..=permitted::ATOMIC_LEN).contains(&self.arg(2)) => permitted::WRITE,
            nr::fstat => permitted::LOOK,
            nr::newfstatat if self.arg(3) == AT_EMPTY_PATH => permitted::LOOK,
            nr::close => permitted::CLOSE,
            nr::dup2 | nr::dup3 if self.arg(0) as u32 != self.arg(1) as u32 => permitted::CLOSE,
            _ => return false,
        };
        self.world.permitted.load(Ordering::Relaxed) & kind != 0
            && !self.has_option(OTHERS_MAY_TELL)
            && self.has_marks()
            && self.process.users.load(Ordering::Relaxed) == 1
            && self.process.flags.load(Ordering::Relaxed) & (PROCESS_SHARES_STATE | PROCESS_HAS_TO_HEAR) == 0
    }

    fn has_empty_name(&self) -> bool {
        let mut first = [0u64; 1];
        read_program_bytes(self.arg(1), &mut first, 1) && first[0] as u8 == 0
    }
}
