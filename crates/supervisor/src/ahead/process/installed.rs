//! Descriptors that the supervisor puts into processes.
//!
//! While one thread is stopped at its call another one may be in a call that takes the next free number. So a number is
//! never chosen here that is free now, and taken then: the kernel gives the free one
//! ([0222](../../../../../docs/decisions/0222-the-kernel-gives-the-number.md)).

use crate::ahead::filesystems::path_walk::Found;
use crate::ahead::SCRATCH;
use crate::event_loop::Supervisor;
use agent_abi::{option, PROCESS_LOCKS, PROCESS_SHARES_STATE};
use procfs::{ProcessId, ThreadId};
use rustix::fs::Stat;
use speculation::Checkpoint;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use tracee::process_state::{self, Limit};
use tracee::{Result, Stopped, TraceError};

const O_CLOEXEC: u64 = 0o2000000;

/// One that a process gets, and one while it gets it.
const DESCRIPTORS_NEEDED: usize = 2;

impl Supervisor {
    /// Whether nobody else gives numbers to a process's descriptors, and it has no record lock that the close of a
    /// needless copy would take away: then four calls do where there are five or six otherwise.
    fn may_choose_number(&self, pid: ProcessId) -> bool {
        let Some(tracee) = self.tracees.get(&pid.leader()) else { return false };
        let slot = &self.world().processes[tracee.process];
        let shares = slot.flags.load(Ordering::Relaxed) & (PROCESS_LOCKS | PROCESS_SHARES_STATE) != 0;
        !shares && slot.users.load(Ordering::Relaxed) == 1 && !self.ahead.record_locks.has_owner(pid)
    }

    /// Whether a process may have as many more descriptors as it takes to give it one.
    pub(in crate::ahead) fn has_free_descriptors(&self, pid: ProcessId) -> bool {
        let Some(limit) = limit_of_descriptors(pid) else { return false };
        // Some may be above the limit, if that has been lowered: then the numbers tell.
        let suffice = |count: i32| count <= limit - DESCRIPTORS_NEEDED as i32;
        if procfs::descriptor_count(pid).is_ok_and(|count| count.is_some_and(suffice)) {
            return true;
        }
        let Ok(open) = self.descriptors_of(pid) else { return false };
        let free = (0..limit).filter(|fd| open.binary_search(fd).is_err());
        free.take(DESCRIPTORS_NEEDED).count() == DESCRIPTORS_NEEDED
    }

    /// A process opens a file that we have, through our directory in `/proc`: one call where giving it a descriptor
    /// takes four or more. `None`: it does not see what we see there.
    pub(in crate::ahead) fn open_through_proc(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        file: &Found,
        flags: u64,
    ) -> Result<Option<i32>> {
        let is_elsewhere = self.world().options.load(Ordering::Relaxed) & option::PROC_ELSEWHERE != 0;
        if is_elsewhere || !(file.is_regular() || file.is_dir()) {
            return Ok(None);
        }
        let path = procfs::path_for_others(&file.fd) + "\0";
        let mut remote = self.remote_calls(stopped)?;
        let at = remote.registers().gs_base - SCRATCH;
        let kernel = |source| TraceError::kernel("write a path", stopped.tid(), source);
        tracee::write_bytes(stopped.tid(), at, path.as_bytes()).map_err(kernel)?;
        let opened = remote.call(libc::SYS_openat, &[libc::AT_FDCWD as u64, at, flags, 0])?;
        let is_it = |copy: OwnedFd| rustix::fs::fstat(copy).is_ok_and(|stat| inode_of(&stat) == inode_of(&file.stat));
        let fd = i32::try_from(opened).ok().filter(|&fd| fd >= 0);
        let is_right = fd.is_some_and(|fd| self.copy_descriptor(stopped.tid(), fd).is_ok_and(is_it));
        if let Some(other) = fd.filter(|_| !is_right) {
            remote.call(libc::SYS_close, &[other as u64])?;
        }
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        Ok(fd.filter(|_| is_right))
    }

