//! The server's values as the kernel's, and the other way round.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bluefs::op::{Inode, SetTime, BLOCK_BYTES};
use bluefs::{Errno, Ino, Kind, Name, Time};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

pub fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(i32::from(errno.0))
}

pub fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

/// A name too long is the only one that the kernel passes on and a volume does not have.
pub fn name(name: &OsStr) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).ok_or(Errno::NAMETOOLONG)
}

pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Char => FileType::CharDevice,
        Kind::Block => FileType::BlockDevice,
    }
}

/// The kind that `mknod` asks for in its mode.
pub fn kind(mode: u32) -> Result<Kind, Errno> {
    match mode >> 12 {
        0 | 0o10 => Ok(Kind::File),
        0o01 => Ok(Kind::Fifo),
        0o14 => Ok(Kind::Socket),
        0o02 => Ok(Kind::Char),
        0o06 => Ok(Kind::Block),
        _ => Err(Errno::INVAL),
    }
}

pub fn attr(ino: Ino, inode: &Inode) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino.0),
        size: inode.size,
        blocks: inode.blocks * (BLOCK_BYTES / 512),
        atime: system_time(inode.atime),
        mtime: system_time(inode.mtime),
        ctime: system_time(inode.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(inode.kind),
        perm: inode.mode,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}

fn system_time(time: Time) -> SystemTime {
    let distance = Duration::from_nanos(time.0.unsigned_abs());
    if time.0 < 0 {
        UNIX_EPOCH - distance
    } else {
        UNIX_EPOCH + distance
    }
}

pub fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)),
            Err(before) => before_1970(before.duration()),
        }),
    }
}

/// The kernel says a time as seconds, which are negative before 1970, and nanoseconds behind these. fuser (0.18) takes
/// the nanoseconds off in place of adding them: so far from 1970 is what it has made of them.
fn before_1970(distance: Duration) -> Time {
    let nanos = i128::from(distance.subsec_nanos()) - i128::from(distance.as_secs()) * 1_000_000_000;
    Time(i64::try_from(nanos).unwrap_or(i64::MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fuser makes of the kernel's seconds and nanoseconds.
    fn of_fuser(secs: i64, nanos: u32) -> SystemTime {
        let distance = Duration::new(secs.unsigned_abs(), nanos);
        if secs < 0 {
            UNIX_EPOCH - distance
        } else {
            UNIX_EPOCH + distance
        }
    }

    #[test]
    fn times_before_1970_and_after() {
        const SECOND: i64 = 1_000_000_000;
        for nanos in [0, 1, -1, 1_700_000_000_123_456_789, -5_000_000_001, -5 * SECOND, -SECOND / 2] {
            let (secs, behind) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND) as u32);
            let time = TimeOrNow::SpecificTime(of_fuser(secs, behind));
            assert_eq!(set_time(time), SetTime::At(Time(nanos)));
        }
        assert_eq!(system_time(Time(-SECOND / 2)), UNIX_EPOCH - Duration::from_millis(500));
    }

    #[test]
    fn kinds_of_mknod() {
        assert_eq!(kind(0o100644), Ok(Kind::File));
        assert_eq!(kind(0o010600), Ok(Kind::Fifo));
        assert_eq!(kind(0o140600), Ok(Kind::Socket));
        assert_eq!(kind(0o040755), Err(Errno::INVAL));
    }
}
