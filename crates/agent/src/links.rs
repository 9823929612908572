//! What a process is told of a file by its descriptor (`fstat`), without a question
//! ([0255](../../../docs/decisions/0255-a-new-file-is-told-by-its-agent.md)).
//!
//! The kernel's answer is right if nothing is held of the file. Of a file that a guess has made, only the number of
//! names is wrong in it: the names are held. The supervisor writes the right number down, and the agent puts it into
//! the answer.

use crate::clocks::Call;
use crate::descriptors::Stat;
use agent_abi::{WayEnd, WayKey};
use core::mem::offset_of;
use syscall_table::nr;

impl Call<'_> {
    /// Whether the kernel's answer to a call that has begun on this permit is right, perhaps after the number of the
    /// file's names in it was corrected.
    #[inline(never)]
    pub fn tells_of_file(&self, number: u64, permit: u64) -> bool {
        let (dev, ino) = self.inode_told_of(number);
        let ways = &self.world.ways;
        if !ways.may_be_held(WayEnd::file(dev, ino)) {
            return self.held_is_as_at_look(permit);
        }
        let Some(links) = ways.end_of(WayKey::links_of(dev, ino)).and_then(WayEnd::links_said) else {
            return self.tells_of_directory(number, permit, (dev, ino));
        };
        // The number was right when the kernel answered, if no permit has been revoked since the call began.
        let is_so = self.held_is_as_at_look(permit);
        if is_so {
            self.put_links(number, links);
        }
        is_so
    }

    fn put_links(&self, number: u64, links: u64) {
        const OF_STATX: u64 = 16;
        let of_stat = offset_of!(Stat, nlink) as u64;
        // SAFETY: the kernel has just filled the buffer.
        unsafe {
            match number {
                nr::statx => ((self.arg(4) + OF_STATX) as *mut u32).write_unaligned(links as u32),
                nr::fstat => ((self.arg(1) + of_stat) as *mut u64).write_unaligned(links),
                _ => ((self.arg(2) + of_stat) as *mut u64).write_unaligned(links),
            }
        }
    }
}
