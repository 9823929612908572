//! A server that says anything: answers with made-up numbers, to questions that nobody has asked, bytes that were
//! changed on the way. Whatever it says, the client's callers get an answer or an error, and nothing of it panics.
//!
//! One seed is one server. `cargo xtask fuzz` tries them for as long as it is told.

#[path = "support/fuzz.rs"]
mod fuzz;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bluefs::op::{Content, Effect, Failure, Inode, SetAttr, Value};
use bluefs::query::{Answer, Query};
use bluefs::tree::{Entry, Space};
use bluefs::{Change, Cred, Csn, Errno, Group, Ino, Key, Kind, Name, Outcome, SessionId, Time};
use bluefs_client::{Batch, Client, Disk, OnDisconnect, BYTES_MAX_MIN};
use bluefs_wire::{encode, frame, Frames, LockKind, LockRequest, Refusal, Reply, Request};
use fuzz::{for_seeds, Dice};

const SEEDS: u64 = 60;
/// Calls of one client.
const CALLS: u64 = 25;
/// How long a call may take: it gives up after a part of that.
const CALL_MAX: Duration = Duration::from_secs(5);
const GIVES_UP: Duration = Duration::from_millis(50);
/// MiB that may be used in the end.
const USED_MIB_MAX: u64 = 512;

impl Dice {
    fn name(&mut self) -> Name {
        let names: [&[u8]; 5] = [b"a", b"b", b"c", b"...", &[b'n'; 255]];
        Name::new(names[self.roll(5) as usize]).expect("a name")
    }

