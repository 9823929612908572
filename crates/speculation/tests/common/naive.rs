//! The naive model: no logs, no checkpoints, only a list of operations that is replayed from its beginning.

use super::{mix, Guess, Moment, Op, Spec};
use speculation::Process;
use std::collections::{BTreeMap, BTreeSet};

/// An operation that happened.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub moment: Moment,
    pub process: Process,
    pub op: Op,
    pub made: Option<Spec>,
}

/// An output, what it depends on, and the outputs that happened before it (004, 1.2.1.2).
#[derive(Clone, Debug)]
pub struct Shown {
    pub moment: Moment,
    pub taint: u64,
    pub past: BTreeSet<Moment>,
}

#[derive(Default, Clone, Debug)]
pub struct Replayed {
    pub locals: BTreeMap<Process, u64>,
    pub objects: BTreeMap<u8, Vec<u64>>,
    pub process_taints: BTreeMap<Process, u64>,
    pub object_taints: BTreeMap<u8, u64>,
    /// What the acting process depended on after each operation.
    pub taints: Vec<u64>,
    pub outputs: Vec<Shown>,
    process_pasts: BTreeMap<Process, BTreeSet<Moment>>,
    object_pasts: BTreeMap<u8, BTreeSet<Moment>>,
}

pub fn mask(guesses: &[Guess], which: impl Fn(&Guess) -> bool) -> u64 {
    guesses.iter().enumerate().filter(|(_, guess)| which(guess)).map(|(spec, _)| 1u64 << spec).sum()
}

/// What an operation does, without a word about speculation.
pub fn act(
    process: Process,
    op: Op,
    moment: Moment,
    locals: &mut BTreeMap<Process, u64>,
    objects: &mut BTreeMap<u8, Vec<u64>>,
) {
    let mut local = locals[&process];
    match op {
        Op::Speculate(_) => local = mix(local, 1),
        Op::Lightweight | Op::Attach(_) => local = mix(local, 2),
        Op::Read(object) => {
            let values = objects.entry(object).or_default();
            local = values.iter().fold(mix(local, 3), |local, value| mix(local, *value));
        }
        Op::Write(object) => {
            let values = objects.entry(object).or_default();
            local = mix(local, values.len() as u64);
            values.push(mix(local, 4));
        }
        Op::Consume(object) => {
            local = mix(local, take_first(objects, object).unwrap_or(5));
        }
        Op::Move(from, to) => {
            if let Some(value) = take_first(objects, from) {
                local = mix(local, value);
                objects.entry(to).or_default().push(mix(local, 6));
            }
        }
        Op::Output => local = mix(local, u64::from(moment)),
        Op::Fork(child) => {
            locals.insert(Process(child), mix(local, 7));
        }
        Op::Exit => local = mix(local, 8),
        Op::Wait(child) => local = mix(local, locals[&Process(child)]),
    }
    locals.insert(process, local);
}

fn take_first(objects: &mut BTreeMap<u8, Vec<u64>>, object: u8) -> Option<u64> {
    let values = objects.entry(object).or_default();
    (!values.is_empty()).then(|| values.remove(0))
}

/// Everything from the beginning.
pub fn replay(history: &[Record], guesses: &[Guess], processes: u32) -> Replayed {
    let locals = (1..=processes).map(|p| (Process(p), u64::from(p))).collect();
    let mut replayed = Replayed { locals, ..Replayed::default() };
    for record in history {
        replayed.step(record, guesses);
    }
    replayed
}

impl Replayed {
    fn step(&mut self, record: &Record, guesses: &[Guess]) {
        let process = record.process;
        let mut taint = self.process_taints.get(&process).copied().unwrap_or(0);
        let mut past = self.process_pasts.get(&process).cloned().unwrap_or_default();
        // A guess begins to matter at its checkpoint: from there everything is done again if it is wrong.
        taint |= mask(guesses, |guess| guess.since == record.moment && guess.id.process == process);
        let (observed, modified): (Vec<u8>, Vec<u8>) = match record.op {
            Op::Read(object) => (vec![object], vec![]),
            Op::Write(object) | Op::Consume(object) => (vec![object], vec![object]),
            Op::Move(from, to) => (vec![from, to], vec![from, to]),
            _ => (vec![], vec![]),
        };
        for object in observed {
            taint |= self.object_taints.get(&object).copied().unwrap_or(0);
            past.extend(self.object_pasts.entry(object).or_default().iter());
        }
        match record.op {
            Op::Attach(spec) => taint |= 1 << spec,
            Op::Wait(child) => {
                taint |= self.process_taints.get(&Process(child)).copied().unwrap_or(0);
                past.extend(self.process_pasts.entry(Process(child)).or_default().iter());
            }
            Op::Fork(child) => {
                self.process_taints.insert(Process(child), taint);
                self.process_pasts.insert(Process(child), past.clone());
            }
            Op::Output => {
                let shown = Shown { moment: record.moment, taint, past: past.clone() };
                self.outputs.push(shown);
                past.insert(record.moment);
            }
            _ => {}
        }
        for object in modified {
            *self.object_taints.entry(object).or_insert(0) |= taint;
            self.object_pasts.entry(object).or_default().extend(past.iter());
        }
        self.taints.push(taint);
        self.process_taints.insert(process, taint);
        self.process_pasts.insert(process, past);
        act(process, record.op, record.moment, &mut self.locals, &mut self.objects);
    }
}

/// What fails with `spec`, and the history without all that depends on it.
pub fn without(spec: Spec, history: &[Record], guesses: &[Guess], processes: u32) -> (BTreeSet<Spec>, Vec<Record>) {
    let taints = replay(history, guesses, processes).taints;
    let mut failed = BTreeSet::from([spec]);
    loop {
        let wrong: u64 = failed.iter().map(|spec| 1u64 << spec).sum();
        let (gone, left): (Vec<_>, Vec<_>) = history.iter().zip(&taints).partition(|(_, taint)| *taint & wrong != 0);
        let unmade = gone.iter().filter_map(|(record, _)| record.made);
        let unmade = unmade.filter(|&spec| guesses[spec].open && guesses[spec].can_fail);
        let before = failed.len();
        failed.extend(unmade.collect::<Vec<_>>());
        if failed.len() == before {
            return (failed, left.into_iter().map(|(record, _)| *record).collect());
        }
    }
}
