//! Hole 1: P (interval A) writes a pipe, Q (B) reads and answers, P goes on: A needs B and B needs A. Two threads write
//! and read two pipes in every order.

use std::collections::{BTreeMap, BTreeSet};

use bluefs::interval::{Intervals, Member, On, Open};
use bluefs::Csn;
use stateright::{Checker, Model, Property};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Write(u64),
    Read(u64),
    Close(Open),
    Outcome(u64, bool),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    intervals: Intervals,
    /// What each thread has written into its pipe: the interval in which it did.
    pipes: BTreeMap<u64, Open>,
    steps: BTreeMap<u64, u8>,
    in_flight: Option<u64>,
    /// The planted bug: dependencies on open intervals are noted only, and a close waits for them.
    waits_for: BTreeSet<(Open, Open)>,
    dependencies_are_earlier: bool,
}

struct Merging {
    bug: bool,
}

fn other(thread: u64) -> u64 {
    1 - thread
}

impl State {
    fn begin(&mut self, thread: u64) -> Open {
        *self.steps.entry(thread).or_default() += 1;
        self.intervals.begin(Member(thread), Csn(0), 0)
    }

    fn read(&mut self, thread: u64, bug: bool) {
        let own = self.begin(thread);
        let written = self.pipes[&other(thread)];
        match self.intervals.now(written) {
            On::Open(open) if bug => _ = self.waits_for.insert((own, open)),
            // What was written by an interval that has failed was never written: the reader goes on without.
            on => _ = self.intervals.depend(Member(thread), on),
        }
    }

    fn may_close(&self, open: Open) -> bool {
        let waits = |on: &Open| matches!(self.intervals.now(*on), On::Open(on) if on != open);
        !self.waits_for.iter().any(|(who, on)| *who == open && waits(on))
    }

    fn close(&mut self, open: Open) {
        let interval = self.intervals.close(open);
        self.dependencies_are_earlier &= interval.after.parts().iter().all(|(_, last)| *last < interval.number);
        self.in_flight = Some(interval.number);
    }

    fn open(&self) -> BTreeSet<Open> {
        [0, 1].into_iter().filter_map(|thread| self.intervals.of(Member(thread))).collect()
    }
}

impl Model for Merging {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            intervals: Intervals::new(),
            pipes: BTreeMap::new(),
            steps: BTreeMap::new(),
            in_flight: None,
            waits_for: BTreeSet::new(),
            dependencies_are_earlier: true,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for thread in [0, 1] {
            if state.steps.get(&thread).copied().unwrap_or(0) < 3 {
                actions.push(Action::Write(thread));
                if state.pipes.contains_key(&other(thread)) {
                    actions.push(Action::Read(thread));
                }
            }
        }
        match state.in_flight {
            Some(number) => actions.extend([Action::Outcome(number, true), Action::Outcome(number, false)]),
            None => actions.extend(state.open().into_iter().filter(|open| state.may_close(*open)).map(Action::Close)),
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(thread) => {
                let open = state.begin(thread);
                state.pipes.insert(thread, open);
            }
            Action::Read(thread) => state.read(thread, self.bug),
            Action::Close(open) => state.close(open),
            Action::Outcome(number, committed) => {
                state.intervals.outcome(number, committed);
                state.in_flight = None;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("something can be closed", |_, state: &State| {
                let open = state.open();
                open.is_empty() || open.iter().any(|open| state.may_close(*open))
            }),
            Property::always("dependencies lead to earlier intervals", |_, state: &State| {
                state.dependencies_are_earlier
            }),
        ]
    }
}

#[test]
fn open_intervals_never_wait_for_each_other() {
    let checker = Merging { bug: false }.checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 100);
}

#[test]
fn intervals_that_are_not_merged_are_found() {
    let checker = Merging { bug: true }.checker().spawn_bfs().join();
    assert!(checker.discovery("something can be closed").is_some());
}
