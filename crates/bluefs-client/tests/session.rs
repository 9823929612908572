//! A client and a server over loopback, with connections that are cut and a server that is started again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bluefs::op::{Content, Effect};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Csn, Errno, Ino, Kind, Name, SessionId};
use bluefs_client::{Address, Batch, BatchError, Client, NotDone, OnDisconnect, Operation, Transaction};
use bluefs_server::{Everybody, ServeError, Server, Stopper};
use bluefs_store::Store;
use bluefs_wire::{LockKind, LockRequest, Reply, Request};

struct Running {
    at: SocketAddr,
    stopper: Stopper,
    thread: JoinHandle<Result<(), ServeError>>,
}

fn start(path: &Path) -> Running {
    let store = Store::open_or_create(path).expect("a store").store;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let server = Server::new(store).expect("a server");
    let stopper = server.stopper();
    Running { at, stopper, thread: std::thread::spawn(move || server.run(listener, None, Box::new(Everybody))) }
}

impl Running {
    fn stop(self) {
        self.stopper.stop();
        self.thread.join().expect("no panic").expect("it ends well");
    }
}

/// What stands between a client and a server. It cuts connections after some bytes.
struct Proxy {
    at: SocketAddr,
    to: Arc<Mutex<SocketAddr>>,
    /// Bytes after which the connections are cut, one after the other.
    budgets: Arc<Mutex<Vec<usize>>>,
    refuses: Arc<AtomicBool>,
}

impl Proxy {
    fn new(to: SocketAddr, budgets: Vec<usize>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let proxy = Proxy {
            at,
            to: Arc::new(Mutex::new(to)),
            budgets: Arc::new(Mutex::new(budgets)),
            refuses: Arc::new(AtomicBool::new(false)),
        };
        let (to, budgets, refuses) = (proxy.to.clone(), proxy.budgets.clone(), proxy.refuses.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), to) = (client, *to.lock().expect("no panic")) else { continue };
                let Ok(server) = TcpStream::connect(to) else { continue };
                if refuses.load(Ordering::Relaxed) {
                    continue;
                }
                let budget = budgets.lock().expect("no panic").pop().unwrap_or(usize::MAX);
                relay(&client, &server, budget);
            }
        });
        proxy
    }

    fn address(&self) -> Address {
        format!("bluefs://{}/", self.at).parse().expect("an address")
    }
}

/// Requests go through as they are. Replies stop after so many bytes: their requests have taken effect.
fn relay(client: &TcpStream, server: &TcpStream, budget: usize) {
    let pass = |from: &TcpStream, to: &TcpStream, mut budget: usize| {
        let (mut from, mut to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                let len = len.min(budget);
                budget -= len;
                if to.write_all(&bytes[..len]).is_err() || budget == 0 {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Both);
            let _ = from.shutdown(std::net::Shutdown::Both);
        });
    };
    pass(client, server, usize::MAX);
    pass(server, client, budget);
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn never() -> bool {
    false
}

/// A server, and the address of its volume.
fn serve(store: &Path) -> (Running, Address) {
    let server = start(store);
    let at = format!("bluefs://{}/", server.at).parse().expect("an address");
    (server, at)
}

fn create(client: &Client, file: &str) -> Ino {
    let (dir, name, kind) = (Ino::ROOT, name(file), Kind::File);
    let create = Change::Create { dir, name, ino: None, kind, mode: 0o644, rdev: 0, target: vec![] };
    match client.change(&Cred::root(), create, &never) {
        Ok(Effect::Created(ino)) => ino,
        other => panic!("{other:?}"),
    }
}

fn append(client: &Client, ino: Ino, text: &str) -> Result<Effect, Errno> {
    let content = Content::Inline(text.as_bytes().to_vec());
    client.change(&Cred::root(), Change::Append { ino, content }, &never)
}

