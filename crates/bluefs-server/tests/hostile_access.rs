//! Who speaks to a server before it is known who that is, who sits between a server and its client, and files of
//! invitations and keys that hold anything. Whatever arrives, the ends get what was sent, in its order, or an error;
//! nobody is let in by what is no invitation; nothing panics.
//!
//! One seed is one connection and one pair of files. `cargo xtask fuzz` tries them for as long as it is told.

#[path = "../../bluefs-client/tests/support/fuzz.rs"]
mod fuzz;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use bluefs::Time;
use bluefs_net::to_hex;
use bluefs_net::{Acceptor, Identity, Receiver, Sender};
use bluefs_server::{identity_of, Access, Invitations};
use bluefs_wire::{Reply, Request};
use fuzz::{for_seeds, Dice};

const SEEDS: u64 = 100;
const USED_MIB_MAX: u64 = 512;
/// Messages in each direction.
const MESSAGES: u64 = 6;
/// How long an end waits for bytes that were lost on the way.
const SILENCE_MAX: Duration = Duration::from_millis(100);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let far = listener.accept().expect("a connection").0;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(SILENCE_MAX)).expect("a socket");
        socket.set_write_timeout(Some(SILENCE_MAX)).expect("a socket");
    }
    (near, far)
}

/// Bytes that look like records of TLS, or like nothing.
fn noise(dice: &mut Dice) -> Vec<u8> {
    let len = dice.roll(2000) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|_| dice.roll(256) as u8).collect();
    if dice.roll(2) == 0 {
        let said = [0, 1, len as u64, 16_384, 65_535][dice.roll(5) as usize] as u16;
        let kind = 20 + dice.roll(5) as u8;
        let header = [kind, 3, 3].into_iter().chain(said.to_be_bytes());
        bytes.splice(0..0, header);
    }
    bytes
}

/// Passes bytes on, and at one place something else.
fn pass(mut from: TcpStream, mut to: TcpStream, mut dice: Dice) {
    let longest = 16 << dice.roll(9);
    let (mut at, harm_at) = (0, dice.roll(longest));
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let mut piece = bytes[..len].to_vec();
        if (at..at + len as u64).contains(&harm_at) {
            let place = (harm_at - at) as usize;
            match dice.roll(7) {
                0 => piece[place] ^= 1 << dice.roll(8),
                1 => _ = piece.splice(place..place, noise(&mut dice)).count(),
                2 => _ = piece.remove(place),
                3 => piece.extend_from_slice(&bytes[..len]),
                4 => piece.truncate(place),
                5 => piece = noise(&mut dice),
                _ => {}
            }
        }
        at += len as u64;
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // Either end may have gone already.
    let _ = to.shutdown(Shutdown::Write);
}

/// One end: it says some messages, and takes in what the other one says. `own` makes one, `other` says which was taken.
fn speak<S: bluefs_wire::Wire, R: bluefs_wire::Wire>(
    ends: std::io::Result<(Receiver, Sender)>,
    own: impl Fn(u64) -> S,
    other: impl Fn(R) -> Option<u64>,
) -> u64 {
    let Ok((mut receiver, mut sender)) = ends else { return 0 };
    for number in 0..MESSAGES {
        if sender.send(&own(number)).is_err() {
            break;
        }
    }
    let mut taken = 0;
    while let Ok(Some(message)) = receiver.receive::<R>() {
        assert_eq!(other(message), Some(taken), "another message than was sent");
        taken += 1;
        if taken == MESSAGES {
            break;
        }
    }
    taken
}

fn serve(socket: TcpStream, acceptor: &Acceptor) -> u64 {
    let tag = |message| if let Request::Ping { tag } = message { Some(tag) } else { None };
    speak(bluefs_net::accept(socket, acceptor), |tag| Reply::Pong { tag }, tag)
}

fn connect(socket: TcpStream, fingerprint: [u8; 32]) -> u64 {
    let tag = |message| if let Reply::Pong { tag } = message { Some(tag) } else { None };
    speak(bluefs_net::connect(socket, fingerprint), |tag| Request::Ping { tag }, tag)
}

/// A server and its client with somebody between them. How many messages each end has taken in.
fn through_somebody(seed: u64, acceptor: &Acceptor, fingerprint: [u8; 32]) -> (u64, u64) {
    let ((client, near), (far, server)) = (pair(), pair());
    let mut dice = Dice::new(seed);
    let seeds = [dice.number(), dice.number()];
    let again = |socket: &TcpStream| socket.try_clone().expect("a socket");
    let (near_again, far_again) = (again(&near), again(&far));
    std::thread::scope(|scope| {
        scope.spawn(move || pass(near, far, Dice::new(seeds[0] ^ seed)));
        scope.spawn(move || pass(far_again, near_again, Dice::new(seeds[1].rotate_left(7) ^ seed)));
        let served = scope.spawn(move || serve(server, acceptor));
        let taken = connect(client, fingerprint);
        (served.join().expect("the server's end"), taken)
    })
}

