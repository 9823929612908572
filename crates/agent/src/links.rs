//! What is told of a file by its descriptor ([0255](../../../docs/decisions/0255-a-new-file-is-told-by-its-agent.md)).
//!
//! The kernel knows all that is to be told of a file of which nothing is held, and of a new one but how many names it
//! has. The supervisor writes that down.

use crate::clocks::Call;
use crate::descriptors::Stat;
use agent_abi::{WayEnd, WayKey};
use core::mem::offset_of;
use syscall_table::nr;

impl Call<'_> {
    /// Whether what a call that has begun on this permit has told of a file is so, perhaps after how many names the
    /// file has was put right.
    #[inline(never)]
    pub fn tells_of_file(&self, number: u64, permit: u64) -> bool {
        let (dev, ino) = self.inode_told_of(number);
        let ways = &self.world.ways;
        if !ways.may_be_held(WayEnd::file(dev, ino)) {
            return self.held_is_as_at_look(permit);
        }
        let Some(links) = ways.end_of(WayKey::links_of(dev, ino)).and_then(WayEnd::links_said) else { return false };
        // What is known was so when the kernel looked, if nothing has been revoked since.
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
