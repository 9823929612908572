//! `create_speculation`, and the sharing of checkpoints (000, 5.2).
//!
//! A speculation that shares a checkpoint *joins* the open ones of that checkpoint: whatever depends on one of them
//! depends on the newcomer from then on, because if the newcomer fails, the process does again all that it did since
//! the checkpoint. So "output that depends on only one speculation must wait for both" (000, 5.3) needs no rule of its
//! own.
//!
//! Sharing ends with a mutating speculation of the process (000, 5.2), and also with one of any other process that
//! depends on the checkpoint: the server performs that mutation if the speculations in its list are right, and knows
//! nothing of one that joins them later.

use super::{ProcessState, Restart, Sharing, Start, World};
use crate::record::{Dependent, Kind};
use crate::{Access, Checkpoint, DependencySet, Process, Speculation, SpeculationId};
use std::fmt;

/// What `create_speculation` returns (000, figure 2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// Name of the new speculation.
    pub id: SpeculationId,
    /// The prior speculations on which the new one depends: part of its hypothesis (000, 7.1).
    pub dependencies: DependencySet,
}

/// Why no speculation was created. Do the operation synchronously instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// As many full speculations are open as the options allow.
    TooManyOpen(usize),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::TooManyOpen(open) = self;
        write!(f, "{open} speculations are open, the most that the options allow; wait for one to be resolved")
    }
}

impl std::error::Error for CreateError {}

impl<K: Ord + Clone, P, O> World<K, P, O> {
    /// A process, at the entry of a system call at time `now_ms`, runs ahead of a slow operation that can fail.
    pub fn create_speculation(
        &mut self,
        process: Process,
        access: Access,
        now_ms: u64,
    ) -> Result<Created, CreateError> {
        if self.full_open >= self.options.open_speculations_max {
            return Err(CreateError::TooManyOpen(self.full_open));
        }
        let dependencies = self.dependencies_of_process(process).clone();
        let id = self.name(process, Kind::Full(access));
        self.full_open += 1;
        match self.shareable(process, now_ms) {
            Some((checkpoint, member)) => self.join(process, checkpoint, member, id),
            None => self.begin(process, id, now_ms),
        }
        if access == Access::Mutating {
            self.end_sharing(process, &dependencies);
        }
        Ok(Created { id, dependencies })
    }

    /// A lightweight speculation, a transaction of a journal for instance, on which nobody depends yet.
    pub fn create_lightweight_speculation(&mut self, owner: Process) -> SpeculationId {
        let id = self.name(owner, Kind::Lightweight);
        self.lightweight.insert(id);
        id
    }

    /// The process changes something that is lost unless the lightweight speculation `id` commits (002, 3.1). Does
    /// nothing if it has committed.
    pub fn add_commit_dependency(&mut self, process: Process, id: SpeculationId) {
        let known = self.dependencies_of_process(process).contains(id);
        if self.lightweight.contains(id) && !known {
            self.push_to_process(process, Start::Nowhere, DependencySet::from_iter([id]));
        }
    }

    /// Whether `create_speculation` would ask for a checkpoint now.
    pub fn creation_needs_checkpoint(&self, process: Process, now_ms: u64) -> bool {
        self.full_open < self.options.open_speculations_max && self.shareable(process, now_ms).is_none()
    }

    fn name(&mut self, process: Process, kind: Kind) -> SpeculationId {
        let counter = self.counters.entry(process).or_insert(0);
        *counter += 1;
        let id = SpeculationId { process, counter: *counter };
        self.speculations.insert(id, Speculation::new(id, kind));
        id
    }

    /// The process's last checkpoint and an open speculation of it, if a speculation may share it now.
    fn shareable(&self, process: Process, now_ms: u64) -> Option<(Checkpoint, SpeculationId)> {
        let state = self.processes.get(&process)?;
        let sharing = state.sharing?;
        let age_ms = now_ms.saturating_sub(sharing.taken_ms);
        if !self.options.share_checkpoints || age_ms > self.options.checkpoint_age_ms_max {
            return None;
        }
        let last = state.log.entries().rev().find(|entry| entry.payload.from != Start::Nowhere)?;
        let is_last = last.payload.from == Start::Checkpoint(sharing.checkpoint);
        let member = last.payload.created.iter().next()?;
        is_last.then_some((sharing.checkpoint, member))
    }

    /// A new checkpoint for the speculation.
    fn begin(&mut self, process: Process, id: SpeculationId, now_ms: u64) {
        let checkpoint = self.take_checkpoint(process);
        let only = DependencySet::from_iter([id]);
        self.refer(&only, &Dependent::Process(process));
        let sequence = self.tick();
        let state = self.processes.entry(process).or_insert_with(ProcessState::new);
        let restart = Restart { created: only.clone(), ..Restart::new(Start::Checkpoint(checkpoint)) };
        state.log.push(sequence, restart, only);
        state.sharing = Some(Sharing { checkpoint, taken_ms: now_ms });
    }

    /// Everything that depends on `member` depends on `newcomer` too.
    fn join(&mut self, process: Process, checkpoint: Checkpoint, member: SpeculationId, newcomer: SpeculationId) {
        let dependents = self.speculations[&member].dependents.clone();
        for dependent in &dependents {
            match dependent {
                Dependent::Process(p) => {
                    let state = self.processes.get_mut(p).expect("a dependent has a log");
                    state.log.join(member, newcomer);
                }
                Dependent::Object(k) => {
                    self.objects.get_mut(k).expect("a dependent has a log").join(member, newcomer);
                }
            }
        }
        self.speculations.get_mut(&newcomer).expect("just made").dependents = dependents;
        let state = self.processes.get_mut(&process).expect("it has a checkpoint");
        let mut entries = state.log.entries_mut();
        let entry = entries.find(|entry| entry.payload.from == Start::Checkpoint(checkpoint));
        entry.expect("it has this checkpoint").payload.created.insert(newcomer);
    }

    /// No speculation joins those that a mutation depends on, nor the mutation itself.
    fn end_sharing(&mut self, process: Process, dependencies: &DependencySet) {
        if let Some(state) = self.processes.get_mut(&process) {
            state.sharing = None;
        }
        for run in dependencies.runs() {
            let Some(state) = self.processes.get_mut(&run.process) else {
                continue;
            };
            let Some(sharing) = state.sharing else {
                continue;
            };
            let at = Start::Checkpoint(sharing.checkpoint);
            let entry = state.log.entries().rev().find(|entry| entry.payload.from == at);
            if entry.is_some_and(|entry| !entry.payload.created.is_disjoint(dependencies)) {
                state.sharing = None;
            }
        }
    }
}