/// A client that speaks no TLS, or says a part of it.
fn nobody(seed: u64, acceptor: &Acceptor) {
    let (mut client, server) = pair();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || serve(server, acceptor));
        let mut dice = Dice::new(seed);
        for _ in 0..=dice.roll(3) {
            if client.write_all(&noise(&mut dice)).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Write);
        assert_eq!(served.join().expect("the server's end"), 0, "seed {seed}: nobody has said anything");
    });
}

#[test]
fn nothing_is_taken_in_that_was_not_sent() {
    let identity = Identity::generate().expect("a key");
    let (acceptor, fingerprint) = (Acceptor::new(&identity).expect("a server"), identity.fingerprint());
    let mut whole = 0;
    for_seeds(SEEDS, 4, USED_MIB_MAX, |seeds| {
        let acceptor = &acceptor;
        let ends: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let each = seeds.map(|seed| {
                scope.spawn(move || {
                    nobody(seed, acceptor);
                    through_somebody(seed, acceptor, fingerprint)
                })
            });
            let each: Vec<_> = each.collect();
            each.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        whole += ends.into_iter().filter(|ends| *ends == (MESSAGES, MESSAGES)).count();
    });
    assert!(whole > 0, "some get through");
    let (client, server) = pair();
    let acceptor = &acceptor;
    let taken = std::thread::scope(|scope| {
        let served = scope.spawn(move || serve(server, acceptor));
        (connect(client, [7; 32]), served.join().expect("the server's end"))
    });
    assert_eq!(taken, (0, 0), "it is another server");
}

/// Lines of invitations, most of them with something changed.
fn lines(dice: &mut Dice, secret: &[u8; 32]) -> (Vec<u8>, bool) {
    let hash = to_hex(&bluefs_net::sha256(secret));
    let good = format!("7 work rw - {hash}");
    let mut all = Vec::new();
    for _ in 0..dice.roll(4) {
        let mut line = good.clone().into_bytes();
        for _ in 0..dice.roll(3) {
            let place = dice.roll(line.len() as u64) as usize;
            match dice.roll(5) {
                0 => line[place] ^= 1 << dice.roll(8),
                1 => line.insert(place, b' '),
                2 => line.truncate(place + 1),
                3 => line[place] = dice.roll(256) as u8,
                _ => line.extend(format!(" {}", dice.ino().0).bytes()),
            }
        }
        line.push(b'\n');
        all.extend(line);
    }
    let text = String::from_utf8_lossy(&all).into_owned();
    let invites = text.lines().any(|line| line.contains(" work r") && line.ends_with(&hash));
    (all, invites)
}

#[test]
fn what_is_no_invitation_lets_nobody_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = Identity::generate().expect("a key").to_bytes();
    for_seeds(SEEDS, 1, USED_MIB_MAX, |seeds| {
        for seed in seeds {
            let mut dice = Dice::new(seed);
            let mut secret = [0; 32];
            secret[..8].copy_from_slice(&seed.to_le_bytes());
            let (text, invites) = lines(&mut dice, &secret);
            std::fs::write(dir.path().join("invitations"), text).expect("a file");
            let invitations = Invitations::of(dir.path());
            let grant = invitations.check(b"work", &secret, Time(dice.number() as i64));
            assert!(grant.is_none() || invites, "seed {seed}: {grant:?}");
            assert!(invitations.check(b"work", b"", Time(0)).is_none(), "seed {seed}: no secret");
            if invitations.all().is_err() {
                // What cannot be read is not written over.
                assert!(invitations.add("work", false, None).is_err(), "seed {seed}");
            }
            let mut bytes = key.clone();
            let place = dice.roll(bytes.len() as u64) as usize;
            match dice.roll(4) {
                0 => bytes[place] ^= 1 << dice.roll(8),
                1 => bytes.truncate(place),
                2 => bytes[..4].copy_from_slice(&(dice.number() as u32).to_le_bytes()),
                _ => bytes = noise(&mut dice),
            }
            std::fs::write(dir.path().join("identity"), bytes).expect("a file");
            // It is refused, or is a server that nobody has been invited to.
            let _ = identity_of(dir.path()).map(|identity| Acceptor::new(&identity).is_ok());
        }
    });
}