    /// Put a descriptor of ours into another process, under a number that is free. `None`: none is, for another thread
    /// was faster.
    pub(in crate::ahead) fn install_free(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        open: &OwnedFd,
        close_on_exec: bool,
    ) -> Result<Option<i32>> {
        let is_simple = self.may_choose_number(pid);
        let mut remote = self.remote_calls(stopped)?;
        let lowest = remote.call(libc::SYS_pidfd_open, &[u64::from(std::process::id())])?;
        let mut result = lowest;
        if lowest >= 0 && is_simple {
            let copy = remote.call(libc::SYS_pidfd_getfd, &[lowest as u64, open.as_raw_fd() as u64, 0])?;
            result = copy;
            if copy >= 0 {
                let flags = if close_on_exec { O_CLOEXEC } else { 0 };
                result = remote.call(libc::SYS_dup3, &[copy as u64, lowest as u64, flags])?;
            }
            let needless = if copy >= 0 { copy } else { lowest };
            remote.call(libc::SYS_close, &[needless as u64])?;
        } else if lowest >= 0 {
            // The lowest number is for the file, and no copy of that is closed: record locks would go with it.
            let above = [lowest as u64, libc::F_DUPFD_CLOEXEC as u64, lowest as u64 + 1];
            let supervisor = remote.call(libc::SYS_fcntl, &above)?;
            remote.call(libc::SYS_close, &[lowest as u64])?;
            result = supervisor;
            if supervisor >= 0 {
                let given = [supervisor as u64, open.as_raw_fd() as u64, 0];
                result = remote.call(libc::SYS_pidfd_getfd, &given)?;
                remote.call(libc::SYS_close, &[supervisor as u64])?;
            }
            if result >= 0 && !close_on_exec {
                remote.call(libc::SYS_fcntl, &[result as u64, libc::F_SETFD as u64, 0])?;
            }
        }
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        match i32::try_from(result) {
            Ok(fd) if fd >= 0 => Ok(Some(fd)),
            // `F_DUPFD` says the latter of a number above the limit.
            Ok(error) if [-libc::EMFILE, -libc::EINVAL].contains(&error) => Ok(None),
            _ => {
                let source = std::io::Error::from_raw_os_error(-(result as i32));
                Err(TraceError::Kernel { what: "give a descriptor", task: pid.into(), source })
            }
        }
    }

    /// A process is about to get back what it has closed since a checkpoint, under the numbers of then. That takes two
    /// descriptors more for a moment, and its limit must not say no: it may have lowered it, or have all open that it
    /// may. The checkpoint puts the limit back, and closes what is younger; two of that are closed now if need be.
    pub(in crate::ahead) fn make_room_for_descriptors(
        &mut self,
        pid: ProcessId,
        checkpoint: Checkpoint,
        stops: &HashMap<ThreadId, Stopped>,
    ) -> Result<()> {
        let (Some(kept), Some(stopped)) = (self.ahead.checkpoints.get(checkpoint), stops.get(&pid.leader())) else {
            return Ok(());
        };
        let above = kept.descriptors.iter().max().map_or(0, |&highest| highest as u64 + 1);
        lift_limit_of_descriptors(pid, above);
        if self.has_free_descriptors(pid) {
            return Ok(());
        }
        let mut younger = self.descriptors_of(pid)?;
        younger.retain(|fd| !kept.descriptors.contains(fd));
        let mut remote = self.remote_calls(stopped)?;
        for &fd in younger.iter().rev().take(DESCRIPTORS_NEEDED) {
            remote.call(libc::SYS_close, &[fd as u64])?;
        }
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        Ok(())
    }

    /// Put a descriptor of ours into another process, under a number that is known: what stands there is its own, or it
    /// stands still, all of it.
    pub(in crate::ahead) fn install(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        fd: i32,
        open: &OwnedFd,
        close_on_exec: bool,
    ) -> Result<()> {
        let mut remote = self.remote_calls(stopped)?;
        let own = std::process::id();
        let supervisor = remote.call(libc::SYS_pidfd_open, &[u64::from(own)])?;
        let copy = remote.call(libc::SYS_pidfd_getfd, &[supervisor as u64, open.as_raw_fd() as u64, 0])?;
        let result = if copy < 0 {
            copy
        } else if copy == i64::from(fd) {
            // The free number that it got is its own.
            remote.call(libc::SYS_fcntl, &[copy as u64, 2, u64::from(close_on_exec)])?
        } else {
            let flags = if close_on_exec { O_CLOEXEC } else { 0 };
            let moved = remote.call(libc::SYS_dup3, &[copy as u64, fd as u64, flags])?;
            remote.call(libc::SYS_close, &[copy as u64])?;
            moved
        };
        if supervisor >= 0 && supervisor != i64::from(fd) {
            remote.call(libc::SYS_close, &[supervisor as u64])?;
        }
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        if result < 0 {
            let source = std::io::Error::from_raw_os_error(-(result as i32));
            return Err(TraceError::Kernel { what: "put back a descriptor", task: pid.into(), source });
        }
        Ok(())
    }
}

/// A process may have as many descriptors open as its hard limit says, and, if we may raise that, some more, with
/// numbers from `above` on, too.
fn lift_limit_of_descriptors(pid: ProcessId, above: u64) {
    let Ok(Limit { hard, .. }) = process_state::limit(pid, libc::RLIMIT_NOFILE) else { return };
    let set = |limit: u64| process_state::set_limit(pid, libc::RLIMIT_NOFILE, Limit { soft: limit, hard: limit });
    // If neither can be set, what comes next says what is wrong.
    let _ = set(hard.max(above).saturating_add(DESCRIPTORS_NEEDED as u64)).or_else(|_| set(hard));
}

/// How many descriptors a process may have open, at most `i32::MAX`. The kernel tells it to whoever has the process's
/// rights; others read it.
fn limit_of_descriptors(pid: ProcessId) -> Option<i32> {
    let told = process_state::limit(pid, libc::RLIMIT_NOFILE).map(|limit| Some(limit.soft));
    let limit = told.or_else(|_| procfs::Limits::of(pid).and_then(|limits| limits.soft("Max open files"))).ok()?;
    Some(limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(i32::MAX))
}

fn inode_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
