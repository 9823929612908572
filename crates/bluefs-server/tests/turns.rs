//! The engine, turn by turn: what becomes of leases, writers and parked messages when a connection breaks or is
//! refused, and when others are told of a change.

mod support;

use std::sync::Arc;

use bluefs::lease::{EXCLUSIVE_TERM_MS, TERM_MS};
use bluefs::op::{Change, Content, Failure, RenameMode, ALLOCATE_BYTES_MAX};
use bluefs::query::{Answer, Query};
use bluefs::{Cred, Csn, Errno, Ino, Interval, Key, Kind, Name, Outcome, Runs, SessionId, Step, Time};
use bluefs_server::{Action, ConnectionId, Engine, Event, Now};
use bluefs_store::{CrashDisk, Store};
use bluefs_wire::{Reply, Request, PROTOCOL_VERSION};
use support::Numbered;

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);
const C: ConnectionId = ConnectionId(3);
const ROOT: Ino = Ino(1);

struct Bench {
    disk: CrashDisk,
    engine: Engine,
    access: Numbered,
    millis: u64,
}

impl Bench {
    fn new() -> Bench {
        let disk = CrashDisk::new();
        let engine = engine(&disk);
        Bench { disk, engine, access: Numbered::default(), millis: 0 }
    }

    /// The server is killed and started again. Its clock begins anew.
    fn restart(&mut self) {
        self.disk = self.disk.crash(self.disk.deeds(), |_| 0);
        (self.engine, self.millis) = (engine(&self.disk), 0);
    }

    fn with(connections: &[ConnectionId]) -> Bench {
        let mut bench = Bench::new();
        connections.iter().for_each(|from| _ = bench.hello(*from, None));
        bench
    }

    fn handle(&mut self, events: Vec<Event>) -> Vec<Action> {
        let now = Now { millis: self.millis, wall: Time(1) };
        self.engine.handle(events, now, &self.access).expect("a turn")
    }

    fn says(&mut self, from: ConnectionId, message: Request) -> Vec<Action> {
        self.handle(vec![Event::Message(from, message)])
    }

    fn hello(&mut self, from: ConnectionId, session: Option<(SessionId, u64)>) -> Vec<Action> {
        let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
        let hello = Request::Hello { version, volume, session, acknowledged: 0, secret };
        self.handle(vec![Event::Opened(from), Event::Message(from, hello)])
    }

    /// The server is started again, and all come back.
    fn reconnected(&mut self) {
        self.restart();
        for (from, number) in [(A, 1), (B, 2), (C, 3)] {
            self.hello(from, Some((SessionId(number), 1)));
        }
    }

    fn nameless(&self) -> usize {
        self.engine.volumes().expect("figures")[0].nameless
    }

    fn lease(&mut self, from: ConnectionId) -> bool {
        let actions = self.says(from, Request::Lease { tag: 1, group: root().group() });
        actions.contains(&Action::Send(from, Reply::Leased { tag: 1, granted: true }))
    }
}

fn engine(disk: &CrashDisk) -> Engine {
    let store = Store::on(Arc::new(disk.clone())).expect("a store").store;
    let mut engine = Engine::new(store, Now { millis: 0, wall: Time(1) }, || 7).expect("an engine");
    engine.set_quiet(0);
    engine
}

