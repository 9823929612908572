//! Calls that change modes, owners and times (chmod(2), chown(2), utimensat(2)), and the access list that says the same
//! as a mode (acl(5)): what they change, and how they name the file.

use crate::ahead::filesystems::disk::attributes::Change;
use crate::ahead::filesystems::disk::names::{path_text, paths_of};
use crate::ahead::Call;
use rustix::fs::{AtFlags, Timespec};
use syscall_table::nr;

const UTIME_NOW: i64 = 0x3fff_ffff;
pub(super) const UTIME_OMIT: i64 = 0x3fff_fffe;
const NOFOLLOW: u64 = AtFlags::SYMLINK_NOFOLLOW.bits() as u64;
const EMPTY_PATH: u64 = AtFlags::EMPTY_PATH.bits() as u64;
pub(super) const ACCESS_LIST: &str = "system.posix_acl_access";
pub(super) const DEFAULT_LIST: &str = "system.posix_acl_default";

/// Whether a call changes attributes in a way that can be held, as far as its number says.
pub(in crate::ahead) fn is_change(nr: u64) -> bool {
    matches!(
        nr,
        nr::chmod
            | nr::fchmod
            | nr::fchmodat
            | nr::fchmodat2
            | nr::chown
            | nr::fchown
            | nr::lchown
            | nr::fchownat
            | nr::utimensat
            | nr::setxattr
            | nr::lsetxattr
            | nr::fsetxattr
            | nr::removexattr
            | nr::lremovexattr
            | nr::fremovexattr
    )
}

/// How a call names what it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) enum Named {
    /// By a descriptor that is open, not one that only names a file.
    Open(i32),
    /// By any descriptor.
    Descriptor(i32),
    /// By its path.
    Path,
}

/// How a call names what it changes.
pub(in crate::ahead) fn named(call: &Call) -> Named {
    let args = &call.frame.args;
    let fd = args[0] as i32;
    match call.frame.nr {
        nr::fchmod | nr::fchown | nr::fsetxattr | nr::fremovexattr => return Named::Open(fd),
        nr::utimensat if args[1] == 0 => return Named::Open(fd),
        _ => {}
    }
    let at = syscall_table::op(call.frame.nr).and_then(|op| paths_of(op).first().copied());
    let text = at.and_then(|(_, at)| path_text(call, at)).unwrap_or_default();
    let is_itself = text.is_empty() && flags_of(call) & EMPTY_PATH != 0 && fd != libc::AT_FDCWD;
    match own_descriptor(&text).filter(|_| follows(call) == Some(true)) {
        Some(fd) => Named::Descriptor(fd),
        None if is_itself => Named::Descriptor(fd),
        None => Named::Path,
    }
}

/// `/proc/self/fd/N`: glibc changes the mode of what it is not to follow by this name.
fn own_descriptor(path: &[u8]) -> Option<i32> {
    let number = path.strip_prefix(b"/proc/self/fd/")?;
    let is_plain = number.iter().all(u8::is_ascii_digit) && (number == b"0" || number.first() != Some(&b'0'));
    std::str::from_utf8(number).ok().filter(|_| is_plain)?.parse().ok()
}

fn flags_of(call: &Call) -> u64 {
    match call.frame.nr {
        nr::lchown | nr::lsetxattr | nr::lremovexattr => NOFOLLOW,
        nr::fchownat => call.frame.args[4],
        nr::utimensat | nr::fchmodat2 => call.frame.args[3],
        _ => 0,
    }
}

/// Whether a call that changes attributes means what the last link leads to; `None`: it has flags that are not
/// known here.
pub(in crate::ahead) fn follows(call: &Call) -> Option<bool> {
    let flags = flags_of(call);
    (flags & !(NOFOLLOW | EMPTY_PATH) == 0).then_some(flags & NOFOLLOW == 0)
}

