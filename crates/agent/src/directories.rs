//! What a process is told of a directory of which something is held for a guess, without a question
//! ([0262](../../../docs/decisions/0262-a-directory-is-told-by-its-agent.md)): the times and the number of links change
//! with each name that is held in it. The supervisor writes down what those inside are shown, and the agent puts it
//! into the kernel's answer.

use crate::clocks::Call;
use crate::descriptors::Stat;
use crate::ways::looked_for;
use agent_abi::{ShownDirectory, WayEnd};
use syscall_table::nr;

impl Call<'_> {
    /// A call that has begun on this permit told of what a name leads to. Whether that is a directory of which
    /// something is held, to which the name leads past all else that is, and the answer is right now.
    #[inline(never)]
    pub fn tells_of_held_directory(&self, number: u64, permit: u64, path: u64, follows: bool) -> bool {
        if !matches!(number, nr::stat | nr::lstat | nr::newfstatat | nr::statx) {
            return false;
        }
        let inode = self.inode_told_of(number);
        let known = looked_for(path, follows).and_then(|looked| self.world.ways.end_of(looked.key));
        known == Some(WayEnd::directory(inode.0, inode.1)) && self.tells_of_directory(number, permit, inode)
    }

    /// The same of a directory that the kernel was asked about by a descriptor.
    pub fn tells_of_directory(&self, number: u64, permit: u64, inode: (u64, u64)) -> bool {
        let Some(shown) = self.world.directories.of(inode) else { return false };
        // It was so when the kernel answered, if no permit has been revoked since the call began.
        let is_so = self.held_is_as_at_look(permit);
        if is_so {
            self.put_directory(number, &shown);
        }
        is_so
    }

    fn put_directory(&self, number: u64, shown: &ShownDirectory) {
        match number {
            nr::statx => put_extended(self.arg(4), shown),
            nr::newfstatat => put(self.arg(2), shown),
            _ => put(self.arg(1), shown),
        }
    }
}

fn put(buffer: u64, shown: &ShownDirectory) {
    let at = buffer as *mut Stat;
    // SAFETY: the kernel has just filled the buffer.
    let mut stat = unsafe { at.read_unaligned() };
    stat.nlink = stat.nlink.wrapping_add_signed(shown.links_gained);
    (stat.mtime, stat.ctime) = shown.times(stat.mtime, stat.ctime);
    if let Some(attributes) = shown.attributes {
        (stat.mode, stat.uid, stat.gid) = (attributes.mode, attributes.user, attributes.group);
        stat.atime = attributes.access.unwrap_or(stat.atime);
    }
    // SAFETY: as above.
    unsafe { at.write_unaligned(stat) };
}

/// `struct statx`.
fn put_extended(buffer: u64, shown: &ShownDirectory) {
    const LINKS: u64 = 16;
    const USER: u64 = 20;
    const GROUP: u64 = 24;
    const MODE: u64 = 28;
    const ACCESS: u64 = 64;
    const CHANGED: u64 = 96;
    const CONTENTS: u64 = 112;
    // SAFETY: the kernel has just filled the buffer.
    unsafe {
        let time = |at: u64| {
            let at = buffer + at;
            ((at as *const i64).read_unaligned(), i64::from(((at + 8) as *const u32).read_unaligned()))
        };
        let put_time = |at: u64, (seconds, nanoseconds): (i64, i64)| {
            ((buffer + at) as *mut i64).write_unaligned(seconds);
            ((buffer + at + 8) as *mut u32).write_unaligned(nanoseconds as u32);
        };
        let put = |at: u64, value: u32| ((buffer + at) as *mut u32).write_unaligned(value);
        let links = ((buffer + LINKS) as *const u32).read_unaligned();
        put(LINKS, links.wrapping_add_signed(shown.links_gained as i32));
        let (contents, changed) = shown.times(time(CONTENTS), time(CHANGED));
        put_time(CONTENTS, contents);
        put_time(CHANGED, changed);
        if let Some(attributes) = shown.attributes {
            put(USER, attributes.user);
            put(GROUP, attributes.group);
            ((buffer + MODE) as *mut u16).write_unaligned(attributes.mode as u16);
            if let Some(access) = attributes.access {
                put_time(ACCESS, access);
            }
        }
    }
}
