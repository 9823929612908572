//! Locks of files, and leases.

use crate::ProcessId;
use std::io;

/// What holds others off a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A record lock of a process.
    Record,
    /// A lease.
    Lease,
    /// A lock of an open file description, or what a file server was promised.
    Other,
}

/// A lock, or somebody who waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// What it is.
    pub kind: LockKind,
    /// Who has it, where that is a process.
    pub pid: Option<ProcessId>,
    /// The number of its file on that file's file system.
    pub inode: u64,
}

/// All of the machine that are seen from this namespace of processes (`/proc/locks`).
pub fn file_locks() -> io::Result<Vec<FileLock>> {
    let text = std::fs::read_to_string("/proc/locks")?;
    let parsed: Option<Vec<FileLock>> = text.lines().map(parse).collect();
    parsed.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/locks has another form than known"))
}

/// `1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF`; who waits has `->` behind the number.
fn parse(line: &str) -> Option<FileLock> {
    let mut words = line.split_whitespace().filter(|&word| word != "->").skip(1);
    let kind = match words.next()? {
        "POSIX" => LockKind::Record,
        "LEASE" => LockKind::Lease,
        _ => LockKind::Other,
    };
    let number: i32 = words.nth(2)?.parse().ok()?;
    let pid = (number > 0).then(|| ProcessId::from_raw(number));
    let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
    Some(FileLock { kind, pid, inode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let lock =
            |kind, pid: i32, inode| Some(FileLock { kind, pid: (pid > 0).then(|| ProcessId::from_raw(pid)), inode });
        assert_eq!(parse("1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF"), lock(LockKind::Record, 3568, 2531452));
        assert_eq!(parse("1: -> POSIX  ADVISORY  READ 7 fd:00:9 5 8"), lock(LockKind::Record, 7, 9));
        assert_eq!(parse("2: LEASE  ACTIVE    READ  1 08:01:3 0 EOF"), lock(LockKind::Lease, 1, 3));
        assert_eq!(parse("3: LEASE  BREAKING  WRITE 1 08:01:3 0 EOF"), lock(LockKind::Lease, 1, 3));
        assert_eq!(parse("4: OFDLCK ADVISORY  WRITE -1 08:01:3 0 EOF"), lock(LockKind::Other, -1, 3));
        assert_eq!(parse("5: something else"), None);
    }

    #[test]
    fn of_this_machine() {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        file.lock_shared().unwrap();
        let inode = file.metadata().unwrap().ino();
        assert!(file_locks().unwrap().iter().any(|lock| lock.inode == inode && lock.kind == LockKind::Other));
    }
}
