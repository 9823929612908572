//! Replays steps against epochs (`running-ahead`): a guess is a member of the open epoch of a lane, an epoch is sealed
//! when it is old or when somebody waits for it, and commits some time later.

use crate::step::{Change, Kind, Object, Process, Step, Touch};
use std::collections::{BTreeMap, HashMap};

/// How many dependencies are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// So many lanes; a process guesses in the lowest that it depends on.
    Few(u32),
    /// Exact sets: each process has a lane of its own.
    Exact,
}

/// Who does what when an object is modified for the first time in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agent {
    /// It asks.
    Asks,
    /// It keeps what has to be kept of contents and queues; an older name asks.
    KeepsContents,
    /// It keeps older names, too.
    KeepsAll,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Dependencies.
    pub lanes: Lanes,
    /// First touches.
    pub agent: Agent,
    /// The age at which an epoch is sealed, in seconds.
    pub interval: f64,
    /// From seal to commit, in seconds: the answer of the server.
    pub delay: f64,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Calls in all.
    pub calls: u64,
    /// Calls at which the supervisor is asked.
    pub asks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// First touches that the agent makes itself.
    pub kept_by_agent: u64,
    /// Bytes of file contents that are kept.
    pub bytes: u64,
    /// Barriers met by a process that depends on something.
    pub waits: u64,
    /// Epochs that were committed.
    pub epochs: u64,
    /// Processes that a failure at the moment of each commit would take back, summed over epochs.
    pub processes_back: u64,
    /// Their calls since they depend on that epoch, likewise.
    pub calls_back: u64,
    /// For how long each output that had to wait was held, in seconds.
    pub held: Vec<f64>,
}

/// The epoch of each lane, for lanes that have one.
type Vector = BTreeMap<u32, u64>;

#[derive(Clone, Debug)]
struct Epoch {
    number: u64,
    opened: f64,
    sealed: Option<f64>,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    committed: u64,
    last: u64,
    /// Not committed, oldest first. Only the last may be open.
    pending: Vec<Epoch>,
}

#[derive(Clone, Debug, Default)]
struct Runner {
    vector: Vector,
    calls: u64,
    /// For each epoch that it came to depend on: how many calls it had made.
    since: Vec<(u32, u64, u64)>,
}

/// The state of a replay.
#[derive(Clone, Debug)]
pub struct Simulation {
    setting: Setting,
    lanes: BTreeMap<u32, Lane>,
    processes: HashMap<Process, Runner>,
    objects: HashMap<Object, Vector>,
    /// Lane and epoch of the newest guess.
    newest_guess: Option<(u32, u64)>,
    outcome: Outcome,
}

impl Simulation {
    /// Nothing has happened.
    pub fn new(setting: Setting) -> Self {
        Self {
            setting,
            lanes: BTreeMap::new(),
            processes: HashMap::new(),
            objects: HashMap::new(),
            newest_guess: None,
            outcome: Outcome::default(),
        }
    }

    /// One call. Returns whether it asked.
    pub fn step(&mut self, step: &Step) -> bool {
        self.advance(step.time);
        self.outcome.calls += 1;
        self.runner(step.process).calls += 1;
        let mut asked = false;
        if step.guesses {
            asked |= self.guess(step.process, step.time);
        }
        for touch in &step.touches {
            asked |= self.touch(step.process, *touch);
        }
        match step.kind {
            Kind::Call => (),
            Kind::Birth(child) => {
                let vector = self.effective(step.process);
                let since = vector.iter().map(|(&lane, &epoch)| (lane, epoch, 0)).collect();
                self.processes.insert(child, Runner { vector, calls: 0, since });
            }
            Kind::Reap(child) => {
                let end = self.effective(child);
                asked |= self.gain(step.process, &end);
            }
            Kind::Signal(receiver) => {
                let sender = self.effective(step.process);
                asked |= self.gain(receiver, &sender);
            }
            Kind::Output => {
                if let Some(until) = self.certain_at(step.process, step.time) {
                    // A stop as in `run`, which needs no guess: it is not counted.
                    self.outcome.held.push(until - step.time);
                }
            }
            Kind::Barrier => {
                if self.certain_at(step.process, step.time).is_some() {
                    self.outcome.waits += 1;
                    asked = true;
                }
            }
        }
        self.outcome.asks += u64::from(asked);
        asked
    }

    /// The end of the log: everything commits.
    pub fn finish(mut self) -> Outcome {
        self.advance(f64::INFINITY);
        self.outcome
    }

    /// What a process depends on, without what is committed.
    pub fn dependencies(&self, process: Process) -> Vector {
        self.effective(process)
    }

    /// What an object depends on, without what is committed.
    pub fn dependencies_of(&self, object: Object) -> Vector {
        self.objects.get(&object).map_or_else(Vector::new, |vector| self.open_part(vector))
    }

    /// Whether this epoch was committed.
    pub fn is_committed(&self, lane: u32, epoch: u64) -> bool {
        self.lanes.get(&lane).is_some_and(|lane| epoch <= lane.committed)
    }

