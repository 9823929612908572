//! What happened in a world, in its order, for a picture of it: who guessed what, who came to depend on whom and
//! through what, and what was taken back. It is kept only if somebody wants it (`--report=svg:FILE` and its kin), and
//! for the first of many events only.

use procfs::ProcessId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// How a guess ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Not yet known when the world ended.
    Open,
    /// It committed.
    Right,
    /// It failed.
    Wrong,
    /// It was taken back with an older one, before it was known.
    Unmade,
}

/// A process. Times are microseconds since the world began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Its process id.
    pub pid: i32,
    /// Name of its program, the last one that it ran.
    pub name: String,
    /// When it was first heard of.
    pub since_us: u64,
    /// When it ended; `None` if it did not, or was never seen to.
    pub until_us: Option<u64>,
    /// When it depended on a guess, from and to.
    pub ahead_us: Vec<(u64, Option<u64>)>,
}

/// A speculation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guess {
    /// Who made it.
    pub pid: i32,
    /// At which call: a family of `--inject`, or `begin`.
    pub why: String,
    /// When it was made.
    pub since_us: u64,
    /// When it was resolved.
    pub until_us: Option<u64>,
    /// How it was resolved.
    pub outcome: Outcome,
}

/// A checkpoint that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Of whom.
    pub pid: i32,
    /// When.
    pub at_us: u64,
    /// How long it took.
    pub cost_us: u64,
}

/// A rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// When it was done.
    pub at_us: u64,
    /// How long it took.
    pub cost_us: u64,
    /// The wrong guess's call.
    pub why: String,
    /// Who had made it.
    pub cause: i32,
    /// Who was put back or removed.
    pub pids: Vec<i32>,
    /// Operations that were undone.
    pub operations: usize,
}

/// A process came to depend on guesses because of what another one did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// When.
    pub at_us: u64,
    /// From whom the dependency came.
    pub from: i32,
    /// Who took it.
    pub to: i32,
    /// Through what.
    pub via: String,
}

/// Everything that a picture shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Processes that had to do with guesses, in the order in which they were heard of.
    pub lives: Vec<Life>,
    /// Speculations.
    pub guesses: Vec<Guess>,
    /// Checkpoints.
    pub checkpoints: Vec<Taken>,
    /// Rollbacks.
    pub rollbacks: Vec<TakenBack>,
    /// Dependencies between processes.
    pub flows: Vec<Flow>,
    /// Events after the first many, which are not here.
    pub left_out: u64,
}

/// Writes history.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub written: History,
    /// Where in `lives` a process is that has not ended.
    alive: HashMap<i32, usize>,
    /// Who modified an object last while depending on a guess, by its name.
    givers: BTreeMap<String, i32>,
}

impl Recorder {
    /// What is kept, events of all kinds together.
    const EVENTS_MAX: usize = 20_000;

    fn has_room(&mut self) -> bool {
        let events = self.written.lives.len()
            + self.written.guesses.len()
            + self.written.checkpoints.len()
            + self.written.rollbacks.len();
        let has_room = events + self.written.flows.len() < Self::EVENTS_MAX;
        self.written.left_out += u64::from(!has_room);
        has_room
    }

    fn life(&mut self, pid: i32, at_us: u64) -> Option<&mut Life> {
        if !self.alive.contains_key(&pid) && self.has_room() {
            self.alive.insert(pid, self.written.lives.len());
            let (name, ahead_us) = (program_of(ProcessId::from_raw(pid)), Vec::new());
            self.written.lives.push(Life { pid, name, since_us: at_us, until_us: None, ahead_us });
        }
        let index = *self.alive.get(&pid)?;
        self.written.lives.get_mut(index)
    }

    /// A process runs a new program.
    pub fn executed(&mut self, pid: i32) {
        if let Some(life) = self.alive.get(&pid).and_then(|&index| self.written.lives.get_mut(index)) {
            life.name = program_of(ProcessId::from_raw(pid));
        }
    }

    pub fn ended(&mut self, pid: i32, at_us: u64) {
        let life = self.alive.remove(&pid).and_then(|index| self.written.lives.get_mut(index));
        if let Some(life) = life {
            life.until_us = Some(at_us);
            end_span(life, at_us);
        }
    }

