//! The engine: who depends on what, and what happens when a speculation is resolved (000, 5.2 and 6.1).
//!
//! A system call first observes, then modifies. What it observes gives its dependencies to the process, in one entry
//! with a checkpoint; then the process gives all its dependencies to what it modifies, in one entry each. Modifying is
//! observing as well: "almost all operations that modify kernel objects also observe the object being modified" (000,
//! 6.1), and where an operation does not (a signal sent by an exiting process), its object is new and has no
//! dependencies to give. Were a process to modify an object without taking that object's dependencies, a rollback of
//! the object would lose an operation that nobody repeats.

mod bury;
mod commit;
mod create;
mod fail;
mod propagate;

pub use create::{CreateError, Created};

use crate::record::Dependent;
use crate::{Action, Checkpoint, DependencySet, Options, Process, Speculation, SpeculationId, UndoLog};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// A set of processes and everything that only they can reach.
#[derive(Clone, Debug)]
pub struct World<K, P, O> {
    options: Options,
    processes: BTreeMap<Process, ProcessState<O>>,
    /// Objects with speculative state; all others have no log. A payload is absent where nothing can fail.
    objects: BTreeMap<K, UndoLog<Option<P>>>,
    speculations: BTreeMap<SpeculationId, Speculation<K>>,
    /// The open speculations that cannot fail.
    lightweight: DependencySet,
    full_open: usize,
    /// How many speculations each process has made; never goes back.
    counters: BTreeMap<Process, u64>,
    sequence: u64,
    checkpoints: u64,
    /// How many were buried.
    buried: u32,
    actions: VecDeque<Action<K, P, O>>,
}

/// A process that is speculative.
#[derive(Clone, Debug)]
struct ProcessState<O> {
    log: UndoLog<Restart<O>>,
    exited: bool,
    /// Nobody asks for it any more.
    is_buried: bool,
    /// The checkpoint that the next speculation may share.
    sharing: Option<Sharing>,
}

/// Payload of an entry of a process's log.
#[derive(Clone, Debug)]
struct Restart<O> {
    from: Start,
    /// The open full speculations that the process made at this entry.
    created: DependencySet,
    /// What the process wrote since this entry and before the next (000, 5.3), with its moment.
    outputs: Vec<(u64, O)>,
}

/// Where a process starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Checkpoint(Checkpoint),
    /// It does not: its parent will, or will not, fork it again.
    Birth,
    /// Nothing that the entry depends on can fail.
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
struct Sharing {
    checkpoint: Checkpoint,
    taken_ms: u64,
}

/// Whether a resolution found its speculation still open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It was open and is resolved now.
    InTime,
    /// The execution that made it had been rolled back meanwhile; nothing was left to do (000, 8.4).
    AlreadyFailed,
}

/// Why a speculation was not resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResolveError {
    /// No such speculation, or it was resolved before.
    Unknown(SpeculationId),
    /// It is lightweight: its operation is known to succeed.
    CannotFail(SpeculationId),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(id) => write!(f, "speculation {id} is not open; resolve each speculation once"),
            Self::CannotFail(id) => {
                write!(f, "speculation {id} is lightweight and can only commit")
            }
        }
    }
}

impl std::error::Error for ResolveError {}

impl<O> ProcessState<O> {
    fn new() -> Self {
        Self { log: UndoLog::default(), exited: false, is_buried: false, sharing: None }
    }
}

impl<O> Restart<O> {
    fn new(from: Start) -> Self {
        Self { from, created: DependencySet::new(), outputs: Vec::new() }
    }
}

static NOTHING: DependencySet = DependencySet::new();

impl<K: Ord + Clone, P, O> Default for World<K, P, O> {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl<K: Ord + Clone, P, O> World<K, P, O> {
    /// A world in which nothing is speculative.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            processes: BTreeMap::new(),
            objects: BTreeMap::new(),
            speculations: BTreeMap::new(),
            lightweight: DependencySet::new(),
            full_open: 0,
            counters: BTreeMap::new(),
            sequence: 0,
            checkpoints: 0,
            buried: 0,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do, if any.
    pub fn next_action(&mut self) -> Option<Action<K, P, O>> {
        self.actions.pop_front()
    }

