//! Descriptors of processes inside.

use crate::sys;
use procfs::{ProcessId, Status, ThreadId};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Process descriptors, by pid.
#[derive(Debug, Default)]
pub struct ProcessDescriptors(HashMap<ProcessId, OwnedFd>);

impl ProcessDescriptors {
    /// A copy of descriptor `fd` of process `pid`.
    pub fn copy(&mut self, pid: ProcessId, fd: i32) -> io::Result<OwnedFd> {
        let process = match self.0.entry(pid) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(sys::pidfd_open(pid)?),
        };
        sys::pidfd_getfd(process.as_fd(), fd)
    }

    /// The process has ended.
    pub fn forget(&mut self, pid: ProcessId) {
        self.0.remove(&pid);
    }
}

/// The process of a thread.
pub fn process_of(tid: ThreadId) -> procfs::Result<ProcessId> {
    if sys::is_first_thread(tid) {
        return Ok(tid.leads());
    }
    procfs::process_of(tid)
}

/// The effective user of a thread.
pub fn user_of(tid: ThreadId) -> procfs::Result<u32> {
    Ok(Status::of(tid)?.users()?[1])
}

/// The user whom others see as the sender of its signals.
pub fn real_user_of(tid: ThreadId) -> procfs::Result<u32> {
    Ok(Status::of(tid)?.users()?[0])
}

/// The user as whom a thread uses files.
pub fn file_system_user_of(tid: ThreadId) -> procfs::Result<u32> {
    Ok(Status::of(tid)?.users()?[3])
}
