//! Streams that COMMAND inherited: their end is output. We keep a copy of each until no process of the world has it any
//! more and everything is committed, so that nobody at the other end sees it close before that.

use crate::sys;
use agent_abi::World;
use external_sync::engine::await_commit;
use procfs::{MagicLink, ProcessId};
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
                if closes != seen {
                    seen = closes;
                    self.let_go(world, &failed);
                }
            }
        })
        .map(drop)
    }

    fn let_go(&mut self, world: &World, failed: &AtomicBool) {
        let mut missing: Vec<PathBuf> = self.0.iter().map(|stream| stream.name.clone()).collect();
        for slot in world.process_map.taken() {
            let pid = world.processes[slot].pid.load(Ordering::Acquire);
            if missing.is_empty() {
                return;
            }
            if pid != 0 {
                remove_held(ProcessId::from_raw(pid as i32), &mut missing);
            }
        }
        if missing.is_empty() || !await_commit(world, &world.transactions.dirty(), || failed.load(Ordering::SeqCst)) {
            return;
        }
        self.0.retain(|stream| !missing.contains(&stream.name));
    }
}

fn remove_held(pid: ProcessId, missing: &mut Vec<PathBuf>) {
    let visited = procfs::visit_descriptors(pid, |_, name| {
        missing.retain(|wanted| wanted.as_os_str().as_encoded_bytes() != name);
        match missing.is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if visited.is_err_and(|error| !error.is_gone()) {
        // Not ours to look at: then it may hold them still.
        missing.clear();
    }
}
