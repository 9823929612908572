//! What a session leaves at the server between its intervals: staged contents, outcomes, numbers that it was lent.

mod support;

use std::sync::Arc;

use bluefs::op::{Change, Content, Errno, Failure, Value};
use bluefs::query::{Answer, Query};
use bluefs::{Cred, Csn, Ino, Interval, Key, Kind, Name, Outcome, Runs, SessionId, Step, Time};
use bluefs_server::{Access, Action, ConnectionId, Engine, Event, Grant, Now};
use bluefs_store::{CrashDisk, Rows, Store};
use bluefs_wire::{encode, Refusal, Reply, Request, PROTOCOL_VERSION};
use support::Numbered;

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);
const C: ConnectionId = ConnectionId(3);
const ROOT: Ino = Ino(1);

/// Nobody may change anything.
#[derive(Default)]
struct ReadOnly(Numbered);

impl Access for ReadOnly {
    fn check(&self, volume: &[u8], secret: &[u8], wall: Time) -> Option<Grant> {
        self.0.check(volume, secret, wall).map(|grant| Grant { read_only: true, ..grant })
    }

    fn stands(&self, number: u64, wall: Time) -> bool {
        self.0.stands(number, wall)
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

struct Bench {
    disk: CrashDisk,
    engine: Engine,
    access: Box<dyn Access>,
}

impl Bench {
    fn new(access: impl Access + 'static) -> Bench {
        let disk = CrashDisk::new();
        let store = Store::on(Arc::new(disk.clone())).expect("a store").store;
        let engine = Engine::new(store, Now { millis: 0, wall: Time(1) }, || 7).expect("an engine");
        let mut bench = Bench { disk, engine, access: Box::new(access) };
        bench.hello(A, None);
        bench.hello(B, None);
        bench
    }

    fn handle(&mut self, events: Vec<Event>) -> Vec<Action> {
        self.engine.handle(events, Now { millis: 0, wall: Time(1) }, &*self.access).expect("a turn")
    }

    fn hello(&mut self, from: ConnectionId, session: Option<(SessionId, u64)>) -> Vec<Action> {
        let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
        let hello = Request::Hello { version, volume, session, acknowledged: 0, secret };
        self.handle(vec![Event::Opened(from), Event::Message(from, hello)])
    }

    /// What is said to who has sent these, last.
    fn says(&mut self, from: ConnectionId, messages: Vec<Request>) -> Vec<Reply> {
        let actions = self.handle(messages.into_iter().map(|message| Event::Message(from, message)).collect());
        let to_him = |action| match action {
            Action::Send(to, reply) if to == from => Some(reply),
            _ => None,
        };
        actions.into_iter().filter_map(to_him).collect()
    }

    fn outcome(&mut self, from: ConnectionId, messages: Vec<Request>) -> Outcome {
        let outcome = |reply| match reply {
            Reply::Decided { outcome, .. } => Some(outcome),
            _ => None,
        };
        self.says(from, messages).into_iter().filter_map(outcome).next_back().expect("an outcome")
    }

    fn contents(&mut self, file: &str) -> Vec<u8> {
        let ask = |query| vec![Request::Ask { tag: 1, cred: Cred::root(), query }];
        let answer = |replies: Vec<Reply>| {
            replies.into_iter().find_map(|reply| match reply {
                Reply::Answer { answer, .. } => Some(answer),
                _ => None,
            })
        };
        let found = self.says(B, ask(Query::Lookup { dir: ROOT, name: name(file) }));
        let Some(Answer::Inode(ino, _)) = answer(found) else { panic!("{file} is not there") };
        match answer(self.says(B, ask(Query::Read { ino, offset: 0, len: 1000 }))) {
            Some(Answer::Bytes(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Rows of numbers that were lent.
    fn lent(&self) -> usize {
        let store = Store::on(Arc::new(self.disk.crash(self.disk.deeds(), |_| 0))).expect("a store").store;
        store.rows().expect("rows").keys(b"l", b"m", usize::MAX).expect("keys").len()
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn interval(number: u64, base: Csn, reads: Vec<Key>, changes: Vec<Change>) -> Request {
    let steps = changes.into_iter().map(|change| Step { cred: 0, time: None, change }).collect();
    Request::Submit { interval: Interval { number, base, after: Runs::new(), reads, creds: vec![Cred::root()], steps } }
}

fn create(file: &str, ino: Option<Ino>, kind: Kind, target: &[u8]) -> Change {
    Change::Create { dir: ROOT, name: name(file), ino, kind, mode: 0o644, rdev: 0, target: target.to_vec() }
}

/// A new file, with what is staged.
fn put(number: u64, file: &str, ino: Ino) -> Request {
    let write = Change::Write { ino, offset: 0, content: Content::Staged(0) };
    interval(number, Csn(0), vec![], vec![create(file, Some(ino), Kind::File, &[]), write])
}

fn stage(data: &[u8]) -> Request {
    Request::Stage { id: 0, data: data.to_vec() }
}

/// A group of numbers.
fn lent(bench: &mut Bench, from: ConnectionId) -> std::ops::Range<u64> {
    match bench.says(from, vec![Request::Lend { tag: 1 }]).pop() {
        Some(Reply::Lent { group, .. }) => group.inodes(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_staged_for_an_interval_that_failed_is_in_no_later_one() {
    let mut bench = Bench::new(Numbered::default());
    let first = Ino(lent(&mut bench, A).start);
    let taken = interval(1, Csn(0), vec![], vec![create("taken", None, Kind::File, &[])]);
    assert!(bench.outcome(B, vec![taken]).is_committed());
    assert!(!bench.outcome(A, vec![stage(b"old"), put(1, "taken", first)]).is_committed());
    assert!(bench.outcome(A, vec![stage(b"new"), put(2, "file", first)]).is_committed());
    assert_eq!(bench.contents("file"), b"new");
}

#[test]
fn what_is_staged_again_for_an_interval_that_was_decided_is_in_no_later_one() {
    let mut bench = Bench::new(Numbered::default());
    let first = lent(&mut bench, A).start;
    assert!(bench.outcome(A, vec![stage(b"one"), put(1, "one", Ino(first))]).is_committed());
    // The reply was lost with the connection.
    bench.hello(C, Some((SessionId(1), 1)));
    assert!(bench.outcome(C, vec![stage(b"one"), put(1, "one", Ino(first))]).is_committed());
    assert!(bench.outcome(C, vec![stage(b"two"), put(2, "two", Ino(first + 1))]).is_committed());
    assert_eq!((bench.contents("one"), bench.contents("two")), (b"one".to_vec(), b"two".to_vec()));
}

#[test]
fn contents_without_bytes_are_refused() {
    let mut bench = Bench::new(Numbered::default());
    let actions = bench.handle(vec![Event::Message(A, stage(&[]))]);
    let is_refused = |action: &Action| matches!(action, Action::Send(A, Reply::Refused { why: Refusal::Protocol, .. }));
    assert!(actions.iter().any(is_refused), "{actions:?}");
}

#[test]
fn a_conflict_has_each_key_once_and_what_is_kept_of_it_is_small() {
    const TIMES: usize = 1000;
    let mut bench = Bench::new(Numbered::default());
    let target = [b'x'; 4000];
    let mut keys = Vec::new();
    let numbers = lent(&mut bench, B);
    for (at, ino) in numbers.clone().enumerate() {
        let link = create(&format!("link{at}"), Some(Ino(ino)), Kind::Symlink, &target);
        assert!(bench.outcome(B, vec![interval(at as u64 + 1, Csn(0), vec![], vec![link])]).is_committed());
        keys.push(Key::Attr(Ino(ino)));
    }
    let reads: Vec<Key> = keys.iter().cycle().take(TIMES * keys.len()).cloned().collect();
    let wrong = || interval(1, Csn(0), reads.clone(), vec![create("new", None, Kind::File, &[])]);
    let Outcome::Failed(Failure::Conflict(found)) = bench.outcome(A, vec![wrong()]) else { panic!("no conflict") };
    assert_eq!(found.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), keys);
    assert!(found.iter().all(|(_, value)| matches!(value, Value::Inode(Some(_)))));
    let again = bench.outcome(A, vec![wrong()]);
    let bytes = encode(&again).len();
    assert!(matches!(again, Outcome::Failed(Failure::Conflict(_))) && bytes < 4096, "{bytes} bytes");
}

#[test]
fn who_may_only_read_is_lent_nothing() {
    let mut bench = Bench::new(ReadOnly::default());
    let replies = bench.says(A, vec![Request::Lend { tag: 1 }]);
    assert!(matches!(replies[..], [Reply::Error { tag: 1, errno: Errno::ROFS, .. }]), "{replies:?}");
    assert_eq!(bench.lent(), 0);
}

#[test]
fn numbers_that_nobody_uses_are_lent_within_bounds_and_forgotten_with_their_session() {
    const ENOUGH: usize = 10_000;
    let mut bench = Bench::new(Numbered::default());
    let numbers = lent(&mut bench, A);
    assert!(bench.outcome(A, vec![stage(b"1"), put(1, "used", Ino(numbers.start))]).is_committed());
    let is_lent = |bench: &mut Bench| {
        let replies = bench.says(B, vec![Request::Lend { tag: 1 }]);
        replies.iter().any(|reply| matches!(reply, Reply::Lent { .. }))
    };
    let given = (0..ENOUGH).take_while(|_| is_lent(&mut bench)).count();
    assert!((1..2000).contains(&given), "{given}");
    assert!(bench.lent() > given);
    bench.says(B, vec![Request::Goodbye {}]);
    assert_eq!(bench.lent(), 1, "A's are left");
}
