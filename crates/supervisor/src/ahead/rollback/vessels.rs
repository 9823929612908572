//! Vessels that nobody waits for: just born (`checkpoints` has them), or killed.
//!
//! A checkpoint costs its process one call, the fork. That the copy has come to its first stop, has let go of what
//! others could notice, and in the end has died, is waited for only before somebody could notice: before a call that
//! looks at process groups, at all processes or at children, and before one after which the copy would hold descriptors
//! open that it has in common with its process.

use crate::ahead::calls::plan::Class;
use crate::ahead::objects::sockets::accept;
use crate::ahead::objects::young;
use crate::ahead::rollback::checkpoints::Kept;
use crate::event_loop::Supervisor;
use checkpoint::{Dying, ThreadedVessel, ToReap, Vessel, VesselId};
use procfs::{ProcessId, TaskId, ThreadId};
use speculation::Checkpoint;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Instant;
use syscall_table::Op;
use tracee::{Result, Stopped};

/// So many dead vessels a process leaves unreaped at most: they count among the processes that its user may have.
const UNREAPED_MAX: usize = 8;

/// A new copy of a process, and what that had open when it was made.
#[derive(Debug)]
pub(in crate::ahead) struct Copied {
    pub vessel: ThreadedVessel,
    /// When it was made.
    pub at: Instant,
    pub descriptors: Vec<i32>,
    /// Sockets among them, by inode.
    pub sockets: HashSet<u64>,
    /// What they lead to: device and inode.
    pub open: HashSet<(u64, u64)>,
}

/// What there is of vessels besides those that a rollback may need.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Vessels {
    /// They were killed, and their end has not been seen yet, by their process id.
    dying: HashMap<TaskId, Dying>,
    /// They died, and their process has to wait for them.
    unreaped: HashMap<ProcessId, Vec<ToReap>>,
    /// Process ids that vessels had or have, and no process of the world has had since.
    ids: HashSet<TaskId>,
}

impl Vessels {
    /// A vessel was forked: it has this process id.
    pub fn born(&mut self, id: VesselId) {
        self.ids.insert(id.into());
    }

    /// A thread or process of the world has this id now.
    pub fn is_no_more(&mut self, id: ThreadId) {
        self.ids.remove(&id.into());
    }

    /// Whether a process id is one of a vessel, or was.
    pub fn has(&self, id: impl Into<TaskId>) -> bool {
        self.ids.contains(&id.into())
    }

    /// Whether nothing is to be done for any that was given up.
    pub fn is_quiet(&self) -> bool {
        self.dying.is_empty() && self.unreaped.is_empty()
    }

    pub fn any_dying(&self) -> bool {
        !self.dying.is_empty()
    }

    /// Whether a child of a process is a vessel that was given up.
    pub fn is_given_up(&self, parent: ProcessId, child: ProcessId) -> bool {
        let is_it = |dead: &ToReap| dead.vessel().process() == child;
        self.dying.contains_key(&child.into()) || self.unreaped.get(&parent).is_some_and(|dead| dead.iter().any(is_it))
    }

    /// Those that a process has to wait for, which is somebody else's task from here on.
    pub fn take_unreaped(&mut self, parent: ProcessId) -> Vec<ToReap> {
        self.unreaped.remove(&parent).unwrap_or_default()
    }

    /// Their parent has to wait for them.
    pub fn are_unreaped(&mut self, dead: impl IntoIterator<Item = ToReap>) {
        for dead in dead {
            self.unreaped.entry(dead.parent()).or_default().push(dead);
        }
    }
}

/// Whether a call of this class could tell that there is a vessel, or leave it with descriptors of its own.
pub(in crate::ahead) fn would_notice(class: &Class, nr: u64) -> bool {
    let is_harmless = matches!(
        class,
        Class::Free
            | Class::Tracked
            | Class::Output { .. }
            | Class::Input { .. }
            | Class::Names
            | Class::Existing
            | Class::Record
            | Class::CloseLocked { .. }
            | Class::Deferred { .. }
            | Class::EndOfFile
            | Class::Later
    );
    // Another table of descriptors, or a lock or a port that goes with the last descriptor of its open file.
    let shows = matches!(
        syscall_table::op(nr),
        Some(Op::Execve | Op::Execveat | Op::CloseRange | Op::Flock | Op::SocketName { .. })
    );
    !is_harmless || shows
}

impl Supervisor {
    /// If it is a vessel that has stopped, that is the core's business no more than anybody's: `None`.
    pub(crate) fn adopt_vessel(&mut self, stopped: Stopped) -> Option<Stopped> {
        let task = stopped.tid().into();
        if self.ahead.vessels.dying.contains_key(&task) {
            // On its way out.
            let _ = stopped.resume(0);
            return None;
        }
        match self.ahead.checkpoints.of_unsettled_vessel(task) {
            Some(kept) => {
                kept.vessel.vessel().adopt(stopped);
                None
            }
            None => Some(stopped),
        }
    }

