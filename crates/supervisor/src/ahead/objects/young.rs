//! What a guess has opened or made ([0181](../../../../../docs/decisions/0181-what-nobody-has-who-is-put-back.md)).
//! Whoever has an open file got it by being born to somebody who had it, but for descriptors that are sent or taken. So
//! where no checkpoint has it open, nobody who is put back will: all who have it depend on what it was opened under,
//! and whatever takes back one of them takes it back from all. What is in a pipe, where the position is, how its flags
//! are set, need not be kept then, nor that it was closed.

use crate::event_loop::Supervisor;
use agent_abi::option;
use procfs::{MagicLink, TaskId};
use rustix::fs::FileType;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

/// What the descriptors of a process lead to: device and inode.
pub(in crate::ahead) fn open_files(task: TaskId, descriptors: &[i32]) -> HashSet<(u64, u64)> {
    let behind = |fd: &i32| MagicLink::Fd(*fd).metadata(task).ok();
    descriptors.iter().filter_map(behind).map(|found| (found.dev(), found.ino())).collect()
}

impl Supervisor {
    /// Whether nobody who is put back will have this open.
    pub(in crate::ahead) fn is_young(&self, file: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(file) else { return false };
        let inode = (stat.st_dev, stat.st_ino);
        !self.are_descriptors_passed() && !self.ahead.checkpoints.has_open(inode)
    }

    /// Whether nobody has to be told again, or given back, what is closed here.
    pub(in crate::ahead) fn closes_what_is_young(&mut self, file: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(file) else { return false };
        match FileType::from_raw_mode(stat.st_mode) {
            // Whoever is outside hears of a close when it is certain.
            FileType::Fifo => self.is_young(file) && self.is_inside_pipe(&stat),
            // With its last descriptor a lock would go, before what is held under it.
            FileType::RegularFile | FileType::Directory => self.is_young(file) && !self.is_file_locked(file),
            FileType::Socket => self.is_end_of_young_pair(file) || self.goes_with_its_server(file),
            _ => false,
        }
    }

    /// Whether descriptors were sent to somebody, or taken from somebody, who need not depend on what the other one
    /// depends on.
    pub(in crate::ahead) fn are_descriptors_passed(&self) -> bool {
        let options = self.world().options.load(Ordering::Relaxed);
        options & (option::DESCRIPTORS_PASSED | option::DESCRIPTORS_TAKEN) != 0
    }
}
