//! Versions of contents and the history of a volume: what a client may use again of what it has kept on its disk.

mod support;

use std::cell::Cell;
use std::sync::Arc;

use bluefs::op::{Content, SetAttr, SetTime, BLOCK_BYTES};
use bluefs::{Change, Cred, Csn, Ino, Interval, Kind, Name, Outcome, Runs, Step, Time};
use bluefs_server::{Action, ConnectionId, Engine, Event, Now};
use bluefs_store::{CrashDisk, Store};
use bluefs_wire::{Reply, Request, PROTOCOL_VERSION};
use support::Numbered;

const A: ConnectionId = ConnectionId(1);
const ROOT: Ino = Ino(1);
const NOW: Now = Now { millis: 0, wall: Time(1) };

thread_local!(static STARTS: Cell<u64> = const { Cell::new(100) });

struct Bench {
    disk: CrashDisk,
    engine: Engine,
    access: Numbered,
    number: u64,
}

impl Bench {
    fn on(disk: CrashDisk) -> Bench {
        let store = Store::on(Arc::new(disk.clone())).expect("a store").store;
        let random = || STARTS.replace(STARTS.get() + 1);
        let engine = Engine::new(store, NOW, random).expect("an engine");
        let mut bench = Bench { disk, engine, access: Numbered::default(), number: 0 };
        let hello = Request::Hello {
            version: PROTOCOL_VERSION,
            volume: vec![],
            session: None,
            acknowledged: 0,
            secret: vec![],
        };
        bench.handle(vec![Event::Opened(A), Event::Message(A, hello)]);
        bench
    }

    fn handle(&mut self, events: Vec<Event>) -> Vec<Reply> {
        let actions = self.engine.handle(events, NOW, &self.access).expect("a turn");
        let reply = |action| if let Action::Send(_, reply) = action { Some(reply) } else { None };
        actions.into_iter().filter_map(reply).collect()
    }

    /// The disk as it is now, for another server.
    fn copy(&self) -> CrashDisk {
        self.disk.crash(self.disk.deeds(), |_| 0)
    }

    /// Carries an interval out. Says at which commit.
    fn change(&mut self, changes: Vec<Change>) -> Csn {
        self.number += 1;
        let steps = changes.into_iter().map(|change| Step { cred: 0, time: None, change }).collect();
        let (number, after, creds) = (self.number, Runs::new(), vec![Cred::root()]);
        let interval = Interval { number, base: Csn(0), after, reads: vec![], creds, steps };
        let replies = self.handle(vec![Event::Message(A, Request::Submit { interval })]);
        let done = replies.into_iter().find_map(|reply| match reply {
            Reply::Decided { outcome: Outcome::Committed { csn, .. }, .. } => Some(csn),
            _ => None,
        });
        done.expect("committed")
    }

    fn create(&mut self, file: &str) -> Ino {
        self.change(vec![create(file)]);
        let found = (2..200).map(Ino).rfind(|ino| self.version(*ino).is_some());
        found.expect("it was made")
    }

    fn version(&mut self, ino: Ino) -> Option<Csn> {
        let replies = self.handle(vec![Event::Message(A, Request::Versions { tag: 9, inos: vec![ino] })]);
        match replies.last() {
            Some(Reply::Versions { tag: 9, versions, .. }) if versions.len() == 1 => versions[0],
            other => panic!("{other:?}"),
        }
    }

    fn history(&mut self) -> (u64, Vec<(u64, Csn)>) {
        let replies = self.handle(vec![Event::Message(A, Request::History { tag: 9 })]);
        match replies.into_iter().next_back() {
            Some(Reply::History { tag: 9, volume, starts }) => (volume, starts),
            other => panic!("{other:?}"),
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn create(file: &str) -> Change {
    Change::Create { dir: ROOT, name: name(file), ino: None, kind: Kind::File, mode: 0o644, rdev: 0, target: vec![] }
}

fn write(ino: Ino, offset: u64, text: &[u8]) -> Change {
    Change::Write { ino, offset, content: Content::Inline(text.to_vec()) }
}

fn set(ino: Ino, set: SetAttr) -> Change {
    Change::SetAttr { ino, set }
}

#[test]
fn whatever_changes_bytes_is_a_version_and_nothing_else_is() {
    let mut bench = Bench::on(CrashDisk::new());
    let ino = bench.create("f");
    assert_eq!(bench.version(Ino(199)), None);
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let block = BLOCK_BYTES;
    for change in [
        write(ino, 0, b"text"),
        write(ino, 1, b"e"),
        Change::Append { ino, content: Content::Inline(vec![1; 3 * block as usize]) },
        set(ino, size(2 * block + 5)),
        set(ino, size(4 * block)),
        Change::Punch { ino, offset: 10, len: 20 },
        Change::Allocate { ino, offset: 0, len: block, keep_size: true, zero: true },
        Change::Allocate { ino, offset: 5 * block, len: block, keep_size: false, zero: false },
        set(ino, size(0)),
    ] {
        let csn = bench.change(vec![change.clone()]);
        assert_eq!(bench.version(ino), Some(csn), "{change:?}");
    }
    let last = bench.version(ino);
    let times = SetAttr { mtime: Some(SetTime::At(Time(5))), mode: Some(0o600), ..SetAttr::default() };
    bench.change(vec![set(ino, times)]);
    bench.change(vec![Change::Link { ino, dir: ROOT, name: name("g") }]);
    bench.change(vec![Change::Unlink { dir: ROOT, name: name("f") }]);
    let other = bench.create("other");
    bench.change(vec![write(other, 0, b"x")]);
    assert_eq!(bench.version(ino), last);
    // Made and written at once.
    let csn = bench.change(vec![write(ino, 0, b"twice"), write(ino, 0, b"in one")]);
    assert_eq!(bench.version(ino), Some(csn));
    // Nobody has it open: it is gone.
    bench.change(vec![Change::Unlink { dir: ROOT, name: name("g") }]);
    bench.handle(vec![Event::Message(A, Request::Released { ino })]);
    assert_eq!(bench.version(ino), None);
    let store = bench.engine.into_store();
    assert_eq!(store.check().expect("readable").faults, Vec::<String>::new());
}

#[test]
fn versions_and_history_outlive_the_server() {
    let mut bench = Bench::on(CrashDisk::new());
    let (volume, first) = bench.history();
    assert_eq!(first.iter().map(|(_, csn)| *csn).collect::<Vec<_>>(), [Csn(0)]);
    let ino = bench.create("f");
    let csn = bench.change(vec![write(ino, 0, b"text")]);
    let backup = bench.copy();
    // The server goes on, and is killed.
    let later = bench.change(vec![write(ino, 0, b"lost")]);
    let mut killed = Bench::on(bench.copy());
    assert_eq!(killed.version(ino), Some(later));
    let (same, starts) = killed.history();
    assert_eq!((same, starts[0], starts[1].1, starts.len()), (volume, first[0], later, 2));
    // The back-up is served: what came after it is no part of its history.
    let mut put_back = Bench::on(backup);
    assert_eq!(put_back.version(ino), Some(csn));
    let (same, other) = put_back.history();
    assert_eq!((same, other[0], other[1].1, other.len()), (volume, first[0], csn, 2));
    assert_ne!(other[1].0, starts[1].0);
    // Another store is another volume.
    assert_ne!(Bench::on(CrashDisk::new()).history().0, volume);
    for _ in 0..100 {
        put_back = Bench::on(put_back.copy());
    }
    let (_, many) = put_back.history();
    assert_eq!(many.len(), bluefs_wire::STARTS_MAX);
    assert_eq!(put_back.version(ino), Some(csn));
}
