//! A tiny operating system driven by a `World`, and beside it the naive model: the history of operations that survive,
//! replayed from the start after every event, without those that depend on a failed speculation.
#![allow(dead_code)]

mod naive;

pub use naive::{Record, Replayed};

use speculation::{Access, Action, Checkpoint, Dependent, Options, Process, SpeculationId, Verdict, World};
use std::collections::{BTreeMap, BTreeSet};

/// Index of a speculation, in order of creation. Sets of them are bit masks in the model.
pub type Spec = usize;
/// Index of an operation, in order of time.
pub type Moment = u32;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Guess the result of a slow operation.
    Speculate(Access),
    /// Make a lightweight speculation and depend on it.
    Lightweight,
    /// Depend on a lightweight speculation that somebody made.
    Attach(Spec),
    Write(u8),
    Read(u8),
    /// Take the first value out of an object.
    Consume(u8),
    /// Take the first value out of an object and append it to another one, in one system call.
    Move(u8, u8),
    Output,
    Fork(u32),
    Exit,
    Wait(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    Nothing,
    RemoveLast,
    PutFirst(u64),
}

/// What the model knows of a speculation.
#[derive(Clone, Debug)]
pub struct Guess {
    pub id: SpeculationId,
    /// The operation that took the checkpoint that the speculation uses.
    pub since: Moment,
    pub open: bool,
    pub failed: bool,
    pub can_fail: bool,
    /// Its owner has resolved it.
    pub settled: bool,
}

#[derive(Clone)]
pub struct Os {
    pub world: World<u8, (u64, Undo), Moment>,
    pub now_ms: u64,
    /// What a process knows: a hash over all that it did and observed.
    pub locals: BTreeMap<Process, u64>,
    pub exited: BTreeSet<Process>,
    pub objects: BTreeMap<u8, Vec<u64>>,
    pub released: Vec<Moment>,
    pub dropped: Vec<Moment>,
    pub history: Vec<Record>,
    pub guesses: Vec<Guess>,
    processes: u32,
    /// What is kept: whose, what it knew, and the operation before which it was taken.
    checkpoints: BTreeMap<Checkpoint, (Process, u64, Moment)>,
    payloads: BTreeSet<u64>,
    payload_next: u64,
    moment: Moment,
    stopped: BTreeSet<Process>,
    failed_now: BTreeSet<SpeculationId>,
}

pub fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(23).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

impl Os {
    pub fn new(processes: u32, options: Options) -> Self {
        Self {
            world: World::new(options),
            now_ms: 0,
            locals: (1..=processes).map(|p| (Process(p), u64::from(p))).collect(),
            exited: BTreeSet::new(),
            objects: BTreeMap::new(),
            released: vec![],
            dropped: vec![],
            history: vec![],
            guesses: vec![],
            processes,
            checkpoints: BTreeMap::new(),
            payloads: BTreeSet::new(),
            payload_next: 0,
            moment: 0,
            stopped: BTreeSet::new(),
            failed_now: BTreeSet::new(),
        }
    }

    /// Whether the process can do that now.
    pub fn can(&self, process: Process, op: Op) -> bool {
        if !self.locals.contains_key(&process) || self.exited.contains(&process) {
            return false;
        }
        match op {
            Op::Move(from, to) => from != to,
            Op::Fork(child) => !self.locals.contains_key(&Process(child)),
            Op::Wait(child) => Process(child) != process && self.locals.contains_key(&Process(child)),
            Op::Attach(spec) => self.guesses.get(spec).is_some_and(|g| !g.can_fail),
            Op::Speculate(_) | Op::Lightweight => self.guesses.len() < 60,
            _ => true,
        }
    }

    /// The process does it: first the world hears of it, then it happens.
    pub fn perform(&mut self, process: Process, op: Op) -> bool {
        if !self.can(process, op) {
            return false;
        }
        self.moment += 1;
        let moment = self.moment;
        let made = self.tell(process, op);
        self.drain();
        if let Some((id, can_fail)) = made {
            let since = if can_fail { self.last_checkpoint(process) } else { moment };
            self.guesses.push(Guess { id, since, open: true, failed: false, can_fail, settled: false });
        }
        self.history.push(Record { moment, process, op, made: made.map(|_| self.guesses.len() - 1) });
        naive::act(process, op, moment, &mut self.locals, &mut self.objects);
        if op == Op::Exit {
            self.exited.insert(process);
        }
        true
    }

