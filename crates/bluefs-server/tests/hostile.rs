//! A client that says anything: messages with made-up numbers, bytes that were changed on the way. Whatever it says,
//! the server goes on, and others find in their volume what they have put there.
//!
//! One seed is one history. `cargo xtask fuzz` tries them for as long as it is told.

#[path = "../../bluefs-client/tests/support/fuzz.rs"]
mod fuzz;

mod honest;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bluefs::lease::TERM_MS;
use bluefs::op::{Change, Content, RenameMode, SetAttr, SetTime, XattrMode};
use bluefs::query::{Answer, Query};
use bluefs::{Cred, Csn, Group, Ino, Interval, Key, Kind, Name, Outcome, Runs, SessionId, Step, Time};
use bluefs_server::{Access, Action, ConnectionId, Engine, Event, Everybody, Grant, Now, Server};
use bluefs_store::{CrashDisk, Store};
use bluefs_wire::{decode, encode, frame, Frames, LockKind, LockRequest, Reply, Request, PROTOCOL_VERSION};
use fuzz::{for_seeds, Dice};
use honest::Honest;

const HONEST: ConnectionId = ConnectionId(0);
/// The only session whose number nobody can guess.
const HONEST_SESSION: u64 = 1000;
const SEEDS: u64 = 20;
/// MiB that may be used in the end; the crash disk's own contents are the most of it.
const USED_MIB_MAX: u64 = 1024;
const STEPS: u64 = 400;

/// Others may read the honest client's volume, and change theirs.
struct Secrets(AtomicU64);

impl Access for Secrets {
    fn check(&self, volume: &[u8], secret: &[u8], _: Time) -> Option<Grant> {
        let grant = |read_only| Some(Grant { invitation: 0, read_only });
        match (volume, secret) {
            (b"default", b"honest") | (b"other", _) => grant(false),
            (b"default", b"reader") => grant(true),
            _ => None,
        }
    }

    fn stands(&self, _: u64, _: Time) -> bool {
        true
    }