fn root() -> Key {
    Key::Name(ROOT, name("any"))
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn interval(number: u64, changes: Vec<Change>) -> Request {
    let steps = changes.into_iter().map(|change| Step { cred: 0, time: None, change }).collect();
    let (after, reads, creds) = (Runs::new(), vec![], vec![Cred::root()]);
    Request::Submit { interval: Interval { number, base: Csn(0), after, reads, creds, steps } }
}

fn create(file: &str) -> Change {
    Change::Create { dir: ROOT, name: name(file), ino: None, kind: Kind::File, mode: 0o644, rdev: 0, target: vec![] }
}

fn committed(actions: &[Action], to: ConnectionId) -> bool {
    actions.iter().any(|action| {
        let Action::Send(at, Reply::Decided { outcome, .. }) = action else { return false };
        *at == to && matches!(outcome, Outcome::Committed { .. })
    })
}

fn wants(tag: u64) -> Request {
    Request::Exclusive { tag, keys: vec![root()] }
}

/// A has a shared lease and waits for the exclusive one, which B has.
fn one_waits() -> Bench {
    let mut bench = Bench::with(&[A, B]);
    assert!(bench.lease(A));
    let given = bench.says(B, wants(2));
    assert!(given.contains(&Action::Send(B, Reply::Leased { tag: 2, granted: true })));
    assert_eq!(bench.says(A, wants(3)), []);
    bench
}

#[test]
fn who_is_cut_off_while_it_waits_keeps_its_shared_lease() {
    let mut bench = one_waits();
    bench.handle(vec![Event::Closed(A)]);
    assert!(!committed(&bench.says(B, interval(1, vec![create("f")])), B), "A still reads from its cache");
    bench.millis = TERM_MS;
    assert!(committed(&bench.handle(vec![]), B), "A's term is over");
}

#[test]
fn who_connects_anew_while_it_waits_keeps_its_shared_lease() {
    let mut bench = one_waits();
    bench.hello(C, Some((SessionId(1), 1)));
    let actions = bench.says(B, interval(1, vec![create("f")]));
    assert!(!committed(&actions, B));
    assert!(actions.contains(&Action::Send(C, Reply::Recall { group: root().group() })));
}

#[test]
fn who_has_waited_in_vain_keeps_the_lease_of_another_request() {
    let (d, e) = (ConnectionId(4), ConnectionId(5));
    let mut bench = Bench::with(&[A, B, C, d, e]);
    let other = Key::Data(Ino(1 << 20));
    for from in [B, C, d, e] {
        bench.says(from, Request::Exclusive { tag: 1, keys: vec![other.clone()] });
    }
    bench.says(A, Request::Exclusive { tag: 1, keys: vec![root(), other] });
    for _ in 0..3 {
        bench.millis += EXCLUSIVE_TERM_MS;
        bench.handle(vec![]);
    }
    let given = bench.says(A, wants(2));
    assert!(given.contains(&Action::Send(A, Reply::Leased { tag: 2, granted: true })));
    bench.millis = 10_000;
    assert!(bench.handle(vec![]).contains(&Action::Send(A, Reply::Leased { tag: 1, granted: false })));
    assert!(!committed(&bench.says(B, interval(1, vec![create("f")])), B), "A has the lease that it got meanwhile");
}

/// An interval of B waits for A's lease.
fn one_is_parked() -> Bench {
    let mut bench = Bench::with(&[A, B, C]);
    assert!(bench.lease(A));
    let actions = bench.says(B, interval(1, vec![create("f")]));
    assert!(actions.contains(&Action::Send(A, Reply::Recall { group: root().group() })) && !committed(&actions, B));
    bench
}

fn gives_back() -> Request {
    Request::GiveBack { group: root().group() }
}

#[test]
fn a_writer_whose_connection_broke_keeps_nobody_from_leases() {
    let mut bench = one_is_parked();
    bench.says(A, gives_back());
    assert!(bench.lease(A), "B has written");
    bench.says(B, interval(2, vec![create("g")]));
    bench.handle(vec![Event::Closed(B)]);
    bench.says(A, gives_back());
    assert!(bench.lease(C), "what B has parked is forgotten");
}

#[test]
fn a_writer_whose_interval_failed_while_it_waited_keeps_nobody_from_leases() {
    let mut bench = Bench::with(&[A, B, C]);
    assert!(bench.lease(A));
    let Request::Submit { interval: mut wrong } = interval(1, vec![create("f")]) else { panic!("an interval") };
    wrong.reads = vec![Key::Name(ROOT, name("g"))];
    assert!(!committed(&bench.says(B, Request::Submit { interval: wrong }), B), "it waits");
    assert!(committed(&bench.says(A, interval(1, vec![create("g")])), A));
    let actions = bench.says(A, gives_back());
    let decided = |action: &Action| matches!(action, Action::Send(B, Reply::Decided { .. }));
    assert!(actions.iter().any(decided) && !committed(&actions, B), "what it has read was changed");
    assert!(bench.lease(C), "B waits for nothing any more");
}

/// A piece of contents that was parked is refused as too much. What came behind it would have taken the rest of the
/// contents for the whole.
#[test]
fn nothing_that_is_parked_behind_a_refusal_is_carried_out() {
    let mut bench = one_is_parked();
    for _ in 0..=64 {
        assert_eq!(bench.says(B, Request::Stage { id: 7, data: vec![b'x'; 1 << 20] }), []);
    }
    bench.says(B, interval(2, vec![create("never")]));
    let actions = bench.says(A, gives_back());
    let to_b: Vec<&Action> = actions.iter().filter(|action| matches!(action, Action::Send(B, _))).collect();
    assert!(committed(&actions, B), "the one that waited for the lease");
    assert!(matches!(to_b.last(), Some(Action::Send(_, Reply::Refused { .. }))), "{to_b:?}");
    assert!(actions.contains(&Action::Close(B)));
    assert!(actions.iter().all(|action| !matches!(action, Action::Send(_, Reply::Decided { number: 2, .. }))));
    assert_eq!(bench.says(B, interval(3, vec![create("late")])), [], "the connection is over");
}

/// A and B want the same two groups; A, who was first, gives a shared lease on one of them back meanwhile.
#[test]
fn requests_for_exclusive_leases_on_several_groups_do_not_wait_for_each_other() {
    let mut bench = Bench::with(&[A, B, C]);
    let both = |tag| Request::Exclusive { tag, keys: vec![root(), Key::Data(Ino(1 << 20))] };
    assert!(bench.lease(A));
    bench.says(C, both(1));
    assert_eq!((bench.says(A, both(2)), bench.says(B, both(3))), (vec![], vec![]));
    bench.says(A, gives_back());
    bench.millis = EXCLUSIVE_TERM_MS;
    assert_eq!(bench.engine.next_turn(), Some(EXCLUSIVE_TERM_MS));
    assert_eq!(bench.handle(vec![]), [Action::Send(A, Reply::Leased { tag: 2, granted: true })]);
    bench.millis = 2 * EXCLUSIVE_TERM_MS;
    assert_eq!(bench.handle(vec![]), [Action::Send(B, Reply::Leased { tag: 3, granted: true })]);
}

/// A asks for an exclusive lease again and again, as `cargo xtask hostile` does. B has waited for as long as A did
/// that.
#[test]
fn who_asks_for_exclusive_leases_again_and_again_keeps_a_writer_waiting_for_one_of_them() {
    let mut bench = Bench::with(&[A, B]);
    let alone = |tag| Request::Exclusive { tag, keys: vec![root()] };
    let is_given = |given: bool, tag| Action::Send(A, Reply::Leased { tag, granted: given });
    assert_eq!(bench.says(A, alone(1)), [is_given(true, 1)]);
    assert_eq!(bench.says(B, interval(1, vec![create("f")])), []);
    for tag in 2..EXCLUSIVE_TERM_MS / 100 {
        bench.millis += 100;
        assert_eq!(bench.says(A, alone(tag)), [is_given(false, tag)], "B waits for what A has");
    }
    bench.millis = EXCLUSIVE_TERM_MS;
    let actions = bench.says(A, alone(99));
    assert!(committed(&actions, B) && actions.contains(&is_given(true, 99)), "{actions:?}");
}

/// Two who each want what the other one has waited for a whole term.
#[test]
fn who_has_an_exclusive_lease_that_another_waits_for_does_not_wait_for_one() {
    let mut bench = Bench::with(&[A, B]);
    let alone = |tag, key| Request::Exclusive { tag, keys: vec![key] };
    let other = || Key::Data(Ino(1 << 20));
    assert_eq!(bench.says(A, alone(1, root())).len(), 1);
    assert_eq!(bench.says(B, alone(1, other())).len(), 1);
    assert_eq!(bench.says(A, alone(2, other())), []);
    let refused = [Action::Send(B, Reply::Leased { tag: 2, granted: false })];
    assert_eq!(bench.says(B, alone(2, root())), refused);
    let actions = bench.says(B, Request::GiveBack { group: other().group() });
    assert_eq!(actions, [Action::Send(A, Reply::Leased { tag: 2, granted: true })]);
}

/// A has a lock and is away while the server is started twice: the first start forgot on disk that A may have any.
#[test]
fn who_has_a_lock_keeps_it_over_two_restarts() {
    let mut bench = Bench::with(&[A, B]);
    let (ino, kind, start, end) = (Ino(7), bluefs_wire::LockKind::Exclusive, 0, 9);
    let lock = bluefs_wire::LockRequest { ino, owner: 1, kind, start, end, wait: true };
    assert_eq!(bench.says(A, Request::Lock { tag: 1, lock }), [Action::Send(A, Reply::Locked { tag: 1 })]);
    bench.restart();
    bench.millis = TERM_MS + 1;
    assert_eq!(bench.handle(vec![]), []);
    bench.restart();
    bench.hello(C, None);
    assert_eq!(bench.says(C, Request::Lock { tag: 1, lock }), [], "A may have it");
    bench.hello(A, Some((SessionId(1), 1)));
    assert!(bench.says(A, Request::Reclaim { tag: 2, lock }).contains(&Action::Send(A, Reply::Locked { tag: 2 })));
    assert_eq!(bench.says(A, Request::GaveUp {}), []);
}

/// What a connection is told that others have changed, by name.
fn invalidated(actions: &[Action], to: ConnectionId) -> Vec<Vec<String>> {
    let of = |action: &Action| match action {
        Action::Send(at, Reply::Invalidate { keys, .. }) if *at == to => Some(keys.iter().filter_map(text).collect()),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn text(key: &Key) -> Option<String> {
    if let Key::Name(_, name) = key {
        Some(String::from_utf8_lossy(name.as_bytes()).into_owned())
    } else {
        None
    }
}

#[test]
fn others_are_told_of_changes_before_anything_else_and_at_once_of_all() {
    let mut bench = Bench::with(&[A, B]);
    for (number, file) in (1..).zip(["one", "two"]) {
        let actions = bench.says(A, interval(number, vec![create(file)]));
        assert!(committed(&actions, A) && invalidated(&actions, B).is_empty(), "{actions:?}");
    }
    let actions = bench.says(B, Request::Ping { tag: 5 });
    assert_eq!(invalidated(&actions, B), [["one", "two"]]);
    assert_eq!(actions.last(), Some(&Action::Send(B, Reply::Pong { tag: 5 })), "{actions:?}");
    // Once; and nobody is told of his own.
    for who in [A, B] {
        let actions = bench.says(who, Request::Ping { tag: 6 });
        assert!(invalidated(&actions, who).is_empty(), "{actions:?}");
    }
}

#[test]
fn who_says_nothing_is_told_soon() {
    const SOON_MS: u64 = 200;
    let mut bench = Bench::with(&[A, B]);
    bench.says(A, interval(1, vec![create("one")]));
    let due = bench.engine.next_turn().expect("somebody is to be told");
    assert!(due <= SOON_MS, "{due}");
    bench.millis = due - 1;
    assert!(invalidated(&bench.handle(vec![]), B).is_empty());
    bench.millis = due;
    assert_eq!(invalidated(&bench.handle(vec![]), B), [["one"]]);
    assert!(bench.engine.next_turn().is_none_or(|at| at > due));
}

fn lookup_of(file: &str) -> Query {
    Query::Lookup { dir: ROOT, name: name(file) }
}

/// Who is told that a file has lost its last name.
fn orphaned(actions: &[Action]) -> Vec<(ConnectionId, Ino)> {
    let of = |action: &Action| match action {
        Action::Send(to, Reply::Orphan { ino }) => Some((*to, *ino)),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// A makes a file, somebody does something in between, and A removes it.
#[track_caller]
fn orphaned_after(between: impl FnOnce(&mut Bench)) -> Vec<ConnectionId> {
    let mut bench = Bench::with(&[A, B, C]);
    assert!(committed(&bench.says(A, interval(1, vec![create("f")])), A));
    between(&mut bench);
    let actions = bench.says(A, interval(2, vec![Change::Unlink { dir: ROOT, name: name("f") }]));
    let told = orphaned(&actions);
    let ino = told.first().expect("somebody is told").1;
    let look = Request::Ask { tag: 9, cred: Cred::root(), query: Query::Inode(ino) };
    let is_there =
        |bench: &mut Bench| matches!(bench.says(C, look.clone())[..], [.., Action::Send(C, Reply::Answer { .. })]);
    for (who, _) in &told {
        assert!(is_there(&mut bench), "somebody may have it open");
        bench.says(*who, Request::Released { ino });
    }
    assert!(!is_there(&mut bench), "it is freed");
    told.into_iter().map(|(who, _)| who).collect()
}

#[test]
fn only_who_was_told_of_a_file_is_told_that_it_has_lost_its_last_name() {
    assert_eq!(orphaned_after(|_| {}), [A]);
    let ask = |query| move |bench: &mut Bench| _ = bench.says(B, Request::Ask { tag: 1, cred: Cred::root(), query });
    assert_eq!(orphaned_after(ask(lookup_of("f"))), [A, B, C]);
    assert_eq!(orphaned_after(ask(Query::List { dir: ROOT, after: None, max: 9 })), [A, B, C]);
    let ino = |bench: &mut Bench| {
        let said = bench.says(A, Request::Ask { tag: 1, cred: Cred::root(), query: lookup_of("f") });
        match said.last() {
            Some(Action::Send(A, Reply::Answer { answer: Answer::Inode(ino, _), .. })) => *ino,
            other => panic!("{other:?}"),
        }
    };
    let read = |bench: &mut Bench| {
        let query = Query::Read { ino: ino(bench), offset: 0, len: 9 };
        bench.says(B, Request::Ask { tag: 1, cred: Cred::root(), query });
    };
    assert_eq!(orphaned_after(read), [A, B, C]);
    assert_eq!(orphaned_after(ask(Query::Space)), [A]);
    let leased = Request::AskLeased { tag: 1, cred: Cred::root(), query: lookup_of("f") };
    let ask_leased = |bench: &mut Bench| {
        bench.says(B, leased);
        bench.millis = TERM_MS;
    };
    assert_eq!(orphaned_after(ask_leased), [A, B, C]);
    let (from, to, mode) = (name("f"), name("g"), RenameMode::Replace);
    let away = Change::Rename { from_dir: ROOT, from, to_dir: ROOT, to, mode };
    let back = Change::Rename { from_dir: ROOT, from: name("g"), to_dir: ROOT, to: name("f"), mode };
    assert_eq!(orphaned_after(|bench| assert!(committed(&bench.says(B, interval(1, vec![away, back])), B))), [A, B, C]);
    assert_eq!(orphaned_after(Bench::reconnected), [A, B, C]);
}

/// A has made a file, removed it, and said that it has not got it open.
fn one_released() -> (Bench, Ino) {
    let mut bench = Bench::with(&[A]);
    let removed = Change::Unlink { dir: ROOT, name: name("f") };
    assert!(committed(&bench.says(A, interval(1, vec![create("f")])), A));
    let actions = bench.says(A, interval(2, vec![removed]));
    let (_, ino) = *orphaned(&actions).first().expect("A is asked whether it has the file open");
    let before = bench.disk.deeds();
    assert_eq!(bench.says(A, Request::Released { ino }), []);
    assert_eq!(before, bench.disk.deeds(), "nothing is written for what nobody is told of");
    assert_eq!(bench.nameless(), 1);
    (bench, ino)
}

/// A flush by itself would be one more that the next change waits for.
#[test]
fn a_file_that_nobody_has_open_is_freed_with_the_next_change() {
    let (mut bench, _) = one_released();
    assert!(committed(&bench.says(A, interval(3, vec![create("g")])), A));
    assert_eq!(bench.nameless(), 0);
}

#[test]
fn a_file_that_nobody_has_open_is_freed_soon_without_a_change() {
    let (mut bench, _) = one_released();
    let at = bench.engine.next_turn().expect("something is to be done");
    assert!(at <= 200, "{at}");
    bench.millis = at;
    bench.handle(vec![]);
    assert_eq!(bench.nameless(), 0);
}

#[test]
fn who_asks_for_the_room_that_is_left_is_told_of_what_is_freed() {
    let (mut bench, _) = one_released();
    let space = Request::Ask { tag: 9, cred: Cred::root(), query: Query::Space };
    assert_eq!(bench.says(A, space).len(), 1);
    assert_eq!(bench.nameless(), 0);
}

/// A directory that somebody reads by its number has no names any more, as if it had been freed at once.
#[test]
fn who_asks_for_a_file_that_nobody_has_open_finds_it_freed() {
    let (_, ino) = one_released();
    for (query, left) in [
        (Query::List { dir: ROOT, after: None, max: 9 }, 1),
        (Query::List { dir: ino, after: None, max: 9 }, 0),
        (Query::Inode(ino), 0),
        (Query::Read { ino, offset: 0, len: 1 }, 0),
    ] {
        let (mut bench, same) = one_released();
        assert_eq!(ino, same);
        bench.says(A, Request::Ask { tag: 9, cred: Cred::root(), query: query.clone() });
        assert_eq!(bench.nameless(), left, "{query:?}");
    }
}

/// What was to be freed when the server was killed is freed when its sessions have come back.
#[test]
fn what_was_to_be_freed_is_freed_after_a_restart() {
    let (mut bench, _) = one_released();
    bench.restart();
    assert_eq!(bench.nameless(), 1);
    let actions = bench.hello(A, Some((SessionId(1), 1)));
    let (_, ino) = *orphaned(&actions).first().expect("A is asked again");
    bench.says(A, Request::Released { ino });
    assert!(committed(&bench.says(A, interval(3, vec![create("g")])), A));
    assert_eq!(bench.nameless(), 0);
}

/// A has made a file of 65,536 blocks and a few more, removed it, and said that it has not got it open.
fn large_one_released() -> (Bench, Ino) {
    let mut bench = Bench::with(&[A]);
    assert!(committed(&bench.says(A, interval(1, vec![create("f")])), A));
    let Action::Send(A, Reply::Answer { answer: Answer::Inode(ino, _), .. }) = asks(&mut bench, lookup_of("f")) else {
        panic!("it is there")
    };
    let (len, keep_size, zero) = (ALLOCATE_BYTES_MAX, false, false);
    for part in 0..=16 {
        let reserve = Change::Allocate { ino, offset: part * len, len, keep_size, zero };
        assert!(committed(&bench.says(A, interval(part + 2, vec![reserve])), A));
    }
    bench.says(A, interval(19, vec![Change::Unlink { dir: ROOT, name: name("f") }]));
    bench.says(A, Request::Released { ino });
    (bench, ino)
}

fn asks(bench: &mut Bench, query: Query) -> Action {
    bench.says(A, Request::Ask { tag: 9, cred: Cred::root(), query }).pop().expect("an answer")
}

fn used_bytes(bench: &mut Bench) -> u64 {
    match asks(bench, Query::Space) {
        Action::Send(A, Reply::Answer { answer: Answer::Space(space), .. }) => space.used_bytes,
        other => panic!("{other:?}"),
    }
}

/// Whatever is said about the file is refused.
#[track_caller]
fn is_gone(bench: &mut Bench, ino: Ino, number: u64) {
    for query in [Query::Inode(ino), Query::Read { ino, offset: 0, len: 9 }, Query::Xattrs(ino)] {
        let refused = matches!(asks(bench, query), Action::Send(A, Reply::Error { errno: Errno::STALE, .. }));
        assert!(refused);
    }
    let versions = bench.says(A, Request::Versions { tag: 9, inos: vec![ROOT, ino] });
    let Some(Action::Send(A, Reply::Versions { versions, .. })) = versions.last() else { panic!("{versions:?}") };
    assert!(versions[0].is_some() && versions[1].is_none());
    let write = Change::Write { ino, offset: 0, content: Content::Inline(b"lost".to_vec()) };
    let failure = Failure::Refused { step: 1, errno: Errno::STALE };
    let decided = Reply::Decided { number, outcome: Outcome::Failed(failure) };
    let actions = bench.says(A, interval(number, vec![create("g"), write]));
    assert_eq!(actions, [Action::Send(A, decided)]);
}

/// A program may still have it open whose session has ended: it does not find the zeros that are left of the file.
#[test]
fn a_large_file_is_gone_while_it_is_freed_in_parts() {
    let (mut bench, ino) = large_one_released();
    let all = used_bytes(&mut bench);
    assert!((1..100_000_000).contains(&all), "one part is gone, and another one not: {all}");
    is_gone(&mut bench, ino, 20);
    assert_eq!(bench.nameless(), 1);
    bench.millis = bench.engine.next_turn().expect("the rest is to be freed");
    bench.handle(vec![]);
    assert_eq!((bench.nameless(), used_bytes(&mut bench)), (0, 0));
    is_gone(&mut bench, ino, 21);
}

#[test]
fn a_large_file_of_which_a_part_is_freed_is_gone_after_a_restart() {
    let (mut bench, ino) = large_one_released();
    assert!(used_bytes(&mut bench) > 0 && bench.nameless() == 1);
    bench.restart();
    assert_eq!(bench.nameless(), 1);
    let actions = bench.hello(A, Some((SessionId(1), 1)));
    assert_eq!(orphaned(&actions), [], "nobody gets back what is left of it");
    is_gone(&mut bench, ino, 20);
    assert_eq!((bench.nameless(), used_bytes(&mut bench)), (0, 0));
}

/// Bytes at which a batch is full, and how many intervals that change something as large are sent at once.
const FULL_BYTES: usize = 10_000;
const MANY: u64 = 10;

impl Bench {
    /// Batches are full soon.
    fn soon_full(connections: &[ConnectionId]) -> Bench {
        let mut bench = Bench::new();
        let mut store = Store::on(Arc::new(bench.disk.clone())).expect("a store").store;
        store.set_batch_bytes_max(FULL_BYTES);
        bench.engine = Engine::new(store, Now { millis: 0, wall: Time(1) }, || 7).expect("an engine");
        bench.engine.set_quiet(0);
        connections.iter().for_each(|from| _ = bench.hello(*from, None));
        bench
    }

    /// Records of the log.
    fn records(&self) -> u64 {
        let disk = self.disk.crash(self.disk.deeds(), |_| 0);
        Store::on(Arc::new(disk)).expect("a store").store.last_record()
    }
}

fn large(number: u64) -> Request {
    let (kind, target) = (Kind::Symlink, vec![b'x'; FULL_BYTES / 3]);
    let name = name(&format!("link{number}"));
    interval(number, vec![Change::Create { dir: ROOT, name, ino: None, kind, mode: 0o777, rdev: 0, target }])
}

/// The numbers of B's intervals that were carried out.
fn done(actions: &[Action]) -> Vec<u64> {
    let number = |action: &Action| match action {
        Action::Send(B, Reply::Decided { number, outcome: Outcome::Committed { .. } }) => Some(*number),
        _ => None,
    };
    actions.iter().filter_map(number).collect()
}

#[test]
fn what_arrives_at_once_is_in_several_records_if_it_is_much() {
    let mut bench = Bench::soon_full(&[A, B]);
    let before = bench.records();
    let actions = bench.handle((1..=MANY).map(|number| Event::Message(B, large(number))).collect());
    assert_eq!(done(&actions), (1..=MANY).collect::<Vec<u64>>());
    let records = bench.records() - before;
    assert!((3..=MANY).contains(&records), "{records}");
}

/// What was parked while A had a lease is carried out in several turns, in its order, and what comes then behind it.
#[test]
fn what_was_parked_is_carried_out_in_several_turns_if_it_is_much() {
    let mut bench = Bench::soon_full(&[A, B]);
    assert!(bench.lease(A));
    bench.handle((1..MANY).map(|number| Event::Message(B, large(number))).collect());
    let mut decided = done(&bench.says(A, gives_back()));
    assert!(!decided.is_empty() && decided.len() < MANY as usize - 1, "{decided:?}");
    assert_eq!(bench.engine.next_turn(), Some(bench.millis), "the next turn is at once");
    decided.extend(done(&bench.says(B, large(MANY))));
    while decided.len() < MANY as usize {
        let more = done(&bench.handle(vec![]));
        assert!(!more.is_empty(), "{decided:?}");
        decided.extend(more);
    }
    assert_eq!(decided, (1..=MANY).collect::<Vec<u64>>());
}

/// What B has parked fills this turn and the next one.
#[test]
fn what_one_has_parked_does_not_wait_for_all_that_another_has() {
    let mut bench = Bench::soon_full(&[A, B, C]);
    assert!(bench.lease(A));
    bench.handle((1..MANY).map(|number| Event::Message(B, large(number))).collect());
    bench.says(C, interval(1, vec![create("f")]));
    let actions = bench.says(A, gives_back());
    assert!(committed(&actions, C) && done(&actions).len() < MANY as usize - 1);
}