    fn tell(&mut self, process: Process, op: Op) -> Option<(SpeculationId, bool)> {
        match op {
            Op::Speculate(access) => {
                let made = self.world.create_speculation(process, access, self.now_ms);
                return made.ok().map(|made| (made.id, true));
            }
            Op::Lightweight => {
                let id = self.world.create_lightweight_speculation(process);
                self.world.add_commit_dependency(process, id);
                return Some((id, false));
            }
            Op::Attach(spec) => self.world.add_commit_dependency(process, self.guesses[spec].id),
            Op::Read(object) => self.world.observe(process, object),
            Op::Write(object) => self.modify(process, &[(object, Undo::RemoveLast)]),
            Op::Consume(object) => self.modify(process, &[(object, self.put_first(object))]),
            Op::Move(from, to) => {
                let undo = self.put_first(from);
                let back = if undo == Undo::Nothing { Undo::Nothing } else { Undo::RemoveLast };
                self.modify(process, &[(from, undo), (to, back)]);
            }
            Op::Output => self.world.output(process, self.moment),
            Op::Fork(child) => self.world.fork(process, Process(child)),
            Op::Exit => self.world.exit(process),
            Op::Wait(child) => self.world.observe_process(process, Process(child)),
        }
        None
    }

    /// When the newest checkpoint of the process was taken that is still kept: one that was taken later, for what it
    /// observed, is gone again once that has committed.
    fn last_checkpoint(&self, process: Process) -> Moment {
        let taken = self.checkpoints.values().filter(|(owner, ..)| *owner == process).map(|(.., moment)| *moment);
        taken.max().expect("a guess has a checkpoint")
    }

    fn put_first(&self, object: u8) -> Undo {
        let first = self.objects.get(&object).and_then(|values| values.first());
        first.map_or(Undo::Nothing, |&value| Undo::PutFirst(value))
    }

    fn modify(&mut self, process: Process, objects: &[(u8, Undo)]) {
        let mut modifies = Vec::new();
        for &(object, undo) in objects {
            self.payload_next += 1;
            self.payloads.insert(self.payload_next);
            modifies.push((object, (self.payload_next, undo)));
        }
        self.world.system_call(process, Vec::new(), modifies);
    }

    pub fn commit(&mut self, spec: Spec) -> bool {
        if self.guesses.get(spec).is_none_or(|guess| guess.settled) {
            return false;
        }
        let guess = &mut self.guesses[spec];
        guess.settled = true;
        guess.open = false;
        let expected = if guess.failed { Verdict::AlreadyFailed } else { Verdict::InTime };
        assert_eq!(self.world.commit_speculation(guess.id), Ok(expected));
        self.drain();
        true
    }

    pub fn fail(&mut self, spec: Spec) -> bool {
        if self.guesses.get(spec).is_none_or(|guess| guess.settled || !guess.can_fail) {
            return false;
        }
        self.guesses[spec].settled = true;
        let id = self.guesses[spec].id;
        if self.guesses[spec].failed {
            assert_eq!(self.world.fail_speculation(id), Ok(Verdict::AlreadyFailed));
            self.drain();
            return true;
        }
        let (failed, survivors) = naive::without(spec, &self.history, &self.guesses, self.processes);
        assert_eq!(self.world.fail_speculation(id), Ok(Verdict::InTime));
        self.failed_now.clear();
        self.drain();
        let expected: BTreeSet<_> = failed.iter().map(|&spec| self.guesses[spec].id).collect();
        assert_eq!(self.failed_now, expected, "the speculations that fail with {id}");
        for spec in failed {
            self.guesses[spec].failed = true;
            self.guesses[spec].open = false;
        }
        self.history = survivors;
        true
    }

    fn drain(&mut self) {
        while let Some(action) = self.world.next_action() {
            self.carry_out(action);
        }
        assert!(self.stopped.is_empty(), "a rollback did not end");
    }

