//! The slow line. Times are looked at only where a line must not be faster than it says.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::network::{Network, Shape};

const PORT: u16 = 4000;

/// False, and says so, where no network can be made; in CI that is a failure.
fn can_make_networks() -> bool {
    let able = rustix::process::geteuid().is_root() && std::path::Path::new("/dev/net/tun").exists();
    testkit::skipped::can_run(able, "a slow line needs root and /dev/net/tun")
}

fn network(shape: Shape) -> Network {
    Network::new(shape).unwrap_or_else(|error| panic!("{error}"))
}

/// A socket on a host.
fn bound(network: &Network, far: bool, address: Ipv4Addr) -> UdpSocket {
    let host = if far { network.far() } else { network.near() };
    host.run(move || UdpSocket::bind((address, PORT)).unwrap()).join().unwrap().unwrap()
}

fn udp(network: &Network) -> [UdpSocket; 2] {
    [bound(network, false, network.near().address()), bound(network, true, network.far().address())]
}

/// How many of `count` datagrams come back, and the shortest time that one took.
fn echoes(network: &Network, count: usize, patience: Duration) -> (usize, Duration) {
    let [near, far] = udp(network);
    near.set_read_timeout(Some(patience)).unwrap();
    far.set_read_timeout(Some(patience)).unwrap();
    let to = SocketAddr::from((network.far().address(), PORT));
    let mut came = 0;
    let mut shortest = Duration::MAX;
    let mut bytes = [0; 64];
    for _ in 0..count {
        let start = Instant::now();
        near.send_to(b"are you there", to).unwrap();
        let Ok((length, from)) = far.recv_from(&mut bytes) else { continue };
        far.send_to(&bytes[..length], from).unwrap();
        if near.recv_from(&mut bytes).is_ok() {
            came += 1;
            shortest = shortest.min(start.elapsed());
        }
    }
    (came, shortest)
}

#[test]
fn an_answer_takes_at_least_a_round_trip() {
    if !can_make_networks() {
        return;
    }
    let round_trip = Duration::from_millis(40);
    let network = network(Shape { round_trip, ..Shape::default() });
    let (came, shortest) = echoes(&network, 5, Duration::from_secs(20));
    assert_eq!(came, 5);
    assert!(shortest >= round_trip, "{shortest:?}");
    let [there, back] = network.carried();
    assert_eq!((there.packets, back.packets), (5, 5), "nobody else sends anything");
    assert_eq!((there.lost, back.lost), (0, 0));
}

#[test]
fn packets_are_lost_as_the_seed_says() {
    if !can_make_networks() {
        return;
    }
    let lost = |seed| {
        let network = network(Shape { loss: 0.3, seed, ..Shape::default() });
        let [near, _far] = udp(&network);
        for _ in 0..200 {
            near.send_to(b"one of many", (network.far().address(), PORT)).unwrap();
        }
        // The last of them is known to be looked at when all are counted.
        while network.carried()[0].packets + network.carried()[0].lost < 200 {
            std::thread::sleep(Duration::from_millis(5));
        }
        network.carried()[0].lost
    };
    let first = lost(3);
    assert!((30..90).contains(&first), "{first} of 200");
    assert_eq!(first, lost(3));
}

#[test]
fn a_connection_outlives_a_cut() {
    if !can_make_networks() {
        return;
    }
    let network = network(Shape { round_trip: Duration::from_millis(4), ..Shape::default() });
    let address = SocketAddr::from((network.far().address(), PORT));
    let listener = network.far().run(move || TcpListener::bind(address).unwrap()).join().unwrap().unwrap();
    let near = network.near().run(move || TcpStream::connect(address).unwrap());
    let (mut far, _) = listener.accept().unwrap();
    let mut near = near.join().unwrap().unwrap();

    network.cut();
    let before = network.carried()[0].packets;
    near.write_all(b"through the cut").unwrap();
    far.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut bytes = [0; 15];
    assert!(far.read(&mut bytes).is_err(), "nothing arrives in a cut");
    assert_eq!(network.carried()[0].packets, before);

    network.mend();
    far.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    far.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"through the cut");
}

#[test]
fn a_rate_is_not_exceeded() {
    if !can_make_networks() {
        return;
    }
    // 400,000 bytes at 8 Mbit/s: 0.4 s.
    let network = network(Shape { rate: Some(8_000_000), ..Shape::default() });
    let address = SocketAddr::from((network.far().address(), PORT));
    let listener = network.far().run(move || TcpListener::bind(address).unwrap()).join().unwrap().unwrap();
    let sender = network.near().run(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&vec![7; 400_000]).unwrap();
    });
    let (mut far, _) = listener.accept().unwrap();
    let start = Instant::now();
    let mut all = Vec::new();
    far.read_to_end(&mut all).unwrap();
    let took = start.elapsed();
    sender.join().unwrap().unwrap();
    assert_eq!(all.len(), 400_000);
    // What was sent before the connection was accepted had a start: less than a tenth.
    assert!(took >= Duration::from_millis(350), "{took:?}");
}

#[test]
fn the_hosts_have_no_other_network() {
    if !can_make_networks() {
        return;
    }
    let network = network(Shape::default());
    let output = network.near().command("ip").args(["-o", "link"]).output().unwrap();
    let links = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = links.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(names, ["lo", "line"]);
}

fn slow_link(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_slow-link")).args(arguments).output().unwrap()
}

#[test]
fn the_command_ends_as_its_command_does() {
    if !can_make_networks() {
        return;
    }
    assert_eq!(slow_link(&["--rtt", "1", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(slow_link(&["--rtt", "1", "--", "sh", "-c", "kill -KILL $$"]).status.code(), Some(137));
    assert_eq!(slow_link(&["--rtt", "-1", "--", "true"]).status.code(), Some(2));
    assert_eq!(slow_link(&["--cut", "5", "--", "true"]).status.code(), Some(2));
}

#[test]
fn the_command_has_a_server_that_ends_with_it() {
    if !can_make_networks() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let server = format!(
        "python3 -c 'import os, socket\n\
         open(\"{0}.new\", \"w\").write(str(os.getpid())); os.rename(\"{0}.new\", \"{0}\")\n\
         s = socket.create_server((os.environ[\"SERVER\"], 4000))\n\
         while True: c = s.accept()[0]; c.sendall(c.recv(5).upper()); c.close()'",
        pid.display()
    );
    let client = "import os, socket, time\n\
                  for attempt in range(600):\n  \
                  try: c = socket.create_connection((os.environ['SERVER'], 4000)); break\n  \
                  except OSError: time.sleep(0.1)\n\
                  c.sendall(b'hello'); print(c.recv(5).decode())";
    let output = slow_link(&["--rtt", "20", "--stats", "--server", &server, "--", "python3", "-c", client]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "HELLO\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("to the server: "));
    let pid = std::fs::read_to_string(pid).unwrap();
    // An orphan that has ended is there until it is reaped.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let runs = state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'));
    assert!(!runs, "the server is still there: {state}");
}
