//! Caches of several clients against the server: what a client knows under a lease is what the server would say.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bluefs::op::{Content, Effect, RenameMode, SetAttr, XattrMode};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Errno, Ino, Kind, Name};
use bluefs_client::{Address, Client, OnDisconnect};
use bluefs_server::{Everybody, Server, Stopper};
use bluefs_store::Store;

/// A server that grants leases at once, also where others have just written.
struct Scene {
    address: Address,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open_or_create(&dir.path().join("store")).expect("a store").store;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("bluefs://{}/", listener.local_addr().expect("an address")).parse().expect("an address");
        let mut server = Server::new(store).expect("a server");
        server.set_quiet(0);
        let stopper = server.stopper();
        let run = move || server.run(listener, None, Box::new(Everybody)).expect("it ends well");
        Scene { address, stopper, thread: Some(std::thread::spawn(run)), _dir: dir }
    }

    /// A client that hears everything late.
    fn late_client(&self) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let server = (self.address.host.clone(), self.address.port);
        std::thread::spawn(move || {
            let (client, _) = listener.accept().expect("a client");
            let server = TcpStream::connect((server.0.as_str(), server.1)).expect("a server");
            let clone = |socket: &TcpStream| socket.try_clone().expect("a socket");
            let (from, to) = (clone(&client), clone(&server));
            std::thread::spawn(move || pass(from, to, Duration::ZERO));
            pass(server, client, LATE);
        });
        let address = format!("bluefs://{at}/").parse().expect("an address");
        Client::connect(address, None, OnDisconnect::Block).expect("connected")
    }

    fn client(&self) -> Client {
        Client::connect(self.address.clone(), None, OnDisconnect::Block).expect("connected")
    }
}

/// How late.
const LATE: Duration = Duration::from_millis(150);

fn pass(mut from: TcpStream, mut to: TcpStream, late: Duration) {
    let mut bytes = [0; 65_536];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        std::thread::sleep(late);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().expect("once").join().expect("no panic");
    }
}