    fn carry_out(&mut self, action: Action<u8, (u64, Undo), Moment>) {
        match action {
            Action::TakeCheckpoint { process, checkpoint } => {
                self.checkpoints.insert(checkpoint, (process, self.locals[&process], self.moment));
            }
            Action::DiscardCheckpoint { process, checkpoint } => {
                assert_eq!(self.checkpoints.remove(&checkpoint).expect("kept").0, process);
            }
            Action::Stop { process } => assert!(self.stopped.insert(process)),
            Action::Failed { speculation } => assert!(self.failed_now.insert(speculation)),
            Action::RollBack { object, payloads } => {
                assert!(!self.stopped.is_empty(), "somebody made these operations");
                payloads.into_iter().for_each(|payload| self.undo(object, payload));
            }
            Action::RollForward { payloads, .. } => {
                payloads.iter().for_each(|(number, _)| assert!(self.payloads.remove(number)));
            }
            Action::RestoreProcess { process, checkpoint } => {
                let (owner, local, _) = self.checkpoints.remove(&checkpoint).expect("kept");
                assert!(owner == process && self.stopped.contains(&process));
                self.locals.insert(process, local);
                self.exited.remove(&process);
            }
            Action::DestroyProcess { process } => {
                assert!(self.stopped.contains(&process) && self.locals.remove(&process).is_some());
                self.exited.remove(&process);
            }
            Action::RollbackComplete => self.stopped.clear(),
            Action::ReleaseOutput { output, .. } => self.released.push(output),
            Action::DropOutput { output, .. } => self.dropped.push(output),
            Action::ProcessResolved { process } => assert!(!self.world.is_speculative(process)),
            Action::ObjectResolved { object } => {
                assert!(self.world.dependencies_of_object(&object).is_empty());
            }
            Action::ReleasePid { process } => assert!(!self.world.is_speculative(process)),
        }
    }

    fn undo(&mut self, object: u8, (number, undo): (u64, Undo)) {
        assert!(self.payloads.remove(&number), "a payload came back twice");
        let values = self.objects.entry(object).or_default();
        match undo {
            Undo::Nothing => {}
            Undo::RemoveLast => drop(values.pop().expect("something was appended")),
            Undo::PutFirst(value) => values.insert(0, value),
        }
    }

    /// The world is exactly where the surviving history alone would have brought it.
    pub fn check(&self) {
        let replayed = naive::replay(&self.history, &self.guesses, self.processes);
        assert_eq!(self.locals, replayed.locals, "what the processes know");
        let contents = |objects: &BTreeMap<u8, Vec<u64>>| -> Vec<(u8, Vec<u64>)> {
            objects.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (*k, v.clone())).collect()
        };
        assert_eq!(contents(&self.objects), contents(&replayed.objects), "what the objects hold");
        for process in self.locals.keys() {
            let taint = replayed.process_taints.get(process).copied().unwrap_or(0);
            let mask = self.mask(self.world.dependencies_of_process(*process).iter());
            assert_eq!(mask, taint & self.open(), "what {process:?} depends on");
        }
        for object in self.objects.keys() {
            let taint = replayed.object_taints.get(object).copied().unwrap_or(0);
            let mask = self.mask(self.world.dependencies_of_object(object).iter());
            assert_eq!(mask, taint & self.open(), "what object {object} depends on");
        }
        self.check_output(&replayed);
        self.check_leftovers();
    }

    fn check_output(&self, replayed: &Replayed) {
        let due = replayed.outputs.iter().filter(|output| output.taint & self.open() == 0);
        let due: BTreeSet<Moment> = due.map(|output| output.moment).collect();
        let released: BTreeSet<Moment> = self.released.iter().copied().collect();
        assert_eq!(released, due, "output is released as soon as it may be, and not before");
        assert_eq!(released.len(), self.released.len(), "output is released once");
        let mut seen = BTreeSet::new();
        for moment in &self.released {
            let output = replayed.outputs.iter().find(|output| output.moment == *moment).unwrap();
            assert!(output.past.is_subset(&seen), "output {moment} overtook what it depends on");
            seen.insert(*moment);
        }
    }

    fn check_leftovers(&self) {
        let open_full = self.guesses.iter().filter(|g| g.open && g.can_fail).count();
        assert_eq!(self.world.open_speculations(), open_full);
        if open_full == 0 {
            assert!(self.payloads.is_empty() && self.checkpoints.is_empty(), "left over");
        }
        if self.open() == 0 {
            for object in self.objects.keys() {
                assert_eq!(self.world.log_length(&Dependent::Object(*object)), 0);
            }
            assert!(self.locals.keys().all(|process| !self.world.is_speculative(*process)));
        }
    }

    pub fn open(&self) -> u64 {
        naive::mask(&self.guesses, |guess| guess.open)
    }

    fn mask(&self, ids: impl Iterator<Item = SpeculationId>) -> u64 {
        ids.map(|id| 1 << self.guesses.iter().position(|guess| guess.id == id).unwrap()).sum()
    }
}
