//! Every history of a few operations of three processes, two objects and two speculations, checked against the naive
//! model after every step. Processes and objects that were not used yet are alike, so only the first of them is tried.

mod common;

use common::{Op, Os};
use speculation::{Access, Options, Process};

const PROCESSES: u32 = 3;
const OBJECTS: u8 = 2;
const SPECULATIONS: usize = 2;

struct Search {
    ops: &'static [fn(u8) -> Op],
    /// Operations without an object.
    bare: &'static [Op],
    histories: u64,
}

impl Search {
    /// `depth` more steps; processes up to `processes` and objects below `objects` were used.
    fn explore(&mut self, os: &Os, depth: u32, processes: u32, objects: u8) {
        self.histories += 1;
        if depth == 0 {
            return;
        }
        for spec in 0..os.guesses.len() {
            self.step(os, depth, processes, objects, |os| os.commit(spec));
            self.step(os, depth, processes, objects, |os| os.fail(spec));
        }
        for process in 1..=PROCESSES.min(processes + 1) {
            for &op in self.bare {
                let used = if let Op::Fork(child) = op { child } else { processes.max(process) };
                if op != Op::Speculate(Access::ReadOnly) || os.guesses.len() < SPECULATIONS {
                    self.step(os, depth, used, objects, |os| os.perform(Process(process), op));
                }
            }
            for object in 0..OBJECTS.min(objects + 1) {
                for op in self.ops {
                    let op = op(object);
                    let (used, objects) = (processes.max(process), objects.max(object + 1));
                    self.step(os, depth, used, objects, |os| os.perform(Process(process), op));
                }
            }
        }
    }

    fn step(&mut self, os: &Os, depth: u32, processes: u32, objects: u8, event: impl Fn(&mut Os) -> bool) {
        let mut after = os.clone();
        if event(&mut after) {
            after.check();
            self.explore(&after, depth - 1, processes, objects);
        }
    }
}

/// Explore everything after `1 speculates`: without a speculation there is nothing to find.
fn all_histories(ops: &'static [fn(u8) -> Op], bare: &'static [Op], depth: u32, share_checkpoints: bool) -> u64 {
    let forks = bare.iter().any(|op| matches!(op, Op::Fork(_)));
    let mut search = Search { ops, bare, histories: 0 };
    let options = Options { share_checkpoints, ..Options::default() };
    let mut os = Os::new(if forks { 1 } else { PROCESSES }, options);
    os.perform(Process(1), Op::Speculate(Access::ReadOnly));
    search.explore(&os, depth, 1, 0);
    search.histories
}

const SPECULATE: Op = Op::Speculate(Access::ReadOnly);

#[test]
fn every_history_of_reads_writes_and_output() {
    let ops: &[fn(u8) -> Op] = &[Op::Write, Op::Read];
    for share in [true, false] {
        let histories = all_histories(ops, &[SPECULATE, Op::Output], DEPTH, share);
        assert!(histories > 100_000, "only {histories} histories");
    }
}

#[test]
fn every_history_of_a_stream() {
    let ops: &[fn(u8) -> Op] = &[Op::Write, Op::Consume];
    assert!(all_histories(ops, &[SPECULATE], DEPTH, true) > 50_000);
}

#[test]
fn every_history_of_forks_and_exits() {
    let ops: &[fn(u8) -> Op] = &[Op::Write];
    let bare = &[SPECULATE, Op::Fork(2), Op::Fork(3), Op::Exit, Op::Wait(2), Op::Output];
    assert!(all_histories(ops, bare, DEPTH, true) > 10_000);
}

#[test]
fn every_history_with_commit_dependencies() {
    let ops: &[fn(u8) -> Op] = &[Op::Write];
    let bare = &[SPECULATE, Op::Lightweight, Op::Attach(1), Op::Output];
    assert!(all_histories(ops, bare, DEPTH, true) > 10_000);
}

/// Steps after the first speculation.
const DEPTH: u32 = 5;
