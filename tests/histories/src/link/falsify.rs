//! What a line does to messages when an error is planted in it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use bluefs_wire::{frame, Frames, Reply, Request};

use crate::planted::Planted;

/// How many times longer a lease seems to last.
const LONGER: u64 = 20;

/// What is known of one connection of a client.
pub struct Falsifier {
    planted: Option<Planted>,
    hello: Option<Request>,
    session: Option<(bluefs::SessionId, u64)>,
    /// Without a reply so far: by their tags, and intervals by their numbers.
    asked: BTreeMap<u64, Request>,
    submitted: BTreeMap<u64, Request>,
}

impl Falsifier {
    pub fn new(planted: Option<Planted>) -> Falsifier {
        let (asked, submitted) = (BTreeMap::new(), BTreeMap::new());
        Falsifier { planted, hello: None, session: None, asked, submitted }
    }

    /// Whether the client does not hear that its connection has ended.
    pub fn hides_cuts(&self) -> bool {
        self.planted == Some(Planted::StaleAfterReconnection) && self.session.is_some()
    }

    /// The client has sent this.
    pub fn up(&mut self, request: &Request) {
        match request {
            Request::Hello { .. } => self.hello = Some(request.clone()),
            Request::Submit { interval } => _ = self.submitted.insert(interval.number, request.clone()),
            Request::Ask { tag, .. }
            | Request::AskLeased { tag, .. }
            | Request::Lease { tag, .. }
            | Request::LeaseNow { tag, .. }
            | Request::Lend { tag }
            | Request::Lock { tag, .. } => _ = self.asked.insert(*tag, request.clone()),
            _ => {}
        }
    }

    /// What the client is told instead of this, and what the server is told for it.
    pub fn down(&mut self, mut reply: Reply) -> (Option<Reply>, Option<Request>) {
        let asked = match &reply {
            Reply::Answer { tag, .. }
            | Reply::Error { tag, .. }
            | Reply::Leased { tag, .. }
            | Reply::Lent { tag, .. }
            | Reply::Locked { tag } => self.asked.remove(tag),
            Reply::Decided { number, .. } => self.submitted.remove(number),
            _ => None,
        };
        match (self.planted, &mut reply) {
            (_, Reply::Welcome { session, epoch, lease_ms, .. }) => {
                self.session = Some((*session, *epoch));
                if self.planted == Some(Planted::LongLeases) {
                    *lease_ms *= LONGER;
                }
            }
            (Some(Planted::LostInvalidations), Reply::Recall { group }) => {
                return (None, Some(Request::GiveBack { group: *group }));
            }
            (Some(Planted::LatePages), Reply::Recall { group }) => {
                let give_back = Request::GiveBack { group: *group };
                return (Some(reply), Some(give_back));
            }
            (Some(Planted::LostInvalidations), Reply::Invalidate { .. }) => return (None, None),
            (Some(Planted::LockOfTwo), Reply::Error { tag, .. }) if matches!(asked, Some(Request::Lock { .. })) => {
                return (Some(Reply::Locked { tag: *tag }), None);
            }
            _ => {}
        }
        (Some(reply), None)
    }

    /// Whether this is told later than the rest.
    pub fn is_late(&self, reply: &Reply) -> bool {
        self.planted == Some(Planted::LatePages) && matches!(reply, Reply::Recall { .. })
    }

    /// Takes the session up on another connection, as a client would, but for what the client has in its cache.
    pub fn resume(&mut self, mut server: &TcpStream) -> io::Result<()> {
        let mut hello = self.hello.clone().ok_or(io::ErrorKind::NotConnected)?;
        if let Request::Hello { session, .. } = &mut hello {
            *session = self.session;
        }
        server.write_all(&frame(&hello))?;
        let (mut messages, mut byte) = (Frames::new(), [0]);
        let welcome = loop {
            server.read_exact(&mut byte)?;
            messages.push(&byte);
            if let Some(reply) = messages.next_message::<Reply>().map_err(io::Error::other)? {
                break reply;
            }
        };
        let Reply::Welcome { session, epoch, .. } = welcome else { return Err(io::ErrorKind::Other.into()) };
        self.session = Some((session, epoch));
        let again = self.submitted.values().chain(self.asked.values());
        [&Request::GaveUp {}].into_iter().chain(again).try_for_each(|request| server.write_all(&frame(request)))
    }
}