fn read(client: &Client, ino: Ino) -> Result<String, Errno> {
    match client.ask(&Cred::root(), Query::Read { ino, offset: 0, len: 1 << 20 }, &never)? {
        (_, Answer::Bytes(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_reply_is_answered_again_and_nothing_is_done_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(&dir.path().join("store"));
    // The first 40 connections end within some reply.
    let proxy = Proxy::new(server.at, (0..40).map(|i| 120 + 37 * i % 400).collect());
    let client = Client::connect(proxy.address(), None, OnDisconnect::Block).expect("a session");
    let ino = create(&client, "log");
    let expected: String = (0..120).map(|i| format!("{i},")).collect();
    for i in 0..120 {
        append(&client, ino, &format!("{i},")).expect("appended");
    }
    assert_eq!(read(&client, ino).as_deref(), Ok(expected.as_str()));
    assert!(proxy.budgets.lock().expect("no panic").len() < 35, "connections were cut");
    drop(client);
    server.stop();
}

#[test]
fn a_session_outlives_its_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let first = start(&path);
    let proxy = Proxy::new(first.at, vec![]);
    let client = Client::connect(proxy.address(), None, OnDisconnect::Block).expect("a session");
    let ino = create(&client, "log");
    append(&client, ino, "before ").expect("appended");
    first.stop();
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || append(&client, ino, "after"))
    };
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished(), "it waits");
    let second = start(&path);
    *proxy.to.lock().expect("no panic") = second.at;
    // A server that was started again lets nobody write for one term of a lease.
    assert_eq!(waiting.join().expect("no panic"), Ok(Effect::Wrote { offset: 7, size: 12 }));
    assert_eq!(read(&client, ino).as_deref(), Ok("before after"));
    drop(client);
    second.stop();
}

#[test]
fn without_a_connection_callers_get_an_error_if_they_want() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(&dir.path().join("store"));
    let proxy = Proxy::new(server.at, vec![]);
    let client = Client::connect(proxy.address(), None, OnDisconnect::Error).expect("a session");
    let ino = create(&client, "log");
    proxy.refuses.store(true, Ordering::Relaxed);
    server.stop();
    while client.is_connected() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read(&client, ino), Err(Errno::IO));
    assert_eq!(append(&client, ino, "x"), Err(Errno::IO));
}

#[test]
fn a_name_that_is_removed_is_a_hypothesis() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let connect = || Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    let (a, b) = (connect(), connect());
    create(&a, "file");
    create(&a, "new");
    let mut transaction = Transaction::begin(&a, &Cred::root()).expect("begun");
    let path = vec![name("file")];
    assert_eq!(transaction.add(&Operation::Remove(vec![name("nothing")])), Err(Errno::NOENT));
    drop(transaction);
    let mut transaction = Transaction::begin(&a, &Cred::root()).expect("begun");
    transaction.add(&Operation::Remove(path)).expect("it is there");
    let (from, to, mode) = (name("new"), name("file"), bluefs::op::RenameMode::Replace);
    let rename = Change::Rename { from_dir: Ino::ROOT, from, to_dir: Ino::ROOT, to, mode };
    b.change(&Cred::root(), rename, &never).expect("renamed");
    assert!(matches!(transaction.close(), Err(NotDone::Conflict)));
    drop((a, b));
    server.stop();
}

/// Numbers that an interval has not used are used by the next one.
#[test]
fn intervals_that_fail_use_nothing_up() {
    const TIMES: usize = 1500;
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let client = Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    create(&client, "there");
    for _ in 0..TIMES {
        let mut transaction = Transaction::begin(&client, &Cred::root()).expect("begun");
        transaction.add(&Operation::Mkdir(vec![name("there")])).expect("what is refused is found when it is closed");
        assert!(matches!(transaction.close(), Err(NotDone::Refused { errno: Errno::EXIST, .. })));
    }
    drop(client);
    server.stop();
}

#[test]
fn what_is_too_large_for_an_interval_is_not_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let client = Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    let closed = |files: usize, bytes: usize| {
        let mut transaction = Transaction::begin(&client, &Cred::root()).expect("begun");
        let data = vec![b'x'; bytes];
        for number in 0..files {
            let path = vec![name(&format!("{bytes}-{number}"))];
            transaction.add(&Operation::Write(path, data.clone())).expect("added");
        }
        transaction.close()
    };
    assert!(matches!(closed(2_100, 1), Err(NotDone::TooLarge)), "two steps each");
    assert!(matches!(closed(2, 33 << 20), Err(NotDone::TooLarge)));
    assert!(closed(200, 60_000).is_ok(), "not all of it is sent with the steps");
    assert!(closed(1, 64 << 20).is_ok());
    drop(client);
    server.stop();
}

