//! Processes that have ended for good on a guess: nothing is left of them but what they wrote.

use super::{Start, World};
use crate::record::Dependent;
use crate::Process;

/// Numbers from here on are given to the buried. No process has one.
const FIRST_BURIED: u32 = 1 << 31;

impl<K: Ord + Clone, P, O> World<K, P, O> {
    /// Whether no rollback brings a process back: it has exited, and was forked by one that depended on all that it
    /// depends on.
    pub fn has_ended_for_good(&self, process: Process) -> bool {
        self.processes.get(&process).is_some_and(|state| {
            state.exited && state.log.entries().all(|entry| !matches!(entry.payload.from, Start::Checkpoint(_)))
        })
    }

    /// Such a process is forgotten, and its number may be another one's next. What it has written is released, or
    /// dropped, with what it depends on.
    pub fn bury(&mut self, process: Process) {
        debug_assert!(self.has_ended_for_good(process));
        let Some(mut state) = self.processes.remove(&process) else { return };
        let has_written = state.log.entries().any(|entry| !entry.payload.outputs.is_empty());
        self.buried = (self.buried + 1) % FIRST_BURIED;
        let number = Process(FIRST_BURIED | self.buried);
        for id in state.log.depends_on().iter() {
            let Some(speculation) = self.speculations.get_mut(&id) else { continue };
            speculation.dependents.remove(&Dependent::Process(process));
            if has_written {
                speculation.dependents.insert(Dependent::Process(number));
            }
        }
        if has_written {
            state.is_buried = true;
            self.processes.insert(number, state);
        }
    }

    /// An object is gone for good, with whoever could be put back to it.
    pub fn bury_object(&mut self, object: &K) {
        let Some(log) = self.objects.remove(object) else { return };
        for id in log.depends_on().iter() {
            if let Some(speculation) = self.speculations.get_mut(&id) {
                speculation.dependents.remove(&Dependent::Object(object.clone()));
            }
        }
    }

    /// What would undo the operations on an object.
    pub fn payloads(&self, object: &K) -> impl Iterator<Item = &P> {
        let entries = self.objects.get(object).into_iter().flat_map(|log| log.entries());
        entries.filter_map(|entry| entry.payload.as_ref())
    }
}
