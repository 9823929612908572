//! An honest client of a server that runs, over a socket.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bluefs::op::Change;
use bluefs::query::{Answer, Query};
use bluefs::{Cred, Csn, Interval, Outcome, Runs, Step};
use bluefs_wire::{frame, Frames, Reply, Request, PROTOCOL_VERSION};

/// An honest client over a socket.
pub struct Honest {
    socket: TcpStream,
    frames: Frames,
    number: u64,
}

impl Honest {
    pub fn new(at: std::net::SocketAddr) -> Honest {
        let socket = TcpStream::connect(at).expect("connected");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        let mut honest = Honest { socket, frames: Frames::new(), number: 0 };
        let (volume, secret) = (b"default".to_vec(), b"honest".to_vec());
        honest.send(&Request::Hello { version: PROTOCOL_VERSION, volume, session: None, acknowledged: 0, secret });
        honest
    }

    pub fn send(&mut self, request: &Request) {
        self.send_frames(&frame(request));
    }

    /// Several messages at once.
    pub fn send_frames(&mut self, frames: &[u8]) {
        self.socket.write_all(frames).expect("sent");
    }

    pub fn receive(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.frames.next_message().expect("a message") {
                return reply;
            }
            let mut bytes = [0; 65_536];
            // A read with a limit of time is cut short where the test is stopped and goes on.
            let len = match self.socket.read(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.expect("the server answers"),
            };
            assert!(len > 0, "the server has ended the connection");
            self.frames.push(&bytes[..len]);
        }
    }

    pub fn changes(&mut self, change: Change) {
        self.number += 1;
        let (number, creds, steps) = (self.number, vec![Cred::root()], vec![Step { cred: 0, time: None, change }]);
        let interval = Interval { number, base: Csn(0), after: Runs::new(), reads: vec![], creds, steps };
        self.send(&Request::Submit { interval });
        loop {
            match self.receive() {
                Reply::Decided { outcome: Outcome::Committed { .. }, .. } => break,
                Reply::Decided { outcome, .. } => panic!("{outcome:?}"),
                _ => {}
            }
        }
        self.send(&Request::Acknowledge { number });
    }

    pub fn asks(&mut self, query: Query) -> Answer {
        self.send(&Request::Ask { tag: 1, cred: Cred::root(), query });
        loop {
            if let Reply::Answer { answer, .. } = self.receive() {
                return answer;
            }
        }
    }
}
