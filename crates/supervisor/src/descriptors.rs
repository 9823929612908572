//! Descriptors of processes inside.

use crate::sys;
use procfs::{ProcessId, ThreadId};
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
pub fn process_of(tid: ThreadId) -> io::Result<ProcessId> {
    if sys::is_first_thread(tid) {
        return Ok(tid.leads());
    }
    status_field(tid, "Tgid:", 0).map(ProcessId::from_raw)
}

/// The effective user of a thread.
pub fn user_of(tid: ThreadId) -> io::Result<u32> {
    status_field(tid, "Uid:", 1)
}

/// The user whom others see as the sender of its signals.
pub fn real_user_of(tid: ThreadId) -> io::Result<u32> {
    status_field(tid, "Uid:", 0)
}

/// The user as whom a thread uses files.
pub fn file_system_user_of(tid: ThreadId) -> io::Result<u32> {
    status_field(tid, "Uid:", 3)
}

/// The last of the words behind a name in `/proc/TID/status`.
pub fn last_status_word<T: std::str::FromStr>(tid: ThreadId, name: &str) -> io::Result<T> {
    word_of_status(tid, name, |words| words.last())
}

/// One of the words behind a name in `/proc/TID/status`.
pub fn status_field<T: std::str::FromStr>(tid: ThreadId, name: &str, position: usize) -> io::Result<T> {
    word_of_status(tid, name, |mut words| words.nth(position))
}

fn word_of_status<T: std::str::FromStr>(
    tid: ThreadId,
    name: &str,
    choose: impl FnOnce(std::str::SplitWhitespace<'_>) -> Option<&str>,
) -> io::Result<T> {
    let status = procfs::text(tid, "status")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| choose(rest.split_whitespace())?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {name} in /proc/PID/status")))
}
