//! Connections within this process, of which some sockets count as held by the world.

use super::*;
use procfs::ProcessId;
use std::collections::HashSet;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

/// A world that holds these sockets.
#[derive(Default)]
struct Held {
    held: HashSet<u64>,
    marked: HashSet<u64>,
    /// That they were made inside.
    remembers: bool,
}

impl Inside for Held {
    fn is_marked_outside(&self, ino: u64) -> bool {
        self.marked.contains(&ino)
    }

    fn was_made_inside(&self, ino: u64, _cookie: u64) -> bool {
        self.remembers && self.held.contains(&ino)
    }

    fn is_held(&mut self, ino: u64) -> bool {
        self.held.contains(&ino)
    }

    fn has_process(&mut self, pid: ProcessId) -> bool {
        pid == ProcessId::own()
    }
}

impl Held {
    fn of(sockets: &[&dyn AsFd]) -> Self {
        Self { held: sockets.iter().map(|socket| ino(*socket)).collect(), remembers: true, ..Self::default() }
    }

    fn forgetful(self) -> Self {
        Self { remembers: false, ..self }
    }

    fn marked(mut self, socket: &dyn AsFd) -> Self {
        self.marked.insert(ino(socket));
        self
    }
}

fn ino(socket: &dyn AsFd) -> u64 {
    rustix::fs::fstat(socket.as_fd()).unwrap().st_ino
}

fn judge(connections: &mut Connections, socket: &dyn AsFd, mut world: Held) -> Verdict {
    connections.judge(socket.as_fd(), &mut world).unwrap()
}

fn is_inside(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Inside(_))
}

fn new() -> Connections {
    Connections::new().unwrap()
}

/// Listener, client, accepted.
fn tcp(address: &str) -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    (listener, client, accepted)
}

/// A Unix socket that listens to a name that nothing else has.
fn unix_listener() -> UnixListener {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("speculator-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    UnixListener::bind_addr(&UnixAddress::from_abstract_name(name).unwrap()).unwrap()
}

fn unix_client(listener: &UnixListener) -> UnixStream {
    UnixStream::connect_addr(&listener.local_addr().unwrap()).unwrap()
}

/// Listener, client, accepted.
fn unix() -> (UnixListener, UnixStream, UnixStream) {
    let listener = unix_listener();
    let client = unix_client(&listener);
    let accepted = listener.accept().unwrap().0;
    (listener, client, accepted)
}

#[test]
fn both_ends_of_an_inside_connection_have_one_clock() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (_listener, client, accepted) = tcp(address);
        let mut connections = new();
        let verdict = judge(&mut connections, &client, Held::of(&[&accepted]));
        assert!(is_inside(verdict), "{address}");
        assert_eq!(judge(&mut connections, &accepted, Held::default()), verdict);
    }
    let (_listener, client, accepted) = unix();
    let mut connections = new();
    let verdict = judge(&mut connections, &accepted, Held::of(&[&client]));
    assert!(is_inside(verdict));
    assert_eq!(judge(&mut connections, &client, Held::default()), verdict);
}

#[test]
fn a_client_of_ipv4_meets_a_server_of_ipv6() {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let client = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
    let accepted = listener.accept().unwrap().0;
    let mut connections = new();
    let verdict = judge(&mut connections, &accepted, Held::of(&[&client]));
    assert!(is_inside(verdict));
    assert_eq!(judge(&mut connections, &client, Held::default()), verdict);
}

#[test]
fn a_peer_that_nobody_inside_holds_is_outside_for_both_ends() {
    let (_listener, client, accepted) = tcp("127.0.0.1:0");
    let mut connections = new();
    assert_eq!(judge(&mut connections, &client, Held::default()), Verdict::Outside);
    // Were it asked for alone, it would be inside.
    assert_eq!(judge(&mut connections, &accepted, Held::of(&[&client])), Verdict::Outside);

    let (_listener, client, accepted) = unix();
    assert_eq!(judge(&mut connections, &client, Held::default()), Verdict::Outside);
    assert_eq!(judge(&mut connections, &accepted, Held::of(&[&client])), Verdict::Outside);
}

#[test]
fn a_peer_of_which_nobody_has_told_yet_is_looked_for() {
    let (listener, client, accepted) = tcp("127.0.0.1:0");
    let world = Held::of(&[&accepted, &listener]).forgetful();
    assert!(is_inside(judge(&mut new(), &client, world)));
    // Nothing hints at it.
    assert_eq!(judge(&mut new(), &client, Held::of(&[&accepted]).forgetful()), Verdict::Outside);
    let (_listener, client, accepted) = unix();
    assert!(is_inside(judge(&mut new(), &client, Held::of(&[&accepted]).forgetful())));
    assert_eq!(judge(&mut new(), &client, Held::default()), Verdict::Outside);
}

