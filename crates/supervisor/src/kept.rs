//! Streams that COMMAND inherited: their end is output. We keep a copy of each until no process of the world has it any
//! more and everything is committed, so that nobody at the other end sees it close before that.

use crate::sys;
use agent_abi::{option, World};
use external_sync::engine::await_commit;
use procfs::{MagicLink, ProcessId, ThreadId};
use rustix::fs::FileType;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// How soon after the last close inside the other end sees it, at the latest.
const SCAN_INTERVAL: Duration = Duration::from_millis(50);

/// Copies of inherited streams.
#[derive(Debug)]
pub struct Kept(Vec<Stream>);

#[derive(Debug)]
struct Stream {
    /// As `/proc/PID/fd` shows it: `pipe:[…]`, `socket:[…]`, or a FIFO's path.
    name: PathBuf,
    /// Closed when this goes.
    _copy: OwnedFd,
}

impl Kept {
    /// Of these descriptors of ours, those that are pipes or sockets; each object once for each way it is open.
    pub fn of(descriptors: &[i32]) -> io::Result<Self> {
        let mut kept = Vec::new();
        for &fd in descriptors {
            let (link, own) = (MagicLink::Fd(fd), ProcessId::own());
            let mode = std::os::unix::fs::MetadataExt::mode(&link.metadata(own)?);
            if matches!(FileType::from_raw_mode(mode), FileType::Fifo | FileType::Socket) {
                kept.push(Stream { name: link.shown(own)?, _copy: sys::copy_descriptor(fd)? });
            }
        }
        Ok(Self(kept))
    }

    /// Watch them, in a thread of its own, until the world or the last of them has ended.
    pub fn watch(mut self, world: &'static World, failed: Arc<AtomicBool>) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        crate::threads::start("kept", move || {
            let mut seen = 0;
            while !self.0.is_empty() && !failed.load(Ordering::SeqCst) {
                std::thread::sleep(SCAN_INTERVAL);
                let closes = world.closes.load(Ordering::Relaxed);
                if closes != seen && self.let_go(world, &failed) {
                    seen = closes;
                }
            }
        })
        .map(drop)
    }

    /// False if nobody can tell yet, also without a further close.
    fn let_go(&mut self, world: &World, failed: &AtomicBool) -> bool {
        let mut missing: Vec<PathBuf> = self.0.iter().map(|stream| stream.name.clone()).collect();
        // Mostly somebody has them still: then nothing else is looked at.
        for pid in processes(world).flatten() {
            remove_held(procfs::owner_of_descriptors(pid), &mut missing);
            if missing.is_empty() {
                return true;
            }
        }
        let not_seen = missing.len();
        // Twice: what a process passes on to a child that was looked at before, the first look does not find.
        for _ in 0..2 {
            if !missing.is_empty() && !remove_held_in(world, &mut missing) {
                return false;
            }
        }
        let is_any = !missing.is_empty();
        if is_any && await_commit(world, &world.transactions.dirty(), || failed.load(Ordering::SeqCst)) {
            self.0.retain(|stream| !missing.contains(&stream.name));
        }
        // What only a thread has goes with that thread, of which nobody tells.
        missing.len() == not_seen
    }
}

/// Take out what a process of the world has open. False if somebody may have it whom nobody can ask now.
fn remove_held_in(world: &World, missing: &mut Vec<PathBuf>) -> bool {
    let Some(pids) = processes(world).collect::<Option<Vec<_>>>() else { return false };
    // Before the descriptors: who receives one meanwhile has it then.
    let are_passed = world.options.load(Ordering::SeqCst) & option::DESCRIPTORS_PASSED != 0;
    if are_passed && pids.iter().any(|&pid| is_passed_to(pid)) {
        return false;
    }
    for pid in pids {
        match owners_of_descriptors(pid) {
            Ok(owners) => owners.into_iter().for_each(|owner| remove_held(Ok(Some(owner)), missing)),
            Err(error) => remove_held(Err(error), missing),
        }
    }
    true
}

/// Threads that have all tables of descriptors of a process between them: one may have a table of its own
/// (`unshare(CLONE_FILES)`).
fn owners_of_descriptors(pid: ProcessId) -> procfs::Result<Vec<ThreadId>> {
    let mut owners: Vec<ThreadId> = Vec::new();
    for tid in procfs::threads(pid)? {
        let is_known = owners.iter().any(|&owner| sys::share_descriptors(owner, tid));
        if !is_known && !procfs::has_ended(tid) {
            owners.push(tid);
        }
    }
    Ok(owners)
}

/// The world's processes; `None` for one that is being born.
fn processes(world: &World) -> impl Iterator<Item = Option<ProcessId>> + '_ {
    world.process_map.taken().map(|slot| match world.processes[slot].pid.load(Ordering::Acquire) {
        0 => None,
        pid => Some(ProcessId::from_raw(pid as i32)),
    })
}

/// Whether a descriptor is under way to a process: no process has it then.
fn is_passed_to(pid: ProcessId) -> bool {
    let is_so = |found: procfs::Result<bool>| found.unwrap_or_else(|error| !error.is_gone());
    match owners_of_descriptors(pid) {
        Ok(owners) => owners.into_iter().any(|owner| is_so(procfs::has_descriptors_coming(owner))),
        Err(error) => is_so(Err(error)),
    }
}

/// Of a thread with descriptors: a first one that has ended before the others shows none any more.
fn remove_held(owner: procfs::Result<Option<ThreadId>>, missing: &mut Vec<PathBuf>) {
    let visited = owner.and_then(|owner| {
        let Some(owner) = owner else { return Ok(()) };
        procfs::visit_descriptors(owner, |_, name| {
            missing.retain(|wanted| wanted.as_os_str().as_encoded_bytes() != name);
            match missing.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    });
    if visited.is_err_and(|error| !error.is_gone()) {
        // Not ours to look at: then it may hold them still.
        missing.clear();
    }
}