    /// All speculations on which a process depends.
    pub fn dependencies_of_process(&self, process: Process) -> &DependencySet {
        self.processes.get(&process).map_or(&NOTHING, |state| state.log.depends_on())
    }

    /// All speculations on which an object depends.
    pub fn dependencies_of_object(&self, object: &K) -> &DependencySet {
        self.objects.get(object).map_or(&NOTHING, |log| log.depends_on())
    }

    /// Whether the process depends on anything: then a barrier waits for `ProcessResolved`.
    pub fn is_speculative(&self, process: Process) -> bool {
        self.processes.contains_key(&process)
    }

    /// Whether the process depends on all that is open and may fail: then nothing that it observes adds anything.
    pub fn depends_on_all(&self, process: Process) -> bool {
        let own = self.dependencies_of_process(process);
        let lightweight =
            if self.lightweight.is_empty() { 0 } else { own.len() - own.difference(&self.lightweight).len() };
        own.len() - lightweight == self.full_open as u64
    }

    /// Whether the process was forked by one that depends on something that may fail: then it is not known to be there
    /// at all.
    pub fn may_never_have_been(&self, process: Process) -> bool {
        self.processes
            .get(&process)
            .is_some_and(|state| state.log.entries().any(|entry| entry.payload.from == Start::Birth))
    }

    /// An open speculation, or one that failed before its owner resolved it.
    pub fn speculation(&self, id: SpeculationId) -> Option<&Speculation<K>> {
        self.speculations.get(&id)
    }

    /// Full speculations that are open.
    pub fn open_speculations(&self) -> usize {
        self.full_open
    }

    /// Length of the undo log of an object.
    pub fn log_length(&self, dependent: &Dependent<K>) -> usize {
        match dependent {
            Dependent::Process(process) => self.processes.get(process).map_or(0, |state| state.log.len()),
            Dependent::Object(object) => self.objects.get(object).map_or(0, UndoLog::len),
        }
    }

    /// The dependencies that each entry of an object's undo log added, oldest first.
    pub fn log_dependencies(&self, dependent: &Dependent<K>) -> Vec<DependencySet> {
        match dependent {
            Dependent::Process(process) => self.processes.get(process).map_or(Vec::new(), |s| added(&s.log)),
            Dependent::Object(object) => self.objects.get(object).map_or(Vec::new(), added),
        }
    }

    /// All speculations on which one or the other depends.
    pub fn dependencies_of(&self, dependent: &Dependent<K>) -> &DependencySet {
        match dependent {
            Dependent::Process(process) => self.dependencies_of_process(*process),
            Dependent::Object(object) => self.dependencies_of_object(object),
        }
    }

    /// Whether any of `set`, all open, can fail.
    fn can_fail(&self, set: &DependencySet) -> bool {
        !set.is_subset(&self.lightweight)
    }

    fn tick(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn take_checkpoint(&mut self, process: Process) -> Checkpoint {
        self.checkpoints += 1;
        let checkpoint = Checkpoint(self.checkpoints);
        self.actions.push_back(Action::TakeCheckpoint { process, checkpoint });
        checkpoint
    }

    /// `dependent` has an entry now that refers to `ids`.
    fn refer(&mut self, ids: &DependencySet, dependent: &Dependent<K>) {
        for id in ids.iter() {
            let speculation = self.speculations.get_mut(&id).expect("an entry refers only to open speculations");
            speculation.dependents.insert(dependent.clone());
        }
    }
}

fn added<P>(log: &UndoLog<P>) -> Vec<DependencySet> {
    log.entries().map(|entry| entry.dependencies.clone()).collect()
}
