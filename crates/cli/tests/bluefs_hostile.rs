//! Clients that lie, hoard and flood, each against a server with TLS: what they are told, what the server's memory is
//! afterwards, and how long an honest client has waited meanwhile.
//!
//! `cargo xtask hostile` sets `BLUEFS_HOSTILE=all`: more of everything, and a table.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bluefs::lease::EXCLUSIVE_TERM_MS;
use bluefs::op::{Change, Content, Effect};
use bluefs::query::{Answer, Query};
use bluefs::{Cred, Csn, Group, Ino, Interval, Key, Kind, Name, Runs, SessionId, Step};
use bluefs_client::{Client, OnDisconnect, Ticket};
use bluefs_net::{Receiver, Sender};
use bluefs_wire::{encode, LockKind, LockRequest, Reply, Request, PROTOCOL_VERSION};

use crate::bluefs_support::{speculator, succeeds, Scene, Server};

/// How long the honest client may wait for one operation: for several terms of leases, on a machine with other work.
const WAIT_MAX: Duration = Duration::from_secs(25);
/// The same beside one who takes exclusive leases: it meets one, and another one may begin meanwhile.
const ALONE_WAIT_MAX: Duration = Duration::from_millis(2 * EXCLUSIVE_TERM_MS + 2_000);
/// MiB that the server may have in the end, and at any moment.
const GROWN_MIB_MAX: u64 = 200;
const PEAK_MIB_MAX: u64 = 1200;
/// How long memory that was given back may be in use.
const SETTLES: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether everything is tried.
fn all() -> bool {
    std::env::var("BLUEFS_HOSTILE").is_ok_and(|what| what == "all")
}

/// So many if everything is tried.
fn many(some: usize, many: usize) -> usize {
    if all() {
        many
    } else {
        some
    }
}

struct Siege {
    scene: Scene,
    server: Server,
    store: PathBuf,
    hostile: Ticket,
    honest: Arc<Honest>,
}