    fn random(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Dice {
    fn name(&mut self) -> Name {
        let names: [&[u8]; 6] = [b"a", b"b", b"c", b"...", b"\xff\n", &[b'n'; 255]];
        Name::new(names[self.roll(6) as usize]).expect("a name")
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 100, 16_384, 50_000][self.roll(5) as usize];
        vec![self.roll(256) as u8; len]
    }

    fn cred(&mut self) -> Cred {
        Cred { uid: self.roll(3) as u32, gid: self.number() as u32, groups: vec![self.number() as u32] }
    }

    fn key(&mut self) -> Key {
        match self.roll(7) {
            0 => Key::Data(self.ino()),
            1 => Key::Attr(self.ino()),
            2 => Key::Parent(self.ino()),
            3 => Key::Xattr(self.ino()),
            4 => Key::Locks(self.ino()),
            5 => Key::Name(self.ino(), self.name()),
            _ => Key::Listing(self.ino()),
        }
    }

    fn query(&mut self) -> Query {
        let (ino, name, max) = (self.ino(), self.name(), self.number() as u32);
        let after = (self.roll(2) == 0).then(|| name.clone());
        match self.roll(8) {
            0 => Query::Inode(ino),
            1 => Query::Lookup { dir: ino, name },
            2 => Query::List { dir: ino, after, max },
            3 => Query::ListPlus { dir: ino, after, max },
            4 => Query::Read { ino, offset: self.number(), len: max },
            5 => Query::Xattr { ino, name },
            6 => Query::Xattrs(ino),
            _ => Query::Space,
        }
    }

    fn change(&mut self) -> Change {
        let (ino, dir, name, to) =
            (self.ino(), Ino(1).max(Ino(self.roll(2) * self.number())), self.name(), self.name());
        let content = match self.roll(3) {
            0 => Content::Staged(self.number()),
            _ => Content::Inline(self.bytes()),
        };
        let kind = [Kind::File, Kind::Dir, Kind::Symlink, Kind::Char][self.roll(4) as usize];
        match self.roll(13) {
            0..=2 => {
                let (ino, target) = ((self.roll(2) == 0).then(|| self.ino()), vec![b't'; 50 * self.roll(3) as usize]);
                Change::Create { dir, name, ino, kind, mode: self.number() as u16, rdev: 0, target }
            }
            3 => Change::Link { ino, dir, name },
            4 => Change::Unlink { dir, name },
            5 => Change::Rmdir { dir, name },
            6 => Change::Rename { from_dir: ino, from: name, to_dir: dir, to, mode: RenameMode::Exchange },
            7 => {
                let (size, mtime) = (Some(self.number()), Some(SetTime::At(Time(self.number() as i64))));
                let uid = Some(self.number() as u32);
                Change::SetAttr { ino, set: SetAttr { size, mtime, uid, ..SetAttr::default() } }
            }
            8 => Change::Write { ino, offset: self.number(), content },
            9 => Change::Append { ino, content },
            11 => {
                let (keep_size, zero) = (self.roll(2) == 0, self.roll(2) == 0);
                Change::Allocate { ino, offset: self.number(), len: self.number(), keep_size, zero }
            }
            10 => Change::Punch { ino, offset: self.number(), len: self.number() },
            _ => Change::SetXattr { ino, name, value: self.bytes(), mode: XattrMode::Either },
        }
    }

    fn interval(&mut self) -> Interval {
        let mut after = Runs::new();
        (0..self.roll(3)).for_each(|_| after.insert(self.number()));
        let steps = (0..self.roll(4)).map(|_| {
            let time = (self.roll(4) == 0).then(|| Time(self.number() as i64));
            Step { cred: self.roll(3) as u16, time, change: self.change() }
        });
        let steps = steps.collect();
        let reads = (0..self.roll(3)).map(|_| self.key()).collect();
        Interval { number: self.number(), base: Csn(self.number()), after, reads, creds: vec![self.cred()], steps }
    }

    fn lock(&mut self) -> LockRequest {
        let kind = [LockKind::Shared, LockKind::Exclusive, LockKind::Unlock][self.roll(3) as usize];
        let (ino, owner, start, end) = (self.ino(), self.number(), self.number(), self.number());
        LockRequest { ino, owner, kind, start, end, wait: self.roll(2) == 0 }
    }

    fn request(&mut self) -> Request {
        let tag = self.number();
        match self.roll(18) {
            0 => Request::Ask { tag, cred: self.cred(), query: self.query() },
            1 => Request::AskLeased { tag, cred: self.cred(), query: self.query() },
            2..=5 => Request::Submit { interval: self.interval() },
            6 => Request::Stage { id: self.number(), data: self.bytes() },
            7 => Request::Acknowledge { number: self.number() },
            8 => Request::Lease { tag, group: Group(self.number()) },
            9 => Request::GiveBack { group: Group(self.number()) },
            10 => Request::Exclusive { tag, keys: (0..self.roll(4)).map(|_| self.key()).collect() },
            11 => Request::Lend { tag },
            12 => Request::Lock { tag, lock: self.lock() },
            13 => Request::Reclaim { tag, lock: self.lock() },
            14 => Request::TestLock { tag, lock: self.lock() },
            16 => Request::LeaseNow { tag, group: Group(self.number()) },
            15 => match self.roll(6) {
                3 => Request::History { tag },
                4 => Request::Versions { tag, inos: (0..self.roll(5)).map(|_| self.ino()).collect() },
                0 => Request::CancelLock { tag },
                1 => Request::Released { ino: self.ino() },
                2 => Request::GaveUp {},
                _ => Request::Ping { tag },
            },
            _ if self.roll(8) == 0 => Request::Goodbye {},
            _ => self.hello(),
        }
    }

    fn hello(&mut self) -> Request {
        let (volume, secret): (&[u8], &[u8]) = match self.roll(8) {
            0 => (b"default", b"honesty"),
            1 => (b"none", b"reader"),
            2..=4 => (b"", b"reader"),
            _ => (b"other", b""),
        };
        let session = (self.roll(3) == 0).then(|| (SessionId(HONEST_SESSION + 1 + self.roll(20)), self.number()));
        let version = if self.roll(16) == 0 { 2 } else { PROTOCOL_VERSION };
        let (volume, secret) = (volume.to_vec(), secret.to_vec());
        Request::Hello { version, volume, session, acknowledged: self.number(), secret }
    }
}

struct Scene {
    engine: Engine,
    access: Secrets,
    millis: u64,
}

impl Scene {
    fn new() -> Scene {
        let mut store = Store::on(Arc::new(CrashDisk::new())).expect("a store").store;
        for name in ["default", "other"] {
            store.batch(|batch| batch.create_volume(name.as_bytes(), Time(1))).expect("a volume");
        }
        let engine = Engine::new(store, Now { millis: 0, wall: Time(1) }, || 7).expect("an engine");
        let mut scene = Scene { engine, access: Secrets(AtomicU64::new(HONEST_SESSION - 1)), millis: 0 };
        let (volume, secret) = (b"default".to_vec(), b"honest".to_vec());
        let hello = Request::Hello { version: PROTOCOL_VERSION, volume, session: None, acknowledged: 0, secret };
        scene.handle(vec![Event::Opened(HONEST), Event::Message(HONEST, hello)]);
        scene
    }