    fn kind(&mut self) -> Kind {
        [Kind::File, Kind::Dir, Kind::Symlink, Kind::Char][self.roll(4) as usize]
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 100, 4096, 16_384, 50_000][self.roll(6) as usize];
        vec![self.roll(256) as u8; len]
    }

    fn inode(&mut self) -> Inode {
        Inode {
            kind: self.kind(),
            mode: 0o777,
            uid: self.roll(2) as u32,
            gid: 0,
            nlink: self.number() as u32,
            size: self.number(),
            blocks: self.number(),
            rdev: 0,
            atime: Time(self.number() as i64),
            mtime: Time(self.number() as i64),
            ctime: Time(0),
            parent: self.ino(),
            target: self.bytes().into_iter().take(100).collect(),
        }
    }

    fn key(&mut self) -> Key {
        match self.roll(5) {
            0 => Key::Data(self.ino()),
            1 => Key::Attr(self.ino()),
            2 => Key::Name(self.ino(), self.name()),
            3 => Key::Xattr(self.ino()),
            _ => Key::Listing(self.ino()),
        }
    }

    fn answer(&mut self, query: Option<&Query>) -> Answer {
        let fits = self.roll(4) != 0;
        let kind = match query {
            Some(Query::Inode(_) | Query::Lookup { .. }) if fits => 0,
            Some(Query::List { .. }) if fits => 1,
            Some(Query::Read { .. } | Query::Xattr { .. }) if fits => 2,
            Some(Query::Xattrs(_)) if fits => 3,
            Some(Query::Space) if fits => 4,
            Some(Query::ListPlus { .. }) if fits => 5,
            _ => self.roll(6),
        };
        let (count, end) = (self.roll(4), self.roll(2) == 0);
        match kind {
            0 => Answer::Inode(self.ino(), self.inode()),
            1 => Answer::Names { names: (0..count).map(|_| (self.name(), self.ino(), self.kind())).collect(), end },
            2 => Answer::Bytes(self.bytes()),
            3 => Answer::Xattrs((0..count).map(|_| self.name()).collect()),
            4 => Answer::Space(Space { used_bytes: self.number(), max_bytes: self.number(), ..Space::fresh() }),
            _ => {
                Answer::Entries { entries: (0..count).map(|_| (self.name(), self.ino(), self.inode())).collect(), end }
            }
        }
    }

    fn outcome(&mut self) -> Outcome {
        let effects = (0..self.roll(3)).map(|_| match self.roll(3) {
            0 => Effect::Done,
            1 => Effect::Created(self.ino()),
            _ => Effect::Wrote { offset: self.number(), size: self.number() },
        });
        let effects = effects.collect();
        match self.roll(6) {
            0 => Outcome::Failed(Failure::TooOld),
            1 => Outcome::Failed(Failure::Dependency(self.number())),
            2 => Outcome::Failed(Failure::Refused { step: self.number() as u32, errno: Errno(self.roll(200) as u16) }),
            3 => Outcome::Failed(Failure::Conflict(vec![(self.key(), Value::Inode(Some(self.inode())))])),
            _ => Outcome::Committed { csn: Csn(self.number()), effects },
        }
    }

    /// Something that nobody has asked for.
    fn unasked(&mut self, tag: u64) -> Reply {
        let (csn, number, group) = (Csn(self.number()), self.number(), Group(self.number()));
        match self.roll(15) {
            0 => Reply::Invalidate { csn, keys: vec![self.key(), self.key()] },
            1 => Reply::Leased { tag, granted: self.roll(2) == 0 },
            2 => Reply::Recall { group },
            3 => Reply::Lent { tag, group },
            4 => Reply::Locked { tag },
            5 => Reply::Orphan { ino: self.ino() },
            6 => Reply::Pong { tag },
            7 => Reply::Granted { tag, groups: vec![group, Group(self.number()), Group(0)] },
            8 => {
                let (inodes, entry) = (vec![(self.ino(), Some(self.inode())), (self.ino(), None)], self.ino());
                let names = vec![(self.ino(), self.name(), Some(Entry { ino: entry, kind: self.kind() }))];
                Reply::Changed { number: self.roll(8), csn, keys: vec![self.key(), self.key()], inodes, names }
            }
            9 => Reply::Decided { number: self.roll(8), outcome: self.outcome() },
            10 => Reply::Error { tag, csn, errno: Errno(self.roll(200) as u16) },
            11 => Reply::Tested { tag, other: None },
            12 => Reply::History { tag, volume: self.number(), starts: vec![(self.number(), csn)] },
            13 => Reply::Versions { tag, csn, versions: vec![Some(csn), None] },
            _ => Reply::Decided { number, outcome: self.outcome() },
        }
    }

    /// What it says to a request.
    fn reply(&mut self, request: &Request) -> Option<Reply> {
        let csn = Csn(self.roll(10));
        Some(match request {
            Request::Ask { tag, query, .. } | Request::AskLeased { tag, query, .. } => {
                Reply::Answer { tag: *tag, csn, answer: self.answer(Some(query)) }
            }
            Request::Submit { interval } => Reply::Decided { number: interval.number, outcome: self.outcome() },
            Request::Lease { tag, .. } | Request::LeaseNow { tag, .. } | Request::Exclusive { tag, .. } => {
                Reply::Leased { tag: *tag, granted: self.roll(4) != 0 }
            }
            Request::Lend { tag } => Reply::Lent { tag: *tag, group: Group(self.number()) },
            Request::Lock { tag, .. } | Request::Reclaim { tag, .. } => Reply::Locked { tag: *tag },
            Request::TestLock { tag, lock } => Reply::Tested { tag: *tag, other: Some(*lock) },
            Request::Ping { tag } => Reply::Pong { tag: *tag },
            Request::History { tag } => Reply::History { tag: *tag, volume: 1, starts: vec![(self.roll(3), csn)] },
            Request::Versions { tag, .. } => Reply::Versions { tag: *tag, csn, versions: vec![Some(csn)] },
            _ => return None,
        })
    }

    fn welcome(&mut self) -> Reply {
        let (epoch, csn, last, lease_ms) = (self.number(), Csn(self.roll(5)), self.number(), self.number());
        let lease_ms = if self.roll(2) == 0 { 10_000 } else { lease_ms };
        match self.roll(12) {
            0 => Reply::Refused { why: Refusal::Session, text: b"no".to_vec() },
            1 => self.unasked(0),
            _ => Reply::Welcome {
                session: SessionId(self.number()),
                epoch,
                csn,
                last,
                now: self.number() as i64,
                lease_ms,
                read_only: self.roll(4) == 0,
            },
        }
    }

    /// Bytes of a reply, as they arrive.
    fn sent(&mut self, reply: &Reply) -> Vec<u8> {
        let mut bytes = frame(reply);
        if self.roll(60) == 0 {
            let at = self.roll(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.roll(8);
        }
        bytes
    }
}

/// Serves one connection after the other, until the client is gone.
fn serve(listener: &TcpListener, dice: &mut Dice) {
    listener.set_nonblocking(true).expect("a socket");
    let begun = Instant::now();
    let mut idle = Instant::now();
    while idle.elapsed() < Duration::from_millis(300) && begun.elapsed() < CALL_MAX * 6 {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).expect("a socket");
                // The client may end the connection at any time.
                let _ = talk(socket, dice);
                idle = Instant::now();
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn talk(mut socket: TcpStream, dice: &mut Dice) -> std::io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (mut frames, mut bytes) = (Frames::new(), vec![0; 65_536]);
    let budget = 1 + dice.roll(60);
    for _ in 0..budget {
        let len = socket.read(&mut bytes)?;
        if len == 0 {
            return Ok(());
        }
        frames.push(&bytes[..len]);
        while let Ok(Some(request)) = frames.next_message::<Request>() {
            let reply = match &request {
                Request::Hello { .. } => Some(dice.welcome()),
                request if dice.roll(10) != 0 => dice.reply(request),
                _ => None,
            };
            let unasked = (dice.roll(3) == 0).then(|| {
                let tag = dice.roll(12);
                dice.unasked(tag)
            });
            // What is asked for is told ahead as well: leases come before their answers.
            for reply in unasked.into_iter().chain(reply) {
                assert!(!encode(&reply).is_empty());
                socket.write_all(&dice.sent(&reply))?;
            }
        }
    }
    Ok(())
}