/// An honest client that works all the time.
struct Honest {
    longest: Mutex<(Duration, u64)>,
    ends: AtomicBool,
    file: Mutex<Option<Ino>>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn creation(text: &str) -> Change {
    let (dir, name, kind) = (Ino::ROOT, name(text), Kind::File);
    Change::Create { dir, name, ino: None, kind, mode: 0o644, rdev: 0, target: vec![] }
}

impl Honest {
    fn work(&self, client: &Client) {
        let root = Cred::root();
        let made = client.change_told(&root, creation("honest"), &|| false).expect("made");
        let Effect::Created(ino) = made.effect else { panic!("{made:?}") };
        *self.file.lock().expect("no panic") = Some(ino);
        let mut said = 0;
        while !self.ends.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let append = Change::Append { ino, content: Content::Inline(vec![b'x']) };
            client.change_told(&root, append, &|| false).expect("an honest client keeps its service");
            said += 1;
            let read = client.read(&root, ino, said - 1, 2, &|| false).expect("read");
            assert_eq!(read, b"x");
            let mut longest = self.longest.lock().expect("no panic");
            *longest = (longest.0.max(begun.elapsed()), longest.1 + 1);
            drop(longest);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn file(&self) -> Ino {
        loop {
            if let Some(ino) = *self.file.lock().expect("no panic") {
                return ino;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn from_hex(text: &str) -> [u8; 32] {
    let bytes = (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("a number"));
    bytes.collect::<Vec<u8>>().try_into().expect("32 bytes")
}

fn invite(store: &Path, options: &[&str]) -> Ticket {
    let told = succeeds(speculator().arg("invite").arg(store).args(options));
    let words: Vec<&str> = told.split_whitespace().collect();
    Ticket { fingerprint: from_hex(words[2]), secret: from_hex(words[3]) }
}

/// What a hostile client was told before its connection ended.
fn told(receiver: &mut Receiver) -> String {
    let begun = Instant::now();
    // Tens of thousands of replies take long on a machine that is busy.
    while begun.elapsed() < 4 * PATIENCE {
        match receiver.receive::<Reply>() {
            Ok(Some(Reply::Refused { text, .. })) => return String::from_utf8_lossy(&text).into_owned(),
            Ok(Some(Reply::Decided { outcome, .. })) => return format!("{outcome:?}"),
            Ok(Some(Reply::Error { errno, .. })) => return format!("errno {}", errno.0),
            Ok(Some(_)) => {}
            Ok(None) => return "the connection ends".to_owned(),
            Err(error) if bluefs_net::is_timeout(&error) => return "nothing".to_owned(),
            Err(_) => return "the connection ends".to_owned(),
        }
    }
    "no end".to_owned()
}

/// A connection of somebody who says what they like.
struct Line(Receiver, Sender);

impl Line {
    fn send(&mut self, request: &Request) -> bool {
        self.1.send(request).is_ok()
    }

    fn says(&mut self, request: &Request) -> String {
        // The server may have ended the connection already: then that is what is told.
        let _ = self.1.send(request);
        told(&mut self.0)
    }

    /// A message that the codec would not write, in a frame whose checksum is right.
    fn says_bytes(&mut self, body: &[u8]) -> String {
        let frame = [&(body.len() as u32).to_le_bytes()[..], &crc32(body).to_le_bytes(), body].concat();
        let _ = self.1.send_frame(&frame);
        told(&mut self.0)
    }
}

/// Carries out a creation: the number of what was made.
fn made(line: &mut Line, interval: Interval) -> Ino {
    let said = line.says(&Request::Submit { interval });
    let number = said.rsplit("Created(Ino(").next().unwrap_or_default();
    let number: String = number.chars().take_while(char::is_ascii_digit).collect();
    Ino(number.parse().unwrap_or_else(|_| panic!("{said}")))
}

/// CRC-32 of ISO 3309, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

impl Siege {
    fn new() -> Siege {
        let scene = Scene::new();
        let store = scene.path("store");
        let options = ["--listen", "127.0.0.1:0", "--volume", "work", "--volume", "other", "--lease-term", "1000"];
        let server = Server::with(&store, &options);
        let hostile = invite(&store, &["--volume", "work"]);
        let ticket = invite(&store, &["--volume", "work"]);
        let address = format!("{}/work", server.address).parse().expect("an address");
        let client = Client::connect(address, Some(ticket), OnDisconnect::Block).expect("connected");
        let (ends, file) = (AtomicBool::new(false), Mutex::default());
        let honest = Arc::new(Honest { longest: Mutex::default(), ends, file });
        let works = honest.clone();
        std::thread::spawn(move || works.work(&client));
        honest.file();
        Siege { scene, server, store, hostile, honest }
    }

    fn socket(&self) -> TcpStream {
        let at = self.server.address.trim_start_matches("bluefs://");
        let socket = TcpStream::connect(at).expect("connected");
        let set = socket.set_read_timeout(Some(PATIENCE)).and_then(|()| socket.set_write_timeout(Some(PATIENCE)));
        set.expect("a socket");
        socket
    }

    fn line(&self) -> Line {
        let (receiver, sender) = bluefs_net::connect(self.socket(), self.hostile.fingerprint).expect("TLS");
        Line(receiver, sender)
    }

    fn hello(&self, volume: &str, secret: &[u8]) -> Request {
        let (volume, secret) = (volume.as_bytes().to_vec(), secret.to_vec());
        Request::Hello { version: PROTOCOL_VERSION, volume, session: None, acknowledged: 0, secret }
    }

    /// A hostile client that is in.
    fn inside(&self) -> Line {
        let mut line = self.line();
        assert!(line.send(&self.hello("work", &self.hostile.secret)));
        let welcome = line.0.receive::<Reply>().expect("a reply");
        assert!(matches!(welcome, Some(Reply::Welcome { .. })), "{welcome:?}");
        line
    }

    fn interval(&self, number: u64, change: Change) -> Interval {
        let (creds, steps) = (vec![Cred::root()], vec![Step { cred: 0, time: None, change }]);
        Interval { number, base: Csn(0), after: Runs::new(), reads: vec![], creds, steps }
    }

    fn change(&self, change: Change) -> String {
        self.inside().says(&Request::Submit { interval: self.interval(1, change) })
    }

    /// MiB of the server.
    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("a line");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
    }

    /// One kind of hostility: it is told something that contains `expected`, and all others go on.
    fn row(&self, what: &str, expected: &str, hostile: impl FnOnce(&Siege) -> String) {
        self.row_within(WAIT_MAX, what, expected, hostile);
    }

    /// The same, with another bound of what the honest client may wait.
    fn row_within(&self, max: Duration, what: &str, expected: &str, hostile: impl FnOnce(&Siege) -> String) {
        let before = self.memory("VmRSS:");
        *self.honest.longest.lock().expect("no panic") = (Duration::ZERO, 0);
        let said = hostile(self);
        // The honest client is to have done something meanwhile, and what it waits for now counts as well.
        let (begun, done) = (Instant::now(), || *self.honest.longest.lock().expect("no panic"));
        let first = done().1;
        while done().1 == first {
            assert!(begun.elapsed() < WAIT_MAX, "{what}: the honest client waits");
            std::thread::sleep(Duration::from_millis(2));
        }
        let begun = Instant::now();
        while self.memory("VmRSS:") > before + 8 && begun.elapsed() < SETTLES {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (longest, count) = done();
        let after = self.memory("VmRSS:");
        println!("{what:44} {before:4} {after:4} MiB   {:6.0} ms of {count:4}   {said}", longest.as_secs_f64() * 1e3);
        assert!(said.contains(expected), "{what}: {said}");
        assert!(longest < max, "{what}: the honest client has waited for {longest:?}");
    }

    /// What is in the volume of both. The other one is empty.
    fn names(&self, volume: &str, secret: &[u8]) -> Vec<String> {
        let mut line = self.line();
        assert!(line.send(&self.hello(volume, secret)));
        let query = Query::List { dir: Ino::ROOT, after: None, max: 1000 };
        assert!(line.send(&Request::Ask { tag: 1, cred: Cred::root(), query }));
        loop {
            if let Some(Reply::Answer { answer: Answer::Names { names, .. }, .. }) = line.0.receive().expect("a reply")
            {
                return names.iter().map(|(name, ..)| String::from_utf8_lossy(name.as_bytes()).into_owned()).collect();
            }
        }
    }

    /// Only these names are in the volume that the hostile client may use, and nothing in the other one.
    fn has_only(&self, names: &[&str]) {
        assert_eq!(self.names("work", &self.hostile.secret), names);
        let other = invite(&self.store, &["--volume", "other"]);
        assert!(self.names("other", &other.secret).is_empty());
    }
}

impl Drop for Siege {
    fn drop(&mut self) {
        self.honest.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn whoever_is_not_invited_is_refused() {
    let siege = Siege::new();
    let none = "no such volume, or no right to it";
    let hello = |siege: &Siege, volume: &str, secret: &[u8]| siege.line().says(&siege.hello(volume, secret));
    siege.row("no invitation", none, |siege| hello(siege, "work", b""));
    siege.row("a wrong one", none, |siege| hello(siege, "work", &[7; 32]));
    siege.row("one for another volume", none, |siege| hello(siege, "other", &siege.hostile.secret));
    siege.row("one for a volume that is not there", none, |siege| hello(siege, "none", &siege.hostile.secret));
    let expired = invite(&siege.store, &["--volume", "work", "--expires", "0s"]);
    siege.row("one that has expired", none, |siege| hello(siege, "work", &expired.secret));
    let withdrawn = invite(&siege.store, &["--volume", "work", "--read-only"]);
    siege.row("one to read: a change", "errno: Errno(30)", |siege| {
        let mut line = siege.line();
        line.send(&siege.hello("work", &withdrawn.secret));
        line.says(&Request::Submit { interval: siege.interval(1, creation("read-only")) })
    });
    let listed = succeeds(speculator().arg("invite").arg(&siege.store).arg("--list"));
    let number = listed.lines().find(|line| line.contains("read-only")).expect("it is listed").split(' ').next();
    let mut line = siege.line();
    line.send(&siege.hello("work", &withdrawn.secret));
    // Not before it was let in.
    line.0.receive::<Reply>().expect("a reply");
    succeeds(speculator().arg("invite").arg(&siege.store).args(["--withdraw", number.expect("a number")]));
    siege.row("one that is withdrawn meanwhile", "withdrawn or has expired", |_| told(&mut line.0));
    siege.row("one that was withdrawn", none, |siege| hello(siege, "work", &withdrawn.secret));
    siege.row("another's session", "not known", |siege| {
        let (volume, secret) = (b"work".to_vec(), siege.hostile.secret.to_vec());
        let session = Some((SessionId(1), 0));
        let hello = Request::Hello { version: PROTOCOL_VERSION, volume, session, acknowledged: 0, secret };
        siege.line().says(&hello)
    });
    siege.row("another version", "versions 1 to 3", |siege| {
        let (volume, secret) = (b"work".to_vec(), siege.hostile.secret.to_vec());
        siege.line().says(&Request::Hello { version: 9, volume, session: None, acknowledged: 0, secret })
    });
    siege.row("no hello", "begins with one hello", |siege| siege.line().says(&Request::Ping { tag: 1 }));
    siege.row("two hellos", "begins with one hello", |siege| {
        let hello = siege.hello("work", &siege.hostile.secret);
        siege.inside().says(&hello)
    });
    siege.row("bytes that are no TLS", "an end", |siege| {
        let mut socket = siege.socket();
        socket.write_all(b"GET / HTTP/1.1\r\nHost: bluefs\r\n\r\n").expect("sent");
        let mut answer = Vec::new();
        // An alert, then the end; or a reset.
        let _ = socket.read_to_end(&mut answer);
        format!("an end, after {} bytes", answer.len())
    });
    siege.has_only(&["honest"]);
}

#[test]
fn whoever_lies_harms_nobody_else() {
    let siege = Siege::new();
    let ends = "the connection ends";
    siege.row("a base in the future", "Committed", |siege| {
        let reads = vec![Key::Listing(Ino::ROOT)];
        let interval = Interval { base: Csn(u64::MAX), reads, ..siege.interval(1, creation("future")) };
        siege.inside().says(&Request::Submit { interval })
    });
    siege.row("a dependency on what comes later", "Failed", |siege| {
        let mut after = Runs::new();
        after.insert(99);
        let interval = Interval { after, ..siege.interval(1, creation("later")) };
        siege.inside().says(&Request::Submit { interval })
    });
    for number in [0, u64::MAX] {
        siege.row(&format!("an interval with the number {number}"), "", |siege| {
            siege.inside().says(&Request::Submit { interval: siege.interval(number, creation("number")) })
        });
    }
    siege.row("a frame of 4 GiB", ends, |siege| {
        let mut line = siege.inside();
        let _ = line.1.send_frame(&[0xff; 8]);
        told(&mut line.0)
    });
    siege.row("a list of 2^32 keys", ends, |siege| {
        let body = [&encode(&Request::Exclusive { tag: 1, keys: vec![] })[..9], &[0xff; 4]].concat();
        siege.inside().says_bytes(&body)
    });
    let long = "n".repeat(64 << 10);
    for bad in ["..", ".", "a/b", "a\0b", "", &long] {
        let shown = if bad.len() > 10 { "64 KiB".to_owned() } else { format!("{bad:?}") };
        siege.row(&format!("a name: {shown}"), ends, |siege| {
            let body = encode(&Request::Submit { interval: siege.interval(1, creation("NAME")) });
            let at = body.windows(4).position(|part| part == b"NAME").expect("there");
            let with = [&(bad.len() as u32).to_le_bytes()[..], bad.as_bytes()].concat();
            siege.inside().says_bytes(&[&body[..at - 4], &with, &body[at + 4..]].concat())
        });
    }
    siege.row("a write behind the end of numbers", "Failed", |siege| {
        let (ino, content) = (siege.honest.file(), Content::Inline(vec![b'y'; 9]));
        siege.change(Change::Write { ino, offset: u64::MAX - 3, content })
    });
    siege.row("contents that were not staged", "Failed", |siege| {
        let (ino, content) = (siege.honest.file(), Content::Staged(7));
        siege.change(Change::Write { ino, offset: 0, content })
    });
    siege.row("an inode number that was not lent", "Failed", |siege| {
        let (dir, name, ino, kind) = (Ino::ROOT, name("lent"), Some(Ino(1 << 40)), Kind::File);
        siege.change(Change::Create { dir, name, ino, kind, mode: 0o644, rdev: 0, target: vec![] })
    });
    siege.has_only(&["future", "honest", "number"]);
}

#[test]
fn whoever_hoards_or_floods_is_bounded() {
    let siege = Siege::new();
    let before = siege.memory("VmRSS:");
    siege.row("leases", "groups", |siege| {
        let mut line = siege.inside();
        let asked = many(20_000, 100_000) as u64;
        for group in 0..asked {
            line.send(&Request::Lease { tag: group, group: Group(group) });
        }
        let mut granted = 0;
        let mut answered = 0;
        while answered < asked {
            if let Ok(Some(reply)) = line.0.receive::<Reply>() {
                answered += u64::from(matches!(reply, Reply::Leased { .. }));
                granted += u64::from(matches!(reply, Reply::Leased { granted: true, .. }));
            }
        }
        format!("{granted} of {asked} groups")
    });
    siege.row_within(ALONE_WAIT_MAX, "exclusive leases, again and again", "granted", |siege| {
        let mut line = siege.inside();
        let (keys, begun) = (vec![Key::Data(siege.honest.file())], Instant::now());
        let mut granted = 0;
        while begun.elapsed() < Duration::from_secs(many(8, 20) as u64) {
            line.send(&Request::Exclusive { tag: 1, keys: keys.clone() });
            while let Ok(Some(reply)) = line.0.receive::<Reply>() {
                if let Reply::Leased { granted: is_granted, .. } = reply {
                    granted += u64::from(is_granted);
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        format!("granted {granted} times")
    });
    siege.row_within(ALONE_WAIT_MAX, "exclusive leases, 1000 at once", "", |siege| {
        let mut line = siege.inside();
        let keys = vec![Key::Data(siege.honest.file())];
        (0..1000).for_each(|tag| _ = line.send(&Request::Exclusive { tag, keys: keys.clone() }));
        let (mut answered, mut granted) = (0, 0);
        while answered < 1000 {
            let Ok(Some(reply)) = line.0.receive::<Reply>() else { break };
            answered += u64::from(matches!(reply, Reply::Leased { .. }));
            granted += u64::from(matches!(reply, Reply::Leased { granted: true, .. }));
        }
        format!("granted {granted} times, {answered} answers")
    });
    siege.row("staged contents", "too much is staged", |siege| {
        let mut line = siege.inside();
        (0..200).for_each(|id| _ = line.send(&Request::Stage { id, data: vec![b'y'; 1 << 20] }));
        told(&mut line.0)
    });
    siege.row("locks", "errno 37", |siege| {
        let mut line = siege.inside();
        let (ino, kind, wait) = (siege.honest.file(), LockKind::Shared, false);
        for tag in 0..65_600 {
            line.send(&Request::Lock {
                tag,
                lock: LockRequest { ino, owner: 1, kind, start: 2 * tag, end: 2 * tag, wait },
            });
        }
        told(&mut line.0)
    });
    siege.row("connections", "the invitation has too many connections", |siege| {
        let mut lines: Vec<Line> = (0..512).map(|_| siege.inside()).collect();
        let mut one_more = siege.line();
        let said = one_more.says(&siege.hello("work", &siege.hostile.secret));
        lines.clear();
        said
    });
    siege.row("half-open connections", "another one comes in", |siege| {
        let silent: Vec<TcpStream> = (0..many(400, 1500)).map(|_| siege.socket()).collect();
        let half: Vec<TcpStream> = (0..many(100, 500))
            .map(|_| {
                let mut socket = siege.socket();
                // The beginning of a handshake of TLS that says it has 512 bytes. The server may have ended it.
                let _ = socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0]);
                socket
            })
            .collect();
        let begun = Instant::now();
        drop(siege.inside());
        let said = format!("another one comes in after {:?}", begun.elapsed());
        drop((silent, half));
        said
    });
    siege.row("questions whose answers are not read", "ended", |siege| {
        let mut line = siege.inside();
        let ino = made(&mut line, siege.interval(1, creation("unread")));
        let write = Change::Write { ino, offset: 0, content: Content::Inline(vec![b'y'; 1 << 20]) };
        line.says(&Request::Submit { interval: siege.interval(2, write) });
        let query = Query::Read { ino, offset: 0, len: 1 << 20 };
        let asked = (0..1_000_000)
            .take_while(|tag| line.send(&Request::Ask { tag: *tag, cred: Cred::root(), query: query.clone() }))
            .count();
        format!("ended after {asked} of them")
    });
    siege.row("floods of questions by 8 connections", "", |siege| {
        let begun = Instant::now();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let Line(mut receiver, mut sender) = siege.inside();
                let reads = std::thread::spawn(move || while let Ok(Some(_)) = receiver.receive::<Reply>() {});
                let query = Query::ListPlus { dir: Ino::ROOT, after: None, max: 1024 };
                let asks = std::thread::spawn(move || {
                    let mut asked = 0;
                    while begun.elapsed() < Duration::from_secs(many(2, 10) as u64) {
                        let ask = Request::Ask { tag: asked, cred: Cred::root(), query: query.clone() };
                        if sender.send(&ask).is_err() {
                            break;
                        }
                        asked += 1;
                    }
                    let _ = sender.send(&Request::Goodbye {});
                    asked
                });
                (asks, reads)
            })
            .collect();
        let asked: u64 = threads.into_iter().map(|(asks, _)| asks.join().expect("no panic")).sum();
        format!("{asked} questions")
    });
    siege.row("large changes by 8 connections", "", |siege| {
        let begun = Instant::now();
        let threads: Vec<_> = (0..8)
            .map(|each| {
                let mut line = siege.inside();
                let ino = made(&mut line, siege.interval(1, creation(&format!("large-{each}"))));
                let content = Content::Inline(vec![b'z'; 1 << 20]);
                let next = siege.interval(0, Change::Write { ino, offset: 0, content });
                let Line(mut receiver, mut sender) = line;
                let reads = std::thread::spawn(move || while let Ok(Some(_)) = receiver.receive::<Reply>() {});
                let asks = std::thread::spawn(move || {
                    let mut number = 1;
                    while begun.elapsed() < Duration::from_secs(many(2, 10) as u64) {
                        number += 1;
                        let interval = Interval { number, ..next.clone() };
                        if sender.send(&Request::Submit { interval }).is_err() {
                            break;
                        }
                        let _ = sender.send(&Request::Acknowledge { number: number - 1 });
                    }
                    number
                });
                (asks, reads)
            })
            .collect();
        let asked: u64 = threads.into_iter().map(|(asks, _)| asks.join().expect("no panic")).sum();
        format!("{asked} MiB")
    });
    let (after, peak) = (siege.memory("VmRSS:"), siege.memory("VmHWM:"));
    println!("memory of the server: {before} MiB before, {after} MiB after, {peak} MiB at most");
    assert!(after < before + GROWN_MIB_MAX && peak < PEAK_MIB_MAX, "{before}, {after}, {peak} MiB");
    assert!(siege.scene.path("store").is_dir());
    let large: Vec<String> = (0..8).map(|each| format!("large-{each}")).collect();
    let names = ["honest"].into_iter().chain(large.iter().map(String::as_str)).chain(["unread"]);
    siege.has_only(&names.collect::<Vec<_>>());
}