/// The server would end the connection.
#[test]
fn a_target_that_is_too_long_is_refused_before_it_is_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let client = Client::connect(at.clone(), None, OnDisconnect::Error).expect("a session");
    let linked = |bytes: usize| {
        let mut transaction = Transaction::begin(&client, &Cred::root()).expect("begun");
        let target = vec![b'x'; bytes];
        let _ = transaction.add(&Operation::Symlink(target, vec![name("link")]));
        transaction.close().map(drop)
    };
    assert_eq!(linked(4096), Err(NotDone::Refused { operation: 0, errno: Errno::NAMETOOLONG }));
    assert_eq!(linked(4095), Ok(()));
    drop(client);
    server.stop();
}

/// A server that cannot read what it is sent again on each connection.
#[test]
fn who_hears_nothing_connects_less_and_less_often() {
    const FOR: Duration = Duration::from_millis(1200);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at: Address = format!("bluefs://{}/", listener.local_addr().expect("an address")).parse().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    std::thread::spawn(move || {
        for (epoch, socket) in (1..).zip(listener.incoming().flatten()) {
            counted.fetch_add(1, Ordering::SeqCst);
            let (mut from, mut to) = bluefs_net::plain(socket).expect("a connection");
            while let Ok(Some(request)) = from.receive::<Request>() {
                let (session, csn, lease_ms) = (SessionId(1), Csn(0), 10_000);
                let welcome = Reply::Welcome { session, epoch, csn, last: 0, now: 0, lease_ms, read_only: false };
                match request {
                    Request::Hello { .. } => to.send(&welcome).expect("it waits for that"),
                    Request::Submit { .. } => break,
                    _ => {}
                }
            }
        }
    });
    let client = Client::connect(at, None, OnDisconnect::Block).expect("a session");
    let begun = std::time::Instant::now();
    let set = bluefs::op::SetAttr::default();
    let change = Change::SetAttr { ino: Ino::ROOT, set };
    assert_eq!(client.change(&Cred::root(), change, &|| begun.elapsed() > FOR), Err(Errno(4)), "EINTR");
    let connections = connections.load(Ordering::SeqCst);
    assert!((2..10).contains(&connections), "{connections} connections");
}

/// A server takes 1,024 intervals whose outcomes are not acknowledged.
#[test]
fn more_changes_than_a_server_takes_wait_for_it_and_are_made() {
    const WRITERS: u64 = 1_200;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let first = start(&path);
    let proxy = Proxy::new(first.at, vec![]);
    let client = Client::connect(proxy.address(), None, OnDisconnect::Block).expect("a session");
    let ino = create(&client, "file");
    first.stop();
    let failed = std::thread::scope(|scope| {
        let write = |offset| {
            let content = Content::Inline(b"x".to_vec());
            client.change(&Cred::root(), Change::Write { ino, offset, content }, &never)
        };
        let writers: Vec<_> = (0..WRITERS).map(|offset| scope.spawn(move || write(offset))).collect();
        while client.counts().in_flight < WRITERS {
            std::thread::sleep(Duration::from_millis(5));
        }
        let second = start(&path);
        *proxy.to.lock().expect("no panic") = second.at;
        let failed = writers.into_iter().filter_map(|writer| writer.join().expect("no panic").err()).count();
        assert_eq!(read(&client, ino).map(|text| text.len() as u64), Ok(WRITERS));
        second.stop();
        failed
    });
    assert_eq!(failed, 0);
    drop(client);
}

