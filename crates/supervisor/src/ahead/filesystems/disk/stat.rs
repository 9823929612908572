//! Attributes in the buffer of a program that asked for them (stat(2), statx(2)): where they stand, and how some
//! are replaced.

use crate::ahead::Call;
use rustix::fs::{Stat, Timespec};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use syscall_table::nr;

/// The attributes that can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) struct Shown {
    pub links: u64,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    pub access: Timespec,
    pub contents: Timespec,
    pub changed: Timespec,
}

impl Shown {
    /// As the kernel says.
    pub fn of(stat: &Stat) -> Self {
        let time = |seconds: i64, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as i64 };
        Self {
            links: stat.st_nlink,
            mode: stat.st_mode,
            user: stat.st_uid,
            group: stat.st_gid,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            access: time(stat.st_atime, stat.st_atime_nsec),
            contents: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// Where they stand.
struct Layout {
    links: usize,
    /// Of the number of links: four or eight bytes.
    links_len: usize,
    mode: usize,
    /// Of `mode`: two or four bytes.
    mode_len: usize,
    user: usize,
    group: usize,
    size: usize,
    blocks: usize,
    access: usize,
    contents: usize,
    changed: usize,
    /// Of the nanoseconds of a time: four or eight bytes.
    nanoseconds_len: usize,
    len: usize,
}

const OF_STAT: Layout = Layout {
    links: 16,
    links_len: 8,
    mode: 24,
    mode_len: 4,
    user: 28,
    group: 32,
    size: 48,
    blocks: 64,
    access: 72,
    contents: 88,
    changed: 104,
    nanoseconds_len: 8,
    len: 144,
};

const OF_STATX: Layout = Layout {
    links: 16,
    links_len: 4,
    mode: 28,
    mode_len: 2,
    user: 20,
    group: 24,
    size: 40,
    blocks: 48,
    access: 64,
    contents: 112,
    changed: 96,
    nanoseconds_len: 4,
    len: 256,
};

/// Change what a call has written to `at`.
pub(in crate::ahead) fn change(call: &Call, at: u64, change: impl FnOnce(&mut Shown)) -> io::Result<()> {
    let mut bytes = tracee::read_bytes(call.tid, at, layout(call).len)?;
    change_in(call, &mut bytes, change);
    tracee::write_bytes(call.tid, at, &bytes)
}

/// Write the attributes of a file that the call cannot find by itself.
pub(in crate::ahead) fn show(call: &Call, at: u64, file: &OwnedFd, change: impl FnOnce(&mut Shown)) -> io::Result<()> {
    let mut bytes = match call.frame.nr {
        nr::statx => crate::sys::statx(file.as_fd(), call.frame.args[3] as u32)?.to_vec(),
        _ => crate::sys::stat(file.as_fd())?.to_vec(),
    };
    change_in(call, &mut bytes, change);
    tracee::write_bytes(call.tid, at, &bytes)
}

fn change_in(call: &Call, bytes: &mut [u8], change: impl FnOnce(&mut Shown)) {
    let mut shown = layout(call).read(bytes);
    change(&mut shown);
    layout(call).write(bytes, &shown);
}

fn layout(call: &Call) -> &'static Layout {
    if call.frame.nr == nr::statx {
        &OF_STATX
    } else {
        &OF_STAT
    }
}

impl Layout {
    fn read(&self, bytes: &[u8]) -> Shown {
        let number = |at: usize, len: usize| {
            let mut word = [0; 8];
            word[..len].copy_from_slice(&bytes[at..at + len]);
            u64::from_le_bytes(word)
        };
        let time =
            |at: usize| Timespec { tv_sec: number(at, 8) as i64, tv_nsec: number(at + 8, self.nanoseconds_len) as i64 };
        Shown {
            links: number(self.links, self.links_len),
            mode: number(self.mode, self.mode_len) as u32,
            user: number(self.user, 4) as u32,
            group: number(self.group, 4) as u32,
            size: number(self.size, 8),
            blocks: number(self.blocks, 8),
            access: time(self.access),
            contents: time(self.contents),
            changed: time(self.changed),
        }
    }

    fn write(&self, bytes: &mut [u8], shown: &Shown) {
        let mut put = |at: usize, len: usize, value: u64| {
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(self.links, self.links_len, shown.links);
        put(self.mode, self.mode_len, u64::from(shown.mode));
        put(self.user, 4, u64::from(shown.user));
        put(self.group, 4, u64::from(shown.group));
        put(self.size, 8, shown.size);
        put(self.blocks, 8, shown.blocks);
        let times = [(self.access, shown.access), (self.contents, shown.contents), (self.changed, shown.changed)];
        for (at, time) in times {
            put(at, 8, time.tv_sec as u64);
            put(at + 8, self.nanoseconds_len, time.tv_nsec as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
        let shown = Shown {
            links: 9,
            mode: 0o100_644,
            user: 5,
            group: 6,
            size: 7,
            blocks: 8,
            access: time(-1),
            contents: time(2),
            changed: time(3),
        };
        for layout in [OF_STAT, OF_STATX] {
            let mut bytes = vec![0xff; layout.len];
            layout.write(&mut bytes, &shown);
            assert_eq!(layout.read(&bytes), shown);
        }
    }

    #[test]
    fn the_layout_is_the_kernels() {
        use std::mem::offset_of;
        assert_eq!(
            (OF_STAT.links, OF_STATX.links),
            (offset_of!(libc::stat, st_nlink), offset_of!(libc::statx, stx_nlink))
        );
        assert_eq!(OF_STAT.mode, offset_of!(libc::stat, st_mode));
        assert_eq!((OF_STAT.size, OF_STATX.size), (offset_of!(libc::stat, st_size), offset_of!(libc::statx, stx_size)));
        assert_eq!(OF_STAT.blocks, offset_of!(libc::stat, st_blocks));
        assert_eq!(OF_STATX.blocks, offset_of!(libc::statx, stx_blocks));
        assert_eq!((OF_STAT.user, OF_STAT.group), (offset_of!(libc::stat, st_uid), offset_of!(libc::stat, st_gid)));
        assert_eq!(OF_STAT.access, offset_of!(libc::stat, st_atime));
        assert_eq!(OF_STAT.changed, offset_of!(libc::stat, st_ctime));
        assert_eq!(OF_STATX.mode, offset_of!(libc::statx, stx_mode));
        assert_eq!(
            (OF_STATX.user, OF_STATX.group),
            (offset_of!(libc::statx, stx_uid), offset_of!(libc::statx, stx_gid))
        );
        assert_eq!(OF_STATX.access, offset_of!(libc::statx, stx_atime));
        assert_eq!(OF_STATX.contents, offset_of!(libc::statx, stx_mtime));
        assert_eq!(OF_STATX.changed, offset_of!(libc::statx, stx_ctime));
    }
}
