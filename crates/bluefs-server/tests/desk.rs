//! A server with its threads: what one connection says is answered in its order, whoever decides it.

mod honest;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use bluefs::op::Change;
use bluefs::{Ino, Kind, Name, Time};
use bluefs_server::{Everybody, Server};
use bluefs_store::Store;
use bluefs_wire::{frame, Reply, Request};
use honest::Honest;

const ASKING: usize = 3;
const PINGS: u64 = 20_000;
const AT_ONCE: u64 = 40;

/// Has many questions answered, some at once.
fn ask(at: SocketAddr) {
    let mut connection = Honest::new(at);
    for first in (0..PINGS).step_by(AT_ONCE as usize) {
        let pings = (first..first + AT_ONCE).flat_map(|tag| frame(&Request::Ping { tag }));
        connection.send_frames(&pings.collect::<Vec<u8>>());
        let mut told = first;
        while told < first + AT_ONCE {
            if let Reply::Pong { tag } = connection.receive() {
                assert_eq!(tag, told, "answers are out of order");
                told += 1;
            }
        }
    }
}

/// Makes files as long as others ask: whoever decides that is busy until the disk has been flushed.
fn change(at: SocketAddr, asking: &AtomicUsize) {
    let mut connection = Honest::new(at);
    for number in 1_u64.. {
        let name = Name::new(format!("f{number}").as_bytes()).expect("a name");
        let (kind, mode, rdev, target) = (Kind::File, 0o644, 0, vec![]);
        connection.changes(Change::Create { dir: Ino::ROOT, name, ino: None, kind, mode, rdev, target });
        if asking.load(Ordering::SeqCst) == 0 {
            return;
        }
    }
}

#[test]
fn what_one_connection_says_is_answered_in_its_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::open_or_create(&dir.path().join("store")).expect("a store").store;
    store.batch(|batch| batch.create_volume(b"default", Time(1))).expect("a volume");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let server = Server::new(store).expect("a server");
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run(listener, None, Box::new(Everybody)).expect("it ends well"));
    let asking = AtomicUsize::new(ASKING);
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| change(at, &asking));
        let threads = [(); ASKING].map(|()| {
            scope.spawn(|| {
                let asked = std::panic::catch_unwind(|| ask(at));
                asking.fetch_sub(1, Ordering::SeqCst);
                asked.is_err()
            })
        });
        threads.into_iter().any(|thread| thread.join().expect("caught"))
    });
    stopper.stop();
    thread.join().expect("no panic");
    assert!(!failed, "see above");
}