#[test]
fn a_peer_that_came_from_outside_is_outside() {
    let (_listener, client, accepted) = tcp("127.0.0.1:0");
    assert_eq!(judge(&mut new(), &client, Held::of(&[&accepted]).marked(&accepted)), Verdict::Outside);
    let (_listener, client, accepted) = unix();
    assert_eq!(judge(&mut new(), &client, Held::of(&[&accepted]).marked(&accepted)), Verdict::Outside);
}

#[test]
fn before_accept_the_listener_decides_for_both() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for listens_inside in [true, false] {
        let mut connections = new();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let world = if listens_inside { Held::of(&[&listener]) } else { Held::default() };
        let verdict = judge(&mut connections, &client, world);
        assert_eq!(is_inside(verdict), listens_inside);
        let accepted = listener.accept().unwrap().0;
        assert_eq!(judge(&mut connections, &accepted, Held::of(&[&client])), verdict);
    }
    let marked = Held::of(&[&listener]).marked(&listener);
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(judge(&mut new(), &client, marked), Verdict::Outside);
}

#[test]
fn before_accept_the_unix_listener_decides_for_both() {
    let listener = unix_listener();
    for listens_inside in [true, false] {
        let mut connections = new();
        let client = unix_client(&listener);
        let world = if listens_inside { Held::of(&[&listener]) } else { Held::default() };
        let verdict = judge(&mut connections, &client, world);
        assert_eq!(is_inside(verdict), listens_inside);
        let accepted = listener.accept().unwrap().0;
        assert_eq!(judge(&mut connections, &accepted, Held::of(&[&client])), verdict);
    }
}

#[test]
fn a_client_that_sent_and_left_is_still_known() {
    let (_listener, client, accepted) = tcp("127.0.0.1:0");
    let mut connections = new();
    let verdict = judge(&mut connections, &client, Held::of(&[&accepted]));
    drop(client);
    assert_eq!(judge(&mut connections, &accepted, Held::default()), verdict);
}

#[test]
fn a_peer_that_is_gone_is_doubtful() {
    let (_listener, client, accepted) = tcp("127.0.0.1:0");
    drop(client);
    assert_eq!(judge(&mut new(), &accepted, Held::default()), Verdict::Doubtful);
    let (_listener, client, accepted) = unix();
    drop(client);
    assert_eq!(judge(&mut new(), &accepted, Held::default()), Verdict::Doubtful);
    let (a, b) = UnixStream::pair().unwrap();
    drop(a);
    assert_eq!(judge(&mut new(), &b, Held::default()), Verdict::Doubtful);
}

#[test]
fn a_socket_that_is_not_connected_is_doubtful() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(judge(&mut new(), &listener, Held::default()), Verdict::Doubtful);
    let fresh = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    assert_eq!(judge(&mut new(), &fresh, Held::default()), Verdict::Doubtful);
}

#[test]
fn datagrams_are_outside() {
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(udp.local_addr().unwrap()).unwrap();
    assert_eq!(judge(&mut new(), &udp, Held::of(&[&udp])), Verdict::Outside);
}

#[test]
fn a_pair_has_the_clock_that_the_agent_gave_it() {
    let (a, b) = UnixStream::pair().unwrap();
    let dev = rustix::fs::fstat(&a).unwrap().st_dev;
    let expected = Verdict::Inside(hash_object(dev, ino(&a).min(ino(&b))));
    assert_eq!(judge(&mut new(), &a, Held::default()), expected);
    assert_eq!(judge(&mut new(), &b, Held::default()), expected);
    assert_eq!(judge(&mut new(), &b, Held::default().marked(&a)), Verdict::Doubtful);
}

#[test]
fn a_socket_that_is_connected_again_is_judged_again() {
    let (listener, client, accepted) = tcp("127.0.0.1:0");
    let mut connections = new();
    assert!(is_inside(judge(&mut connections, &client, Held::of(&[&accepted]))));
    rustix::net::connect_unspec(&client).unwrap();
    drop(accepted);
    rustix::net::connect(&client, &listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    assert_eq!(judge(&mut connections, &client, Held::default()), Verdict::Outside);
    assert_eq!(judge(&mut connections, &accepted, Held::of(&[&client])), Verdict::Outside);
}

#[test]
fn records_of_sockets_that_are_gone_are_dropped() {
    let mut connections = new();
    connections.records_max = 8;
    let (_listener, client, accepted) = tcp("127.0.0.1:0");
    let verdict = judge(&mut connections, &client, Held::of(&[&accepted]));
    for _ in 0..20 {
        let (_listener, client, accepted) = unix();
        judge(&mut connections, &client, Held::of(&[&accepted]));
        connections.records_max = connections.records_max.min(8);
    }
    assert!(connections.records.len() <= 10, "{}", connections.records.len());
    assert_eq!(judge(&mut connections, &client, Held::default()), verdict);
}
