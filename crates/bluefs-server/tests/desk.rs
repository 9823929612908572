//! A server with its threads: what one connection says is answered in its order, whoever decides it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bluefs::op::Change;
use bluefs::{Cred, Csn, Ino, Interval, Kind, Name, Runs, Step, Time};
use bluefs_server::{Everybody, Server};
use bluefs_store::Store;
use bluefs_wire::{frame, Frames, Reply, Request, PROTOCOL_VERSION};

const ASKING: usize = 3;
const PINGS: u64 = 20_000;
const AT_ONCE: u64 = 40;

struct Connection {
    socket: TcpStream,
    frames: Frames,
}

impl Connection {
    fn new(at: SocketAddr) -> Connection {
        let socket = TcpStream::connect(at).expect("connected");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        let mut connection = Connection { socket, frames: Frames::new() };
        let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
        connection.say(&frame(&Request::Hello { version, volume, session: None, acknowledged: 0, secret }));
        connection
    }

    fn say(&mut self, frames: &[u8]) {
        self.socket.write_all(frames).expect("sent");
    }

    fn hear(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.frames.next_message().expect("a message") {
                return reply;
            }
            let mut bytes = [0; 65_536];
            let len = match self.socket.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.expect("the server answers"),
            };
            assert!(len > 0, "the server has ended the connection");
            self.frames.push(&bytes[..len]);
        }
    }
}

/// Has many questions answered, some at once.
fn ask(at: SocketAddr) {
    let mut connection = Connection::new(at);
    for first in (0..PINGS).step_by(AT_ONCE as usize) {
        let pings = (first..first + AT_ONCE).flat_map(|tag| frame(&Request::Ping { tag }));
        connection.say(&pings.collect::<Vec<u8>>());
        let mut told = first;
        while told < first + AT_ONCE {
            if let Reply::Pong { tag } = connection.hear() {
                assert_eq!(tag, told, "answers are out of order");
                told += 1;
            }
        }
    }
}

/// Makes files as long as others ask: whoever decides that is busy until the disk has been flushed.
fn change(at: SocketAddr, asking: &AtomicUsize) {
    let mut connection = Connection::new(at);
    for number in 1.. {
        let name = Name::new(format!("f{number}").as_bytes()).expect("a name");
        let (kind, mode, rdev, target) = (Kind::File, 0o644, 0, vec![]);
        let change = Change::Create { dir: Ino::ROOT, name, ino: None, kind, mode, rdev, target };
        let (creds, steps) = (vec![Cred::root()], vec![Step { cred: 0, time: None, change }]);
        let interval = Interval { number, base: Csn(0), after: Runs::new(), reads: vec![], creds, steps };
        connection.say(&frame(&Request::Submit { interval }));
        while !matches!(connection.hear(), Reply::Decided { .. }) {}
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