    fn handle(&mut self, events: Vec<Event>) -> Vec<Action> {
        let now = Now { millis: self.millis, wall: Time(1_000_000 * self.millis as i64) };
        self.engine.handle(events, now, &self.access).expect("the server goes on")
    }

    /// The honest client changes something: after one term at most it is done.
    fn changes(&mut self, number: u64, change: Change) -> u64 {
        let (after, reads, creds) = (Runs::new(), vec![], vec![Cred::root()]);
        let steps = vec![Step { cred: 0, time: None, change }];
        let interval = Interval { number, base: Csn(0), after, reads, creds, steps };
        let mut actions = self.handle(vec![Event::Message(HONEST, Request::Submit { interval })]);
        // Three kinds of waits may come one behind the other: an exclusive lease, and leases of two sessions.
        for _ in 0..4 {
            let decided = actions.iter().find_map(|action| match action {
                Action::Send(HONEST, Reply::Decided { number: one, outcome }) if *one == number => Some(outcome),
                _ => None,
            });
            match decided {
                Some(Outcome::Committed { effects, .. }) => return effects.len() as u64,
                Some(failed) => panic!("{failed:?}"),
                None => self.millis += TERM_MS,
            }
            actions = self.handle(vec![Event::Message(HONEST, Request::Ping { tag: 0 })]);
        }
        panic!("it is not decided: {actions:?}");
    }