    /// Lane and epoch that the newest guess is a member of.
    pub fn newest_guess(&self) -> Option<(u32, u64)> {
        self.newest_guess
    }

    /// Time goes on, without a call.
    pub fn at(&mut self, time: f64) {
        self.advance(time);
    }

    fn runner(&mut self, process: Process) -> &mut Runner {
        self.processes.entry(process).or_default()
    }

    fn effective(&self, process: Process) -> Vector {
        self.processes.get(&process).map_or_else(Vector::new, |runner| self.open_part(&runner.vector))
    }

    fn open_part(&self, vector: &Vector) -> Vector {
        let open = |lane: &u32, epoch: u64| self.lanes.get(lane).is_some_and(|lane| epoch > lane.committed);
        vector.iter().filter(|(lane, &epoch)| open(lane, epoch)).map(|(&lane, &epoch)| (lane, epoch)).collect()
    }

    /// Seals what is old and commits what is due.
    fn advance(&mut self, now: f64) {
        let Setting { interval, delay, .. } = self.setting;
        let mut committed = Vec::new();
        for (&number, lane) in &mut self.lanes {
            for epoch in &mut lane.pending {
                if epoch.sealed.is_none() && now >= epoch.opened + interval {
                    epoch.sealed = Some(epoch.opened + interval);
                }
            }
            let due = |epoch: &Epoch| epoch.sealed.is_some_and(|sealed| sealed + delay <= now);
            while lane.pending.first().is_some_and(due) {
                let epoch = lane.pending.remove(0);
                lane.committed = epoch.number;
                committed.push((number, epoch.number));
            }
        }
        for (lane, epoch) in committed {
            self.outcome.epochs += 1;
            for runner in self.processes.values_mut() {
                let first = runner.since.iter().find(|entry| entry.0 == lane && entry.1 >= epoch).map(|entry| entry.2);
                if let Some(first) = first {
                    self.outcome.processes_back += 1;
                    self.outcome.calls_back += runner.calls - first;
                }
                runner.since.retain(|entry| entry.0 != lane || entry.1 > epoch);
            }
        }
    }

    /// A guess of a process: a member of the open epoch of its lane.
    fn guess(&mut self, process: Process, now: f64) -> bool {
        let number = match self.setting.lanes {
            Lanes::Exact => process,
            Lanes::Few(count) => self.effective(process).keys().next().copied().unwrap_or(process % count),
        };
        let lane = self.lanes.entry(number).or_default();
        if lane.pending.last().is_none_or(|epoch| epoch.sealed.is_some()) {
            lane.last += 1;
            lane.pending.push(Epoch { number: lane.last, opened: now, sealed: None });
        }
        let epoch = lane.last;
        self.newest_guess = Some((number, epoch));
        self.gain(process, &Vector::from([(number, epoch)]))
    }

    /// A process comes to depend on what it did not depend on: a checkpoint, and its threads are stopped for it.
    fn gain(&mut self, process: Process, more: &Vector) -> bool {
        let more = self.open_part(more);
        let runner = self.processes.entry(process).or_default();
        let mut gained = false;
        for (&lane, &epoch) in &more {
            let known = runner.vector.entry(lane).or_insert(0);
            if *known < epoch {
                *known = epoch;
                runner.since.push((lane, epoch, runner.calls));
                gained = true;
            }
        }
        self.outcome.checkpoints += u64::from(gained);
        gained
    }

    fn touch(&mut self, process: Process, touch: Touch) -> bool {
        let (object, change) = match touch {
            Touch::Observe(object) => (object, None),
            Touch::Modify(object, change) => (object, Some(change)),
        };
        let vector = self.dependencies_of(object);
        let mut asked = self.gain(process, &vector);
        let Some(change) = change else { return asked };
        let vector = self.effective(process);
        if self.dependencies_of(object) != vector {
            if let Change::Contents { kept } = change {
                self.outcome.bytes += kept;
            }
            let by_agent = match change {
                Change::NewName => true,
                Change::Contents { .. } | Change::Queue => self.setting.agent >= Agent::KeepsContents,
                Change::OldName => self.setting.agent >= Agent::KeepsAll,
            };
            self.outcome.kept_by_agent += u64::from(by_agent);
            asked |= !by_agent;
            self.objects.insert(object, vector);
        }
        asked
    }

    /// When a process depends on nothing any more, if it does now: whoever waits seals what it depends on.
    fn certain_at(&mut self, process: Process, now: f64) -> Option<f64> {
        let delay = self.setting.delay;
        let vector = self.effective(process);
        let mut latest = None;
        for (number, epoch) in vector {
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            for pending in lane.pending.iter_mut().filter(|pending| pending.number <= epoch) {
                let sealed = *pending.sealed.get_or_insert(now);
                latest = Some(f64::max(latest.unwrap_or(now), sealed + delay));
            }
        }
        latest
    }
}

/// Replays all of them.
pub fn simulate(steps: &[Step], setting: Setting) -> Outcome {
    let mut simulation = Simulation::new(setting);
    for step in steps {
        simulation.step(step);
    }
    simulation.finish()
}
