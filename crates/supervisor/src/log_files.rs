//! Files that can be the log of their domain (`agent::log`): each has a number as long as the world lasts. An inode
//! number comes back only when nobody has the file open any more, and then nobody remembers its number either.

use crate::event_loop::Supervisor;
use agent_abi::{hash_object, DeviceKind, FdEntry, FdKind};
use commit_clock::DOMAINS_MAX;
use procfs::ThreadId;
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a file is a domain's log at least: a change of logs costs two commits of the whole file system.
const TENURE: Duration = Duration::from_millis(50);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct LogFiles {
    numbers: HashMap<(u64, u64), u16>,
    proposed: [Option<Instant>; DOMAINS_MAX],
}

impl LogFiles {
    /// The file's number; `None` if there are too many.
    fn number(&mut self, dev: u64, ino: u64) -> Option<u16> {
        let next = u16::try_from(self.numbers.len() + 1).ok();
        if let Some(&number) = self.numbers.get(&(dev, ino)) {
            return Some(number);
        }
        self.numbers.insert((dev, ino), next?);
        next
    }

    fn may_propose(&mut self, domain: usize) -> bool {
        let is_due = self.proposed[domain].is_none_or(|since| since.elapsed() >= TENURE);
        if is_due {
            self.proposed[domain] = Some(Instant::now());
        }
        is_due
    }
}

impl Supervisor {
    /// The number of the file behind a descriptor, known by the slot of its clock, or 0 if it cannot be a log.
    pub(crate) fn propose_log(&mut self, tid: ThreadId, fd: i32, slot: usize) -> Result<u64, i32> {
        // Opening it would be seen.
        if self.are_reads_heard() {
            return Ok(0);
        }
        let copy = self.copy_descriptor(tid, fd).map_err(|_| libc::EBADF)?;
        let stat = rustix::fs::fstat(&copy).map_err(|_| libc::EBADF)?;
        let entry = FdEntry::new(FdKind::DomainFile, 0, hash_object(stat.st_dev, stat.st_ino));
        let world = self.world();
        let (kind, domain) = world.device(stat.st_dev);
        let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && entry.slot() == slot;
        if !is_ours || kind != DeviceKind::Domain {
            return Ok(0);
        }
        let Some(number) = self.log_files.number(stat.st_dev, stat.st_ino) else { return Ok(0) };
        if world.logs[domain].load(Ordering::SeqCst) == u32::from(number) || !self.log_files.may_propose(domain) {
            return Ok(u64::from(number));
        }
        // A description of our own: an error that the program's own fsync was told of is told to us, too.
        let path = procfs::own_path(&copy);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(0) };
        let mut handles = self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        handles.logs[domain].next = Some((u32::from(number), Arc::new(file)));
        Ok(u64::from(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_number() {
        let mut logs = LogFiles::default();
        assert_eq!(logs.number(1, 10), Some(1));
        assert_eq!(logs.number(1, 11), Some(2));
        assert_eq!(logs.number(2, 10), Some(3));
        assert_eq!(logs.number(1, 10), Some(1));
    }

    #[test]
    fn numbers_end() {
        let mut logs = LogFiles::default();
        assert!((0..u64::from(u16::MAX)).all(|ino| logs.number(1, ino).is_some_and(|number| number != 0)));
        assert_eq!(logs.number(2, 0), None);
        assert_eq!(logs.number(1, 0), Some(1));
    }
}
