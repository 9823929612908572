//! Who says nothing for long, who hears nothing for long, and an answer that comes while its caller gives up.

use std::net::TcpListener;
use std::sync::mpsc::{self, channel};
use std::time::{Duration, Instant};

use bluefs::query::Query;
use bluefs::{Cred, Csn, Errno, Ino, SessionId};
use bluefs_client::{Address, Client, OnDisconnect};
use bluefs_net::{Receiver, Sender};
use bluefs_server::{Everybody, Server};
use bluefs_store::Store;
use bluefs_wire::{frame, LockKind, LockRequest, Refusal, Reply, Request};

/// An end gives the other one up after 30 s, and looks each 7.5 s.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(40);

fn never() -> bool {
    false
}

fn address(listener: &TcpListener) -> Address {
    format!("bluefs://{}/", listener.local_addr().expect("an address")).parse().expect("an address")
}

/// A server's end of the next connection, whose client is welcome.
fn welcomes(listener: &TcpListener, epoch: u64) -> (Receiver, Sender) {
    let (socket, _) = listener.accept().expect("a connection");
    let (mut from, mut to) = bluefs_net::plain(socket).expect("both ends");
    assert!(matches!(from.receive().expect("a hello"), Some(Request::Hello { .. })));
    let (session, csn, lease_ms) = (SessionId(1), Csn(0), 10_000);
    to.send(&Reply::Welcome { session, epoch, csn, last: 0, now: 0, lease_ms, read_only: false }).expect("sent");
    (from, to)
}

/// Tells of each ping of a client.
fn tell_of_pings(mut from: Receiver, tell: mpsc::Sender<()>) {
    std::thread::spawn(move || {
        while let Ok(Some(request)) = from.receive::<Request>() {
            if matches!(request, Request::Ping { .. }) {
                let _ = tell.send(());
            }
        }
    });
}

/// A server ends the connection of who says nothing for 30 s.
#[test]
fn who_only_hears_what_others_change_says_that_it_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = address(&listener);
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let (from, mut to) = welcomes(&listener, 1);
        tell_of_pings(from, tell);
        while to.send(&Reply::Invalidate { csn: Csn(0), keys: vec![] }).is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let client = Client::connect(at, None, OnDisconnect::Block).expect("a session");
    assert_eq!(told.recv_timeout(Duration::from_secs(25)), Ok(()), "the server has heard of it");
    assert!(client.is_connected());
}

/// A large reply over a slow line was nothing heard until all of it was there; and nothing was said meanwhile if some
/// of it came all the time.
#[test]
fn a_reply_that_arrives_slowly_is_a_sign_of_life_and_hears_one() {
    // Less than after each of which a client looks, and more.
    let pauses = [Duration::from_secs(2), Duration::from_secs(9)];
    std::thread::scope(|scope| pauses.iter().for_each(|pause| _ = scope.spawn(|| hears_slowly(*pause))));
}

fn hears_slowly(pause: Duration) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = address(&listener);
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let (from, mut to) = welcomes(&listener, 1);
        tell_of_pings(from, tell);
        // Longer than the test.
        let reply = frame(&Reply::Refused { why: Refusal::Stopping, text: vec![b'x'; 1000] });
        for piece in reply.chunks(20) {
            if to.send_frame(piece).is_err() {
                break;
            }
            std::thread::sleep(pause);
        }
    });
    let client = Client::connect(at, None, OnDisconnect::Block).expect("a session");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(31) {
        assert_eq!(told.recv_timeout(Duration::from_secs(25)), Ok(()), "a server ends who says nothing for 30 s");
    }
    assert!(client.is_connected());
}

/// Found with a server that was stopped (SIGSTOP): the client's own `ping` counted as a word of the server.
#[test]
fn a_server_that_says_nothing_any_more_is_given_up_while_it_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = address(&listener);
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let _first = welcomes(&listener, 1);
        let _second = welcomes(&listener, 2);
        let _ = tell.send(());
        std::thread::sleep(GIVEN_UP_AFTER);
    });
    let client = Client::connect(at, None, OnDisconnect::Error).expect("a session");
    let begun = Instant::now();
    let ask = || client.ask(&Cred::root(), Query::Space, &|| begun.elapsed() > GIVEN_UP_AFTER);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..10)
            .map(|_| {
                std::thread::sleep(Duration::from_secs(1));
                scope.spawn(ask)
            })
            .collect();
        assert_eq!(told.recv_timeout(GIVEN_UP_AFTER), Ok(()), "there is another connection");
        for one in asked {
            assert_eq!(one.join().expect("no panic"), Err(Errno::IO));
        }
    });
}

#[test]
fn a_lock_that_is_given_while_its_caller_gives_up_is_the_callers() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open_or_create(&dir.path().join("store")).expect("a store").store;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (at, server) = (address(&listener), Server::new(store).expect("a server"));
    let stopper = server.stopper();
    let running = std::thread::spawn(move || server.run(listener, None, Box::new(Everybody)));
    let connect = || Client::connect(at.clone(), None, OnDisconnect::Block).expect("a session");
    let (a, b) = (connect(), connect());
    let lock = |kind, wait| LockRequest { ino: Ino::ROOT, owner: 1, kind, start: 0, end: 9, wait };
    assert_eq!(a.lock(lock(LockKind::Exclusive, false), &never), Ok(()));
    // It is given while this looks whether there is a signal, and there is one.
    let gives_up = || {
        a.unlock(lock(LockKind::Unlock, false), &never).expect("given back");
        let (begun, ask) = (Instant::now(), || b.ask(&Cred::root(), Query::Space, &never));
        while begun.elapsed() < Duration::from_millis(300) {
            ask().expect("an answer");
        }
        true
    };
    let given = b.lock(lock(LockKind::Exclusive, true), &gives_up);
    let is_free = a.lock(lock(LockKind::Exclusive, false), &never).is_ok();
    assert_eq!((given, is_free), (Ok(()), false), "who was told that it has none has none");
    drop((a, b));
    stopper.stop();
    running.join().expect("no panic").expect("it ends well");
}