/// What a call changes; `None`: that is not known here.
pub(in crate::ahead) fn change_of(call: &Call, now: Timespec) -> Option<Change> {
    const ALL: u64 = 0o7777;
    let args = &call.frame.args;
    let id = |at: usize| (args[at] as u32 != u32::MAX).then_some(args[at] as u32);
    match call.frame.nr {
        nr::chmod | nr::fchmod => Some(Change::Mode((args[1] & ALL) as u32)),
        nr::fchmodat | nr::fchmodat2 => Some(Change::Mode((args[2] & ALL) as u32)),
        nr::chown | nr::lchown | nr::fchown => Some(Change::Owner { user: id(1), group: id(2) }),
        nr::fchownat => Some(Change::Owner { user: id(2), group: id(3) }),
        nr::utimensat if args[2] == 0 => Some(Change::Times { access: Some(now), contents: Some(now) }),
        nr::utimensat => {
            let [a, b, c, d] = tracee::read_value::<[u64; 4]>(call.tid, args[2]).ok()?.map(|word| word as i64);
            let (access, contents) = (time_of([a, b], now)?, time_of([c, d], now)?);
            // Without either the kernel does not even look for the file.
            (access.is_some() || contents.is_some()).then_some(Change::Times { access, contents })
        }
        nr::setxattr | nr::lsetxattr | nr::fsetxattr
            if args[4] == 0 && extended_name(call)? == ACCESS_LIST.as_bytes() =>
        {
            let bytes = tracee::read_bytes(call.tid, args[2], access_list::LEN).ok();
            bytes.filter(|_| args[3] == access_list::LEN as u64).and_then(|list| access_list::permissions(&list))
        }
        nr::removexattr | nr::lremovexattr | nr::fremovexattr if extended_name(call)? == DEFAULT_LIST.as_bytes() => {
            Some(Change::NoDefaultList)
        }
        _ => None,
    }
}

fn extended_name(call: &Call) -> Option<Vec<u8>> {
    path_text(call, 1)
}

/// A time that is to be set, if it is; `None` if a file system would set another one.
fn time_of([seconds, nanoseconds]: [i64; 2], now: Timespec) -> Option<Option<Timespec>> {
    const NANOSECONDS: std::ops::Range<i64> = 0..1_000_000_000;
    /// ext4: 34 bits, from 1901 on.
    const SECONDS: std::ops::Range<i64> = -(1 << 31)..(1 << 34) - (1 << 31);
    match nanoseconds {
        UTIME_NOW => Some(Some(now)),
        UTIME_OMIT => Some(None),
        _ if NANOSECONDS.contains(&nanoseconds) && SECONDS.contains(&seconds) => {
            Some(Some(Timespec { tv_sec: seconds, tv_nsec: nanoseconds }))
        }
        _ => None,
    }
}

/// As the kernel takes it for files.
pub(in crate::ahead) fn now() -> Timespec {
    rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse)
}

/// Access lists that say what a mode says, which the kernel keeps as such: one entry each for the owner, the group, and
/// all others (`include/uapi/linux/posix_acl_xattr.h`). `cp -a` sets no others unless the file has one.
mod access_list {
    use super::Change;

    const VERSION: u32 = 2;
    /// Of owner, group, others.
    const TAGS: [u16; 3] = [0x01, 0x04, 0x20];
    const ENTRY: usize = 8;
    pub const LEN: usize = 4 + TAGS.len() * ENTRY;

    pub fn permissions(list: &[u8]) -> Option<Change> {
        let (version, entries) = list.split_at_checked(4)?;
        let has_version = version == VERSION.to_le_bytes();
        let bits = entries.chunks_exact(ENTRY).zip(TAGS).map(|(entry, tag)| {
            let word = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            (word(0) == tag && word(2) < 8).then_some(u32::from(word(2)))
        });
        let mode = bits.collect::<Option<Vec<u32>>>()?.into_iter().fold(0, |mode, bits| mode << 3 | bits);
        (has_version && list.len() == LEN).then_some(Change::Permissions(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_a_disk_would_not_keep_are_not_known() {
        let now = Timespec { tv_sec: 7, tv_nsec: 8 };
        assert_eq!(time_of([0, UTIME_NOW], now), Some(Some(now)));
        assert_eq!(time_of([0, UTIME_OMIT], now), Some(None));
        assert_eq!(time_of([5, 6], now), Some(Some(Timespec { tv_sec: 5, tv_nsec: 6 })));
        assert_eq!((time_of([1 << 40, 0], now), time_of([0, -1], now)), (None, None));
    }

    #[test]
    fn an_access_list_that_says_what_a_mode_says_is_one() {
        let list = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x04\0\x05\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
        assert_eq!(access_list::permissions(list), Some(Change::Permissions(0o654)));
        // A mask, and another version.
        for (at, byte) in [(12, 0x10), (0, 1), (14, 9)] {
            let mut other = *list;
            other[at] = byte;
            assert_eq!(access_list::permissions(&other), None, "{at}");
        }
        assert_eq!(access_list::permissions(&list[..20]), None);
    }

    #[test]
    fn a_descriptor_is_known_by_its_name_in_proc() {
        assert_eq!(own_descriptor(b"/proc/self/fd/12"), Some(12));
        for path in ["/proc/self/fd/", "/proc/self/fd/01", "/proc/self/fd/1/x", "/proc/7/fd/1", "x"] {
            assert_eq!(own_descriptor(path.as_bytes()), None, "{path}");
        }
    }
}