    /// The checkpoint that is prepared is the core's from here on.
    pub(in crate::ahead) fn keep_checkpoint(&mut self, checkpoint: Checkpoint) {
        let pid = self.ahead.checkpoints.keep_prepared(checkpoint);
        self.is_put_back_from_now_on(pid);
        self.hold_unasked_ends_of(pid);
    }

    /// What the process does to its own descriptors has to be undone: it asks.
    pub(in crate::ahead) fn is_put_back_from_now_on(&self, pid: ProcessId) {
        if let Some(tracee) = self.tracees.get(&pid.leader()) {
            self.world().processes[tracee.process].flags.fetch_and(!agent_abi::PROCESS_GOES, Ordering::Relaxed);
        }
    }

    /// What a new copy has open. It shares its descriptors with its process: nobody of that may have gone on since. A
    /// copy that cannot be looked at is given up. Nobody else knows of it, and the world would wait for its end.
    pub(in crate::ahead) fn look_into_copy(&mut self, copy: ThreadedVessel) -> Result<Copied> {
        let at = Instant::now();
        self.ahead.vessels.born(copy.id());
        let task = TaskId::from(copy.id());
        let looked = self.descriptors_of(copy.id()).and_then(|descriptors| {
            let sockets = accept::sockets_among(task, &descriptors)?;
            Ok((descriptors, sockets))
        });
        match looked {
            Ok((descriptors, sockets)) => {
                let open = young::open_files(task, &descriptors);
                Ok(Copied { vessel: copy, at, descriptors, sockets, open })
            }
            Err(error) => {
                self.discard_vessel(copy.into_vessel());
                Err(error.into())
            }
        }
    }

    /// All vessels are as if they were not there, and those that were given up are not.
    pub(in crate::ahead) fn settle_vessels(&mut self) {
        if let Some(stale) = self.ahead.checkpoints.take_prepared() {
            // What it was for came to nothing.
            self.discard(stale);
        }
        let unsettled = |kept: &Kept| Some((kept.vessel.id(), kept.vessel.vessel().settle().err()?));
        let failed: Vec<_> = self.ahead.checkpoints.take_new().filter_map(unsettled).collect();
        for (vessel, error) in failed {
            // A copy that may be noticed is worse than none: without it a rollback ends the world.
            self.ahead.trace(|| format!("vessel {vessel}: {error}"));
            crate::sys::kill(vessel.process(), libc::SIGKILL);
        }
        self.await_dying();
        // Of those of others no more is done: they are not stopped.
        self.ahead.vessels.unreaped.values_mut().flatten().for_each(ToReap::hurry);
    }

    pub(in crate::ahead) fn await_dying(&mut self) {
        for (_, dying) in std::mem::take(&mut self.ahead.vessels.dying) {
            self.keep_unreaped(dying.await_end());
        }
    }

    /// A process has stopped. Those of its dead vessels that nobody can have noticed wait until its next checkpoint,
    /// for which it makes calls for us anyway.
    pub(in crate::ahead) fn reap_if_due(&mut self, stopped: &Stopped, pid: ProcessId) -> Result<()> {
        let is_patient = |dead: &Vec<ToReap>| dead.len() < UNREAPED_MAX && dead.iter().all(ToReap::can_wait);
        let can_wait = self.ahead.core.open_speculations() > 0
            && self.ahead.vessels.unreaped.get(&pid).is_some_and(is_patient)
            && !self.ahead.children.is_anything_to_reap(pid);
        match can_wait {
            true => Ok(()),
            false => self.reap_unseen(stopped, pid),
        }
    }

    /// A process is about to end, or to look: nothing is left of its vessels that were given up.
    pub(in crate::ahead) fn reap_all(&mut self, stopped: &Stopped, pid: ProcessId) -> Result<()> {
        self.await_dying();
        self.reap_unseen(stopped, pid)
    }

    /// Somebody has ended who is no thread of the world. False: it was no vessel that was given up, either.
    pub(crate) fn on_vessel_end(&mut self, id: ThreadId) -> bool {
        let Some(dying) = self.ahead.vessels.dying.remove(&id.into()) else { return false };
        self.keep_unreaped(dying.ended());
        true
    }

    fn keep_unreaped(&mut self, dead: ToReap) {
        match self.tracees.contains_key(&dead.parent().leader()) {
            true => self.ahead.vessels.are_unreaped([dead]),
            false => self.reparent(vec![dead]),
        }
    }

    pub(in crate::ahead) fn discard(&mut self, kept: Kept) {
        self.discard_vessel(kept.vessel.into_vessel());
    }

    pub(in crate::ahead) fn discard_vessel(&mut self, vessel: Vessel) {
        self.ahead.busy_programs.let_go();
        if let Ok(dying) = vessel.give_up() {
            self.ahead.vessels.dying.insert(dying.vessel().into(), dying);
        }
    }

    /// A process has ended for good: nobody can be put back, and what its vessels may have open is to be closed.
    pub(in crate::ahead) fn discard_vessels_of(&mut self, pid: ProcessId) {
        self.ahead.checkpoints.take_all_of(pid).into_iter().for_each(|kept| self.discard(kept));
    }
}
