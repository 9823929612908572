//! Two clients increment one number in intervals, one of them reads it under a lease; the connection is cut, the server
//! is started again, time passes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bluefs::lease::{ClientLeases, Leases, MayWrite, Millis};
use bluefs::op::{Failure, SetAttr};
use bluefs::session::{Arrived, InFlight, Session};
use bluefs::version::{Checked, Versions};
use bluefs::{Change, Cred, Csn, Group, Ino, Interval, Key, Outcome, Runs, SessionId, Step};
use stateright::{Checker, HasDiscoveries, Model, Property};

const KEY: Key = Key::Data(Ino(1));
const GROUP: Group = Group(0);
const TERM: Millis = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// The server forgets which intervals it has decided: one whose outcome was lost is applied again.
    LostReply,
    /// The client counts a lease from the moment at which the grant arrives.
    LeaseFromReply,
    /// The server grants and writes at once after a restart.
    NoWaitAfterRestart,
    /// The server does not check what was read.
    NoCheck,
    /// The server writes without waiting for holders of leases.
    NoRecall,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Request {
    Read,
    Lease,
    GiveBack,
    Submit(Interval),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Reply {
    Value(Csn, u32),
    Granted(Csn, u32),
    NotGranted,
    Recall,
    Outcome(u64, Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    cache: Option<(Csn, u32)>,
    leases: ClientLeases,
    asked: Millis,
    waits: bool,
    flight: InFlight,
    increments: u8,
    lease_requests: u8,
    told_committed: u32,
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Server {
    csn: Csn,
    value: u32,
    applied: u32,
    durable: BTreeMap<SessionId, BTreeMap<u64, Outcome>>,
    versions: Versions,
    sessions: BTreeMap<SessionId, Session>,
    leases: Leases,
    parked: BTreeMap<SessionId, Interval>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    now: Millis,
    clients: Vec<Client>,
    server: Server,
    cuts: u8,
    crashes: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Read(usize),
    Increment(usize),
    AskLease(usize),
    Serve(usize),
    Receive(usize),
    Cut(usize),
    Crash,
    Tick,
}

struct Protocol {
    bug: Bug,
    increments: [u8; 2],
    leases: [u8; 2],
    cuts: u8,
    crashes: u8,
    now_max: Millis,
}

fn session(client: usize) -> SessionId {
    SessionId(client as u64 + 1)
}

fn increment(base: Csn, value: u32) -> Interval {
    let set = SetAttr { uid: Some(value + 1), ..SetAttr::default() };
    let step = Step { cred: 0, time: None, change: Change::SetAttr { ino: Ino(1), set } };
    Interval { number: 0, base, after: Runs::new(), reads: vec![KEY], creds: vec![Cred::root()], steps: vec![step] }
}

fn written(interval: &Interval) -> u32 {
    match &interval.steps[0].change {
        Change::SetAttr { set, .. } => set.uid.expect("a value"),
        other => panic!("{other:?}"),
    }
}

impl Server {
    fn new() -> Server {
        let sessions = [0, 1].map(|client| (session(client), Session::new())).into();
        let (durable, parked) = (BTreeMap::new(), BTreeMap::new());
        let (versions, leases) = (Versions::new(Csn(0), 100), Leases::new(TERM));
        Server { csn: Csn(0), value: 0, applied: 0, durable, versions, sessions, leases, parked }
    }

    fn restart(&mut self, now: Millis, bug: Bug) {
        self.versions = Versions::new(self.csn, 100);
        let wait = bug != Bug::NoWaitAfterRestart;
        self.leases = if wait { Leases::restarted(TERM, now) } else { Leases::new(TERM) };
        self.parked.clear();
        for (id, kept) in &mut self.sessions {
            *kept = Session::recovered(0, self.durable.get(id).cloned().unwrap_or_default());
        }
    }

    /// Decides an interval, or parks it and says whom to recall.
    fn submit(
        &mut self,
        from: SessionId,
        interval: Interval,
        now: Millis,
        bug: Bug,
    ) -> (Option<Reply>, Vec<SessionId>) {
        let number = interval.number;
        if let (Arrived::Again(outcome), true) = (self.sessions[&from].arrived(&interval), bug != Bug::LostReply) {
            return (Some(Reply::Outcome(number, outcome)), vec![]);
        }
        let outcome = match self.versions.check(from, interval.base, &interval.reads) {
            Checked::Conflict(_) | Checked::TooOld if bug != Bug::NoCheck => Outcome::Failed(Failure::TooOld),
            _ => match self.leases.may_write(from, &BTreeSet::from([GROUP]), now) {
                MayWrite::Wait { recall, .. } if bug != Bug::NoRecall => {
                    self.parked.insert(from, interval);
                    return (None, recall.into_iter().map(|(holder, _)| holder).collect());
                }
                _ => self.commit(from, &interval),
            },
        };
        if number > self.sessions[&from].last() {
            self.sessions.get_mut(&from).expect("known").decided(number, outcome.clone());
        }
        (Some(Reply::Outcome(number, outcome)), vec![])
    }

    fn commit(&mut self, from: SessionId, interval: &Interval) -> Outcome {
        self.csn = Csn(self.csn.0 + 1);
        self.value = written(interval);
        self.applied += 1;
        self.versions.commit(from, self.csn, [KEY]);
        let outcome = Outcome::Committed { csn: self.csn, effects: vec![] };
        self.durable.entry(from).or_default().insert(interval.number, outcome.clone());
        outcome
    }
}

impl State {
    fn serve(&mut self, client: usize, bug: Bug) {
        let request = self.clients[client].requests.pop_front().expect("a request");
        let (from, server) = (session(client), &mut self.server);
        let reply = match request {
            Request::Read => Some(Reply::Value(server.csn, server.value)),
            Request::Lease => Some(match server.leases.grant(from, GROUP, self.now) {
                Some(_) => Reply::Granted(server.csn, server.value),
                None => Reply::NotGranted,
            }),
            Request::GiveBack => {
                server.leases.give_back(from, GROUP);
                None
            }
            Request::Submit(interval) => {
                self.submit(from, interval, bug);
                None
            }
        };
        self.clients[client].replies.extend(reply);
        self.try_parked(bug);
    }

    fn submit(&mut self, from: SessionId, interval: Interval, bug: Bug) {
        let (reply, recall) = self.server.submit(from, interval, self.now, bug);
        self.clients[from.0 as usize - 1].replies.extend(reply);
        for holder in recall {
            self.clients[holder.0 as usize - 1].replies.push_back(Reply::Recall);
        }
    }

    fn try_parked(&mut self, bug: Bug) {
        for (from, interval) in std::mem::take(&mut self.server.parked) {
            self.submit(from, interval, bug);
        }
    }

    fn receive(&mut self, client: usize, bug: Bug) {
        let (now, client) = (self.now, &mut self.clients[client]);
        match client.replies.pop_front().expect("a reply") {
            Reply::Value(csn, value) => client.learn(csn, value),
            Reply::Granted(csn, value) => {
                let asked = if bug == Bug::LeaseFromReply { now } else { client.asked };
                client.leases.granted(GROUP, asked, TERM);
                client.learn(csn, value);
            }
            Reply::NotGranted => client.waits = false,
            Reply::Recall => {
                client.leases.recalled(GROUP);
                client.cache = None;
                client.requests.push_back(Request::GiveBack);
            }
            Reply::Outcome(number, outcome) => client.outcome(number, outcome),
        }
    }

    fn cut(&mut self, client: usize) {
        self.server.parked.remove(&session(client));
        self.clients[client].reconnect();
    }
}

impl Client {
    fn learn(&mut self, csn: Csn, value: u32) {
        self.waits = false;
        self.cache = Some((csn, value));
    }

    fn outcome(&mut self, number: u64, outcome: Outcome) {
        let sent = self.flight.again().find(|interval| interval.number == number).map(written);
        if !self.flight.outcome(number) {
            return;
        }
        self.waits = false;
        self.cache = match outcome {
            Outcome::Committed { csn, .. } => {
                self.told_committed += 1;
                self.increments -= 1;
                sent.map(|value| (csn, value))
            }
            Outcome::Failed(_) => None,
        };
    }

    fn reconnect(&mut self) {
        self.replies.clear();
        self.requests = self.flight.again().cloned().map(Request::Submit).collect();
        self.waits = !self.requests.is_empty();
    }

    fn holds(&self, now: Millis) -> bool {
        self.leases.holds(GROUP, now) && self.cache.is_some() && self.flight.again().next().is_none()
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = |i: usize| Client {
            cache: None,
            leases: ClientLeases::default(),
            asked: 0,
            waits: false,
            flight: InFlight::new(),
            increments: self.increments[i],
            lease_requests: self.leases[i],
            told_committed: 0,
            requests: VecDeque::new(),
            replies: VecDeque::new(),
        };
        let clients = vec![client(0), client(1)];
        vec![State { now: 0, clients, server: Server::new(), cuts: self.cuts, crashes: self.crashes }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (i, client) in state.clients.iter().enumerate() {
            if !client.waits && client.increments > 0 {
                actions.push(if client.cache.is_some() { Action::Increment(i) } else { Action::Read(i) });
            }
            if !client.waits && client.lease_requests > 0 {
                actions.push(Action::AskLease(i));
            }
            if !client.requests.is_empty() {
                actions.push(Action::Serve(i));
            }
            if !client.replies.is_empty() {
                actions.push(Action::Receive(i));
            }
            if state.cuts > 0 && client.waits {
                actions.push(Action::Cut(i));
            }
        }
        if state.crashes > 0 {
            actions.push(Action::Crash);
        }
        if state.now < self.now_max {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Read(i) => {
                state.clients[i].waits = true;
                state.clients[i].requests.push_back(Request::Read);
            }
            Action::Increment(i) => {
                let client = &mut state.clients[i];
                let (base, value) = client.cache.expect("a value");
                let interval = client.flight.send(increment(base, value)).clone();
                client.waits = true;
                client.requests.push_back(Request::Submit(interval));
            }
            Action::AskLease(i) => {
                let client = &mut state.clients[i];
                client.lease_requests -= 1;
                (client.waits, client.asked) = (true, last.now);
                client.requests.push_back(Request::Lease);
            }
            Action::Serve(i) => state.serve(i, self.bug),
            Action::Receive(i) => state.receive(i, self.bug),
            Action::Cut(i) => {
                state.cuts -= 1;
                state.cut(i);
            }
            Action::Crash => {
                state.crashes -= 1;
                state.server.restart(state.now, self.bug);
                state.clients.iter_mut().for_each(Client::reconnect);
            }
            Action::Tick => {
                state.now += 1;
                state.try_parked(self.bug);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("every increment counts once", |_, state: &State| {
                let told: u32 = state.clients.iter().map(|client| client.told_committed).sum();
                let known: usize = state.server.durable.values().map(BTreeMap::len).sum();
                state.server.value == state.server.applied
                    && known as u32 == state.server.applied
                    && told <= state.server.applied
            }),
            Property::always("what a lease answers is the truth", |_, state: &State| {
                let truth = state.server.value;
                let right = |client: &Client| client.cache.is_some_and(|(_, value)| value == truth);
                state.clients.iter().all(|client| !client.holds(state.now) || right(client))
            }),
            Property::sometimes("both are done", |_, state: &State| {
                state.clients.iter().all(|client| client.increments == 0)
            }),
            Property::sometimes("a lease is held", |_, state: &State| {
                state.clients.iter().any(|client| client.holds(state.now))
            }),
        ]
    }
}

/// Without leases: two increments each, a cut and a restart.
fn counting(bug: Bug) -> Protocol {
    Protocol { bug, increments: [2, 1], leases: [1, 0], cuts: 1, crashes: 1, now_max: 0 }
}

/// With leases: one reads, the other writes, time passes, the server is started again.
fn leasing(bug: Bug) -> Protocol {
    Protocol { bug, increments: [0, 1], leases: [2, 0], cuts: 1, crashes: 1, now_max: 6 }
}

#[track_caller]
fn finds(model: Protocol, property: &'static str) {
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "the planted bug is not found");
}

fn violates_nothing(model: Protocol) {
    let checker = model.checker().spawn_bfs().join();
    for property in ["every increment counts once", "what a lease answers is the truth"] {
        checker.assert_no_discovery(property);
    }
    assert!(checker.unique_state_count() > 100, "only {} states", checker.unique_state_count());
}

#[test]
fn intervals_take_effect_once() {
    for (increments, cuts, crashes) in [([1, 1], 1, 0), ([1, 1], 0, 1), ([2, 0], 1, 1)] {
        violates_nothing(Protocol { increments, leases: [0, 0], cuts, crashes, now_max: 2, ..counting(Bug::None) });
    }
}

#[test]
fn leases_are_kept() {
    for (leases, cuts, crashes) in [(2, 0, 0), (1, 1, 0), (1, 0, 1)] {
        let now_max = 5;
        let model = Protocol { leases: [leases, 0], cuts, crashes, now_max, ..leasing(Bug::None) };
        let checker = model.checker().spawn_bfs().join();
        checker.assert_properties();
        assert!(checker.unique_state_count() > 1000);
    }
}

#[test]
fn a_lost_reply_is_found() {
    finds(counting(Bug::LostReply), "every increment counts once");
}

#[test]
fn a_missing_check_is_found() {
    finds(counting(Bug::NoCheck), "every increment counts once");
}

#[test]
fn a_lease_that_is_counted_from_the_reply_is_found() {
    finds(leasing(Bug::LeaseFromReply), "what a lease answers is the truth");
}

#[test]
fn a_server_that_does_not_wait_after_a_restart_is_found() {
    finds(leasing(Bug::NoWaitAfterRestart), "what a lease answers is the truth");
}

#[test]
fn a_writer_that_does_not_wait_is_found() {
    finds(leasing(Bug::NoRecall), "what a lease answers is the truth");
}