/// A generator of numbers that look random, always the same ones.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn name(&mut self) -> Name {
        name(["a", "b", "c", "d"][self.roll(4) as usize])
    }

    fn ino(&mut self, known: &[Ino]) -> Ino {
        known[self.roll(known.len() as u64) as usize]
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn change(dice: &mut Dice, known: &[Ino]) -> Change {
    let (ino, dir, to_dir) = (dice.ino(known), dice.ino(known), dice.ino(known));
    let (name, to) = (dice.name(), dice.name());
    let data = vec![b'a' + dice.roll(26) as u8; 1 + dice.roll(40_000) as usize];
    match dice.roll(14) {
        0..=2 => Change::Create { dir, name, ino: None, kind: Kind::File, mode: 0o644, rdev: 0, target: vec![] },
        3 | 4 => Change::Create { dir, name, ino: None, kind: Kind::Dir, mode: 0o755, rdev: 0, target: vec![] },
        5 => Change::Unlink { dir, name },
        6 => Change::Rmdir { dir, name },
        7 => Change::Rename { from_dir: dir, from: name, to_dir, to, mode: RenameMode::Replace },
        8 => Change::Link { ino, dir, name },
        9 => Change::Write { ino, offset: dice.roll(60_000), content: Content::Inline(data) },
        10 => Change::Append { ino, content: Content::Inline(data) },
        11 => {
            let size = (dice.roll(2) == 0).then(|| dice.roll(50_000));
            Change::SetAttr { ino, set: SetAttr { mode: Some(dice.roll(512) as u16), size, ..SetAttr::default() } }
        }
        12 => Change::SetXattr { ino, name, value: data[..data.len().min(9)].to_vec(), mode: XattrMode::Either },
        _ => Change::RemoveXattr { ino, name },
    }
}

fn question(dice: &mut Dice, known: &[Ino]) -> Query {
    let (ino, name) = (dice.ino(known), dice.name());
    match dice.roll(7) {
        0 => Query::Inode(ino),
        1 => Query::Lookup { dir: ino, name },
        2 => Query::ListPlus { dir: ino, after: None, max: 100 },
        3 => Query::List { dir: ino, after: None, max: 100 },
        4 => Query::Read { ino, offset: dice.roll(30_000), len: dice.roll(70_000) as u32 },
        5 => Query::Xattr { ino, name },
        _ => Query::Xattrs(ino),
    }
}

/// Three clients change a small tree in turns. Whatever any of them is asked, it says what a client without a cache
/// is told at that moment.
#[test]
fn a_cache_says_what_the_server_would_say() {
    let scene = Scene::new();
    let (clients, plain) = ([scene.client(), scene.client(), scene.client()], scene.client());
    let (root, never) = (Cred::root(), &|| false);
    let user = Cred { uid: 7, gid: 7, groups: vec![] };
    let mut known = vec![Ino::ROOT];
    let mut dice = Dice(11);
    let mut done = 0;
    for step in 0..600 {
        let client = &clients[dice.roll(3) as usize];
        if let Ok(mut told) = client.change_told(&root, change(&mut dice, &known), never) {
            done += 1;
            if let Effect::Created(ino) = told.effect {
                known.push(ino);
                // Without a name it stays.
                plain.opening().opened(ino);
                let now = plain.ask(&root, Query::Inode(ino), never).expect("it is there").1;
                assert_eq!(now, Answer::Inode(ino, told.inode(ino).expect("told")));
            }
        }
        for client in &clients {
            for _ in 0..4 {
                let query = question(&mut dice, &known[known.len().saturating_sub(12)..]);
                let cred = if dice.roll(4) == 0 { &user } else { &root };
                let expected = plain.ask(cred, query.clone(), never).map(|(_, answer)| answer);
                let said = match &query {
                    Query::Read { ino, offset, len } => {
                        client.read(cred, *ino, *offset, *len, never).map(Answer::Bytes)
                    }
                    _ => client.look(cred, query.clone(), never),
                };
                assert!(said == expected, "step {step}: {query:?}: {} and not {}", brief(&said), brief(&expected));
            }
        }
    }
    let hits: u64 = clients.iter().map(|client| client.counts().hits).sum();
    assert!(done > 100 && known.len() > 20, "{done} changes, {} inodes", known.len());
    assert!(hits > 1000, "{hits} of 6,000 answers came from caches");
}

fn brief(said: &Result<Answer, Errno>) -> String {
    let text = format!("{said:?}");
    text.chars().take(300).collect()
}

fn write(client: &Client, dir: Ino, file: &str, data: Vec<u8>) -> Ino {
    let (root, never) = (Cred::root(), &|| false);
    let create =
        Change::Create { dir, name: name(file), ino: None, kind: Kind::File, mode: 0o644, rdev: 0, target: vec![] };
    let told = client.change_told(&root, create, never).expect("created");
    let Effect::Created(ino) = told.effect else { panic!("{told:?}") };
    for (i, data) in data.chunks(1 << 20).enumerate() {
        let change = Change::Write { ino, offset: (i << 20) as u64, content: Content::Inline(data.to_vec()) };
        client.change_told(&root, change, never).expect("written");
    }
    ino
}

#[test]
fn what_is_known_is_not_asked_again() {
    let scene = Scene::new();
    let (writer, reader) = (scene.client(), scene.client());
    let (root, never) = (Cred::root(), &|| false);
    for i in 0..100 {
        write(&writer, Ino::ROOT, &format!("{i:03}"), vec![i; 5000]);
    }
    let all = Query::ListPlus { dir: Ino::ROOT, after: None, max: 1000 };
    let Ok(Answer::Entries { entries, end: true }) = reader.look(&root, all, never) else { panic!("a listing") };
    reader.look(&root, Query::Inode(Ino::ROOT), never).expect("the root");
    let before = reader.counts().asked;
    for (name, ino, inode) in &entries {
        let found = reader.look(&root, Query::Lookup { dir: Ino::ROOT, name: name.clone() }, never);
        assert_eq!(found, Ok(Answer::Inode(*ino, inode.clone())));
    }
    let none = reader.look(&root, Query::Lookup { dir: Ino::ROOT, name: name("none") }, never);
    assert_eq!((none, reader.counts().asked), (Err(Errno::NOENT), before));
    // The small files of a directory come before they are wanted, each once.
    let began = std::time::Instant::now();
    for (i, (_, ino, _)) in entries.iter().enumerate() {
        assert_eq!(reader.read(&root, *ino, 0, 9000, never), Ok(vec![i as u8; 5000]));
    }
    assert_eq!(reader.counts().asked, before + 100, "in {:?}", began.elapsed());
    entries.iter().for_each(|(_, ino, _)| _ = reader.read(&root, *ino, 0, 9000, never).expect("read"));
    assert_eq!(reader.counts().asked, before + 100);
    // What the client has written itself it knows.
    let before = writer.counts();
    let ino = write(&writer, Ino::ROOT, "new", vec![7; 50_000]);
    assert_eq!(writer.counts().changes, before.changes + 2);
    std::thread::sleep(Duration::from_millis(50));
    writer.look(&root, Query::Lookup { dir: Ino::ROOT, name: name("new") }, never).expect("there");
    let before = writer.counts().asked;
    assert_eq!(writer.read(&root, ino, 0, 100_000, never), Ok(vec![7; 50_000]));
    assert_eq!(writer.counts().asked, before);
}

#[test]
fn a_large_file_is_read_ahead() {
    let scene = Scene::new();
    let (writer, reader) = (scene.client(), scene.client());
    let (root, never) = (Cred::root(), &|| false);
    let data: Vec<u8> = (0..4_500_000u32).map(|i| (i / 1000) as u8).collect();
    let ino = write(&writer, Ino::ROOT, "big", data.clone());
    reader.look(&root, Query::Inode(ino), never).expect("there");
    let mut read: Vec<u8> = Vec::new();
    while let Ok(more @ [_, ..]) = reader.read(&root, ino, read.len() as u64, 100_000, never).as_deref() {
        read.extend(more);
    }
    assert!(read == data);
    // 256 KiB for each question behind the first.
    assert!(reader.counts().asked <= 24, "{} questions", reader.counts().asked);
}

/// Who writes waits for the lease of somebody who hears late. So nobody is told what is not true any more.
#[test]
fn who_hears_late_is_waited_for() {
    let scene = Scene::new();
    let (writer, reader) = (scene.client(), scene.late_client());
    let (root, never) = (Cred::root(), &|| false);
    let ino = write(&writer, Ino::ROOT, "file", vec![0; 10]);
    for i in 1..4 {
        reader.look(&root, Query::Inode(ino), never).expect("there");
        reader.read(&root, ino, 0, 100, never).expect("read");
        let before = reader.counts().asked;
        assert_eq!(reader.read(&root, ino, 0, 100, never), Ok(vec![i - 1; 10]));
        assert_eq!(reader.counts().asked, before, "there is a lease");
        let change = Change::Write { ino, offset: 0, content: Content::Inline(vec![i; 10]) };
        writer.change_told(&root, change, never).expect("written");
        assert_eq!(reader.read(&root, ino, 0, 100, never), Ok(vec![i; 10]));
    }
}

/// What a client itself writes is seen by others before it hears that it is done. Who is told of it by them, and reads
/// at the writer, finds it.
#[test]
fn who_hears_late_of_its_own_change_says_nothing_old() {
    let scene = Scene::new();
    let (other, writer) = (scene.client(), scene.late_client());
    let (root, never) = (Cred::root(), &|| false);
    let ino = write(&other, Ino::ROOT, "file", vec![0; 10]);
    for i in 1..4 {
        writer.look(&root, Query::Inode(ino), never).expect("there");
        writer.look(&root, Query::Lookup { dir: Ino::ROOT, name: name("file") }, never).expect("there");
        writer.read(&root, ino, 0, 100, never).expect("read");
        let before = writer.counts().asked;
        assert_eq!(writer.read(&root, ino, 0, 100, never), Ok(vec![i - 1; 9 + usize::from(i)]));
        assert_eq!(writer.counts().asked, before, "there is a lease");
        std::thread::scope(|scope| {
            let content = Content::Inline(vec![i; 10 + usize::from(i)]);
            let change = Change::Write { ino, offset: 0, content };
            let writes = scope.spawn(|| writer.change_told(&root, change, never).expect("written"));
            while other.read(&root, ino, 0, 1, never) != Ok(vec![i]) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let size = |query| match writer.look(&root, query, never) {
                Ok(Answer::Inode(_, inode)) => inode.size,
                other => panic!("{other:?}"),
            };
            assert_eq!(size(Query::Inode(ino)), 10 + u64::from(i));
            assert_eq!(size(Query::Lookup { dir: Ino::ROOT, name: name("file") }), 10 + u64::from(i));
            assert_eq!(writer.read(&root, ino, 0, 100, never), Ok(vec![i; 10 + usize::from(i)]));
            writes.join().expect("no panic");
        });
    }
}

/// The same of a name.
#[test]
fn who_hears_late_that_a_name_is_gone_does_not_say_that_it_is_there() {
    let scene = Scene::new();
    let (other, writer) = (scene.client(), scene.late_client());
    let (root, never) = (Cred::root(), &|| false);
    let ino = write(&other, Ino::ROOT, "file", vec![0; 10]);
    let link = Change::Link { ino, dir: Ino::ROOT, name: name("second") };
    other.change_told(&root, link, never).expect("linked");
    let lookup = || Query::Lookup { dir: Ino::ROOT, name: name("file") };
    for query in [Query::Inode(Ino::ROOT), lookup(), Query::Inode(ino)] {
        writer.look(&root, query, never).expect("there");
    }
    assert!(writer.known_for(&root, &lookup()).is_some(), "there is a lease");
    std::thread::scope(|scope| {
        let change = Change::Unlink { dir: Ino::ROOT, name: name("file") };
        let removes = scope.spawn(|| writer.change_told(&root, change, never).expect("removed"));
        while other.look(&root, lookup(), never) != Err(Errno::NOENT) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Ok(Answer::Inode(_, inode)) = writer.look(&root, Query::Inode(ino), never) else { panic!("it has a name") };
        assert_eq!(inode.nlink, 1);
        assert_eq!(writer.look(&root, lookup(), never), Err(Errno::NOENT));
        removes.join().expect("no panic");
    });
}

/// What stands in front of a cache: it counts what it may still be told while something changes.
#[derive(Default)]
struct Before {
    client: std::sync::OnceLock<Client>,
    /// Of each change: how many keys it may change, and whether these were known before it was sent.
    seen: std::sync::Mutex<Vec<(usize, bool)>>,
}

impl bluefs_client::Front for Before {
    fn forget(&self, _: Option<bluefs::Group>) -> bool {
        false
    }

    fn forget_contents(&self, _: Option<bluefs::Group>) {}

    fn others_changed(&self, _: &[bluefs::Key]) {}

    fn before_change(&self, touched: &bluefs_client::Touched) {
        let inos = touched.keys.iter().map(|key| Query::Inode(key.ino()));
        let client = self.client.get().expect("set");
        let known = inos.filter_map(|query| client.known_for(&Cred::root(), &query)).count() > 0;
        self.seen.lock().expect("no panic").push((touched.keys.len(), known));
    }
}

#[test]
fn what_is_in_front_of_the_cache_forgets_before_a_change_is_sent_and_is_told_nothing_meanwhile() {
    let scene = Scene::new();
    let (client, other) = (scene.client(), scene.client());
    let (root, never) = (Cred::root(), &|| false);
    let ino = write(&other, Ino::ROOT, "file", vec![0; 10]);
    let front = std::sync::Arc::new(Before::default());
    assert!(front.client.set(client.clone()).is_ok());
    client.set_front(front.clone());
    client.look(&root, Query::Inode(ino), never).expect("there");
    let is_known = || client.known_for(&root, &Query::Inode(ino)).is_some();
    assert!(is_known(), "there is a lease");
    let append = Change::Append { ino, content: Content::Inline(vec![1]) };
    client.change_told(&root, append, never).expect("written");
    assert_eq!(*front.seen.lock().expect("no panic"), [(2, false)]);
    assert!(is_known(), "what has changed was told");
    let refused = Change::Rmdir { dir: Ino::ROOT, name: name("file") };
    assert_eq!(client.change(&root, refused, never), Err(Errno::NOTDIR));
    assert_eq!(front.seen.lock().expect("no panic").len(), 2);
    assert!(is_known());
}
