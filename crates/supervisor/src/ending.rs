//! The end of a process that has streams to outside, whatever ends it: their other ends must not see that before what the process depends on
//! is committed. The kernel closes what a process leaves open; so we take copies while it stands still for the last time.
//!
//! Only processes that had such a stream stop at their end (`Request::WatchEnd`): all others pay nothing.

use crate::event_loop::Supervisor;
use crate::outputs::Target;
use crate::requests::stream_of;
use crate::sys;
use agent_abi::{option, PROCESS_MAPPED_PRIVATE, PROCESS_MAPPED_SHARED};
use commit_clock::DOMAINS_MAX;
use rustix::fs::FileType;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use tracee::{Result, Stopped};

impl Supervisor {
    /// From now on the thread stops before it ends, and so do the children that it makes.
    pub(crate) fn watch_end(&mut self, stopped: &Stopped) -> Result<()> {
        stopped.trace_exit()?;
        if let Some(tracee) = self.tracees.get_mut(&stopped.tid()) {
            tracee.watched = true;
            self.watched.insert(tracee.process);
        }
        Ok(())
    }

    /// A new thread, or a child, of a process that is watched.
    pub(crate) fn watch_heir(&mut self, stopped: &Stopped) -> Result<()> {
        if self.watched.is_empty() {
            return Ok(());
        }
        let Some(tracee) = self.tracees.get(&stopped.tid()) else { return Ok(()) };
        let parent = self.world().processes[tracee.process].parent.load(Ordering::Relaxed) as usize;
        if self.watched.contains(&tracee.process) || self.watched.contains(&parent) {
            return self.watch_end(stopped);
        }
        Ok(())
    }

    /// A thread is about to end. With the last one of its process, its descriptors go.
    pub(crate) fn on_ending(&mut self, stopped: Stopped) -> Result<()> {
        let tid = stopped.tid();
        if let Some(tracee) = self.tracees.get_mut(&tid) {
            tracee.ending = true;
            if !self.has_companion(tid) {
                self.hold_ends(tid);
            }
        }
        stopped.resume(0)
    }

    /// Whether the process has another thread that will stop here, too.
    fn has_companion(&mut self, tid: i32) -> bool {
        let process = self.tracees.get(&tid).map(|tracee| tracee.process);
        let others = self.tracees.iter().filter(|(&other, tracee)| {
            other != tid && Some(tracee.process) == process && tracee.watched && !tracee.ending
        });
        let others: Vec<i32> = others.map(|(&other, _)| other).collect();
        let Ok(pid) = self.pid_of(tid) else { return false };
        others.into_iter().any(|other| self.pid_of(other).is_ok_and(|found| found == pid))
    }

    fn hold_ends(&mut self, tid: i32) {
        let world = self.world();
        let Some(process) = self.tracees.get(&tid).map(|tracee| tracee.process) else { return };
        let Some(&id) = self.output_ids.get(&process) else { return };
        let slot = &world.processes[process];
        let mut clock = slot.clock.load(DOMAINS_MAX);
        let flags = slot.flags.load(Ordering::Relaxed);
        let shares = flags & PROCESS_MAPPED_SHARED != 0
            || flags & PROCESS_MAPPED_PRIVATE != 0 && world.private_changed.load(Ordering::Relaxed) != 0;
        if shares || slot.watched[0].load(Ordering::Relaxed) != 0 {
            clock.merge(&world.transactions.dirty());
        }
        let is_settled = world.transactions.is_resolved(&clock) && slot.held_outputs.load(Ordering::Acquire) == 0;
        if is_settled || world.options.load(Ordering::Relaxed) & option::RELEASE_EARLY != 0 {
            return;
        }
        for stream in self.outside_streams(tid) {
            self.outputs.take(&stream, id, clock, Vec::new());
        }
        if world.transactions.request(&clock) {
            external_sync::engine::ring(world);
        }
    }

    /// Copies of what a thread has open that leads outside and whose other end can see it close.
    fn outside_streams(&mut self, tid: i32) -> Vec<Target> {
        let Ok(listing) = fs::read_dir(format!("/proc/{tid}/fd")) else { return Vec::new() };
        let streams = listing.flatten().filter(|entry| may_have_reader(&entry.path()));
        let numbers: Vec<i32> = streams.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let copies: Vec<OwnedFd> = numbers.into_iter().filter_map(|fd| self.copy_of_ending(tid, fd)).collect();
        let is_outside = |copy: &OwnedFd| {
            let is_socket =
                rustix::fs::fstat(copy).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
            !is_socket || rustix::net::getpeername(copy).is_ok() && self.classify_socket(tid, copy) == 0
        };
        copies.into_iter().filter(is_outside).filter_map(stream_of).collect()
    }

    /// The first thread of its process may have ended before this one.
    fn copy_of_ending(&mut self, tid: i32, fd: i32) -> Option<OwnedFd> {
        match sys::pidfd_open_thread(tid) {
            Ok(thread) => sys::pidfd_getfd(thread.as_fd(), fd).ok(),
            Err(_) => self.copy_descriptor(tid, fd).ok(),
        }
    }
}

/// Whether what is open there is a socket, or a FIFO that has a name; pipes that were inherited are kept anyway (`kept`).
fn may_have_reader(link: &Path) -> bool {
    let Ok(metadata) = fs::metadata(link) else { return false };
    match FileType::from_raw_mode(metadata.mode()) {
        FileType::Socket => true,
        FileType::Fifo => {
            fs::read_link(link).is_ok_and(|name| !name.as_os_str().as_encoded_bytes().starts_with(b"pipe:"))
        }
        _ => false,
    }
}
