//! Writers and exclusive leases take turns: two sessions ask for one again and again, and may give it back; a third one
//! writes. While it waits, at most one more exclusive lease begins, and everybody gets an answer.

use std::collections::BTreeSet;

use bluefs::lease::{Given, Leases, MayWrite, Millis, Ticket, EXCLUSIVE_TERM_MS};
use bluefs::{Group, SessionId};
use stateright::{Checker, Model, Property};

const ASKING: [SessionId; 2] = [SessionId(1), SessionId(2)];
const WRITER: SessionId = SessionId(3);
const GROUP: Group = Group(0);
const ASKED_MAX: u8 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// A writer that tries again is a new one.
    PlaceForgotten,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    leases: Leases,
    now: Millis,
    asked: u8,
    waiting: BTreeSet<Ticket>,
    writer_waits: bool,
    written: bool,
    /// Exclusive leases that have begun while the writer waited.
    begun: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Ask(SessionId),
    GiveBack(SessionId),
    Write,
    TermIsOver,
}

struct Turns(Bug);

impl State {
    /// A turn of the server: whoever waits to write tries again, then exclusive leases are given.
    fn turn(&mut self, bug: Bug) {
        if self.writer_waits {
            if bug == Bug::PlaceForgotten {
                self.leases.forget_writer(WRITER);
            } else {
                self.write();
            }
        }
        for (ticket, given) in self.leases.give_exclusive(self.now) {
            self.waiting.remove(&ticket);
            self.begun += u8::from(self.writer_waits && given != Given::Never);
        }
        if self.writer_waits {
            self.write();
        }
    }

    fn write(&mut self) {
        let may = self.leases.may_write(WRITER, &BTreeSet::from([GROUP]), self.now);
        self.writer_waits = may != MayWrite::Now;
        self.written |= may == MayWrite::Now;
    }
}

impl Model for Turns {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (leases, waiting) = (Leases::new(1000), BTreeSet::new());
        vec![State { leases, now: 0, asked: 0, waiting, writer_waits: false, written: false, begun: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for session in ASKING {
            if state.asked < ASKED_MAX {
                actions.push(Action::Ask(session));
            }
            actions.push(Action::GiveBack(session));
        }
        if !state.writer_waits && !state.written {
            actions.push(Action::Write);
        }
        if state.writer_waits || !state.waiting.is_empty() {
            actions.push(Action::TermIsOver);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask(session) => {
                state.asked += 1;
                state.waiting.extend(state.leases.queue(session, BTreeSet::from([GROUP])));
            }
            Action::GiveBack(session) => state.leases.give_back(session, GROUP),
            Action::Write => state.write(),
            Action::TermIsOver => state.now += EXCLUSIVE_TERM_MS,
        }
        state.turn(self.0);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a writer waits for one more at most", |_, state: &State| state.begun <= 1),
            Property::eventually("everybody has an answer", |_, state: &State| {
                state.written && state.waiting.is_empty() && state.asked == ASKED_MAX
            }),
        ]
    }
}

#[test]
fn writers_and_exclusive_leases_take_turns() {
    Turns(Bug::None).checker().spawn_bfs().join().assert_properties();
}

#[test]
fn a_writer_that_loses_its_place_is_found() {
    let checker = Turns(Bug::PlaceForgotten).checker().spawn_bfs().join();
    assert!(checker.discovery("a writer waits for one more at most").is_some());
}
