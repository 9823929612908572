//! Events that carry dependencies: system calls, fork, exit, output (000, 6.1, 6.8, 6.9, 5.3).

use super::{ProcessState, Restart, Start, World};
use crate::record::Dependent;
use crate::{Action, DependencySet, Process};

impl<K: Ord + Clone, P, O> World<K, P, O> {
    /// A process observes an object: it takes those of the object's dependencies that it lacks.
    pub fn observe(&mut self, process: Process, object: K) {
        self.system_call(process, vec![Dependent::Object(object)], Vec::new());
    }

    /// A process modifies an object, and thereby observes it. Call it before the change is made; `payload` undoes it.
    pub fn modify(&mut self, process: Process, object: K, payload: P) {
        self.system_call(process, Vec::new(), vec![(object, payload)]);
    }

    /// A process observes another one, by `wait` or by a signal that it may send.
    pub fn observe_process(&mut self, process: Process, observed: Process) {
        self.system_call(process, vec![Dependent::Process(observed)], Vec::new());
    }

    /// One system call that observes and modifies several objects. It has one checkpoint, because a process starts
    /// again at its beginning, and everything that it modifies depends on everything that it observes, because all of
    /// it is done again then.
    pub fn system_call(&mut self, process: Process, observes: Vec<Dependent<K>>, modifies: Vec<(K, P)>) {
        let gained = self.gained(process, &observes, modifies.iter().map(|(object, _)| object));
        self.add_to_process(process, gained);
        for (object, payload) in modifies {
            self.add_to_object(process, object, payload);
        }
    }

    /// The dependencies that such a system call would give to its process.
    pub fn gains(&self, process: Process, observes: &[Dependent<K>], modifies: &[K]) -> DependencySet {
        self.gained(process, observes, modifies.iter())
    }

    /// Whether such a system call adds no dependency to anything. Then what is undone is the same whether the log gets
    /// an entry for it or not, if the log has one already that puts back the whole of the object: no cut begins at the
    /// new entry.
    pub fn adds_nothing(&self, process: Process, observes: &[Dependent<K>], modifies: &[K]) -> bool {
        let own = self.dependencies_of_process(process);
        self.gains(process, observes, modifies).is_empty()
            && modifies.iter().all(|object| own.is_subset(self.dependencies_of_object(object)))
    }

    /// Whether such a system call would have to take a checkpoint. Where that is not possible, or costs more than the
    /// wait that it hides, the system call is a barrier instead.
    pub fn needs_checkpoint(&self, process: Process, observes: &[Dependent<K>], modifies: &[K]) -> bool {
        self.can_fail(&self.gained(process, observes, modifies.iter()))
    }

    /// Whether a modification has to be undoable. If not, any payload does, and comes back at once by `RollForward`.
    pub fn needs_undo(&self, process: Process, object: &K) -> bool {
        self.can_fail(self.dependencies_of_process(process)) || self.can_fail(self.dependencies_of_object(object))
    }

    /// `parent` forks `child`, which inherits all its dependencies (000, 6.8).
    pub fn fork(&mut self, parent: Process, child: Process) {
        debug_assert!(!self.processes.contains_key(&child), "a pid is free only when it depends on nothing");
        let inherited = self.dependencies_of_process(parent).clone();
        let from = if self.can_fail(&inherited) { Start::Birth } else { Start::Nowhere };
        self.push_to_process(child, from, inherited);
    }

    /// A process exits. Its pid stays taken until `ReleasePid` (000, 6.9).
    pub fn exit(&mut self, process: Process) {
        match self.processes.get_mut(&process) {
            Some(state) => state.exited = true,
            None => self.actions.push_back(Action::ReleasePid { process }),
        }
    }

    /// A process writes to the outside. "It then stores the output in a queue associated with the last checkpoint of
    /// the current process" (000, 5.3), unless it depends on nothing.
    pub fn output(&mut self, process: Process, output: O) {
        let sequence = self.tick();
        let last = self.processes.get_mut(&process).and_then(|state| state.log.last_mut());
        match last {
            Some(entry) => entry.payload.outputs.push((sequence, output)),
            None => self.actions.push_back(Action::ReleaseOutput { process, output }),
        }
    }

    fn gained<'a>(
        &'a self,
        process: Process,
        observes: &[Dependent<K>],
        modifies: impl Iterator<Item = &'a K>,
    ) -> DependencySet {
        let mut all = DependencySet::new();
        for dependent in observes {
            all.merge(self.dependencies_of(dependent));
        }
        for object in modifies {
            all.merge(self.dependencies_of_object(object));
        }
        all.subtract(self.dependencies_of_process(process));
        all
    }

    fn add_to_process(&mut self, process: Process, gained: DependencySet) {
        if gained.is_empty() {
            return;
        }
        let from = match self.can_fail(&gained) {
            true => Start::Checkpoint(self.take_checkpoint(process)),
            false => Start::Nowhere,
        };
        self.push_to_process(process, from, gained);
    }

    pub(super) fn push_to_process(&mut self, process: Process, from: Start, gained: DependencySet) {
        if gained.is_empty() {
            return;
        }
        self.refer(&gained, &Dependent::Process(process));
        let sequence = self.tick();
        let state = self.processes.entry(process).or_insert_with(ProcessState::new);
        debug_assert!(!state.exited, "{process:?} has exited");
        state.log.push(sequence, Restart::new(from), gained);
    }

    /// The object takes the dependencies of the process. There is an entry even if none is new, because a rollback to
    /// an older entry has to undo this operation as well (000, figure 3(d): "the two inverse operations in its undo
    /// log").
    fn add_to_object(&mut self, process: Process, object: K, payload: P) {
        let new = self.dependencies_of_process(process).difference(self.dependencies_of_object(&object));
        let payload = if self.needs_undo(process, &object) {
            Some(payload)
        } else {
            let payloads = vec![payload];
            self.actions.push_back(Action::RollForward { object: object.clone(), payloads });
            None
        };
        if payload.is_none() && new.is_empty() {
            return;
        }
        self.refer(&new, &Dependent::Object(object.clone()));
        let sequence = self.tick();
        self.objects.entry(object).or_default().push(sequence, payload, new);
    }
}
