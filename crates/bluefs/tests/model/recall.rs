//! Hole 20: a recall makes the client's kernel invalidate, which waits for a lock that an operation holds, whose answer
//! waits for the recall. The lease's term would end it after ten seconds; here it never ends, so that every wait in a
//! circle is seen.

use std::collections::{BTreeSet, VecDeque};

use bluefs::lease::{Leases, MayWrite};
use bluefs::{Group, SessionId};
use stateright::{Checker, Model, Property};

const HOLDER: SessionId = SessionId(1);
const WRITER: SessionId = SessionId(2);
const GROUP: Group = Group(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// The thread that receives carries the recall out itself, and waits for the kernel's lock.
    ReceiverBlocks,
    /// While a writer waits for a recall, the server answers nobody else who has a lease on that group.
    ServerHoldsBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Request {
    Lookup,
    Write,
    GiveBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    Found,
    Recall,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    leases: Leases,
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
    /// An operation of the holder is in its kernel and has the directory's lock.
    operating: bool,
    operated: bool,
    /// A recall that a notifier thread is about to carry out.
    to_invalidate: bool,
    writer_waits: bool,
    written: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Operate,
    Write,
    Serve,
    Receive,
    Invalidate,
}

struct Recall(Bug);

impl State {
    fn try_write(&mut self) {
        match self.leases.may_write(WRITER, &BTreeSet::from([GROUP]), 0) {
            MayWrite::Now => (self.writer_waits, self.written) = (false, true),
            MayWrite::Wait { recall, .. } => {
                self.writer_waits = true;
                self.replies.extend(recall.iter().map(|_| Reply::Recall));
            }
        }
    }

    fn serve(&mut self) {
        match self.requests.pop_front().expect("a request") {
            Request::Lookup => self.replies.push_back(Reply::Found),
            Request::Write => self.try_write(),
            Request::GiveBack => {
                self.leases.give_back(HOLDER, GROUP);
                if self.writer_waits {
                    self.try_write();
                }
            }
        }
    }

    fn receive(&mut self) {
        match self.replies.pop_front().expect("a reply") {
            Reply::Found => (self.operating, self.operated) = (false, true),
            Reply::Recall => self.to_invalidate = true,
        }
    }
}

impl Model for Recall {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut leases = Leases::new(1000);
        leases.grant(HOLDER, GROUP, 0).expect("nobody writes");
        let (requests, replies) = (VecDeque::new(), VecDeque::new());
        let (operating, operated, to_invalidate, writer_waits, written) = (false, false, false, false, false);
        vec![State { leases, requests, replies, operating, operated, to_invalidate, writer_waits, written }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.operating && !state.operated {
            actions.push(Action::Operate);
        }
        if !state.writer_waits && !state.written && !state.requests.contains(&Request::Write) {
            actions.push(Action::Write);
        }
        let held_back = self.0 == Bug::ServerHoldsBack && state.writer_waits;
        match state.requests.front() {
            Some(Request::Lookup) if held_back => {}
            Some(_) => actions.push(Action::Serve),
            None => {}
        }
        let blocked = self.0 == Bug::ReceiverBlocks && state.to_invalidate;
        if !state.replies.is_empty() && !blocked {
            actions.push(Action::Receive);
        }
        if state.to_invalidate && !state.operating {
            actions.push(Action::Invalidate);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Operate => {
                state.operating = true;
                state.requests.push_back(Request::Lookup);
            }
            Action::Write => state.requests.push_back(Request::Write),
            Action::Serve => state.serve(),
            Action::Receive => state.receive(),
            Action::Invalidate => {
                state.to_invalidate = false;
                state.requests.push_back(Request::GiveBack);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::eventually("both get an answer", |_, state: &State| state.operated && state.written)]
    }
}

#[test]
fn a_recall_and_an_operation_never_wait_for_each_other() {
    Recall(Bug::None).checker().spawn_bfs().join().assert_properties();
}

#[test]
fn a_receiver_that_blocks_is_found() {
    let checker = Recall(Bug::ReceiverBlocks).checker().spawn_bfs().join();
    assert!(checker.discovery("both get an answer").is_some());
}

#[test]
fn a_server_that_holds_back_is_found() {
    let checker = Recall(Bug::ServerHoldsBack).checker().spawn_bfs().join();
    assert!(checker.discovery("both get an answer").is_some());
}