    /// A process depends on a guess from now on.
    pub fn went_ahead(&mut self, pid: i32, at_us: u64) {
        if let Some(life) = self.life(pid, at_us) {
            life.ahead_us.push((at_us, None));
        }
    }

    /// It depends on none any more.
    pub fn settled(&mut self, pid: i32, at_us: u64) {
        if let Some(life) = self.alive.get(&pid).and_then(|&index| self.written.lives.get_mut(index)) {
            end_span(life, at_us);
        }
    }

    /// Where in `guesses` it is.
    pub fn guessed(&mut self, pid: i32, why: &str, at_us: u64) -> Option<usize> {
        self.life(pid, at_us)?;
        if !self.has_room() {
            return None;
        }
        let why = why.to_owned();
        self.written.guesses.push(Guess { pid, why, since_us: at_us, until_us: None, outcome: Outcome::Open });
        Some(self.written.guesses.len() - 1)
    }

    pub fn resolved(&mut self, guess: usize, outcome: Outcome, at_us: u64) {
        if let Some(guess) = self.written.guesses.get_mut(guess) {
            (guess.until_us, guess.outcome) = (Some(at_us), outcome);
        }
    }

    pub fn checkpoint(&mut self, pid: i32, cost_us: u64, at_us: u64) {
        if self.life(pid, at_us).is_some() && self.has_room() {
            self.written.checkpoints.push(Taken { pid, at_us, cost_us });
        }
    }

    pub fn rolled_back(&mut self, rollback: TakenBack) {
        if self.has_room() {
            self.written.rollbacks.push(rollback);
        }
    }

    /// A process that depends on a guess modifies an object: whoever looks at it depends on this process.
    pub fn gives(&mut self, pid: i32, object: String) {
        self.givers.insert(object, pid);
    }

    /// A process takes new dependencies from an object.
    pub fn takes(&mut self, to: i32, object: String, at_us: u64) {
        if let Some(&from) = self.givers.get(&object) {
            self.flows_to(from, to, object, at_us);
        }
    }

    /// A process takes new dependencies from another one.
    pub fn flows_to(&mut self, from: i32, to: i32, via: String, at_us: u64) {
        if from != to && self.life(from, at_us).is_some() && self.life(to, at_us).is_some() && self.has_room() {
            self.written.flows.push(Flow { at_us, from, to, via });
        }
    }
}

fn end_span(life: &mut Life, at_us: u64) {
    if let Some((_, until @ None)) = life.ahead_us.last_mut() {
        *until = Some(at_us);
    }
}

/// Name of the program that a process runs.
pub(in crate::ahead) fn program_of(pid: ProcessId) -> String {
    procfs::program_name(pid).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has these ids: their names are empty.
    const A: i32 = i32::MAX - 1;
    const B: i32 = i32::MAX;

    #[test]
    fn a_dependency_comes_from_whoever_modified_the_object_last() {
        let mut history = Recorder::default();
        history.guessed(A, "open", 1);
        history.takes(B, "pipe 7".into(), 2);
        assert_eq!(history.written.flows, [], "nobody has written yet");
        history.gives(A, "pipe 7".into());
        history.takes(A, "pipe 7".into(), 3);
        assert_eq!(history.written.flows, [], "nobody depends on itself");
        history.takes(B, "pipe 7".into(), 4);
        assert_eq!(history.written.flows, [Flow { at_us: 4, from: A, to: B, via: "pipe 7".into() }]);
        assert_eq!(history.written.lives.len(), 2);
    }

    #[test]
    fn a_pid_that_is_used_again_is_another_life() {
        let mut history = Recorder::default();
        history.went_ahead(A, 1);
        history.ended(A, 5);
        history.went_ahead(A, 8);
        history.settled(A, 9);
        let spans: Vec<_> = history.written.lives.iter().map(|life| (life.until_us, life.ahead_us.clone())).collect();
        assert_eq!(spans, [(Some(5), vec![(1, Some(5))]), (None, vec![(8, Some(9))])]);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut history = Recorder::default();
        for at in 0..Recorder::EVENTS_MAX as u64 + 10 {
            history.checkpoint(A, 1, at);
        }
        assert_eq!((history.written.checkpoints.len(), history.written.left_out), (Recorder::EVENTS_MAX - 1, 11));
        assert_eq!(history.guessed(B, "stat", 1), None);
    }
}