#[test]
fn who_waits_can_give_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let connect = || Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    let (a, b) = (connect(), connect());
    let ino = create(&a, "file");
    let lock = |kind, wait| LockRequest { ino, owner: 1, kind, start: 0, end: u64::MAX, wait };
    assert_eq!(a.lock(lock(LockKind::Exclusive, false), &never), Ok(()));
    assert_eq!(b.lock(lock(LockKind::Shared, false), &never), Err(Errno(11)), "EAGAIN");
    assert_eq!(b.lock(lock(LockKind::Shared, true), &|| true), Err(Errno(4)), "EINTR");
    assert_eq!(a.lock(lock(LockKind::Unlock, false), &never), Ok(()));
    // It may have been b's for a moment, until b hears that and gives it back.
    assert_eq!(a.lock(lock(LockKind::Exclusive, true), &never), Ok(()), "b's wait is over");
    drop(a);
    assert_eq!(b.lock(lock(LockKind::Exclusive, true), &never), Ok(()), "locks end with their session");
    drop(b);
    server.stop();
}

/// To look takes time, which those who wait would take from each other.
#[test]
fn where_many_wait_each_looks_less_often() {
    const WAITERS: usize = 500;
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let connect = || Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    let (a, b) = (connect(), connect());
    let ino = create(&a, "file");
    let lock = |owner, kind| LockRequest { ino, owner, kind, start: 0, end: u64::MAX, wait: true };
    assert_eq!(a.lock(lock(1, LockKind::Exclusive), &never), Ok(()));
    let (looks, begun) = (AtomicUsize::new(0), std::time::Instant::now());
    let gives_up = || {
        looks.fetch_add(1, Ordering::SeqCst);
        false
    };
    std::thread::scope(|scope| {
        let wait = |owner| b.lock(lock(owner, LockKind::Shared), &gives_up);
        let waiters: Vec<_> = (0..WAITERS as u64).map(|owner| scope.spawn(move || wait(owner))).collect();
        std::thread::sleep(Duration::from_secs(3));
        let per_second = looks.load(Ordering::SeqCst) as f64 / begun.elapsed().as_secs_f64();
        assert!(per_second < 2_000.0, "{per_second}");
        a.unlock(lock(1, LockKind::Unlock), &never).expect("given back");
        waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().expect("no panic"), Ok(())));
    });
    drop((a, b));
    server.stop();
}

#[test]
fn who_waits_can_give_up_also_while_others_hear_from_the_server_all_the_time() {
    const OVER_AFTER: Duration = Duration::from_secs(10);
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let connect = || Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    let (a, b) = (connect(), connect());
    let ino = create(&a, "file");
    let lock = |wait| LockRequest { ino, owner: 1, kind: LockKind::Exclusive, start: 0, end: u64::MAX, wait };
    assert_eq!(a.lock(lock(false), &never), Ok(()));
    let (is_over, begun) = (AtomicBool::new(false), std::time::Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) && begun.elapsed() < OVER_AFTER {
                b.ask(&Cred::root(), Query::Space, &never).expect("an answer");
            }
        });
        assert_eq!(b.lock(lock(true), &|| true), Err(Errno(4)), "EINTR");
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(begun.elapsed() < OVER_AFTER);
    drop((a, b));
    server.stop();
}

