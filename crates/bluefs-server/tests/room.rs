//! A store whose disk is nearly full: what takes more room is refused, and everything else goes on.

mod support;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use bluefs::op::{Change, Content, Errno, Failure, SetAttr};
use bluefs::{Cred, Csn, Ino, Interval, Kind, Name, Outcome, Runs, Step, Time};
use bluefs_server::{Action, ConnectionId, Engine, Event, Now};
use bluefs_store::{CrashDisk, Disk, DiskFile, Room, Store};
use bluefs_wire::{Reply, Request, PROTOCOL_VERSION};
use support::Numbered;

const A: ConnectionId = ConnectionId(1);
const GIB: u64 = 1 << 30;

/// A disk with so much room.
#[derive(Debug)]
struct Nearly(CrashDisk, Arc<AtomicU64>);

impl Disk for Nearly {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.0.open(name, create)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }

    fn room(&self, _: &str) -> io::Result<Option<Room>> {
        Ok(Some(Room { free: self.1.load(Ordering::Relaxed), size: 100 * GIB, file: 0 }))
    }
}

struct Bench {
    engine: Engine,
    access: Numbered,
    millis: u64,
    number: u64,
}

impl Bench {
    fn handle(&mut self, message: Request) -> Vec<Action> {
        self.millis += 1000;
        let now = Now { millis: self.millis, wall: Time(1) };
        self.engine.handle(vec![Event::Message(A, message)], now, &self.access).expect("a turn")
    }

    /// What becomes of a change.
    fn change(&mut self, change: Change) -> Result<(), Errno> {
        self.number += 1;
        let (creds, steps) = (vec![Cred::root()], vec![Step { cred: 0, time: None, change }]);
        let interval = Interval { number: self.number, base: Csn(0), after: Runs::new(), reads: vec![], creds, steps };
        let decided = |action| match action {
            Action::Send(_, Reply::Decided { outcome, .. }) => Some(outcome),
            _ => None,
        };
        match self.handle(Request::Submit { interval }).into_iter().find_map(decided).expect("an outcome") {
            Outcome::Committed { .. } => Ok(()),
            Outcome::Failed(Failure::Refused { errno, .. }) => Err(errno),
            other => panic!("{other:?}"),
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

#[test]
fn what_takes_room_is_refused_before_the_disk_is_full() {
    let free = Arc::new(AtomicU64::new(GIB));
    let store = Store::on(Arc::new(Nearly(CrashDisk::new(), free.clone()))).expect("a store").store;
    let engine = Engine::new(store, Now { millis: 0, wall: Time(1) }, || 7).expect("an engine");
    let mut bench = Bench { engine, access: Numbered::default(), millis: 0, number: 0 };
    let now = Now { millis: 0, wall: Time(1) };
    bench.engine.handle(vec![Event::Opened(A)], now, &bench.access).expect("a turn");
    let (version, session) = (PROTOCOL_VERSION, None);
    bench.handle(Request::Hello { version, volume: vec![], session, acknowledged: 0, secret: vec![] });
    let create = |file: &str| {
        let (dir, name, kind, target) = (Ino::ROOT, name(file), Kind::File, Vec::new());
        Change::Create { dir, name, ino: None, kind, mode: 0o644, rdev: 0, target }
    };
    let ino = Ino(2);
    let write = |offset| Change::Write { ino, offset, content: Content::Inline(b"text".to_vec()) };
    assert_eq!(bench.change(create("file")), Ok(()));
    assert_eq!(bench.change(write(0)), Ok(()));
    free.store(10 << 20, Ordering::Relaxed);
    assert_eq!(bench.change(create("other")), Err(Errno::NOSPC));
    assert_eq!(bench.change(write(GIB)), Err(Errno::NOSPC), "a block more");
    assert_eq!(bench.change(write(1)), Ok(()), "over what is there");
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(bench.change(Change::SetAttr { ino, set }), Ok(()));
    assert_eq!(bench.change(Change::Unlink { dir: Ino::ROOT, name: name("file") }), Ok(()));
    free.store(GIB, Ordering::Relaxed);
    assert_eq!(bench.change(create("other")), Ok(()));
}
