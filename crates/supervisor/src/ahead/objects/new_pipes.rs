//! Pipes that a thread inside has just made and has not told of yet
//! ([0232](../../../../../docs/decisions/0232-a-pipe-that-is-not-told-of-yet.md)).
//!
//! The agent says that a pipe is inside when the kernel has made it. Another process may have the pipe before: one
//! that is born to the process meanwhile, or shares its descriptors. To that process the pipe would be one of
//! outside, and where it closes an end, that end would be kept open for the undo: whoever reads there would not hear
//! of the end. So a thread says beforehand that it makes a pipe, and whoever meets a pipe that may be this one waits
//! until it is known. A thread that we stop meanwhile does not tell as long as it stands: we tell for it.

use crate::ahead::calls::plan::is_of_pipefs;
use crate::event_loop::Supervisor;
use crate::signals;
use agent_abi::hash_object;
use procfs::ThreadId;
use rustix::fs::{FileType, Stat};
use std::sync::atomic::Ordering;
use tracee::{Result, Stopped};

impl Supervisor {
    /// Whether a pipe that is not known to be inside may be one of which somebody is about to tell that it is. Nothing
    /// tells when he has: whoever waits for that is looked at again.
    pub(in crate::ahead) fn may_be_untold(&mut self, pipe: &Stat) -> bool {
        let world = self.world();
        let hash = hash_object(pipe.st_dev, pipe.st_ino);
        let may_be = is_of_pipefs(pipe.st_dev)
            && !world.is_outside(hash)
            && world.is_any_pipe_untold()
            && !self.is_inside_pipe(pipe);
        self.ahead.awaits_pipes |= may_be;
        may_be
    }

    /// A thread that we have stopped, and that may stand as long as others need, tells of the pipe that it has made.
    pub(crate) fn tell_of_pipe(&mut self, stopped: &Stopped) -> Result<()> {
        let tid = stopped.tid();
        let Some(slot) = self.tracees.get(&tid).and_then(|tracee| tracee.thread) else { return Ok(()) };
        if self.world().threads[slot].makes_pipe.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        if let Some(ends_at) = signals::pipe_made(stopped, &self.image)? {
            let pipe = tracee::read_value::<u64>(tid, ends_at)
                .and_then(|ends| self.copy_descriptor(tid, ends as u32 as i32))
                .and_then(|end| Ok(rustix::fs::fstat(end)?));
            if let Some(pipe) = pipe.ok().filter(|pipe| FileType::from_raw_mode(pipe.st_mode) == FileType::Fifo) {
                self.world().remember_pipe(hash_object(pipe.st_dev, pipe.st_ino));
            }
        }
        self.makes_no_pipe(tid);
        Ok(())
    }

    /// A thread makes none, or nobody will be told of the one that it has made.
    pub(in crate::ahead) fn makes_no_pipe(&self, tid: ThreadId) {
        if let Some(slot) = self.tracees.get(&tid).and_then(|tracee| tracee.thread) {
            self.world().threads[slot].makes_pipe.store(0, Ordering::Release);
        }
    }
}