#[test]
fn an_open_file_without_a_name_stays_until_it_is_closed_everywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let connect = || Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    let (a, b) = (connect(), connect());
    let ino = create(&a, "file");
    append(&a, ino, "x").expect("appended");
    b.look(&Cred::root(), Query::Inode(ino), &never).expect("it is there");
    b.opening().opened(ino);
    a.change(&Cred::root(), Change::Unlink { dir: Ino::ROOT, name: name("file") }, &never).expect("unlinked");
    assert_eq!(read(&b, ino).as_deref(), Ok("x"));
    b.close(ino);
    for _ in 0..400 {
        if read(&a, ino) == Err(Errno::STALE) {
            drop((a, b));
            return server.stop();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the file is still there");
}

#[test]
fn a_batch_is_carried_out_as_a_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let client = Client::connect(at, None, OnDisconnect::Error).expect("a session");
    let big = dir.path().join("big");
    std::fs::write(&big, vec![b'b'; 3 << 20]).expect("a file");
    let text = format!("mkdir d\nwrite d/a one\nput {} d/big\nrename d/a d/b\nappend d/b ', two'\n", big.display());
    Batch::parse(&text).expect("a list").run(&client, &Cred::root()).expect("committed");
    let failing = Batch::parse("write d/c x\nremove d/none\n").expect("a list").run(&client, &Cred::root());
    assert!(matches!(failing, Err(BatchError::Refused { line: 2, errno: Errno::NOENT })), "{failing:?}");
    let lookup = |dir, text: &str| match client.ask(&Cred::root(), Query::Lookup { dir, name: name(text) }, &never) {
        Ok((_, Answer::Inode(ino, inode))) => Ok((ino, inode.size)),
        Ok(other) => panic!("{other:?}"),
        Err(errno) => Err(errno),
    };
    let (d, _) = lookup(Ino::ROOT, "d").expect("a directory");
    assert_eq!(lookup(d, "big").expect("a file").1, 3 << 20);
    assert_eq!(read(&client, lookup(d, "b").expect("a file").0).as_deref(), Ok("one, two"));
    assert_eq!((lookup(d, "a"), lookup(d, "c")), (Err(Errno::NOENT), Err(Errno::NOENT)));
    drop(client);
    server.stop();
}

/// Found by `cargo xtask histories`.
#[test]
fn a_list_may_go_on_with_both_names_of_a_file_that_is_moved_onto_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let client = Client::connect(at, None, OnDisconnect::Error).expect("a session");
    let run = |text: &str| Batch::parse(text).expect("a list").run(&client, &Cred::root());
    run("write a one\nlink a b\nrename a b\nappend a ', two'\n").expect("committed");
    run("rename b a\nrename a c\nappend b ', three'\n").expect("committed");
    let query = Query::Lookup { dir: Ino::ROOT, name: name("c") };
    let Ok((_, Answer::Inode(ino, inode))) = client.ask(&Cred::root(), query, &never) else { panic!("no file") };
    assert_eq!((read(&client, ino).as_deref(), inode.nlink), (Ok("one, two, three"), 2));
    drop(client);
    server.stop();
}

#[test]
fn batches_that_meet_come_one_after_the_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let at = at.clone();
            std::thread::spawn(move || {
                let client = Client::connect(at, None, OnDisconnect::Error).expect("a session");
                let run = |text: String| Batch::parse(&text).expect("a list").run(&client, &Cred::root());
                // The name that all move is a hypothesis of each.
                (0..10)
                    .filter(|i| run(format!("mkdir t\nwrite t/f {writer}-{i}\nrename t/f last\nrmdir t\n")).is_ok())
                    .count()
            })
        })
        .collect();
    let done: usize = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
    assert!(done > 0);
    server.stop();
    let store = Store::open(&dir.path().join("store")).expect("a store").store;
    let report = store.check().expect("it can be read");
    assert_eq!((report.faults, report.inodes), (vec![], 2));
}

/// Found by `cargo xtask histories`: the lines of a list were looked at one after the other, and a file that was
/// removed between two of them had the list refused, although at no moment it would have been.
#[test]
fn a_list_is_refused_only_if_it_would_be_at_one_moment() {
    const LISTS: usize = 100;
    let dir = tempfile::tempdir().expect("a directory");
    let (server, at) = serve(&dir.path().join("store"));
    let connect = || Client::connect(at.clone(), None, OnDisconnect::Error).expect("a session");
    let (one, other) = (connect(), connect());
    let over = Arc::new(AtomicBool::new(false));
    let ends = over.clone();
    let changing = std::thread::spawn(move || {
        while !ends.load(Ordering::SeqCst) {
            // The other one may have made it, or not yet.
            let _ = Batch::parse("remove file\n").expect("a list").run(&other, &Cred::root());
        }
    });
    let batch = Batch::parse("write file one\nappend file two\nappend file three\n").expect("a list");
    let refused =
        (0..LISTS).filter(|_| matches!(batch.run(&one, &Cred::root()), Err(BatchError::Refused { .. }))).count();
    over.store(true, Ordering::SeqCst);
    changing.join().expect("no panic");
    assert_eq!(refused, 0);
    drop(one);
    server.stop();
}
