//! `commit_speculation`: no entry refers to the speculation any more, "entries at the front of an undo log are deleted
//! once they depend on no more speculations", and an object without entries is non-speculative (000, 6.1).

use super::{ResolveError, Restart, Start, Verdict, World};
use crate::record::{Dependent, Kind, State};
use crate::{Action, Checkpoint, Entry, Process, Speculation, SpeculationId};

/// What a commit sets free, before it is put in order.
struct Freed<K, P, O> {
    payloads: Vec<(u64, K, P)>,
    outputs: Vec<(u64, Process, O)>,
    checkpoints: Vec<(Process, Checkpoint)>,
    resolved: Vec<Dependent<K>>,
}

impl<K: Ord + Clone, P, O> World<K, P, O> {
    /// The guess was right.
    pub fn commit_speculation(&mut self, id: SpeculationId) -> Result<Verdict, ResolveError> {
        let speculation = self.speculations.remove(&id).ok_or(ResolveError::Unknown(id))?;
        if speculation.state == State::Failed {
            return Ok(Verdict::AlreadyFailed);
        }
        self.forget_open(&speculation);
        let mut freed = Freed { payloads: vec![], outputs: vec![], checkpoints: vec![], resolved: vec![] };
        for dependent in speculation.dependents {
            match dependent {
                Dependent::Process(process) => self.commit_in_process(id, process, &mut freed),
                Dependent::Object(object) => self.commit_in_object(id, object, &mut freed),
            }
        }
        self.emit_freed(freed);
        Ok(Verdict::InTime)
    }

    pub(super) fn forget_open(&mut self, speculation: &Speculation<K>) {
        match speculation.kind() {
            Kind::Full(_) => self.full_open -= 1,
            Kind::Lightweight => drop(self.lightweight.remove(speculation.id())),
        }
    }

    fn commit_in_process(&mut self, id: SpeculationId, process: Process, freed: &mut Freed<K, P, O>) {
        let state = self.processes.get_mut(&process).expect("a dependent has a log");
        if let Some(entry) = state.log.resolve(id) {
            entry.payload.created.remove(id);
            // An entry whose speculations cannot fail is never rolled back to, wherever it stands.
            if entry.dependencies.is_subset(&self.lightweight) {
                freed.take_checkpoint(process, &mut entry.payload);
            }
        }
        for entry in state.log.drop_leading() {
            freed.take_entry(process, entry);
        }
        if state.log.is_empty() {
            freed.resolved.push(Dependent::Process(process));
        }
    }

    fn commit_in_object(&mut self, id: SpeculationId, object: K, freed: &mut Freed<K, P, O>) {
        let log = self.objects.get_mut(&object).expect("a dependent has a log");
        log.resolve(id);
        for entry in log.drop_leading() {
            freed.payloads.extend(entry.payload.map(|payload| (entry.sequence, object.clone(), payload)));
        }
        // An operation is undone with every older one, so that only the leading ones are safe.
        for entry in log.entries_mut().take_while(|e| e.dependencies.is_subset(&self.lightweight)) {
            let payload = entry.payload.take();
            freed.payloads.extend(payload.map(|payload| (entry.sequence, object.clone(), payload)));
        }
        if log.is_empty() {
            self.objects.remove(&object);
            freed.resolved.push(Dependent::Object(object));
        }
    }

    fn emit_freed(&mut self, mut freed: Freed<K, P, O>) {
        freed.payloads.sort_by_key(|&(sequence, ..)| sequence);
        let payloads = freed.payloads.into_iter().map(|(_, object, payload)| (object, payload));
        for (object, payloads) in in_runs(payloads) {
            self.actions.push_back(Action::RollForward { object, payloads });
        }
        // Output of one process leaves in its order; over processes in the order of writing, which respects
        // happens-before.
        freed.outputs.sort_by_key(|&(sequence, ..)| sequence);
        for (_, process, output) in freed.outputs {
            self.actions.push_back(Action::ReleaseOutput { process, output });
        }
        for (process, checkpoint) in freed.checkpoints {
            self.actions.push_back(Action::DiscardCheckpoint { process, checkpoint });
        }
        for dependent in freed.resolved {
            self.emit_resolved(dependent);
        }
    }

    /// `dependent` has no entry any more.
    pub(super) fn emit_resolved(&mut self, dependent: Dependent<K>) {
        match dependent {
            Dependent::Process(process) => {
                let state = self.processes.remove(&process).expect("it was speculative");
                if state.is_buried {
                    return;
                }
                self.actions.push_back(Action::ProcessResolved { process });
                if state.exited {
                    self.actions.push_back(Action::ReleasePid { process });
                }
            }
            Dependent::Object(object) => self.actions.push_back(Action::ObjectResolved { object }),
        }
    }
}

impl<K, P, O> Freed<K, P, O> {
    fn take_entry(&mut self, process: Process, mut entry: Entry<Restart<O>>) {
        self.take_checkpoint(process, &mut entry.payload);
        let outputs = entry.payload.outputs.into_iter();
        self.outputs.extend(outputs.map(|(sequence, output)| (sequence, process, output)));
    }

    fn take_checkpoint(&mut self, process: Process, restart: &mut Restart<O>) {
        if let Start::Checkpoint(checkpoint) = restart.from {
            self.checkpoints.push((process, checkpoint));
        }
        restart.from = Start::Nowhere;
    }
}

/// Neighbours of the same object together.
pub(super) fn in_runs<K: PartialEq, P>(payloads: impl Iterator<Item = (K, P)>) -> Vec<(K, Vec<P>)> {
    let mut runs: Vec<(K, Vec<P>)> = Vec::new();
    for (object, payload) in payloads {
        match runs.last_mut() {
            Some((last, run)) if *last == object => run.push(payload),
            _ => runs.push((object, vec![payload])),
        }
    }
    runs
}