    fn asks(&mut self, query: Query) -> Answer {
        let actions = self.handle(vec![Event::Message(HONEST, Request::Ask { tag: 1, cred: Cred::root(), query })]);
        let answer = actions.into_iter().find_map(|action| match action {
            Action::Send(HONEST, Reply::Answer { answer, .. }) => Some(answer),
            _ => None,
        });
        answer.expect("an answer")
    }
}

/// What becomes of bytes on their way: lengths and numbers at their bounds, parts left out or said twice.
fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..1 + dice.roll(3) {
        let at = dice.roll(bytes.len() as u64) as usize;
        let number = dice.number();
        match dice.roll(6) {
            0 | 1 => bytes[at] = number as u8,
            2 => bytes[at] ^= 1 << dice.roll(8),
            3 => overwrite(bytes, at, &(number as u32).to_le_bytes()),
            4 => overwrite(bytes, at, &number.to_le_bytes()),
            _ => {
                let end = (at + 1 + dice.roll(40) as usize).min(bytes.len());
                let part = bytes[at..end].to_vec();
                if dice.roll(2) == 0 {
                    bytes.drain(at..end);
                } else {
                    bytes.splice(at..at, part);
                }
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes[at..].iter_mut().zip(with).for_each(|(byte, new)| *byte = *new);
}

/// What becomes of a message on its way: nothing mostly. `None`: it is no message any more.
fn damaged(dice: &mut Dice, request: &Request) -> Option<Request> {
    let mut bytes = encode(request);
    if dice.roll(3) == 0 {
        mutate(dice, &mut bytes);
    }
    let request = decode::<Request>(&bytes).ok()?;
    assert_eq!(encode(&request), bytes, "a message has one encoding");
    Some(request)
}

/// Says how many changes of the honest client were made.
fn history(seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let mut scene = Scene::new();
    let name = Name::new(b"log").expect("a name");
    let create = Change::Create {
        dir: Ino::ROOT,
        name: name.clone(),
        ino: None,
        kind: Kind::File,
        mode: 0o644,
        rdev: 0,
        target: vec![],
    };
    scene.changes(1, create);
    let Answer::Inode(ino, _) = scene.asks(Query::Lookup { dir: Ino::ROOT, name }) else { panic!("a file") };
    let (mut last, mut number, mut said) = (1, 1, 0);
    let mut open = Vec::new();
    for _ in 0..STEPS {
        scene.millis += dice.roll(300);
        if open.is_empty() || dice.roll(20) == 0 {
            open.push(ConnectionId(last));
            last += 1;
            let from = *open.last().expect("one");
            let hello = dice.hello();
            scene.handle(vec![Event::Opened(from), Event::Message(from, hello)]);
        }
        let at = dice.roll(open.len() as u64) as usize;
        let request = dice.request();
        match damaged(&mut dice, &request) {
            Some(request) => drop(scene.handle(vec![Event::Message(open[at], request)])),
            None => drop(scene.handle(vec![Event::Closed(open.swap_remove(at))])),
        }
        if dice.roll(25) == 0 {
            number += 1;
            said += scene.changes(number, Change::Append { ino, content: Content::Inline(vec![b'x']) });
            scene.handle(vec![Event::Message(HONEST, Request::Acknowledge { number })]);
        }
    }
    let read = scene.asks(Query::Read { ino, offset: 0, len: 10_000 });
    assert_eq!(read, Answer::Bytes(vec![b'x'; said as usize]));
    let all = scene.asks(Query::List { dir: Ino::ROOT, after: None, max: 100 });
    assert!(matches!(all, Answer::Names { names, .. } if names.len() == 1), "nobody else may change this volume");
    said
}

#[test]
fn a_client_that_says_anything_harms_nobody_else() {
    let (mut tried, mut said) = (0, 0);
    let mut try_one = |seed| {
        said += std::panic::catch_unwind(|| history(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        tried += 1;
    };
    for_seeds(SEEDS, 1, USED_MIB_MAX, |seeds| seeds.for_each(&mut try_one));
    // Each history has a number of its own of them, some next to none.
    assert!(said > 3 * tried, "{said} changes in {tried} histories");
}

/// A message in a frame whose checksum is right, whatever it says.
fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], &crc32fast::hash(body).to_le_bytes(), body].concat()
}

/// The same with sockets, and bytes that are no messages: each hostile connection ends, and the server goes on.
#[test]
fn connections_that_say_anything_are_refused_and_others_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::open_or_create(&dir.path().join("store")).expect("a store").store;
    for name in ["default", "other"] {
        store.batch(|batch| batch.create_volume(name.as_bytes(), Time(1))).expect("a volume");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let mut server = Server::new(store).expect("a server");
    server.set_term(50);
    let stopper = server.stopper();
    let run = move || server.run(listener, None, Box::new(Secrets(AtomicU64::new(HONEST_SESSION - 1))));
    let thread = std::thread::spawn(move || run().expect("it ends well"));
    let mut honest = Honest::new(at);
    let name = Name::new(b"log").expect("a name");
    let (dir_ino, kind, target) = (Ino::ROOT, Kind::File, vec![]);
    let create = Change::Create { dir: dir_ino, name: name.clone(), ino: None, kind, mode: 0o644, rdev: 0, target };
    honest.changes(create);
    let Answer::Inode(ino, _) = honest.asks(Query::Lookup { dir: Ino::ROOT, name }) else { panic!("a file") };
    let mut said = 0;
    let mut try_one = |seed| {
        let mut dice = Dice::new(seed);
        let mut socket = TcpStream::connect(at).expect("connected");
        socket.set_write_timeout(Some(Duration::from_secs(5))).expect("a socket");
        let hello = match dice.roll(8) {
            0 => dice.request(),
            _ => dice.hello(),
        };
        let mut stream = frame(&hello);
        for _ in 0..dice.roll(30) {
            let mut body = encode(&dice.request());
            if dice.roll(4) == 0 {
                mutate(&mut dice, &mut body);
            }
            let mut framed = framed(&body);
            if dice.roll(40) == 0 {
                mutate(&mut dice, &mut framed);
            }
            stream.extend(framed);
        }
        // The server may have ended the connection before all of it is sent, and need not be listened to.
        let _ = socket.write_all(&stream);
        if dice.roll(2) == 0 {
            socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
            let _ = socket.read(&mut [0; 4096]);
        }
        drop(socket);
        if seed % 10 == 0 {
            said += 1;
            honest.changes(Change::Append { ino, content: Content::Inline(vec![b'x']) });
            let read = honest.asks(Query::Read { ino, offset: said - 1, len: 2 });
            assert_eq!(read, Answer::Bytes(vec![b'x']), "seed {seed}");
        }
    };
    for_seeds(40, 1, USED_MIB_MAX, |seeds| seeds.for_each(&mut try_one));
    let all = honest.asks(Query::List { dir: Ino::ROOT, after: None, max: 100 });
    assert!(matches!(all, Answer::Names { names, .. } if names.len() == 1), "nobody else may change this volume");
    stopper.stop();
    thread.join().expect("no panic");
}

/// Streams of frames that were cut, changed and put together anew: a reader says messages or an error, and takes no
/// more memory than it was sent.
#[test]
fn streams_of_damaged_frames_end_with_an_error_or_go_on() {
    let (mut messages, mut errors) = (0, 0);
    for seed in 1..=200 {
        let mut dice = Dice::new(seed);
        let mut stream: Vec<u8> = (0..10).flat_map(|_| frame(&dice.request())).collect();
        for _ in 0..dice.roll(3) {
            let at = dice.roll(stream.len() as u64) as usize;
            match dice.roll(3) {
                0 => stream[at] ^= 1 << dice.roll(8),
                1 => drop(stream.drain(at..(at + 1 + dice.roll(9) as usize).min(stream.len()))),
                _ => stream.insert(at, dice.roll(256) as u8),
            }
        }
        let mut frames = Frames::new();
        'stream: for piece in stream.chunks(1 + dice.roll(5000) as usize) {
            frames.push(piece);
            loop {
                match frames.next_message::<Request>() {
                    Ok(Some(_)) => messages += 1,
                    Ok(None) => break,
                    Err(_) => {
                        errors += 1;
                        break 'stream;
                    }
                }
            }
        }
    }
    assert!(messages > 500 && errors > 50, "{messages} messages, {errors} errors");
}

/// Somebody who has not said who they are cannot have the server keep a large message for them.
#[test]
fn the_first_message_is_a_short_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open_or_create(&dir.path().join("store")).expect("a store").store;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let server = Server::new(store).expect("a server");
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run(listener, None, Box::new(Everybody)).expect("it ends well"));
    let mut socket = TcpStream::connect(at).expect("connected");
    // Less than after what time the server takes whoever is silent for gone.
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    socket.write_all(&[&(1u32 << 20).to_le_bytes()[..], &[0; 4]].concat()).expect("sent");
    let end = socket.read(&mut [0]);
    assert!(matches!(end, Ok(0)), "the server waits for the rest: {end:?}");
    stopper.stop();
    thread.join().expect("no panic");
}
