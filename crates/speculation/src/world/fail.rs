//! `fail_speculation`: "each kernel object that depends on that speculation is rolled back to the state captured by the
//! undo entry with which the failed speculation is associated", atomically (000, 6.1).
//!
//! A process that rolls back to a time before it made another speculation has not made it: that one fails too, with
//! everything that depends on it. So first the whole extent of the rollback is found, then it is carried out.

use super::commit::in_runs;
use super::{ResolveError, Restart, Start, Verdict, World};
use crate::record::{Dependent, Kind, State};
use crate::{Action, DependencySet, Entry, Process, SpeculationId};
use std::collections::BTreeMap;

/// How far a failure reaches.
struct Extent<K> {
    /// The failed speculations, in the order in which they were found.
    failed: Vec<SpeculationId>,
    /// Index of the oldest entry to undo in each log.
    cuts: BTreeMap<Dependent<K>, usize>,
}

/// What was taken out of the logs.
struct Undone<K, P, O> {
    payloads: Vec<(u64, K, P)>,
    outputs: Vec<(u64, Process, O)>,
    restarts: Vec<(Process, Vec<Start>)>,
    emptied: Vec<Dependent<K>>,
}

impl<K: Ord + Clone, P, O> World<K, P, O> {
    /// The guess was wrong.
    pub fn fail_speculation(&mut self, id: SpeculationId) -> Result<Verdict, ResolveError> {
        let speculation = self.speculations.get(&id).ok_or(ResolveError::Unknown(id))?;
        match (speculation.kind(), speculation.state) {
            (Kind::Lightweight, _) => return Err(ResolveError::CannotFail(id)),
            (_, State::Failed) => {
                self.speculations.remove(&id);
                return Ok(Verdict::AlreadyFailed);
            }
            _ => {}
        }
        let extent = self.extent(id);
        self.mark_failed(&extent.failed);
        let undone = self.cut(extent.cuts, &extent.failed);
        self.emit_rollback(&extent.failed, undone);
        self.speculations.remove(&id);
        Ok(Verdict::InTime)
    }

    fn extent(&self, id: SpeculationId) -> Extent<K> {
        let mut extent = Extent { failed: vec![id], cuts: BTreeMap::new() };
        let mut next = 0;
        while let Some(&id) = extent.failed.get(next) {
            next += 1;
            let only = DependencySet::from_iter([id]);
            for dependent in &self.speculations[&id].dependents {
                let Some(cut) = self.first_dependent(dependent, &only) else {
                    continue;
                };
                let before = extent.cuts.get(dependent).copied().unwrap_or(usize::MAX);
                if cut < before {
                    extent.cuts.insert(dependent.clone(), cut);
                    self.add_unmade(dependent, cut, before, &mut extent.failed);
                }
            }
        }
        extent
    }

    fn first_dependent(&self, dependent: &Dependent<K>, failed: &DependencySet) -> Option<usize> {
        match dependent {
            Dependent::Process(process) => self.processes.get(process)?.log.first_dependent(failed),
            Dependent::Object(object) => self.objects.get(object)?.first_dependent(failed),
        }
    }

    /// The speculations that a process made at its entries `cut..before` will not have been made.
    fn add_unmade(&self, dependent: &Dependent<K>, cut: usize, before: usize, failed: &mut Vec<SpeculationId>) {
        let Dependent::Process(process) = dependent else {
            return;
        };
        let entries = self.processes[process].log.entries().take(before).skip(cut);
        for id in entries.flat_map(|entry| entry.payload.created.iter()) {
            if !failed.contains(&id) {
                failed.push(id);
            }
        }
    }

    fn mark_failed(&mut self, failed: &[SpeculationId]) {
        for id in failed {
            let speculation = self.speculations.get_mut(id).expect("found a moment ago");
            speculation.state = State::Failed;
            speculation.dependents.clear();
        }
        self.full_open -= failed.len();
    }