fn call(client: &Client, dice: &mut Dice) {
    let cred = Cred::root();
    let begun = Instant::now();
    let gives_up = || begun.elapsed() > GIVES_UP;
    let (ino, dir, name, offset) = (dice.ino(), Ino(1 + dice.roll(3)), dice.name(), dice.number());
    let lock = LockRequest { ino, owner: 1, kind: LockKind::Exclusive, start: 0, end: offset, wait: true };
    match dice.roll(14) {
        0 => drop(client.look(&cred, Query::Inode(ino), &gives_up)),
        1 | 2 => drop(client.look(&cred, Query::Lookup { dir, name }, &gives_up)),
        3 => drop(client.look(&cred, Query::ListPlus { dir, after: None, max: 100 }, &gives_up)),
        4 | 5 => drop(client.read(&cred, ino, offset.min(1 << 62), 1 + dice.roll(100_000) as u32, &gives_up)),
        6 => {
            let (kind, target) = (Kind::File, vec![]);
            let create = Change::Create { dir, name, ino: None, kind, mode: 0o644, rdev: 0, target };
            drop(client.change_told(&cred, create, &gives_up));
        }
        7 => drop(client.change_told(&cred, Change::Append { ino, content: Content::Inline(dice.bytes()) }, &gives_up)),
        8 => {
            let set = SetAttr { size: Some(offset), ..SetAttr::default() };
            drop(client.change_told(&cred, Change::SetAttr { ino, set }, &gives_up));
        }
        9 => drop(client.lock(lock, &gives_up)),
        10 => drop(client.unlock(LockRequest { kind: LockKind::Unlock, ..lock }, &gives_up)),
        11 => drop(client.test_lock(lock, &gives_up)),
        12 => {
            client.opening().opened(ino);
            client.close(ino);
        }
        _ => drop(client.known_for(&cred, &Query::Lookup { dir, name })),
    }
    let took = begun.elapsed();
    assert!(took < CALL_MAX, "{took:?}");
}

fn history(seed: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("bluefs://{}/", listener.local_addr().expect("an address")).parse().expect("an address");
    let mut dice = Dice::new(seed.wrapping_mul(2));
    let server = std::thread::spawn(move || serve(&listener, &mut dice));
    // A server may refuse at once: that is an answer.
    let dir = tempfile::tempdir().expect("a directory");
    let disk = seed.is_multiple_of(2).then(|| Disk::open(dir.path(), BYTES_MAX_MIN).expect("a cache"));
    if let Ok(client) = Client::connect_with(address, None, OnDisconnect::Error, disk) {
        let mut dice = Dice::new(seed.wrapping_mul(2) + 1);
        (0..CALLS).for_each(|_| call(&client, &mut dice));
        if dice.roll(4) == 0 {
            let batch = Batch::parse("mkdir a\nwrite a/b x\nappend c y\nrename b c\n").expect("a list");
            let _ = batch.run(&client, &Cred::root());
        }
        client.counts();
    }
    server.join().expect("no panic");
}

#[test]
fn a_server_that_says_anything_ends_no_client() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        hook(info);
    }));
    // They wait for each other more than they compute.
    for_seeds(SEEDS, 10, USED_MIB_MAX, |seeds| {
        std::thread::scope(|scope| seeds.clone().for_each(|seed| _ = scope.spawn(move || history(seed))));
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "one of the seeds {seeds:?}");
    });
}

/// Who connects goes on when the connection was there, also if it is gone before anybody looks and never comes back.
#[test]
fn a_server_that_goes_at_once_keeps_nobody_waiting() {
    let welcome = Reply::Welcome {
        session: SessionId(1),
        epoch: 1,
        csn: Csn(0),
        last: 0,
        now: 0,
        lease_ms: 10_000,
        read_only: false,
    };
    for _ in 0..100 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("bluefs://{}/", listener.local_addr().expect("an address")).parse().expect("an address");
        let welcome = encode(&welcome);
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            let _ = socket.read(&mut [0; 1000]);
            let sum = crc32fast::hash(&welcome).to_le_bytes();
            let _ = socket.write_all(&[&(welcome.len() as u32).to_le_bytes()[..], &sum, &welcome].concat());
        });
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(Client::connect(address, None, OnDisconnect::Error).is_ok()));
        assert!(told.recv_timeout(CALL_MAX).is_ok(), "it still waits");
        server.join().expect("no panic");
    }
}