    fn cut(&mut self, cuts: BTreeMap<Dependent<K>, usize>, failed: &[SpeculationId]) -> Undone<K, P, O> {
        let failed: DependencySet = failed.iter().copied().collect();
        let mut undone = Undone { payloads: vec![], outputs: vec![], restarts: vec![], emptied: vec![] };
        for (dependent, at) in cuts {
            let (lost, is_empty) = match &dependent {
                Dependent::Process(process) => self.cut_process(*process, at, &mut undone),
                Dependent::Object(object) => self.cut_object(object, at, &mut undone),
            };
            for id in lost.difference(&failed).iter() {
                let speculation = self.speculations.get_mut(&id).expect("an entry refers only to open ones");
                speculation.dependents.remove(&dependent);
            }
            if is_empty {
                undone.emptied.push(dependent);
            }
        }
        undone
    }

    /// Returns what the process no longer depends on, and whether nothing is left.
    fn cut_process(&mut self, process: Process, at: usize, undone: &mut Undone<K, P, O>) -> (DependencySet, bool) {
        let state = self.processes.get_mut(&process).expect("a dependent has a log");
        let entries = state.log.truncate(at);
        state.exited = false;
        state.sharing = None;
        let is_empty = state.log.is_empty();
        let lost = lost(&entries);
        let is_buried = state.is_buried;
        match is_buried {
            true => drop(self.processes.remove(&process)),
            false => undone.restarts.push((process, entries.iter().map(|entry| entry.payload.from).collect())),
        }
        for (sequence, output) in entries.into_iter().flat_map(|entry| outputs(entry.payload)) {
            undone.outputs.push((sequence, process, output));
        }
        (lost, is_empty && !is_buried)
    }

    fn cut_object(&mut self, object: &K, at: usize, undone: &mut Undone<K, P, O>) -> (DependencySet, bool) {
        let log = self.objects.get_mut(object).expect("a dependent has a log");
        let entries = log.truncate(at);
        let is_empty = log.is_empty();
        if is_empty {
            self.objects.remove(object);
        }
        let lost = lost(&entries);
        for entry in entries {
            undone.payloads.extend(entry.payload.map(|payload| (entry.sequence, object.clone(), payload)));
        }
        (lost, is_empty)
    }

    fn emit_rollback(&mut self, failed: &[SpeculationId], mut undone: Undone<K, P, O>) {
        for &(process, _) in &undone.restarts {
            self.actions.push_back(Action::Stop { process });
        }
        for &speculation in failed {
            self.actions.push_back(Action::Failed { speculation });
        }
        undone.outputs.sort_by_key(|&(sequence, ..)| sequence);
        for (_, process, output) in undone.outputs {
            self.actions.push_back(Action::DropOutput { process, output });
        }
        undone.payloads.sort_by_key(|&(sequence, ..)| std::cmp::Reverse(sequence));
        let payloads = undone.payloads.into_iter().map(|(_, object, payload)| (object, payload));
        for (object, payloads) in in_runs(payloads) {
            self.actions.push_back(Action::RollBack { object, payloads });
        }
        let mut destroyed = Vec::new();
        for (process, restarts) in undone.restarts {
            if self.emit_restart(process, restarts) {
                destroyed.push(Dependent::Process(process));
            }
        }
        self.actions.push_back(Action::RollbackComplete);
        for dependent in undone.emptied.into_iter().filter(|emptied| !destroyed.contains(emptied)) {
            self.emit_resolved(dependent);
        }
    }

    /// `restarts`: the undone entries, youngest first. Returns whether the process is no more.
    fn emit_restart(&mut self, process: Process, mut restarts: Vec<Start>) -> bool {
        let oldest = restarts.pop().expect("a cut undoes at least one entry");
        for from in restarts {
            if let Start::Checkpoint(checkpoint) = from {
                self.actions.push_back(Action::DiscardCheckpoint { process, checkpoint });
            }
        }
        match oldest {
            Start::Checkpoint(checkpoint) => {
                self.actions.push_back(Action::RestoreProcess { process, checkpoint });
                false
            }
            Start::Birth => {
                self.processes.remove(&process);
                self.actions.push_back(Action::DestroyProcess { process });
                true
            }
            Start::Nowhere => {
                unreachable!("an entry that refers to a full speculation has a checkpoint")
            }
        }
    }
}

fn lost<P>(entries: &[Entry<P>]) -> DependencySet {
    let mut lost = DependencySet::new();
    for entry in entries {
        lost.merge(&entry.dependencies);
    }
    lost
}

fn outputs<O>(restart: Restart<O>) -> Vec<(u64, O)> {
    restart.outputs
}
